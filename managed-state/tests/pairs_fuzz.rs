//! Damaged objects of pairs, restored into a byte store: nothing panics, nothing takes more memory than the objects allow, and
//! what is restored is of the key groups that were asked for.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
use std::collections::BTreeMap;
use std::sync::Arc;

use backend_testkit::fuzz::fuzz;
use backend_testkit::meter::{Bound, Metered};
use backend_testkit::{InlineExecutor, MemoryStorage, ReferenceStore, block_on};
use managed_state::format::group_of_prefix;
use managed_state::increments::{Increments, PairWriter, restore_pairs};
use state_api::{
    BackendContext, ByteStore, CheckpointId, CodecKind, Column, ErrorKind, IncrementalHandle,
    JobId, KeyGroup, KeyGroupRange, KeyedHandle, ManualClock, MaxParallelism, NamedHandle,
    OperatorUid, Page, PersistContext, RestoreContext, Result, Root, SnapshotKind, SnapshotRequest,
    StateHandle, StateKind, StateMeta, Subtask, TypeMeta,
};

#[global_allocator]
static METERED: Metered = Metered;

/// A record of two bytes becomes an entry of a batch with a key of its own, and one of the store.
const BOUND: Bound = Bound {
    fixed: 64 << 10,
    per_byte: 512,
};

fn meta(name: &str) -> StateMeta {
    StateMeta {
        name: name.into(),
        kind: StateKind::Value,
        key: TypeMeta::of::<u64>(CodecKind::Compact),
        namespace: TypeMeta::of::<()>(CodecKind::Compact),
        map_key: None,
        value: TypeMeta::of::<u64>(CodecKind::Compact),
        ttl_ms: None,
    }
}

fn increments() -> Increments<u64> {
    let max_parallelism = MaxParallelism::new(8).unwrap();
    let subtask = Subtask {
        index: 0,
        parallelism: 1,
    };
    Increments::new(
        "pairs",
        &BackendContext {
            job: JobId::new("job").unwrap(),
            operator: OperatorUid::new("operator").unwrap(),
            subtask,
            max_parallelism,
            range: max_parallelism.range_of(subtask).unwrap(),
            local_dir: std::env::temp_dir(),
            clock: Arc::new(ManualClock::at(0)),
            options: BTreeMap::new(),
        },
    )
}

fn persist(
    increments: &Increments<u64>,
    storage: &MemoryStorage,
    id: u64,
    kind: SnapshotKind,
    write: impl FnOnce(&mut PairWriter<'_>, Option<u64>) -> Result<()> + Send + 'static,
) -> Vec<KeyedHandle> {
    let request = SnapshotRequest {
        checkpoint: CheckpointId(id),
        kind,
        now_ms: 0,
    };
    let states = vec![(meta("a"), 8), (meta("b"), 8)];
    let snapshot = increments.snapshot(&request, id, 2, states, write).unwrap();
    let storage = Arc::new(storage.clone());
    let cx = PersistContext::new(CheckpointId(id), storage, Arc::new(InlineExecutor));
    block_on(snapshot.persist(cx)).unwrap()
}

/// A full object and one with changes, as they are written.
fn chain(storage: &MemoryStorage) -> IncrementalHandle {
    let increments = increments();
    let (full, changes) = (SnapshotKind::FullCheckpoint, SnapshotKind::Checkpoint);
    persist(&increments, storage, 1, full, |pairs, since| {
        assert_eq!(since, None);
        for name in ["a", "b"] {
            pairs.column(name)?;
            (0..8).try_for_each(|group| pairs.put(&[group, 1, 2], name.as_bytes()))?;
        }
        Ok(())
    });
    increments.completed(CheckpointId(1));
    let handles = persist(&increments, storage, 2, changes, |pairs, since| {
        assert_eq!(since, Some(1));
        pairs.column("b")?;
        pairs.removed(&[3, 1, 2])?;
        pairs.put(&[4, 1, 2], b"new")
    });
    let [KeyedHandle::Incremental(handle)] = &handles[..] else {
        panic!("one chain expected, got {handles:?}");
    };
    assert_eq!(handle.shared.len(), 2);
    handle.clone()
}

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

fn restore(
    handle: IncrementalHandle,
    range: KeyGroupRange,
    storage: &MemoryStorage,
) -> Result<Vec<Pairs>> {
    let mut store = ReferenceStore::new();
    let cx = RestoreContext {
        storage: Arc::new(storage.clone()),
        executor: Arc::new(InlineExecutor),
    };
    let handles = [KeyedHandle::Incremental(handle)];
    block_on(restore_pairs(&handles, range, 1, &mut store, &cx))?;
    let pairs = |column| {
        let mut page = Page::default();
        store.scan(Column(column), &[], None, usize::MAX, &mut page)?;
        Ok(page.entries)
    };
    [0, 1].map(pairs).into_iter().collect()
}

fn range(start: u16, end: u16) -> KeyGroupRange {
    KeyGroupRange::new(KeyGroup(start), KeyGroup(end))
}

#[test]
fn changes_are_laid_over_what_they_are_changes_of_within_the_range() {
    let storage = MemoryStorage::new();
    let restored = restore(chain(&storage), range(3, 5), &storage).unwrap();
    let pair = |group: u8, value: &str| (vec![group, 1, 2], value.as_bytes().to_vec());
    let a = vec![pair(3, "a"), pair(4, "a"), pair(5, "a")];
    assert_eq!(restored, [a, vec![pair(4, "new"), pair(5, "b")]]);
}

#[test]
fn damaged_objects_are_refused_by_name_whatever_they_look_like() {
    let storage = MemoryStorage::new();
    let handle = chain(&storage);
    let object = handle.shared[0].bytes.object().unwrap();
    let (name, intact) = (
        object.path.as_str(),
        storage.object(object.path.as_str()).unwrap(),
    );
    assert_eq!(object.root, Root::Own);
    for at in 0..intact.len() {
        assert!(storage.damage(name, |bytes| {
            *bytes = intact.to_vec();
            bytes[at] ^= 1;
        }));
        let error = restore(handle.clone(), range(0, 7), &storage).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {at}: {error}");
        assert_eq!(error.context("object"), Some(name));
    }
}

#[test]
fn pairs_that_are_anything_at_all_are_refused_or_restored() {
    let storage = MemoryStorage::new();
    let handle = chain(&storage);
    let samples: Vec<Vec<u8>> = storage
        .names()
        .iter()
        .map(|name| storage.object(name).unwrap().to_vec())
        .collect();
    let wanted = range(2, 5);
    let (mut restored, mut refused) = (0, 0);
    let cases = fuzz(4_000, &samples, |random, bytes| {
        let len = bytes.len();
        let mut handle = handle.clone();
        handle.shared[random.below(2)] = NamedHandle {
            name: "damaged".into(),
            bytes: StateHandle::Inline(bytes.into()),
        };
        match BOUND.hold(len, || restore(handle, wanted, &storage)) {
            Ok(columns) => {
                restored += 1;
                let groups = columns
                    .iter()
                    .flatten()
                    .map(|(key, _)| group_of_prefix(key, 1));
                assert!(groups.flatten().all(|group| wanted.contains(group)));
            }
            Err(error) => {
                refused += 1;
                let kinds = [ErrorKind::Corrupt, ErrorKind::Unsupported];
                assert!(kinds.contains(&error.kind()), "{error}");
                assert_eq!(error.context("file"), Some("damaged"));
            }
        }
    });
    assert_eq!(restored + refused, cases);
    assert!(
        restored > 0 && refused > restored,
        "{restored} restored, {refused} refused"
    );
}
