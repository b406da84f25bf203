use state_api::{ByteStore, KeyGroup, KeyGroupRange};

use super::super::frozen::Frozen;
use super::*;
use crate::fault_tests::open_with;

#[test]
fn bytes_that_others_write_meanwhile_are_not_counted_as_rewritten() {
    let dir = tempfile::tempdir().unwrap();
    let options = [
        ("compression.per.level", "NO_COMPRESSION"),
        ("compaction.level.target-file-size-base", "256kb"),
        ("memory.managed", "false"),
    ];
    let mut store = open_with(dir.path(), &options);
    let column = store.open_column("state").unwrap();
    let value = [5; 1 << 10];
    for group in 0..16 {
        for n in 0..100 {
            store.put(column, &[group, n], &value).unwrap();
        }
    }
    store.compact().unwrap();
    let cells = store.column_cells().to_vec();
    let database = Arc::clone(store.database());
    let frozen = Frozen::cut_and_wait(&database, &cells, 1).unwrap();
    let layout = frozen.layout().unwrap();
    drop(frozen);
    assert!(layout.files().count() > 5);
    let bounds = Bounds::of(KeyGroupRange::new(KeyGroup(8), KeyGroup(15)), 1);
    let crossing = BTreeSet::from(["state".to_owned()]);
    let beyond = Beyond::delete(&database, &cells, &layout, &crossing, &bounds).unwrap();
    store.flush(column).unwrap();
    // Somebody writes 4 MiB, which are flushed before the files are written anew.
    for n in 0..4 << 10 {
        let key = [&[12][..], &u16::to_be_bytes(n)].concat();
        store.put(column, &key, &value).unwrap();
    }
    store.flush(column).unwrap();
    let rewritten = beyond.rewrite();
    // Of one file the part within the bounds: RocksDB takes in what overlaps it, not what lies elsewhere.
    let (least, most) = (64 << 10, 300 << 10);
    assert!((least..most).contains(&rewritten), "{rewritten}");
    // Nor what is compacted because somebody asks for it.
    store.compact().unwrap();
    assert_eq!(database.compactions().rewritten(), rewritten);
    assert!(store.file_bytes("state") > 4 << 20);
}
