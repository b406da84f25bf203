use super::*;
use crate::ErrorKind;

fn parse_error(text: &str) -> String {
    let error = Schema::parse(text).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{text}");
    error.to_string()
}

#[test]
fn every_form_prints_as_it_was_read() {
    for text in [
        "unit",
        "bool",
        "u8",
        "i128",
        "f32",
        "f64",
        "char",
        "string",
        "bytes",
        "duration",
        "option<u64>",
        "list<option<string>>",
        "set<i16>",
        "map<string,list<u64>>",
        "array<u8,16>",
        "tuple()",
        "tuple(u64,string)",
        "struct Marker",
        "struct Flight{carrier:string,delay:f64}",
        "struct Empty{}",
        "struct Pair(u64,string)",
        "struct None()",
        "enum Shape{A,B(u64),C{x:f64}}",
        "opaque(\"id\",1)",
        "struct \"my type\"{\"a \\\"quoted\\\" \\\\ name\":u8,straße:u8,\"1st\":u8}",
        "struct unit{list:u8,map:map<u8,u8>}",
    ] {
        assert_eq!(Schema::parse(text).unwrap().to_string(), text);
    }
}

#[test]
fn white_space_between_tokens_is_skipped() {
    let spaced = " struct  Flight {\n  carrier : string ,\tdelays : list < f64 >\n} ";
    assert_eq!(
        Schema::parse(spaced).unwrap().to_string(),
        "struct Flight{carrier:string,delays:list<f64>}"
    );
}

#[test]
fn an_error_says_where_and_what_was_expected() {
    assert_eq!(
        parse_error("list<u65>"),
        "damaged data: schema text: a type expected at byte 5, found \"u65>\""
    );
    assert!(parse_error("list<u64").contains("'>' expected at byte 8, found \"\""));
    assert!(parse_error("u64 u64").contains("the end of the schema expected at byte 4"));
    assert!(parse_error("array<u8,4294967296>").contains("a number below 2^32"));
    assert!(parse_error("struct A{b:u8,b:u8}").contains("a name other than \"b\""));
    assert!(parse_error("enum A{b,b}").contains("a name other than \"b\""));
    assert!(parse_error("struct \"A{b:u8}").contains("a closing quote"));
    assert!(parse_error("opaque(\"a\\n\",1)").contains("its only escapes"));
    assert!(parse_error("struct \"\"{}").contains("a name that is not empty"));
    for bad in [
        "",
        "struct",
        "struct 1",
        "tuple(u8,)",
        "map<u8>",
        "opaque(id,1)",
        "enum A",
        "u8}",
    ] {
        parse_error(bad);
    }
}

#[test]
fn depth_and_length_are_bounded() {
    let nested = |depth: usize| format!("{}u8{}", "list<".repeat(depth), ">".repeat(depth));
    assert!(Schema::parse(&nested(Schema::MAX_DEPTH - 1)).is_ok());
    assert!(parse_error(&nested(Schema::MAX_DEPTH)).contains("nests deeper"));
    assert!(parse_error(&nested(100_000)).contains("nests deeper"));
    assert!(parse_error(&" ".repeat(Schema::MAX_TEXT + 1)).contains("is longer than"));
}

#[test]
fn default_and_former_names_are_no_part_of_the_text() {
    let plain = Field::new("a", Schema::Bool);
    let rich = Field::new("a", Schema::Bool).with_default().with_alias("b");
    assert_eq!(plain, rich);
    let schema = |field| {
        Schema::Struct(StructSchema {
            name: "A".into(),
            fields: Fields::Named(vec![field]),
        })
    };
    assert_eq!(schema(plain).to_string(), schema(rich).to_string());
}

#[test]
fn a_fingerprint_never_changes() {
    // XXH3 of the text, computed with the `xxhash` package for Python.
    let schema = Schema::parse("struct Flight{carrier:string,delay:f64}").unwrap();
    assert_eq!(schema.fingerprint(), 0x54a6_ade3_9a36_b233);
    assert_ne!(schema.fingerprint(), Schema::Bool.fingerprint());
}
