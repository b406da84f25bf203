//! Random schemas, values of a schema, and values of the derived types.
use std::time::Duration;

use backend_testkit::fuzz::Random;
use proptest::collection::{btree_map, hash_map, vec};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use state_api::{
    EnumSchema, Field, Fields, IntType, Name, Schema, StateType, StructSchema, Value, VariantSchema,
};

use crate::derived::{Carrier, Flight, Pair, Route, Shape};

pub(crate) fn shape() -> impl Strategy<Value = Shape> {
    prop_oneof![
        Just(Shape::Dot),
        (any::<u32>(), key_text()).prop_map(|(radius, name)| Shape::Circle { radius, name }),
        (any::<i16>(), any::<i16>()).prop_map(|(a, b)| Shape::Rect(a, b)),
    ]
}

/// Text of few distinct characters, so that equal and nearly equal keys come up, the zero character among them.
pub(crate) fn key_text() -> impl Strategy<Value = String> {
    prop_oneof![
        vec(
            prop_oneof![Just('\0'), Just('\u{1}'), Just('a'), Just('ÿ')],
            0..4
        )
        .prop_map(String::from_iter),
        any::<String>(),
    ]
}

pub(crate) fn route() -> impl Strategy<Value = Route> {
    (key_text(), shape(), vec(any::<i8>(), 0..4)).prop_map(|(from, r#type, hours)| Route {
        from,
        r#type,
        hours,
    })
}

pub(crate) fn carrier() -> impl Strategy<Value = Carrier> {
    key_text().prop_map(Carrier)
}

pub(crate) fn pair() -> impl Strategy<Value = Pair<Carrier, u16, 2>> {
    (carrier(), any::<[u16; 2]>()).prop_map(|(left, right)| Pair { left, right })
}

pub(crate) fn flight() -> impl Strategy<Value = Flight> {
    let maps = (
        btree_map(any::<i32>(), any::<Option<f32>>(), 0..4),
        hash_map(key_text(), shape(), 0..4),
    );
    (key_text(), any::<f64>(), vec(key_text(), 0..4), maps).prop_map(
        |(carrier, delay, stops, (by_day, notes))| Flight {
            carrier: carrier.into(),
            delay,
            stops,
            by_day,
            notes,
        },
    )
}

fn names() -> impl Strategy<Value = Vec<String>> {
    let name = prop_oneof!["[a-z_][a-z0-9_]{0,5}", "[ -~]{1,4}", "\\PC{1,3}"];
    proptest::collection::hash_set(name, 0..4).prop_map(Vec::from_iter)
}

fn fields(inner: impl Strategy<Value = Schema> + Clone + 'static) -> impl Strategy<Value = Fields> {
    let named = (names(), vec(inner.clone(), 4)).prop_map(|(names, schemas)| {
        Fields::Named(
            names
                .into_iter()
                .zip(schemas)
                .map(|(n, s)| Field::new(n, s))
                .collect(),
        )
    });
    let positional = vec(inner, 0..4).prop_map(|schemas| {
        let fields = schemas.into_iter().enumerate();
        Fields::Positional(
            fields
                .map(|(i, schema)| Field::new(i.to_string(), schema))
                .collect(),
        )
    });
    prop_oneof![Just(Fields::Unit), named, positional]
}

pub(crate) fn schema() -> impl Strategy<Value = Schema> {
    let leaf = prop_oneof![
        Just(Schema::Unit),
        Just(Schema::Bool),
        proptest::sample::select(IntType::ALL.to_vec()).prop_map(Schema::Int),
        Just(Schema::F32),
        Just(Schema::F64),
        Just(Schema::Char),
        Just(Schema::String),
        Just(Schema::Bytes),
        Just(Schema::Duration),
        (any::<String>(), any::<u32>())
            .prop_map(|(codec, version)| Schema::Opaque { codec, version }),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let boxed = inner.clone().prop_map(Box::new).boxed();
        let name = "[A-Z][a-z]{0,3}";
        prop_oneof![
            boxed.clone().prop_map(Schema::Option),
            boxed.clone().prop_map(Schema::List),
            boxed.clone().prop_map(Schema::Set),
            (boxed.clone(), boxed.clone()).prop_map(|(k, v)| Schema::Map(k, v)),
            (boxed, 0u32..5).prop_map(|(item, len)| Schema::Array(item, len)),
            vec(inner.clone(), 0..4).prop_map(Schema::Tuple),
            (name, fields(inner.clone()))
                .prop_map(|(name, fields)| Schema::Struct(StructSchema { name, fields })),
            (name, names(), vec(fields(inner), 4)).prop_map(|(name, names, fields)| {
                let variants = names.into_iter().zip(fields);
                let variants = variants.map(|(name, fields)| VariantSchema { name, fields });
                Schema::Enum(EnumSchema {
                    name,
                    variants: variants.collect(),
                })
            }),
        ]
    })
}

/// Makes a value of a schema out of random numbers; `None` where the schema has no values.
pub(crate) fn value_of(schema: &Schema, random: &mut impl FnMut() -> u64) -> Option<Value> {
    let fields = |fields: &Fields, random: &mut dyn FnMut() -> u64| -> Option<Vec<(Name, Value)>> {
        let each = fields.as_slice().iter();
        each.map(|f| {
            Some((
                f.name.clone().into(),
                value_of(&f.schema, &mut &mut *random)?,
            ))
        })
        .collect()
    };
    Some(match schema {
        Schema::Unit => Value::Unit,
        Schema::Bool => Value::Bool(random() & 1 == 1),
        Schema::Int(int) => {
            let unused = 128 - 8 * int.size() as u32;
            let wide = u128::from(random()) << 64 | u128::from(random());
            if int.is_signed() {
                Value::Int(wide.cast_signed() >> unused)
            } else {
                Value::UInt(wide >> unused)
            }
        }
        Schema::F32 => Value::F32(random() as f32 / 3.0),
        Schema::F64 => Value::F64(random() as f64 / 3.0),
        Schema::Char => Value::Char(char::from_u32(random() as u32 % 0xd800).unwrap_or('x')),
        Schema::String => Value::Str(format!("{:x}", random() >> (random() % 64))),
        Schema::Bytes => Value::Bytes(random().to_le_bytes()[..random() as usize % 9].to_vec()),
        Schema::Duration => Value::Duration(Duration::from_nanos(random())),
        Schema::Option(inner) => Value::Option(match random() & 1 {
            0 => None,
            _ => Some(Box::new(value_of(inner, random)?)),
        }),
        Schema::List(item) | Schema::Set(item) => {
            let len = random() % 4;
            Value::List(
                (0..len)
                    .map(|_| value_of(item, random))
                    .collect::<Option<_>>()?,
            )
        }
        Schema::Map(key, value) => {
            let len = random() % 4;
            let entries =
                (0..len).map(|_| Some((value_of(key, random)?, value_of(value, random)?)));
            Value::Map(entries.collect::<Option<_>>()?)
        }
        Schema::Array(item, len) if **item == u8::schema() => {
            Value::Bytes((0..*len).map(|_| random() as u8).collect())
        }
        Schema::Array(item, len) => Value::List(
            (0..*len)
                .map(|_| value_of(item, random))
                .collect::<Option<_>>()?,
        ),
        Schema::Tuple(parts) => Value::Tuple(
            parts
                .iter()
                .map(|p| value_of(p, random))
                .collect::<Option<_>>()?,
        ),
        Schema::Struct(it) => Value::Record {
            name: it.name.clone().into(),
            fields: fields(&it.fields, random)?,
        },
        Schema::Enum(it) if it.variants.is_empty() => return None,
        Schema::Enum(it) => {
            let variant = &it.variants[random() as usize % it.variants.len()];
            Value::Variant {
                name: it.name.clone().into(),
                variant: variant.name.clone().into(),
                fields: fields(&variant.fields, random)?,
            }
        }
        Schema::Opaque { codec, version } => Value::Opaque {
            codec: codec.clone().into(),
            version: *version,
            bytes: random().to_le_bytes().to_vec(),
        },
        other => panic!("no values for {other}"),
    })
}

/// A small generator of random numbers, seeded by proptest so that failures shrink and repeat.
pub(crate) fn numbers(seed: u64) -> impl FnMut() -> u64 {
    let mut random = Random::new(seed);
    move || random.number()
}

/// Sets the number of cases of a property and a fixed seed; proptest's own `PROPTEST_CASES` and `PROPTEST_RNG_SEED` go before
/// (`PROPTEST_CASES=100000 PROPTEST_RNG_SEED=7 cargo test -p state-api --test types fuzz`).
pub(crate) fn config(cases: u32) -> ProptestConfig {
    let mut config = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = cases;
    }
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(1);
    }
    config.failure_persistence = None;
    config
}
