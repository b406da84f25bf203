use state_api::access::Aggregator;
use state_api::{Result, StateKey, StateType};

use super::cell::Cell;
use super::table::CachedTable;
use super::value::{Behind, CachedValue};
use crate::keyed::{Address, AggregatingExtra, ReducingExtra, table_hash};

/// Merges the values of some namespaces of a key into that of another one and removes them; expired ones count as none.
///
/// # Errors
/// Those of the reduce function, all values being as before then; those of the store.
pub(crate) fn merge_reducing<K: StateKey, N: StateKey, T: StateType>(
    cached: &mut CachedTable<K, N, Cell<T>, ReducingExtra<T>>,
    behind: Behind<'_>,
    at: Address<'_, K, N>,
    key_hash: u64,
    sources: &[N],
) -> Result<()> {
    let reduce = std::sync::Arc::clone(&cached.extra.reduce);
    merge_values(cached, behind, at, key_hash, sources, |into, value| {
        *into = reduce(into, value)?;
        Ok(())
    })
}

/// As [`merge_reducing`], for accumulators.
///
/// # Errors
/// As there.
pub(crate) fn merge_aggregating<K: StateKey, N: StateKey, A: Aggregator>(
    cached: &mut CachedTable<K, N, Cell<A::Acc>, AggregatingExtra<A>>,
    behind: Behind<'_>,
    at: Address<'_, K, N>,
    key_hash: u64,
    sources: &[N],
) -> Result<()> {
    let aggregator = cached.extra.aggregator.clone();
    merge_values(cached, behind, at, key_hash, sources, |into, acc| {
        aggregator.merge(into, acc)
    })
}

fn merge_values<K: StateKey, N: StateKey, T: StateType, X: 'static>(
    cached: &mut CachedTable<K, N, Cell<T>, X>,
    mut behind: Behind<'_>,
    at: Address<'_, K, N>,
    key_hash: u64,
    sources: &[N],
    mut merge: impl FnMut(&mut T, T) -> Result<()>,
) -> Result<()> {
    let seed = cached.place.seed;
    let target = at.namespace;
    let mut in_namespace = |namespace: &N, act: &mut Act<'_, K, N, T, X>| {
        let at = Address {
            hash: table_hash(key_hash, namespace, seed),
            namespace,
            group: at.group,
            key: at.key,
            limit: None,
        };
        act(CachedValue::new(cached, behind.again(), at))
    };
    // Read first: a merge that fails must leave all of them alone.
    let mut merged: Option<T> = None;
    in_namespace(target, &mut |mut value| {
        merged = value.take_up()?.0;
        Ok(())
    })?;
    let mut consumed: Vec<&N> = Vec::new();
    let mut any = false;
    for source in sources.iter().filter(|source| *source != target) {
        if consumed.contains(&source) {
            continue;
        }
        in_namespace(source, &mut |mut found| {
            let (value, stored) = found.take_up()?;
            if stored {
                consumed.push(source);
            }
            any |= value.is_some();
            match (&mut merged, value) {
                (Some(into), Some(value)) => merge(into, value),
                (None, value) => {
                    merged = value;
                    Ok(())
                }
                (Some(_), None) => Ok(()),
            }
        })?;
    }
    for source in consumed {
        in_namespace(source, &mut |mut value| value.delete())?;
    }
    match merged.filter(|_| any) {
        Some(merged) => in_namespace(target, &mut |mut value| value.write(merged.clone())),
        None => Ok(()),
    }
}

/// What is done to the value of one namespace.
type Act<'f, K, N, T, X> = dyn FnMut(CachedValue<'_, K, N, T, X>) -> Result<()> + 'f;
