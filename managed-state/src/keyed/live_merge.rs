//! Merging the namespaces of one key on live tables, as windows that grow into one another need it.

use state_api::{Result, StateKey, StateType};

use super::form::{ListForm, ValueForm};
use super::history::ListMark;
use super::live_slot::{Address, TableSlot, table_hash};
use super::measured::{Measured, heap_of};
use super::stamp::Stamped;
use crate::live::LiveList;

/// The address of another namespace of the same key.
fn beside<'a, K, N: StateKey>(
    at: &Address<'a, K, N>,
    key_hash: u64,
    namespace: &'a N,
    seed: u64,
) -> Address<'a, K, N> {
    Address {
        hash: table_hash(key_hash, namespace, seed),
        namespace,
        ..*at
    }
}

/// The namespaces other than the target, each once.
fn others<'a, N: PartialEq>(target: &N, sources: &'a [N]) -> Vec<&'a N> {
    let mut others: Vec<&N> = Vec::new();
    for source in sources {
        if source != target && !others.contains(&source) {
            others.push(source);
        }
    }
    others
}

/// Moves the elements of the sources behind those of the target; expired ones are dropped, the others renewed.
pub(crate) fn merge_lists<'a, K, N, T, S>(
    slot: &mut TableSlot<K, N, ListForm<T, S>, ()>,
    at: Address<'a, K, N>,
    key_hash: u64,
    sources: &'a [N],
) -> Result<()>
where
    K: StateKey,
    N: StateKey,
    T: StateType,
    S: Stamped<T>,
{
    let seed = slot.seed;
    let mut merged: Vec<S> = Vec::new();
    for source in others(at.namespace, sources) {
        let (mut cell, _) = slot.cursor(beside(&at, key_hash, source, seed));
        let now = cell.expiry.now::<T, S>();
        if let Some(list) = cell.take() {
            let live = list.iter().filter(|s| !cell.expiry.is_expired(*s, now));
            merged.extend(live.map(|s| S::new(s.value().clone(), now)));
        }
    }
    let (mut cell, _) = slot.cursor(at);
    let now = cell.expiry.now::<T, S>();
    let expiry = cell.expiry;
    let mut list = Measured::<LiveList<S>, ListMark>::anew(cell.epoch());
    for stored in cell
        .get()
        .into_iter()
        .flat_map(|list| list.iter())
        .filter(|s| !expiry.is_expired(*s, now))
    {
        let stored = S::new(stored.value().clone(), now);
        let heap = heap_of(stored.value());
        list.edit(|list| (list.push(stored), heap));
    }
    for stored in merged {
        let heap = heap_of(stored.value());
        list.edit(|list| (list.push(stored), heap));
    }
    if list.is_empty() {
        cell.remove();
        return Ok(());
    }
    cell.set(list)
}

/// Merges the values of the sources into that of the target and removes them; expired ones count as none.
///
/// A merge that fails leaves all of them as they were.
pub(crate) fn merge_values<'a, K, N, T, S, X: 'static>(
    slot: &mut TableSlot<K, N, ValueForm<T, S>, X>,
    at: Address<'a, K, N>,
    key_hash: u64,
    sources: &'a [N],
    mut merge: impl FnMut(&mut T, T) -> Result<()>,
) -> Result<()>
where
    K: StateKey,
    N: StateKey,
    T: StateType,
    S: Stamped<T>,
{
    let seed = slot.seed;
    let look = |slot: &mut TableSlot<K, N, ValueForm<T, S>, X>, at| {
        let (cell, _) = slot.cursor(at);
        let now = cell.expiry.now::<T, S>();
        cell.get()
            .filter(|s| !cell.expiry.is_expired(*s, now))
            .map(|s| s.value().clone())
    };
    let others = others(at.namespace, sources);
    let mut merged = look(slot, at);
    let mut any = false;
    for source in &others {
        let Some(value) = look(slot, beside(&at, key_hash, source, seed)) else {
            continue;
        };
        any = true;
        match &mut merged {
            Some(into) => merge(into, value)?,
            None => merged = Some(value),
        }
    }
    for source in &others {
        slot.cursor(beside(&at, key_hash, source, seed)).0.remove();
    }
    match merged {
        Some(value) if any => {
            let (mut cell, _) = slot.cursor(at);
            let now = cell.expiry.now::<T, S>();
            cell.set(S::new(value, now))
        }
        _ => Ok(()),
    }
}
