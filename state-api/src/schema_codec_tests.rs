use super::*;
use crate::ErrorKind;

fn schema(text: &str) -> Schema {
    Schema::parse(text).unwrap()
}

fn decode_all(text: &str, bytes: &[u8]) -> Result<Value> {
    let mut input = bytes;
    let value = schema(text).decode_compact(&mut input)?;
    crate::wire::expect_end(input)?;
    Ok(value)
}

#[test]
fn bytes_and_schema_text_alone_give_the_value() {
    let text =
        "struct Flight{carrier:string,delay:f64,stops:list<i16>,kind:enum Kind{Early,Late(u8)}}";
    let mut bytes = vec![2, b'A', b'A'];
    bytes.extend_from_slice(&1.5f64.to_le_bytes());
    bytes.extend_from_slice(&[2, 0xff, 0xff, 1, 0]);
    bytes.extend_from_slice(&[1, 9]);
    let value = decode_all(text, &bytes).unwrap();
    assert_eq!(
        value.to_string(),
        "Flight { carrier: \"AA\", delay: 1.5, stops: [-1, 1], kind: Late(9) }"
    );
    let mut encoded = Vec::new();
    schema(text).encode_compact(&value, &mut encoded).unwrap();
    assert_eq!(encoded, bytes);
}

#[test]
fn integers_keep_sign_and_width() {
    for (text, bytes, shown) in [
        ("i8", vec![0x80], "-128"),
        ("u8", vec![0x80], "128"),
        ("i128", vec![0xff; 16], "-1"),
        (
            "u128",
            vec![0xff; 16],
            "340282366920938463463374607431768211455",
        ),
        (
            "i64",
            i64::MIN.to_le_bytes().to_vec(),
            "-9223372036854775808",
        ),
    ] {
        let value = decode_all(text, &bytes).unwrap();
        assert_eq!(value.to_string(), shown);
        let mut encoded = Vec::new();
        schema(text).encode_compact(&value, &mut encoded).unwrap();
        assert_eq!(encoded, bytes);
    }
}

#[test]
fn a_value_of_another_schema_is_refused_and_nothing_written() {
    for (text, value) in [
        ("u8", Value::UInt(256)),
        ("u8", Value::Int(-1)),
        ("i8", Value::Int(128)),
        ("i8", Value::UInt(128)),
        ("i128", Value::UInt(1 << 127)),
        ("u8", Value::Bool(true)),
        ("array<u8,2>", Value::Bytes(vec![1])),
        ("tuple(u8,u8)", Value::Tuple(vec![Value::UInt(1)])),
        (
            "tuple(u8,u8)",
            Value::Tuple(vec![Value::UInt(1), Value::Unit]),
        ),
        (
            "opaque(\"a\",1)",
            Value::Opaque {
                codec: "a".into(),
                version: 2,
                bytes: vec![],
            },
        ),
        (
            "struct A{b:u8}",
            Value::Record {
                name: "A".into(),
                fields: vec![("c".into(), Value::UInt(1))],
            },
        ),
        (
            "struct A{b:u8}",
            Value::Record {
                name: "A".into(),
                fields: vec![],
            },
        ),
        (
            "enum A{B}",
            Value::Variant {
                name: "A".into(),
                variant: "C".into(),
                fields: vec![],
            },
        ),
    ] {
        let mut out = vec![7];
        let error = schema(text).encode_compact(&value, &mut out).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Incompatible, "{text}");
        assert_eq!(out, [7], "{text}");
    }
}

#[test]
fn bytes_that_are_no_encoding_are_refused() {
    for (text, bytes) in [
        ("bool", vec![2]),
        ("u64", vec![0; 7]),
        ("string", vec![2, b'a']),
        ("string", vec![1, 0xff]),
        ("char", 0xd800u32.to_le_bytes().to_vec()),
        ("option<u8>", vec![2, 0]),
        ("list<u8>", vec![0xff, 0xff, 0xff, 0xff, 0x0f]),
        ("list<u8>", vec![0x80, 0x00]),
        ("list<unit>", vec![1, 1]),
        ("enum A{B}", vec![1]),
        (
            "duration",
            [vec![0; 8], 1_000_000_000u32.to_le_bytes().to_vec()].concat(),
        ),
    ] {
        let error = decode_all(text, &bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{text} {bytes:?}");
    }
}

#[test]
fn elements_without_bytes_cannot_be_without_end() {
    assert_eq!(
        decode_all("list<unit>", &[2, 0, 0]).unwrap().to_string(),
        "[(), ()]"
    );
    assert_eq!(
        decode_all("map<unit,unit>", &[1, 0]).unwrap().to_string(),
        "{(): ()}"
    );
    let endless = "array<array<array<unit,4000000000>,4000000000>,4000000000>";
    let error = decode_all(endless, &[]).unwrap_err();
    assert!(error.message().contains("far more values than they hold"));
}
