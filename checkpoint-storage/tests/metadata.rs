//! Area AB: the metadata format.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
mod common;

use std::sync::Arc;

use bytes::Bytes;
use checkpoint_storage::{
    CheckpointMetadata, FORMAT_VERSION, InputEnd, OwnRoot, RawSection, SubtaskMetadata, WRITER,
    tags,
};
use common::*;
use state_api::wire::{put_bytes, put_varint};
use state_api::{
    ErrorKind, KeyedHandle, OperatorSnapshot, OperatorStateHandle, Root, SnapshotKind, StateHandle,
};

const FIXTURE: &[u8] = include_bytes!("fixtures/metadata-v1.bin");

fn round_trip(metadata: &CheckpointMetadata) -> CheckpointMetadata {
    let bytes = metadata.encode().unwrap();
    let read = CheckpointMetadata::decode(&bytes).unwrap();
    assert_eq!(read.encode().unwrap(), bytes);
    read
}

fn section(out: &mut Vec<u8>, tag: u32, flags: u8, body: &[u8]) {
    put_varint(out, u64::from(tag));
    out.push(flags);
    put_bytes(out, body);
}

fn kind_of(file: &[u8]) -> ErrorKind {
    CheckpointMetadata::decode(file).unwrap_err().kind()
}

#[test]
fn k_661_metadata_of_every_shape_reads_as_it_was_written() {
    let empty = metadata(1, 1);
    assert_eq!(round_trip(&empty), empty);
    let mut hooks_only = empty.clone();
    hooks_only.hooks = sample().hooks;
    assert_eq!(round_trip(&hooks_only), hooks_only);
    let mut states_only = sample();
    states_only.hooks.clear();
    assert_eq!(round_trip(&states_only), states_only);
    let both = sample();
    assert_eq!(round_trip(&both), both);
    assert!(both.operator("source").unwrap().is_finished());
    for kind in [
        SnapshotKind::FullCheckpoint,
        SnapshotKind::NativeSavepoint,
        SnapshotKind::CanonicalSavepoint,
    ] {
        let all = CheckpointMetadata {
            kind,
            own_root: OwnRoot::Folder,
            ..sample()
        };
        assert_eq!(round_trip(&all), all);
    }
}

#[test]
fn k_662_every_kind_of_handle_reads_as_it_was_written() {
    let read = round_trip(&sample());
    let written = sample();
    let snapshot = &read.operator("count").unwrap().subtasks[0].snapshot;
    assert!(matches!(
        snapshot.managed_keyed[0],
        KeyedHandle::KeyGroups(_)
    ));
    assert!(matches!(
        snapshot.managed_keyed[1],
        KeyedHandle::Incremental(_)
    ));
    assert_eq!(
        snapshot,
        &written.operator("count").unwrap().subtasks[0].snapshot
    );
    assert_eq!(read.objects().count(), 4);
    assert_eq!(read.shared_objects().count(), 2);
}

#[test]
fn k_663_properties_read_as_they_were_written() {
    let read = round_trip(&sample());
    assert_eq!(read.properties, sample().properties);
    assert_eq!(read.kind, SnapshotKind::Checkpoint);
    assert_eq!(read.created_ms, 1_700_000_000_000);
}

#[test]
fn k_664_a_name_is_kept_or_absent_but_never_empty() {
    let read = round_trip(&sample());
    assert_eq!(
        read.operator("count").unwrap().name.as_deref(),
        Some("count per carrier")
    );
    assert_eq!(read.operator("source").unwrap().name, None);
    let mut empty = sample();
    empty.operators[0].name = Some("".into());
    let error = empty.encode().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(error.context("operator"), Some("count"));
}

#[test]
fn k_665_what_is_no_metadata_or_of_another_version_is_refused() {
    let file = sample().encode().unwrap();
    let mut wrong = file.to_vec();
    wrong[0] ^= 1;
    let error = CheckpointMetadata::decode(&wrong).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(
        error
            .to_string()
            .contains("not the metadata of a checkpoint"),
        "{error}"
    );
    for short in [0, 1, 8, 17, 18] {
        assert_eq!(kind_of(&file[..short]), ErrorKind::Corrupt, "{short}");
    }
    for version in [0, 2, 99] {
        let error = CheckpointMetadata::decode(&seal(version, "holdfast 9.1.0", b"?")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let text = error.to_string();
        assert!(
            text.contains(&format!("version {version}, written by holdfast 9.1.0")),
            "{text}"
        );
        assert!(
            text.contains(&format!("version {FORMAT_VERSION}")),
            "{text}"
        );
    }
}

#[test]
fn k_666_values_out_of_bounds_are_damage() {
    let identity = |edit: &dyn Fn(&mut Vec<u8>)| {
        let mut body = Vec::new();
        put_varint(&mut body, 42);
        put_bytes(&mut body, b"flights");
        put_varint(&mut body, 7);
        body.extend_from_slice(&[0, 1]);
        body.extend_from_slice(&1i64.to_le_bytes());
        edit(&mut body);
        let mut out = Vec::new();
        section(&mut out, tags::file::CHECKPOINT, 1, &body);
        out
    };
    assert!(CheckpointMetadata::decode(&seal(1, "x", &identity(&|_| {}))).is_ok());
    // Bytes left, bytes missing, another job id.
    assert_eq!(
        kind_of(&seal(1, "x", &identity(&|body| body.push(0)))),
        ErrorKind::Corrupt
    );
    assert_eq!(
        kind_of(&seal(1, "x", &identity(&|body| body.truncate(5)))),
        ErrorKind::Corrupt
    );
    assert_eq!(
        kind_of(&seal(1, "x", &identity(&|body| body[2] = b'/'))),
        ErrorKind::Corrupt
    );
    // No identity at all, twice, out of order, unknown flags.
    assert_eq!(kind_of(&seal(1, "x", &[])), ErrorKind::Corrupt);
    let once = identity(&|_| {});
    assert_eq!(
        kind_of(&seal(1, "x", &[once.clone(), once.clone()].concat())),
        ErrorKind::Corrupt
    );
    let mut late = Vec::new();
    section(&mut late, tags::file::PROPERTIES, 0, &[0]);
    assert_eq!(
        kind_of(&seal(1, "x", &[late, once.clone()].concat())),
        ErrorKind::Corrupt
    );
    let mut flags = once.clone();
    flags[1] = 3;
    assert_eq!(kind_of(&seal(1, "x", &flags)), ErrorKind::Corrupt);
    // Hooks: more than there is room for, an empty name, bytes that are cut short.
    for hooks in [
        &[0xff, 0xff, 0x7f][..],
        &[1, 0, 1, 0],
        &[1, 1, b'h', 1, 9, 0],
    ] {
        let mut out = once.clone();
        section(&mut out, tags::file::HOOKS, 1, hooks);
        assert_eq!(
            kind_of(&seal(1, "x", &out)),
            ErrorKind::Corrupt,
            "{hooks:?}"
        );
    }
}

#[test]
fn k_668_a_finished_operator_has_no_coordinator_state_and_a_finished_subtask_no_state() {
    let mut bad = sample();
    bad.operators[1].coordinator = Some(StateHandle::Inline(Bytes::from_static(b"x")));
    let error = bad.encode().unwrap_err();
    assert_eq!(
        (error.kind(), error.context("operator")),
        (ErrorKind::InvalidArgument, Some("source"))
    );
    let mut bad = sample();
    bad.operators[0].subtasks[0].finished = true;
    assert_eq!(bad.encode().unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn k_452_a_subtask_that_was_told_of_the_end_of_its_input_keeps_its_state_and_says_so() {
    use InputEnd::{Ahead, Finished, TimeEnded};
    let told = |ends: &[InputEnd]| {
        let mut all = metadata(1, 1);
        let mut count = operator("count", 2);
        count.coordinator = Some(StateHandle::Inline(Bytes::from_static(b"kept")));
        for (index, end) in (0..).zip(ends) {
            let snapshot = OperatorSnapshot {
                raw_operator: vec![OperatorStateHandle {
                    states: Vec::new(),
                    bytes: StateHandle::Inline(Bytes::from_static(b"kept")),
                }],
                ..OperatorSnapshot::default()
            };
            count.subtasks.push(SubtaskMetadata {
                input_end: *end,
                ..SubtaskMetadata::new(index, snapshot)
            });
        }
        all.operators.push(count);
        let read = round_trip(&all);
        assert_eq!(read, all);
        let count = read.operator("count").unwrap();
        let read: Vec<_> = count.subtasks.iter().map(|s| s.told_of_end()).collect();
        assert_eq!(read, ends);
        count.is_finished()
    };
    assert!(told(&[Finished, Finished]));
    assert!(!told(&[Finished, TimeEnded]));
    assert!(!told(&[Ahead, Finished]));
    assert!(!told(&[Finished]));
}

#[test]
fn an_unknown_end_of_an_input_counts_as_damage() {
    let mut with = metadata(1, 1);
    let mut count = operator("count", 1);
    count.subtasks.push(SubtaskMetadata {
        input_end: InputEnd::Finished,
        ..SubtaskMetadata::new(0, OperatorSnapshot::default())
    });
    with.operators.push(count);
    let file = with.encode().unwrap();
    // Tag, flags, length, what was told.
    let section = [6, 1, 1, 2];
    let at = file.windows(4).position(|bytes| bytes == section).unwrap();
    let mut sections = sections_of(&file).to_vec();
    let at = at - (file.len() - 32 - sections.len());
    for (told, kind) in [(0, true), (1, false), (2, false), (3, true)] {
        sections[at + 3] = told;
        let read = CheckpointMetadata::decode(&seal(1, "test", &sections));
        let damaged = read.err().map(|error| error.kind()) == Some(ErrorKind::Corrupt);
        assert_eq!(damaged, kind, "{told}");
    }
}

#[test]
fn k_669_an_unknown_kind_of_handle_is_named() {
    let mut with = metadata(1, 1);
    with.operators.push(operator("count", 1));
    with.operators[0].coordinator = Some(StateHandle::Inline(Bytes::from_static(b"needle")));
    let file = with.encode().unwrap();
    let mut sections = sections_of(&file).to_vec();
    let at = sections.windows(6).position(|w| w == b"needle").unwrap();
    sections[at - 2] = 99;
    let error = CheckpointMetadata::decode(&seal(1, WRITER, &sections)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(
        error.to_string().contains("kind 99 of a handle is unknown"),
        "{error}"
    );
}

#[test]
fn k_670_a_handle_into_a_root_that_is_not_listed_is_refused() {
    let mut bad = sample();
    bad.roots.clear();
    let error = bad.encode().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(error.context("root"), Some("file:///archive/flights"));
    bad.collect_roots();
    assert_eq!(bad, sample());
}

#[test]
fn k_670_a_handle_read_that_points_into_a_root_that_is_not_listed_is_damage() {
    let all = sample();
    let mut body = Vec::new();
    put_varint(&mut body, all.roots.len() as u64);
    for url in &all.roots {
        put_bytes(&mut body, url.as_bytes());
    }
    let mut listed = Vec::new();
    section(&mut listed, tags::file::ROOTS, 1, &body);
    let mut sections = sections_of(&all.encode().unwrap()).to_vec();
    let at = sections
        .windows(listed.len())
        .position(|window| window == listed)
        .unwrap();
    sections.drain(at..at + listed.len());
    let error = CheckpointMetadata::decode(&seal(1, WRITER, &sections)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(
        error
            .to_string()
            .contains("root 1 is not one of the 0 listed"),
        "{error}"
    );
}

#[test]
fn k_671_a_file_cut_short_anywhere_is_refused() {
    let file = sample().encode().unwrap();
    for len in 0..file.len() {
        let error = CheckpointMetadata::decode(&file[..len]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{len}");
    }
    let mut longer = file.to_vec();
    longer.push(0);
    assert_eq!(kind_of(&longer), ErrorKind::Corrupt);
}

#[test]
fn a_flipped_bit_anywhere_is_refused() {
    let file = sample().encode().unwrap();
    for at in 0..file.len() {
        let mut flipped = file.to_vec();
        flipped[at] ^= 1 << (at % 8);
        assert!(CheckpointMetadata::decode(&flipped).is_err(), "{at}");
    }
}

#[test]
fn k_672_the_file_that_version_1_wrote_reads_the_same_for_ever() {
    assert_eq!(CheckpointMetadata::decode(FIXTURE).unwrap(), sample());
}

/// `HOLDFAST_UPDATE_FIXTURES=1` writes the fixture anew, which is right for a new version of the format only.
#[test]
fn this_version_writes_what_version_1_wrote() {
    let written = sample().encode().unwrap();
    if std::env::var_os("HOLDFAST_UPDATE_FIXTURES").is_some() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/fixtures/metadata-v1.bin"
        );
        std::fs::write(path, &written).unwrap();
    }
    assert_eq!(written, FIXTURE);
}

#[test]
fn k_673_what_is_absent_reads_as_absent() {
    let mut bare = metadata(1, 1);
    let mut alone = operator("bare", 2);
    alone
        .subtasks
        .push(SubtaskMetadata::new(1, OperatorSnapshot::default()));
    bare.operators.push(alone);
    let read = round_trip(&bare);
    let operator = read.operator("bare").unwrap();
    assert_eq!(
        (operator.name.as_deref(), operator.coordinator.as_ref()),
        (None, None)
    );
    assert!(operator.subtasks[0].snapshot.is_empty());
    assert!(!operator.is_finished());
}

#[test]
fn k_674_equal_metadata_gives_equal_bytes_whatever_the_order() {
    let file = sample().encode().unwrap();
    assert_eq!(file, sample().encode().unwrap());
    let mut shuffled = sample();
    shuffled.operators.reverse();
    shuffled
        .operators
        .iter_mut()
        .for_each(|o| o.subtasks.reverse());
    assert_eq!(shuffled.encode().unwrap(), file);
}

#[test]
fn an_unknown_optional_section_survives_on_every_level() {
    let raw = |tag, bytes: &'static [u8]| RawSection {
        tag,
        bytes: Bytes::from_static(bytes),
    };
    let mut with = sample();
    with.unknown = vec![raw(5, b"before the operators"), raw(1_000_001, b"behind")];
    with.operators[0].unknown = vec![raw(99, b"operator")];
    with.operators[0].subtasks[0].unknown = vec![raw(7, b""), raw(77, b"subtask")];
    let mut read = round_trip(&with);
    assert_eq!(read, with);
    read.properties.insert("edited".into(), "yes".into());
    let edited = round_trip(&read);
    assert_eq!(edited.unknown, with.unknown);
    assert_eq!(edited.operators[0].unknown, with.operators[0].unknown);
}

#[test]
fn an_unknown_required_section_is_refused_and_names_the_writer() {
    let file = sample().encode().unwrap();
    let mut sections = sections_of(&file).to_vec();
    section(&mut sections, tags::file::CLAIMS, 1, b"from the future");
    let error = CheckpointMetadata::decode(&seal(1, "holdfast 9.1.0", &sections)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(
        error.to_string().contains("section 32 of the metadata"),
        "{error}"
    );
    assert!(
        error.to_string().contains("written by holdfast 9.1.0"),
        "{error}"
    );
}

#[test]
fn operators_and_subtasks_stand_once() {
    let mut bad = sample();
    bad.operators.push(operator("count", 1));
    assert_eq!(bad.encode().unwrap_err().context("operator"), Some("count"));
    for indices in [[0, 0], [0, 4]] {
        let mut bad = sample();
        bad.operators[0].subtasks = indices
            .map(|i| SubtaskMetadata::new(i, OperatorSnapshot::default()))
            .into();
        assert_eq!(bad.encode().unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
}

#[test]
fn a_long_description_referred_to_many_times_is_refused() {
    let mut with = metadata(1, 1);
    let fields: Vec<_> = (0..2000).map(|i| format!("field_{i}:u64")).collect();
    let long = state_meta(
        "long",
        state_api::StateKind::Value,
        &format!("struct Long{{{}}}", fields.join(",")),
    );
    let mut handle = key_groups(StateHandle::Inline(Bytes::new()));
    handle.states = vec![
        state_api::StateSummary {
            meta: long,
            entries: state_api::EntryCount::Exact(0)
        };
        2
    ];
    let mut count = operator("count", 1);
    let snapshot = OperatorSnapshot {
        raw_keyed: vec![handle],
        ..OperatorSnapshot::default()
    };
    count.subtasks = vec![SubtaskMetadata::new(0, snapshot)];
    with.operators.push(count);
    assert_eq!(round_trip(&with), with);
    let summaries =
        vec![with.operators[0].subtasks[0].snapshot.raw_keyed[0].states[0].clone(); 2_000];
    let snapshot = Arc::make_mut(&mut with.operators[0].subtasks[0].snapshot);
    snapshot.raw_keyed[0].states = summaries;
    let error = CheckpointMetadata::decode(&with.encode().unwrap()).unwrap_err();
    assert!(error.to_string().contains("too many times"), "{error}");
}

#[test]
fn a_checkpoint_used_by_another_job_names_its_folder() {
    let mut foreign = sample();
    foreign.rebase("file:///jobs/flights/");
    assert!(foreign.objects().all(|used| used.object.root != Root::Own));
    let roots: Vec<_> = foreign.roots.iter().map(|root| root.to_string()).collect();
    assert_eq!(roots, ["file:///archive/flights", "file:///jobs/flights"]);
    assert_eq!(round_trip(&foreign), foreign);
}

mod random {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use state_api::{
        CheckpointId, EntryCount, GroupExtent, KeyGroupOffsets, KeyGroupRange, KeyGroupsHandle,
        OperatorStateHandle, OperatorStateMode, OperatorStatePart, StateKind, StateMeta,
        StateSummary,
    };

    fn handle() -> impl Strategy<Value = StateHandle> {
        let root = prop_oneof![
            Just(Root::Own),
            "[a-c]{1,3}".prop_map(|s| Root::Url(format!("s3://{s}").into()))
        ];
        prop_oneof![
            vec(any::<u8>(), 0..20).prop_map(|b| StateHandle::Inline(b.into())),
            (
                root,
                "[a-z0-9-]{1,8}(/[a-z0-9-]{1,8})?",
                vec(any::<u8>(), 0..9)
            )
                .prop_map(|(root, path, body)| object(root, &path, &body)),
        ]
    }

    fn meta() -> impl Strategy<Value = StateMeta> {
        let value = prop_oneof![
            Just("u64"),
            Just("list<string>"),
            Just("struct F{a:f64,b:option<u8>}"),
            Just("unit")
        ];
        let ttl = proptest::option::of(any::<i64>());
        (
            "[a-z]{0,6}",
            proptest::sample::select(StateKind::ALL.to_vec()),
            value,
            ttl,
        )
            .prop_map(|(name, kind, value, ttl_ms)| StateMeta {
                ttl_ms,
                ..state_meta(&name, kind, value)
            })
    }

    fn summaries() -> impl Strategy<Value = Vec<StateSummary>> {
        let count = prop_oneof![
            any::<u64>().prop_map(EntryCount::Exact),
            any::<u64>().prop_map(EntryCount::Estimate)
        ];
        vec(
            (meta(), count).prop_map(|(meta, entries)| StateSummary { meta, entries }),
            0..4,
        )
    }

    fn extent() -> impl Strategy<Value = (u64, u64)> {
        prop_oneof![
            (0u64..100, 0u64..100),
            (any::<u64>(), 0u64..1 << 62).prop_filter("ends", |(o, l)| o.checked_add(*l).is_some())
        ]
    }

    fn key_group_handle() -> impl Strategy<Value = KeyGroupsHandle> {
        (0i64..32_700, vec(extent(), 0..20), handle(), summaries()).prop_map(
            |(start, extents, bytes, states)| {
                let range =
                    KeyGroupRange::try_new(start, start + extents.len() as i64 - 1).unwrap();
                let extents = extents
                    .into_iter()
                    .map(|(offset, len)| GroupExtent { offset, len })
                    .collect();
                let offsets = KeyGroupOffsets::from_extents(range, extents).unwrap();
                KeyGroupsHandle {
                    format: "raw".into(),
                    offsets,
                    bytes,
                    states,
                }
            },
        )
    }

    fn keyed() -> impl Strategy<Value = KeyedHandle> {
        let files = || {
            vec(
                ("[a-z0-9.]{1,8}", handle()).prop_map(|(name, bytes)| file(&name, bytes)),
                0..4,
            )
        };
        prop_oneof![
            key_group_handle().prop_map(KeyedHandle::KeyGroups),
            (any::<u64>(), files(), files())
                .prop_map(|(id, private, shared)| incremental(id, private, shared)),
        ]
    }

    fn operator_handle() -> impl Strategy<Value = OperatorStateHandle> {
        use OperatorStateMode::{Broadcast, Split, Union};
        let mode = prop_oneof![Just(Split), Just(Union), Just(Broadcast)];
        let part = (meta(), mode, vec(extent(), 0..5)).prop_map(|(meta, mode, elements)| {
            OperatorStatePart {
                meta,
                mode,
                elements,
            }
        });
        (vec(part, 0..4), handle())
            .prop_map(|(states, bytes)| OperatorStateHandle { states, bytes })
    }

    fn snapshot() -> impl Strategy<Value = OperatorSnapshot> {
        (
            vec(keyed(), 0..3),
            vec(key_group_handle(), 0..2),
            vec(operator_handle(), 0..2),
            vec(operator_handle(), 0..2),
            vec(key_group_handle(), 0..2),
            vec(operator_handle(), 0..2),
        )
            .prop_map(
                |(
                    managed_keyed,
                    raw_keyed,
                    managed_operator,
                    raw_operator,
                    in_flight_keyed,
                    in_flight,
                )| OperatorSnapshot {
                    managed_keyed,
                    raw_keyed,
                    managed_operator,
                    raw_operator,
                    in_flight_keyed,
                    in_flight,
                },
            )
    }

    fn any_metadata() -> impl Strategy<Value = CheckpointMetadata> {
        let subtasks = vec(
            (
                0u32..64,
                prop_oneof![3 => snapshot().prop_map(Some), 1 => Just(None)],
            ),
            0..4,
        );
        let operators = vec(
            (
                "[a-z ]{1,9}",
                proptest::option::of("[a-z]{1,9}"),
                proptest::option::of(handle()),
                subtasks,
            ),
            0..4,
        );
        let ids = (any::<u64>(), any::<u64>(), any::<i64>());
        let properties = proptest::collection::btree_map("[a-z]{0,5}", ".{0,5}", 0..3);
        (ids, operators, properties).prop_map(
            |((checkpoint, attempt, created_ms), operators, properties)| {
                let mut all = CheckpointMetadata {
                    created_ms,
                    properties,
                    ..metadata(checkpoint, attempt)
                };
                for (uid, name, coordinator, subtasks) in operators {
                    let mut built = operator(&uid, 64);
                    built.name = name.map(Into::into);
                    built.coordinator = coordinator;
                    for (index, snapshot) in subtasks {
                        built.subtasks.push(match snapshot {
                            Some(snapshot) => SubtaskMetadata {
                                input_end: match index % 3 {
                                    0 => InputEnd::Ahead,
                                    1 => InputEnd::TimeEnded,
                                    _ => InputEnd::Finished,
                                },
                                ..SubtaskMetadata::new(index, snapshot)
                            },
                            None => SubtaskMetadata::finished(index),
                        });
                    }
                    built.subtasks.sort_by_key(|s| s.index);
                    built.subtasks.dedup_by_key(|s| s.index);
                    all.operators.push(built);
                }
                all.operators.sort_by(|a, b| a.uid.cmp(&b.uid));
                all.operators.dedup_by(|a, b| a.uid == b.uid);
                all.collect_roots();
                all
            },
        )
    }

    fn edit(bytes: &mut Vec<u8>, edits: &[(u8, usize, u8)]) {
        for (what, at, value) in edits {
            let at = at % (bytes.len() + 1);
            match what % 4 {
                0 if at < bytes.len() => bytes[at] = *value,
                1 if at < bytes.len() => {
                    bytes.remove(at);
                }
                2 => bytes.insert(at, *value),
                _ => bytes.truncate(at.max(bytes.len() / 2)),
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn k_661_random_metadata_reads_as_it_was_written(metadata in any_metadata()) {
            prop_assert_eq!(&round_trip(&metadata), &metadata);
        }

        #[test]
        fn k_671_damaged_sections_under_a_right_digest_give_an_error_or_metadata_but_no_panic(
            metadata in any_metadata(),
            edits in vec((any::<u8>(), any::<usize>(), any::<u8>()), 1..6),
        ) {
            let file = metadata.encode().unwrap();
            let mut sections = sections_of(&file).to_vec();
            edit(&mut sections, &edits);
            match CheckpointMetadata::decode(&seal(1, "fuzz", &sections)) {
                Ok(read) => prop_assert_eq!(&round_trip(&read), &read),
                Err(e) => prop_assert!(matches!(e.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported), "{}", e),
            }
        }

        #[test]
        fn arbitrary_bytes_give_an_error(bytes in vec(any::<u8>(), 0..400), version in 0u16..3) {
            prop_assert!(CheckpointMetadata::decode(&bytes).is_err());
            prop_assert!(CheckpointMetadata::decode(&seal(version, "fuzz", &bytes)).is_err());
        }
    }

    #[test]
    fn the_checkpoint_id_takes_all_64_bits() {
        let all = CheckpointMetadata {
            checkpoint: CheckpointId(u64::MAX),
            ..sample()
        };
        assert_eq!(round_trip(&all), all);
    }
}
