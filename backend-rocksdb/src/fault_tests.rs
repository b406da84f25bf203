//! What disks do to databases: the error says what and where, later calls say so too, and the next database works once the cause
//! is gone.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a failure here fails the test"
)]
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use backend_testkit::storage::MemoryStorage;
use backend_testkit::{InlineExecutor, block_on, only_subtask};
use state_api::{
    BackendContext, ByteStore, CheckpointId, CheckpointStorage, Column, Error, ErrorKind, KeyGroup,
    KeyGroupRange, KeyedHandle, Page, PersistContext, RestoreContext, Result, Snapshot,
    SnapshotKind, SnapshotRequest,
};

use crate::{RocksDbBackend, RocksDbStore};

const ALL: KeyGroupRange = KeyGroupRange::new(KeyGroup(0), KeyGroup(127));

pub(crate) fn context(local_dir: &Path, options: &[(&str, &str)]) -> BackendContext {
    only_subtask(128, local_dir, options)
}

/// Small buffers, so that files are written soon, and no compression, so that they are as large as what was put.
const SMALL: &[(&str, &str)] = &[
    ("writebuffer.size", "1mb"),
    ("compression.per.level", "NO_COMPRESSION"),
    ("memory.fixed-per-tm", "32mb"),
];

pub(crate) fn open(local_dir: &Path) -> RocksDbStore {
    open_with(local_dir, SMALL)
}

pub(crate) fn open_with(local_dir: &Path, options: &[(&str, &str)]) -> RocksDbStore {
    RocksDbBackend::new()
        .open(&context(local_dir, options))
        .unwrap()
}

/// Opens a store for some of the key groups.
pub(crate) fn open_range(
    local_dir: &Path,
    options: &[(&str, &str)],
    range: KeyGroupRange,
) -> RocksDbStore {
    let mut cx = context(local_dir, options);
    cx.range = range;
    RocksDbBackend::new().open(&cx).unwrap()
}

/// Puts up to `bytes` bytes, or until it fails.
fn put(store: &mut RocksDbStore, column: Column, bytes: usize) -> Result<()> {
    let value = [7; 1 << 12];
    for key in 0..bytes / value.len() {
        store.put(column, &key.to_be_bytes(), &value)?;
    }
    Ok(())
}

/// Checks that an error is about the database, and that all further calls tell of it.
fn assert_poisoned(store: &mut RocksDbStore, column: Column, error: &Error, words: &str) {
    assert!(error.message().contains(words), "{error}");
    let path = Path::new(error.context("path").unwrap());
    assert!(path.starts_with(store.folder()), "{error}");
    let again = [
        store.put(column, b"k", b"v").unwrap_err(),
        store.get(column, b"k", &mut Vec::new()).unwrap_err(),
        store
            .scan(column, b"", None, 1, &mut Page::default())
            .unwrap_err(),
        store.delete_range(column, b"", None).unwrap_err(),
        store.open_column("other").unwrap_err(),
        store.view().err().unwrap(),
    ];
    for again in again {
        assert_eq!(again.kind(), ErrorKind::Poisoned);
        assert!(again.context("cause").unwrap().contains(words), "{again}");
    }
}

/// A small file system in memory that only this process sees, by way of the namespace of a process of its own; `None` where this
/// user may not mount one.
pub(crate) struct SmallDisk {
    pub(crate) path: PathBuf,
    keeper: Child,
    _folder: tempfile::TempDir,
}

impl SmallDisk {
    pub(crate) fn new(options: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let script = "mount -t tmpfs -o \"$2\" tmpfs \"$1\" && echo mounted && exec cat";
        let keeper = Command::new("unshare")
            .args([
                "--user",
                "--map-root-user",
                "--mount",
                "sh",
                "-c",
                script,
                "sh",
            ])
            .arg(folder.path())
            .arg(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut keeper) = keeper else {
            println!("left out: this user can't have a disk of its own");
            return None;
        };
        let mut line = String::new();
        drop(BufReader::new(keeper.stdout.as_mut().unwrap()).read_line(&mut line));
        let inside = folder.path().strip_prefix("/").unwrap();
        let path = Path::new(&format!("/proc/{}/root", keeper.id())).join(inside);
        let disk = Self {
            path,
            keeper,
            _folder: folder,
        };
        if line == "mounted\n" && fs::read_dir(&disk.path).is_ok() {
            return Some(disk);
        }
        println!("left out: this user can't have a disk of its own");
        None
    }

    /// Takes all the room that is left.
    pub(crate) fn fill(&self) -> PathBuf {
        let path = self.path.join("ballast");
        let mut ballast = fs::File::create(&path).unwrap();
        for size in [1 << 16, 1 << 12] {
            while ballast.write_all(&vec![0; size]).is_ok() {}
        }
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(self.keeper.kill());
        drop(self.keeper.wait());
    }
}

#[test]
fn dp_07_a_full_disk_is_said_and_the_next_database_works_when_there_is_room() {
    let Some(disk) = SmallDisk::new("size=24m") else {
        return;
    };
    let mut store = open(&disk.path);
    let column = store.open_column("state").unwrap();
    let ballast = disk.fill();
    let error = put(&mut store, column, 64 << 20).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retryable);
    assert_eq!(error.context("operation"), Some("put"));
    assert_poisoned(
        &mut store,
        column,
        &error,
        "disk of the local database is full",
    );
    drop(store);
    fs::remove_file(ballast).unwrap();
    let mut store = open(&disk.path);
    let column = store.open_column("state").unwrap();
    put(&mut store, column, 8 << 20).unwrap();
    drop(store);
    assert_eq!(fs::read_dir(&disk.path).unwrap().count(), 0);
}

#[test]
fn dp_07_a_disk_that_was_full_and_no_longer_is_costs_nothing() {
    let Some(disk) = SmallDisk::new("size=24m") else {
        return;
    };
    let mut store = open(&disk.path);
    let column = store.open_column("state").unwrap();
    store.put(column, b"before", b"1").unwrap();
    let ballast = disk.fill();
    // The flush fails, and RocksDB refuses writes from here on.
    store.put(column, b"while full", b"2").unwrap();
    assert!(store.flush(column).is_err());
    fs::remove_file(ballast).unwrap();
    store.put(column, b"after", b"3").unwrap();
    let mut page = Page::default();
    store.scan(column, b"", None, 9, &mut page).unwrap();
    let keys: Vec<_> = page.entries.into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, [&b"after"[..], b"before", b"while full"]);
    store.flush(column).unwrap();
}

/// A checkpoint that fails because the disk is full when its cut is flushed.
///
/// Nothing is written until that has happened: a write says what has gone wrong before it, which would leave the store unusable or
/// not, as flush and write follow each other.
struct FailedCut {
    disk: SmallDisk,
    ballast: PathBuf,
    store: RocksDbStore,
    column: Column,
    storage: Arc<MemoryStorage>,
}

const INCREMENTAL: &[(&str, &str)] = &[("incremental", "true")];

impl FailedCut {
    fn new() -> Option<Self> {
        let disk = SmallDisk::new("size=24m")?;
        let mut store = open_with(&disk.path, &[SMALL, INCREMENTAL].concat());
        let column = store.open_column("state").unwrap();
        // Less than a write buffer: it is written when the database is cut.
        put(&mut store, column, 512 << 10).unwrap();
        let ballast = disk.fill();
        let storage = Arc::new(MemoryStorage::new());
        let (cx, cut) = cut(&mut store, &storage, 1);
        let error = block_on(cut.persist(cx)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Retryable);
        assert_eq!(error.context("operation"), Some("flush"));
        assert!(error.message().contains("is full"), "{error}");
        let path = Path::new(error.context("path").unwrap());
        assert!(path.starts_with(store.folder()), "{error}");
        Some(Self {
            disk,
            ballast,
            store,
            column,
            storage,
        })
    }
}

#[test]
fn k_250_dp_07_a_disk_that_is_full_when_a_cut_is_flushed_fails_the_checkpoint_and_the_next_one_works()
 {
    for writes in [true, false] {
        let Some(mut failed) = FailedCut::new() else {
            return;
        };
        let store = &mut failed.store;
        fs::remove_file(&failed.ballast).unwrap();
        // Whichever comes first has RocksDB resume: a write of the task, or the next cut.
        if writes {
            store.put(failed.column, b"after the room", b"1").unwrap();
        }
        let (cx, cut) = cut(store, &failed.storage, 2);
        let handles = block_on(cut.persist(cx)).unwrap();
        let other = tempfile::tempdir().unwrap();
        let mut restored = open_with(other.path(), &[SMALL, INCREMENTAL].concat());
        restore(&mut restored, &handles, &failed.storage).unwrap();
        assert_eq!((count(store), count(&mut restored)), (128, 128));
        let column = restored.open_column("state").unwrap();
        let found = restored.get(column, b"after the room", &mut Vec::new());
        assert_eq!(found.unwrap(), writes);
    }
}

#[test]
fn dp_07_a_write_while_the_disk_is_full_says_so_after_a_failed_flush_and_so_does_all_that_follows()
{
    let Some(mut failed) = FailedCut::new() else {
        return;
    };
    let store = &mut failed.store;
    let error = store.put(failed.column, b"while full", b"1").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retryable);
    assert_eq!(error.context("operation"), Some("put"));
    let words = "disk of the local database is full";
    assert_poisoned(store, failed.column, &error, words);
    // A restart cures it, not room alone.
    fs::remove_file(&failed.ballast).unwrap();
    assert_poisoned(store, failed.column, &error, words);
    let request = SnapshotRequest {
        checkpoint: CheckpointId(2),
        kind: SnapshotKind::Checkpoint,
        now_ms: 0,
    };
    let again = store.native().unwrap().snapshot(&request, &[]).err();
    assert_eq!(again.map(|error| error.kind()), Some(ErrorKind::Poisoned));
    drop(failed.store);
    let mut store = open(&failed.disk.path);
    let column = store.open_column("state").unwrap();
    put(&mut store, column, 4 << 20).unwrap();
}

#[test]
fn dp_07_a_disk_that_is_full_during_a_restore_is_said_and_nothing_is_left_there() {
    let Some(disk) = SmallDisk::new("size=12m") else {
        return;
    };
    let options = [SMALL, &[("incremental", "true")]].concat();
    let open = |dir: &Path| RocksDbBackend::new().open(&context(dir, &options));
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path()).unwrap();
    let column = store.open_column("state").unwrap();
    put(&mut store, column, 6 << 20).unwrap();
    let storage = Arc::new(MemoryStorage::new());
    let (cx, cut) = cut(&mut store, &storage, 1);
    let handles = block_on(cut.persist(cx)).unwrap();
    let mut restored = open(&disk.path).unwrap();
    let before = fs::read_dir(restored.folder()).unwrap().count();
    let ballast = disk.fill();
    let error = restore(&mut restored, &handles, &storage).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retryable);
    assert!(error.message().contains("full"), "{error}");
    assert!(
        Path::new(error.context("path").unwrap()).starts_with(restored.folder()),
        "{error}"
    );
    assert_eq!(fs::read_dir(restored.folder()).unwrap().count(), before);
    fs::remove_file(ballast).unwrap();
    restore(&mut restored, &handles, &storage).unwrap();
    assert_eq!((count(&mut store), count(&mut restored)), (1_000, 1_000));
}

/// Takes the sync part of a checkpoint.
pub(crate) fn cut(
    store: &mut RocksDbStore,
    storage: &Arc<MemoryStorage>,
    id: u64,
) -> (PersistContext, Box<dyn Snapshot<Vec<KeyedHandle>>>) {
    let request = SnapshotRequest {
        checkpoint: CheckpointId(id),
        kind: SnapshotKind::Checkpoint,
        now_ms: 0,
    };
    let cx = PersistContext::new(
        request.checkpoint,
        Arc::clone(storage) as Arc<dyn CheckpointStorage>,
        Arc::new(InlineExecutor),
    );
    let cut = store.native().unwrap().snapshot(&request, &[]).unwrap();
    (cx, cut)
}

pub(crate) fn restore(
    store: &mut RocksDbStore,
    handles: &[KeyedHandle],
    storage: &Arc<MemoryStorage>,
) -> Result<()> {
    restore_range(store, handles, ALL, storage)
}

pub(crate) fn restore_range(
    store: &mut RocksDbStore,
    handles: &[KeyedHandle],
    range: KeyGroupRange,
    storage: &Arc<MemoryStorage>,
) -> Result<()> {
    let cx = RestoreContext {
        storage: Arc::clone(storage) as Arc<dyn CheckpointStorage>,
        executor: Arc::new(InlineExecutor),
    };
    block_on(store.native().unwrap().restore(handles, range, &cx)).map(drop)
}

/// Counts up to 1,000 pairs of those that `put` writes.
fn count(store: &mut RocksDbStore) -> usize {
    let column = store.open_column("state").unwrap();
    let mut page = Page::default();
    store.scan(column, b"\0", None, 1_000, &mut page).unwrap();
    page.entries.iter().filter(|(key, _)| key[0] == 0).count()
}

#[test]
fn a_disk_that_may_not_be_written_is_an_error_of_the_configuration() {
    let Some(disk) = SmallDisk::new("size=1m,ro") else {
        return;
    };
    let error = RocksDbBackend::new()
        .open(&context(&disk.path, &[]))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.message().contains("may not be written"), "{error}");
    assert!(
        error
            .context("path")
            .unwrap()
            .starts_with(disk.path.to_str().unwrap())
    );
}

#[test]
fn a_folder_that_is_missing_is_made_and_a_file_in_its_place_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("a/b");
    let store = open(&missing);
    assert!(store.folder().starts_with(&missing));
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let error = RocksDbBackend::new()
        .open(&context(&file.join("x"), &[]))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert_eq!(error.context("operation"), Some("create folder"));
}

#[test]
fn a_folder_that_is_removed_under_a_database_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let column = store.open_column("state").unwrap();
    fs::remove_dir_all(store.folder()).unwrap();
    let error = put(&mut store, column, 64 << 20).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retryable);
    assert_poisoned(
        &mut store,
        column,
        &error,
        "file or folder of the local database is gone",
    );
    drop(store);
    let mut store = open(dir.path());
    store.open_column("state").unwrap();
}

#[test]
fn a_damaged_file_is_never_read_as_state() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let column = store.open_column("state").unwrap();
    put(&mut store, column, 256 << 10).unwrap();
    store.flush(column).unwrap();
    let db = store.database().path().to_owned();
    let files: Vec<PathBuf> = fs::read_dir(db)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "sst"))
        .collect();
    assert_eq!(files.len(), 1);
    let mut bytes = fs::read(&files[0]).unwrap();
    for byte in bytes.iter_mut().take(128 << 10).step_by(512) {
        *byte ^= 0xFF;
    }
    fs::write(&files[0], bytes).unwrap();
    let error = store
        .scan(column, b"", None, usize::MAX, &mut Page::default())
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retryable);
    assert_eq!(error.context("state"), Some("state"));
    assert_poisoned(
        &mut store,
        column,
        &error,
        "file of the local database is damaged",
    );
}

#[test]
fn dp_03_too_many_open_files_are_said_with_what_to_do() {
    let output = Command::new("sh")
        .args(["-c", "ulimit -n 48; exec \"$@\"", "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "fault_tests::with_few_files"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    // Under another name it would not be found, which is no failure to the runner.
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}"
    );
}

#[test]
#[ignore = "run by the test above, in a process that may not open many files"]
fn with_few_files() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let column = store.open_column("state").unwrap();
    let held: Vec<fs::File> = std::iter::from_fn(|| fs::File::open("/dev/null").ok()).collect();
    assert!(!held.is_empty());
    let error = put(&mut store, column, 64 << 20).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    let other = RocksDbBackend::new()
        .open(&context(dir.path(), &[]))
        .unwrap_err();
    assert_eq!(other.kind(), ErrorKind::LimitExceeded);
    drop(held);
    assert_poisoned(&mut store, column, &error, "may not open more files");
    drop(store);
    let mut store = open(dir.path());
    let column = store.open_column("state").unwrap();
    put(&mut store, column, 4 << 20).unwrap();
}
