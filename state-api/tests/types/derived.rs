//! The types that the tests derive, and what the derive makes of them.
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use state_api::{OrderedKey, Schema, StateKey, StateType};

#[derive(Clone, Debug, PartialEq, StateType)]
pub(crate) struct Flight {
    pub(crate) carrier: Arc<str>,
    pub(crate) delay: f64,
    pub(crate) stops: Vec<String>,
    pub(crate) by_day: BTreeMap<i32, Option<f32>>,
    pub(crate) notes: HashMap<String, Shape>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, StateType, StateKey, OrderedKey)]
pub(crate) enum Shape {
    Dot,
    Circle { radius: u32, name: String },
    Rect(i16, i16),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, StateType, StateKey, OrderedKey)]
pub(crate) struct Route {
    pub(crate) from: String,
    pub(crate) r#type: Shape,
    pub(crate) hours: Vec<i8>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, StateType, StateKey, OrderedKey)]
pub(crate) struct Carrier(pub(crate) String);

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, StateType, StateKey, OrderedKey,
)]
pub(crate) struct Marker;

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, StateType, StateKey, OrderedKey,
)]
pub(crate) enum Side {
    Buy,
    Sell,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, StateType, StateKey, OrderedKey)]
pub(crate) struct Pair<A, B: Clone, const N: usize>
where
    A: Clone,
{
    pub(crate) left: A,
    pub(crate) right: [B; N],
}

#[test]
fn the_schema_names_fields_and_variants_in_order() {
    assert_eq!(
        Flight::schema().to_string(),
        "struct Flight{carrier:string,delay:f64,stops:list<string>,by_day:map<i32,option<f32>>,\
         notes:map<string,enum Shape{Dot,Circle{radius:u32,name:string},Rect(i16,i16)}>}"
    );
    assert_eq!(
        Pair::<Carrier, u8, 3>::schema().to_string(),
        "struct Pair{left:struct Carrier(string),right:array<u8,3>}"
    );
    assert_eq!(Marker::schema().to_string(), "struct Marker");
    assert!(Route::schema().to_string().contains(",type:enum Shape{"));
    for schema in [
        Flight::schema(),
        Route::schema(),
        Marker::schema(),
        Side::schema(),
    ] {
        assert_eq!(Schema::parse(&schema.to_string()).unwrap(), schema);
    }
}

#[test]
fn sizes_and_heap_come_from_the_fields() {
    assert_eq!(Pair::<u64, u16, 3>::FIXED_SIZE, Some(14));
    assert_eq!(Pair::<u64, String, 3>::FIXED_SIZE, None);
    assert_eq!(Pair::<u64, String, 0>::FIXED_SIZE, Some(8));
    assert_eq!(Marker::FIXED_SIZE, Some(0));
    assert_eq!(Side::FIXED_SIZE, Some(1));
    assert_eq!(Shape::FIXED_SIZE, None);
    const { assert!(!Pair::<u64, u16, 3>::HAS_HEAP && !Side::HAS_HEAP) };
    const { assert!(Carrier::HAS_HEAP && Shape::HAS_HEAP && Flight::HAS_HEAP) };
    assert_eq!(Carrier(String::with_capacity(100)).heap_size(), 100);
    assert_eq!(Shape::Dot.heap_size(), 0);
    let routes = vec![Carrier("abc".into()), Carrier(String::new())];
    assert_eq!(routes.heap_size(), 2 * size_of::<Carrier>() + 3);
}

#[test]
fn a_struct_of_one_field_hashes_as_the_field() {
    let name = "AA".to_owned();
    assert_eq!(Carrier(name.clone()).stable_hash(), name.stable_hash());
    assert_eq!(Carrier(name.clone()).flink_hash(), name.flink_hash());
    const { assert!(Carrier::FLINK_HASH && !Route::FLINK_HASH) };
}

/// Computed with the `xxhash` package for Python over the compact encodings.
#[test]
fn hashes_of_derived_keys_never_change() {
    #[derive(Clone, PartialEq, Eq, StateType, StateKey)]
    enum Numbered {
        First,
        Second(u16),
    }
    #[derive(Clone, PartialEq, Eq, StateType, StateKey)]
    struct FromAt {
        from: String,
        at: i8,
    }
    assert_eq!(Numbered::Second(5).stable_hash(), 0x1df2_6bb7_5be2_248b);
    let from_at = FromAt {
        from: "EWR".into(),
        at: -1,
    };
    assert_eq!(from_at.stable_hash(), 0xc5d9_8347_365c_3cdb);
}

#[test]
#[should_panic(expected = "contains itself, so its schema has no end")]
fn a_type_that_contains_itself_by_way_of_another_is_refused() {
    #[derive(Clone, StateType)]
    struct Tree {
        branches: Vec<Branch>,
    }
    #[derive(Clone, StateType)]
    struct Branch {
        tree: Option<Box<Tree>>,
    }
    Tree::schema();
}

#[test]
fn the_same_generic_type_may_stand_within_itself() {
    type Inner = Pair<u8, u8, 1>;
    assert_eq!(
        Pair::<Inner, Inner, 1>::schema().to_string(),
        "struct Pair{left:struct Pair{left:u8,right:array<u8,1>},\
         right:array<struct Pair{left:u8,right:array<u8,1>},1>}"
    );
}
