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
///
/// A merge that fails leaves all of them as they were.
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
    let elements = |slot: &mut TableSlot<K, N, ListForm<T, S>, ()>, at| {
        let (cell, _) = slot.cursor(at);
        let now = cell.expiry.now::<T, S>();
        let list = cell.get().into_iter().flat_map(|list| list.iter());
        let live = list.filter(|s| !cell.expiry.is_expired(*s, now));
        live.map(|s| S::new(s.value().clone(), now))
            .collect::<Vec<S>>()
    };
    let others = others(at.namespace, sources);
    let mut merged = elements(slot, at);
    for source in &others {
        merged.append(&mut elements(slot, beside(&at, key_hash, source, seed)));
    }
    let (mut cell, _) = slot.cursor(at);
    if merged.is_empty() {
        cell.remove();
    } else {
        let mut list = Measured::<LiveList<S>, ListMark>::anew(cell.epoch());
        for stored in merged {
            let heap = heap_of(stored.value());
            list.edit(|list| (list.push(stored), heap));
        }
        // Refused at the memory limit: the sources go after it.
        cell.set(list)?;
    }
    for source in &others {
        slot.cursor(beside(&at, key_hash, source, seed)).0.remove();
    }
    Ok(())
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
    if let Some(value) = merged.filter(|_| any) {
        let (mut cell, _) = slot.cursor(at);
        let now = cell.expiry.now::<T, S>();
        // Refused at the memory limit: the sources go after it.
        cell.set(S::new(value, now))?;
    }
    for source in &others {
        slot.cursor(beside(&at, key_hash, source, seed)).0.remove();
    }
    Ok(())
}
