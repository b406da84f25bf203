//! Damaged bytes: no decoder panics, and none allocates past a bound that the input's length sets.
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use backend_testkit::meter::peak_of;
use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use state_api::{CodecKind, OrderedKey, Schema, StateType, TypeMeta, compat};

use crate::derived::{Flight, Pair, Route, Shape, Side};
use crate::strategies;

/// What an input of a length may cost: a constant and a multiple. A list element of one byte can take some hundred bytes in
/// memory (a struct of many parts), and a growing vector twice that.
fn bound(input: usize, element: usize) -> usize {
    64 * 1024 + input * (element + 64) * 4
}

/// What a dynamic value may cost: the documented number of values, times the size of one, and the names of their fields.
fn value_bound(input: usize, schema_text: usize) -> usize {
    (65_536 + 16 * input) * 4 * (size_of::<state_api::Value>() + 64 + schema_text)
}

fn try_type<T: StateType>(bytes: &[u8]) {
    for codec in [CodecKind::Compact, CodecKind::Evolvable] {
        let mut input = bytes;
        let (decoded, peak) = peak_of(|| codec.decode::<T>(&mut input));
        let most = bound(bytes.len(), size_of::<T>());
        assert!(
            peak <= most,
            "{codec} {} takes {peak} of {most} bytes",
            T::schema()
        );
        if let Ok(value) = decoded {
            // What was taken is a value like any other.
            let mut again = Vec::new();
            codec.encode(&value, &mut again);
            assert!(codec.decode_all::<T>(&again).is_ok());
        }
    }
}

fn try_all_types(bytes: &[u8]) {
    try_type::<(u8, u16, u32, u64, u128, usize)>(bytes);
    try_type::<(f32, f64, bool, char, ())>(bytes);
    try_type::<String>(bytes);
    try_type::<(Arc<str>, Box<str>, Bytes)>(bytes);
    try_type::<Vec<u8>>(bytes);
    try_type::<Vec<()>>(bytes);
    try_type::<Vec<Vec<()>>>(bytes);
    try_type::<Vec<[u64; 16]>>(bytes);
    try_type::<Vec<Option<[u64; 16]>>>(bytes);
    try_type::<VecDeque<Vec<String>>>(bytes);
    try_type::<[Option<u16>; 5]>(bytes);
    try_type::<BTreeMap<String, Vec<u16>>>(bytes);
    try_type::<BTreeSet<(u8, ())>>(bytes);
    try_type::<HashMap<u8, BTreeMap<(), ()>>>(bytes);
    try_type::<HashSet<()>>(bytes);
    try_type::<HashSet<u8>>(bytes);
    try_type::<Option<Box<Option<Duration>>>>(bytes);
    try_type::<Flight>(bytes);
    try_type::<Shape>(bytes);
    try_type::<Vec<Side>>(bytes);
    try_type::<Pair<u8, String, 2>>(bytes);
}

fn try_ordered<K: OrderedKey>(bytes: &[u8]) {
    let (decoded, peak) = peak_of(|| K::decode_ordered(&mut &*bytes));
    let most = bound(bytes.len(), size_of::<K>());
    assert!(peak <= most, "{} takes {peak} of {most} bytes", K::schema());
    if let Ok(key) = decoded {
        let mut again = Vec::new();
        key.encode_ordered(&mut again);
        assert!(
            bytes.starts_with(&again),
            "an ordered encoding is the only one of its key"
        );
    }
}

fn try_schema(schema: &Schema, bytes: &[u8]) {
    let text = schema.to_string().len();
    for codec in [CodecKind::Compact, CodecKind::Evolvable] {
        let mut input = bytes;
        let (decoded, peak) = peak_of(|| codec.decode_value(schema, &mut input));
        let most = value_bound(bytes.len(), text);
        assert!(
            peak <= most,
            "{codec} {schema} takes {peak} of {most} bytes"
        );
        if let (CodecKind::Compact, Ok(value)) = (codec, decoded) {
            let mut again = Vec::new();
            schema.encode_compact(&value, &mut again).unwrap();
            assert_eq!(
                again,
                bytes[..bytes.len() - input.len()],
                "a compact encoding is the only one of its value"
            );
            assert!(!value.to_json_string().is_empty() && !value.to_string().is_empty());
        }
    }
}

/// Changes bytes as damage does: flips, cuts, repeats, lengths made large.
fn damage(bytes: &mut Vec<u8>, changes: &[(u8, u16, u8)]) {
    for (kind, at, byte) in changes {
        if bytes.is_empty() {
            bytes.push(*byte);
        }
        let at = usize::from(*at) % bytes.len();
        match kind % 6 {
            0 => bytes[at] ^= 1 << (byte % 8),
            1 => bytes[at] = *byte,
            2 => bytes.truncate(at),
            3 => bytes.insert(at, *byte),
            4 => bytes
                .splice(at..at, [0xff, 0xff, 0xff, 0xff, 0x0f])
                .for_each(drop),
            _ => bytes.extend_from_within(at..),
        }
    }
}

fn changes() -> impl Strategy<Value = Vec<(u8, u16, u8)>> {
    vec(any::<(u8, u16, u8)>(), 1..6)
}

proptest! {
    #![proptest_config(strategies::config(2048))]

    #[test]
    fn arbitrary_bytes_break_no_decoder(bytes in vec(any::<u8>(), 0..200)) {
        try_all_types(&bytes);
        try_ordered::<Route>(&bytes);
        try_ordered::<(Vec<Option<i8>>, String)>(&bytes);
        try_ordered::<Vec<()>>(&bytes);
    }

    #[test]
    fn small_numbers_break_no_decoder(mut bytes in vec(0u8..20, 0..200)) {
        try_all_types(&bytes);
        try_ordered::<Route>(&bytes);
        // As the evolvable encoding, whose first byte is a version.
        bytes.insert(0, 1);
        try_all_types(&bytes);
    }

    #[test]
    fn damaged_encodings_break_no_decoder(
        flight in strategies::flight(),
        route in strategies::route(),
        changes in changes(),
    ) {
        for codec in [CodecKind::Compact, CodecKind::Evolvable] {
            let mut bytes = Vec::new();
            codec.encode(&(flight.clone(), route.clone()), &mut bytes);
            damage(&mut bytes, &changes);
            try_type::<(Flight, Route)>(&bytes);
            try_all_types(&bytes);
            let meta = TypeMeta { codec, schema: <(Flight, Route)>::schema() };
            let _ = compat::migrate::<(Flight, Route)>(&meta, &bytes);
        }
        let mut bytes = Vec::new();
        route.encode_ordered(&mut bytes);
        damage(&mut bytes, &changes);
        try_ordered::<Route>(&bytes);
    }

    #[test]
    fn no_schema_and_bytes_break_the_dynamic_decoder(
        schema in strategies::schema(),
        seed in any::<u64>(),
        noise in vec(any::<u8>(), 0..100),
        changes in changes(),
    ) {
        try_schema(&schema, &noise);
        let mut numbers = strategies::numbers(seed);
        if let Some(value) = strategies::value_of(&schema, &mut numbers) {
            let mut bytes = Vec::new();
            schema.encode_compact(&value, &mut bytes).unwrap();
            damage(&mut bytes, &changes);
            try_schema(&schema, &bytes);
        }
    }

    #[test]
    fn damaged_schema_text_breaks_no_parser(schema in strategies::schema(), changes in changes()) {
        let mut text = schema.to_string().into_bytes();
        damage(&mut text, &changes);
        try_schema_text(&String::from_utf8_lossy(&text));
    }

    #[test]
    fn arbitrary_text_breaks_no_parser(
        text in any::<String>(),
        tokens in vec(proptest::sample::select(TOKENS.to_vec()), 0..40),
    ) {
        try_schema_text(&text);
        try_schema_text(&tokens.concat());
    }
}

const TOKENS: &[&str] = &[
    "unit",
    "u8",
    "i128",
    "list<",
    "map<",
    "option<",
    "array<",
    "tuple(",
    "struct ",
    "enum ",
    "opaque(",
    "\"id\"",
    "a",
    "<",
    ">",
    "(",
    ")",
    "{",
    "}",
    ",",
    ":",
    "1",
    "4294967295",
    "\"",
    "\\",
    " ",
];

fn try_schema_text(text: &str) {
    let (parsed, peak) = peak_of(|| Schema::parse(text));
    let most = 64 * 1024 + text.len() * 4 * (size_of::<Schema>() + 128);
    assert!(peak <= most, "{text:?} takes {peak} of {most} bytes");
    if let Ok(schema) = parsed {
        assert_eq!(Schema::parse(&schema.to_string()).unwrap(), schema);
        try_schema(&schema, &[0; 16]);
    }
}

/// A length that lies is found out before memory is set aside for it.
#[test]
fn a_length_of_gigabytes_in_a_few_bytes_allocates_nothing() {
    let mut bytes = Vec::new();
    state_api::wire::put_varint(&mut bytes, 1 << 40);
    bytes.push(1);
    let (decoded, peak) = peak_of(|| Vec::<u64>::decode(&mut bytes.as_slice()).is_err());
    assert!(decoded && peak < 1024, "{peak}");
    let (decoded, peak) = peak_of(|| String::decode(&mut bytes.as_slice()).is_err());
    assert!(decoded && peak < 1024, "{peak}");
}
