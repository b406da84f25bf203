use std::time::Duration;

use managed_state::keyed::{
    AggregatingState, KeyedStates, ListState, MapState, ReducingState, SortedMapState, Timers,
    ValueState,
};
use state_api::access::{
    Aggregator, ListAccess, MapAccess, MergeAccess, SortedMapAccess, ValueAccess,
};
use state_api::{Error, Result, StateOptions, TtlConfig};

use super::ops::{
    KEYS, ListChange, MapChange, MapTarget, MergeChange, MergeTarget, Mergeable, Op, Place, TTL_MS,
    ValueChange, ValueTarget,
};
use super::plain::Outcome;
use crate::job::Job;

/// What the value state with a default reads as.
pub(super) const DEFAULT: u64 = 42;

/// The states of the model in a backend.
#[derive(Clone, Copy)]
pub(super) struct Tokens {
    value: ValueState<u64, u16>,
    defaulted: ValueState<u64, u16>,
    timed_value: ValueState<u64, u16>,
    lists: [ListState<u64, u16>; 2],
    map: MapState<i16, u64, u16>,
    timed_map: MapState<i16, u64, u16>,
    sorted: SortedMapState<i16, u64, u16>,
    sums: [ReducingState<u64, u16>; 2],
    mean: AggregatingState<Mean, u16>,
    timers: Timers<u16>,
}

pub(super) type Subject = Job<String, Tokens>;

/// Adds; refuses 13.
fn checked_sum(total: &u64, input: u64) -> Result<u64> {
    if input == 13 {
        Err(Error::user("13 is not added"))
    } else {
        Ok(total + input)
    }
}

/// The mean of numbers; refuses 13.
#[derive(Clone, Copy)]
pub(super) struct Mean;

impl Aggregator for Mean {
    type In = u64;
    type Acc = (u64, u64);
    type Out = u64;

    fn create(&self) -> (u64, u64) {
        (0, 0)
    }

    fn add(&self, acc: &mut (u64, u64), input: u64) -> Result<()> {
        *acc = (acc.0 + 1, checked_sum(&acc.1, input)?);
        Ok(())
    }

    fn merge(&self, acc: &mut (u64, u64), other: (u64, u64)) -> Result<()> {
        *acc = (acc.0 + other.0, checked_sum(&acc.1, other.1)?);
        Ok(())
    }

    fn result(&self, acc: &(u64, u64)) -> u64 {
        acc.1.checked_div(acc.0).unwrap_or_default()
    }
}

pub(super) fn register(states: &mut KeyedStates<String>) -> Result<Tokens> {
    // Savepoints leave out what is expired, so that backends with different background clean-up give equal ones.
    let ttl = TtlConfig::new(Duration::from_millis(TTL_MS.unsigned_abs()))?.cleanup_full_snapshot();
    let timed = |name: &str| StateOptions::new(name).ttl(ttl);
    Ok(Tokens {
        value: states.value("value")?,
        defaulted: states.value_with_default("defaulted", DEFAULT)?,
        timed_value: states.value(timed("timed value"))?,
        lists: [states.list("list")?, states.list(timed("timed list"))?],
        map: states.map("map")?,
        timed_map: states.map(timed("timed map"))?,
        sorted: states.sorted_map("sorted")?,
        sums: [
            states.reducing("sum", checked_sum)?,
            states.reducing(timed("timed sum"), checked_sum)?,
        ],
        mean: states.aggregating("mean", Mean)?,
        timers: states.timers("timers")?,
    })
}

fn name(key: u8) -> String {
    KEYS[usize::from(key)].to_owned()
}

fn number(key: &str) -> u8 {
    KEYS.iter()
        .position(|known| *known == key)
        .map_or(u8::MAX, |position| position as u8)
}

/// Does one operation on a backend.
pub(super) fn apply(job: &mut Subject, op: &Op) -> Result<Outcome> {
    match op {
        Op::Value(target, (key, namespace), change) => job.try_at(&name(*key), |at, tokens| {
            let token = match target {
                ValueTarget::Plain => tokens.value,
                ValueTarget::Defaulted => tokens.defaulted,
                ValueTarget::Timed => tokens.timed_value,
            };
            value(&mut at.value_in(token, namespace), change)
        }),
        Op::List {
            timed,
            at: (key, namespace),
            change,
        } => job.try_at(&name(*key), |at, tokens| {
            list(
                &mut at.list_in(tokens.lists[usize::from(*timed)], namespace),
                change,
            )
        }),
        Op::Map(MapTarget::Sorted, (key, namespace), change) => {
            job.try_at(&name(*key), |at, tokens| {
                let mut view = at.sorted_map_in(tokens.sorted, namespace);
                match sorted_map(&mut view, change)? {
                    Some(outcome) => Ok(outcome),
                    None => map(&mut view, change),
                }
            })
        }
        Op::Map(target, (key, namespace), change) => job.try_at(&name(*key), |at, tokens| {
            let token = if *target == MapTarget::Timed {
                tokens.timed_map
            } else {
                tokens.map
            };
            map(&mut at.map_in(token, namespace), change)
        }),
        Op::Merge(target, (key, namespace), change) => {
            job.try_at(&name(*key), |at, tokens| match target {
                MergeTarget::Sum => merge(&mut at.reducing_in(tokens.sums[0], namespace), change),
                MergeTarget::TimedSum => {
                    merge(&mut at.reducing_in(tokens.sums[1], namespace), change)
                }
                MergeTarget::Mean => merge(&mut at.aggregating_in(tokens.mean, namespace), change),
            })
        }
        Op::MergeNamespaces {
            target,
            key,
            into,
            from,
        } => job.try_at(&name(*key), |at, tokens| {
            match target {
                Mergeable::List => at.merge_lists(tokens.lists[0], into, from)?,
                Mergeable::TimedList => at.merge_lists(tokens.lists[1], into, from)?,
                Mergeable::Sum => at.merge_reducing(tokens.sums[0], into, from)?,
                Mergeable::TimedSum => at.merge_reducing(tokens.sums[1], into, from)?,
                Mergeable::Mean => at.merge_aggregating(tokens.mean, into, from)?,
            }
            Ok(Outcome::Nothing)
        }),
        Op::SetTimer((key, namespace), time) => {
            job.try_at(&name(*key), |at, tokens| {
                at.timers_in(tokens.timers, namespace).set(*time)
            })?;
            Ok(Outcome::Open)
        }
        Op::RemoveTimer((key, namespace), time) => {
            job.try_at(&name(*key), |at, tokens| {
                at.timers_in(tokens.timers, namespace).remove(*time)
            })?;
            Ok(Outcome::Open)
        }
        Op::Fire(up_to) => {
            let fired = job.fire::<u16>(|tokens| tokens.timers.erase::<String>(), *up_to);
            if let Some(unordered) = fired
                .iter()
                .find(|fired| !fired.is_sorted_by_key(|(time, ..)| *time))
            {
                return Err(Error::bug(format!(
                    "timers fired out of order: {unordered:?}"
                )));
            }
            let mut fired: Vec<_> = fired
                .concat()
                .into_iter()
                .map(|(time, key, of)| (time, number(&key), of))
                .collect();
            fired.sort_unstable();
            Ok(Outcome::Fired(fired))
        }
        Op::Keys(state, namespace) => {
            let keys = job.keys(state.name(), namespace);
            Ok(pairs(keys.into_iter().map(|key| (key, *namespace))))
        }
        Op::Pairs(state) => Ok(pairs(job.keys_and_namespaces(state.name()).into_iter())),
        Op::Entries(state) => Ok(Outcome::Count(job.entries(state.name()))),
        Op::VisitKeys(namespace) => {
            let mut visited = Vec::new();
            for subtask in 0..job.parallelism() as usize {
                let (states, tokens) = job.subtask(subtask);
                states.for_each_key("value", namespace, |at| {
                    visited.push((at.key().clone(), *namespace));
                    at.value_in(tokens.value, namespace).modify(|value| {
                        *value = value.map(|value| value + 1).filter(|value| value % 2 == 1);
                    })
                })?;
            }
            Ok(pairs(visited.into_iter()))
        }
        Op::Maintain(budget) => {
            for subtask in 0..job.parallelism() as usize {
                let (states, _) = job.subtask(subtask);
                states.sweep_for_record();
                states.maintain(*budget);
            }
            Ok(Outcome::Nothing)
        }
        Op::Advance(_) | Op::Cut(_) | Op::Finish(_) | Op::Restore(_) | Op::Move(_) => {
            Ok(Outcome::Nothing)
        }
    }
}

fn pairs(found: impl Iterator<Item = (String, u16)>) -> Outcome {
    let mut pairs: Vec<Place> = found
        .map(|(key, namespace)| (number(&key), namespace))
        .collect();
    pairs.sort_unstable();
    Outcome::Pairs(pairs)
}

fn value(view: &mut impl ValueAccess<u64>, change: &ValueChange) -> Result<Outcome> {
    Ok(match change {
        ValueChange::Get => Outcome::Value(view.get()?),
        ValueChange::Set(value) => {
            view.set(*value)?;
            Outcome::Nothing
        }
        ValueChange::Modify(to) => {
            Outcome::Value(view.modify(|value| std::mem::replace(value, *to))?)
        }
        ValueChange::Update(by) => Outcome::Value(Some(view.update(|value| {
            *value += by;
            *value
        })?)),
        ValueChange::Clear => {
            view.clear()?;
            Outcome::Nothing
        }
    })
}

fn list(view: &mut impl ListAccess<u64>, change: &ListChange) -> Result<Outcome> {
    match change {
        ListChange::Get => return Ok(Outcome::List(view.get()?)),
        ListChange::Len => return Ok(Outcome::Count(view.len()? as u64)),
        ListChange::PopFront => return Ok(Outcome::Value(view.pop_front()?)),
        ListChange::Push(value) => view.push(*value)?,
        ListChange::Extend(values) => view.extend(values.clone())?,
        ListChange::Replace(values) => view.replace(values.clone())?,
        ListChange::Retain(divisor) => view.retain(|value| value % divisor == 0)?,
        ListChange::Clear => view.clear()?,
    }
    Ok(Outcome::Nothing)
}

fn map(view: &mut impl MapAccess<i16, u64>, change: &MapChange) -> Result<Outcome> {
    match change {
        MapChange::Get(key) => {
            let contains = view.contains(key)?;
            let value = view.get(key)?;
            return if contains == value.is_some() {
                Ok(Outcome::Value(value))
            } else {
                Err(Error::bug("a map contains what it does not have"))
            };
        }
        MapChange::Entries => {
            let mut entries = view.entries()?;
            entries.sort_unstable();
            return Ok(Outcome::Entries(entries));
        }
        MapChange::IsEmpty => return Ok(Outcome::Flag(view.is_empty()?)),
        MapChange::Modify(key, to) => {
            return Ok(Outcome::Value(
                view.modify(key, |value| std::mem::replace(value, *to))?,
            ));
        }
        MapChange::Remove(key) => return Ok(Outcome::Flag(view.remove(key)?)),
        MapChange::Put(key, value) => view.put(*key, *value)?,
        MapChange::PutAll(entries) => view.put_all(entries.clone())?,
        MapChange::Retain(divisor) => view.retain(|_, value| {
            *value += 1;
            value.is_multiple_of(*divisor)
        })?,
        MapChange::Clear => view.clear()?,
        MapChange::Range(..) | MapChange::First | MapChange::Last | MapChange::RemoveRange(..) => {}
    }
    Ok(Outcome::Nothing)
}

/// Does what only a sorted map can.
fn sorted_map(
    view: &mut impl SortedMapAccess<i16, u64>,
    change: &MapChange,
) -> Result<Option<Outcome>> {
    Ok(Some(match change {
        MapChange::Range(from, to) => {
            let mut entries = Vec::new();
            view.range(from.as_ref(), to.as_ref(), |key, value| {
                entries.push((*key, *value));
                Ok(())
            })?;
            Outcome::Entries(entries)
        }
        // In the order in which they come.
        MapChange::Entries => Outcome::Entries(view.entries()?),
        MapChange::First => Outcome::Entry(view.first()?),
        MapChange::Last => Outcome::Entry(view.last()?),
        MapChange::RemoveRange(from, to) => {
            view.remove_range(from.as_ref(), to.as_ref())?;
            Outcome::Nothing
        }
        _ => return Ok(None),
    }))
}

fn merge(view: &mut impl MergeAccess<u64, u64>, change: &MergeChange) -> Result<Outcome> {
    Ok(match change {
        MergeChange::Get => Outcome::Value(view.get()?),
        MergeChange::Add(input) => {
            view.add(*input)?;
            Outcome::Nothing
        }
        MergeChange::Clear => {
            view.clear()?;
            Outcome::Nothing
        }
    })
}
