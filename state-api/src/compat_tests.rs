use super::*;
use crate::{Field, StructSchema};

fn compact(text: &str) -> TypeMeta {
    TypeMeta {
        codec: CodecKind::Compact,
        schema: Schema::parse(text).unwrap(),
    }
}

/// Gives the last field of a struct a default, as `#[state(default)]` does.
fn last_field_defaults(mut meta: TypeMeta) -> TypeMeta {
    if let Schema::Struct(it) = &mut meta.schema
        && let Fields::Named(fields) | Fields::Positional(fields) = &mut it.fields
        && let Some(last) = fields.last_mut()
    {
        last.has_default = true;
    }
    meta
}

fn changes(old: &str, new: &str) -> Vec<String> {
    match check(&compact(old), &compact(new), Position::Value) {
        Compatibility::Migrates { changes } => changes,
        other => panic!("{old} to {new}: {other:?}"),
    }
}

fn reason(old: &TypeMeta, new: &TypeMeta, position: Position) -> String {
    match check(old, new, position) {
        Compatibility::Incompatible { reason } => reason,
        other => panic!("{old} to {new}: {other:?}"),
    }
}

const POSITIONS: [Position; 5] = [
    Position::Value,
    Position::Key,
    Position::Namespace,
    Position::MapKey,
    Position::Timer,
];

#[test]
fn k_207_an_equal_schema_is_taken_as_it_is_in_every_position() {
    for position in POSITIONS {
        let meta = compact("struct A{b:u8,c:opaque(\"x\",1)}");
        assert_eq!(check(&meta, &meta, position), Compatibility::AsIs);
    }
}

/// K-203, K-206, K-208, K-217 to K-220: values, elements and map values migrate; so do operator and broadcast state.
#[test]
fn k_203_a_value_migrates() {
    for (old, new, change) in [
        ("u8", "u64", "the value widens from u8 to u64"),
        ("u8", "i16", "the value widens from u8 to i16"),
        ("i32", "i128", "the value widens from i32 to i128"),
        ("f32", "f64", "the value widens from f32 to f64"),
        ("u8", "option<u8>", "the value becomes optional"),
        ("list<u16>", "list<u32>", "[] widens from u16 to u32"),
        ("bytes", "list<u16>", "[] widens from u8 to u16"),
        ("array<u8,4>", "array<u16,4>", "[] widens from u8 to u16"),
        (
            "map<string,u16>",
            "map<string,u32>",
            "[] widens from u16 to u32",
        ),
        (
            "tuple(bool,u16)",
            "tuple(bool,u32)",
            "1 widens from u16 to u32",
        ),
        (
            "struct A{b:u8,c:u8}",
            "struct A{c:u8}",
            "the value loses the field b",
        ),
        (
            "struct A{b:u8,c:u8}",
            "struct A{c:u8,b:u8}",
            "the value has its fields in another order",
        ),
        (
            "struct A{b:struct B{c:u8}}",
            "struct A{b:struct B{c:u16}}",
            "b.c widens from u8 to u16",
        ),
        ("struct A(u8)", "struct A(u16)", "0 widens from u8 to u16"),
        ("enum A{B}", "enum A{B,C}", "the value gains the variant C"),
        (
            "enum A{B,C}",
            "enum A{C,B}",
            "the value has its variants in another order",
        ),
        (
            "enum A{B(u8)}",
            "enum A{B(u16)}",
            "B.0 widens from u8 to u16",
        ),
    ] {
        assert_eq!(changes(old, new), [change], "{old} to {new}");
    }
}

#[test]
fn k_205_an_incompatible_value_is_refused_with_the_reason() {
    for (old, new, why) in [
        ("u64", "u8", "the value can't change from u64 to u8"),
        ("i8", "u64", "the value can't change from i8 to u64"),
        ("u64", "i64", "the value can't change from u64 to i64"),
        ("f64", "f32", "the value can't change from f64 to f32"),
        ("u64", "f64", "the value can't change from u64 to f64"),
        (
            "option<u8>",
            "u8",
            "the value can't change from option<u8> to u8",
        ),
        (
            "list<u8>",
            "set<u8>",
            "the value can't change from list<u8> to set<u8>",
        ),
        (
            "set<u8>",
            "set<u16>",
            "the value can't change from set<u8> to set<u16>",
        ),
        (
            "map<u8,u8>",
            "map<u16,u8>",
            "the map keys of the value change from u8 to u16",
        ),
        (
            "array<u8,4>",
            "array<u8,5>",
            "the value can't change from array<u8,4> to array<u8,5>",
        ),
        (
            "tuple(u8)",
            "tuple(u8,u8)",
            "the value can't change from tuple(u8) to tuple(u8,u8)",
        ),
        ("enum A{B,C}", "enum A{B}", "the value loses the variant C"),
        (
            "struct A{b:u8}",
            "struct A(u8)",
            "between named fields and fields by position",
        ),
        (
            "struct A{b:u8}",
            "struct A{b:u8,c:u8}",
            "gains the field c, which has no default",
        ),
        (
            "opaque(\"a\",1)",
            "opaque(\"a\",2)",
            "the value can't change from opaque(\"a\",1) to opaque(\"a\",2)",
        ),
        (
            "opaque(\"a\",1)",
            "opaque(\"b\",1)",
            "the value can't change from opaque(\"a\",1) to opaque(\"b\",1)",
        ),
        (
            "opaque(\"a\",1)",
            "u64",
            "the value can't change from opaque(\"a\",1) to u64",
        ),
    ] {
        let reason = reason(&compact(old), &compact(new), Position::Value);
        assert!(reason.contains(why), "{old} to {new}: {reason}");
    }
}

/// K-212 (timers), K-213 (keys), K-216 (namespaces): what does not migrate is refused, even where values would migrate.
#[test]
fn k_213_keys_namespaces_map_keys_and_timers_do_not_migrate() {
    let (old, new) = (compact("struct A{b:u8}"), compact("struct A{b:u16}"));
    for position in POSITIONS.into_iter().filter(|p| !p.may_migrate()) {
        let reason = reason(&old, &new, position);
        assert!(
            reason.starts_with(&format!("{} don't migrate", position.as_str())),
            "{reason}"
        );
        let evolvable = TypeMeta {
            codec: CodecKind::Evolvable,
            ..old.clone()
        };
        assert!(matches!(
            check(&old, &evolvable, position),
            Compatibility::Incompatible { .. }
        ));
    }
}

/// A default and an alias belong to the program, so that giving a key one changes nothing.
#[test]
fn k_214_a_change_outside_of_the_stored_text_is_taken_as_it_is() {
    let old = compact("struct A{b:u8}");
    let new = last_field_defaults(old.clone());
    for position in POSITIONS {
        assert_eq!(check(&old, &new, position), Compatibility::AsIs);
    }
}

#[test]
fn k_229_of_nested_outcomes_the_worst_counts() {
    // As it is and migration: migration, with a line for each change.
    assert_eq!(
        changes(
            "tuple(u8,u8,struct A{b:f32})",
            "tuple(u8,u16,struct A{b:f64})"
        ),
        ["1 widens from u8 to u16", "2.b widens from f32 to f64"]
    );
    // Migration and incompatible: incompatible.
    let (old, new) = (compact("tuple(u8,u64)"), compact("tuple(u16,u8)"));
    assert_eq!(
        reason(&old, &new, Position::Value),
        "1 can't change from u64 to u8"
    );
}

#[test]
fn k_230_a_record_gains_fields_with_defaults_and_loses_fields() {
    let check = |old: &str, new: &str| {
        check(
            &compact(old),
            &last_field_defaults(compact(new)),
            Position::Value,
        )
    };
    let migrates = |change: &str| Compatibility::Migrates {
        changes: vec![change.to_owned()],
    };
    assert_eq!(
        check("struct A{b:u8,c:u8}", "struct A{b:u8}"),
        migrates("the value loses the field c")
    );
    assert_eq!(
        check("struct A{b:u8}", "struct A{b:u8,c:u8}"),
        migrates("the value gains the field c with its default")
    );
    assert!(matches!(
        check("struct A{b:u8}", "struct A{b:string}"),
        Compatibility::Incompatible { .. }
    ));
    assert!(matches!(
        check("struct A{b:u8}", "struct B{b:u8}"),
        Compatibility::Incompatible { .. }
    ));
}

#[test]
fn a_renamed_field_keeps_its_values() {
    let field = Field::new("after", Schema::Bool).with_alias("before");
    let new = TypeMeta {
        codec: CodecKind::Compact,
        schema: Schema::Struct(StructSchema {
            name: "A".into(),
            fields: Fields::Named(vec![field]),
        }),
    };
    assert_eq!(
        check(&compact("struct A{before:bool}"), &new, Position::Value),
        Compatibility::Migrates {
            changes: vec!["the value has its field before renamed to after".into()]
        }
    );
    assert_eq!(
        check(&compact("struct A{after:bool}"), &new, Position::Value),
        Compatibility::AsIs
    );
}

#[test]
fn a_change_of_codec_is_a_migration() {
    let old = compact("u8");
    let new = TypeMeta {
        codec: CodecKind::Evolvable,
        ..old.clone()
    };
    assert_eq!(
        check(&old, &new, Position::Value),
        Compatibility::Migrates {
            changes: vec!["codec compact becomes evolvable".into()]
        }
    );
    let mut bytes = Vec::new();
    CodecKind::Evolvable.encode(&7u8, &mut bytes);
    assert_eq!(migrate::<u64>(&new, &bytes).unwrap(), 7);
    assert_eq!(migrate::<u64>(&old, &[7]).unwrap(), 7);
}

#[test]
fn k_211_an_unreadable_entry_is_an_error() {
    use crate::ErrorKind;
    let kind = |bytes: &[u8]| migrate::<u64>(&compact("u16"), bytes).unwrap_err().kind();
    assert_eq!(kind(&[1]), ErrorKind::Corrupt);
    assert_eq!(kind(&[1, 2, 3]), ErrorKind::Corrupt);
    let error = migrate::<u8>(&compact("u16"), &[1, 2]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
}
