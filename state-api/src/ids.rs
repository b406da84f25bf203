use std::fmt;
use std::sync::Arc;

use crate::{Error, Result};

/// Numbers the checkpoints of a job, from 1, strictly increasing over all attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CheckpointId(pub u64);

impl fmt::Display for CheckpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Numbers the runs of one job id; a higher attempt fences the lower ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt(pub u64);

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Names a job; it is one path segment below the checkpoint folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(Arc<str>);

impl JobId {
    /// Creates a job id.
    ///
    /// # Errors
    /// `InvalidArgument` unless the name has 1 to 128 characters out of `A-Z a-z 0-9 . _ -` and does not start with a dot.
    pub fn new(name: &str) -> Result<Self> {
        check_segment("job id", name)?;
        Ok(Self(name.into()))
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn check_segment(what: &str, name: &str) -> Result<()> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() || name.len() > 128 || name.starts_with('.') || !name.chars().all(allowed) {
        return Err(Error::invalid(format!(
            "{what} {name:?} must have 1 to 128 characters out of A-Z a-z 0-9 . _ - and not start with a dot"
        )));
    }
    Ok(())
}

/// The stable name of an operator: its state is found by it after a restart, a rescale or a change of the job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperatorUid(Arc<str>);

impl OperatorUid {
    /// Creates a uid.
    ///
    /// # Errors
    /// `InvalidArgument` when the name is empty, longer than 255 bytes or holds a control character.
    pub fn new(name: &str) -> Result<Self> {
        if name.is_empty() || name.len() > 255 || name.chars().any(char::is_control) {
            return Err(Error::invalid(format!(
                "operator uid {name:?} must have 1 to 255 bytes and no control characters"
            )));
        }
        Ok(Self(name.into()))
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for OperatorUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One of the parallel copies of an operator: `index` out of `parallelism`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subtask {
    /// Position, from 0.
    pub index: u32,
    /// Number of copies.
    pub parallelism: u32,
}

impl fmt::Display for Subtask {
    /// Writes `index+1/parallelism`, as people count.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index + 1, self.parallelism)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_id_is_one_safe_path_segment() {
        assert_eq!(
            JobId::new("flights-2013_a.b").unwrap().as_str(),
            "flights-2013_a.b"
        );
        for bad in [
            "",
            ".",
            "..",
            ".hidden",
            "a/b",
            "a\\b",
            "a b",
            "ä",
            &"x".repeat(129),
        ] {
            assert!(JobId::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_uid_refuses_control_characters() {
        assert!(OperatorUid::new("count per carrier").is_ok());
        assert!(OperatorUid::new("").is_err());
        assert!(OperatorUid::new("a\nb").is_err());
    }
}
