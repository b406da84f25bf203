use std::collections::BTreeSet;
use std::path::PathBuf;

use backend_testkit::block_on;
use backend_testkit::storage::MemoryStorage;
use state_api::ByteStore;

use super::*;
use crate::RocksDbStore;
use crate::fault_tests::{cut, open_with, restore};

fn names(dir: &Path) -> BTreeSet<String> {
    let Ok(entries) = fs::read_dir(dir) else {
        return BTreeSet::new();
    };
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

fn open_logging(local_dir: &Path, log_dir: &Path) -> RocksDbStore {
    let log_dir = log_dir.to_str().unwrap();
    open_with(local_dir, &[("log.dir", log_dir), ("incremental", "true")])
}

/// The folder of the only subtask that logs below a folder.
fn only(log_dir: &Path) -> PathBuf {
    let names = names(log_dir);
    assert_eq!(names.len(), 1, "{names:?}");
    log_dir.join(names.first().unwrap())
}

#[test]
fn logs_are_below_log_dir_and_go_with_their_database() {
    let (dir, logs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // It is made if it is missing.
    let log_dir = logs.path().join("a/b");
    let mut store = open_logging(dir.path(), &log_dir);
    let column = store.open_column("state").unwrap();
    store.put(column, b"\x01key", b"value").unwrap();
    let of_subtask = only(&log_dir);
    let name = of_subtask.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("holdfast-rocksdb-job-op-1of1-"), "{name}");
    let log = names(&of_subtask.join("db")).pop_first().unwrap();
    assert!(log.ends_with("db_LOG"), "{log}");
    let said = fs::read_to_string(of_subtask.join("db").join(&log)).unwrap();
    assert!(said.contains(store.folder().to_str().unwrap()), "{said}");
    assert!(!names(&store.folder().join("db")).contains("LOG"));

    let storage = Arc::new(MemoryStorage::new());
    let (cx, cut) = cut(&mut store, &storage, 1);
    let handles = block_on(cut.persist(cx)).unwrap();
    drop(store);
    assert_eq!(names(&log_dir), BTreeSet::new());

    // A restore puts another database in the place of the empty one.
    let mut store = open_logging(dir.path(), &log_dir);
    restore(&mut store, &handles, &storage).unwrap();
    let of_subtask = only(&log_dir);
    let expected = ["db-1", "owner.lock"].map(str::to_owned);
    assert_eq!(names(&of_subtask), BTreeSet::from(expected));
    // What is frozen keeps the database, and its log.
    let view = store.view().unwrap();
    drop(store);
    assert!(of_subtask.join("db-1").exists());
    drop(view);
    assert_eq!(names(&log_dir), BTreeSet::new());
}

#[test]
fn logs_that_a_killed_process_left_are_removed_at_the_next_start_and_nothing_else() {
    let (dir, logs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let alive = open_logging(dir.path(), logs.path());
    let of_alive = only(logs.path());
    let left = logs.path().join("holdfast-rocksdb-job-op-1of1-dead");
    fs::create_dir_all(left.join("db-1")).unwrap();
    fs::write(left.join("db-1/_tmp_db-1_LOG"), "said").unwrap();
    fs::write(left.join("db-1/_tmp_db-1_LOG.old.1"), "said before").unwrap();
    // As after a kill: the file is there, its lock is not held.
    fs::write(left.join("owner.lock"), "").unwrap();
    let foreign = logs.path().join("holdfast-rocksdb-notes");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("notes.txt"), "mine").unwrap();
    fs::write(logs.path().join("syslog"), "mine").unwrap();

    let next = open_logging(dir.path(), logs.path());
    assert!(!left.exists() && of_alive.join("db").exists());
    assert!(foreign.join("notes.txt").exists() && logs.path().join("syslog").exists());
    drop((alive, next));
    let expected = ["holdfast-rocksdb-notes", "syslog"].map(str::to_owned);
    assert_eq!(names(logs.path()), BTreeSet::from(expected));
}

#[test]
fn a_database_logs_into_its_own_folder_where_log_dir_cant_be_used() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "mine").unwrap();
    let store = open_logging(dir.path(), &file);
    assert!(names(&store.folder().join("db")).contains("LOG"));
    assert_eq!(fs::read(&file).unwrap(), b"mine");

    // RocksDB would write no log at all.
    let logs = dir.path().join("logs");
    let deep = dir.path().join("d".repeat(100)).join("e".repeat(100));
    let store = open_logging(&deep, &logs);
    assert!(names(&store.folder().join("db")).contains("LOG"));
    assert_eq!(names(&only(&logs)).len(), 1);
}
