use std::path::Path;
use std::sync::Arc;

use backend_rocksdb::RocksDbStore;
use backend_testkit::fuzz::Random;
use backend_testkit::{InlineExecutor, block_on};
use managed_state::bytes::migrate_column;
use state_api::{
    ByteStore, CodecKind, Column, Page, RestoreContext, SnapshotKind, StateMeta, StateType,
    TypeMeta,
};

use crate::harness::{Model, SMALL, STATES, Subtasks, meta};

/// What a store takes of the disk, and the files that it has open, deleted ones too.
#[derive(Clone, Copy, Debug)]
struct Taken {
    bytes: u64,
    open: usize,
}

impl Taken {
    /// After all that is to be flushed or compacted.
    fn by(store: &mut RocksDbStore) -> Self {
        store.wait_for_compactions().unwrap();
        Self {
            bytes: bytes_below(store.folder()),
            open: open_below(store.folder()),
        }
    }
}

fn bytes_below(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap();
    let bytes = entries.map(|entry| {
        let entry = entry.unwrap();
        match entry.metadata() {
            Ok(found) if found.is_dir() => bytes_below(&entry.path()),
            // RocksDB may remove one meanwhile.
            found => found.map_or(0, |found| found.len()),
        }
    });
    bytes.sum()
}

/// Other tests of this process have files of their own.
fn open_below(folder: &Path) -> usize {
    let Ok(files) = std::fs::read_dir("/proc/self/fd") else {
        return 0;
    };
    let targets = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    targets.filter(|file| file.starts_with(folder)).count()
}

const KEYS: u16 = 1_000;

fn put_all(store: &mut RocksDbStore, column: Column, value: &[u8]) {
    for key in 0..KEYS {
        let key = [&[(key % 16) as u8][..], &key.to_be_bytes()].concat();
        store.put(column, &key, value).unwrap();
    }
}

fn text_meta(ttl_ms: Option<i64>) -> StateMeta {
    StateMeta {
        value: TypeMeta::of::<String>(CodecKind::Compact),
        ttl_ms,
        ..meta("one")
    }
}

#[test]
fn dp_04_a_state_that_is_rewritten_for_another_type_again_and_again_keeps_no_file_of_before() {
    let dir = tempfile::tempdir().unwrap();
    let options = [
        ("memory.managed", "false"),
        ("writebuffer.size", "256kb"),
        ("compaction.level.target-file-size-base", "256kb"),
        ("compression.per.level", "NO_COMPRESSION"),
    ];
    let mut subtasks = Subtasks::new(dir.path(), 1, 16, &options);
    let store = &mut subtasks.stores[0];
    let column = store.open_column(STATES[0]).unwrap();
    let forms = [text_meta(None), text_meta(Some(60_000))];
    let text = "x".repeat(1_000);
    let mut value = Vec::new();
    text.encode(&mut value);
    put_all(store, column, &value);
    let live = u64::from(KEYS) * value.len() as u64;
    let mut first = None;
    for round in 0..40_usize {
        let (old, new) = (&forms[round % 2], &forms[(round + 1) % 2]);
        migrate_column::<String>(store, column, old, new, 7).unwrap();
        let taken = Taken::by(store);
        let first = first.get_or_insert(taken);
        // The files of some rounds wait to be compacted together, or to be removed.
        assert!(taken.bytes < 12 * live, "round {round}: {taken:?}");
        assert!(taken.open < first.open + 60, "round {round}: {taken:?}");
    }
    // What is left is what was there at the first, whatever was rewritten since.
    store.compact().unwrap();
    let taken = Taken::by(store);
    // RocksDB's log and lists of files are among it.
    assert!(taken.bytes < 4 * live, "{taken:?}");
    assert!(store.file_bytes(STATES[0]) < live * 5 / 4);
    let mut page = Page::default();
    store
        .scan(column, b"", None, usize::MAX, &mut page)
        .unwrap();
    assert_eq!(page.entries.len(), usize::from(KEYS));
    assert!(page.entries.iter().all(|(_, found)| *found == value));
}

#[test]
fn dp_04_a_database_that_a_restore_replaces_goes_with_its_files_while_the_store_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let mut subtasks = Subtasks::new(dir.path(), 1, 16, SMALL);
    let (mut random, mut model) = (Random::new(31), Model::new());
    subtasks.fill(&mut random, &mut model, 4_000);
    let handles = subtasks.snapshot(SnapshotKind::Checkpoint);
    let cx = RestoreContext {
        storage: Arc::clone(&subtasks.storage),
        executor: Arc::new(InlineExecutor),
    };
    let range = subtasks.range_of(0, 1);
    let mut first: Option<Taken> = None;
    for round in 0..20 {
        let store = &mut subtasks.stores[0];
        block_on(store.native().unwrap().restore(&handles, range, &cx)).unwrap();
        // What comes on top of it goes, too.
        let column = store.open_column(STATES[1]).unwrap();
        put_all(store, column, &[7; 500]);
        let taken = Taken::by(store);
        let first = first.get_or_insert(taken);
        assert!(taken.bytes < 2 * first.bytes, "round {round}: {taken:?}");
        assert!(taken.open <= first.open + 20, "round {round}: {taken:?}");
        let below = std::fs::read_dir(store.folder()).unwrap().count();
        assert_eq!(below, 2, "the database and the lock");
    }
    let store = &mut subtasks.stores[0];
    block_on(store.native().unwrap().restore(&handles, range, &cx)).unwrap();
    store.open_column(STATES[1]).unwrap();
    assert!(subtasks.contents() == model);
}
