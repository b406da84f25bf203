//! State of an older program read by a newer one, through the derive's attributes.
use state_api::compat::{check, migrate};
use state_api::{
    CodecKind, Compatibility, Error, ErrorKind, Position, Result, Schema, StateType, TypeMeta,
};

mod old {
    use state_api::StateType;

    #[derive(Clone, StateType)]
    pub(super) struct Flight {
        pub(super) carrier: String,
        pub(super) dep_delay: f32,
        pub(super) gate: u8,
        pub(super) seats: Vec<u8>,
        pub(super) status: Status,
    }

    #[derive(Clone, StateType)]
    pub(super) enum Status {
        Late(u8),
        Gone,
    }

    #[derive(Clone, StateType)]
    pub(super) struct Pair(pub(super) u8, pub(super) String);
}

#[derive(Clone, Debug, PartialEq, StateType)]
#[state(rename = "Flight")]
struct Departure {
    #[state(default = "unknown".to_owned())]
    airport: String,
    #[state(rename = "carrier")]
    airline: Option<String>,
    #[state(alias = "departure_delay", alias = "dep_delay")]
    delay: f64,
    seats: Vec<u16>,
    status: Status,
    #[state(default)]
    stops: u64,
}

#[derive(Clone, Debug, PartialEq, StateType)]
enum Status {
    #[state(rename = "Gone")]
    Departed,
    Diverted,
    Late(i32, #[state(default = 60)] u8),
}

#[derive(Clone, Debug, PartialEq, StateType)]
struct Pair(u32, Option<String>, #[state(default)] bool);

fn old_flight(status: old::Status) -> old::Flight {
    old::Flight {
        carrier: "AA".into(),
        dep_delay: 1.5,
        gate: 4,
        seats: vec![1, 255],
        status,
    }
}

fn new_flight(status: Status) -> Departure {
    Departure {
        airport: "unknown".into(),
        airline: Some("AA".into()),
        delay: 1.5,
        seats: vec![1, 255],
        status,
        stops: 0,
    }
}

fn stored<T: StateType>(codec: CodecKind, value: &T) -> (TypeMeta, Vec<u8>) {
    let mut bytes = Vec::new();
    codec.encode(value, &mut bytes);
    // What a checkpoint keeps of a type is codec name and schema text.
    let meta = TypeMeta {
        codec: codec.as_str().parse().unwrap(),
        schema: Schema::parse(&T::schema().to_string()).unwrap(),
    };
    (meta, bytes)
}

/// K-203, K-230: old values are readable, with defaults for new fields.
#[test]
fn k_230_an_evolved_struct_reads_old_values_under_both_codecs() {
    for codec in [CodecKind::Compact, CodecKind::Evolvable] {
        for (before, after) in [
            (old::Status::Late(7), Status::Late(7, 60)),
            (old::Status::Gone, Status::Departed),
        ] {
            let (meta, bytes) = stored(codec, &old_flight(before));
            assert_eq!(
                migrate::<Departure>(&meta, &bytes).unwrap(),
                new_flight(after)
            );
        }
        let (meta, bytes) = stored(codec, &old::Pair(9, "x".into()));
        assert_eq!(
            migrate::<Pair>(&meta, &bytes).unwrap(),
            Pair(9, Some("x".into()), false)
        );
    }
}

/// The evolvable codec needs no old schema at all.
#[test]
fn evolvable_bytes_are_read_by_the_new_type_directly() {
    let (_, bytes) = stored(CodecKind::Evolvable, &old_flight(old::Status::Gone));
    let read: Departure = CodecKind::Evolvable.decode_all(&bytes).unwrap();
    assert_eq!(read, new_flight(Status::Departed));
}

#[test]
fn what_changes_is_said_line_by_line() {
    let (old, _) = stored(CodecKind::Compact, &old_flight(old::Status::Gone));
    let new = TypeMeta::of::<Departure>(CodecKind::Compact);
    let Compatibility::Migrates { changes } = check(&old, &new, Position::Value) else {
        panic!("it migrates");
    };
    assert_eq!(
        changes,
        [
            "the value gains the field airport with its default",
            "carrier becomes optional",
            "the value has its field dep_delay renamed to delay",
            "delay widens from f32 to f64",
            "seats.[] widens from u8 to u16",
            "status.Late.0 widens from u8 to i32",
            "status.Late gains the field 1 with its default",
            "status has its variants in another order",
            "status gains the variant Diverted",
            "the value gains the field stops with its default",
            "the value loses the field gate",
        ]
    );
}

/// Whatever the check lets through, the migration reads; what it refuses, the migration refuses too.
#[test]
fn a_missing_field_without_default_is_refused_by_check_and_migration_alike() {
    #[derive(Clone, Debug, StateType)]
    #[state(rename = "Pair")]
    struct Longer(u8, String, u64);
    let (meta, bytes) = stored(CodecKind::Compact, &old::Pair(1, "x".into()));
    let new = TypeMeta::of::<Longer>(CodecKind::Compact);
    assert_eq!(
        check(&meta, &new, Position::Value),
        Compatibility::Incompatible {
            reason: "the value gains the field 2, which has no default (give it one with #[state(default)])".into()
        }
    );
    let error = migrate::<Longer>(&meta, &bytes).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    assert_eq!(
        error.message(),
        "the stored Pair has no field 2 and the program has no default for it"
    );
}

#[test]
fn an_error_names_the_field_where_it_happened() -> Result<()> {
    let (meta, mut bytes) = stored(CodecKind::Evolvable, &old_flight(old::Status::Gone));
    let at = bytes.windows(4).position(|window| window == b"Gone");
    let at = at.ok_or_else(|| Error::bug("the variant is stored by name"))?;
    bytes[at] = b'X';
    let error = migrate::<Departure>(&meta, &bytes).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    assert_eq!(error.context("field"), Some("Flight.status"));
    Ok(())
}
