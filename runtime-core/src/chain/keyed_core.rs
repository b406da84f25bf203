use std::sync::Arc;

use managed_state::keyed::{At, DueTimer, KeyedContext, KeyedStates};
use managed_state::operator::OperatorStates;
use managed_state::raw::{RawKeyedInput, RawStreams, restore_raw_keyed};
use state_api::{
    BackendContext, CheckpointId, Error, ErrorKind, KeyHash, KeyedBackend, KeyedHandle,
    OperatorUid, Result, Snapshot, SnapshotRequest, StateKey,
};

use super::declared::{Declared, NothingKept};
use super::environment::Environment;
use super::event_time::RestoredTime;
use super::input_end::ToldOfEnd;
use super::key_selector::KeyedPort;
use super::restored_keyed::RestoredKeyed;
use crate::operator::{RegisteredTimers, States};
use crate::task::{OperatorParts, SnapshotWork, SubtaskSnapshot};

/// Entries merged or cleaned up per turn.
const MAINTENANCE_BUDGET: usize = 1024;

/// Records whose state is fetched at a time.
const PREFETCH_RECORDS: usize = 64;

/// Keyed state and timers of an operator at the head of a chain, and where it stands in event time.
pub(crate) struct KeyedCore<K> {
    uid: OperatorUid,
    states: Option<KeyedStates<K>>,
    timers: RegisteredTimers,
    /// Records that come next and whose state was asked for.
    fetched: usize,
    /// What key groups had reached before a restore.
    time: RestoredTime,
    /// Keeps `time`, unless the operator has operator states of its own.
    time_states: Option<OperatorStates>,
    pub(crate) told: ToldOfEnd,
    /// Whether the input has ended in this run. Timers by the clock stay where they are from then on: what follows takes no more records.
    input_ended: bool,
    /// The last watermark whose timers have all fired.
    pub(crate) watermark: i64,
    /// The watermark whose timers are firing.
    pub(crate) firing: Option<i64>,
}

impl<K: StateKey> KeyedCore<K> {
    pub(crate) fn new(uid: OperatorUid) -> Self {
        Self {
            uid,
            states: None,
            timers: RegisteredTimers::default(),
            fetched: 0,
            time: RestoredTime::default(),
            time_states: None,
            told: ToldOfEnd::default(),
            input_ended: false,
            watermark: i64::MIN,
            firing: None,
        }
    }

    pub(crate) fn uid(&self) -> &OperatorUid {
        &self.uid
    }

    #[inline]
    pub(crate) fn states(&mut self) -> Result<&mut KeyedStates<K>> {
        self.states
            .as_mut()
            .ok_or_else(|| Error::bug("keyed state is used before it is opened"))
    }

    /// Brings the state of the next records near, all at once, so that the processor does not wait for each on its own; to
    /// be called before each record is taken.
    #[inline]
    pub(crate) fn fetch<T>(&mut self, port: &KeyedPort<K, T>) {
        match self.fetched.checked_sub(1) {
            Some(fetched) => self.fetched = fetched,
            None => self.fetch_more(port),
        }
    }

    #[cold]
    fn fetch_more<T>(&mut self, port: &KeyedPort<K, T>) {
        let Some(states) = &mut self.states else {
            return;
        };
        let records = port.records.ahead().len().min(PREFETCH_RECORDS);
        self.fetched = records.saturating_sub(1);
        if records > 1 {
            states.prefetch(port.ahead().take(records));
        }
    }

    /// Makes the backend, restores it, and lets `register` register the states.
    pub(crate) async fn open(
        &mut self,
        env: &Environment,
        register: impl FnOnce(&mut States<'_, K>) -> Result<()>,
    ) -> Result<()> {
        let (start_ns, read) = (env.clock.monotonic_ns(), env.restore_storage.read());
        let range = env.max_parallelism.range_of(env.subtask)?;
        let backend = env.backend.create(&BackendContext {
            job: env.job.clone(),
            operator: self.uid.clone(),
            subtask: env.subtask,
            max_parallelism: env.max_parallelism,
            range,
            local_dir: env.local_dir.clone(),
            clock: Arc::clone(&env.clock),
            options: env.backend_options.as_ref().clone(),
        })?;
        let mut cx =
            KeyedContext::new(env.max_parallelism, range, Arc::clone(&env.clock), env.seed);
        cx.memory_limit = env.memory_limit;
        cx.object_cache.clone_from(&env.object_cache);
        self.told = env.told_of_end(&self.uid);
        let states = self.states.insert(KeyedStates::new(backend, cx)?);
        let Some((_, snapshot)) = env.restored(&self.uid) else {
            return register(&mut States::new(states, &mut self.timers, env.subtask));
        };
        let made_ns = env.clock.monotonic_ns();
        states
            .restore(&snapshot.managed_keyed, &env.restore_context())
            .await?;
        let mut times = states.restore_times();
        times.open_ns += made_ns - start_ns;
        let restored_ns = env.clock.monotonic_ns();
        // Live tables are filled, and values of a changed type converted.
        register(&mut States::new(states, &mut self.timers, env.subtask))?;
        let end_ns = env.clock.monotonic_ns();
        times.entries_ns += end_ns - restored_ns;
        RestoredKeyed {
            operator: &self.uid,
            subtask: env.subtask,
            read: env.restore_storage.read().since(read),
            times,
            total_ns: end_ns - start_ns,
        }
        .tell();
        Ok(())
    }

    /// Lets `register` register the states where nothing is restored and nothing is kept, and says which those are.
    pub(crate) fn declare(
        &mut self,
        env: &Environment,
        declared: &mut Declared,
        operator_states: &mut OperatorStates,
        register: impl FnOnce(&mut States<'_, K>, &mut OperatorStates) -> Result<()>,
    ) {
        let mut keyed = Vec::new();
        let opened = env
            .restore_nothing(&self.uid, operator_states)
            .and_then(|()| {
                let range = env.max_parallelism.range_of(env.subtask)?;
                let clock = Arc::clone(&env.clock);
                let cx = KeyedContext::new(env.max_parallelism, range, clock, env.seed);
                let backend = KeyedBackend::Live(Box::new(NothingKept));
                let states = self.states.insert(KeyedStates::new(backend, cx)?);
                if env.restored(&self.uid).is_some() {
                    env.at_once(states.restore(&[], &env.restore_context()))?;
                }
                let mut to_register = States::new(states, &mut self.timers, env.subtask);
                let registered = register(&mut to_register, operator_states);
                keyed = states.descriptions();
                registered
            })
            .and_then(|()| self.open_time_in(operator_states));
        declared.operator(&self.uid, opened, operator_states);
        declared.keyed(&self.uid, keyed);
    }

    /// Restores how far event time had come; after `open`.
    pub(crate) async fn open_time(&mut self, env: &Environment) -> Result<()> {
        let mut states = OperatorStates::of_subtask(env.subtask.index);
        if let Some((_, snapshot)) = env.restored(&self.uid) {
            let cx = env.restore_context();
            states.restore(&snapshot.managed_operator, &cx).await?;
        }
        self.open_time_in(&mut states)?;
        self.time_states = Some(states);
        Ok(())
    }

    /// As [`open_time`](Self::open_time), for an operator that has operator states of its own.
    pub(crate) fn open_time_in(&mut self, states: &mut OperatorStates) -> Result<()> {
        if !self.timers.event.is_empty() {
            let range = self.states()?.context().range;
            self.watermark = self.time.open(states, range)?;
        }
        Ok(())
    }

    /// Takes note of a watermark; returns whether it is one that the operator has not seen before a restore either.
    pub(crate) fn advance(&mut self, watermark: i64) -> bool {
        let is_new = watermark >= self.watermark;
        if is_new {
            self.watermark = watermark;
            self.time.caught_up(watermark);
        }
        is_new
    }

    /// Takes note of the end of the input; returns whether the operator is to be told.
    pub(crate) fn finish(&mut self) -> bool {
        self.input_ended = true;
        self.told.finish()
    }

    /// Binds the states to the key of a record, and returns the watermark that holds for it.
    #[inline]
    pub(crate) fn at_record<'a>(
        &'a mut self,
        key: &'a K,
        hash: KeyHash,
    ) -> Result<(At<'a, K>, i64)> {
        let watermark = self.time.of(hash.group(), self.watermark);
        Ok((self.states()?.at_hashed(key, hash), watermark))
    }

    /// Binds the states to the key of a timer, and returns the watermark that holds for it.
    pub(crate) fn at_timer<'a>(&'a mut self, key: &'a K) -> Result<(At<'a, K>, i64)> {
        let hash = self.states()?.hash(key);
        self.at_record(key, hash)
    }

    /// Takes a timer out that the watermark made due.
    pub(crate) fn pop_event(&mut self, watermark: i64) -> Result<Option<DueTimer<K>>> {
        Self::pop_earliest(&mut self.states, &self.timers.event, watermark)
    }

    /// Takes a timer out that the clock made due.
    pub(crate) fn pop_processing(&mut self, now_ms: i64) -> Result<Option<DueTimer<K>>> {
        Self::pop_earliest(&mut self.states, &self.timers.processing, now_ms)
    }

    fn pop_earliest(
        states: &mut Option<KeyedStates<K>>,
        sets: &[managed_state::keyed::AnyTimers],
        up_to: i64,
    ) -> Result<Option<DueTimer<K>>> {
        let Some(states) = states else {
            return Ok(None);
        };
        let mut earliest = None;
        for set in sets {
            if let Some(time) = states.next_timer(*set)?
                && time <= up_to
                && earliest.is_none_or(|(least, _)| time < least)
            {
                earliest = Some((time, *set));
            }
        }
        earliest.map_or(Ok(None), |(_, set)| states.pop_due(set, up_to))
    }

    /// Returns when the next timer in processing time is due.
    pub(crate) fn next_wakeup(&mut self) -> Result<Option<i64>> {
        let (Some(states), false) = (&mut self.states, self.input_ended) else {
            return Ok(None);
        };
        let mut earliest: Option<i64> = None;
        for set in &self.timers.processing {
            if let Some(time) = states.next_timer(*set)? {
                earliest = Some(earliest.map_or(time, |least| least.min(time)));
            }
        }
        Ok(earliest)
    }

    pub(crate) fn has_processing_timers(&self) -> bool {
        !self.input_ended && !self.timers.processing.is_empty()
    }

    /// Reads the raw bytes of this subtask's key groups; `None` at a fresh start.
    pub(crate) async fn restored_raw(&self, env: &Environment) -> Result<Option<RawKeyedInput>> {
        let Some((_, snapshot)) = env.restored(&self.uid) else {
            return Ok(None);
        };
        let range = env.max_parallelism.range_of(env.subtask)?;
        restore_raw_keyed(&snapshot.raw_keyed, range, env.restore_storage.as_ref())
            .await
            .map(Some)
    }

    /// Freezes the states, after the operator's own hook has written raw bytes and handed work over.
    pub(crate) fn snapshot(
        &mut self,
        request: &SnapshotRequest,
        set: &mut SubtaskSnapshot,
        hook: impl FnOnce(&mut RawStreams) -> Result<Option<SnapshotWork>>,
    ) -> Result<()> {
        let mut states = self.time_states.take().unwrap_or_default();
        let result = self.snapshot_in(request, set, &mut states, hook);
        self.time_states = Some(states);
        result
    }

    /// As [`snapshot`](Self::snapshot), for an operator that has operator states of its own.
    pub(crate) fn snapshot_in(
        &mut self,
        request: &SnapshotRequest,
        set: &mut SubtaskSnapshot,
        operator_states: &mut OperatorStates,
        hook: impl FnOnce(&mut RawStreams) -> Result<Option<SnapshotWork>>,
    ) -> Result<()> {
        let mut raw = RawStreams::new(self.states()?.context().range);
        let work = hook(&mut raw)?;
        self.time.store(operator_states, self.watermark)?;
        let mut parts = OperatorParts {
            operator: Some(operator_states.snapshot(request)?),
            work: work.into_iter().collect(),
            input_end: self.told.get(),
            ..OperatorParts::default()
        };
        parts.add_raw(raw)?;
        parts.keyed = Some(freeze(self.states()?, request)?);
        set.add(self.uid.clone(), parts);
        Ok(())
    }

    pub(crate) fn completed(&mut self, id: CheckpointId) -> Result<()> {
        self.states
            .as_mut()
            .map_or(Ok(()), |states| states.checkpoint_completed(id))
    }

    pub(crate) fn aborted(&mut self, id: CheckpointId) -> Result<()> {
        self.states
            .as_mut()
            .map_or(Ok(()), |states| states.checkpoint_aborted(id))
    }

    pub(crate) fn maintain(&mut self) -> bool {
        self.states
            .as_mut()
            .is_some_and(|states| states.maintain(MAINTENANCE_BUDGET))
    }
}

/// Freezes the states; if layers of earlier snapshots are in the way, once they are merged. That holds the task up for as
/// long as it takes, some ten milliseconds for a hundred thousand entries: better than a checkpoint that fails, and with it
/// a job that tolerates no failed one.
fn freeze<K: StateKey>(
    states: &mut KeyedStates<K>,
    request: &SnapshotRequest,
) -> Result<Box<dyn Snapshot<Vec<KeyedHandle>>>> {
    match states.snapshot(request) {
        Err(error) if error.kind() == ErrorKind::LimitExceeded => {
            while states.maintain(MAINTENANCE_BUDGET) {}
            // Layers that an open snapshot holds are still there: then it is declined.
            states.snapshot(request)
        }
        frozen => frozen,
    }
}

#[cfg(test)]
mod tests {
    use backend_hashmap::HashMapSnapshots;
    use managed_state::keyed::ValueState;
    use state_api::access::ValueAccess;
    use state_api::{KeyedBackend, ManualClock, SnapshotKind};

    use super::*;

    fn states() -> (KeyedStates<u64>, ValueState<u64>) {
        let cx = KeyedContext::single(8, Arc::new(ManualClock::at(0))).unwrap();
        let backend = KeyedBackend::Live(Box::new(HashMapSnapshots));
        let mut states = KeyedStates::new(backend, cx).unwrap();
        let count = states.value("count").unwrap();
        (states, count)
    }

    fn request(id: u64) -> SnapshotRequest {
        SnapshotRequest {
            checkpoint: CheckpointId(id),
            kind: SnapshotKind::Checkpoint,
            now_ms: 0,
        }
    }

    fn write_all(states: &mut KeyedStates<u64>, count: ValueState<u64>, value: u64) {
        for key in 0..20_000 {
            states.at(&key).value(count).set(value).unwrap();
        }
    }

    #[test]
    fn snapshots_that_come_faster_than_layers_merge_are_not_declined() {
        let (mut states, count) = states();
        for id in 1..=12 {
            write_all(&mut states, count, id);
            // As if written and let go at once: nothing merged its layers yet.
            drop(freeze(&mut states, &request(id)).unwrap());
        }
        assert_eq!(states.at(&7).value(count).get().unwrap(), Some(12));
    }

    #[test]
    fn a_snapshot_over_layers_that_open_ones_hold_is_declined() {
        let (mut states, count) = states();
        let mut open = Vec::new();
        let declined = (1..=12).find_map(|id| {
            write_all(&mut states, count, id);
            match freeze(&mut states, &request(id)) {
                Ok(snapshot) => {
                    open.push(snapshot);
                    None
                }
                Err(error) => Some(error),
            }
        });
        assert_eq!(declined.unwrap().kind(), ErrorKind::LimitExceeded);
        open.clear();
        assert!(freeze(&mut states, &request(13)).is_ok());
    }
}
