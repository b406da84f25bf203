use std::sync::Arc;

use backend_testkit::fuzz::Random;
use backend_testkit::storage::{CountingStorage, FaultyStorage, MemoryStorage};
use backend_testkit::{
    Call, Fault, InlineExecutor, ManualExecutor, block_on, poll_once, poll_until,
};
use state_api::{
    ByteStore, ErrorKind, KeyGroup, KeyGroupRange, KeyedHandle, NamedHandle, RestoreContext,
    SnapshotKind, StateHandle,
};

use crate::harness::{Model, SMALL, Subtasks, all_objects, files, objects};

struct Case {
    subtasks: Subtasks,
    memory: MemoryStorage,
    model: Model,
    handles: Vec<KeyedHandle>,
    _dir: tempfile::TempDir,
}

fn case() -> Case {
    let dir = tempfile::tempdir().unwrap();
    let mut subtasks = Subtasks::new(dir.path(), 2, 16, SMALL);
    let memory = MemoryStorage::new();
    subtasks.storage = Arc::new(memory.clone());
    let (mut random, mut model) = (Random::new(17), Model::new());
    subtasks.work(&mut random, &mut model, 12_000);
    let handles = subtasks.snapshot(SnapshotKind::Checkpoint);
    Case {
        subtasks,
        memory,
        model,
        handles,
        _dir: dir,
    }
}

impl Case {
    /// Restores, which fails; nothing may be left in any folder, and nothing may be gone from the store.
    fn fails(
        &mut self,
        handles: &[KeyedHandle],
        kind: ErrorKind,
        parallelism: u32,
    ) -> state_api::Error {
        let before = self.memory.names();
        let error = self.subtasks.restore(handles, parallelism).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        self.subtasks.stores.clear();
        assert_eq!(std::fs::read_dir(self._dir.path()).unwrap().count(), 0);
        assert_eq!(self.memory.names(), before);
        error
    }
}

#[test]
fn k_256_a_damaged_or_missing_object_is_named_and_never_opened() {
    let mut case = case();
    let handles = case.handles.clone();
    for name in all_objects(&handles) {
        let good = case.memory.object(&name).unwrap();
        let damages: [fn(&mut Vec<u8>); 3] = [
            |bytes| {
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
            },
            |bytes| bytes.truncate(bytes.len() / 2),
            |bytes| bytes.push(0),
        ];
        let damage = damages[name.len() % 3];
        assert!(case.memory.damage(&name, damage));
        for parallelism in [2, 1] {
            let error = case.fails(&handles, ErrorKind::Corrupt, parallelism);
            assert_eq!(error.context("object"), Some(name.as_str()), "{error}");
        }
        assert!(case.memory.damage(&name, |bytes| *bytes = good.to_vec()));
    }
    case.subtasks.restore(&handles, 2).unwrap();
    assert!(case.subtasks.contents() == case.model);
}

#[test]
fn ic_17_a_missing_object_is_named() {
    let mut case = case();
    let handles = case.handles.clone();
    let name = objects(&files(&handles[0]).shared)
        .into_values()
        .next()
        .unwrap();
    assert!(case.memory.remove(&name));
    let error = case.fails(&handles, ErrorKind::Corrupt, 2);
    assert_eq!(error.context("object"), Some(name.as_str()));
    // An older checkpoint without it, or a part without it, is as good as ever.
    let mut others = handles[1..].to_vec();
    others.truncate(1);
    case.subtasks.restore(&others, 1).unwrap();
}

#[test]
fn files_that_are_foreign_swapped_or_lacking_are_noticed() {
    let mut case = case();
    let change = |change: &dyn Fn(&mut Vec<NamedHandle>, &mut Vec<NamedHandle>)| {
        let mut handle = files(&case.handles[0]).clone();
        change(&mut handle.shared, &mut handle.private);
        let mut handles = case.handles.clone();
        handles[0] = KeyedHandle::Incremental(handle);
        handles
    };
    let cases = [
        // Two files under each other's names: their sizes are in the layout, and what is inside is in the table's own footer.
        change(&|shared, _| {
            let (first, last) = (
                shared[0].name.clone(),
                shared[shared.len() - 1].name.clone(),
            );
            shared[0].name = last;
            shared.last_mut().unwrap().name = first;
        }),
        change(&|shared, _| drop(shared.pop())),
        change(&|shared, _| shared.push(shared[0].clone())),
        change(&|shared, _| {
            let mut foreign = shared[0].clone();
            foreign.name = "000999.sst".into();
            shared.push(foreign);
        }),
        change(&|_, private| private.clear()),
        change(&|_, private| private[0].bytes = StateHandle::Inline(vec![1, 2, 3].into())),
        change(&|_, private| private.push(private[0].clone())),
        change(&|shared, _| shared[0].bytes = StateHandle::Inline(b"not a table".to_vec().into())),
    ];
    for (number, handles) in cases.into_iter().enumerate() {
        println!("case {number}");
        case.fails(&handles, ErrorKind::Corrupt, 2);
    }
    let mut foreign = files(&case.handles[0]).clone();
    foreign.format = "other".into();
    let error = case.fails(
        &[KeyedHandle::Incremental(foreign)],
        ErrorKind::Incompatible,
        1,
    );
    assert!(error.message().contains("other"));
    let mut two_ways = case.handles.clone();
    let mut other = files(&two_ways[1]).clone();
    other.states[0].meta.ttl_ms = Some(7);
    two_ways[1] = KeyedHandle::Incremental(other);
    case.fails(&two_ways, ErrorKind::Incompatible, 1);
}

#[test]
fn k_254_a_store_that_fails_for_good_while_files_are_fetched_fails_the_restore_and_is_tried_again()
{
    let mut case = case();
    let faulty = FaultyStorage::new(Arc::new(case.memory.clone()));
    case.subtasks.storage = Arc::new(faulty.clone());
    let handles = case.handles.clone();
    for call in [Call::Open, Call::Next] {
        faulty.fail_all(call, Fault::Fail(ErrorKind::Retryable));
        case.fails(&handles, ErrorKind::Retryable, 2);
        faulty.heal();
        for nth in [1, 2, 5, 9] {
            faulty.fail_nth_of(call, nth, Fault::Fail(ErrorKind::Corrupt));
            case.fails(&handles, ErrorKind::Corrupt, 2);
            faulty.heal();
        }
        for fault in [Fault::Truncate, Fault::Duplicate, Fault::FlipBit] {
            faulty.fail_nth_of(Call::Next, 3, fault);
            case.fails(&handles, ErrorKind::Corrupt, 3);
            faulty.heal();
        }
    }
    case.subtasks.restore(&handles, 3).unwrap();
    assert!(case.subtasks.contents() == case.model);
}

#[test]
fn a_transfer_that_breaks_off_goes_on_where_it_stopped() {
    let mut case = case();
    let counted = CountingStorage::new(Arc::new(case.memory.clone()));
    let faulty = FaultyStorage::new(Arc::new(counted.clone()));
    case.subtasks.storage = Arc::new(faulty.clone());
    let handles = case.handles.clone();
    let read = |case: &mut Case| {
        let before = counted.counts().bytes_read;
        case.subtasks.restore(&handles, 2).unwrap();
        assert!(case.subtasks.contents() == case.model);
        counted.counts().bytes_read - before
    };
    let all = read(&mut case);
    // What was on its way, or a layout, is read once more.
    let layouts = handles
        .iter()
        .map(|handle| files(handle).private[0].bytes.len());
    let once_more = layouts.max().unwrap() + 2 * 1009;
    let mut broken_off = 0;
    for call in [Call::Open, Call::Next] {
        for nth in [1, 2, 3, 10, 15, 26, 37, 50] {
            let (fault, of) = match nth % 2 {
                0 => (Fault::Fail(ErrorKind::Retryable), "before"),
                _ => (Fault::LoseAnswer, "after"),
            };
            let happened = faulty.faults();
            faulty.fail_nth_of(call, nth, fault);
            // What comes after it fails as well, a few times.
            for more in 1..=u64::from(nth % 5 == 0) * 3 {
                faulty.fail_nth_of(Call::ReadRange, more, Fault::Fail(ErrorKind::Retryable));
            }
            let again = read(&mut case);
            assert!(
                again <= all + once_more,
                "{call:?} {nth} {of}: {again} instead of {all}"
            );
            broken_off += faulty.faults() - happened;
            faulty.heal();
        }
    }
    assert!(broken_off > 15);
    // The digest is over all of it, wherever it was broken off.
    let behind_layout = files(&handles[0]).private[0].bytes.len().div_ceil(1009) + 1;
    for fault in [Fault::Truncate, Fault::Duplicate, Fault::FlipBit] {
        let happened = faulty.faults();
        let of_file = behind_layout + 6;
        faulty.fail_nth_of(Call::Next, of_file, Fault::Fail(ErrorKind::Retryable));
        faulty.fail_all(Call::ReadRange, fault);
        let error = case.subtasks.restore(&handles, 2).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{fault:?}: {error}");
        assert!(faulty.faults() - happened >= 2, "{fault:?}");
        faulty.heal();
    }
}

#[test]
fn as_many_files_are_fetched_at_once_as_is_set_and_go_on_together_where_they_broke_off() {
    let dir = tempfile::tempdir().unwrap();
    let options = [SMALL, &[("checkpoint.transfer.thread.num", "3")]].concat();
    let mut subtasks = Subtasks::new(dir.path(), 1, 16, &options);
    // The layout is in the handle.
    let memory = MemoryStorage::new().inline_below(6 << 10);
    let counted = CountingStorage::new(Arc::new(memory));
    let faulty = FaultyStorage::new(Arc::new(counted.clone()));
    subtasks.storage = Arc::new(faulty.clone());
    let (mut random, mut model) = (Random::new(19), Model::new());
    subtasks.fill(&mut random, &mut model, 6_000);
    subtasks.stores[0].compact().unwrap();
    let handles = subtasks.snapshot(SnapshotKind::Checkpoint);
    let of_files: u64 = files(&handles[0])
        .shared
        .iter()
        .map(|f| f.bytes.len())
        .sum();
    assert!(files(&handles[0]).private[0].bytes.object().is_none());
    subtasks.stores.clear();

    let before = counted.counts();
    faulty.fail_all(Call::Next, Fault::Hang);
    let mut store = subtasks.open(0, 1);
    let range = files(&handles[0]).range;
    let cx = RestoreContext {
        storage: Arc::clone(&subtasks.storage),
        executor: Arc::new(InlineExecutor),
    };
    let mut restoring = store.native().unwrap().restore(&handles, range, &cx);
    assert!(poll_until(&mut restoring, || faulty.hanging() == 3).is_none());
    assert!(poll_once(&mut restoring).is_none());
    assert_eq!(
        (faulty.hanging(), counted.counts().opens - before.opens),
        (3, 3)
    );
    // Each gets its first bytes, and breaks off then.
    for nth in 1..=3 {
        faulty.fail_nth_of(Call::Next, nth, Fault::Fail(ErrorKind::Retryable));
    }
    faulty.release();
    block_on(restoring).unwrap();
    let after = counted.counts();
    assert_eq!(after.range_reads - before.range_reads, 3);
    assert_eq!(after.open_readers, 0);
    // What was there is not fetched again.
    let read = after.bytes_read - before.bytes_read;
    assert!(read <= of_files + 3 * 1009, "{read} of {of_files}");
    assert_eq!(store.restored().unwrap().fetched_bytes, of_files);
    subtasks.stores.push(store);
    assert!(subtasks.contents() == model);
}

#[test]
fn k_253_a_restore_that_is_given_up_leaves_nothing_though_its_work_goes_on() {
    let mut case = case();
    let handles = case.handles.clone();
    case.subtasks.stores.clear();
    let executor = ManualExecutor::new();
    // Turns of work that are done before it is given up: the folder is made, files are begun, written and named. What is left of
    // the work is done while the store is still there, or after it is gone.
    for (turns, stays) in (0..20).flat_map(|turns| [(turns, true), (turns, false)]) {
        let cx = RestoreContext {
            storage: Arc::clone(&case.subtasks.storage),
            executor: Arc::new(executor.clone()),
        };
        let mut store = case.subtasks.open(0, 1);
        let range = KeyGroupRange::new(KeyGroup(0), KeyGroup(15));
        let mut restoring = store.native().unwrap().restore(&handles, range, &cx);
        for turn in 0..turns {
            assert!(poll_once(&mut restoring).is_none(), "turn {turn}");
            assert!(executor.run_one());
        }
        assert!(poll_once(&mut restoring).is_none());
        assert!(executor.waiting() > 0, "turn {turns}");
        drop(restoring);
        if stays {
            executor.run_all();
        }
        drop(store);
        executor.run_all();
        let left = std::fs::read_dir(case._dir.path()).unwrap().count();
        assert_eq!(left, 0, "turn {turns}, {stays}");
    }
    case.subtasks.restore(&handles, 1).unwrap();
    assert!(case.subtasks.contents() == case.model);
}
