use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use backend_rocksdb::RocksDbBackend;
use backend_testkit::fuzz::Random;
use backend_testkit::storage::LateStorage;
use backend_testkit::{InlineExecutor, block_on};
use managed_state::keyed::{KeyedContext, KeyedStates};
use state_api::{
    Clock, KeyedBackend, KeyedHandle, ManualClock, RestoreContext, RestoreTimes, SnapshotKind,
    SystemClock,
};

use crate::harness::{Model, SMALL, Subtasks, files};

const MS: u64 = 1_000_000;
const LATENCY_MS: i64 = 100;
const SLOW_MS: i64 = 3_000;

/// Restores one of four subtasks as a job does; returns how long that took and what the time went to.
fn restore(
    subtasks: &Subtasks,
    index: u32,
    handles: &[KeyedHandle],
    before: impl FnOnce(),
) -> (u64, RestoreTimes) {
    let store = subtasks.open(index, 4);
    let range = subtasks.range_of(index, 4);
    let clock = Arc::clone(&subtasks.clock);
    let cx = KeyedContext::new(subtasks.groups, range, Arc::clone(&clock), 7);
    let backend = KeyedBackend::Bytes(Box::new(store));
    let mut states = KeyedStates::<u64>::new(backend, cx).unwrap();
    let cx = RestoreContext {
        storage: Arc::clone(&subtasks.storage),
        executor: Arc::new(InlineExecutor),
    };
    before();
    let start = clock.monotonic_ns();
    block_on(states.restore(handles, &cx)).unwrap();
    (clock.monotonic_ns() - start, states.restore_times())
}

#[test]
fn rt_05_the_parts_of_a_restores_time_add_up_and_tell_which_subtask_was_slow_and_at_what() {
    let dir = tempfile::tempdir().unwrap();
    let mut subtasks = Subtasks::new(dir.path(), 4, 16, SMALL);
    let (mut random, mut model) = (Random::new(5), Model::new());
    subtasks.fill(&mut random, &mut model, 8_000);
    let handles = subtasks.snapshot(SnapshotKind::Checkpoint);
    assert_eq!(handles.len(), 4);
    subtasks.stores.clear();
    let clock = Arc::new(ManualClock::at(0));
    subtasks.clock = Arc::clone(&clock) as Arc<dyn Clock>;
    let plain = Arc::clone(&subtasks.storage);
    let late = |ms| Arc::new(LateStorage::new(Arc::clone(&plain), Arc::clone(&clock), ms));
    // One subtask takes long to open its database.
    let (slow, of) = (Arc::new(AtomicBool::new(false)), Arc::clone(&clock));
    let opens_slowly = Arc::clone(&slow);
    subtasks.backend = RocksDbBackend::new().with_options(move |_, state| {
        if state.is_none() && opens_slowly.swap(false, Ordering::SeqCst) {
            of.advance(SLOW_MS);
        }
    });
    subtasks.storage = late(LATENCY_MS);
    for (index, handle) in (0..).zip(&handles) {
        let (total, times) = restore(&subtasks, index, std::slice::from_ref(handle), || {
            slow.store(index == 2, Ordering::SeqCst);
        });
        assert_eq!(times.total_ns(), total, "subtask {index}");
        // The layout and the files.
        let requests = 1 + files(handle).shared.len() as u64;
        assert!(requests > 2);
        let expected = RestoreTimes {
            fetch_ns: requests * LATENCY_MS as u64 * MS,
            open_ns: if index == 2 { SLOW_MS as u64 * MS } else { 0 },
            ..RestoreTimes::default()
        };
        assert_eq!(times, expected, "subtask {index}");
    }
    // One whose store is slow.
    for (index, handle) in (0..).zip(&handles) {
        subtasks.storage = late(if index == 1 { SLOW_MS } else { 1 });
        let handle = std::slice::from_ref(handle);
        let (total, times) = restore(&subtasks, index, handle, || {});
        assert_eq!((times.total_ns(), times.fetch_ns), (total, total));
        assert_eq!(total > SLOW_MS as u64 * MS, index == 1, "subtask {index}");
    }
}

#[test]
fn rt_05_what_is_cut_off_at_another_parallelism_takes_time_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let leave = [
        SMALL,
        &[("incremental-restore-async-compact-after-rescale", "false")],
    ]
    .concat();
    let mut subtasks = Subtasks::new(dir.path(), 2, 16, &leave);
    subtasks.clock = Arc::new(SystemClock);
    let (mut random, mut model) = (Random::new(5), Model::new());
    subtasks.fill(&mut random, &mut model, 6_000);
    let handles = subtasks.snapshot(SnapshotKind::Checkpoint);
    subtasks.restore(&handles, 2).unwrap();
    for store in &subtasks.stores {
        let times = store.restored().unwrap().times;
        assert!(times.fetch_ns > 0 && times.open_ns > 0, "{times:?}");
        assert_eq!((times.clip_ns, times.entries_ns), (0, 0));
    }
    // Each takes a part of what two had, and the files reach beyond it; from then on one has to be cleaned before it is merged.
    subtasks.restore(&handles, 3).unwrap();
    let third = subtasks.snapshot(SnapshotKind::Checkpoint);
    let clipped = subtasks.stores[0].restored().unwrap().times;
    assert!(clipped.clip_ns > 0, "{clipped:?}");
    subtasks.restore(&third, 1).unwrap();
    let stats = subtasks.stores[0].restored().unwrap();
    assert!(stats.cleaned_parts > 0 && stats.times.clip_ns > 0);
    assert!(subtasks.contents() == model);
}
