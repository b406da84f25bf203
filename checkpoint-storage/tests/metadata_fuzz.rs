//! Damaged metadata: it is refused or read, without a panic, and within an amount of memory that its length sets.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
mod common;

use backend_testkit::fuzz::{Random, fuzz};
use backend_testkit::meter::{Bound, Metered};
use bytes::Bytes;
use checkpoint_storage::{CheckpointMetadata, SubtaskMetadata, attempt_of_name, tags};
use common::*;
use state_api::wire::{get_bytes, get_u8, get_varint, put_bytes, put_varint};
use state_api::{ErrorKind, OperatorSnapshot, RelPath, StateHandle, StateKind};

#[global_allocator]
static METERED: Metered = Metered;

/// A key group takes a byte and becomes an offset and a length; the shortest handle takes some bytes and becomes a struct of
/// some hundred; growing vectors take twice that.
const BOUND: Bound = Bound {
    fixed: 16 << 10,
    per_byte: 512,
};

/// A section with the sections in it, or with bytes.
#[derive(Clone)]
struct Section {
    tag: u64,
    flags: u8,
    content: Content,
}

#[derive(Clone)]
enum Content {
    Sections(Vec<Section>),
    Bytes(Vec<u8>),
}

/// Takes well-formed sections apart; operators and their subtasks hold sections themselves.
fn parse(mut input: &[u8], depth: u32) -> Vec<Section> {
    let mut sections = Vec::new();
    while !input.is_empty() {
        let tag = get_varint(&mut input).unwrap();
        let flags = get_u8(&mut input).unwrap();
        let body = get_bytes(&mut input).unwrap();
        let nested = match depth {
            0 => tag == u64::from(tags::file::OPERATOR),
            1 => tag == u64::from(tags::operator::SUBTASK),
            _ => false,
        };
        let content = if nested {
            Content::Sections(parse(body, depth + 1))
        } else {
            Content::Bytes(body.to_vec())
        };
        sections.push(Section {
            tag,
            flags,
            content,
        });
    }
    sections
}

fn put(sections: &[Section], out: &mut Vec<u8>) {
    for section in sections {
        put_varint(out, section.tag);
        out.push(section.flags);
        match &section.content {
            Content::Bytes(bytes) => put_bytes(out, bytes),
            Content::Sections(inner) => {
                let mut body = Vec::new();
                put(inner, &mut body);
                put_bytes(out, &body);
            }
        }
    }
}

/// Damages one section and leaves the lengths around it right, so that what is wrong is found deep inside.
fn damage(sections: &mut Vec<Section>, random: &mut Random) {
    if sections.is_empty() {
        return;
    }
    let at = random.below(sections.len());
    match random.below(12) {
        0 => {
            sections.remove(at);
        }
        1 => sections.insert(at, sections[at].clone()),
        2 => sections[at].flags ^= 1 << random.below(3),
        3 => sections[at].tag = random.number() % 70,
        _ => match &mut sections[at].content {
            Content::Bytes(bytes) => random.damage(bytes),
            Content::Sections(inner) => damage(inner, random),
        },
    }
}

fn try_file(file: &[u8]) {
    let read = BOUND.hold(file.len(), || CheckpointMetadata::decode(file));
    match read {
        // What was taken is metadata like any other.
        Ok(read) => {
            let again = read.encode().unwrap();
            assert_eq!(CheckpointMetadata::decode(&again).unwrap(), read);
        }
        Err(e) => assert!(
            matches!(e.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported),
            "{e}"
        ),
    }
}

#[test]
fn arbitrary_and_damaged_files_break_no_decoder() {
    let file = sample().encode().unwrap().to_vec();
    fuzz(4_000, &[file], |_, bytes| try_file(&bytes));
}

#[test]
fn damaged_sections_under_a_right_digest_break_no_decoder() {
    let file = sample().encode().unwrap().to_vec();
    let sections = sections_of(&file).to_vec();
    fuzz(6_000, &[sections], |_, bytes| {
        try_file(&seal(1, "fuzz", &bytes));
    });
}

#[test]
fn damage_deep_inside_right_lengths_breaks_no_decoder() {
    let file = sample().encode().unwrap().to_vec();
    let whole = parse(sections_of(&file), 0);
    let mut unchanged = Vec::new();
    put(&whole, &mut unchanged);
    assert_eq!(unchanged, sections_of(&file), "the sections are understood");
    let mut refused = 0;
    let cases = fuzz(10_000, &[], |random, _| {
        let mut sections = whole.clone();
        for _ in 0..=random.below(2) {
            damage(&mut sections, random);
        }
        let mut bytes = Vec::new();
        put(&sections, &mut bytes);
        let file = seal(1, "fuzz", &bytes);
        refused += u32::from(CheckpointMetadata::decode(&file).is_err());
        try_file(&file);
    });
    // A run of a few cases may happen to find none.
    assert!(refused > 0 || cases < 100);
}

/// The longest way from few bytes to much memory: one description of many fields, and many handles that refer to it.
#[test]
fn a_long_description_is_copied_up_to_a_bound() {
    let fields: Vec<_> = (0..500)
        .map(|i| format!("a_field_whose_name_tells_what_is_in_it_{i}:u64"))
        .collect();
    let schema = format!("struct Long{{{}}}", fields.join(","));
    let mut with = metadata(1, 1);
    let mut handle = key_groups(StateHandle::Inline(Bytes::new()));
    let summary = state_api::StateSummary {
        meta: state_meta("long", StateKind::Value, &schema),
        entries: state_api::EntryCount::Exact(0),
    };
    // The limit is 16 MiB of descriptions, and some for each byte of the file.
    handle.states = vec![summary; 2 * (16 << 20) / schema.len()];
    let mut count = operator("count", 1);
    let snapshot = OperatorSnapshot {
        raw_keyed: vec![handle],
        ..OperatorSnapshot::default()
    };
    count.subtasks = vec![SubtaskMetadata::new(0, snapshot)];
    with.operators.push(count);
    let file = with.encode().unwrap();
    drop(with);
    // A field of a description becomes a name and a schema.
    let bound = Bound {
        fixed: 8 * (16 << 20),
        per_byte: 8 * 256,
    };
    let read = bound.hold(file.len(), || CheckpointMetadata::decode(&file));
    assert_eq!(read.err().map(|e| e.kind()), Some(ErrorKind::Corrupt));
}

/// Names of folders and objects come from listings of a store, in which anybody may have put anything.
#[test]
fn arbitrary_names_of_objects_have_an_attempt_or_none() {
    // What an error quotes may take six bytes for one, in a text that grows.
    let bound = Bound {
        fixed: 1 << 10,
        per_byte: 32,
    };
    let samples = [
        "a12-3f5e",
        "chk-17/a7-0000",
        "shared/a18446744073709551615-x",
    ];
    let samples: Vec<Vec<u8>> = samples
        .iter()
        .map(|name| name.as_bytes().to_vec())
        .collect();
    fuzz(2_000, &samples, |_, bytes| {
        let name = String::from_utf8_lossy(&bytes);
        bound.hold(name.len(), || {
            drop(RelPath::new(&name));
            attempt_of_name(&name)
        });
    });
}
