use std::path::Path;
use std::sync::Arc;

use backend_testkit::fuzz::Random;
use backend_testkit::storage::{CountingStorage, FaultyStorage};
use backend_testkit::{Call, Fault, InlineExecutor};
use checkpoint_storage::{LocalCopies, LocalCopyOptions, RestoringStorage, UuidSource};
use state_api::{
    CheckpointId, CheckpointStorage, ErrorKind, JobId, KeyedHandle, SnapshotKind, StateHandle,
    Subtask,
};

use crate::harness::{Model, Subtasks, files};

/// The files that are there when the restore fails, of ten.
const BEFORE: u64 = 8;

/// A checkpoint of ten files, and a store that fails when it is told to.
struct Case {
    dir: tempfile::TempDir,
    subtasks: Subtasks,
    counted: CountingStorage,
    faulty: FaultyStorage,
    handles: Vec<KeyedHandle>,
    model: Model,
}

impl Case {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = [
            ("incremental", "true"),
            ("memory.managed", "false"),
            ("compaction.style", "NONE"),
            // One after the other, so that it is known which are there.
            ("checkpoint.transfer.thread.num", "1"),
        ];
        let mut subtasks = Subtasks::new(dir.path(), 1, 16, &options);
        let (mut random, mut model) = (Random::new(23), Model::new());
        let mut handles = Vec::new();
        for _ in 0..10 {
            subtasks.fill(&mut random, &mut model, 500);
            handles = subtasks.snapshot(SnapshotKind::Checkpoint);
        }
        assert_eq!(files(&handles[0]).shared.len(), 10);
        subtasks.stores.clear();
        let counted = CountingStorage::new(Arc::clone(&subtasks.storage));
        let faulty = FaultyStorage::new(Arc::new(counted.clone()));
        Self {
            dir,
            subtasks,
            counted,
            faulty,
            handles,
            model,
        }
    }

    fn copies(&self) -> LocalCopies {
        let options = LocalCopyOptions {
            keep: true,
            restore: true,
            roots: vec![self.dir.path().join("copies")],
        };
        LocalCopies::open(
            options,
            &JobId::new("job").unwrap(),
            &UuidSource::machine(),
            Arc::new(InlineExecutor),
            |error| println!("{error}"),
        )
    }

    /// Restores as a run does that begins with the checkpoint; returns the bytes that came from the store.
    fn run(&mut self, copies: &LocalCopies) -> (state_api::Result<()>, u64) {
        let checkpoint = CheckpointId(10);
        let objects = self.handles.iter().flat_map(KeyedHandle::parts);
        let objects = objects.filter_map(StateHandle::object);
        copies.start_from(Some(checkpoint), objects);
        let place = Subtask {
            index: 0,
            parallelism: 1,
        };
        let store = Arc::new(self.faulty.clone()) as Arc<dyn CheckpointStorage>;
        let storage =
            RestoringStorage::new(store, Some(copies.clone()), checkpoint, "count", place);
        self.subtasks.storage = Arc::new(storage);
        let before = self.counted.counts().bytes_read;
        let restored = self.subtasks.restore(&self.handles, 1);
        (restored, self.counted.counts().bytes_read - before)
    }

    /// Restores, which fails when the ninth file is asked for.
    fn fail(&mut self, copies: &LocalCopies) -> u64 {
        // The layout comes first.
        let nth = 1 + BEFORE + 1;
        self.faulty
            .fail_nth_of(Call::Open, nth, Fault::Fail(ErrorKind::LimitExceeded));
        let (failed, bytes) = self.run(copies);
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::LimitExceeded);
        self.faulty.heal();
        bytes
    }

    fn assert_restored(&mut self) {
        assert!(self.subtasks.contents() == self.model);
        let stats = self.subtasks.stores[0].restored().unwrap();
        assert_eq!(stats.fetched_files + stats.copied_files, 10);
        self.subtasks.stores.clear();
    }

    fn of_files(&self) -> u64 {
        let shared = files(&self.handles[0]).shared.iter();
        shared.map(|file| file.bytes.len()).sum()
    }
}

#[test]
fn rt_02_a_restore_that_failed_fetches_the_rest_the_next_time() {
    let mut case = Case::new();
    let copies = case.copies();
    let first = case.fail(&copies);
    assert!(first * 10 > case.of_files() * 7, "{first}");
    let (restored, second) = case.run(&copies);
    restored.unwrap();
    case.assert_restored();
    assert!(second > 0 && second * 10 <= case.of_files() * 3, "{second}");
    // What was restored is the local copy of its checkpoint.
    let (restored, third) = case.run(&copies);
    restored.unwrap();
    case.assert_restored();
    // The layout alone is read from the store: it is no file.
    assert!(third * 10 < case.of_files(), "{third}");
}

#[test]
fn rt_02_a_process_goes_on_with_the_files_that_a_dead_one_fetched() {
    let mut case = Case::new();
    let copies = case.copies();
    case.fail(&copies);
    // As after a kill: the folder stays, its lock does not.
    drop(std::mem::replace(
        &mut case.subtasks.storage,
        Arc::new(case.counted.clone()),
    ));
    drop(copies);
    let copies = case.copies();
    let (restored, second) = case.run(&copies);
    restored.unwrap();
    case.assert_restored();
    assert!(second > 0 && second * 10 <= case.of_files() * 3, "{second}");
}

#[test]
fn rt_02_a_fetched_file_that_was_damaged_since_is_fetched_again() {
    let mut case = Case::new();
    let copies = case.copies();
    case.fail(&copies);
    let shared = files(&case.handles[0]).shared.clone();
    let objects = shared.iter().filter_map(|file| file.bytes.object());
    let kept: Vec<_> = objects.filter_map(|object| copies.find(object)).collect();
    assert_eq!(kept.len() as u64, BEFORE);
    damage(&kept[3]);
    let (restored, _) = case.run(&copies);
    restored.unwrap();
    let stats = case.subtasks.stores[0].restored().unwrap();
    assert_eq!((stats.copied_files, stats.fetched_files), (BEFORE - 1, 3));
    case.assert_restored();
}

fn damage(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

/// Without copies there is nothing to go on with, and nothing is left lying about.
#[test]
fn a_restore_that_failed_begins_anew_where_no_copies_are_kept() {
    let mut case = Case::new();
    let copies = LocalCopies::open(
        LocalCopyOptions::default(),
        &JobId::new("job").unwrap(),
        &UuidSource::machine(),
        Arc::new(InlineExecutor),
        |error| println!("{error}"),
    );
    case.fail(&copies);
    case.subtasks.stores.clear();
    assert_eq!(std::fs::read_dir(case.dir.path()).unwrap().count(), 0);
    let (restored, second) = case.run(&copies);
    restored.unwrap();
    assert!(second >= case.of_files());
    case.assert_restored();
}
