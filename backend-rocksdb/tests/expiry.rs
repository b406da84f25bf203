//! Time-to-live through compaction: what is expired goes from the disk, and nothing else does.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use backend_rocksdb::{RocksDbBackend, RocksDbStore};
use backend_testkit::{InlineExecutor, MemoryStorage, block_on, only_subtask};
use managed_state::keyed::{KeyedContext, KeyedStates, ListState, MapState, ValueState};
use state_api::access::{ListAccess, MapAccess, ValueAccess};
use state_api::{
    ByteStore, ByteView, CheckpointId, Clock, Column, KeyGroup, KeyGroupRange, KeyedBackend,
    KeyedHandle, ManualClock, MaxParallelism, Page, PersistContext, RestoreContext, Result,
    SnapshotKind, SnapshotRequest, StateOptions, TtlConfig, ValueFilter, WriteBatch,
};

/// A store that the test keeps a hand on.
#[derive(Clone)]
struct Watched(Rc<RefCell<RocksDbStore>>);

impl ByteStore for Watched {
    fn open_column(&mut self, name: &str) -> Result<Column> {
        self.0.borrow_mut().open_column(name)
    }
    fn column_names(&self) -> Vec<String> {
        self.0.borrow().column_names()
    }
    fn get(&self, column: Column, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.0.borrow().get(column, key, value)
    }
    fn merge(&mut self, column: Column, key: &[u8], operand: &[u8]) -> Result<()> {
        self.0.borrow_mut().merge(column, key, operand)
    }
    fn write(&mut self, batch: WriteBatch) -> Result<()> {
        self.0.borrow_mut().write(batch)
    }
    fn scan(
        &self,
        column: Column,
        start: &[u8],
        end: Option<&[u8]>,
        limit: usize,
        page: &mut Page,
    ) -> Result<()> {
        self.0.borrow().scan(column, start, end, limit, page)
    }
    fn filter_values(
        &mut self,
        column: Column,
        filter: Option<Arc<dyn ValueFilter>>,
    ) -> Result<()> {
        self.0.borrow_mut().filter_values(column, filter)
    }
    fn view(&mut self) -> Result<Box<dyn ByteView>> {
        self.0.borrow_mut().view()
    }
}

const DAY: Duration = Duration::from_secs(86_400);

struct World {
    clock: Arc<ManualClock>,
    dir: tempfile::TempDir,
    storage: MemoryStorage,
}

struct Run {
    states: KeyedStates<u64>,
    store: Watched,
}

impl World {
    fn new() -> Self {
        Self {
            clock: Arc::new(ManualClock::at(1_000_000)),
            dir: tempfile::tempdir().unwrap(),
            storage: MemoryStorage::new(),
        }
    }

    fn start(&self, handles: &[KeyedHandle]) -> Run {
        self.start_with(&RocksDbBackend::new(), &[], handles)
    }

    fn start_with(
        &self,
        backend: &RocksDbBackend,
        options: &[(&str, &str)],
        handles: &[KeyedHandle],
    ) -> Run {
        let max = MaxParallelism::new(16).unwrap();
        let range = KeyGroupRange::new(KeyGroup(0), KeyGroup(15));
        let clock = Arc::<ManualClock>::clone(&self.clock);
        let store = open(backend, self.dir.path(), clock, options);
        let store = Watched(Rc::new(RefCell::new(store)));
        let backend = KeyedBackend::Bytes(Box::new(store.clone()));
        let cx = KeyedContext::new(max, range, Arc::<ManualClock>::clone(&self.clock), 7);
        let mut states = KeyedStates::new(backend, cx).unwrap();
        let cx = RestoreContext {
            storage: Arc::new(self.storage.clone()),
            executor: Arc::new(InlineExecutor),
        };
        block_on(states.restore(handles, &cx)).unwrap();
        Run { states, store }
    }
}

fn open(
    backend: &RocksDbBackend,
    local_dir: &Path,
    clock: Arc<ManualClock>,
    options: &[(&str, &str)],
) -> RocksDbStore {
    let often = ("compaction.filter.query-time-after-num-entries", "7");
    let mut cx = only_subtask(16, local_dir, &[options, &[often]].concat());
    cx.clock = clock;
    backend.open(&cx).unwrap()
}

impl Run {
    fn compact(&self) {
        self.store.0.borrow_mut().compact().unwrap();
    }

    fn bytes(&self, state: &str) -> u64 {
        self.store.0.borrow().file_bytes(state)
    }

    /// Counts the entries that are stored, whether or not a read would show them.
    fn stored(&self, state: &str) -> usize {
        let mut store = self.store.0.borrow_mut();
        let column = store.open_column(state).unwrap();
        let mut page = Page::default();
        store
            .scan(column, b"", None, usize::MAX, &mut page)
            .unwrap();
        page.entries.len()
    }

    fn set(&mut self, state: ValueState<String>, keys: std::ops::Range<u64>) {
        for key in keys {
            self.states
                .at(&key)
                .value(state)
                .set(format!("value {key} {}", "x".repeat(200)))
                .unwrap();
        }
    }

    fn is_there(&mut self, state: ValueState<String>, key: u64) -> bool {
        self.states.at(&key).value(state).get().unwrap().is_some()
    }

    fn snapshot(&mut self, world: &World) -> Vec<KeyedHandle> {
        let request = SnapshotRequest {
            checkpoint: CheckpointId(1),
            kind: SnapshotKind::CanonicalSavepoint,
            now_ms: world.clock.now_ms(),
        };
        let cx = PersistContext::new(
            request.checkpoint,
            Arc::new(world.storage.clone()),
            Arc::new(InlineExecutor),
        );
        block_on(self.states.snapshot(&request).unwrap().persist(cx)).unwrap()
    }
}

fn ttl(duration: Duration) -> TtlConfig {
    TtlConfig::new(duration).unwrap()
}

#[test]
fn k_198_compaction_removes_what_is_expired_and_keeps_the_rest() {
    let world = World::new();
    let mut run = world.start(&[]);
    let timed = |name: &str| StateOptions::new(name).ttl(ttl(DAY));
    let value: ValueState<String> = run.states.value(timed("value")).unwrap();
    let list: ListState<u64> = run.states.list(timed("list")).unwrap();
    let map: MapState<u64, String> = run.states.map(timed("map")).unwrap();
    let plain: ValueState<String> = run.states.value("plain").unwrap();
    let write = |run: &mut Run, keys: std::ops::Range<u64>, entry: u64| {
        run.set(value, keys.clone());
        run.set(plain, keys.clone());
        for key in keys {
            let mut at = run.states.at(&key);
            at.list(list).push(entry).unwrap();
            at.map(map).put(entry, "m".repeat(200)).unwrap();
        }
    };
    write(&mut run, 0..1_000, 1);
    world.clock.advance(DAY.as_millis() as i64 / 2);
    // A tenth is written again, to which lists and maps of the first 100 keys add an entry.
    write(&mut run, 0..100, 2);
    run.compact();
    let before = ["value", "list", "map", "plain"].map(|state| run.bytes(state));
    assert_eq!(
        ["value", "list", "map"].map(|state| run.stored(state)),
        [1_000, 1_000, 1_100]
    );

    world.clock.advance(DAY.as_millis() as i64 / 2 + 1);
    run.compact();
    // A list that compaction has put together is filtered by the next one.
    run.compact();
    let after = ["value", "list", "map", "plain"].map(|state| run.bytes(state));
    assert_eq!(
        ["value", "list", "map"].map(|state| run.stored(state)),
        [100, 100, 100]
    );
    for (before, after) in before.iter().zip(&after).take(3) {
        assert!(after * 3 < *before, "{before} bytes became {after}");
    }
    assert_eq!(run.stored("plain"), 1_000, "nothing of it expires");
    assert!(run.is_there(value, 99) && !run.is_there(value, 100));
    let mut at = run.states.at(&5);
    assert_eq!(at.list(list).get().unwrap(), [2]);
    assert_eq!(at.map(map).entries().unwrap().len(), 1);

    world.clock.advance(DAY.as_millis() as i64);
    run.compact();
    assert_eq!(
        ["value", "list", "map"].map(|state| run.stored(state)),
        [0, 0, 0]
    );
}

#[test]
fn files_that_nobody_touches_lose_what_is_expired_when_their_period_is_over() {
    let world = World::new();
    // RocksDB looks every ten minutes whether the period of a file is over, or as often as it keeps statistics.
    let backend = RocksDbBackend::new().with_options(|options, state| {
        if state.is_none() {
            options.set_stats_persist_period_sec(1);
        }
    });
    let start = |period: &str| {
        let period = [("compaction.filter.periodic-compaction-time", period)];
        let mut run = world.start_with(&backend, &period, &[]);
        let timed = StateOptions::new("timed").ttl(ttl(DAY));
        let timed: ValueState<String> = run.states.value(timed).unwrap();
        let plain: ValueState<String> = run.states.value("plain").unwrap();
        run.set(timed, 0..1_000);
        run.set(plain, 0..1_000);
        // To the last level, where no other compaction has a reason to come by.
        run.compact();
        let bytes = ["timed", "plain"].map(|state| run.bytes(state));
        assert!(bytes.iter().all(|&bytes| bytes > 10_000), "{bytes:?}");
        (run, bytes)
    };
    // The periods are those of the computer's clock, the time to live is that of the job's.
    let (short, before) = start("1 s");
    let (long, before_long) = start("1 d");
    world.clock.advance(DAY.as_millis() as i64);
    for turn in 0.. {
        let now = short.bytes("timed");
        if now == 0 {
            break;
        }
        assert!(turn < 6_000, "{now} bytes are still there");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(short.stored("timed"), 0);
    assert_eq!(short.bytes("plain"), before[1], "nothing of it expires");
    let bytes = ["timed", "plain"].map(|state| long.bytes(state));
    assert_eq!(bytes, before_long, "its period is not over");
    assert_eq!(long.stored("timed"), 1_000);
}

#[test]
fn clean_up_by_compaction_can_be_switched_off() {
    let world = World::new();
    let mut run = world.start(&[]);
    let options = StateOptions::new("value").ttl(ttl(DAY).cleanup_in_compaction(false));
    let value: ValueState<String> = run.states.value(options).unwrap();
    run.set(value, 0..100);
    world.clock.advance(2 * DAY.as_millis() as i64);
    run.compact();
    assert_eq!(run.stored("value"), 100);
    assert!(!run.is_there(value, 7));
}

#[test]
fn time_to_live_is_switched_on_off_and_to_another_duration_on_state_that_is_there() {
    let world = World::new();
    let options = |duration: Option<Duration>| match duration {
        Some(duration) => StateOptions::new("value").ttl(ttl(duration)),
        None => StateOptions::new("value"),
    };
    let day = DAY.as_millis() as i64;
    let mut run = world.start(&[]);
    let value: ValueState<String> = run.states.value(options(None)).unwrap();
    run.set(value, 0..100);
    let plain = run.snapshot(&world);

    // On: what was there counts from the restore.
    world.clock.advance(5 * day);
    let mut run = world.start(&plain);
    let value: ValueState<String> = run.states.value(options(Some(DAY))).unwrap();
    world.clock.advance(day - 1);
    run.set(value, 0..10);
    run.compact();
    assert_eq!(run.stored("value"), 100);
    world.clock.advance(1);
    let timed = run.snapshot(&world);
    run.compact();
    assert_eq!(run.stored("value"), 10);

    // Longer: the old times, the new duration.
    let mut run = world.start(&timed);
    let value: ValueState<String> = run.states.value(options(Some(3 * DAY))).unwrap();
    run.compact();
    assert_eq!(run.stored("value"), 100);
    assert!(run.is_there(value, 50));
    world.clock.advance(2 * day);
    run.compact();
    assert_eq!(run.stored("value"), 10);

    // Shorter.
    let mut run = world.start(&timed);
    let value: ValueState<String> = run.states.value(options(Some(DAY / 24))).unwrap();
    run.compact();
    assert_eq!(run.stored("value"), 0);
    assert!(!run.is_there(value, 5));

    // Off: what is there stays, and nothing of it expires.
    let mut run = world.start(&timed);
    let value: ValueState<String> = run.states.value(options(None)).unwrap();
    world.clock.advance(100 * day);
    run.compact();
    assert_eq!(run.stored("value"), 100);
    assert!(run.is_there(value, 99));
}

#[test]
fn k_198_chunks_of_a_long_list_go_when_they_are_expired_and_the_list_goes_on() {
    let world = World::new();
    let mut run = world.start(&[]);
    let list: ListState<u64> = run
        .states
        .list(StateOptions::new("list").ttl(ttl(DAY)))
        .unwrap();
    let third = DAY.as_millis() as i64 / 3;
    for turn in 0..3_u64 {
        world.clock.advance(if turn > 0 { third } else { 0 });
        for key in 0..4 {
            let elements = (turn * 2_000..(turn + 1) * 2_000).collect();
            run.states.at(&key).list(list).extend(elements).unwrap();
            // From here on the list stands in chunks.
            let popped = run.states.at(&key).list(list).pop_front().unwrap();
            assert_eq!(popped, Some(turn));
        }
    }
    world.clock.advance(third - 1);
    run.compact();
    let before = run.stored("list");
    assert!(before > 80, "{before} entries");
    // The first third is expired.
    world.clock.advance(1);
    run.compact();
    let after = run.stored("list");
    assert!(after < before * 3 / 4, "{before} entries became {after}");
    for key in 0..2 {
        let mut at = run.states.at(&key);
        assert_eq!(at.list(list).pop_front().unwrap(), Some(2_000));
        assert_eq!(at.list(list).len().unwrap(), 3_999);
        at.list(list).push(1).unwrap();
    }
    run.compact();
    let expected: Vec<u64> = (2_000..6_000).collect();
    for key in 0..2 {
        let found = run.states.at(&key).list(list).get().unwrap();
        assert_eq!(found, [&expected[1..], &[1]].concat());
    }
    for key in 2..4 {
        let found = run.states.at(&key).list(list).get().unwrap();
        assert_eq!(found, expected);
    }

    // Two thirds later the lists that nobody appended to are gone from the disk; the others have one element.
    world.clock.advance(2 * third);
    run.compact();
    run.compact();
    assert_eq!(run.stored("list"), 2);
    for key in 0..4 {
        let left = run.states.at(&key).list(list).get().unwrap();
        assert_eq!(left, if key < 2 { vec![1] } else { vec![] });
    }
    world.clock.advance(third);
    run.compact();
    run.compact();
    assert_eq!(run.stored("list"), 0);
}
