use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use checkpoint_storage::MemoryCheckpointStorage;
use managed_state::keyed::{KeyedContext, KeyedStates};
use managed_state::operator::OperatorStates;
use managed_state::raw::{RawStreams, restore_raw_keyed};
use state_api::{
    BackendContext, BackendFactory, CancelToken, CheckpointId, CheckpointStorage, Clock, Error,
    HashId, JobId, ManualClock, MaxParallelism, OperatorSnapshot, OperatorUid, PersistContext,
    RestoreContext, Result, SnapshotKind, SnapshotRequest, Subtask,
};

use super::{Collected, StepExecutor};
use crate::assign::assign;
use crate::chain::event_time::RestoredTime;
use crate::channel::Signal;
use crate::operator::{KeyedOperator, Out, RegisteredTimers, SideOutput, States};
use crate::record::{NO_TIMESTAMP, Record, Timed};

/// Key groups of an operator under test.
const KEY_GROUPS: u32 = 128;

/// Runs one subtask of a keyed operator without a job: records and time in, outputs and snapshots out.
///
/// The clock is a [`ManualClock`] that starts at 0. The async part of a snapshot is run to its end on the spot.
pub struct KeyedHarness<O: KeyedOperator> {
    operator: O,
    states: KeyedStates<O::Key>,
    timers: RegisteredTimers,
    clock: Arc<ManualClock>,
    time: RestoredTime,
    time_states: OperatorStates,
    watermark: i64,
    outputs: Collected<O::Out>,
    last_checkpoint: u64,
}

impl<O: KeyedOperator> KeyedHarness<O> {
    /// Starts an operator with empty state, as the only subtask.
    ///
    /// # Errors
    /// Those of the backend and of the operator's `open`.
    pub fn start(operator: O, backend: Arc<dyn BackendFactory>) -> Result<Self> {
        Self::open(
            operator,
            backend.as_ref(),
            Subtask {
                index: 0,
                parallelism: 1,
            },
            None,
        )
    }

    /// Starts as many subtasks as `parallelism` says from the snapshots of earlier ones, in their order.
    ///
    /// # Errors
    /// Those of the backend and of the operator's `open`.
    pub fn restore(
        operator: O,
        backend: Arc<dyn BackendFactory>,
        snapshots: &[OperatorSnapshot],
        parallelism: u32,
    ) -> Result<Vec<Self>> {
        let old: Vec<&OperatorSnapshot> = snapshots.iter().collect();
        let dealt = assign(&old, parallelism, MaxParallelism::new(KEY_GROUPS)?)?;
        (0..)
            .zip(dealt)
            .map(|(index, part)| {
                let subtask = Subtask { index, parallelism };
                Self::open(operator.clone(), backend.as_ref(), subtask, Some(&part))
            })
            .collect()
    }

    fn open(
        mut operator: O,
        backend: &dyn BackendFactory,
        subtask: Subtask,
        restored: Option<&OperatorSnapshot>,
    ) -> Result<Self> {
        let clock = Arc::new(ManualClock::at(0));
        let max_parallelism = MaxParallelism::new(KEY_GROUPS)?;
        let range = max_parallelism.range_of(subtask)?;
        let backend = backend.create(&BackendContext {
            job: JobId::new("harness")?,
            operator: OperatorUid::new("operator")?,
            subtask,
            max_parallelism,
            range,
            local_dir: std::env::temp_dir(),
            clock: clock.clone(),
            options: Default::default(),
        })?;
        let cx = KeyedContext::new(max_parallelism, range, clock.clone(), 0);
        let mut states = KeyedStates::new(backend, cx)?;
        let mut time_states = OperatorStates::of_subtask(subtask.index);
        if let Some(snapshot) = restored {
            let executor = StepExecutor::new();
            let cx = RestoreContext {
                storage: storage(),
                executor: executor.clone(),
            };
            finish(&executor, states.restore(&snapshot.managed_keyed, &cx))?;
            let time = time_states.restore(&snapshot.managed_operator, &cx);
            finish(&executor, time)?;
            let raw = restore_raw_keyed(&snapshot.raw_keyed, range, cx.storage.as_ref());
            operator.restore_raw(finish(&executor, raw)?)?;
        }
        let mut timers = RegisteredTimers::default();
        operator.open(&mut States::new(&mut states, &mut timers, subtask))?;
        let mut time = RestoredTime::default();
        let mut watermark = i64::MIN;
        if !timers.event.is_empty() {
            watermark = time.open(&mut time_states, range)?;
        }
        let outputs = Collected::default();
        Ok(Self {
            operator,
            states,
            timers,
            clock,
            time,
            time_states,
            watermark,
            outputs,
            last_checkpoint: 0,
        })
    }

    /// Returns whether this subtask owns a key.
    #[must_use]
    pub fn owns(&self, key: &O::Key) -> bool {
        let cx = self.states.context();
        cx.range
            .contains(HashId::default().group(key, cx.max_parallelism))
    }

    /// Processes a record without event time.
    ///
    /// # Errors
    /// Those of the operator.
    pub fn process(&mut self, key: O::Key, record: O::In) -> Result<()> {
        self.process_at(key, record, NO_TIMESTAMP)
    }

    /// Processes a record with an event time in milliseconds.
    ///
    /// # Errors
    /// Those of the operator.
    pub fn process_at(&mut self, key: O::Key, record: O::In, time_ms: i64) -> Result<()> {
        let mut at = self.states.at(&key);
        let watermark = self.time.of(at.key_group(), self.watermark);
        let mut out = Out::new(&mut self.outputs, time_ms, watermark);
        self.operator.process(record, &mut at, &mut out)
    }

    /// Advances event time to a watermark, in milliseconds, and fires what is due, earliest first.
    ///
    /// # Errors
    /// Those of the operator.
    pub fn advance_watermark(&mut self, watermark_ms: i64) -> Result<()> {
        let sets = self.timers.event.clone();
        if watermark_ms < self.watermark {
            // Known already, but what was restored waits for its inputs.
            return self.fire(&sets, watermark_ms, true);
        }
        self.watermark = watermark_ms;
        self.time.caught_up(watermark_ms);
        self.fire(&sets, watermark_ms, true)?;
        let mut out = Out::new(&mut self.outputs, NO_TIMESTAMP, self.watermark);
        self.operator.on_watermark(self.watermark, &mut out)
    }

    /// Sets the clock, in milliseconds, and fires what is due in processing time.
    ///
    /// # Errors
    /// Those of the operator.
    pub fn set_time(&mut self, now_ms: i64) -> Result<()> {
        self.clock.set(now_ms);
        let sets = self.timers.processing.clone();
        self.fire(&sets, now_ms, false)
    }

    fn fire(
        &mut self,
        sets: &[managed_state::keyed::AnyTimers],
        up_to: i64,
        event: bool,
    ) -> Result<()> {
        loop {
            let mut earliest = None;
            for set in sets {
                if let Some(time) = self.states.next_timer(*set)?
                    && time <= up_to
                    && earliest.is_none_or(|(least, _)| time < least)
                {
                    earliest = Some((time, *set));
                }
            }
            let Some((time, set)) = earliest else {
                return Ok(());
            };
            let Some(due) = self.states.pop_due(set, up_to)? else {
                return Ok(());
            };
            let time = if event { time } else { NO_TIMESTAMP };
            let mut at = self.states.at(&due.key);
            let watermark = self.time.of(at.key_group(), self.watermark);
            let mut out = Out::new(&mut self.outputs, time, watermark);
            self.operator.on_timer(&due, &mut at, &mut out)?;
        }
    }

    /// Takes a snapshot and tells the operator that its checkpoint is complete.
    ///
    /// # Errors
    /// Those of the operator and of the backend.
    pub fn snapshot(&mut self) -> Result<OperatorSnapshot> {
        self.last_checkpoint += 1;
        let checkpoint = CheckpointId(self.last_checkpoint);
        let mut out = Out::new(&mut self.outputs, NO_TIMESTAMP, self.watermark);
        self.operator.prepare_barrier(checkpoint, &mut out)?;
        let request = SnapshotRequest {
            checkpoint,
            kind: SnapshotKind::Checkpoint,
            now_ms: self.clock.now_ms(),
        };
        let mut raw = RawStreams::new(self.states.context().range);
        self.operator.snapshot_raw(&mut raw)?;
        let raw = raw.finish()?.keyed;
        let work = self.operator.snapshot_work(checkpoint)?;
        let frozen = self.states.snapshot(&request)?;
        let executor = StepExecutor::new();
        let cx = PersistContext {
            checkpoint,
            storage: storage(),
            cancel: CancelToken::new(),
            executor: executor.clone(),
            spill_dir: None,
        };
        self.time.store(&mut self.time_states, self.watermark)?;
        let time = self.time_states.snapshot(&request)?;
        if let Some(work) = work {
            finish(&executor, work.run(cx.clone()))?;
        }
        let managed_keyed = finish(&executor, frozen.persist(cx.clone()))?;
        let managed_operator = finish(&executor, time.persist(cx.clone()))?;
        let raw = raw.map(|raw| finish(&executor, raw.persist(cx)));
        self.operator.checkpoint_completed(checkpoint)?;
        self.states.checkpoint_completed(checkpoint)?;
        Ok(OperatorSnapshot {
            managed_keyed,
            raw_keyed: raw.transpose()?.into_iter().collect(),
            managed_operator: managed_operator.into_iter().collect(),
            ..OperatorSnapshot::default()
        })
    }

    /// Returns what was emitted since the last call, with event times.
    pub fn take_outputs(&mut self) -> Vec<Timed<O::Out>> {
        std::mem::take(&mut self.outputs.records)
    }

    /// Returns what was emitted to a side output since the last call, such as a window's late records, with event times.
    pub fn take_side<S: Record>(&mut self, side: SideOutput<S>) -> Vec<Timed<S>> {
        self.outputs.take_side(side)
    }

    /// Returns what was emitted since the last call.
    pub fn take_values(&mut self) -> Vec<O::Out> {
        self.take_outputs()
            .into_iter()
            .map(|out| out.value)
            .collect()
    }

    /// Returns the states, to look into them.
    pub fn states(&mut self) -> &mut KeyedStates<O::Key> {
        &mut self.states
    }
}

/// Keeps everything inline, so that a snapshot stands by itself.
fn storage() -> Arc<dyn CheckpointStorage> {
    Arc::new(MemoryCheckpointStorage::new(u64::MAX))
}

/// Polls a future to its end, with all the work it hands over.
fn finish<T>(executor: &StepExecutor, future: impl Future<Output = Result<T>>) -> Result<T> {
    let signal = Signal::new();
    let waker = signal.waker();
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(result) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return result;
        }
        let mut worked = false;
        while executor.step(0) {
            worked = true;
        }
        if !worked && !signal.take() {
            return Err(Error::bug("the future waits for nothing that could come"));
        }
    }
}
