use super::*;
use crate::{ErrorKind, HashId};

fn max(groups: u32) -> MaxParallelism {
    MaxParallelism::new(groups).unwrap()
}

fn groups_of(hashes: &[i32], max: MaxParallelism) -> Vec<u16> {
    hashes
        .iter()
        .map(|hash| max.group_of_hash32(*hash).0)
        .collect()
}

fn ranges(groups: u32, parallelism: u32) -> String {
    let range = |index| {
        max(groups)
            .range_of(Subtask { index, parallelism })
            .unwrap()
    };
    (0..parallelism)
        .map(|index| range(index).to_string())
        .collect()
}

const HASHES: [i32; 10] = [0, 1, 2, 42, 127, 128, 1000, -1, i32::MIN, i32::MAX];

#[test]
fn k_001_groups_of_128() {
    assert_eq!(
        groups_of(&HASHES, max(128)),
        [94, 86, 127, 29, 27, 41, 7, 80, 108, 62]
    );
}

#[test]
fn k_002_groups_of_10() {
    assert_eq!(groups_of(&HASHES, max(10)), [4, 8, 3, 5, 5, 1, 1, 8, 2, 4]);
}

#[test]
fn k_004_groups_of_32768() {
    assert_eq!(
        groups_of(&HASHES, max(32768)),
        [
            31198, 16342, 15231, 28189, 26779, 7209, 135, 15184, 10348, 19646
        ]
    );
}

#[test]
fn k_005_strings_hash_as_in_java() {
    let group = |text: &str| HashId::Flink.group(&text.to_owned(), max(128)).0;
    assert_eq!(
        ["", "a", "abc", "key-1", "hello"].map(group),
        [94, 81, 115, 54, 35]
    );
}

#[test]
fn k_006_64_bit_keys_fold_as_in_java() {
    let group = |key: i64| HashId::Flink.group(&key, max(128)).0;
    assert_eq!([0, -1, 1, 1 << 32].map(group), [94, 94, 86, 86]);
}

#[test]
fn k_008_every_group_lies_in_just_the_range_of_its_subtask() {
    for groups in 1..200 {
        for parallelism in 1..=groups {
            let mut next = 0;
            for index in 0..parallelism {
                let range = max(groups)
                    .range_of(Subtask { index, parallelism })
                    .unwrap();
                assert!(!range.is_empty(), "{groups}/{parallelism}: {index}");
                assert_eq!(
                    u32::from(range.start().0),
                    next,
                    "{groups}/{parallelism}: {index}"
                );
                for group in range.iter() {
                    assert_eq!(max(groups).subtask_of(group, parallelism), index);
                }
                next = u32::from(range.end().0) + 1;
            }
            assert_eq!(next, groups);
        }
    }
}

#[test]
fn k_009_ranges_of_128_groups_over_3_subtasks() {
    assert_eq!(ranges(128, 3), "[0,42][43,85][86,127]");
}

#[test]
fn k_010_ranges_where_the_division_leaves_a_rest() {
    assert_eq!(ranges(10, 4), "[0,2][3,4][5,7][8,9]");
    assert_eq!(ranges(10, 3), "[0,3][4,6][7,9]");
    assert_eq!(ranges(13, 2), "[0,6][7,12]");
}

#[test]
fn k_011_as_many_subtasks_as_groups_have_one_group_each() {
    for groups in [1, 7, 128, 1000] {
        for index in 0..groups {
            let parallelism = groups;
            let range = max(groups)
                .range_of(Subtask { index, parallelism })
                .unwrap();
            assert_eq!(
                range.iter().map(|g| u32::from(g.0)).collect::<Vec<_>>(),
                [index]
            );
        }
    }
}

#[test]
fn k_012_one_group_takes_all_keys() {
    assert_eq!(ranges(1, 1), "[0,0]");
    assert_eq!(groups_of(&HASHES, max(1)), [0; 10]);
}

#[test]
fn k_013_more_subtasks_than_groups_are_refused() {
    let subtask = Subtask {
        index: 0,
        parallelism: 11,
    };
    let error = max(10).range_of(subtask).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn k_014_numbers_out_of_bounds_are_refused() {
    let kind = |result: Result<MaxParallelism>| result.unwrap_err().kind();
    for groups in [0, 32769, u32::MAX] {
        assert_eq!(
            kind(MaxParallelism::new(groups)),
            ErrorKind::InvalidArgument
        );
        assert_eq!(
            kind(MaxParallelism::derive_default(groups)),
            ErrorKind::InvalidArgument
        );
    }
    for (index, parallelism) in [(0, 0), (3, 3), (0, 32769), (u32::MAX, 2)] {
        let error = max(128)
            .range_of(Subtask { index, parallelism })
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
}

#[test]
fn k_015_the_largest_products_do_not_overflow() {
    let last = Subtask {
        index: 32767,
        parallelism: 32768,
    };
    let range = max(32768).range_of(last).unwrap();
    assert_eq!(
        (range.start(), range.end()),
        (KeyGroup(32767), KeyGroup(32767))
    );
    assert_eq!(max(32768).subtask_of(KeyGroup(32767), 32768), 32767);
}

#[test]
fn k_016_the_default_is_one_and_a_half_times_the_parallelism_rounded_up() {
    let default = |parallelism| MaxParallelism::derive_default(parallelism).unwrap().get();
    assert_eq!(
        [1, 85, 86, 171, 172, 341, 342, 10924, 32768].map(default),
        [128, 128, 256, 256, 512, 512, 1024, 32768, 32768]
    );
}

/// A key is never null in Rust; an absent one is a key like any other, and its group is fixed.
#[test]
fn k_017_an_absent_key_has_a_group_of_its_own() {
    let absent = HashId::Holdfast1.group(&None::<String>, max(128));
    assert_eq!(absent, HashId::Holdfast1.group(&None::<u64>, max(128)));
    assert_ne!(
        absent,
        HashId::Holdfast1.group(&Some(String::new()), max(128))
    );
}

#[test]
fn k_027_the_prefix_takes_two_bytes_past_128_groups() {
    let prefix = |groups| max(groups).prefix_len();
    assert_eq!([1, 128, 129, 32768].map(prefix), [1, 1, 2, 2]);
}

#[test]
fn all_groups_are_one_range() {
    assert_eq!(
        max(128).all_groups(),
        KeyGroupRange::new(KeyGroup(0), KeyGroup(127))
    );
    assert_eq!(max(32768).all_groups().len(), 32768);
}
