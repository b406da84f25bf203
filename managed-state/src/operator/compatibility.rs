use state_api::compat::check;
use state_api::{Compatibility, OperatorStateMode, Position, StateMeta, TypeMeta};

use super::states::other_mode;

/// Says what becomes of a stored list or broadcast state when a program registers one under its name: what registration does,
/// without doing it.
#[must_use]
pub fn compatibility(
    (old, old_mode): (&StateMeta, OperatorStateMode),
    (new, new_mode): (&StateMeta, OperatorStateMode),
) -> Compatibility {
    if old_mode != new_mode {
        return Compatibility::Incompatible {
            reason: other_mode(old_mode, new_mode),
        };
    }
    let mut all = Vec::new();
    if let (Some(old), Some(new)) = (&old.map_key, &new.map_key) {
        match of(old, new, "key: ", &mut all) {
            None => {}
            Some(incompatible) => return incompatible,
        }
    }
    if let Some(incompatible) = of(&old.value, &new.value, "", &mut all) {
        return incompatible;
    }
    if all.is_empty() {
        Compatibility::AsIs
    } else {
        Compatibility::Migrates { changes: all }
    }
}

/// Adds the changes of one type; returns the verdict if that is the end of it.
fn of(old: &TypeMeta, new: &TypeMeta, part: &str, all: &mut Vec<String>) -> Option<Compatibility> {
    match check(old, new, Position::Value) {
        Compatibility::AsIs => None,
        Compatibility::Migrates { changes } => {
            all.extend(changes.into_iter().map(|change| format!("{part}{change}")));
            None
        }
        Compatibility::Incompatible { reason } => Some(Compatibility::Incompatible {
            reason: format!("{part}{reason}"),
        }),
    }
}
