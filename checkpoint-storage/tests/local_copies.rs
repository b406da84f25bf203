//! Second copies of objects on local disk: which there are, what becomes of them, and that only the store ever counts.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use backend_testkit::storage::{CountingStorage, FaultyStorage, MemoryStorage};
use backend_testkit::{Call, Fault, InlineExecutor, block_on};
use bytes::Bytes;
use checkpoint_storage::{LocalCopies, LocalCopyOptions, RestoringStorage, UuidSource};
use futures_util::FutureExt;
use state_api::{
    CheckpointId, CheckpointStorage, CheckpointStream, Error, ErrorKind, JobId, ObjectHandle,
    Result, Root, Scope, StateHandle, Subtask, read_handle,
};

const SUBTASK: Subtask = Subtask {
    index: 0,
    parallelism: 2,
};

/// A store, and folders for copies in front of it.
struct Case {
    dir: tempfile::TempDir,
    memory: MemoryStorage,
    store: CountingStorage,
    warnings: Arc<Mutex<Vec<String>>>,
}

impl Case {
    fn new() -> Self {
        let memory = MemoryStorage::new();
        Self {
            dir: tempfile::tempdir().unwrap(),
            store: CountingStorage::new(Arc::new(memory.clone())),
            memory,
            warnings: Arc::default(),
        }
    }

    fn root(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn open_with(&self, options: LocalCopyOptions) -> LocalCopies {
        let warnings = Arc::clone(&self.warnings);
        LocalCopies::open(
            options,
            &JobId::new("flights").unwrap(),
            &UuidSource::machine(),
            Arc::new(InlineExecutor),
            move |error: Error| warnings.lock().unwrap().push(error.to_string()),
        )
    }

    fn open_at(&self, roots: &[&str]) -> LocalCopies {
        self.open_with(LocalCopyOptions {
            keep: true,
            restore: true,
            roots: roots.iter().map(|root| self.root(root)).collect(),
        })
    }

    fn open(&self) -> LocalCopies {
        self.open_at(&["copies"])
    }

    fn warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.warnings.lock().unwrap())
    }

    /// Writes an object of a checkpoint through the copies.
    fn write(&self, copies: &LocalCopies, checkpoint: u64, bytes: &[u8]) -> ObjectHandle {
        write_to(copies, Arc::new(self.store.clone()), checkpoint, bytes).unwrap()
    }

    /// The storage that a restore from a checkpoint reads.
    fn restoring(&self, copies: &LocalCopies, checkpoint: u64) -> RestoringStorage {
        let (inner, copies) = (Arc::new(self.store.clone()), Some(copies.clone()));
        RestoringStorage::new(inner, copies, CheckpointId(checkpoint), "count", SUBTASK)
    }

    /// Reads an object as a restore does; returns whether the store was asked.
    fn read(&self, copies: &LocalCopies, object: &ObjectHandle) -> (Bytes, bool) {
        let storage = self.restoring(copies, 1);
        let before = self.store.counts();
        let bytes = block_on(read_handle(&storage, &StateHandle::Object(object.clone()))).unwrap();
        let after = self.store.counts();
        let asked = after.opens + after.range_reads > before.opens + before.range_reads;
        let read = storage.read();
        let expected = if asked {
            (0, object.len)
        } else {
            (object.len, 0)
        };
        assert_eq!((read.from_copies, read.from_store), expected);
        let objects = (read.objects_from_copies, read.objects_from_store);
        assert_eq!(objects, if asked { (0, 1) } else { (1, 0) });
        (bytes, asked)
    }
}

fn write_to(
    copies: &LocalCopies,
    store: Arc<dyn CheckpointStorage>,
    checkpoint: u64,
    bytes: &[u8],
) -> Result<ObjectHandle> {
    let storage = copies.keeping(store, "count", SUBTASK);
    let mut stream = storage.create(CheckpointId(checkpoint), Scope::Shared);
    // In two pieces, so that there is something in between.
    let (first, second) = bytes.split_at(bytes.len() / 2);
    block_on(async {
        stream.write(Bytes::copy_from_slice(first)).await?;
        stream.write(Bytes::copy_from_slice(second)).await?;
        match stream.finish().await? {
            Some(StateHandle::Object(object)) => Ok(object),
            other => panic!("{other:?}"),
        }
    })
}

/// More than stays in memory.
fn big(fill: u8) -> Vec<u8> {
    (0..200_000_u32).map(|i| (i % 251) as u8 ^ fill).collect()
}

/// All files below a folder but for locks.
fn files(below: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(below) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&entry.path()));
        } else if entry.file_name() != "owner.lock" {
            found.push(entry.path());
        }
    }
    found.sort();
    found
}

fn ids(range: std::ops::RangeInclusive<u64>) -> impl Iterator<Item = CheckpointId> {
    range.map(CheckpointId)
}

#[test]
fn k_698_copies_are_found_by_their_object_and_what_is_not_copied_is_read_from_the_store() {
    let case = Case::new();
    let copies = case.open();
    let objects: Vec<_> = (1..=3)
        .map(|id| (case.write(&copies, id, &big(id as u8)), big(id as u8)))
        .collect();
    // Little enough to stay in memory until its object is known.
    let small = case.write(&copies, 3, b"few bytes");
    assert_eq!(copies.total(), (4, 600_009));
    for (object, bytes) in &objects {
        assert_eq!(case.read(&copies, object), (bytes.clone().into(), false));
    }
    assert_eq!(
        case.read(&copies, &small),
        (Bytes::from("few bytes"), false)
    );
    let other = block_on(async {
        let mut stream = case.store.create(CheckpointId(3), Scope::Shared);
        stream
            .write(Bytes::from_static(b"not copied"))
            .await
            .unwrap();
        stream.finish().await.unwrap().unwrap()
    });
    let other = other.object().unwrap();
    assert_eq!(copies.find(other), None);
    assert_eq!(case.read(&copies, other), (Bytes::from("not copied"), true));
    assert_eq!(case.warnings(), [""; 0]);
}

#[test]
fn k_699_starting_from_a_checkpoint_discards_the_copies_of_all_others() {
    let case = Case::new();
    let copies = case.open();
    let objects: Vec<_> = (0..=2)
        .map(|id| case.write(&copies, id, &big(id as u8)))
        .collect();
    copies.start_from(Some(CheckpointId(2)), [&objects[2]]);
    assert_eq!(copies.find(&objects[0]), None);
    assert_eq!(copies.find(&objects[1]), None);
    assert!(copies.find(&objects[2]).is_some());
    assert_eq!(files(case.dir.path()).len(), 1);
    assert_eq!(case.read(&copies, &objects[2]), (big(2).into(), false));
    copies.start_from(None, []);
    assert_eq!((copies.total(), files(case.dir.path()).len()), ((0, 0), 0));
}

#[test]
fn a_confirmed_checkpoint_leaves_its_copies_and_those_in_flight_and_no_others() {
    let case = Case::new();
    let copies = case.open();
    let shared = case.write(&copies, 1, &big(0));
    let own: Vec<_> = (1..=3)
        .map(|id| case.write(&copies, id, &big(id as u8)))
        .collect();
    // The second and third use what the first has written.
    for (id, object) in ids(1..=3).zip(&own) {
        copies.acked(id, [&shared, object]);
    }
    copies.confirm(CheckpointId(2));
    let found: Vec<bool> = own.iter().map(|o| copies.find(o).is_some()).collect();
    assert_eq!(found, [false, true, true]);
    assert!(copies.find(&shared).is_some());
    // Late and repeated notices.
    copies.confirm(CheckpointId(1));
    copies.abort(CheckpointId(2));
    copies.confirm(CheckpointId(2));
    assert_eq!(copies.total().0, 3);
    copies.confirm(CheckpointId(3));
    assert_eq!(copies.total().0, 2);
    assert_eq!(files(case.dir.path()).len(), 2);
    // Nothing is kept for what is older than the confirmed one.
    case.write(&copies, 2, &big(9));
    assert_eq!(files(case.dir.path()).len(), 2);
}

#[test]
fn k_701_only_the_copies_of_an_aborted_checkpoint_are_discarded() {
    let case = Case::new();
    let copies = case.open();
    let shared = case.write(&copies, 1, &big(0));
    let own: Vec<_> = (1..=4)
        .map(|id| case.write(&copies, id, &big(id as u8)))
        .collect();
    for (id, object) in ids(1..=4).zip(&own) {
        copies.acked(id, [&shared, object]);
    }
    copies.abort(CheckpointId(2));
    let found: Vec<bool> = own.iter().map(|o| copies.find(o).is_some()).collect();
    assert_eq!(found, [true, false, true, true]);
    assert!(copies.find(&shared).is_some());
    assert_eq!(files(case.dir.path()).len(), 4);
    // What comes late of it is not kept.
    let late = case.write(&copies, 2, &big(7));
    assert_eq!(copies.find(&late), None);
    assert_eq!(files(case.dir.path()).len(), 4);
}

/// A base that is written in the background takes longer than the checkpoint that it is written beside.
#[test]
fn the_copy_of_an_object_for_later_checkpoints_stays_until_one_has_it_or_it_is_discarded() {
    let case = Case::new();
    let copies = case.open();
    let storage = copies.keeping(Arc::new(case.store.clone()), "count", SUBTASK);
    let begin = |checkpoint, fill| {
        let mut stream = storage.create(CheckpointId(checkpoint), Scope::Shared);
        stream.for_later();
        block_on(stream.write(big(fill).into())).unwrap();
        stream
    };
    let end = |stream: Box<dyn CheckpointStream>| match block_on(stream.finish()).unwrap() {
        Some(StateHandle::Object(object)) => object,
        other => panic!("{other:?}"),
    };
    let is_kept = |object: &ObjectHandle| copies.find(object).is_some();
    // Begun beside the first, whole when the second is confirmed and the first is out of question.
    let stream = begin(1, 1);
    copies.confirm(CheckpointId(2));
    let base = end(stream);
    copies.confirm(CheckpointId(3));
    copies.abort(CheckpointId(4));
    assert!(is_kept(&base));
    assert!(!case.read(&copies, &base).1, "the copy is read");
    // The fifth has it: from now on it goes as others do.
    copies.acked(CheckpointId(5), [&base]);
    copies.confirm(CheckpointId(5));
    assert!(is_kept(&base));
    copies.confirm(CheckpointId(6));
    assert!(!is_kept(&base));
    // One that no checkpoint takes up: until it is discarded, or until the next one.
    let unwanted = end(begin(7, 2));
    assert!(is_kept(&unwanted));
    storage.discard(&unwanted);
    assert!(!is_kept(&unwanted));
    let (forgotten, next) = (end(begin(7, 3)), end(begin(8, 4)));
    assert_eq!((is_kept(&forgotten), is_kept(&next)), (false, true));
    assert_eq!(files(case.dir.path()).len(), 1);
    // Begun, and whole after the end of the job.
    let stream = begin(9, 5);
    copies.dispose();
    end(stream);
    assert!(files(case.dir.path()).is_empty());
}

#[test]
fn k_702_disposing_removes_everything() {
    let case = Case::new();
    let copies = case.open_at(&["a", "b"]);
    let objects: Vec<_> = (1..=3)
        .map(|id| case.write(&copies, id, &big(id as u8)))
        .collect();
    copies.dispose();
    assert!(objects.iter().all(|object| copies.find(object).is_none()));
    for root in ["a", "b"] {
        assert_eq!(fs::read_dir(case.root(root)).unwrap().count(), 0, "{root}");
    }
    // Nothing is kept afterwards.
    case.write(&copies, 4, &big(4));
    drop(copies);
    assert!(files(case.dir.path()).is_empty());
    assert_eq!(case.warnings(), [""; 0]);
}

#[test]
fn k_703_copies_are_not_used_unless_that_is_wanted() {
    let case = Case::new();
    let copies = case.open_with(LocalCopyOptions {
        keep: true,
        restore: false,
        roots: vec![case.root("copies")],
    });
    let object = case.write(&copies, 1, &big(1));
    assert_eq!(copies.total().0, 1);
    assert_eq!(copies.find(&object), None);
    assert_eq!(case.read(&copies, &object), (big(1).into(), true));
    drop(copies);
    // The other way round: what is there is used, and nothing is added.
    let copies = case.open_with(LocalCopyOptions {
        keep: false,
        restore: true,
        roots: vec![case.root("copies")],
    });
    assert_eq!(case.read(&copies, &object), (big(1).into(), false));
    case.write(&copies, 2, &big(2));
    assert_eq!(copies.total().0, 1);
}

#[test]
fn k_704_copies_outlive_their_process() {
    let case = Case::new();
    let copies = case.open_at(&["a", "b"]);
    let objects: Vec<_> = (1..=4)
        .map(|id| case.write(&copies, id, &big(id as u8)))
        .collect();
    drop(copies);
    let copies = case.open_at(&["a", "b"]);
    assert_eq!(copies.total(), (4, 800_000));
    copies.start_from(Some(CheckpointId(4)), &objects[2..]);
    for (object, fill) in objects[2..].iter().zip(3..) {
        assert_eq!(case.read(&copies, object), (big(fill).into(), false));
    }
    // They are those of the restored checkpoint from now on.
    copies.confirm(CheckpointId(5));
    assert_eq!(copies.total().0, 0);
    assert!(files(case.dir.path()).is_empty());
    drop(copies);
    for root in ["a", "b"] {
        assert_eq!(fs::read_dir(case.root(root)).unwrap().count(), 0, "{root}");
    }
}

#[test]
fn k_705_where_nothing_was_kept_nothing_is_found() {
    let case = Case::new();
    let object = write_to(
        &case.open_at(&["elsewhere"]),
        Arc::new(case.store.clone()),
        1,
        b"x",
    );
    drop(case.open());
    let copies = case.open();
    assert_eq!(copies.total(), (0, 0));
    assert_eq!(copies.find(&object.unwrap()), None);
}

#[test]
fn k_706_what_is_damaged_is_none_and_is_deleted() {
    let case = Case::new();
    let copies = case.open();
    let objects: Vec<_> = (1..=4)
        .map(|id| case.write(&copies, id, &big(id as u8)))
        .collect();
    let paths: Vec<_> = objects.iter().map(|o| copies.find(o).unwrap()).collect();
    drop(copies);
    // Seen when it is found: cut off, under another name, something else altogether.
    fs::File::options()
        .write(true)
        .open(&paths[0])
        .unwrap()
        .set_len(1000)
        .unwrap();
    fs::rename(&paths[1], paths[1].with_file_name("something")).unwrap();
    fs::write(paths[2].with_file_name("part-7"), b"torn").unwrap();
    fs::create_dir(paths[2].parent().unwrap().parent().unwrap().join("other")).unwrap();
    // Seen when it is read.
    let mut bytes = fs::read(&paths[3]).unwrap();
    bytes[100_000] ^= 1;
    fs::write(&paths[3], bytes).unwrap();
    let copies = case.open();
    let found: Vec<bool> = objects.iter().map(|o| copies.find(o).is_some()).collect();
    assert_eq!(found, [false, false, true, true]);
    assert_eq!(files(case.dir.path()), [paths[2].clone(), paths[3].clone()]);
    assert_eq!(case.read(&copies, &objects[3]), (big(4).into(), true));
    assert_eq!(copies.find(&objects[3]), None);
    assert_eq!(files(case.dir.path()), [paths[2].clone()]);
}

#[test]
fn k_707_each_object_comes_from_its_copy_or_from_the_store() {
    let case = Case::new();
    // Two processes died one after the other below the same folder; the second did not see the first's copies.
    let (first, second) = (case.open(), case.open());
    let remote = case.open_at(&["elsewhere"]);
    let r0 = case.write(&first, 1, &big(10));
    let r1 = case.write(&second, 1, &big(11));
    let r2 = case.write(&remote, 1, &big(12));
    let r3 = case.write(&first, 1, &big(13));
    let extra = case.write(&second, 1, &big(15));
    drop((first, second));
    let copies = case.open();
    assert_eq!(copies.total().0, 4);
    copies.start_from(Some(CheckpointId(1)), [&r0, &r1, &r2, &r3]);
    let asked: Vec<bool> = [&r0, &r1, &r2, &r3]
        .into_iter()
        .zip([10, 11, 12, 13])
        .map(|(object, fill)| {
            let (bytes, asked) = case.read(&copies, object);
            assert_eq!(bytes, big(fill));
            asked
        })
        .collect();
    assert_eq!(asked, [false, false, true, false]);
    assert_eq!(copies.find(&extra), None);
    assert_eq!(files(&case.root("copies")).len(), 3);
}

#[test]
fn k_708_without_copies_the_store_is_read_and_without_objects_nothing() {
    let case = Case::new();
    let copies = case.open();
    let object = case.write(&case.open_at(&["elsewhere"]), 1, &big(1));
    copies.start_from(Some(CheckpointId(1)), [&object]);
    assert_eq!(case.read(&copies, &object), (big(1).into(), true));
    copies.start_from(Some(CheckpointId(1)), []);
    assert_eq!(copies.total(), (0, 0));
    assert_eq!(case.warnings(), [""; 0]);
}

#[test]
fn k_709_a_copy_counts_only_if_name_length_and_digest_are_the_coordinators() {
    let case = Case::new();
    let copies = case.open();
    let right = case.write(&copies, 1, &big(1));
    let mut others = vec![right.clone(), right.clone(), right.clone()];
    others[0].path = state_api::RelPath::new("shared/other").unwrap();
    others[1].len += 1;
    others[2].digest.0[0] ^= 1;
    for other in &others {
        assert_eq!(copies.find(other), None);
    }
    // The same object, now in a folder that another job's checkpoint lies in.
    let moved = ObjectHandle {
        root: Root::Url("file:///claimed".into()),
        ..right.clone()
    };
    assert!(copies.find(&moved).is_some());
    copies.start_from(Some(CheckpointId(1)), &others);
    assert_eq!(copies.total().0, 0);
    // The store is always there.
    assert_eq!(case.read(&copies, &right), (big(1).into(), true));
}

#[test]
fn k_710_a_copy_that_fails_leaves_the_snapshot_alone_and_is_told_once() {
    let case = Case::new();
    let copies = case.open();
    let first = case.write(&copies, 1, &big(1));
    // A file is where the folder of the subtask was: none can be made.
    let task = copies.find(&first).unwrap();
    let task = task.parent().unwrap().parent().unwrap().to_owned();
    fs::remove_dir_all(&task).unwrap();
    fs::write(&task, b"in the way").unwrap();
    for fill in 2..5 {
        let object = case.write(&copies, 2, &big(fill));
        assert_eq!(copies.find(&object), None);
        let small = case.write(&copies, 2, &[fill]);
        assert_eq!(case.read(&copies, &small), (vec![fill].into(), true));
    }
    let warnings = case.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("checkpoint=2") && warnings[0].contains("goes on without"));
    fs::remove_file(&task).unwrap();
    let later = case.write(&copies, 3, &big(6));
    assert_eq!(case.read(&copies, &later), (big(6).into(), false));
    assert_eq!(case.warnings(), [""; 0]);
}

#[test]
fn k_711_without_an_object_there_is_no_copy() {
    let case = Case::new();
    let copies = case.open();
    let faulty = FaultyStorage::new(Arc::new(case.store.clone()));
    for call in [Call::Write, Call::Finish] {
        for n in 1..=2 {
            faulty.fail_nth_of(call, n, Fault::Fail(ErrorKind::Retryable));
            let mut failed = 0;
            for _ in 0..2 {
                let written = write_to(&copies, Arc::new(faulty.clone()), 1, &big(1));
                failed += usize::from(written.is_err());
            }
            assert_eq!(failed, 1, "{call:?} {n}");
            faulty.heal();
        }
    }
    // Those that were written.
    assert_eq!(copies.total().0, 4);
    assert_eq!(files(case.dir.path()).len(), 4);
    assert_eq!(case.warnings(), [""; 0]);
}

#[test]
fn streams_that_are_dropped_or_aborted_and_objects_that_are_discarded_leave_no_copy() {
    let case = Case::new();
    let copies = case.open();
    let storage = copies.keeping(Arc::new(case.store.clone()), "count", SUBTASK);
    let half_written = || {
        let mut stream = storage.create(CheckpointId(1), Scope::Shared);
        block_on(stream.write(big(1).into())).unwrap();
        assert_eq!(files(case.dir.path()).len(), 1);
        stream
    };
    drop(half_written());
    assert!(files(case.dir.path()).is_empty());
    block_on(half_written().abort());
    assert!(files(case.dir.path()).is_empty());
    let handle = block_on(half_written().finish()).unwrap().unwrap();
    storage.discard(handle.object().unwrap());
    assert!(files(case.dir.path()).is_empty());
}

#[test]
fn k_712_a_copy_that_is_not_as_long_as_its_object_is_given_up() {
    let case = Case::new();
    let copies = case.open();
    let faulty = FaultyStorage::new(Arc::new(case.store.clone()));
    faulty.fail_nth_of(Call::Write, 2, Fault::Duplicate);
    let object = write_to(&copies, Arc::new(faulty), 1, &big(1)).unwrap();
    assert_eq!(object.len, 300_000);
    assert_eq!(copies.find(&object), None);
    // A file that is not what was written.
    let file = case.root("file");
    fs::write(&file, big(2).get(1..).unwrap()).unwrap();
    let storage = copies.keeping(Arc::new(case.store.clone()), "count", SUBTASK);
    let mut stream = storage.create(CheckpointId(2), Scope::Shared);
    stream.written_from(&file);
    let handle = block_on(async {
        stream.write(big(2).into()).await?;
        stream.finish().await
    });
    assert_eq!(
        copies.find(handle.unwrap().unwrap().object().unwrap()),
        None
    );
    assert!(files(&case.root("copies")).is_empty());
    assert_eq!(case.warnings().len(), 2);
}

#[test]
fn k_713_the_roots_take_turns_by_checkpoint_id() {
    let case = Case::new();
    let roots = ["a", "b", "c"];
    let copies = case.open_at(&roots);
    for id in 1..=7_u64 {
        let object = case.write(&copies, id, &big(id as u8));
        let path = copies.find(&object).unwrap();
        let root = case.root(roots[usize::try_from(id % 3).unwrap()]);
        let below: Vec<_> = path.strip_prefix(&root).unwrap().iter().collect();
        assert_eq!(below.len(), 4, "{}", path.display());
        assert!(
            below[0]
                .to_str()
                .unwrap()
                .starts_with("holdfast-copies-flights-")
        );
        assert_eq!(below[1], "count-1of2");
        assert_eq!(below[2], format!("chk-{id}").as_str());
    }
    // One that can't be used is left out.
    fs::write(case.root("file"), b"").unwrap();
    let copies = case.open_at(&["file", "d"]);
    let object = case.write(&copies, 1, &big(1));
    assert!(copies.find(&object).unwrap().starts_with(case.root("d")));
    assert_eq!(case.warnings().len(), 1);
    let copies = case.open_at(&["file"]);
    let object = case.write(&copies, 1, &big(1));
    assert_eq!(case.read(&copies, &object), (big(1).into(), true));
}

#[test]
fn k_714_on_another_machine_the_store_is_read() {
    let case = Case::new();
    let here = case.open_at(&["here"]);
    let objects: Vec<_> = (0..3)
        .map(|fill| case.write(&here, 1, &big(fill)))
        .collect();
    let there = case.open_at(&["there"]);
    there.start_from(Some(CheckpointId(1)), &objects);
    for (object, fill) in objects.iter().zip(0..) {
        assert_eq!(case.read(&there, object), (big(fill).into(), true));
    }
}

#[test]
fn k_274_dp_01_what_a_dead_process_left_is_used_or_removed_and_the_living_keep_theirs() {
    let case = Case::new();
    let living = case.open();
    let theirs = case.write(&living, 1, &big(1));
    for attempt in 0..20 {
        // It dies while copies are being written.
        let dying = case.open();
        let storage = dying.keeping(Arc::new(case.store.clone()), "count", SUBTASK);
        let mut stream = storage.create(CheckpointId(2), Scope::Shared);
        block_on(stream.write(big(attempt).into())).unwrap();
        case.write(&dying, 1, &big(attempt));
        let folder = files(&case.root("copies"));
        drop((stream, storage, dying));
        // As if nothing had been cleaned up.
        for file in folder.iter().filter(|file| !file.exists()) {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, b"left").unwrap();
        }
    }
    assert!(living.find(&theirs).is_some());
    let next = case.open();
    let object = case.write(&next, 2, &big(2));
    next.acked(CheckpointId(2), [&object]);
    next.confirm(CheckpointId(2));
    // One live copy each.
    assert_eq!(files(&case.root("copies")).len(), 2);
    drop(next);
    assert_eq!(fs::read_dir(case.root("copies")).unwrap().count(), 2);
    let foreign = case
        .root("copies")
        .join("holdfast-copies-other-0123456789abcdef0123456789abcdef");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("owner.lock"), b"").unwrap();
    LocalCopies::remove_leftovers(
        [case.root("copies").as_path()],
        &JobId::new("flights").unwrap(),
    );
    assert_eq!(fs::read_dir(case.root("copies")).unwrap().count(), 2);
    assert!(foreign.exists());
    assert_eq!(case.read(&living, &theirs), (big(1).into(), false));
}

#[test]
fn dp_02_whatever_is_wrong_with_a_copy_the_object_is_read_and_that_is_told_once() {
    type Damage = fn(&Path);
    let damages: [Damage; 6] = [
        |path| fs::remove_file(path).unwrap(),
        |path| fs::write(path, b"short").unwrap(),
        |path| fs::write(path, big(99)).unwrap(),
        |path| {
            let mut bytes = fs::read(path).unwrap();
            bytes.push(0);
            fs::write(path, bytes).unwrap();
        },
        |path| {
            fs::remove_file(path).unwrap();
            fs::create_dir(path).unwrap();
        },
        // Nothing below can be read.
        |path| {
            let folder = path.parent().unwrap();
            fs::remove_dir_all(folder).unwrap();
            fs::write(folder, b"a file").unwrap();
        },
    ];
    for (number, damage) in damages.iter().enumerate() {
        let case = Case::new();
        let copies = case.open();
        let objects: Vec<_> = (0..3)
            .map(|fill| case.write(&copies, 1, &big(fill)))
            .collect();
        copies.start_from(Some(CheckpointId(1)), &objects);
        for object in &objects {
            if let Some(path) = copies.find(object).filter(|path| path.exists()) {
                damage(&path);
            }
        }
        let to = case.root("linked");
        for (object, fill) in objects.iter().zip(0..) {
            let storage = case.restoring(&copies, 1);
            if fill == 0 {
                assert!(!block_on(storage.link_copy(object, &to)), "damage {number}");
                assert!(!to.exists());
            }
            assert_eq!(
                case.read(&copies, object),
                (big(fill).into(), true),
                "damage {number}"
            );
            let part = block_on(storage.read_range(object, 7..1007)).unwrap();
            assert_eq!(part, big(fill)[7..1007]);
            assert_eq!(copies.find(object), None);
        }
        let warnings = case.warnings();
        assert_eq!(warnings.len(), 1, "damage {number}: {warnings:?}");
        assert!(warnings[0].contains("object="), "{}", warnings[0]);
        // Another run, another word.
        let object = case.write(&case.open_at(&["elsewhere"]), 2, &big(9));
        copies.start_from(Some(CheckpointId(2)), [&object]);
        assert_eq!(copies.total(), (0, 0));
    }
}

#[test]
fn k_623_where_copy_and_object_are_both_bad_the_error_is_the_stores_and_the_copy_is_told_of() {
    type Bad = fn(&Case, &FaultyStorage, &str);
    let bads: [(ErrorKind, Bad); 3] = [
        (ErrorKind::Corrupt, |case, _, name| {
            assert!(case.memory.damage(name, |bytes| bytes[9] ^= 1));
        }),
        (ErrorKind::Corrupt, |case, _, name| {
            assert!(case.memory.remove(name));
        }),
        (ErrorKind::Retryable, |_, store, _| {
            store.fail_all(Call::Open, Fault::Fail(ErrorKind::Retryable));
        }),
    ];
    for (number, (kind, bad)) in bads.iter().enumerate() {
        let case = Case::new();
        let copies = case.open();
        let object = case.write(&copies, 1, &big(7));
        copies.start_from(Some(CheckpointId(1)), [&object]);
        fs::write(copies.find(&object).unwrap(), big(8)).unwrap();
        let store = FaultyStorage::new(Arc::new(case.store.clone()));
        bad(&case, &store, object.path.as_str());
        let of_store = Arc::new(store.clone());
        let storage = RestoringStorage::new(
            of_store.clone(),
            Some(copies.clone()),
            CheckpointId(1),
            "count",
            SUBTASK,
        );
        let handle = StateHandle::Object(object.clone());
        let error = block_on(read_handle(&storage, &handle)).unwrap_err();
        let alone = block_on(read_handle(&*of_store, &handle)).unwrap_err();
        assert_eq!(error.kind(), *kind, "{number}: {error}");
        assert_eq!(error.to_string(), alone.to_string());
        let warnings = case.warnings();
        assert_eq!(warnings.len(), 1, "{number}: {warnings:?}");
        assert!(warnings[0].contains(object.path.as_str()), "{warnings:?}");
    }
}

#[test]
fn k_624_a_restore_that_is_cancelled_while_it_reads_leaves_no_call_behind_and_can_be_repeated() {
    let case = Case::new();
    let copies = case.open();
    let copied = case.write(&copies, 1, &big(1));
    let object = case.write(&copies, 1, &big(2));
    copies.start_from(Some(CheckpointId(1)), [&copied]);
    assert_eq!(copies.find(&object), None);
    let store = FaultyStorage::new(Arc::new(case.store.clone()));
    let storage = RestoringStorage::new(
        Arc::new(store.clone()),
        Some(copies.clone()),
        CheckpointId(1),
        "count",
        SUBTASK,
    );
    let (copied, object) = (StateHandle::Object(copied), StateHandle::Object(object));
    for call in [Call::Open, Call::Next] {
        store.fail_all(call, Fault::Hang);
        let mut restore = Box::pin(async {
            read_handle(&storage, &copied).await?;
            read_handle(&storage, &object).await
        });
        assert!(restore.as_mut().now_or_never().is_none(), "{call:?}");
        assert_eq!(store.hanging(), 1);
        drop(restore);
        assert_eq!(store.hanging(), 0);
        store.heal();
    }
    assert_eq!(block_on(read_handle(&storage, &copied)).unwrap(), big(1));
    assert_eq!(block_on(read_handle(&storage, &object)).unwrap(), big(2));
}

#[test]
fn dp_02_a_copy_that_breaks_while_it_is_read_is_gone_on_with_in_the_store() {
    let case = Case::new();
    let copies = case.open();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|i| (i % 253) as u8).collect();
    let object = case.write(&copies, 1, &bytes);
    for break_at in [0, 1, 2] {
        let copies = if break_at == 0 {
            copies.clone()
        } else {
            case.open()
        };
        let object = if break_at == 0 {
            object.clone()
        } else {
            case.write(&copies, 1, &bytes)
        };
        let path = copies.find(&object).unwrap();
        let storage = case.restoring(&copies, 1);
        let mut reader = block_on(storage.open(&object)).unwrap();
        let mut read = Vec::new();
        for piece in 0.. {
            if piece == break_at {
                fs::File::options()
                    .write(true)
                    .open(&path)
                    .unwrap()
                    .set_len(500_000)
                    .unwrap();
            }
            match block_on(reader.next_piece(700_000)).unwrap() {
                Some(bytes) => read.extend_from_slice(&bytes),
                None => break,
            }
        }
        assert!(read == bytes, "broken at {break_at}");
        // One object, however many reads it took; part of it came out of the copy.
        let counted = storage.read();
        assert_eq!(counted.objects_from_store, 1);
        assert_eq!(counted.objects_from_copies, u64::from(break_at > 0));
        assert_eq!(copies.find(&object), None);
        assert_eq!(case.warnings().len(), 1);
        // Both are damaged: the store's word counts.
        let name = object.path.as_str();
        assert!(case.memory.damage(name, |bytes| bytes[9] ^= 1));
        let all = block_on(read_handle(&storage, &StateHandle::Object(object.clone())));
        assert_eq!(all.unwrap_err().kind(), ErrorKind::Corrupt);
    }
}

#[test]
fn a_file_is_copied_by_a_second_name_and_linked_into_place() {
    let case = Case::new();
    let copies = case.open();
    let file = case.root("000012.sst");
    fs::write(&file, big(1)).unwrap();
    let storage = copies.keeping(Arc::new(case.store.clone()), "count", SUBTASK);
    let mut stream = storage.create(CheckpointId(1), Scope::Shared);
    stream.written_from(&file);
    let handle = block_on(async {
        stream.write(big(1).into()).await?;
        stream.finish().await
    });
    let handle = handle.unwrap().unwrap();
    let object = handle.object().unwrap();
    fs::remove_file(&file).unwrap();
    let (to, before) = (case.root("again"), case.store.counts());
    let restoring = case.restoring(&copies, 1);
    assert!(block_on(restoring.link_copy(object, &to)));
    assert_eq!(fs::read(&to).unwrap(), big(1));
    assert_eq!(case.store.counts(), before);
    assert_eq!(restoring.read().from_copies, object.len);
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let inode = |path: &Path| path.metadata().unwrap().ino();
        assert_eq!(inode(&to), inode(&copies.find(object).unwrap()));
    }
    // A file that was fetched is kept for the next time.
    let other = case.open_at(&["elsewhere"]);
    other.start_from(Some(CheckpointId(1)), [object]);
    let restoring = case.restoring(&other, 1);
    assert!(!block_on(restoring.link_copy(object, &case.root("third"))));
    block_on(restoring.keep_copy(object, &to));
    block_on(restoring.keep_copy(object, &to));
    assert!(block_on(restoring.link_copy(object, &case.root("third"))));
    other.confirm(CheckpointId(2));
    assert_eq!(other.total().0, 0);
    assert!(to.exists());
}

#[test]
fn copies_are_never_more_than_those_of_the_confirmed_checkpoint_and_of_those_in_flight() {
    let case = Case::new();
    let copies = case.open_at(&["a", "b"]);
    let mut random = backend_testkit::fuzz::Random::new(7);
    let mut in_flight: Vec<(CheckpointId, Vec<ObjectHandle>)> = Vec::new();
    let mut confirmed: Vec<ObjectHandle> = Vec::new();
    let mut next = 1;
    for _ in 0..300 {
        match random.below(4) {
            0 | 1 if in_flight.len() < 3 => {
                let id = CheckpointId(next);
                next += 1;
                let mut objects = confirmed.clone();
                objects.retain(|_| random.below(3) > 0);
                let len = 1 + random.below(100_000);
                objects.push(case.write(&copies, id.0, &big(1)[..len]));
                copies.acked(id, &objects);
                in_flight.push((id, objects));
            }
            2 if !in_flight.is_empty() => {
                let (id, _) = in_flight.remove(random.below(in_flight.len()));
                copies.abort(id);
            }
            3 if !in_flight.is_empty() => {
                let (id, objects) = in_flight.remove(random.below(in_flight.len()));
                copies.confirm(id);
                in_flight.retain(|(other, _)| *other > id);
                confirmed = objects;
            }
            _ => {}
        }
        let named: BTreeSet<&str> = in_flight
            .iter()
            .flat_map(|(_, objects)| objects)
            .chain(&confirmed)
            .map(|object| object.path.as_str())
            .collect();
        assert!(copies.total().0 <= named.len());
        assert_eq!(files(case.dir.path()).len(), copies.total().0);
        // All of the confirmed one are there.
        assert!(confirmed.iter().all(|object| copies.find(object).is_some()));
    }
}
