use backend_testkit::fuzz::Random;
use state_api::{KeyGroup, KeyGroupRange, KeyedHandle, SnapshotKind};

use crate::harness::{Model, SMALL, Subtasks, all_objects, files};

fn seed() -> u64 {
    let seed = backend_testkit::Settings::from_env().seed;
    println!("seed {seed}");
    seed
}

/// What happens to files that reach beyond the key groups after a restore.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    /// They are written anew before anything else happens.
    Wait,
    /// They are written anew while the store is worked on.
    GoOn,
    /// They stay.
    Leave,
}

/// Work, snapshot and rescale in turns: puts, merges, deleted keys and ranges, in files of several levels.
fn rescaled(groups: u32, options: &[(&str, &str)], operations: usize, then: Then) {
    let dir = tempfile::tempdir().unwrap();
    let (mut random, mut model) = (Random::new(seed()), Model::new());
    let mut subtasks = Subtasks::new(dir.path(), 2, groups, options);
    let mut cleaned = 0;
    for (round, parallelism) in [3, 2, 2, 5, 3, 1, 4, 2].into_iter().enumerate() {
        for _ in 0..2 {
            subtasks.work(&mut random, &mut model, operations / 3);
            subtasks.snapshot(SnapshotKind::Checkpoint);
        }
        subtasks.work(&mut random, &mut model, operations / 3);
        let kind = match round % 3 {
            0 | 1 => SnapshotKind::Checkpoint,
            _ => SnapshotKind::NativeSavepoint,
        };
        let handles = subtasks.snapshot(kind);
        subtasks.restore(&handles, parallelism).unwrap();
        for store in &subtasks.stores {
            cleaned += store.restored().unwrap().cleaned_parts;
        }
        if then == Then::Wait {
            subtasks.wait_for_rewriting();
        }
        assert!(
            subtasks.contents() == model,
            "round {round}, to {parallelism}"
        );
    }
    for store in &mut subtasks.stores {
        store.compact().unwrap();
    }
    assert!(subtasks.contents() == model, "after compaction");
    match then {
        // Nothing has to be cleaned at the next restore.
        Then::Wait => assert_eq!(cleaned, 0),
        Then::Leave => assert!(cleaned > 0),
        Then::GoOn => println!("{cleaned} parts cleaned"),
    }
}

#[test]
fn k_259_k_260_rescaled_by_file_a_store_equals_the_model() {
    rescaled(16, SMALL, 24_000, Then::Wait);
}

#[test]
fn rescaled_by_file_a_store_that_goes_on_meanwhile_equals_the_model() {
    rescaled(16, SMALL, 12_000, Then::GoOn);
}

#[test]
fn rescaled_by_file_a_store_whose_files_reach_beyond_its_key_groups_equals_the_model() {
    let leave = [
        SMALL,
        &[("incremental-restore-async-compact-after-rescale", "false")],
    ]
    .concat();
    rescaled(16, &leave, 12_000, Then::Leave);
}

#[test]
fn rescaled_by_file_a_store_with_two_bytes_of_key_group_equals_the_model() {
    rescaled(130, SMALL, 12_000, Then::Wait);
}

#[test]
fn rescaled_by_file_a_store_that_is_compacted_as_a_whole_equals_the_model() {
    let universal = [SMALL, &[("compaction.style", "UNIVERSAL")]].concat();
    rescaled(16, &universal, 9_000, Then::Wait);
}

#[test]
fn rescaled_by_file_a_store_that_is_never_compacted_equals_the_model() {
    let never = [SMALL, &[("compaction.style", "NONE")]].concat();
    rescaled(16, &never, 6_000, Then::Wait);
}

#[test]
fn rescaled_by_file_a_store_with_files_cut_at_key_groups_equals_the_model() {
    let cut = [SMALL, &[("compaction.cut-at-key-groups", "true")]].concat();
    rescaled(16, &cut, 12_000, Then::Wait);
}

#[test]
fn k_255_rt_01_files_without_needed_key_groups_are_not_fetched_and_others_keep_their_objects() {
    let dir = tempfile::tempdir().unwrap();
    let (mut random, mut model) = (Random::new(seed()), Model::new());
    let mut subtasks = Subtasks::new(dir.path(), 1, 16, SMALL);
    subtasks.work(&mut random, &mut model, 3_000);
    subtasks.fill(&mut random, &mut model, 8_000);
    subtasks.stores[0].compact().unwrap();
    let handles = subtasks.snapshot(SnapshotKind::Checkpoint);
    let all = files(&handles[0]).shared.len() as u64;
    subtasks.restore(&handles, 4).unwrap();
    let mut fetched = 0;
    for store in &subtasks.stores {
        let stats = store.restored().unwrap();
        assert!(stats.skipped_files > all / 2, "{stats:?} of {all}");
        assert!(stats.skipped_bytes > stats.fetched_bytes, "{stats:?}");
        assert_eq!(stats.fetched_files + stats.skipped_files, all);
        fetched += stats.fetched_files;
    }
    // Files that reach across are fetched by two.
    assert!(fetched < all + 2 * 3 + 1, "{fetched} of {all}");
    subtasks.wait_for_rewriting();
    let next = subtasks.snapshot(SnapshotKind::Checkpoint);
    let (old, new) = (all_objects(&handles), all_objects(&next));
    assert!(
        new.intersection(&old).count() * 2 > old.len(),
        "{old:?} {new:?}"
    );
    // What two of them took was rewritten.
    for pair in next.windows(2) {
        assert!(all_objects(&pair[..1]).is_disjoint(&all_objects(&pair[1..])));
    }
    subtasks.restore(&next, 3).unwrap();
    assert!(subtasks.contents() == model);
}

#[test]
fn files_cut_at_key_groups_are_fetched_by_one_subtask_each_and_not_written_anew() {
    // Of 16 key groups with the same bytes each: two files for each, or one that ends somewhere.
    for (cut, target) in [(true, "1mb"), (true, "16kb"), (false, "16kb")] {
        let dir = tempfile::tempdir().unwrap();
        let options = [
            SMALL,
            &[
                (
                    "compaction.cut-at-key-groups",
                    if cut { "true" } else { "false" },
                ),
                ("compaction.level.target-file-size-base", target),
            ],
        ]
        .concat();
        let mut random = Random::new(seed());
        let mut model = Model::new();
        let mut subtasks = Subtasks::new(dir.path(), 1, 16, &options);
        subtasks.fill(&mut random, &mut model, 4_000);
        // Flushes cut nowhere: compactions do.
        subtasks.stores[0].compact().unwrap();
        let handles = subtasks.snapshot(SnapshotKind::Checkpoint);
        let all = files(&handles[0]).shared.len() as u64;
        subtasks.restore(&handles, 5).unwrap();
        subtasks.wait_for_rewriting();
        let stats = subtasks
            .stores
            .iter()
            .map(|store| store.restored().unwrap());
        let (fetched, rewritten) = stats.fold((0, 0), |(files, bytes), stats| {
            (files + stats.fetched_files, bytes + stats.rewritten_bytes)
        });
        if cut {
            assert!(all >= 16, "{all} files");
            assert_eq!((fetched, rewritten), (all, 0), "up to {target}");
        } else {
            // As it is without: some reach across.
            assert!(fetched > all && rewritten > 0, "{fetched} of {all}");
        }
        assert!(subtasks.contents() == model);
    }
}

#[test]
fn parts_that_hold_more_than_their_key_groups_are_cleaned_before_they_are_merged() {
    let dir = tempfile::tempdir().unwrap();
    let (mut random, mut model) = (Random::new(seed()), Model::new());
    let mut subtasks = Subtasks::new(dir.path(), 1, 16, SMALL);
    subtasks.work(&mut random, &mut model, 12_000);
    let older = subtasks.snapshot(SnapshotKind::Checkpoint);
    let lower = model.clone();
    subtasks.work(&mut random, &mut model, 12_000);
    let newer = subtasks.snapshot(SnapshotKind::Checkpoint);
    // Both have all key groups; each counts for half of them.
    let only = |handle: &KeyedHandle, start, end| {
        let mut handle = files(handle).clone();
        handle.range = KeyGroupRange::new(KeyGroup(start), KeyGroup(end));
        KeyedHandle::Incremental(handle)
    };
    let halves = [only(&older[0], 0, 7), only(&newer[0], 8, 15)];
    model.retain(|(_, key), _| key[0] > 7);
    model.extend(lower.into_iter().filter(|((_, key), _)| key[0] <= 7));
    for parallelism in [1, 3] {
        subtasks.restore(&halves, parallelism).unwrap();
        assert!(subtasks.contents() == model, "at {parallelism}");
    }
    assert_eq!(subtasks.stores[1].restored().unwrap().cleaned_parts, 2);
    // Nothing is left of it.
    for store in &subtasks.stores {
        let names: Vec<_> = std::fs::read_dir(store.folder())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(names.len(), 2, "{names:?}");
    }
}
