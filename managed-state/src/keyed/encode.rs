//! The entries of frozen tables on their way into a block.
use state_api::wire::add_sizes;
use state_api::{Result, StateKey};

use super::form::{ExpiredFilter, Form};
use crate::format::{CompositeLayout, GroupWriter};
use crate::live::{Entry, FrozenTable};

/// Writes the entries of one key group of a table.
pub(super) fn encode_group<K: StateKey, N: StateKey, F: Form>(
    table: &FrozenTable<K, N, F::Cell>,
    group: usize,
    (form, layout): (&F, CompositeLayout),
    filter: Option<ExpiredFilter>,
    out: &mut GroupWriter<'_>,
) -> Result<u64> {
    if let Some(value) = equal_values::<K, N, F>(form) {
        return table.for_each_window(group, |window| {
            match value {
                // A number that is known when this is compiled makes copies of its size.
                8 => put_equal::<K, N, F>(window, 8, filter, out),
                value => put_equal::<K, N, F>(window, value, filter, out),
            }
            Ok(())
        });
    }
    let put = |key: &K, namespace: &N, cell: &F::Cell| {
        let composite = |out: &mut Vec<u8>| layout.put(key, namespace, out);
        form.encode(composite, cell, filter, out);
        Ok(())
    };
    let touch =
        |key: &K, namespace: &N, cell: &F::Cell| key.touch() ^ namespace.touch() ^ F::touch(cell);
    table.for_each_touched(group, touch, put)
}

/// The largest value whose length takes two bytes.
const MAX_VALUE: usize = (1 << 14) - 1;

/// Returns the size of the values if all entries have the same size and can be written to a place of it.
fn equal_values<K: StateKey, N: StateKey, F: Form>(form: &F) -> Option<usize> {
    let key = add_sizes(K::FIXED_SIZE, N::FIXED_SIZE)?;
    let value = form.value_size()?;
    (K::IN_PLACE && N::IN_PLACE && key < 0x80 && value <= MAX_VALUE).then_some(value)
}

#[inline]
fn put_equal<K: StateKey, N: StateKey, F: Form>(
    window: &[Option<&Entry<K, N, F::Cell>>],
    value: usize,
    filter: Option<ExpiredFilter>,
    out: &mut GroupWriter<'_>,
) {
    let (key, namespace) = const { (K::FIXED_SIZE, N::FIXED_SIZE) };
    let (key, namespace) = (key.unwrap_or(0), namespace.unwrap_or(0));
    let mark = if value < 0x80 { 1 } else { 2 };
    let size = 1 + key + namespace + mark + value;
    let filter = filter.filter(|_| F::TIMED);
    let is_kept = |entry: &&&Entry<K, N, F::Cell>| {
        filter.is_none_or(|filter| !F::is_expired(&entry.value, filter))
    };
    let kept = window.iter().flatten().filter(is_kept);
    let count = match filter {
        None => window.len(),
        Some(_) => kept.clone().count(),
    };
    let places = out.equal_entries(count, size).chunks_exact_mut(size);
    for (entry, place) in kept.zip(places) {
        let (composite, place) = place.split_at_mut(1 + key + namespace);
        composite[0] = (key + namespace) as u8;
        entry.key.put_in_place(&mut composite[1..=key]);
        entry.namespace.put_in_place(&mut composite[1 + key..]);
        let (length, place) = place.split_at_mut(mark);
        match length {
            [length] => *length = value as u8,
            [low, high] => (*low, *high) = (value as u8 | 0x80, (value >> 7) as u8),
            _ => {}
        }
        F::put_value(&entry.value, place);
    }
}
