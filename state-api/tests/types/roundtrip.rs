//! What is written is read back: every type, both codecs, typed and dynamic.
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use state_api::{CodecKind, Error, Opaque, OpaqueType, Result, Schema, StateType, Value};

use crate::derived::{Marker, Side};
use crate::strategies;

/// Checks the whole contract of a state type on one value.
pub(crate) fn holds_contract<T: StateType + PartialEq + Debug>(value: &T) {
    let schema = T::schema();
    assert_eq!(T::FIXED_SIZE, schema.fixed_size(), "fixed size of {schema}");
    assert_eq!(Schema::parse(&schema.to_string()).unwrap(), schema);
    assert!(T::HAS_HEAP || value.heap_size() == 0);

    let dynamic = value.to_value();
    assert_eq!(&T::from_value(dynamic.clone()).unwrap(), value);
    for codec in [CodecKind::Compact, CodecKind::Evolvable] {
        let mut bytes = vec![0xab];
        codec.encode(value, &mut bytes);
        assert_eq!(bytes[0], 0xab, "encoding appends");
        let encoded_len = bytes.len() - 1;
        if let Some(size) = codec.fixed_size::<T>() {
            assert_eq!(encoded_len, size, "length of {value:?}");
        }
        bytes.extend_from_slice(b"rest");

        let mut input = &bytes[1..];
        assert_eq!(&codec.decode::<T>(&mut input).unwrap(), value);
        assert_eq!(input, b"rest", "decoding stops at the end of {value:?}");

        let mut input = &bytes[1..];
        assert_eq!(codec.decode_value(&schema, &mut input).unwrap(), dynamic);
        assert_eq!(input, b"rest");

        let mut again = Vec::new();
        codec.encode_value(&schema, &dynamic, &mut again).unwrap();
        assert_eq!(again, bytes[1..=encoded_len]);
        for cut in (0..encoded_len).step_by(encoded_len / 32 + 1) {
            // Cut anywhere, it is an error, or (of two codecs never) another value.
            let cut = &bytes[1..=cut];
            assert!(
                codec.decode_all::<T>(cut).is_err(),
                "{value:?} cut to {} bytes",
                cut.len()
            );
        }
    }
}

macro_rules! roundtrip {
    ($($test:ident: $type:ty;)*) => {$(
        proptest! {
            #![proptest_config(strategies::config(64))]
            #[test]
            fn $test(value in any::<$type>()) {
                holds_contract(&value);
            }
        }
    )*};
}

roundtrip! {
    unsigned_integers_come_back: (u8, u16, u32, u64, u128, usize);
    signed_integers_come_back: (i8, i16, i32, i64, i128, isize);
    numbers_bool_and_char_come_back: (f32, f64, bool, char, ());
    strings_come_back: (String, Box<str>, Arc<str>);
    byte_strings_come_back: (Vec<u8>, [u8; 5], VecDeque<u8>);
    lists_come_back: (Vec<u16>, Vec<String>, Vec<()>, VecDeque<Option<i8>>, Vec<Vec<u8>>);
    arrays_come_back: ([u16; 3], [String; 2], [(); 4], [Option<bool>; 0]);
    ordered_collections_come_back: (BTreeMap<String, u8>, BTreeSet<i16>, BTreeMap<(), ()>, BTreeSet<()>);
    hashed_collections_come_back: (HashMap<String, u8>, HashSet<i16>, HashMap<(), u8>, HashSet<()>);
    options_and_boxes_come_back: (Option<Option<u8>>, Box<u32>, Option<Box<String>>);
    durations_come_back: (Duration, Option<Duration>);
    eight_parts_come_back: (u8, String, (u8,), bool, char, Option<u8>, Vec<u8>, ((), u16));
}

proptest! {
    #![proptest_config(strategies::config(64))]

    #[test]
    fn derived_types_come_back(
        flight in strategies::flight(),
        shape in strategies::shape(),
        route in strategies::route(),
        pair in strategies::pair(),
    ) {
        holds_contract(&flight);
        holds_contract(&shape);
        holds_contract(&route);
        holds_contract(&pair);
        holds_contract(&vec![Marker; 3]);
        holds_contract(&(Side::Buy, Side::Sell));
    }

    #[test]
    fn bytes_and_opaque_values_come_back(content in vec(any::<u8>(), 0..300)) {
        holds_contract(&Bytes::from(content.clone()));
        holds_contract(&Opaque(Reversed(content.clone())));
        holds_contract(&(1u8, vec![Opaque(Reversed(content))]));
    }

    #[test]
    fn schema_text_comes_back(schema in strategies::schema()) {
        let text = schema.to_string();
        let parsed = Schema::parse(&text).unwrap();
        prop_assert_eq!(&parsed, &schema);
        prop_assert_eq!(parsed.to_string(), text);
        prop_assert_eq!(parsed.fingerprint(), schema.fingerprint());
    }

    #[test]
    fn dynamic_values_come_back(schema in strategies::schema(), seed in any::<u64>()) {
        let mut numbers = strategies::numbers(seed);
        let Some(value) = strategies::value_of(&schema, &mut numbers) else {
            return Ok(());
        };
        for codec in [CodecKind::Compact, CodecKind::Evolvable] {
            let mut bytes = Vec::new();
            codec.encode_value(&schema, &value, &mut bytes).unwrap();
            if let (CodecKind::Compact, Some(size)) = (codec, schema.fixed_size()) {
                prop_assert_eq!(bytes.len(), size);
            }
            let mut input = bytes.as_slice();
            prop_assert_eq!(&codec.decode_value(&schema, &mut input).unwrap(), &value);
            prop_assert!(input.is_empty());
        }
    }
}

/// A type with an encoding of its own: its bytes back to front.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Reversed(Vec<u8>);

impl OpaqueType for Reversed {
    const CODEC_ID: &'static str = "reversed";
    const VERSION: u32 = 3;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.0.iter().rev());
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        if bytes.contains(&0) && bytes.len() == 1 {
            return Err(Error::corrupt("a single zero is not taken"));
        }
        Ok(Self(bytes.iter().rev().copied().collect()))
    }
}

impl state_api::OpaqueKey for Reversed {}

#[test]
fn opaque_state_is_told_apart_by_codec_and_version() {
    assert_eq!(
        Opaque::<Reversed>::schema().to_string(),
        "opaque(\"reversed\",3)"
    );
    let mut value = Opaque(Reversed(vec![1, 2])).to_value();
    if let Value::Opaque { version, .. } = &mut value {
        *version = 2;
    }
    let error = Opaque::<Reversed>::from_value(value).unwrap_err();
    assert_eq!(error.kind(), state_api::ErrorKind::Incompatible);
    let error = CodecKind::Compact
        .decode_all::<Opaque<Reversed>>(&[1, 0])
        .unwrap_err();
    assert_eq!(error.context("codec"), Some("reversed"));
    assert_eq!(error.kind(), state_api::ErrorKind::Corrupt);
}

#[test]
fn equal_maps_have_equal_bytes_whatever_their_history() {
    let encoded = |map: &HashMap<u32, String>| {
        let mut bytes = Vec::new();
        map.encode(&mut bytes);
        bytes
    };
    let entry = |i: u32| (i, format!("value {i}"));
    let forward: HashMap<_, _> = (0..1000).map(entry).collect();
    let mut backward: HashMap<_, _> = (0..2000).rev().map(entry).collect();
    backward.retain(|key, _| *key < 1000);
    assert_eq!(forward, backward);
    assert_eq!(encoded(&forward), encoded(&backward));
    assert_eq!(forward.to_value(), backward.to_value());
}

#[test]
fn floats_keep_their_bits() {
    for bits in [0x7fc0_0001u32, 0xffa0_0000, 0x8000_0000] {
        let value = f32::from_bits(bits);
        for codec in [CodecKind::Compact, CodecKind::Evolvable] {
            let mut bytes = Vec::new();
            codec.encode(&value, &mut bytes);
            assert_eq!(codec.decode_all::<f32>(&bytes).unwrap().to_bits(), bits);
        }
    }
}
