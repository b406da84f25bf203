use state_api::access::{Aggregator, MergeAccess};
use state_api::{ByteStore, Result, StateKey, StateType};

use super::key::ByteKey;
use super::long_list::Shape;
use super::packer::Packer;
use super::state::{ByteState, Located};
use super::value::{look, take_up};
use crate::format::{Elements, ListHead};

/// The function of a reducing state: value so far and input give the new value.
pub type Reduce<T> = dyn Fn(&T, T) -> Result<T> + Send + Sync;

/// A reducing state of one key and namespace in a byte store.
pub struct ByteReducing<'a, T> {
    at: Located<'a>,
    reduce: &'a Reduce<T>,
}

impl<'a, T: StateType> ByteReducing<'a, T> {
    /// Creates the view.
    #[inline]
    #[must_use]
    pub fn new(at: Located<'a>, reduce: &'a Reduce<T>) -> Self {
        Self { at, reduce }
    }
}

impl<T: StateType> MergeAccess<T, T> for ByteReducing<'_, T> {
    fn add(&mut self, input: T) -> Result<()> {
        let reduced = match take_up::<T>(&mut self.at)?.0 {
            Some(value) => (self.reduce)(&value, input)?,
            None => input,
        };
        self.at.write(&reduced)
    }

    fn get(&mut self) -> Result<Option<T>> {
        look(&mut self.at)
    }

    fn clear(&mut self) -> Result<()> {
        self.at.delete()
    }
}

/// An aggregating state of one key and namespace in a byte store.
pub struct ByteAggregating<'a, A> {
    at: Located<'a>,
    aggregator: &'a A,
}

impl<'a, A: Aggregator> ByteAggregating<'a, A> {
    /// Creates the view.
    #[inline]
    #[must_use]
    pub fn new(at: Located<'a>, aggregator: &'a A) -> Self {
        Self { at, aggregator }
    }
}

impl<A: Aggregator> MergeAccess<A::In, A::Out> for ByteAggregating<'_, A> {
    fn add(&mut self, input: A::In) -> Result<()> {
        let (acc, _) = take_up::<A::Acc>(&mut self.at)?;
        let mut acc = acc.unwrap_or_else(|| self.aggregator.create());
        self.aggregator.add(&mut acc, input)?;
        self.at.write(&acc)
    }

    fn get(&mut self) -> Result<Option<A::Out>> {
        Ok(look(&mut self.at)?.map(|acc| self.aggregator.result(&acc)))
    }

    fn clear(&mut self) -> Result<()> {
        self.at.delete()
    }
}

/// Moves the elements of some namespaces of a key behind those of another one; expired ones are dropped, the others get the
/// time of now.
///
/// # Errors
/// `Corrupt` when a stored list makes no sense; those of the store.
pub fn merge_lists<N: StateKey>(
    state: &mut ByteState,
    store: &mut dyn ByteStore,
    key: &ByteKey,
    target: &N,
    sources: &[N],
) -> Result<()> {
    let mut at = state.at(store, key, target);
    let timed = at.ttl().is_some();
    let found = at.read_list()?;
    // Chunks of the target that nobody reads once the new head is there.
    let mut replaced = 0..0;
    let mut packer = match found {
        Shape::Chunked(list) if timed => {
            replaced = list.head.first..list.head.next;
            Packer::behind(&at, ListHead::starting_at(list.head.next))
        }
        Shape::Chunked(list) => Packer::behind(&at, list.head),
        _ => Packer::behind(&at, ListHead::starting_at(0)),
    };
    if let (Shape::Chunked(list), false) = (found, timed) {
        // What is in the chunks stays there.
        at.state.value.drain(..list.tail_at);
        pack_list(&mut at, Shape::Whole, &mut packer)?;
    } else {
        pack_list(&mut at, found, &mut packer)?;
    }
    let mut consumed: Vec<&N> = Vec::new();
    for source in sources.iter().filter(|source| *source != target) {
        if consumed.contains(&source) {
            continue;
        }
        let mut at = state.at(store, key, source);
        let found = at.read_list()?;
        if found != Shape::Nothing {
            pack_list(&mut at, found, &mut packer)?;
            consumed.push(source);
        }
    }
    if found == Shape::Nothing && consumed.is_empty() {
        return Ok(());
    }
    let mut at = state.at(store, key, target);
    at.put_packed(packer)?;
    at.delete_chunks(replaced)?;
    for source in consumed {
        let mut at = state.at(store, key, source);
        if !at.delete_if_chunked()? {
            at.delete()?;
        }
    }
    Ok(())
}

/// Adds the elements of a list that was read, but for expired ones; with time-to-live they get the time of now.
fn pack_list(at: &mut Located<'_>, list: Shape, packer: &mut Packer) -> Result<()> {
    let times = at.ttl().zip(at.stamp());
    let mut pack = |at: &mut Located<'_>, stamp, element: &[u8]| match times {
        Some((ttl, now)) if ttl.is_expired(stamp, now) => Ok(()),
        _ => packer.put(at.store, times.map(|(_, now)| now), element),
    };
    match list {
        Shape::Nothing => Ok(()),
        Shape::Chunked(list) => {
            at.walk_list(&list, |at, _, stamp, element| pack(at, stamp, element))
        }
        Shape::Whole => {
            let value = std::mem::take(&mut at.state.value);
            let mut elements = Elements::new(&value, times.is_some());
            while let Some((stamp, element)) = elements.next().map_err(|e| at.naming(e))? {
                pack(at, stamp, element)?;
            }
            Ok(())
        }
    }
}

/// Merges the values of some namespaces of a key into that of another one and removes them; expired ones count as none.
///
/// # Errors
/// Those of `reduce`, everything being as before then; those of the store.
pub fn merge_reducing<T: StateType, N: StateKey>(
    state: &mut ByteState,
    store: &mut dyn ByteStore,
    key: &ByteKey,
    target: &N,
    sources: &[N],
    reduce: &Reduce<T>,
) -> Result<()> {
    merge_values(state, store, key, target, sources, |into: &mut T, value| {
        *into = reduce(into, value)?;
        Ok(())
    })
}

/// As [`merge_reducing`], for accumulators.
///
/// # Errors
/// Those of the aggregator, everything being as before then; those of the store.
pub fn merge_aggregating<A: Aggregator, N: StateKey>(
    state: &mut ByteState,
    store: &mut dyn ByteStore,
    key: &ByteKey,
    target: &N,
    sources: &[N],
    aggregator: &A,
) -> Result<()> {
    merge_values(
        state,
        store,
        key,
        target,
        sources,
        |into: &mut A::Acc, acc| aggregator.merge(into, acc),
    )
}

fn merge_values<T: StateType, N: StateKey>(
    state: &mut ByteState,
    store: &mut dyn ByteStore,
    key: &ByteKey,
    target: &N,
    sources: &[N],
    mut merge: impl FnMut(&mut T, T) -> Result<()>,
) -> Result<()> {
    // Read first: a merge that fails must leave all of them alone.
    let mut merged: Option<T> = take_up(&mut state.at(store, key, target))?.0;
    let mut consumed: Vec<&N> = Vec::new();
    let mut any = false;
    for source in sources.iter().filter(|source| *source != target) {
        if consumed.contains(&source) {
            continue;
        }
        let (value, stored) = take_up(&mut state.at(store, key, source))?;
        if stored {
            consumed.push(source);
        }
        any |= value.is_some();
        match (&mut merged, value) {
            (Some(into), Some(value)) => merge(into, value)?,
            (None, value) => merged = value,
            (Some(_), None) => {}
        }
    }
    for source in consumed {
        state.at(store, key, source).delete()?;
    }
    match merged {
        Some(merged) if any => state.at(store, key, target).write(&merged),
        _ => Ok(()),
    }
}
