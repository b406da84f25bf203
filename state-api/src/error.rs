use std::any::Any;
use std::error::Error as StdError;
use std::fmt;

/// A `Result` with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Says what the caller should do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A store or a peer failed for a while: try again.
    Retryable,
    /// A setting is wrong, missing or contradicts another: fix the configuration.
    Config,
    /// An argument breaks the contract of the call; nothing changed.
    InvalidArgument,
    /// Stored bytes are damaged or torn: use an older checkpoint.
    Corrupt,
    /// Stored state can't become what the program asks for: change the program or drop the state.
    Incompatible,
    /// What was named does not exist.
    NotFound,
    /// What was to be created exists already.
    AlreadyExists,
    /// A newer attempt of the same job has taken over: stop, touch nothing.
    Fenced,
    /// A configured limit is reached; what was there before is intact.
    LimitExceeded,
    /// The work was cancelled by its owner.
    Cancelled,
    /// The object is closed, or was left unusable by an earlier failure.
    Poisoned,
    /// The operation is not offered here.
    Unsupported,
    /// Code of the user's returned an error.
    User,
    /// An invariant of ours is broken: report a bug.
    Bug,
}

impl ErrorKind {
    /// Returns the word that starts an error message of this kind.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Retryable => "temporary failure",
            Self::Config => "configuration error",
            Self::InvalidArgument => "invalid argument",
            Self::Corrupt => "damaged data",
            Self::Incompatible => "incompatible state",
            Self::NotFound => "not found",
            Self::AlreadyExists => "already exists",
            Self::Fenced => "fenced",
            Self::LimitExceeded => "limit exceeded",
            Self::Cancelled => "cancelled",
            Self::Poisoned => "unusable",
            Self::Unsupported => "unsupported",
            Self::User => "user code failed",
            Self::Bug => "internal error",
        }
    }
}

/// The one error type of the project: a kind that says what to do, a one-line message, context and a source.
///
/// It is one pointer wide, so that a `Result` on the access path stays small.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    context: Vec<(&'static str, String)>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// Creates an error of a kind with a one-line message.
    #[cold]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            context: Vec::new(),
            source: None,
        }))
    }

    /// Adds what the failed operation was about, such as `("state", "counts")`.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl fmt::Display) -> Self {
        self.0.context.push((key, value.to_string()));
        self
    }

    /// Attaches the error that caused this one.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Returns the kind.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the message without context and source.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the context value stored under a key.
    #[must_use]
    pub fn context(&self, key: &str) -> Option<&str> {
        self.0
            .context
            .iter()
            .find(|(k, _)| *k == key)
            .map(|(_, v)| v.as_str())
    }
}

macro_rules! shorthand {
    ($($(#[$doc:meta])* $name:ident => $kind:ident;)*) => {
        impl Error {
            $($(#[$doc])* #[cold] pub fn $name(message: impl Into<String>) -> Self {
                Self::new(ErrorKind::$kind, message)
            })*
        }
    };
}

shorthand! {
    /// Creates a [`ErrorKind::Retryable`] error.
    retryable => Retryable;
    /// Creates a [`ErrorKind::Config`] error.
    config => Config;
    /// Creates a [`ErrorKind::InvalidArgument`] error.
    invalid => InvalidArgument;
    /// Creates a [`ErrorKind::Corrupt`] error.
    corrupt => Corrupt;
    /// Creates a [`ErrorKind::Incompatible`] error.
    incompatible => Incompatible;
    /// Creates a [`ErrorKind::NotFound`] error.
    not_found => NotFound;
    /// Creates a [`ErrorKind::LimitExceeded`] error.
    limit => LimitExceeded;
    /// Creates a [`ErrorKind::Cancelled`] error.
    cancelled => Cancelled;
    /// Creates a [`ErrorKind::Poisoned`] error.
    poisoned => Poisoned;
    /// Creates a [`ErrorKind::Unsupported`] error.
    unsupported => Unsupported;
    /// Creates a [`ErrorKind::User`] error.
    user => User;
    /// Creates a [`ErrorKind::Bug`] error.
    bug => Bug;
}

impl Error {
    /// Creates a [`ErrorKind::User`] error of what a panic in foreign code said: the first line of its message.
    #[cold]
    pub fn panicked(who: &str, panic: &(dyn Any + Send)) -> Self {
        let text = panic
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
            .and_then(|text| text.lines().next())
            .unwrap_or("no message");
        Self::user(format!("{who} panicked: {text}"))
    }
}

impl fmt::Display for Error {
    /// Writes one line: kind, message, context in brackets, then the chain of sources.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.kind.as_str(), self.0.message)?;
        for (i, (key, value)) in self.0.context.iter().enumerate() {
            write!(f, "{}{key}={value}", if i == 0 { " [" } else { ", " })?;
        }
        if !self.0.context.is_empty() {
            f.write_str("]")?;
        }
        let mut source = self.source();
        while let Some(cause) = source {
            write!(f, ": {cause}")?;
            // Our own errors print their chain themselves.
            source = if cause.is::<Error>() {
                None
            } else {
                cause.source()
            };
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.0.source {
            Some(source) => Some(source.as_ref()),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_prints_as_one_line_with_context_and_causes() {
        let io = std::io::Error::other("disk full");
        let inner = Error::retryable("write failed")
            .with("object", "chk-3/a")
            .caused_by(io);
        let outer = Error::corrupt("restore failed")
            .with("operator", "count")
            .caused_by(inner);
        assert_eq!(
            outer.to_string(),
            "damaged data: restore failed [operator=count]: temporary failure: write failed [object=chk-3/a]: disk full"
        );
        assert_eq!(outer.context("operator"), Some("count"));
        assert_eq!(
            std::mem::size_of::<Result<u8>>(),
            2 * std::mem::size_of::<usize>()
        );
    }
}
