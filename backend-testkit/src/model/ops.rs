use proptest::collection::vec;
use proptest::prelude::*;
use state_api::SnapshotKind;

/// Keys of the model, by number: of several lengths, prefixes of each other, the empty one among them.
pub(super) const KEYS: [&str; 6] = [
    "",
    "a",
    "aa",
    "b",
    "key-5",
    "a key of more than twenty characters",
];

/// Number of namespaces.
pub(super) const NAMESPACES: u16 = 3;

/// A key and a namespace, by number.
pub(super) type Place = (u8, u16);

/// One step of a random run. What is called `timed` has a time-to-live.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Value(ValueTarget, Place, ValueChange),
    List {
        timed: bool,
        at: Place,
        change: ListChange,
    },
    Map(MapTarget, Place, MapChange),
    Merge(MergeTarget, Place, MergeChange),
    MergeNamespaces {
        target: Mergeable,
        key: u8,
        into: u16,
        from: Vec<u16>,
    },
    SetTimer(Place, i64),
    RemoveTimer(Place, i64),
    Fire(i64),
    Keys(PlainState, u16),
    Pairs(PlainState),
    Entries(PlainState),
    /// Adds 1 to the value of each key of a namespace, and clears those that become even.
    VisitKeys(u16),
    Advance(i64),
    Maintain(usize),
    Cut(SnapshotKind),
    /// Writes the oldest snapshot that is open.
    Finish(Ending),
    /// Goes back to the last completed snapshot, at another parallelism.
    Restore(u32),
    /// Takes a canonical savepoint and goes on from it; of several backends each goes on from another one's.
    Move(u32),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Ending {
    Complete,
    AbortWritten,
    Drop,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum ValueTarget {
    Plain,
    Defaulted,
    Timed,
}

#[derive(Clone, Debug)]
pub(super) enum ValueChange {
    Get,
    Set(u64),
    /// Replaces the value, or removes it.
    Modify(Option<u64>),
    /// Adds.
    Update(u64),
    Clear,
}

#[derive(Clone, Debug)]
pub(super) enum ListChange {
    Get,
    Len,
    Push(u64),
    Extend(Vec<u64>),
    Replace(Vec<u64>),
    /// Keeps the elements that leave no rest.
    Retain(u64),
    PopFront,
    Clear,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum MapTarget {
    Plain,
    Sorted,
    Timed,
}

#[derive(Clone, Debug)]
pub(super) enum MapChange {
    Get(i16),
    Entries,
    IsEmpty,
    Put(i16, u64),
    PutAll(Vec<(i16, u64)>),
    Modify(i16, Option<u64>),
    Remove(i16),
    /// Adds 1 to each value and keeps those that leave no rest.
    Retain(u64),
    Clear,
    /// On a sorted map only, as the three that follow.
    Range(Option<i16>, Option<i16>),
    First,
    Last,
    RemoveRange(Option<i16>, Option<i16>),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum MergeTarget {
    Sum,
    Mean,
    TimedSum,
}

#[derive(Clone, Debug)]
pub(super) enum MergeChange {
    Get,
    Add(u64),
    Clear,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Mergeable {
    List,
    TimedList,
    Sum,
    Mean,
    TimedSum,
}

/// A state without time-to-live, whose keys and entries are known exactly.
#[derive(Clone, Copy, Debug)]
pub(super) enum PlainState {
    Value,
    Defaulted,
    List,
    Map,
    Sorted,
    Sum,
    Mean,
}

impl PlainState {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Value => "value",
            Self::Defaulted => "defaulted",
            Self::List => "list",
            Self::Map => "map",
            Self::Sorted => "sorted",
            Self::Sum => "sum",
            Self::Mean => "mean",
        }
    }
}

/// Time-to-live of the timed states, in milliseconds.
pub(super) const TTL_MS: i64 = 100;

fn one_of<T: Clone + std::fmt::Debug + 'static>(items: &'static [T]) -> impl Strategy<Value = T> {
    proptest::sample::select(items)
}

fn number() -> impl Strategy<Value = u64> {
    // 13 is what the merge functions refuse.
    prop_oneof![4 => 0_u64..30, 1 => Just(13), 1 => 0_u64..1 << 40]
}

fn place() -> impl Strategy<Value = Place> {
    (0..KEYS.len() as u8, 0..NAMESPACES)
}

fn value_change() -> impl Strategy<Value = ValueChange> {
    prop_oneof![
        2 => Just(ValueChange::Get),
        4 => number().prop_map(ValueChange::Set),
        2 => proptest::option::of(number()).prop_map(ValueChange::Modify),
        2 => (0_u64..9).prop_map(ValueChange::Update),
        1 => Just(ValueChange::Clear),
    ]
}

fn list_change() -> impl Strategy<Value = ListChange> {
    prop_oneof![
        2 => Just(ListChange::Get),
        1 => Just(ListChange::Len),
        4 => number().prop_map(ListChange::Push),
        2 => vec(number(), 0..4).prop_map(ListChange::Extend),
        1 => vec(number(), 0..4).prop_map(ListChange::Replace),
        // So long that it does not stand in one piece.
        1 => (0_u64..30, 600_u64..1_200).prop_map(|(first, len)| ListChange::Extend((first..first + len).collect())),
        1 => (1_u64..4).prop_map(ListChange::Retain),
        3 => Just(ListChange::PopFront),
        1 => Just(ListChange::Clear),
    ]
}

fn map_change() -> impl Strategy<Value = MapChange> {
    let key = || -5_i16..300;
    let bound = || proptest::option::of(-5_i16..20);
    prop_oneof![
        2 => (-5_i16..10).prop_map(MapChange::Get),
        1 => Just(MapChange::Entries),
        1 => Just(MapChange::IsEmpty),
        4 => (-5_i16..10, number()).prop_map(|(key, value)| MapChange::Put(key, value)),
        2 => vec((key(), number()), 0..6).prop_map(MapChange::PutAll),
        2 => (-5_i16..10, proptest::option::of(number())).prop_map(|(key, value)| MapChange::Modify(key, value)),
        2 => (-5_i16..10).prop_map(MapChange::Remove),
        1 => (1_u64..4).prop_map(MapChange::Retain),
        1 => Just(MapChange::Clear),
        2 => (bound(), bound()).prop_map(|(from, to)| MapChange::Range(from, to)),
        1 => Just(MapChange::First),
        1 => Just(MapChange::Last),
        1 => (bound(), bound()).prop_map(|(from, to)| MapChange::RemoveRange(from, to)),
    ]
}

fn merge_change() -> impl Strategy<Value = MergeChange> {
    prop_oneof![2 => Just(MergeChange::Get), 4 => number().prop_map(MergeChange::Add), 1 => Just(MergeChange::Clear)]
}

fn op() -> impl Strategy<Value = Op> {
    use {MapTarget as M, MergeTarget as R, PlainState as P, SnapshotKind as S, ValueTarget as V};
    const STATES: &[PlainState] = &[
        P::Value,
        P::Defaulted,
        P::List,
        P::Map,
        P::Sorted,
        P::Sum,
        P::Mean,
    ];
    let value_target = one_of(&[V::Plain, V::Defaulted, V::Timed]);
    let map_target = one_of(&[M::Plain, M::Sorted, M::Timed]);
    let merge_target = one_of(&[R::Sum, R::Mean, R::TimedSum]);
    let mergeable = one_of(&[
        Mergeable::List,
        Mergeable::TimedList,
        Mergeable::Sum,
        Mergeable::Mean,
        Mergeable::TimedSum,
    ]);
    let kind = one_of(&[
        S::Checkpoint,
        S::Checkpoint,
        S::FullCheckpoint,
        S::NativeSavepoint,
        S::CanonicalSavepoint,
    ]);
    let ending = one_of(&[
        Ending::Complete,
        Ending::Complete,
        Ending::AbortWritten,
        Ending::Drop,
    ]);
    prop_oneof![
        10 => (value_target, place(), value_change()).prop_map(|(target, at, change)| Op::Value(target, at, change)),
        10 => (any::<bool>(), place(), list_change()).prop_map(|(timed, at, change)| Op::List { timed, at, change }),
        16 => (map_target, place(), map_change()).prop_map(|(target, at, change)| Op::Map(target, at, change)),
        8 => (merge_target, place(), merge_change()).prop_map(|(target, at, change)| Op::Merge(target, at, change)),
        4 => (mergeable, 0..KEYS.len() as u8, 0..NAMESPACES, vec(0..NAMESPACES, 0..4))
            .prop_map(|(target, key, into, from)| Op::MergeNamespaces { target, key, into, from }),
        6 => (place(), -5_i64..60).prop_map(|(at, time)| Op::SetTimer(at, time)),
        2 => (place(), -5_i64..60).prop_map(|(at, time)| Op::RemoveTimer(at, time)),
        1 => (-5_i64..60).prop_map(Op::Fire),
        1 => (one_of(STATES), 0..NAMESPACES).prop_map(|(state, namespace)| Op::Keys(state, namespace)),
        1 => one_of(STATES).prop_map(Op::Pairs),
        1 => one_of(STATES).prop_map(Op::Entries),
        1 => (0..NAMESPACES).prop_map(Op::VisitKeys),
        3 => (1_i64..60).prop_map(Op::Advance),
        2 => (1_usize..100).prop_map(Op::Maintain),
        3 => kind.prop_map(Op::Cut),
        3 => ending.prop_map(Op::Finish),
        1 => (1_u32..4).prop_map(Op::Restore),
        1 => (1_u32..4).prop_map(Op::Move),
    ]
}

pub(super) fn ops() -> impl Strategy<Value = Vec<Op>> {
    vec(op(), 1..220)
}
