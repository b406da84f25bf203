use state_api::compat::check;
use state_api::{Compatibility, Position, StateMeta};

use super::decoder::Origin;

/// Says what becomes of a stored state or set of timers when a program registers one under its name: what registration does,
/// without doing it.
#[must_use]
pub fn compatibility(old: &StateMeta, new: &StateMeta) -> Compatibility {
    if let Err(error) = Origin::resolve(old, new, 0) {
        return Compatibility::Incompatible {
            reason: error.message().to_owned(),
        };
    }
    let mut changes = match check(&old.value, &new.value, Position::Value) {
        Compatibility::Migrates { changes } => changes,
        Compatibility::AsIs => Vec::new(),
        incompatible @ Compatibility::Incompatible { .. } => return incompatible,
    };
    match (old.ttl_ms, new.ttl_ms) {
        (None, Some(_)) => {
            changes.push("values get a time-to-live, which begins at the restore".to_owned());
        }
        (Some(_), None) => changes.push("values lose their time-to-live".to_owned()),
        // Another duration is none of the stored bytes' business.
        (None, None) | (Some(_), Some(_)) => {}
    }
    if changes.is_empty() {
        Compatibility::AsIs
    } else {
        Compatibility::Migrates { changes }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use state_api::{CodecKind, StateKind, TypeMeta};

    use super::*;

    fn meta(kind: StateKind, value: TypeMeta, ttl_ms: Option<i64>) -> StateMeta {
        let unit = TypeMeta::of::<()>(CodecKind::Compact);
        StateMeta {
            name: Arc::from("state"),
            kind,
            key: TypeMeta::of::<u64>(CodecKind::Compact),
            namespace: unit,
            map_key: None,
            value,
            ttl_ms,
        }
    }

    fn migrates(changes: &[&str]) -> Compatibility {
        let changes = changes.iter().map(|change| (*change).to_owned()).collect();
        Compatibility::Migrates { changes }
    }

    #[test]
    fn what_registration_would_do_is_said() {
        let small = TypeMeta::of::<u32>(CodecKind::Compact);
        let large = TypeMeta::of::<u64>(CodecKind::Compact);
        let old = meta(StateKind::Value, small.clone(), None);
        assert_eq!(compatibility(&old, &old), Compatibility::AsIs);
        let wider = meta(StateKind::Value, large.clone(), None);
        let widens = "the value widens from u32 to u64";
        assert_eq!(compatibility(&old, &wider), migrates(&[widens]));
        let timed = meta(StateKind::Value, large, Some(1000));
        let begins = "values get a time-to-live, which begins at the restore";
        assert_eq!(compatibility(&old, &timed), migrates(&[widens, begins]));
        let longer = meta(StateKind::Value, timed.value.clone(), Some(5000));
        assert_eq!(compatibility(&timed, &longer), Compatibility::AsIs);
        assert_eq!(
            compatibility(&timed, &wider),
            migrates(&["values lose their time-to-live"])
        );
        let list = meta(StateKind::List, small, None);
        assert_eq!(
            compatibility(&old, &list),
            Compatibility::Incompatible {
                reason: "the snapshot holds a value state, the program registers a list state"
                    .to_owned()
            }
        );
    }
}
