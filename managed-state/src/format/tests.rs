use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use state_api::{
    ByteStore, CodecKind, Column, EntryCount, Error, ErrorKind, FrozenChanges, FrozenTables,
    KeyGroup, KeyGroupRange, KeyGroupsHandle, KeyedHandle, Result, StateHandle, StateKind,
    StateMeta, StateSummary, TtlConfig, TypeMeta,
};

use super::test_storage::{MapStore, Storage, block_on};
use super::*;

fn meta(name: &str, kind: StateKind, ttl_ms: Option<i64>) -> StateMeta {
    StateMeta {
        name: name.into(),
        kind,
        key: TypeMeta::of::<u64>(CodecKind::Compact),
        namespace: TypeMeta::of::<()>(CodecKind::Compact),
        map_key: None,
        value: TypeMeta::of::<u64>(CodecKind::Compact),
        ttl_ms,
    }
}

fn range(start: u16, end: u16) -> KeyGroupRange {
    KeyGroupRange::new(KeyGroup(start), KeyGroup(end))
}

fn groups(handles: &[KeyedHandle]) -> &KeyGroupsHandle {
    match handles {
        [KeyedHandle::KeyGroups(groups)] => groups,
        other => panic!("one stream of key groups expected, got {other:?}"),
    }
}

type Pair = (Vec<u8>, Vec<u8>);

fn block(group: u16, sections: &[(u32, Vec<Pair>)]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = GroupWriter::begin(KeyGroup(group), &mut out);
    for (column, pairs) in sections {
        writer.section(*column);
        for (key, value) in pairs {
            writer.entry_with(
                |out| out.extend_from_slice(key),
                |out| out.extend_from_slice(value),
            );
        }
    }
    writer.finish();
    out
}

fn read_block(group: u16, columns: usize, bytes: &[u8]) -> Result<Vec<(u32, Vec<Pair>)>> {
    let mut reader = GroupReader::open(KeyGroup(group), columns, bytes)?;
    let mut sections = Vec::new();
    while let Some(section) = reader.next()? {
        let mut pairs = Vec::new();
        let mut entries = section.entries();
        while let Some((key, value)) = entries.next()? {
            pairs.push((key.to_vec(), value.to_vec()));
        }
        sections.push((section.column, pairs));
    }
    assert!(reader.next()?.is_none());
    Ok(sections)
}

/// Tables of one state with a counter as key, as a strategy would get them.
struct Tables {
    range: KeyGroupRange,
    entries_per_group: u64,
    value: Vec<u8>,
    entries: u64,
    /// Dropped with the tables.
    _alive: Arc<()>,
    fail_at: Option<KeyGroup>,
}

impl FrozenTables for Tables {
    fn range(&self) -> KeyGroupRange {
        self.range
    }

    fn encode_group(&mut self, group: KeyGroup, out: &mut Vec<u8>) -> Result<()> {
        if self.fail_at == Some(group) {
            return Err(Error::new(
                ErrorKind::LimitExceeded,
                "the overlay outgrew its limit",
            ));
        }
        if group.0 % 3 == 1 {
            return Ok(());
        }
        let mut writer = GroupWriter::begin(group, out);
        writer.section(0);
        for key in 0..self.entries_per_group {
            writer.entry(&key.to_le_bytes(), &self.value);
        }
        self.entries += self.entries_per_group;
        writer.finish();
        Ok(())
    }

    fn states(&self) -> Vec<StateSummary> {
        vec![StateSummary {
            meta: meta("counts", StateKind::Value, None),
            entries: EntryCount::Exact(self.entries),
        }]
    }

    fn changes(&mut self, _since: state_api::CheckpointId) -> Option<Box<dyn FrozenChanges>> {
        None
    }
}

fn tables(
    range: KeyGroupRange,
    entries_per_group: u64,
    value_len: usize,
) -> (Box<Tables>, Arc<()>) {
    let alive = Arc::new(());
    let tables = Tables {
        range,
        entries_per_group,
        value: vec![7; value_len],
        entries: 0,
        _alive: Arc::clone(&alive),
        fail_at: None,
    };
    (Box::new(tables), alive)
}

fn read_back(
    handle: &KeyGroupsHandle,
    range: KeyGroupRange,
    storage: &Storage,
) -> Result<Vec<(KeyGroup, Bytes)>> {
    let mut blocks = Vec::new();
    block_on(restore_groups(
        handle,
        range,
        storage,
        &mut |group, block| {
            GroupReader::open(group, handle.states.len(), &block)?;
            blocks.push((group, block));
            Ok(())
        },
    ))?;
    Ok(blocks)
}

#[test]
fn a_block_comes_back_as_it_was_written() {
    let sections = vec![
        (0, vec![(vec![], vec![]), (vec![1], vec![0; 200])]),
        (3, vec![(vec![9; 130], vec![5; 20_000])]),
        (0, vec![(vec![2], vec![3])]),
    ];
    let bytes = block(300, &sections);
    assert_eq!(read_block(300, 4, &bytes).unwrap(), sections);
}

#[test]
fn k_678_a_group_without_entries_writes_nothing() {
    assert_eq!(block(1, &[]), []);
    assert_eq!(block(1, &[(0, vec![]), (1, vec![])]), []);
    let mut out = vec![1, 2, 3];
    assert_eq!(GroupWriter::begin(KeyGroup(0), &mut out).finish(), 0);
    assert_eq!(out, [1, 2, 3]);
}

#[test]
fn k_107_k_681_a_wrong_group_or_state_is_refused() {
    let bytes = block(5, &[(2, vec![(vec![1], vec![2])])]);
    assert!(read_block(5, 3, &bytes).is_ok());
    assert_eq!(
        read_block(6, 3, &bytes).unwrap_err().kind(),
        ErrorKind::Corrupt
    );
    assert_eq!(
        read_block(5, 2, &bytes).unwrap_err().kind(),
        ErrorKind::Corrupt
    );
}

#[test]
fn a_drained_block_reads_as_one() {
    let mut buffer = vec![0xEE];
    let mut whole = Vec::new();
    let mut writer = GroupWriter::begin(KeyGroup(2), &mut buffer);
    writer.section(1);
    for key in 0u8..100 {
        writer.entry(&[key], &[key; 50]);
        if key % 7 == 0 {
            whole.append(&mut writer.drain());
        }
    }
    let len = writer.finish();
    whole.append(&mut buffer);
    let block = whole.split_off(1);
    assert_eq!(block.len() as u64, len);
    let pairs: Vec<Pair> = read_block(2, 2, &block)
        .unwrap()
        .into_iter()
        .flat_map(|(_, pairs)| pairs)
        .collect();
    assert_eq!(
        pairs,
        (0u8..100)
            .map(|key| (vec![key], vec![key; 50]))
            .collect::<Vec<_>>()
    );
}

#[test]
fn a_section_is_carried_over_unchanged() {
    let bytes = block(
        4,
        &[
            (0, vec![(vec![1], vec![2])]),
            (1, vec![(vec![3], vec![4]), (vec![5], vec![6])]),
        ],
    );
    let mut reader = GroupReader::open(KeyGroup(4), 2, &bytes).unwrap();
    reader.next().unwrap();
    let section = reader.next().unwrap().unwrap();
    let mut out = Vec::new();
    let mut writer = GroupWriter::begin(KeyGroup(4), &mut out);
    writer.carry_section(7, section.entries, section.bytes);
    writer.finish();
    assert_eq!(
        read_block(4, 8, &out).unwrap(),
        [(7, vec![(vec![3], vec![4]), (vec![5], vec![6])])]
    );
}

#[test]
fn tables_come_back_whole_and_in_part() {
    let storage = Storage::default();
    let (tables, alive) = tables(range(3, 9), 10, 30);
    let handles = block_on(persist_groups(tables, CANONICAL, storage.context())).unwrap();
    assert_eq!(Arc::strong_count(&alive), 1);
    let handle = groups(&handles);
    assert_eq!(handle.states[0].entries, EntryCount::Exact(50));
    let whole = read_back(handle, range(0, 127), &storage).unwrap();
    assert_eq!(
        whole.iter().map(|(group, _)| group.0).collect::<Vec<_>>(),
        [3, 5, 6, 8, 9]
    );
    assert_eq!(storage.0.range_reads.load(Ordering::SeqCst), 0);
    // K-022: a part is read at the same offsets, and nothing beside it.
    let part = read_back(handle, range(5, 7), &storage).unwrap();
    assert_eq!(part, whole[1..3]);
    assert_eq!(storage.0.range_reads.load(Ordering::SeqCst), 2);
    assert_eq!(read_back(handle, range(7, 7), &storage).unwrap(), []);
    assert_eq!(read_back(handle, range(20, 30), &storage).unwrap(), []);
}

#[test]
fn small_snapshots_stay_inline_and_come_back() {
    let storage = Storage::default();
    storage.0.inline_below.store(1 << 20, Ordering::SeqCst);
    let handles = block_on(persist_groups(
        tables(range(0, 3), 2, 3).0,
        CANONICAL,
        storage.context(),
    ))
    .unwrap();
    let handle = groups(&handles);
    assert!(handle.bytes.object().is_none());
    assert_eq!(read_back(handle, range(0, 9), &storage).unwrap().len(), 3);
    assert_eq!(read_back(handle, range(2, 2), &storage).unwrap().len(), 1);
}

#[test]
fn k_045_without_entries_there_is_no_handle_and_no_object() {
    let storage = Storage::default();
    let handles = block_on(persist_groups(
        tables(range(0, 9), 0, 0).0,
        CANONICAL,
        storage.context(),
    ))
    .unwrap();
    assert_eq!(handles, []);
    assert_eq!(storage.0.live_streams.load(Ordering::SeqCst), 0);
    assert!(storage.0.objects.lock().unwrap().is_empty());
}

#[test]
fn k_132_tables_are_let_go_once_encoded_while_the_store_hangs() {
    let dir = std::env::temp_dir().join(format!("holdfast-spill-{}", std::process::id()));
    let storage = Storage::default();
    storage.0.gate.shut();
    let mut cx = storage.context();
    cx.spill_dir = Some(dir.clone());
    // 20 groups with 1 MiB each: more than waits in memory.
    let (tables, alive) = tables(range(0, 29), 1024, 1024);
    let persist = std::thread::spawn(move || block_on(persist_groups(tables, CANONICAL, cx)));
    while Arc::strong_count(&alive) > 1 {
        std::thread::yield_now();
    }
    assert!(!persist.is_finished());
    let spilled: u64 = std::fs::read_dir(&dir)
        .unwrap()
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum();
    assert!(spilled > 8 << 20, "{spilled}");
    storage.0.gate.open();
    let handles = persist.join().unwrap().unwrap();
    let handle = groups(&handles);
    assert_eq!(read_back(handle, range(0, 29), &storage).unwrap().len(), 20);
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
    std::fs::remove_dir(&dir).unwrap();
}

#[test]
fn k_096_a_cancelled_snapshot_ends_although_the_store_hangs() {
    let storage = Storage::default();
    storage.0.gate.shut();
    let cx = storage.context();
    let cancel = cx.cancel.clone();
    let (tables, alive) = tables(range(0, 29), 1024, 1024);
    let persist = std::thread::spawn(move || block_on(persist_groups(tables, CANONICAL, cx)));
    while !storage.0.gate.holds_something() {
        std::thread::yield_now();
    }
    assert_eq!(storage.0.live_streams.load(Ordering::SeqCst), 1);
    cancel.cancel();
    assert_eq!(
        persist.join().unwrap().unwrap_err().kind(),
        ErrorKind::Cancelled
    );
    assert_eq!(storage.0.live_streams.load(Ordering::SeqCst), 0);
    while Arc::strong_count(&alive) > 1 {
        std::thread::yield_now();
    }
}

#[test]
fn k_133_errors_of_tables_and_store_reach_the_caller_and_leave_nothing() {
    let storage = Storage::default();
    let (mut failing, _) = tables(range(0, 9), 3, 3);
    failing.fail_at = Some(KeyGroup(5));
    let error = block_on(persist_groups(failing, CANONICAL, storage.context())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    storage.0.fail_writes.store(true, Ordering::SeqCst);
    let error = block_on(persist_groups(
        tables(range(0, 9), 3, 3).0,
        CANONICAL,
        storage.context(),
    ))
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retryable);
    assert_eq!(storage.0.live_streams.load(Ordering::SeqCst), 0);
    assert!(storage.0.objects.lock().unwrap().is_empty());
}

#[test]
fn k_106_damage_is_refused_with_the_object_named() {
    let storage = Storage::default();
    let handles = block_on(persist_groups(
        tables(range(0, 9), 10, 30).0,
        CANONICAL,
        storage.context(),
    ))
    .unwrap();
    let handle = groups(&handles);
    let name = handle.bytes.object().unwrap().to_string();
    let whole = storage
        .0
        .objects
        .lock()
        .unwrap()
        .values()
        .next()
        .unwrap()
        .clone();
    type Change = fn(&mut Vec<u8>);
    let changes: [Change; 4] = [
        |bytes| bytes[100] ^= 1,
        |bytes| bytes[2] ^= 1,
        |bytes| bytes.truncate(200),
        Vec::clear,
    ];
    for change in changes {
        storage.change(|bytes| *bytes = whole.to_vec());
        storage.change(change);
        for wanted in [range(0, 9), range(0, 2)] {
            let error = read_back(handle, wanted, &storage).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert_eq!(error.context("object"), Some(&name[..]));
        }
    }
    storage.0.objects.lock().unwrap().clear();
    let error = read_back(handle, range(0, 9), &storage).unwrap_err();
    assert_eq!(
        (error.kind(), error.context("object")),
        (ErrorKind::Corrupt, Some(&name[..]))
    );
}

#[test]
fn offsets_that_lie_are_refused() {
    let storage = Storage::default();
    let handles = block_on(persist_groups(
        tables(range(0, 9), 10, 30).0,
        CANONICAL,
        storage.context(),
    ))
    .unwrap();
    let handle = groups(&handles);
    let lies = [
        (0, 5),
        (8, u64::MAX),
        (u64::MAX, 2),
        (8, handle.bytes.len()),
    ];
    for (offset, len) in lies {
        let mut lying = handle.clone();
        lying
            .offsets
            .set(KeyGroup(0), state_api::GroupExtent { offset, len })
            .unwrap();
        assert_eq!(
            read_back(&lying, range(0, 9), &storage).unwrap_err().kind(),
            ErrorKind::Corrupt
        );
    }
}

fn store_with(
    columns: &[&str],
    prefix_len: usize,
    groups: std::ops::Range<u16>,
    per_group: u16,
) -> (MapStore, Vec<Column>) {
    let mut store = MapStore::default();
    let columns: Vec<Column> = columns
        .iter()
        .map(|name| store.open_column(name).unwrap())
        .collect();
    for (number, column) in columns.iter().enumerate() {
        for group in groups.clone() {
            for key in 0..per_group {
                let mut stored = Vec::new();
                put_group_prefix(KeyGroup(group), prefix_len, &mut stored);
                stored.extend_from_slice(&key.to_be_bytes());
                store.put(*column, &stored, &[number as u8; 3]).unwrap();
            }
        }
    }
    (store, columns)
}

#[test]
fn k_099_k_100_k_104_a_byte_store_comes_back_in_other_ranges() {
    for prefix_len in [1, 2] {
        let storage = Storage::default();
        // More pairs than a page holds.
        let (mut store, columns) = store_with(&["a", "b", "empty"], prefix_len, 2..8, 700);
        store.delete_range(columns[2], &[], None).unwrap();
        let metas = ["a", "b", "empty"].map(|name| meta(name, StateKind::Value, None));
        let take = || {
            columns
                .iter()
                .zip(&metas)
                .map(|(c, m)| CanonicalColumn::new(*c, m.clone()))
                .collect::<Vec<_>>()
        };
        let mut handles = Vec::new();
        for part in [range(0, 4), range(5, 9)] {
            let snapshot = canonical_snapshot(store.view().unwrap(), take(), part, prefix_len);
            handles.extend(block_on(snapshot.persist(storage.context())).unwrap());
        }
        assert_eq!(handles.len(), 2);
        // K-677: a state without entries is listed.
        assert_eq!(handles[0].states()[2].entries, EntryCount::Exact(0));
        assert_eq!(handles[0].states()[0].entries, EntryCount::Exact(2100));
        for wanted in [range(0, 9), range(3, 6), range(0, 2)] {
            let mut restored = MapStore::default();
            let states = block_on(restore_into_store(
                &handles,
                wanted,
                prefix_len,
                &mut restored,
                &storage,
            ))
            .unwrap();
            assert_eq!(
                states
                    .iter()
                    .map(|(_, meta)| &*meta.name)
                    .collect::<Vec<_>>(),
                ["a", "b", "empty"]
            );
            for (column, _) in states {
                let mut expected = store.column(column).clone();
                expected.retain(|key, _| {
                    group_of_prefix(key, prefix_len).is_some_and(|group| wanted.contains(group))
                });
                assert_eq!(restored.column(column), &expected);
            }
        }
    }
}

#[test]
fn k_185_a_full_snapshot_leaves_expired_entries_out_if_asked_to() {
    let storage = Storage::default();
    let mut store = MapStore::default();
    let (values, lists) = (
        store.open_column("values").unwrap(),
        store.open_column("lists").unwrap(),
    );
    let stamped = |ms: i64| ms.to_le_bytes().to_vec();
    store.put(values, &[0, 1], &stamped(0)).unwrap();
    store.put(values, &[0, 2], &stamped(60)).unwrap();
    let mut list = Vec::new();
    put_encoded_element(Some(10), b"old", &mut list);
    put_encoded_element(Some(60), b"new", &mut list);
    store.put(lists, &[0, 1], &list).unwrap();
    let ttl = TtlConfig::new(Duration::from_millis(100)).unwrap();
    let metas = [
        meta("values", StateKind::Value, Some(100)),
        meta("lists", StateKind::List, Some(100)),
    ];
    let columns = |ttl: TtlConfig| {
        let column = |(column, meta): (Column, &StateMeta)| {
            CanonicalColumn::new(column, meta.clone()).drop_expired(ttl, 120)
        };
        [values, lists]
            .into_iter()
            .zip(&metas)
            .map(column)
            .collect::<Vec<_>>()
    };
    for (ttl, kept, list_len) in [(ttl, 2, 30 - 3), (ttl.cleanup_full_snapshot(), 1, 12)] {
        let snapshot = canonical_snapshot(store.view().unwrap(), columns(ttl), range(0, 0), 1);
        let handles = block_on(snapshot.persist(storage.context())).unwrap();
        let mut restored = MapStore::default();
        block_on(restore_into_store(
            &handles,
            range(0, 0),
            1,
            &mut restored,
            &storage,
        ))
        .unwrap();
        assert_eq!(restored.column(values).len(), kept);
        assert_eq!(
            restored.column(lists)[&vec![0, 1]].len(),
            if list_len == 12 { 12 } else { list.len() }
        );
    }
    assert_eq!(store.column(values).len(), 2);
}

#[test]
fn another_format_is_incompatible() {
    let storage = Storage::default();
    let handles = block_on(persist_groups(
        tables(range(0, 9), 1, 1).0,
        "mine",
        storage.context(),
    ))
    .unwrap();
    let error = block_on(restore_into_store(
        &handles,
        range(0, 9),
        1,
        &mut MapStore::default(),
        &storage,
    ))
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
}

#[test]
fn a_handle_of_inline_bytes_never_makes_a_decoder_panic() {
    let storage = Storage::default();
    let bytes = Bytes::from_static(b"HFKEYED\x01garbage garbage");
    let mut offsets = state_api::KeyGroupOffsets::new(range(0, 0));
    offsets
        .set(KeyGroup(0), state_api::GroupExtent { offset: 8, len: 15 })
        .unwrap();
    let handle = KeyGroupsHandle {
        format: CANONICAL.into(),
        offsets,
        bytes: StateHandle::Inline(bytes),
        states: vec![],
    };
    assert_eq!(
        read_back(&handle, range(0, 0), &storage)
            .unwrap_err()
            .kind(),
        ErrorKind::Corrupt
    );
}

#[test]
fn lengths_of_all_widths_follow_each_other() {
    let sizes = [0, 127, 128, 5, 16_383, 16_384, 300, 20_000, 1, 70_000, 0];
    let pairs: Vec<Pair> = sizes
        .iter()
        .map(|size| (vec![1; *size], vec![2; sizes[1] + size]))
        .collect();
    let sections = vec![(0, pairs)];
    assert_eq!(read_block(1, 1, &block(1, &sections)).unwrap(), sections);
}

proptest! {
    #[test]
    fn blocks_of_any_entries_come_back(
        sections in proptest::collection::vec(
            (0u32..5, proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..200), proptest::collection::vec(any::<u8>(), 0..300)), 1..5)),
            1..6,
        ),
    ) {
        let bytes = block(9, &sections);
        prop_assert_eq!(read_block(9, 5, &bytes).unwrap(), sections);
    }

    #[test]
    fn arbitrary_blocks_are_refused_without_a_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), fix in any::<bool>()) {
        if fix && bytes.len() > 8 {
            // A right checksum, so that what lies behind it is reached.
            let len = bytes.len() - 8;
            bytes[..2].copy_from_slice(&[0, 9]);
            let checksum = xxhash_rust::xxh3::xxh3_64(&bytes[..len]);
            bytes[len..].copy_from_slice(&checksum.to_le_bytes());
        }
        let _ = read_block(9, 5, &bytes);
    }

    #[test]
    fn mutated_blocks_are_refused_or_decode_without_a_panic(
        at in any::<prop::sample::Index>(), flip in 1u8.., fix in any::<bool>(),
    ) {
        let sections = vec![(0, vec![(vec![1; 10], vec![2; 200])]), (1, vec![(vec![3], vec![]), (vec![], vec![4])])];
        let mut bytes = block(9, &sections);
        let len = bytes.len() - 8;
        let at = at.index(len);
        bytes[at] ^= flip;
        if fix {
            let checksum = xxhash_rust::xxh3::xxh3_64(&bytes[..len]);
            bytes[len..].copy_from_slice(&checksum.to_le_bytes());
            let _ = read_block(9, 5, &bytes);
        } else {
            prop_assert_eq!(read_block(9, 5, &bytes).unwrap_err().kind(), ErrorKind::Corrupt);
        }
    }

    #[test]
    fn arbitrary_composites_are_split_or_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        let layout = CompositeLayout::of::<String, String>();
        if let Ok((key, namespace)) = layout.take::<String, String>(&mut &bytes[..]) {
            let mut out = Vec::new();
            layout.put(&key, &namespace, &mut out);
            prop_assert!(bytes.starts_with(&out));
        }
        let _ = CompositeLayout::of::<u64, String>().take::<u64, String>(&mut &bytes[..]);
    }
}
