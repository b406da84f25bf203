use managed_state::format::chain_bytes;
use state_api::{CheckpointId, NamedHandle, StateMeta, StateSummary};

use crate::FsConfig;

/// The objects of a checkpoint, and at which cut they hold the state.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    /// What changed after this cut is not in the objects; 0 for what was restored.
    pub(crate) cut: CheckpointId,
    /// A base and the change streams on top of it, in order.
    pub(crate) files: Vec<NamedHandle>,
    /// The states in it: their changes are of the same types.
    pub(crate) states: Vec<StateMeta>,
    /// The cut of the base; 0 for one that was restored.
    pub(crate) base_cut: CheckpointId,
    /// Wall-clock time of the base's cut in milliseconds; `None` if it is not known.
    pub(crate) base_ms: Option<i64>,
}

impl Chain {
    /// Returns whether another stream of changes can go on top: there is a base, and no state changed its type since.
    pub(crate) fn carries(&self, states: &[StateSummary]) -> bool {
        let is_there = |meta: &StateMeta| states.iter().any(|state| state.meta == *meta);
        !self.files.is_empty() && self.states.iter().all(is_there)
    }

    /// Returns whether there are so many streams that no more may go on top.
    pub(crate) fn is_overlong(&self, config: &FsConfig) -> bool {
        self.files.len() > 2 * config.max_streams + 1
    }

    /// Returns whether the next base is due.
    pub(crate) fn is_outweighed(&self, config: &FsConfig, now_ms: i64) -> bool {
        let (base, changes) = chain_bytes(&self.files);
        if changes == 0 {
            return false;
        }
        let age = self.base_ms.map(|then| now_ms.saturating_sub(then));
        let old = config.interval.zip(age).is_some_and(|(interval, age)| {
            u128::try_from(age).is_ok_and(|age| age >= interval.as_millis())
        });
        old || self.files.len() > config.max_streams + 1
            || changes as f64 > base as f64 * config.change_ratio
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use state_api::StateHandle;
    use std::time::Duration;

    fn chain(lens: &[usize]) -> Chain {
        let file = |len: &usize| NamedHandle {
            name: "file".into(),
            bytes: StateHandle::Inline(vec![0; *len].into()),
        };
        Chain {
            cut: CheckpointId(1),
            files: lens.iter().map(file).collect(),
            states: Vec::new(),
            base_cut: CheckpointId(1),
            base_ms: Some(1_000),
        }
    }

    #[test]
    fn a_base_is_due_when_changes_outweigh_it_or_are_many_or_old() {
        let config = FsConfig {
            change_ratio: 0.5,
            interval: Some(Duration::from_secs(60)),
            max_streams: 3,
        };
        let due = |lens: &[usize], now_ms| chain(lens).is_outweighed(&config, now_ms);
        assert!(!due(&[100], 1_000_000), "nothing changed");
        assert!(!due(&[100, 30, 20], 60_999));
        assert!(due(&[100, 30, 21], 60_999));
        assert!(due(&[100, 1], 61_000));
        assert!(!due(&[100, 1, 1, 1], 0));
        assert!(due(&[100, 1, 1, 1, 1], 0));
        assert!(!due(&[100, 1], i64::MIN), "a clock that was put back");
    }
}
