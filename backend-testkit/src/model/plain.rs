use std::collections::{BTreeMap, BTreeSet};

use state_api::ErrorKind;

use super::ops::{
    ListChange, MapChange, MapTarget, MergeChange, MergeTarget, Mergeable, Op, Place, PlainState,
    TTL_MS, ValueChange, ValueTarget,
};

/// What an operation gives.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outcome {
    Nothing,
    Value(Option<u64>),
    Flag(bool),
    Count(u64),
    List(Vec<u64>),
    Entries(Vec<(i16, u64)>),
    Entry(Option<(i16, u64)>),
    Fired(Vec<(i64, u8, u16)>),
    Pairs(Vec<Place>),
    Failed(ErrorKind),
    /// Not looked at: the contract leaves it open.
    Open,
}

/// A value with the time of its last write.
type Stamped = (u64, i64);

/// All states as plain sorted maps: what a backend must agree with.
#[derive(Clone, Debug, Default)]
pub(super) struct Plain {
    values: [BTreeMap<Place, Stamped>; 3],
    lists: [BTreeMap<Place, Vec<Stamped>>; 2],
    maps: [BTreeMap<Place, BTreeMap<i16, Stamped>>; 3],
    sums: [BTreeMap<Place, Stamped>; 2],
    means: BTreeMap<Place, (u64, u64)>,
    timers: BTreeSet<(i64, u8, u16)>,
}

const DEFAULT: u64 = super::subject::DEFAULT;

impl Plain {
    /// Drops what is expired: nobody sees it any more.
    fn expire(&mut self, now: i64) {
        let live = |(_, stamp): &Stamped| stamp + TTL_MS > now;
        self.values[2].retain(|_, stored| live(stored));
        self.sums[1].retain(|_, stored| live(stored));
        self.lists[1].retain(|_, list| {
            list.retain(live);
            !list.is_empty()
        });
        self.maps[2].retain(|_, map| {
            map.retain(|_, stored| live(stored));
            !map.is_empty()
        });
    }

    pub(super) fn apply(&mut self, op: &Op, now: i64) -> Outcome {
        self.expire(now);
        match op {
            Op::Value(target, at, change) => self.value(*target, *at, change, now),
            Op::List { timed, at, change } => self.list(usize::from(*timed), *at, change, now),
            Op::Map(target, at, change) => self.map(*target, *at, change, now),
            Op::Merge(target, at, change) => self.merge(*target, *at, change, now),
            Op::MergeNamespaces {
                target,
                key,
                into,
                from,
            } => self.merge_namespaces(*target, *key, *into, from, now),
            Op::SetTimer((key, namespace), time) => {
                self.timers.insert((*time, *key, *namespace));
                Outcome::Open
            }
            Op::RemoveTimer((key, namespace), time) => {
                self.timers.remove(&(*time, *key, *namespace));
                Outcome::Open
            }
            Op::Fire(up_to) => {
                let due = self
                    .timers
                    .iter()
                    .filter(|(time, ..)| time <= up_to)
                    .copied()
                    .collect();
                self.timers.retain(|(time, ..)| time > up_to);
                Outcome::Fired(due)
            }
            Op::Keys(state, namespace) => Outcome::Pairs(
                self.places(*state)
                    .into_iter()
                    .filter(|(_, of)| of == namespace)
                    .collect(),
            ),
            Op::Pairs(state) => Outcome::Pairs(self.places(*state)),
            Op::Entries(state) => self.entries(*state),
            Op::VisitKeys(namespace) => {
                let visited: Vec<Place> = self.values[0]
                    .keys()
                    .filter(|(_, of)| of == namespace)
                    .copied()
                    .collect();
                for at in &visited {
                    let value = self.values[0][at].0 + 1;
                    if value.is_multiple_of(2) {
                        self.values[0].remove(at);
                    } else {
                        self.values[0].insert(*at, (value, now));
                    }
                }
                Outcome::Pairs(visited)
            }
            Op::Advance(_)
            | Op::Maintain(_)
            | Op::Cut(_)
            | Op::Finish(_)
            | Op::Restore(_)
            | Op::Move(_) => Outcome::Nothing,
        }
    }

    fn places(&self, state: PlainState) -> Vec<Place> {
        match state {
            PlainState::Value => self.values[0].keys().copied().collect(),
            PlainState::Defaulted => self.values[1].keys().copied().collect(),
            PlainState::List => self.lists[0].keys().copied().collect(),
            PlainState::Map => self.maps[0].keys().copied().collect(),
            PlainState::Sorted => self.maps[1].keys().copied().collect(),
            PlainState::Sum => self.sums[0].keys().copied().collect(),
            PlainState::Mean => self.means.keys().copied().collect(),
        }
    }

    fn entries(&self, state: PlainState) -> Outcome {
        Outcome::Count(self.places(state).len() as u64)
    }

    fn value(&mut self, target: ValueTarget, at: Place, change: &ValueChange, now: i64) -> Outcome {
        let (index, default) = match target {
            ValueTarget::Plain => (0, None),
            ValueTarget::Defaulted => (1, Some(DEFAULT)),
            ValueTarget::Timed => (2, None),
        };
        let values = &mut self.values[index];
        let read = values.get(&at).map(|(value, _)| *value).or(default);
        match change {
            ValueChange::Get => Outcome::Value(read),
            ValueChange::Set(value) => {
                values.insert(at, (*value, now));
                Outcome::Nothing
            }
            ValueChange::Modify(to) => {
                match to {
                    Some(value) => values.insert(at, (*value, now)),
                    None => values.remove(&at),
                };
                Outcome::Value(read)
            }
            ValueChange::Update(by) => {
                let value = read.unwrap_or_default() + by;
                values.insert(at, (value, now));
                Outcome::Value(Some(value))
            }
            ValueChange::Clear => {
                values.remove(&at);
                Outcome::Nothing
            }
        }
    }

    fn list(&mut self, index: usize, at: Place, change: &ListChange, now: i64) -> Outcome {
        let list = self.lists[index].entry(at).or_default();
        let outcome = match change {
            ListChange::Get => Outcome::List(list.iter().map(|(value, _)| *value).collect()),
            ListChange::Len => Outcome::Count(list.len() as u64),
            ListChange::Push(value) => {
                list.push((*value, now));
                Outcome::Nothing
            }
            ListChange::Extend(values) => {
                list.extend(values.iter().map(|value| (*value, now)));
                Outcome::Nothing
            }
            ListChange::Replace(values) => {
                *list = values.iter().map(|value| (*value, now)).collect();
                Outcome::Nothing
            }
            ListChange::Retain(divisor) => {
                list.retain(|(value, _)| value % divisor == 0);
                Outcome::Nothing
            }
            ListChange::PopFront => {
                let first = (!list.is_empty()).then(|| list.remove(0).0);
                Outcome::Value(first)
            }
            ListChange::Clear => {
                list.clear();
                Outcome::Nothing
            }
        };
        if list.is_empty() {
            self.lists[index].remove(&at);
        }
        outcome
    }

    fn map(&mut self, target: MapTarget, at: Place, change: &MapChange, now: i64) -> Outcome {
        let index = match target {
            MapTarget::Plain => 0,
            MapTarget::Sorted => 1,
            MapTarget::Timed => 2,
        };
        let map = self.maps[index].entry(at).or_default();
        let pairs = |map: &BTreeMap<i16, Stamped>| {
            map.iter()
                .map(|(key, (value, _))| (*key, *value))
                .collect::<Vec<_>>()
        };
        let inside = |key: &i16, from: &Option<i16>, to: &Option<i16>| {
            from.is_none_or(|from| *key >= from) && to.is_none_or(|to| *key < to)
        };
        let sorted = target == MapTarget::Sorted;
        let outcome = match change {
            MapChange::Get(key) => Outcome::Value(map.get(key).map(|(value, _)| *value)),
            MapChange::Entries => Outcome::Entries(pairs(map)),
            // Expired entries may still count.
            MapChange::IsEmpty if target == MapTarget::Timed && map.is_empty() => Outcome::Open,
            MapChange::IsEmpty => Outcome::Flag(map.is_empty()),
            MapChange::Put(key, value) => {
                map.insert(*key, (*value, now));
                Outcome::Nothing
            }
            MapChange::PutAll(entries) => {
                map.extend(entries.iter().map(|(key, value)| (*key, (*value, now))));
                Outcome::Nothing
            }
            MapChange::Modify(key, to) => {
                let was = match to {
                    Some(value) => map.insert(*key, (*value, now)),
                    None => map.remove(key),
                };
                Outcome::Value(was.map(|(value, _)| value))
            }
            MapChange::Remove(key) => Outcome::Flag(map.remove(key).is_some()),
            MapChange::Retain(divisor) => {
                map.retain(|_, stored| {
                    *stored = (stored.0 + 1, now);
                    stored.0 % divisor == 0
                });
                Outcome::Nothing
            }
            MapChange::Clear => {
                map.clear();
                Outcome::Nothing
            }
            MapChange::Range(..)
            | MapChange::First
            | MapChange::Last
            | MapChange::RemoveRange(..)
                if !sorted =>
            {
                Outcome::Nothing
            }
            MapChange::Range(from, to) => Outcome::Entries(
                pairs(map)
                    .into_iter()
                    .filter(|(key, _)| inside(key, from, to))
                    .collect(),
            ),
            MapChange::First => Outcome::Entry(pairs(map).first().copied()),
            MapChange::Last => Outcome::Entry(pairs(map).last().copied()),
            MapChange::RemoveRange(from, to) => {
                map.retain(|key, _| !inside(key, from, to));
                Outcome::Nothing
            }
        };
        if map.is_empty() {
            self.maps[index].remove(&at);
        }
        outcome
    }

    fn merge(&mut self, target: MergeTarget, at: Place, change: &MergeChange, now: i64) -> Outcome {
        let sums = match target {
            MergeTarget::Mean => return self.mean(at, change),
            MergeTarget::Sum => &mut self.sums[0],
            MergeTarget::TimedSum => &mut self.sums[1],
        };
        match change {
            MergeChange::Get => Outcome::Value(sums.get(&at).map(|(sum, _)| *sum)),
            MergeChange::Clear => {
                sums.remove(&at);
                Outcome::Nothing
            }
            MergeChange::Add(input) => match sums.get(&at) {
                Some(_) if *input == 13 => Outcome::Failed(ErrorKind::User),
                // The first input is not reduced with anything.
                sum => {
                    let sum = sum.map_or(0, |(sum, _)| *sum) + input;
                    sums.insert(at, (sum, now));
                    Outcome::Nothing
                }
            },
        }
    }

    fn mean(&mut self, at: Place, change: &MergeChange) -> Outcome {
        match change {
            MergeChange::Get => Outcome::Value(self.means.get(&at).map(|(count, sum)| sum / count)),
            MergeChange::Clear => {
                self.means.remove(&at);
                Outcome::Nothing
            }
            MergeChange::Add(13) => Outcome::Failed(ErrorKind::User),
            MergeChange::Add(input) => {
                let (count, sum) = self.means.entry(at).or_default();
                (*count, *sum) = (*count + 1, *sum + input);
                Outcome::Nothing
            }
        }
    }

    fn merge_namespaces(
        &mut self,
        target: Mergeable,
        key: u8,
        into: u16,
        from: &[u16],
        now: i64,
    ) -> Outcome {
        let mut sources: Vec<u16> = Vec::new();
        for source in from.iter().filter(|source| **source != into) {
            if !sources.contains(source) {
                sources.push(*source);
            }
        }
        match target {
            Mergeable::List => merge_lists(&mut self.lists[0], key, into, &sources, now),
            Mergeable::TimedList => merge_lists(&mut self.lists[1], key, into, &sources, now),
            Mergeable::Sum | Mergeable::TimedSum => {
                let sums = &mut self.sums[usize::from(matches!(target, Mergeable::TimedSum))];
                merge_values(sums, key, into, &sources, add, |(sum, _)| (sum, now))
            }
            Mergeable::Mean => {
                let add =
                    |a: (u64, u64), b: (u64, u64)| (b.1 != 13).then_some((a.0 + b.0, a.1 + b.1));
                merge_values(&mut self.means, key, into, &sources, add, |mean| mean)
            }
        }
    }
}

fn add(sum: Stamped, input: Stamped) -> Option<Stamped> {
    (input.0 != 13).then_some((sum.0 + input.0, sum.1))
}

fn merge_lists(
    lists: &mut BTreeMap<Place, Vec<Stamped>>,
    key: u8,
    into: u16,
    sources: &[u16],
    now: i64,
) -> Outcome {
    let mut merged = lists.remove(&(key, into)).unwrap_or_default();
    for source in sources {
        merged.extend(lists.remove(&(key, *source)).unwrap_or_default());
    }
    if !merged.is_empty() {
        lists.insert(
            (key, into),
            merged.into_iter().map(|(value, _)| (value, now)).collect(),
        );
    }
    Outcome::Nothing
}

fn merge_values<T: Copy>(
    values: &mut BTreeMap<Place, T>,
    key: u8,
    into: u16,
    sources: &[u16],
    mut merge: impl FnMut(T, T) -> Option<T>,
    renew: impl Fn(T) -> T,
) -> Outcome {
    let mut merged = values.get(&(key, into)).copied();
    for value in sources
        .iter()
        .filter_map(|source| values.get(&(key, *source)).copied())
    {
        merged = match merged {
            None => Some(value),
            Some(so_far) => match merge(so_far, value) {
                Some(sum) => Some(sum),
                None => return Outcome::Failed(ErrorKind::User),
            },
        };
    }
    let mut any = false;
    for source in sources {
        any |= values.remove(&(key, *source)).is_some();
    }
    if let Some(merged) = merged.filter(|_| any) {
        values.insert((key, into), renew(merged));
    }
    Outcome::Nothing
}
