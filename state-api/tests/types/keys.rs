//! What a key type guarantees: equality, bytes and hash say the same; ordered bytes have the order of the values.
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use state_api::{OrderedKey, StateKey};

use crate::derived::{Marker, Side};
use crate::strategies::{self, carrier, key_text, pair, route, shape};

fn encoded(key: &impl StateKey) -> Vec<u8> {
    let mut bytes = Vec::new();
    key.encode(&mut bytes);
    bytes
}

fn ordered(key: &impl OrderedKey) -> Vec<u8> {
    let mut bytes = Vec::new();
    key.encode_ordered(&mut bytes);
    bytes
}

fn equality_is_bytes_is_hash<K: StateKey + Debug>(a: &K, b: &K) {
    assert_eq!(a == b, encoded(a) == encoded(b), "bytes of {a:?} and {b:?}");
    assert_eq!(
        a == b,
        a.stable_hash() == b.stable_hash(),
        "hashes of {a:?} and {b:?}"
    );
    assert_eq!(
        K::FLINK_HASH,
        a.flink_hash().is_some(),
        "Java hash of {a:?}"
    );
    let copy = a.clone();
    assert_eq!(encoded(&copy), encoded(a));
    assert_eq!(copy.stable_hash(), a.stable_hash());
    if a == b {
        assert_eq!(a.flink_hash(), b.flink_hash());
    }
}

fn bytes_have_the_order<K: OrderedKey + Debug>(a: &K, b: &K) {
    equality_is_bytes_is_hash(a, b);
    let (left, right) = (ordered(a), ordered(b));
    assert_eq!(a.cmp(b), left.cmp(&right), "order of {a:?} and {b:?}");
    if a != b {
        assert!(
            !left.starts_with(&right) && !right.starts_with(&left),
            "{a:?} is a prefix of {b:?}"
        );
    }
    // Encodings one after the other are taken apart again.
    let both = [left, right].concat();
    let mut input = both.as_slice();
    assert_eq!(&K::decode_ordered(&mut input).unwrap(), a);
    assert_eq!(&K::decode_ordered(&mut input).unwrap(), b);
    assert!(input.is_empty());
}

macro_rules! ordered_keys {
    ($($test:ident: $strategy:expr;)*) => {$(
        proptest! {
            #![proptest_config(strategies::config(128))]
            #[test]
            fn $test(a in $strategy, b in $strategy) {
                bytes_have_the_order(&a, &b);
                bytes_have_the_order(&a, &a);
                bytes_have_the_order(&Box::new(a.clone()), &Box::new(b.clone()));
                bytes_have_the_order(&Some(a.clone()), &None);
                bytes_have_the_order(&vec![a.clone()], &vec![a.clone(), b.clone()]);
                bytes_have_the_order(&(a.clone(), b.clone()), &(b, a));
            }
        }
    )*};
}

ordered_keys! {
    unsigned_integers_are_keys: any::<(u8, u16, u32, u64, u128, usize)>();
    signed_integers_are_keys: any::<(i8, i16, i32, i64, i128, isize)>();
    small_integers_are_keys: -2i64..3;
    flags_characters_and_units_are_keys: any::<(bool, char, ())>();
    durations_are_keys: (0u64..3, 0u32..1_000_000_000).prop_map(|(s, n)| Duration::new(s, n));
    strings_are_keys: key_text();
    shared_strings_are_keys: key_text().prop_map(Arc::<str>::from);
    boxed_strings_are_keys: key_text().prop_map(Box::<str>::from);
    byte_strings_are_keys: key_text().prop_map(String::into_bytes);
    shared_byte_strings_are_keys: key_text().prop_map(Bytes::from);
    byte_arrays_are_keys: any::<[u8; 3]>();
    arrays_are_keys: (key_text(), key_text()).prop_map(|(a, b)| [a, b]);
    lists_are_keys: proptest::collection::vec(proptest::collection::vec(0u16..2, 0..3), 0..3);
    newtypes_are_keys: carrier();
    enums_are_keys: shape();
    structs_are_keys: route();
    generic_structs_are_keys: pair();
    units_and_bare_enums_are_keys: any::<bool>().prop_map(|b| (Marker, if b { Side::Buy } else { Side::Sell }));
}

proptest! {
    #![proptest_config(strategies::config(128))]

    #[test]
    fn ordered_collections_are_keys(
        a in any::<(BTreeSet<u8>, BTreeMap<u8, bool>)>(),
        b in any::<(BTreeSet<u8>, BTreeMap<u8, bool>)>(),
    ) {
        equality_is_bytes_is_hash(&a, &b);
        equality_is_bytes_is_hash(&a, &a);
    }

    /// The bytes of two parts never run into each other: `("ab", "c")` is not `("a", "bc")`.
    #[test]
    fn neighbouring_strings_keep_apart(text in "[ab\0]{0,6}", first in 0usize..7, second in 0usize..7) {
        let split = |at: usize| {
            let (left, right) = text.split_at(at.min(text.len()));
            (left.to_owned(), right.to_owned())
        };
        bytes_have_the_order(&split(first), &split(second));
    }
}

#[test]
fn the_ordered_layout_never_changes() {
    assert_eq!(ordered(&-1i16), [0x7f, 0xff]);
    assert_eq!(ordered(&1u16), [0, 1]);
    assert_eq!(ordered(&"a\0b".to_owned()), [b'a', 0, 0xff, b'b', 0, 0]);
    assert_eq!(ordered(&vec![1u8, 0]), [1, 0, 0xff, 0, 0]);
    assert_eq!(ordered(&vec![1u16]), [1, 0, 1, 0]);
    assert_eq!(ordered(&(Some(true), None::<u8>)), [1, 1, 0]);
    assert_eq!(ordered(&Side::Sell), [1]);
}

#[test]
fn damaged_ordered_bytes_are_refused() {
    for bytes in [&b"abc"[..], b"a\0", b"a\0\x01", b"\xff\0\0"] {
        assert!(String::decode_ordered(&mut &*bytes).is_err(), "{bytes:?}");
    }
    assert!(Side::decode_ordered(&mut &[2][..]).is_err());
    assert!(Vec::<u16>::decode_ordered(&mut &[1, 0, 1][..]).is_err());
}
