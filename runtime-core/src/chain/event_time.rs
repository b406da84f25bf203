use managed_state::operator::{OperatorListState, OperatorStates};
use state_api::{KeyGroup, KeyGroupRange, Result, StateType};

use crate::record::END_OF_TIME;

/// The union list that subtasks keep what they have reached in.
const STATE: &str = "holdfast.event-time";

/// How far event time had come in a run of key groups: all event timers of these groups up to it have fired.
#[derive(Clone, Debug, PartialEq, Eq, StateType)]
struct Reached {
    first_group: u16,
    last_group: u16,
    watermark: i64,
}

/// How far event time had come before a restore, by key group.
///
/// After a restore the inputs begin without a watermark, so a record that was late before would be in time now, and a window
/// that has fired would begin anew with it. So the watermark is part of a checkpoint: a record is late that was late for its
/// key group before, whichever subtask has the group now. Timers still wait for what the inputs say.
#[derive(Debug, Default)]
pub(crate) struct RestoredTime {
    state: OperatorListState<Reached>,
    range: Option<KeyGroupRange>,
    /// By key group of the subtask; empty when the watermark has caught up with all of them.
    reached: Vec<i64>,
}

impl RestoredTime {
    /// Registers the state and reads what was restored; returns the watermark that all key groups have reached.
    pub(crate) fn open(
        &mut self,
        states: &mut OperatorStates,
        range: KeyGroupRange,
    ) -> Result<i64> {
        self.state = states.union_list(STATE)?;
        self.range = Some(range);
        self.reached = vec![i64::MIN; range.len()];
        for known in states.elements(self.state)?.iter() {
            for (group, reached) in range.iter().zip(&mut self.reached) {
                if (known.first_group..=known.last_group).contains(&group.0) {
                    *reached = (*reached).max(known.watermark);
                }
            }
        }
        let least = self.reached.iter().copied().min().unwrap_or(i64::MIN);
        self.caught_up(least);
        Ok(least)
    }

    /// Takes note of the watermark of the subtask.
    #[inline]
    pub(crate) fn caught_up(&mut self, watermark: i64) {
        if !self.reached.is_empty() && self.reached.iter().all(|reached| *reached <= watermark) {
            self.reached = Vec::new();
        }
    }

    /// Returns the watermark of a key group, given that of the subtask.
    #[inline]
    pub(crate) fn of(&self, group: KeyGroup, watermark: i64) -> i64 {
        if self.reached.is_empty() {
            return watermark;
        }
        self.of_restored(group, watermark)
    }

    #[cold]
    fn of_restored(&self, group: KeyGroup, watermark: i64) -> i64 {
        let first = self.range.map_or(0, |range| range.start().index());
        let place = group.index().checked_sub(first);
        let reached = place.and_then(|place| self.reached.get(place));
        reached.map_or(watermark, |reached| watermark.max(*reached))
    }

    /// Writes what is reached into the state, for a snapshot.
    pub(crate) fn store(&self, states: &mut OperatorStates, watermark: i64) -> Result<()> {
        let Some(range) = self.range else {
            return Ok(());
        };
        let mut runs: Vec<Reached> = Vec::new();
        for group in range.iter() {
            let watermark = self.of(group, watermark);
            // After the end of its input a job may be given more of it: what is left behind then says nothing about that.
            if watermark == i64::MIN || watermark == END_OF_TIME {
                continue;
            }
            match runs.last_mut() {
                Some(run) if run.watermark == watermark && run.last_group + 1 == group.0 => {
                    run.last_group = group.0;
                }
                _ => runs.push(Reached {
                    first_group: group.0,
                    last_group: group.0,
                    watermark,
                }),
            }
        }
        states.elements_mut(self.state)?.replace(runs);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use state_api::{MaxParallelism, Subtask};

    use super::*;

    fn range(index: u32, parallelism: u32) -> KeyGroupRange {
        let max = MaxParallelism::new(8).unwrap();
        max.range_of(Subtask { index, parallelism }).unwrap()
    }

    /// What a subtask restores that was 0 of 2 and 1 of 2 at watermarks 20 and 30.
    fn restored(range: KeyGroupRange) -> (RestoredTime, OperatorStates, i64) {
        let mut states = OperatorStates::new();
        let state = states.union_list(STATE).unwrap();
        let run = |first_group, last_group, watermark| Reached {
            first_group,
            last_group,
            watermark,
        };
        let runs = [run(0, 3, 20), run(4, 7, 30)];
        states.elements_mut(state).unwrap().replace(runs);
        let mut time = RestoredTime::default();
        let least = time.open(&mut states, range).unwrap();
        (time, states, least)
    }

    #[test]
    fn a_key_group_keeps_its_watermark_until_that_of_its_new_subtask_catches_up() {
        let (mut time, mut states, least) = restored(range(0, 1));
        assert_eq!(least, 20);
        let of = |time: &RestoredTime, group, watermark| time.of(KeyGroup(group), watermark);
        assert_eq!([of(&time, 3, 20), of(&time, 4, 20)], [20, 30]);
        assert_eq!([of(&time, 3, 25), of(&time, 4, 25)], [25, 30]);
        time.store(&mut states, 25).unwrap();
        let stored = states.elements(time.state).unwrap();
        let stored: Vec<_> = stored
            .iter()
            .map(|run| (run.last_group, run.watermark))
            .collect();
        assert_eq!(stored, [(3, 25), (7, 30)]);
        time.caught_up(30);
        assert_eq!(time.reached.len(), 0);
        assert_eq!(of(&time, 4, 30), 30);
    }

    #[test]
    fn a_subtask_takes_what_concerns_its_own_key_groups() {
        assert_eq!(restored(range(1, 2)).2, 30);
        let (time, _, least) = restored(range(1, 3));
        assert_eq!((least, time.of(KeyGroup(5), least)), (20, 30));
    }

    #[test]
    fn the_end_of_time_is_not_kept() {
        let (mut time, mut states, _) = restored(range(0, 2));
        time.caught_up(END_OF_TIME);
        time.store(&mut states, END_OF_TIME).unwrap();
        assert_eq!(states.elements(time.state).unwrap().len(), 0);
    }
}
