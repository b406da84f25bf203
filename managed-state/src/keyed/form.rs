//! How the cells of live tables become canonical entries, and back: one form per kind of state.

use std::marker::PhantomData;

use state_api::wire::get_bytes;
use state_api::{CodecKind, Error, Result, StateKey, StateType, TtlConfig};

use super::decoder::{Decoder, Origin};
use super::history::{ListMark, MapMark};
use super::live_map::NestedMap;
use super::measured::{Measured, heap_of};
use super::stamp::Stamped;
use crate::bytes::{CompactKeys, MapKeys, OrderedKeys};
use crate::changes::{put_cleared, put_list_edit, put_removed, put_upsert};
use crate::format::{GroupWriter, put_element};
use crate::live::{LiveList, LiveMap, LiveSortedMap};

/// Leaves expired entries out of a snapshot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpiredFilter {
    pub(crate) ttl: TtlConfig,
    pub(crate) now_ms: i64,
}

fn is_dropped<T, S: Stamped<T>>(filter: Option<ExpiredFilter>, stored: &S) -> bool {
    S::TIMED && filter.is_some_and(|f| f.ttl.is_expired(stored.stamp(), f.now_ms))
}

/// Turns a cell, what a live table keeps per key and namespace, into entries and back.
pub(crate) trait Form: Clone + Send + Sync + 'static {
    type Cell: Clone + Send + Sync + 'static;

    /// Whether cells own heap memory.
    const HAS_HEAP: bool;

    /// Whether cells hold timestamps.
    const TIMED: bool;

    /// Whether a change of a cell is one of a part of it.
    const HAS_PARTS: bool = true;

    /// Bytes on the heap that a cell owns.
    fn heap_size(cell: &Self::Cell) -> usize;

    /// Whether everything in a cell is expired.
    fn is_expired(cell: &Self::Cell, filter: ExpiredFilter) -> bool;

    /// Reads a byte of what a cell owns on the heap, so that it is in the cache when the cell is encoded.
    fn touch(cell: &Self::Cell) -> u8 {
        let _ = cell;
        0
    }

    /// Returns the least bytes of the value of an entry if an entry is a whole cell, `None` if a cell has several.
    fn least_value(&self) -> Option<usize> {
        None
    }

    /// Returns the size of the value of every entry if an entry is a whole cell and [`Form::put_value`] writes it.
    fn value_size(&self) -> Option<usize> {
        None
    }

    /// Writes the value of an entry to a place of its size.
    fn put_value(cell: &Self::Cell, place: &mut [u8]) {
        let _ = (cell, place);
    }

    /// Writes the entries of a cell; `composite` appends key ‖ namespace.
    fn encode(
        &self,
        composite: impl Fn(&mut Vec<u8>),
        cell: &Self::Cell,
        filter: Option<ExpiredFilter>,
        out: &mut GroupWriter<'_>,
    );

    /// Writes what changed in a cell since the cut of a snapshot; `None` if there is no cell any more.
    fn encode_changes(
        &self,
        composite: impl Fn(&mut Vec<u8>),
        cell: Option<&Self::Cell>,
        since: u64,
        filter: Option<ExpiredFilter>,
        out: &mut GroupWriter<'_>,
    );

    /// Adds one entry to a cell, or makes a cell of it. `map_key` is what follows the composite.
    ///
    /// There is no cell to add to where an entry is a whole one ([`Form::least_value`]).
    fn decode(
        &self,
        origin: &Origin,
        map_key: &[u8],
        value: &[u8],
        cell: Option<&mut Self::Cell>,
    ) -> Result<Option<Self::Cell>>;
}

/// Appends `[timestamp] ‖ value`.
#[inline]
fn put_stored<T: StateType, S: Stamped<T>>(codec: CodecKind, stored: &S, out: &mut Vec<u8>) {
    if S::TIMED {
        out.extend_from_slice(&stored.stamp().to_le_bytes());
    }
    codec.encode(stored.value(), out);
}

fn take_stored<T: StateType, S: Stamped<T>>(
    origin: &Origin,
    decoder: &Decoder,
    value: &[u8],
) -> Result<S> {
    let mut input = value;
    let stamp = origin.take_stamp(&mut input)?;
    let value = decoder.decode::<T>(&mut input)?;
    if !input.is_empty() {
        return Err(Error::corrupt("bytes are left over behind a value"));
    }
    Ok(S::new(value, stamp))
}

fn no_map_key(map_key: &[u8]) -> Result<()> {
    if map_key.is_empty() {
        return Ok(());
    }
    Err(Error::corrupt(
        "bytes are left over behind a key and namespace",
    ))
}

/// Value, reducing and aggregating states: one entry.
pub(crate) struct ValueForm<T, S> {
    pub(crate) codec: CodecKind,
    types: PhantomData<fn() -> (T, S)>,
}

impl<T, S> ValueForm<T, S> {
    pub(crate) fn new(codec: CodecKind) -> Self {
        Self {
            codec,
            types: PhantomData,
        }
    }
}

impl<T, S> Clone for ValueForm<T, S> {
    fn clone(&self) -> Self {
        Self::new(self.codec)
    }
}

impl<T: StateType, S: Stamped<T>> Form for ValueForm<T, S> {
    type Cell = S;
    const HAS_HEAP: bool = T::HAS_HEAP;
    const TIMED: bool = S::TIMED;
    const HAS_PARTS: bool = false;

    fn heap_size(cell: &S) -> usize {
        cell.value().heap_size()
    }

    fn is_expired(cell: &S, filter: ExpiredFilter) -> bool {
        is_dropped(Some(filter), cell)
    }

    #[inline]
    fn touch(cell: &S) -> u8 {
        cell.value().touch()
    }

    fn least_value(&self) -> Option<usize> {
        Some(self.codec.fixed_size::<T>().unwrap_or(0))
    }

    #[inline]
    fn value_size(&self) -> Option<usize> {
        let stamp = if S::TIMED { 8 } else { 0 };
        match self.codec {
            CodecKind::Compact if T::IN_PLACE => Some(stamp + T::FIXED_SIZE?),
            _ => None,
        }
    }

    #[inline]
    fn put_value(cell: &S, place: &mut [u8]) {
        let (stamp, place) = place.split_at_mut(if S::TIMED { 8 } else { 0 });
        if S::TIMED {
            stamp.copy_from_slice(&cell.stamp().to_le_bytes());
        }
        cell.value().put_in_place(place);
    }

    #[inline]
    fn encode(
        &self,
        composite: impl Fn(&mut Vec<u8>),
        cell: &S,
        filter: Option<ExpiredFilter>,
        out: &mut GroupWriter<'_>,
    ) {
        if !is_dropped(filter, cell) {
            out.entry_with(composite, |out| put_stored(self.codec, cell, out));
        }
    }

    #[inline]
    fn encode_changes(
        &self,
        composite: impl Fn(&mut Vec<u8>),
        cell: Option<&S>,
        _since: u64,
        filter: Option<ExpiredFilter>,
        out: &mut GroupWriter<'_>,
    ) {
        match cell.filter(|cell| !is_dropped(filter, *cell)) {
            Some(cell) => put_upsert(out, composite, |out| put_stored(self.codec, cell, out)),
            None => put_removed(out, composite),
        }
    }

    #[inline]
    fn decode(
        &self,
        origin: &Origin,
        map_key: &[u8],
        value: &[u8],
        _cell: Option<&mut S>,
    ) -> Result<Option<S>> {
        no_map_key(map_key)?;
        take_stored(origin, &origin.value, value).map(Some)
    }
}

/// List states: one entry with all elements.
pub(crate) struct ListForm<T, S> {
    pub(crate) codec: CodecKind,
    types: PhantomData<fn() -> (T, S)>,
}

impl<T, S> ListForm<T, S> {
    pub(crate) fn new(codec: CodecKind) -> Self {
        Self {
            codec,
            types: PhantomData,
        }
    }
}

impl<T, S> Clone for ListForm<T, S> {
    fn clone(&self) -> Self {
        Self::new(self.codec)
    }
}

impl<T: StateType, S: Stamped<T>> Form for ListForm<T, S> {
    type Cell = Measured<LiveList<S>, ListMark>;
    const HAS_HEAP: bool = true;
    const TIMED: bool = S::TIMED;

    #[inline]
    fn heap_size(cell: &Self::Cell) -> usize {
        cell.parts() + cell.allocated() + cell.history_bytes()
    }

    fn is_expired(cell: &Self::Cell, filter: ExpiredFilter) -> bool {
        cell.iter().all(|s| is_dropped(Some(filter), s))
    }

    fn touch(cell: &Self::Cell) -> u8 {
        cell.iter().next().map_or(0, |s| s.value().touch())
    }

    fn least_value(&self) -> Option<usize> {
        Some(0)
    }

    fn encode(
        &self,
        composite: impl Fn(&mut Vec<u8>),
        cell: &Self::Cell,
        filter: Option<ExpiredFilter>,
        out: &mut GroupWriter<'_>,
    ) {
        let mut kept = cell.iter().filter(|s| !is_dropped(filter, *s)).peekable();
        if kept.peek().is_none() {
            return;
        }
        out.entry_with(composite, |out| {
            kept.for_each(|s| put_element(self.codec, S::TIMED.then(|| s.stamp()), s.value(), out))
        });
    }

    fn encode_changes(
        &self,
        composite: impl Fn(&mut Vec<u8>),
        cell: Option<&Self::Cell>,
        since: u64,
        filter: Option<ExpiredFilter>,
        out: &mut GroupWriter<'_>,
    ) {
        let put = |s: &S, out: &mut Vec<u8>| {
            put_element(self.codec, S::TIMED.then(|| s.stamp()), s.value(), out);
        };
        // Where expired elements are left out, nobody knows how many the list had in the snapshot.
        if let Some(list) = cell.filter(|_| !S::TIMED || filter.is_none())
            && let Some((before, dropped)) = ListMark::edit(list.marks_since(since))
        {
            let edit = (before as u64, dropped as u64);
            return put_list_edit(out, composite, edit, |out| {
                list.for_each_from(before - dropped, |s| put(s, out));
            });
        }
        let kept = cell.into_iter().flat_map(|cell| cell.iter());
        let mut kept = kept.filter(|s| !is_dropped(filter, *s)).peekable();
        if kept.peek().is_none() {
            return put_removed(out, composite);
        }
        put_upsert(out, composite, |out| kept.for_each(|s| put(s, out)));
    }

    fn decode(
        &self,
        origin: &Origin,
        map_key: &[u8],
        value: &[u8],
        _cell: Option<&mut Self::Cell>,
    ) -> Result<Option<Self::Cell>> {
        no_map_key(map_key)?;
        let mut list = Self::Cell::default();
        let mut input = value;
        while !input.is_empty() {
            let stored: S = take_stored(origin, &origin.value, get_bytes(&mut input)?)?;
            let heap = heap_of(stored.value());
            list.edit(|list| (list.push(stored), heap));
        }
        Ok(Some(list))
    }
}

/// The types of a map's keys, values and stored values, of the map, and of the encoding of its keys.
type Types<MK, MV, S, M, C> = fn() -> (MK, MV, S, M, C);

/// Map states: one entry per map entry.
pub(crate) type MapForm<MK, MV, S> = EntriesForm<MK, MV, S, LiveMap<MK, S>, CompactKeys>;

/// Sorted map states: one entry per map entry, map keys in their ordered encoding.
pub(crate) type SortedMapForm<MK, MV, S> =
    EntriesForm<MK, MV, S, LiveSortedMap<MK, S>, OrderedKeys>;

/// What the two kinds of map states have in common; `M` is the nested map, `C` the encoding of its keys.
pub(crate) struct EntriesForm<MK, MV, S, M, C> {
    codec: CodecKind,
    types: PhantomData<Types<MK, MV, S, M, C>>,
}

impl<MK, MV, S, M, C> EntriesForm<MK, MV, S, M, C> {
    pub(crate) fn new(codec: CodecKind) -> Self {
        Self {
            codec,
            types: PhantomData,
        }
    }
}

impl<MK, MV, S, M, C> Clone for EntriesForm<MK, MV, S, M, C> {
    fn clone(&self) -> Self {
        Self::new(self.codec)
    }
}

impl<MK, MV, S, M, C> Form for EntriesForm<MK, MV, S, M, C>
where
    MK: StateKey,
    MV: StateType,
    S: Stamped<MV>,
    M: NestedMap<MK, S>,
    C: MapKeys<MK>,
{
    type Cell = Measured<M, MapMark<MK>>;
    const HAS_HEAP: bool = true;
    const TIMED: bool = S::TIMED;

    #[inline]
    fn heap_size(cell: &Self::Cell) -> usize {
        cell.parts() + cell.allocated() + cell.history_bytes()
    }

    fn is_expired(cell: &Self::Cell, filter: ExpiredFilter) -> bool {
        cell.entries().all(|(_, s)| is_dropped(Some(filter), s))
    }

    fn encode(
        &self,
        composite: impl Fn(&mut Vec<u8>),
        cell: &Self::Cell,
        filter: Option<ExpiredFilter>,
        out: &mut GroupWriter<'_>,
    ) {
        let kept = cell.entries().filter(|(_, s)| !is_dropped(filter, *s));
        for (key, stored) in kept {
            out.entry_with(
                |out| {
                    composite(out);
                    C::put(key, out);
                },
                |out| put_stored(self.codec, stored, out),
            );
        }
    }

    fn encode_changes(
        &self,
        composite: impl Fn(&mut Vec<u8>),
        cell: Option<&Self::Cell>,
        since: u64,
        filter: Option<ExpiredFilter>,
        out: &mut GroupWriter<'_>,
    ) {
        let mut put = |key: &MK, stored: Option<&S>| {
            let map_key = |out: &mut Vec<u8>| {
                composite(out);
                C::put(key, out);
            };
            match stored.filter(|s| !is_dropped(filter, *s)) {
                Some(s) => put_upsert(out, map_key, |out| put_stored(self.codec, s, out)),
                None => put_removed(out, map_key),
            }
        };
        if let Some(map) = cell
            && MapMark::is_by_key(map.marks_since(since))
        {
            let marks = map.marks_since(since);
            return MapMark::for_each_key(marks, |key| put(key, map.get(key)));
        }
        put_cleared(out, &composite);
        for (key, stored) in cell.into_iter().flat_map(|cell| cell.entries()) {
            let map_key = |out: &mut Vec<u8>| {
                composite(out);
                C::put(key, out);
            };
            if !is_dropped(filter, stored) {
                put_upsert(out, map_key, |out| put_stored(self.codec, stored, out));
            }
        }
    }

    fn decode(
        &self,
        origin: &Origin,
        map_key: &[u8],
        value: &[u8],
        cell: Option<&mut Self::Cell>,
    ) -> Result<Option<Self::Cell>> {
        let key = C::get(map_key)?;
        let stored: S = take_stored(origin, &origin.value, value)?;
        let heap = heap_of(&key) + heap_of(stored.value());
        let mut new = None;
        let map = match cell {
            Some(map) => map,
            None => new.insert(Self::Cell::default()),
        };
        map.edit(|map| (map.insert(key, stored), heap));
        Ok(new)
    }
}
