use super::*;
use crate::ErrorKind;

fn nested() -> (u64, Vec<Option<String>>) {
    (7, vec![Some("a".repeat(300)), None])
}

#[test]
fn both_codecs_read_what_they_write() {
    for codec in [CodecKind::Compact, CodecKind::Evolvable] {
        let mut bytes = Vec::new();
        codec.encode(&nested(), &mut bytes);
        assert_eq!(
            codec
                .decode_all::<(u64, Vec<Option<String>>)>(&bytes)
                .unwrap(),
            nested()
        );
        bytes.push(0);
        let error = codec
            .decode_all::<(u64, Vec<Option<String>>)>(&bytes)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert_eq!(codec.as_str().parse::<CodecKind>().unwrap(), codec);
    }
    assert_eq!(
        CodecKind::parse("kryo").unwrap_err().kind(),
        ErrorKind::Unsupported
    );
    assert_eq!(CodecKind::Compact.fixed_size::<u64>(), Some(8));
    assert_eq!(CodecKind::Evolvable.fixed_size::<u64>(), None);
}

#[test]
fn dynamic_values_have_the_bytes_of_typed_ones() {
    let schema = <(u64, Vec<Option<String>>)>::schema();
    for codec in [CodecKind::Compact, CodecKind::Evolvable] {
        let mut bytes = Vec::new();
        codec.encode(&nested(), &mut bytes);
        let value = codec.decode_value(&schema, &mut bytes.as_slice()).unwrap();
        assert_eq!(value, nested().to_value());
        let mut again = Vec::new();
        codec.encode_value(&schema, &value, &mut again).unwrap();
        assert_eq!(again, bytes);
        let error = codec
            .encode_value(&Schema::Bool, &value, &mut again)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Incompatible);
        assert_eq!(again, bytes);
    }
}

/// The layout of the evolvable encoding, byte by byte.
#[test]
fn the_evolvable_layout_never_changes() {
    let value = Value::Record {
        name: "R".into(),
        fields: vec![
            ("a".into(), Value::Int(-2)),
            (
                "bc".into(),
                Value::List(vec![Value::UInt(300), Value::Bool(true)]),
            ),
        ],
    };
    let mut bytes = Vec::new();
    evolvable::encode(&value, &mut bytes);
    assert_eq!(
        bytes,
        [
            1, 16, 1, b'R', 2, // version, struct, name, fields
            1, b'a', 2, 4, 3, // name, length, signed, zigzag
            2, b'b', b'c', 6, 13, 2, 3, 0xac, 0x02,
            2, // name, length, list of 2, unsigned, true
        ]
    );
    assert_eq!(evolvable::decode(&mut bytes.as_slice()).unwrap(), value);
}

#[test]
fn k_231_a_newer_version_of_the_encoding_is_named() {
    let error = evolvable::decode(&mut [2, 0].as_slice()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(
        error
            .message()
            .contains("of version 2, written by a newer program")
    );
}

#[test]
fn a_long_field_has_a_length_of_more_than_one_byte() {
    for len in [0, 120, 124, 125, 126, 127, 128, 200, 20_000] {
        let value = Value::Record {
            name: "R".into(),
            fields: vec![
                ("a".into(), Value::Bytes(vec![9; len])),
                ("b".into(), Value::Unit),
            ],
        };
        let mut bytes = Vec::new();
        evolvable::encode(&value, &mut bytes);
        assert_eq!(
            evolvable::decode(&mut bytes.as_slice()).unwrap(),
            value,
            "{len}"
        );
    }
}

#[test]
fn nesting_in_damaged_bytes_is_bounded() {
    let mut bytes = vec![1];
    bytes.extend(std::iter::repeat_n(12, 1_000_000));
    let error = evolvable::decode(&mut bytes.as_slice()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.message().contains("nests deeper"));
}

fn in_place<T: StateType>(value: T) {
    let mut encoded = Vec::new();
    value.encode(&mut encoded);
    assert!(T::IN_PLACE);
    assert_eq!(T::FIXED_SIZE, Some(encoded.len()));
    let mut place = vec![0xa5; encoded.len()];
    value.put_in_place(&mut place);
    assert_eq!(place, encoded);
    let mut all = vec![1];
    T::encode_slice(&[value.clone(), value.clone()], &mut all);
    assert_eq!(all, [&[1], &*encoded, &*encoded].concat());
}

#[test]
fn a_value_that_is_written_in_place_has_the_bytes_of_its_encoding() {
    in_place(0x0102_0304_0506_0708_u64);
    in_place(-2_i8);
    in_place(usize::MAX);
    in_place(i128::MIN);
    in_place((1.5_f32, -0.0_f64));
    in_place(true);
    in_place(());
    in_place([1_u16, 2, 3]);
    in_place([(); 3]);
    in_place([[7_u8; 4]; 2]);
    in_place((1_u8, [2_u64; 25], (false, 3_i32)));
    const { assert!(!<(u8, String)>::IN_PLACE) };
    const { assert!(!<[Option<u8>; 2]>::IN_PLACE) };
}
