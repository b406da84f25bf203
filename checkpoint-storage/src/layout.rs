//! Where things lie in a job folder.
use state_api::{CheckpointId, RelPath, Result, Scope};

/// The folder of attempt numbers.
pub const ATTEMPTS: &str = "attempts";

/// The folder of objects that several checkpoints share.
pub const SHARED: &str = "shared";

/// The folder of objects that tasks delete themselves.
pub const TASK_OWNED: &str = "taskowned";

/// Says where new objects go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// A job folder: `chk-<n>/`, `shared/`, `taskowned/`.
    Job,
    /// A self-contained folder, such as a savepoint's: all objects side by side.
    SelfContained,
}

impl Layout {
    /// Returns the path of an object.
    pub(crate) fn path(
        self,
        checkpoint: CheckpointId,
        scope: Scope,
        name: &str,
    ) -> Result<RelPath> {
        match (self, scope) {
            (Self::SelfContained, _) => RelPath::new(name),
            (Self::Job, Scope::Exclusive) => {
                RelPath::new(&format!("{}/{name}", checkpoint_folder(checkpoint)))
            }
            (Self::Job, Scope::Shared) => RelPath::new(&format!("{SHARED}/{name}")),
            (Self::Job, Scope::TaskOwned) => RelPath::new(&format!("{TASK_OWNED}/{name}")),
        }
    }
}

/// Returns the folder of a checkpoint.
#[must_use]
pub fn checkpoint_folder(checkpoint: CheckpointId) -> String {
    format!("chk-{checkpoint}")
}

/// Returns the checkpoint whose folder has this name.
#[must_use]
pub fn checkpoint_of_folder(name: &str) -> Option<CheckpointId> {
    parse_number(name.strip_prefix("chk-")?).map(CheckpointId)
}

/// Parses a number that is written as we write it: no sign, no leading zero.
pub(crate) fn parse_number(text: &str) -> Option<u64> {
    let number: u64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_folder_is_recognised_by_its_exact_name() {
        assert_eq!(
            checkpoint_of_folder(&checkpoint_folder(CheckpointId(17))),
            Some(CheckpointId(17))
        );
        for other in [
            "chk-",
            "chk-+1",
            "chk-01",
            "chk--1",
            "chk-1x",
            "xchk-1",
            "chk-18446744073709551616",
        ] {
            assert_eq!(checkpoint_of_folder(other), None, "{other}");
        }
    }

    #[test]
    fn k_475_each_scope_has_its_folder_and_a_savepoint_holds_all() {
        let path = |layout: Layout, scope| {
            layout
                .path(CheckpointId(3), scope, "x")
                .unwrap()
                .to_string()
        };
        assert_eq!(path(Layout::Job, Scope::Exclusive), "chk-3/x");
        assert_eq!(path(Layout::Job, Scope::Shared), "shared/x");
        assert_eq!(path(Layout::Job, Scope::TaskOwned), "taskowned/x");
        for scope in [Scope::Exclusive, Scope::Shared, Scope::TaskOwned] {
            assert_eq!(path(Layout::SelfContained, scope), "x");
        }
    }
}
