use std::marker::PhantomData;

use state_api::access::{MapAccess, SortedMapAccess};
use state_api::{OrderedKey, Result, StateKey, StateType};

use super::bound::OfTable;
use super::form::{MapForm, SortedMapForm};
use super::history::MapMark;
use super::live_slot::{Address, Cursor, TableSlot};
use super::measured::{Measured, heap_of};
use super::stamp::Stamped;
use crate::live::{LiveMap, LiveSortedMap};

/// What the two kinds of nested maps have in common.
pub(crate) trait NestedMap<MK, S>: Clone + Default + Send + Sync + 'static {
    fn get(&self, key: &MK) -> Option<&S>;
    fn get_mut(&mut self, key: &MK) -> Option<&mut S>;
    fn insert(&mut self, key: MK, stored: S) -> Option<S>;
    fn remove(&mut self, key: &MK) -> Option<S>;
    fn is_empty(&self) -> bool;
    /// Bytes on the heap, what the entries own not included.
    fn allocated(&self) -> usize;
    fn entries<'a>(&'a self) -> impl Iterator<Item = (&'a MK, &'a S)>
    where
        MK: 'a,
        S: 'a;
    fn retain(&mut self, f: impl FnMut(&MK, &mut S) -> bool);
}

macro_rules! nested_map {
    ($map:ident, $key:ident) => {
        impl<MK: $key, S: Clone + Send + Sync + 'static> NestedMap<MK, S> for $map<MK, S> {
            #[inline]
            fn get(&self, key: &MK) -> Option<&S> {
                $map::get(self, key)
            }
            #[inline]
            fn get_mut(&mut self, key: &MK) -> Option<&mut S> {
                $map::get_mut(self, key)
            }
            #[inline]
            fn insert(&mut self, key: MK, stored: S) -> Option<S> {
                $map::insert(self, key, stored)
            }
            #[inline]
            fn remove(&mut self, key: &MK) -> Option<S> {
                $map::remove(self, key)
            }
            #[inline]
            fn is_empty(&self) -> bool {
                $map::is_empty(self)
            }
            #[inline]
            fn allocated(&self) -> usize {
                $map::allocated(self)
            }
            fn entries<'a>(&'a self) -> impl Iterator<Item = (&'a MK, &'a S)>
            where
                MK: 'a,
                S: 'a,
            {
                self.iter()
            }
            fn retain(&mut self, f: impl FnMut(&MK, &mut S) -> bool) {
                $map::retain(self, f);
            }
        }
    };
}

nested_map!(LiveMap, StateKey);
nested_map!(LiveSortedMap, OrderedKey);

/// A map state of one key and namespace in a live table; `M` is the nested map.
pub(crate) struct LiveMapView<'a, K: StateKey, N, MK, MV, S, M> {
    pub(crate) cell: Cursor<'a, K, N, Measured<M, MapMark<MK>>>,
    pub(crate) types: PhantomData<(MK, MV, S)>,
}

macro_rules! of_table {
    ($map:ident, $key:ident, $form:ident) => {
        impl<'a, K, N, MK, MV, S> OfTable<'a, K, N>
            for LiveMapView<'a, K, N, MK, MV, S, $map<MK, S>>
        where
            K: StateKey,
            N: StateKey,
            MK: $key,
            MV: StateType,
            S: Stamped<MV>,
        {
            type Slot = TableSlot<K, N, $form<MK, MV, S>, ()>;

            #[cfg_attr(not(debug_assertions), inline(always))]
            fn of_table(slot: &'a mut Self::Slot, at: Address<'a, K, N>) -> Self {
                let (cell, ()) = slot.cursor(at);
                let types = PhantomData;
                Self { cell, types }
            }
        }
    };
}

of_table!(LiveMap, StateKey, MapForm);
of_table!(LiveSortedMap, OrderedKey, SortedMapForm);

/// Puts an entry and returns how the heap bytes of the parts changed.
fn put_stored<MK: StateKey, MV: StateType, S: Stamped<MV>>(
    map: &mut impl NestedMap<MK, S>,
    key: MK,
    stored: S,
) -> isize {
    let (key_heap, value_heap) = (heap_of(&key), heap_of(stored.value()));
    match map.insert(key, stored) {
        Some(old) => value_heap - heap_of(old.value()),
        None => key_heap + value_heap,
    }
}

impl<K, N, MK, MV, S, M> LiveMapView<'_, K, N, MK, MV, S, M>
where
    K: StateKey,
    N: StateKey,
    MK: StateKey,
    MV: StateType,
    S: Stamped<MV>,
    M: NestedMap<MK, S>,
{
    #[inline]
    fn stored(&self, key: &MK) -> Option<&S> {
        self.cell.get().and_then(|map| map.get(key))
    }

    /// Removes an entry if it is expired; returns it if it may be seen once more.
    #[inline]
    fn expire(&mut self, key: &MK) -> Option<S> {
        if !S::TIMED {
            return None;
        }
        let now = self.cell.expiry.now::<MV, S>();
        let expiry = self.cell.expiry;
        if !self.stored(key).is_some_and(|s| expiry.is_expired(s, now)) {
            return None;
        }
        self.take(key).filter(|_| expiry.returns_expired())
    }

    /// Removes all expired entries; returns the map as it was if they may be seen once more.
    fn expire_all(&mut self) -> Option<Measured<M, MapMark<MK>>> {
        if !S::TIMED {
            return None;
        }
        let now = self.cell.expiry.now::<MV, S>();
        let expiry = self.cell.expiry;
        if !self
            .cell
            .get()
            .is_some_and(|map| map.entries().any(|(_, s)| expiry.is_expired(s, now)))
        {
            return None;
        }
        let last_look = expiry
            .returns_expired()
            .then(|| self.cell.get().cloned())
            .flatten();
        self.retain_stored(false, |_, s| !expiry.is_expired(s, now));
        last_look
    }

    fn renew_all(&mut self) {
        if self.cell.expiry.renews_on_read::<MV, S>() {
            let now = self.cell.expiry.now::<MV, S>();
            self.retain_stored(true, |_, s| {
                s.renew(now);
                true
            });
        }
    }

    /// Keeps the entries for which a function returns true; it says whether the function changes those that it keeps.
    fn retain_stored(&mut self, changes: bool, mut f: impl FnMut(&MK, &mut S) -> bool) {
        let epoch = self.cell.epoch();
        let mut removed = Vec::new();
        self.cell.edit(|map| {
            if let Some(mark) = map.noted(epoch) {
                mark.is_whole |= changes;
            }
            let is_left = map.edit(|map| {
                let mut delta = 0;
                map.retain(|key, s| {
                    let before = heap_of(s.value());
                    let keep = f(key, s);
                    delta += if keep {
                        heap_of(s.value()) - before
                    } else {
                        -before - heap_of(key)
                    };
                    if !keep && epoch.is_some() {
                        removed.push(key.clone());
                    }
                    keep
                });
                (!map.is_empty(), delta)
            });
            if !removed.is_empty()
                && let Some(mark) = map.noted(epoch)
            {
                removed.iter().for_each(|key| mark.touch(key));
            }
            is_left
        });
    }

    fn take(&mut self, key: &MK) -> Option<S> {
        // Looked up first: a miss must not copy a map that a snapshot holds.
        self.stored(key)?;
        let mut removed = None;
        let epoch = self.cell.epoch();
        self.cell.edit(|map| {
            if let Some(mark) = map.noted(epoch) {
                mark.touch(key);
            }
            map.edit(|map| {
                removed = map.remove(key);
                let freed = removed
                    .as_ref()
                    .map_or(0, |s| heap_of(key) + heap_of(s.value()));
                (!map.is_empty(), -freed)
            })
        });
        removed
    }
}

impl<K, N, MK, MV, S, M> MapAccess<MK, MV> for LiveMapView<'_, K, N, MK, MV, S, M>
where
    K: StateKey,
    N: StateKey,
    MK: StateKey,
    MV: StateType,
    S: Stamped<MV>,
    M: NestedMap<MK, S>,
{
    #[inline]
    fn with<R>(&mut self, key: &MK, f: impl FnOnce(Option<&MV>) -> R) -> Result<R> {
        if let Some(last_look) = self.expire(key) {
            return Ok(f(Some(last_look.value())));
        }
        if self.cell.expiry.renews_on_read::<MV, S>() && self.stored(key).is_some() {
            let now = self.cell.expiry.now::<MV, S>();
            let epoch = self.cell.epoch();
            self.cell.edit(|map| {
                if let Some(mark) = map.noted(epoch) {
                    mark.touch(key);
                }
                map.edit(|map| {
                    if let Some(stored) = map.get_mut(key) {
                        stored.renew(now);
                    }
                    (true, 0)
                })
            });
        }
        Ok(f(self.stored(key).map(S::value)))
    }

    #[inline]
    fn put(&mut self, key: MK, value: MV) -> Result<()> {
        let now = self.cell.expiry.now::<MV, S>();
        let epoch = self.cell.epoch();
        let anew = || Measured::anew(epoch);
        self.cell
            .edit_or_insert(anew, |map: &mut Measured<M, MapMark<MK>>| {
                if let Some(mark) = map.noted(epoch) {
                    mark.touch(&key);
                }
                map.edit(|map: &mut M| ((), put_stored(map, key, S::new(value, now))));
            })
    }

    fn put_all(&mut self, entries: Vec<(MK, MV)>) -> Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        let now = self.cell.expiry.now::<MV, S>();
        let epoch = self.cell.epoch();
        let anew = || Measured::anew(epoch);
        self.cell
            .edit_or_insert(anew, |map: &mut Measured<M, MapMark<MK>>| {
                if let Some(mark) = map.noted(epoch) {
                    entries.iter().for_each(|(key, _)| mark.touch(key));
                }
                map.edit(|map: &mut M| {
                    let put = |(key, value)| put_stored(map, key, S::new(value, now));
                    ((), entries.into_iter().map(put).sum())
                });
            })
    }

    fn modify<R>(&mut self, key: &MK, f: impl FnOnce(&mut Option<MV>) -> R) -> Result<R> {
        self.expire(key);
        let mut value = self.stored(key).map(|s| s.value().clone());
        let result = f(&mut value);
        match value {
            Some(value) => self.put(key.clone(), value)?,
            None => {
                self.take(key);
            }
        }
        Ok(result)
    }

    fn remove(&mut self, key: &MK) -> Result<bool> {
        self.expire(key);
        Ok(self.take(key).is_some())
    }

    fn for_each(&mut self, mut f: impl FnMut(&MK, &MV) -> Result<()>) -> Result<()> {
        if let Some(last_look) = self.expire_all() {
            return last_look
                .entries()
                .try_for_each(|(key, s)| f(key, s.value()));
        }
        self.renew_all();
        match self.cell.get() {
            Some(map) => map.entries().try_for_each(|(key, s)| f(key, s.value())),
            None => Ok(()),
        }
    }

    fn retain(&mut self, mut f: impl FnMut(&MK, &mut MV) -> bool) -> Result<()> {
        self.expire_all();
        let now = self.cell.expiry.now::<MV, S>();
        self.retain_stored(true, |key, s| {
            s.renew(now);
            f(key, s.value_mut())
        });
        Ok(())
    }

    fn is_empty(&mut self) -> Result<bool> {
        Ok(self.cell.get().is_none())
    }

    fn clear(&mut self) -> Result<()> {
        self.cell.remove();
        Ok(())
    }
}

impl<K, N, MK, MV, S> SortedMapAccess<MK, MV>
    for LiveMapView<'_, K, N, MK, MV, S, LiveSortedMap<MK, S>>
where
    K: StateKey,
    N: StateKey,
    MK: OrderedKey,
    MV: StateType,
    S: Stamped<MV>,
{
    fn range(
        &mut self,
        from: Option<&MK>,
        to: Option<&MK>,
        mut f: impl FnMut(&MK, &MV) -> Result<()>,
    ) -> Result<()> {
        if let Some(last_look) = self.expire_all() {
            return last_look
                .range(from, to)
                .try_for_each(|(key, s)| f(key, s.value()));
        }
        self.renew_all();
        match self.cell.get() {
            Some(map) => map
                .range(from, to)
                .try_for_each(|(key, s)| f(key, s.value())),
            None => Ok(()),
        }
    }

    fn first(&mut self) -> Result<Option<(MK, MV)>> {
        self.expire_all();
        Ok(self
            .cell
            .get()
            .and_then(|map| map.first())
            .map(|(key, s)| (key.clone(), s.value().clone())))
    }

    fn last(&mut self) -> Result<Option<(MK, MV)>> {
        self.expire_all();
        Ok(self
            .cell
            .get()
            .and_then(|map| map.last())
            .map(|(key, s)| (key.clone(), s.value().clone())))
    }

    fn remove_range(&mut self, from: Option<&MK>, to: Option<&MK>) -> Result<()> {
        let inside = |key: &MK| from.is_none_or(|from| key >= from) && to.is_none_or(|to| key < to);
        self.retain_stored(false, |key, _| !inside(key));
        Ok(())
    }
}
