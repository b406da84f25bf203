//! Whole jobs whose state comes back from copies on local disk, and from the store where these are of no use.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
mod job_support;

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use checkpoint_storage::{
    Lease, MemoryPublish, MemoryStore, ObjectStore, ObjectWriter, StoreEntry, StoreRoot,
    StreamOptions, UuidSource,
};
use futures_util::future::BoxFuture;
use job_support::{
    Count, Items, Ledger, asking, expected, lines, parts, settings, totals, wordcount, words,
};
use runtime_core::coordinator::JobStatus;
use runtime_core::execution::{LocalCopyOptions, ReadBytes, SavepointFormat};
use runtime_core::testing::Driver;
use runtime_core::{ExecutionSettings, FolderCheckpoints, Job, JobEvent, JobParts};
use state_api::{BackendFactory, Error, JobId, Result};

/// A store that counts the reads of objects; metadata and the like aside.
#[derive(Clone, Debug, Default)]
struct CountedStore {
    inner: MemoryStore,
    reads: Arc<AtomicU64>,
}

impl ObjectStore for CountedStore {
    fn create(&self, path: &str, lease: Lease) -> BoxFuture<'_, Result<Box<dyn ObjectWriter>>> {
        self.inner.create(path, lease)
    }

    fn read(&self, path: &str, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        let name = path.rsplit('/').next().unwrap();
        if checkpoint_storage::attempt_of_name(name).is_some() {
            self.reads.fetch_add(1, Ordering::Relaxed);
        }
        self.inner.read(path, range)
    }

    fn len(&self, path: &str) -> BoxFuture<'_, Result<Option<u64>>> {
        self.inner.len(path)
    }

    fn list(&self, folder: &str) -> BoxFuture<'_, Result<Vec<StoreEntry>>> {
        self.inner.list(folder)
    }

    fn delete(&self, path: &str) -> BoxFuture<'_, Result<()>> {
        self.inner.delete(path)
    }

    fn remove_folder(&self, folder: &str) -> BoxFuture<'_, Result<bool>> {
        self.inner.remove_folder(folder)
    }

    fn sync_folder(&self, folder: &str) -> BoxFuture<'_, Result<()>> {
        self.inner.sync_folder(folder)
    }
}

/// A job's store, its folder for copies, and what was told of it.
struct Case {
    dir: tempfile::TempDir,
    store: CountedStore,
    seeds: AtomicU64,
    backend: Arc<dyn BackendFactory>,
    backend_options: Vec<(&'static str, &'static str)>,
    told: Arc<Mutex<Told>>,
    /// Lines of input: enough for some checkpoints.
    lines: usize,
}

/// What a job told.
#[derive(Default)]
struct Told {
    /// What was read by each run that began from a checkpoint.
    read: Vec<ReadBytes>,
    warnings: Vec<String>,
}

impl Case {
    fn new(backend: Arc<dyn BackendFactory>) -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            store: CountedStore::default(),
            seeds: AtomicU64::new(1),
            backend,
            backend_options: Vec::new(),
            told: Arc::default(),
            lines: 4000,
        }
    }

    fn hashmap() -> Self {
        Self::new(Arc::new(backend_hashmap::HashMapBackend))
    }

    fn checkpoints(&self) -> Arc<FolderCheckpoints> {
        let publish = MemoryPublish::new(self.store.inner.clone());
        let root = StoreRoot::new(
            Arc::new(self.store.clone()),
            Arc::new(publish),
            "memory://all",
        );
        let store = FolderCheckpoints::new(
            root.folder("wordcount"),
            JobId::new("wordcount").unwrap(),
            UuidSource::seeded(self.seeds.fetch_add(1, Ordering::Relaxed)),
            StreamOptions::new(0, 64).unwrap(),
        );
        Arc::new(store.savepoints(root.folder("savepoints")))
    }

    fn settings(&self, local: bool) -> ExecutionSettings {
        let options = self.backend_options.iter();
        ExecutionSettings {
            local_dir: self.dir.path().to_owned(),
            local_copies: LocalCopyOptions {
                keep: local,
                restore: local,
                roots: vec![self.dir.path().join("copies")],
            },
            backend_options: options
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
            ..settings(10)
        }
    }

    /// Parts of an attempt that takes note of what is told, and hands each event on.
    fn parts(&self, driver: &Driver, on: impl Fn(&JobEvent) + Send + Sync + 'static) -> JobParts {
        let mut parts = parts().checkpoints(self.checkpoints());
        parts.backend = Arc::clone(&self.backend);
        let told = Arc::clone(&self.told);
        asking(driver, parts, move |_, event| {
            match event {
                JobEvent::Running {
                    restored: Some(_),
                    read,
                    ..
                } => told.lock().unwrap().read.push(*read),
                JobEvent::Warning(error) => told.lock().unwrap().warnings.push(error.to_string()),
                _ => {}
            }
            on(event);
        })
    }

    fn told(&self) -> Told {
        std::mem::take(&mut self.told.lock().unwrap())
    }

    fn copies(&self) -> Vec<PathBuf> {
        files(&self.dir.path().join("copies"))
    }

    /// Runs a job that fails once, after its first completed checkpoint; `at_failure` is called in between.
    fn run_failing(
        &self,
        seed: u64,
        local: bool,
        at_failure: impl Fn(&Path) + Send + Sync + 'static,
    ) {
        let (lines, ledger) = (lines(self.lines), Ledger::new());
        let armed = Arc::new(AtomicBool::new(false));
        let job = failing(&lines, &ledger, &armed);
        let mut driver = Driver::new(seed).budget(2);
        let folder = self.dir.path().join("copies");
        let reads = Arc::clone(&self.store.reads);
        let parts = self.parts(&driver, move |event| match event {
            JobEvent::CheckpointCompleted(_) => {
                armed.store(true, Ordering::Relaxed);
            }
            JobEvent::RunFailed { .. } => {
                at_failure(&folder);
                reads.store(0, Ordering::Relaxed);
            }
            _ => {}
        });
        let outcome = driver.run(&job, &self.settings(local), parts).unwrap();
        assert_eq!(outcome.restarts, 1, "seed {seed}");
        assert_eq!(totals(&ledger.records()), expected(&lines), "seed {seed}");
    }
}

/// All files below a folder but for locks.
fn files(below: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(below) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if !path.ends_with("owner.lock") {
            found.push(path);
        }
    }
    found
}

/// A word count that fails once, after `armed` is set.
fn failing(lines: &[String], ledger: &Ledger<(String, u64)>, armed: &Arc<AtomicBool>) -> Job {
    let job = Job::new("wordcount").parallelism(2);
    let (armed, failed) = (Arc::clone(armed), AtomicBool::new(false));
    job.source("lines", Items::new(lines.to_vec(), 4))
        .try_map(move |line: String| {
            if armed.load(Ordering::Relaxed) && !failed.swap(true, Ordering::Relaxed) {
                return Err(Error::user("on purpose"));
            }
            Ok(line)
        })
        .flat_map(words)
        .key_by(|word: &String| word.clone())
        .process("count", Count::default())
        .sink_exactly_once("out", ledger.clone());
    job
}

fn a_restart_reads_no_object_of_the_store(case: &Case, seed: u64) {
    case.run_failing(seed, true, |folder| assert!(!files(folder).is_empty()));
    let told = case.told();
    assert_eq!(told.read.len(), 1);
    assert!(told.read[0].from_copies > 0);
    assert_eq!(told.read[0].from_store, 0);
    assert_eq!(case.store.reads.load(Ordering::Relaxed), 0, "seed {seed}");
    assert_eq!(told.warnings, [""; 0]);
    // It has finished: nobody goes on from it here.
    assert!(case.copies().is_empty(), "{:?}", case.copies());
}

#[test]
fn a_job_that_is_restarted_gets_its_state_back_without_the_store() {
    for seed in 0..3 {
        a_restart_reads_no_object_of_the_store(&Case::hashmap(), seed);
    }
}

#[test]
fn k_703_without_local_copies_none_are_written_and_the_store_is_read() {
    let case = Case::hashmap();
    case.run_failing(1, false, |folder| assert!(!folder.exists()));
    let told = case.told();
    assert_eq!(told.read.len(), 1);
    assert_eq!(told.read[0].from_copies, 0);
    assert!(told.read[0].from_store > 0);
    assert!(case.store.reads.load(Ordering::Relaxed) > 0);
    assert_eq!(fs::read_dir(case.dir.path()).unwrap().count(), 0);
}

fn damaged_copies_are_not_used(case: impl Fn() -> Case) {
    let damages: [fn(&Path); 4] = [
        |path| fs::remove_file(path).unwrap(),
        |path| {
            let file = fs::File::options().write(true).open(path).unwrap();
            file.set_len(path.metadata().unwrap().len() / 2).unwrap();
        },
        |path| {
            // A new file: the old one may have another name.
            let mut bytes = fs::read(path).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::remove_file(path).unwrap();
            fs::write(path, bytes).unwrap();
        },
        |path| {
            let folder = path.parent().unwrap();
            if folder.is_dir() {
                fs::remove_dir_all(folder).unwrap();
                fs::write(folder, b"a file").unwrap();
            }
        },
    ];
    for (seed, damage) in (0..).zip(damages) {
        let case = case();
        case.run_failing(seed, true, move |folder| {
            for file in files(folder) {
                if file.exists() {
                    damage(&file);
                }
            }
        });
        let told = case.told();
        assert_eq!(told.read.len(), 1, "damage {seed}");
        assert_eq!(told.read[0].from_copies, 0, "damage {seed}");
        assert!(case.store.reads.load(Ordering::Relaxed) > 0);
        let of_restore = |warning: &&String| warning.contains("the object is read");
        let of_restore = told.warnings.iter().filter(of_restore).count();
        assert_eq!(of_restore, 1, "damage {seed}: {:?}", told.warnings);
    }
}

#[test]
fn dp_02_a_job_whose_copies_are_damaged_is_restored_from_the_store_and_says_so_once() {
    damaged_copies_are_not_used(Case::hashmap);
}

/// Stops a job with a checkpoint, then starts it again from its latest one with another parallelism.
fn the_next_start_uses_what_the_last_one_left(case: &Case, parallelism: u32) {
    let (lines, ledger) = (lines(case.lines), Ledger::new());
    let mut driver = Driver::new(7).budget(2);
    let (control, asked) = (driver.control(), AtomicU64::new(0));
    let parts = case.parts(&driver, move |event| {
        if let JobEvent::CheckpointCompleted(_) = event {
            match asked.fetch_add(1, Ordering::Relaxed) {
                // Savepoints are nobody's to restart from.
                0 => drop(control.savepoint(None, SavepointFormat::Native)),
                1 => drop(control.stop_with_checkpoint()),
                _ => {}
            }
        }
    });
    let job = wordcount(&lines, 2, &ledger);
    let outcome = driver.run(&job, &case.settings(true), parts).unwrap();
    assert_eq!(outcome.status, JobStatus::Suspended);
    let left = case.copies();
    assert!(!left.is_empty());
    case.told();
    case.store.reads.store(0, Ordering::Relaxed);

    let mut driver = Driver::new(8).budget(3);
    let parts = case.parts(&driver, |_| {});
    let job = wordcount(&lines, parallelism, &ledger);
    let outcome = driver.run(&job, &case.settings(true), parts).unwrap();
    assert_eq!(outcome.status, JobStatus::Finished);
    assert_eq!(totals(&ledger.records()), expected(&lines));
    let told = case.told();
    assert_eq!(told.read.len(), 1);
    assert!(told.read[0].from_copies > 0);
    assert_eq!(told.read[0].from_store, 0);
    assert_eq!(case.store.reads.load(Ordering::Relaxed), 0);
    assert!(case.copies().is_empty());
}

#[test]
fn k_704_the_next_start_in_the_same_folder_uses_the_copies_at_another_parallelism_too() {
    for parallelism in [2, 1, 3] {
        the_next_start_uses_what_the_last_one_left(&Case::hashmap(), parallelism);
    }
}

#[test]
fn dp_01_a_start_that_wants_no_copies_removes_what_an_earlier_one_left() {
    let case = Case::hashmap();
    let (lines, ledger) = (lines(500), Ledger::new());
    let mut driver = Driver::new(7).budget(3);
    let control = driver.control();
    let parts = case.parts(&driver, move |event| {
        if let JobEvent::CheckpointCompleted(_) = event {
            drop(control.stop_with_checkpoint());
        }
    });
    let job = wordcount(&lines, 2, &ledger);
    driver.run(&job, &case.settings(true), parts).unwrap();
    assert!(!case.copies().is_empty());
    let mut driver = Driver::new(8);
    let parts = case.parts(&driver, |_| {});
    driver.run(&job, &case.settings(false), parts).unwrap();
    assert_eq!(totals(&ledger.records()), expected(&lines));
    assert!(case.copies().is_empty());
}

#[cfg(feature = "rocksdb")]
mod rocksdb {
    use super::*;

    fn case() -> Case {
        let mut registry = state_api::BackendRegistry::new();
        runtime_core::register_backends(&mut registry).unwrap();
        Case {
            backend_options: vec![("incremental", "true"), ("memory.managed", "false")],
            lines: 12_000,
            ..Case::new(registry.get("rocksdb").unwrap())
        }
    }

    #[test]
    fn a_job_over_rocksdb_that_is_restarted_links_its_files_back() {
        a_restart_reads_no_object_of_the_store(&case(), 0);
    }

    #[test]
    fn dp_02_a_job_over_rocksdb_whose_copies_are_damaged_is_restored_from_the_store() {
        damaged_copies_are_not_used(case);
    }

    #[test]
    fn k_704_the_next_start_over_rocksdb_uses_the_copies_at_another_parallelism_too() {
        for parallelism in [2, 3] {
            the_next_start_uses_what_the_last_one_left(&case(), parallelism);
        }
    }
}
