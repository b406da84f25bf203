use super::*;
use state_api::{ErrorKind, KeyGroup};

fn range(start: u16, end: u16) -> KeyGroupRange {
    KeyGroupRange::new(KeyGroup(start), KeyGroup(end))
}

fn bounds(start: u16, end: u16) -> Bounds {
    Bounds::of(range(start, end), 1)
}

/// A file: number, level, first and last key group, epoch.
fn file(number: u64, level: u64, first: u8, last: u8, epoch: u64) -> FileLayout {
    FileLayout {
        number,
        level,
        size: 10,
        smallest: [&[first, b'k'][..], &[1; 8]].concat(),
        largest: [&[last, b'k'][..], &[1; 8]].concat(),
        smallest_sequence: 1,
        largest_sequence: epoch,
        epoch,
        fields: vec![],
    }
}

fn source(start: u16, end: u16, files: Vec<FileLayout>) -> Source {
    let origins = files
        .iter()
        .map(|file| {
            (
                file.number,
                Origin::Local(format!("{start}/{}", file.number).into()),
            )
        })
        .collect();
    Source {
        range: range(start, end),
        layout: Layout {
            prefix_len: 1,
            last_sequence: 100 * u64::from(start) + 50,
            columns: vec![ColumnLayout {
                state: "s".to_owned(),
                files,
            }],
        },
        origins,
    }
}

/// What a plan has: number, level and epoch of each file, and where it comes from.
fn planned(plan: &Plan) -> Vec<(u64, u64, u64, String)> {
    plan.layout
        .files()
        .map(|file| {
            let Origin::Local(path) = &plan.origins[&file.number] else {
                panic!("stored");
            };
            (
                file.number,
                file.level,
                file.epoch,
                path.display().to_string(),
            )
        })
        .collect()
}

#[test]
fn all_of_one_source_keeps_numbers_and_levels() {
    let files = vec![
        file(9, 0, 0, 7, 8),
        file(4, 1, 0, 3, 5),
        file(5, 1, 4, 7, 5),
        file(8, 0, 2, 6, 7),
        file(2, 6, 0, 7, 1),
    ];
    let plan = merge(&[source(0, 7, files)], &bounds(0, 7)).unwrap();
    let at = |number, level, epoch| (number, level, epoch, format!("0/{number}"));
    // The deepest first; level 0 in the order in which it was written.
    assert_eq!(
        planned(&plan),
        [
            at(2, 6, 1),
            at(4, 1, 2),
            at(5, 1, 2),
            at(8, 0, 3),
            at(9, 0, 4)
        ]
    );
    assert!(plan.crossing.is_empty());
    assert_eq!((plan.skipped_files, plan.layout.last_sequence), (0, 50));
}

#[test]
fn files_beyond_the_bounds_are_skipped_and_those_across_are_named() {
    let files = vec![
        file(4, 1, 0, 3, 1),
        file(5, 1, 4, 5, 1),
        file(6, 1, 6, 7, 1),
    ];
    let plan = merge(&[source(0, 7, files)], &bounds(3, 5)).unwrap();
    assert_eq!(plan.origins.keys().copied().collect::<Vec<_>>(), [4, 5]);
    assert_eq!(plan.crossing, BTreeSet::from(["s".to_owned()]));
    assert_eq!((plan.skipped_files, plan.skipped_bytes), (1, 10));
}

#[test]
fn sources_side_by_side_get_numbers_and_epochs_of_their_own() {
    let lower = source(0, 3, vec![file(4, 1, 0, 3, 5), file(9, 0, 0, 3, 7)]);
    let upper = source(4, 7, vec![file(4, 1, 4, 7, 5), file(10, 0, 4, 7, 6)]);
    let plan = merge(&[lower, upper], &bounds(0, 7)).unwrap();
    assert_eq!(
        planned(&plan),
        [
            (4, 1, 1, "0/4".to_owned()),
            (9, 0, 2, "0/9".to_owned()),
            (12, 1, 3, "4/4".to_owned()),
            (10, 0, 4, "4/10".to_owned()),
        ]
    );
    assert_eq!(
        plan.layout.last_sequence, 450,
        "later changes are newer than all"
    );
}

#[test]
fn sources_that_overlap_or_lack_a_file_are_refused() {
    let lower = source(0, 3, vec![file(4, 1, 0, 5, 5)]);
    let upper = source(4, 7, vec![file(4, 1, 4, 7, 5)]);
    assert!(lower.reaches_beyond_its_range());
    assert!(!upper.reaches_beyond_its_range());
    let error = merge(&[lower, upper.clone()], &bounds(0, 7)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let mut lacking = upper;
    lacking.origins.clear();
    let error = merge(&[lacking], &bounds(0, 7)).unwrap_err();
    assert_eq!(error.context("file"), Some("000004.sst"));
}

#[test]
fn files_of_a_level_may_meet_at_a_key_in_whatever_order_they_are_listed() {
    let files = vec![file(5, 1, 2, 7, 5), file(4, 1, 2, 2, 5)];
    let plan = merge(&[source(0, 7, files)], &bounds(0, 7)).unwrap();
    assert_eq!(plan.origins.keys().copied().collect::<Vec<_>>(), [4, 5]);
}
