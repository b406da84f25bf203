//! What a restore says about the time that it took, on live tables and on byte stores, in four subtasks.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
use std::sync::Arc;

use backend_testkit::storage::{LateStorage, MemoryStorage};
use backend_testkit::{InlineExecutor, ReferenceStore, block_on};
use futures_util::future::LocalBoxFuture;
use managed_state::format::{CANONICAL, FrozenTablesSnapshot, load_tables};
use managed_state::keyed::{KeyedContext, KeyedStates, ValueState};
use state_api::access::ValueAccess;
use state_api::{
    ByteStore, ByteView, CheckpointId, Clock, Column, FrozenTables, KeyedBackend, KeyedHandle,
    LiveSnapshots, LoadTables, ManualClock, MaxParallelism, Page, PersistContext, RestoreContext,
    RestoreTimes, Result, Snapshot, SnapshotKind, SnapshotRequest, Subtask, WriteBatch,
};

const MS: u64 = 1_000_000;
const SUBTASKS: u32 = 4;
/// The one that is slow.
const SLOW: u32 = 2;

/// A store that takes so long for a batch.
struct SlowStore {
    inner: ReferenceStore,
    clock: Arc<ManualClock>,
    batch_ms: i64,
}

impl ByteStore for SlowStore {
    fn open_column(&mut self, name: &str) -> Result<Column> {
        self.inner.open_column(name)
    }

    fn column_names(&self) -> Vec<String> {
        self.inner.column_names()
    }

    fn get(&self, column: Column, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.inner.get(column, key, value)
    }

    fn write(&mut self, batch: WriteBatch) -> Result<()> {
        self.clock.advance(self.batch_ms);
        self.inner.write(batch)
    }

    fn scan(
        &self,
        column: Column,
        start: &[u8],
        end: Option<&[u8]>,
        limit: usize,
        page: &mut Page,
    ) -> Result<()> {
        ByteStore::scan(&self.inner, column, start, end, limit, page)
    }

    fn view(&mut self) -> Result<Box<dyn ByteView>> {
        self.inner.view()
    }
}

/// Live tables that take so long to be read.
struct SlowTables {
    clock: Arc<ManualClock>,
    read_ms: i64,
}

impl LiveSnapshots for SlowTables {
    fn snapshot(
        &mut self,
        _: &SnapshotRequest,
        tables: Box<dyn FrozenTables>,
    ) -> Result<Box<dyn Snapshot<Vec<KeyedHandle>>>> {
        Ok(Box::new(FrozenTablesSnapshot::new(tables, CANONICAL)))
    }

    fn restore<'a>(
        &'a mut self,
        handles: &'a [KeyedHandle],
        cx: &'a RestoreContext,
        tables: &'a mut dyn LoadTables,
    ) -> LocalBoxFuture<'a, Result<()>> {
        self.clock.advance(self.read_ms);
        Box::pin(load_tables(handles, CANONICAL, cx, tables))
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Live,
    Bytes,
}

struct World {
    clock: Arc<ManualClock>,
    memory: MemoryStorage,
    max: MaxParallelism,
    kind: Kind,
}

impl World {
    fn new(kind: Kind) -> Self {
        Self {
            clock: Arc::new(ManualClock::at(0)),
            memory: MemoryStorage::new(),
            max: MaxParallelism::new(8).unwrap(),
            kind,
        }
    }

    fn states(&self, index: u32, slow_ms: i64) -> KeyedStates<u64> {
        let clock = Arc::clone(&self.clock);
        let backend = match self.kind {
            Kind::Live => KeyedBackend::Live(Box::new(SlowTables {
                clock,
                read_ms: slow_ms,
            })),
            Kind::Bytes => KeyedBackend::Bytes(Box::new(SlowStore {
                inner: ReferenceStore::new(),
                clock,
                batch_ms: slow_ms,
            })),
        };
        let subtask = Subtask {
            index,
            parallelism: SUBTASKS,
        };
        let range = self.max.range_of(subtask).unwrap();
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let cx = KeyedContext::new(self.max, range, clock, 7);
        KeyedStates::new(backend, cx).unwrap()
    }

    /// Writes a checkpoint of a subtask with some keys.
    fn checkpoint(&self, index: u32) -> Vec<KeyedHandle> {
        let mut states = self.states(index, 0);
        let count: ValueState<u64> = states.value("count").unwrap();
        let range = states.context().range;
        for key in 0..400_u64 {
            if range.contains(states.hash(&key).group()) {
                states.at(&key).value(count).set(key).unwrap();
            }
        }
        let request = SnapshotRequest {
            checkpoint: CheckpointId(1),
            kind: SnapshotKind::Checkpoint,
            now_ms: 0,
        };
        let cx = PersistContext::new(
            request.checkpoint,
            Arc::new(self.memory.clone()),
            Arc::new(InlineExecutor),
        );
        block_on(states.snapshot(&request).unwrap().persist(cx)).unwrap()
    }

    /// Restores a subtask out of a store with such a latency; returns how long that took and what it went to.
    fn restore(
        &self,
        index: u32,
        handles: &[KeyedHandle],
        latency_ms: i64,
        slow_ms: i64,
    ) -> (u64, RestoreTimes) {
        let mut states = self.states(index, slow_ms);
        assert_eq!(states.restore_times(), RestoreTimes::default());
        let storage = Arc::new(self.memory.clone());
        let storage = LateStorage::new(storage, Arc::clone(&self.clock), latency_ms);
        let cx = RestoreContext {
            storage: Arc::new(storage),
            executor: Arc::new(InlineExecutor),
        };
        let start = self.clock.monotonic_ns();
        block_on(states.restore(handles, &cx)).unwrap();
        let took = self.clock.monotonic_ns() - start;
        (took, states.restore_times())
    }
}

#[test]
fn rt_05_waiting_for_the_store_and_reading_entries_add_up_and_tell_which_subtask_was_slow_at_what()
{
    for kind in [Kind::Live, Kind::Bytes] {
        let world = World::new(kind);
        for index in 0..SUBTASKS {
            let handles = world.checkpoint(index);
            let slow = |ms| if index == SLOW { ms } else { 0 };
            let (took, times) = world.restore(index, &handles, 100, slow(3_000));
            assert_eq!(times.total_ns(), took, "{kind:?} {index}");
            assert_eq!(times.fetch_ns, 100 * MS, "{kind:?} {index}");
            let entries = times.entries_ns / MS;
            assert_eq!(entries >= 3_000, index == SLOW, "{kind:?} {index}");
            assert_eq!((times.open_ns, times.clip_ns), (0, 0));

            let (took, times) = world.restore(index, &handles, 1 + slow(3_000), 0);
            assert_eq!((times.total_ns(), times.fetch_ns), (took, took));
            assert_eq!(took >= 3_000 * MS, index == SLOW, "{kind:?} {index}");
        }
    }
}

#[test]
fn a_fresh_start_has_no_times_and_a_restore_of_nothing_takes_none() {
    let world = World::new(Kind::Bytes);
    let (took, times) = world.restore(0, &[], 100, 3_000);
    assert_eq!((took, times), (0, RestoreTimes::default()));
}
