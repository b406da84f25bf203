use std::time::Duration;

use crate::Value;

fn record(fields: &[(&'static str, Value)]) -> Value {
    Value::Record {
        name: "R".into(),
        fields: fields
            .iter()
            .map(|(name, v)| ((*name).into(), v.clone()))
            .collect(),
    }
}

fn variant(name: &'static str, fields: &[(&'static str, Value)]) -> Value {
    Value::Variant {
        name: "E".into(),
        variant: name.into(),
        fields: fields
            .iter()
            .map(|(name, v)| ((*name).into(), v.clone()))
            .collect(),
    }
}

#[test]
fn every_kind_of_value_has_its_json() {
    let text = |text: &str| Value::Str(text.into());
    let some = |value| Value::Option(Some(Box::new(value)));
    for (value, json) in [
        (Value::Unit, "null"),
        (Value::Bool(true), "true"),
        (Value::Int(-3), "-3"),
        (
            Value::Int(i128::from(i64::MIN) - 1),
            "\"-9223372036854775809\"",
        ),
        (Value::UInt(u128::from(u64::MAX)), "18446744073709551615"),
        (Value::UInt(1 << 64), "\"18446744073709551616\""),
        (Value::F32(0.1), "0.1"),
        (Value::F64(-0.0), "-0.0"),
        (Value::F64(1e300), "1e300"),
        (Value::F64(f64::NAN), "\"NaN\""),
        (Value::F64(f64::NEG_INFINITY), "\"-inf\""),
        (
            Value::F64(f64::from_bits(0xfff8_0000_0000_0001)),
            "\"NaN(0xfff8000000000001)\"",
        ),
        (Value::Char('"'), r#""\"""#),
        (
            text("a\"b\\c\n\r\t\u{1}\u{7f}ü😀"),
            "\"a\\\"b\\\\c\\n\\r\\t\\u0001\\u007fü😀\"",
        ),
        (Value::Bytes(vec![0, 0xab]), "\"0x00ab\""),
        (Value::Duration(Duration::from_millis(1500)), "1.500000000"),
        (Value::Option(None), "null"),
        (some(Value::UInt(1)), "1"),
        (some(Value::Unit), "{\"Some\":null}"),
        (
            some(some(Value::Option(None))),
            "{\"Some\":{\"Some\":null}}",
        ),
        (Value::List(vec![Value::UInt(1), Value::Unit]), "[1,null]"),
        (Value::Tuple(vec![Value::UInt(1), text("a")]), "[1,\"a\"]"),
        (Value::Map(vec![]), "{}"),
        (Value::Map(vec![(text("k"), Value::UInt(1))]), "{\"k\":1}"),
        (
            Value::Map(vec![(Value::UInt(2), Value::UInt(1))]),
            "[[2,1]]",
        ),
        (
            record(&[("a", Value::UInt(1)), ("b\n", Value::Unit)]),
            "{\"a\":1,\"b\\n\":null}",
        ),
        (record(&[("0", Value::UInt(1))]), "1"),
        (
            record(&[("0", Value::UInt(1)), ("1", Value::UInt(2))]),
            "[1,2]",
        ),
        (record(&[]), "{}"),
        (variant("A", &[]), "\"A\""),
        (variant("B", &[("0", Value::UInt(1))]), "{\"B\":1}"),
        (variant("C", &[("x", Value::UInt(1))]), "{\"C\":{\"x\":1}}"),
        (
            Value::Opaque {
                codec: "bin".into(),
                version: 3,
                bytes: vec![1],
            },
            "{\"opaque\":\"bin\",\"version\":3,\"bytes\":\"0x01\"}",
        ),
    ] {
        assert_eq!(value.to_json_string(), json);
    }
}

#[test]
fn values_are_shown_as_rust_would_write_them() {
    for (value, shown) in [
        (Value::Option(Some(Box::new(Value::Char('a')))), "Some('a')"),
        (Value::Tuple(vec![Value::UInt(1)]), "(1,)"),
        (
            Value::Map(vec![(Value::Str("k".into()), Value::F64(1.0))]),
            "{\"k\": 1.0}",
        ),
        (record(&[]), "R"),
        (record(&[("0", Value::Unit)]), "R(())"),
        (
            variant("C", &[("x", Value::UInt(1)), ("y", Value::UInt(2))]),
            "C { x: 1, y: 2 }",
        ),
        (
            Value::Opaque {
                codec: "bin".into(),
                version: 3,
                bytes: vec![1, 2],
            },
            "opaque(\"bin\", 3, 0x0102)",
        ),
    ] {
        assert_eq!(value.to_string(), shown);
    }
}
