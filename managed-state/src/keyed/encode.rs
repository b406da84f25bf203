//! The entries of frozen tables on their way into a block.
use std::hint::black_box;

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
    if let Some(value) = values_behind_text::<K, N, F>(form) {
        return table.for_each_window(group, |window| {
            touch_window::<K, N, F>(window);
            match value {
                8 => put_behind_text::<K, N, F>(window, 8, (form, layout), filter, out),
                value => put_behind_text::<K, N, F>(window, value, (form, layout), filter, out),
            }
            Ok(())
        });
    }
    encode_any(table, group, (form, layout), filter, out)
}

/// As [`encode_group`], whatever the types.
fn encode_any<K: StateKey, N: StateKey, F: Form>(
    table: &FrozenTable<K, N, F::Cell>,
    group: usize,
    (form, layout): (&F, CompositeLayout),
    filter: Option<ExpiredFilter>,
    out: &mut GroupWriter<'_>,
) -> Result<u64> {
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

/// Returns the size of the values if keys are strings, or byte strings, and all that follows them has the same size and can be
/// written to a place of it.
fn values_behind_text<K: StateKey, N: StateKey, F: Form>(form: &F) -> Option<usize> {
    let value = form.value_size()?;
    let fits = K::IS_CONTENT && N::IN_PLACE && N::FIXED_SIZE? < MAX_BEHIND && value < 0x80;
    fits.then_some(value)
}

/// Bytes of key and namespace whose length takes one byte, with the key's own length.
const MAX_BEHIND: usize = 0x7f;

fn touch_window<K: StateKey, N: StateKey, F: Form>(window: &[Option<&Entry<K, N, F::Cell>>]) {
    let touched = window
        .iter()
        .flatten()
        .fold(0, |bytes, entry| bytes ^ entry.key.touch());
    black_box(touched);
}

/// Writes entries with strings as keys, their places measured before: lengths are not patched and room is not looked for at
/// each step. A window with a long string in it goes the general way.
#[inline]
fn put_behind_text<K: StateKey, N: StateKey, F: Form>(
    window: &[Option<&Entry<K, N, F::Cell>>],
    value: usize,
    (form, layout): (&F, CompositeLayout),
    filter: Option<ExpiredFilter>,
    out: &mut GroupWriter<'_>,
) {
    let namespace = const { N::FIXED_SIZE }.unwrap_or(0);
    let filter = filter.filter(|_| F::TIMED);
    let is_kept = |entry: &&&Entry<K, N, F::Cell>| {
        filter.is_none_or(|filter| !F::is_expired(&entry.value, filter))
    };
    let kept = window.iter().flatten().filter(is_kept);
    let (mut count, mut size, mut longest) = (0, 0, 0);
    for entry in kept.clone() {
        let len = entry.key.content().len();
        (count, size, longest) = (count + 1, size + len, longest.max(len));
    }
    if longest + namespace >= MAX_BEHIND {
        for entry in kept {
            let composite = |out: &mut Vec<u8>| layout.put(&entry.key, &entry.namespace, out);
            form.encode(composite, &entry.value, None, out);
        }
        return;
    }
    let mut places = out.entries(count, size + count * (3 + namespace + value));
    for entry in kept {
        let content = entry.key.content();
        let key = 2 + content.len();
        let (place, rest) = places.split_at_mut(key + namespace + 1 + value);
        places = rest;
        let (key, place) = place.split_at_mut(key);
        key[0] = (key.len() - 1 + namespace) as u8;
        key[1] = content.len() as u8;
        copy_short(content, &mut key[2..]);
        let (at, place) = place.split_at_mut(namespace);
        entry.namespace.put_in_place(at);
        place[0] = value as u8;
        F::put_value(&entry.value, &mut place[1..]);
    }
}

/// Copies bytes to a place of their size; up to 32 of them without a call, as two pieces that overlap.
#[inline]
fn copy_short(from: &[u8], to: &mut [u8]) {
    #[inline]
    fn overlapping<const N: usize>(from: &[u8], to: &mut [u8]) -> Option<()> {
        let (first, last) = (*from.first_chunk::<N>()?, *from.last_chunk::<N>()?);
        *to.first_chunk_mut()? = first;
        *to.last_chunk_mut()? = last;
        Some(())
    }
    let copied = match from.len() {
        8..=16 => overlapping::<8>(from, to),
        17..=32 => overlapping::<16>(from, to),
        _ => None,
    };
    if copied.is_none() {
        to.copy_from_slice(from);
    }
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
    let places = out.entries(count, count * size).chunks_exact_mut(size);
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use state_api::{CodecKind, KeyGroup, StateType, StoredKey, TtlConfig};

    use super::super::form::ValueForm;
    use super::super::stamp::{Plain, Stamped, Timed};
    use super::*;
    use crate::live::{EntryHasher, LiveTable};

    /// Writes a table both ways, and returns the bytes and the number of entries.
    fn encode<K: StateKey, N: StateKey, S: Stamped<u64>>(
        entries: Vec<(K, N, S)>,
        filter: Option<ExpiredFilter>,
    ) -> [(Vec<u8>, u64); 2] {
        let hasher = EntryHasher::new(7, |key: &K, namespace: &N, seed| {
            key.stable_hash() ^ namespace.stable_hash().rotate_left(7) ^ seed
        });
        let mut table = LiveTable::new(0, 1, hasher);
        for (key, namespace, value) in entries {
            table.insert(0, hasher.hash(&key, &namespace), &key, &namespace, value);
        }
        let frozen = table.freeze(1).unwrap();
        let form = ValueForm::<u64, S>::new(CodecKind::Compact);
        let what = (&form, CompositeLayout::of::<K, N>());
        [encode_group, encode_any].map(|encode| {
            let mut out = Vec::new();
            let mut writer = GroupWriter::begin(KeyGroup(0), &mut out);
            writer.section(0);
            encode(&frozen, 0, what, filter, &mut writer).unwrap();
            let entries = writer.section_entries();
            writer.finish();
            (out, entries)
        })
    }

    /// Strings around the lengths at which their own length, or that of key and namespace, takes another byte, in one window
    /// with short ones and in windows of their own.
    fn texts(longest: usize) -> impl Iterator<Item = String> {
        (0..300).map(move |i| format!("{i:03}{}", "x".repeat(i * 31 % (longest + 1))))
    }

    #[test]
    fn strings_before_values_of_one_size_are_written_as_any_key_is() {
        for longest in [0, 20, 110, 121, 122, 123, 124, 125, 200, 20_000] {
            let plain = |text: String| (CompactString::of(&text), (), Plain(text.len() as u64));
            let [placed, any] = encode(texts(longest).map(plain).collect(), None);
            assert!(
                placed == any,
                "up to {longest} more characters, no namespace"
            );
            let spaced = |text: String| (CompactString::of(&text), 0x1234_u16, Plain(1));
            let [placed, any] = encode(texts(longest).map(spaced).collect(), None);
            assert!(
                placed == any,
                "up to {longest} more characters, a namespace"
            );
            assert_eq!(placed.1, 300);
        }
    }

    #[test]
    fn copies_of_any_length_are_exact() {
        for len in 0..80_u8 {
            let from: Vec<u8> = (0..len).collect();
            let mut to = vec![0xAA; from.len()];
            copy_short(&from, &mut to);
            assert_eq!(from, to);
        }
    }

    #[test]
    fn expired_values_behind_strings_are_left_out() {
        let timed = |text: String| {
            let stamp = text.len() as i64;
            (CompactString::of(&text), (), Timed::new(7, stamp))
        };
        let filter = ExpiredFilter {
            ttl: TtlConfig::new(Duration::from_millis(10)).unwrap(),
            now_ms: 60,
        };
        let all = texts(100).map(timed).collect::<Vec<_>>();
        let kept = all.iter().filter(|(key, ..)| key.len() > 50).count() as u64;
        let [placed, any] = encode(all, Some(filter));
        assert!(placed == any);
        assert_eq!(placed.1, kept);
        assert!(kept > 50 && kept < 250, "{kept}");
    }

    #[test]
    fn strings_are_written_in_place_and_other_keys_are_not() {
        assert!(values_behind_text::<String, (), ValueForm<u64, Plain<u64>>>(&form()).is_some());
        assert!(values_behind_text::<u64, (), ValueForm<u64, Plain<u64>>>(&form()).is_none());
        assert!(
            values_behind_text::<String, String, ValueForm<u64, Plain<u64>>>(&form()).is_none()
        );
        assert_eq!(u64::FIXED_SIZE, Some(8));
    }

    fn form() -> ValueForm<u64, Plain<u64>> {
        ValueForm::new(CodecKind::Compact)
    }

    type CompactString = <String as StateKey>::Stored;
}
