//! Operators in a harness: late records and watermarks across a restore, two inputs, work that a snapshot waits for.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
use std::sync::Arc;

use backend_hashmap::HashMapBackend;
use managed_state::keyed::{At, DueTimer, Timers, ValueState};
use runtime_core::testing::{KeyedHarness, TwoInputHarness};
use runtime_core::{
    KeyedOperator, Out, Session, SideOutput, Sliding, SnapshotWork, States, Timed, Tumbling,
    TwoInputOperator, Windowed, Windowing,
};
use state_api::access::{Aggregator, ValueAccess};
use state_api::{CheckpointId, Error, ErrorKind, Result};

#[derive(Clone)]
struct Sum;

impl Aggregator for Sum {
    type In = u64;
    type Acc = u64;
    type Out = u64;

    fn create(&self) -> u64 {
        0
    }

    fn add(&self, acc: &mut u64, input: u64) -> Result<()> {
        *acc += input;
        Ok(())
    }

    fn merge(&self, acc: &mut u64, other: u64) -> Result<()> {
        *acc += other;
        Ok(())
    }

    fn result(&self, acc: &u64) -> u64 {
        *acc
    }
}

fn backend() -> Arc<HashMapBackend> {
    Arc::new(HashMapBackend)
}

fn results<O: KeyedOperator<Out = Windowed<u32, u64>>>(
    harness: &mut KeyedHarness<O>,
) -> Vec<(i64, i64, u64)> {
    let values = harness.take_values().into_iter();
    values.map(|w| (w.start_ms, w.end_ms, w.value)).collect()
}

#[test]
fn a_record_is_late_at_the_watermark_of_its_windows_end_plus_the_allowed_lateness() {
    let late = SideOutput::new();
    let windowing = Windowing::new(Tumbling::of(10))
        .allowed_lateness(5)
        .late_output(late);
    let mut harness = KeyedHarness::start(windowing.aggregate::<u32, _>(Sum), backend()).unwrap();
    harness.process_at(1, 1, 3).unwrap();
    harness.advance_watermark(8).unwrap();
    assert_eq!(results(&mut harness), []);
    harness.advance_watermark(9).unwrap();
    assert_eq!(results(&mut harness), [(0, 10, 1)]);
    // Late, but allowed: at once, with all that is in the window.
    harness.process_at(1, 10, 4).unwrap();
    harness.process_at(1, 100, 5).unwrap();
    assert_eq!(results(&mut harness), [(0, 10, 11), (0, 10, 111)]);
    harness.advance_watermark(13).unwrap();
    harness.process_at(1, 1000, 9).unwrap();
    assert_eq!(results(&mut harness), [(0, 10, 1111)]);
    harness.advance_watermark(14).unwrap();
    harness.process_at(1, 10_000, 9).unwrap();
    assert_eq!(results(&mut harness), []);
    assert_eq!(
        harness.take_side(late),
        [Timed {
            value: 10_000,
            time: 9
        }]
    );
    assert_eq!(harness.states().entries("window").unwrap(), 0);
}

#[test]
fn a_late_record_that_joins_two_sessions_fires_the_one_they_become() {
    let windowing = Windowing::new(Session::gap(10)).allowed_lateness(100);
    let mut harness = KeyedHarness::start(windowing.aggregate::<u32, _>(Sum), backend()).unwrap();
    harness.process_at(1, 1, 0).unwrap();
    harness.process_at(1, 2, 15).unwrap();
    harness.advance_watermark(30).unwrap();
    assert_eq!(results(&mut harness), [(0, 10, 1), (15, 25, 2)]);
    harness.process_at(1, 4, 8).unwrap();
    assert_eq!(results(&mut harness), [(0, 25, 7)]);
    // One in time makes the session go on: it fires again at its new end.
    harness.process_at(1, 8, 25).unwrap();
    assert_eq!(results(&mut harness), []);
    assert_eq!(harness.states().entries("window").unwrap(), 1);
    harness.advance_watermark(34).unwrap();
    assert_eq!(results(&mut harness), [(0, 35, 15)]);
    harness.advance_watermark(134).unwrap();
    for state in ["window", "window-end", "sessions"] {
        assert_eq!(harness.states().entries(state).unwrap(), 0, "{state}");
    }
}

#[test]
fn a_window_by_the_clock_fires_when_its_time_is_over_and_after_a_restore_at_once() {
    let windowing = Windowing::new(Tumbling::of(10)).by_clock();
    let operator = windowing.reduce::<u32>(|a, b| Ok(a + b));
    let mut harness = KeyedHarness::start(operator.clone(), backend()).unwrap();
    harness.set_time(9).unwrap();
    harness.process(1, 1).unwrap();
    assert_eq!(results(&mut harness), []);
    harness.set_time(10).unwrap();
    harness.process(1, 2).unwrap();
    assert_eq!(results(&mut harness), [(0, 10, 1)]);
    let snapshot = harness.snapshot().unwrap();
    let mut restored = KeyedHarness::restore(operator, backend(), &[snapshot], 1).unwrap();
    restored[0].set_time(500).unwrap();
    assert_eq!(results(&mut restored[0]), [(10, 20, 2)]);
}

#[test]
fn a_restore_fires_no_window_twice_and_none_before_its_inputs_say_so() {
    let late = SideOutput::new();
    let operator = Windowing::new(Sliding::of(10, 5))
        .late_output(late)
        .aggregate::<u32, _>(Sum);
    let mut harness = KeyedHarness::start(operator.clone(), backend()).unwrap();
    for time in 0..25 {
        harness.process_at(1, 1, time).unwrap();
    }
    harness.advance_watermark(20).unwrap();
    assert_eq!(
        results(&mut harness),
        [(-5, 5, 5), (0, 10, 10), (5, 15, 10), (10, 20, 10)]
    );
    let snapshot = harness.snapshot().unwrap();
    for parallelism in [1, 3] {
        let snapshots = [snapshot.clone()];
        let subtasks =
            KeyedHarness::restore(operator.clone(), backend(), &snapshots, parallelism).unwrap();
        let mut harness = subtasks.into_iter().find(|s| s.owns(&1)).unwrap();
        // As late as it was before, though no input has said anything yet.
        harness.process_at(1, 1, 7).unwrap();
        assert_eq!(harness.take_side(late).len(), 1);
        // Another source begins behind; then all go on.
        harness.advance_watermark(3).unwrap();
        harness.process_at(1, 1, 21).unwrap();
        harness.advance_watermark(21).unwrap();
        assert_eq!(results(&mut harness), []);
        harness.advance_watermark(29).unwrap();
        assert_eq!(results(&mut harness), [(15, 25, 11), (20, 30, 6)]);
    }
}

/// Emits the sum of what both inputs brought when the clock or event time says so; holds some of it outside of states.
#[derive(Clone, Default)]
struct Both {
    sum: ValueState<i64>,
    due: Timers<bool>,
    work_fails: bool,
}

impl TwoInputOperator for Both {
    type Key = u32;
    type First = i64;
    type Second = String;
    type Out = i64;

    fn open(&mut self, states: &mut States<'_, u32>) -> Result<()> {
        self.sum = states.value("sum")?;
        self.due = states.event_timers("due")?;
        Ok(())
    }

    fn process_first(
        &mut self,
        n: i64,
        at: &mut At<'_, u32>,
        out: &mut Out<'_, i64>,
    ) -> Result<()> {
        at.value(self.sum).update(|sum| *sum += n)?;
        at.timers_in(self.due, &true)
            .set(out.time().unwrap_or(0))
            .map(drop)
    }

    fn process_second(
        &mut self,
        text: String,
        at: &mut At<'_, u32>,
        _: &mut Out<'_, i64>,
    ) -> Result<()> {
        let n: i64 = text.parse().map_err(|_| Error::user("not a number"))?;
        at.value(self.sum).update(|sum| *sum += n)
    }

    fn on_timer(
        &mut self,
        _: &DueTimer<u32>,
        at: &mut At<'_, u32>,
        out: &mut Out<'_, i64>,
    ) -> Result<()> {
        let sum = at.value(self.sum).get()?.unwrap_or(0);
        out.emit(sum)
    }

    fn snapshot_work(&mut self, _: CheckpointId) -> Result<Option<SnapshotWork>> {
        let fails = self.work_fails;
        Ok(Some(SnapshotWork::blocking(move |cancel| {
            cancel.check()?;
            if fails {
                Err(Error::user("on purpose"))
            } else {
                Ok(())
            }
        })))
    }
}

#[test]
fn two_inputs_of_a_harness_reach_one_state_before_and_after_a_restore() {
    let mut harness = TwoInputHarness::start(Both::default(), backend()).unwrap();
    harness.process_first(7, 30, Some(5)).unwrap();
    harness.process_second(7, "4".to_owned(), None).unwrap();
    let snapshot = harness.snapshot().unwrap();
    let subtasks = TwoInputHarness::restore(Both::default(), backend(), &[snapshot], 2).unwrap();
    let mut owner = subtasks
        .into_iter()
        .find(|subtask| subtask.owns(&7))
        .unwrap();
    owner.process_second(7, "8".to_owned(), None).unwrap();
    owner.advance_watermark(5).unwrap();
    assert_eq!(owner.take_outputs(), [Timed { value: 42, time: 5 }]);
    assert_eq!(owner.take_values(), [0; 0]);
}

#[test]
fn a_snapshot_whose_work_fails_fails() {
    let operator = Both {
        work_fails: true,
        ..Both::default()
    };
    let mut harness = TwoInputHarness::start(operator, backend()).unwrap();
    assert_eq!(harness.snapshot().unwrap_err().kind(), ErrorKind::User);
}
