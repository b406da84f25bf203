use state_api::access::ValueAccess;
use state_api::{Result, StateType};

use super::state::{Found, Located};

/// A value state of one key and namespace in a byte store.
pub struct ByteValue<'a, T> {
    at: Located<'a>,
    default: Option<&'a T>,
}

impl<'a, T: StateType> ByteValue<'a, T> {
    /// Creates the view; `default` is what an absent value reads as.
    #[inline]
    #[must_use]
    pub fn new(at: Located<'a>, default: Option<&'a T>) -> Self {
        Self { at, default }
    }
}

/// Reads a value for a look at it: an expired one is removed, and may be seen once more; a live one may be renewed.
#[inline]
pub(super) fn look<T: StateType>(at: &mut Located<'_>) -> Result<Option<T>> {
    match at.read()? {
        Found::Nothing => Ok(None),
        Found::Live => {
            let value = at.decode()?;
            if at.renews_on_read() {
                at.renew()?;
            }
            Ok(Some(value))
        }
        Found::Expired => {
            at.delete()?;
            if at.returns_expired() {
                at.decode().map(Some)
            } else {
                Ok(None)
            }
        }
    }
}

/// Reads a value to change it: an expired one is none. The flag says whether something is stored.
#[inline]
pub(super) fn take_up<T: StateType>(at: &mut Located<'_>) -> Result<(Option<T>, bool)> {
    match at.read()? {
        Found::Nothing => Ok((None, false)),
        Found::Live => Ok((Some(at.decode()?), true)),
        Found::Expired => Ok((None, true)),
    }
}

impl<T: StateType> ValueAccess<T> for ByteValue<'_, T> {
    #[inline]
    fn with<R>(&mut self, f: impl FnOnce(Option<&T>) -> R) -> Result<R> {
        let value = look(&mut self.at)?;
        Ok(f(value.as_ref().or(self.default)))
    }

    #[inline]
    fn set(&mut self, value: T) -> Result<()> {
        self.at.write(&value)
    }

    #[inline]
    fn modify<R>(&mut self, f: impl FnOnce(&mut Option<T>) -> R) -> Result<R> {
        let (value, stored) = take_up(&mut self.at)?;
        let mut value = value.or_else(|| self.default.cloned());
        let result = f(&mut value);
        match value {
            Some(value) => self.at.write(&value)?,
            None if stored => self.at.delete()?,
            None => {}
        }
        Ok(result)
    }

    fn clear(&mut self) -> Result<()> {
        self.at.delete()
    }
}
