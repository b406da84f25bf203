use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use state_api::{Error, ErrorKind, Result};

use crate::sink::Harden;

/// What is left to do until a transaction survives a crash: part of every checkpoint that names it, until it has succeeded once.
///
/// The checkpoint for which the transaction was ended may be given up before this ran, or had ended; the next one names the
/// transaction all the same.
pub(crate) struct Hardening {
    work: Mutex<Harden>,
    state: AtomicU8,
}

/// Values of [`Hardening::state`].
const DUE: u8 = 0;
const DONE: u8 = 1;
const LOST: u8 = 2;

impl Hardening {
    pub(crate) fn new(work: Harden) -> Self {
        Self {
            work: Mutex::new(work),
            state: AtomicU8::new(DUE),
        }
    }

    /// Does the work unless it was done, in turn with other checkpoints that need it as well.
    pub(crate) fn run(&self) -> Result<()> {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_done() {
            return Ok(());
        }
        let result = work();
        match &result {
            Ok(()) => self.state.store(DONE, Ordering::Release),
            Err(error) if error.kind() == ErrorKind::Poisoned => {
                self.state.store(LOST, Ordering::Release);
            }
            Err(_) => {}
        }
        result
    }

    /// Returns whether the transaction survives a crash.
    pub(crate) fn is_done(&self) -> bool {
        self.state.load(Ordering::Acquire) == DONE
    }

    /// Fails once it is known that the transaction will never survive a crash: only a restore writes its records anew.
    pub(crate) fn check(&self) -> Result<()> {
        if self.state.load(Ordering::Acquire) == LOST {
            return Err(Error::poisoned(
                "a transaction can't be made to survive a crash: no checkpoint can complete before its records are written anew",
            ));
        }
        Ok(())
    }
}

impl fmt::Debug for Hardening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hardening")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_repeated_until_it_succeeds_and_never_after_that() {
        let mut tries = 0;
        let (told, heard) = std::sync::mpsc::channel();
        let hardening = Hardening::new(Box::new(move || {
            tries += 1;
            told.send(tries).expect("the test listens");
            match tries {
                1 => Err(Error::retryable("not now")),
                _ => Ok(()),
            }
        }));
        assert!(hardening.run().is_err() && !hardening.is_done());
        hardening.check().expect("it may succeed later");
        for _ in 0..2 {
            hardening.run().expect("the second try succeeds");
            assert!(hardening.is_done());
        }
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn one_that_never_will_succeed_says_so() {
        let hardening = Hardening::new(Box::new(|| Err(Error::poisoned("pages are lost"))));
        hardening.check().expect("nobody tried");
        assert!(hardening.run().is_err());
        let error = hardening.check().expect_err("it is lost");
        assert_eq!(error.kind(), ErrorKind::Poisoned);
    }
}
