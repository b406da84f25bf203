use std::marker::PhantomData;

use state_api::access::{MapAccess, SortedMapAccess};
use state_api::{ByteStore, Column, OrderedKey, Page, Result, StateKey, StateType, prefix_end};

use super::cell::{Cell, Used};
use super::kept::{Changed, Encoding, Kept, Tally, put_cell};
use super::table::CachedTable;
use super::value::{Behind, charge_of};
use crate::bytes::{ByteEntries, CompactKeys, MapKeys, OrderedKeys};
use crate::keyed::Address;
use crate::live::LiveMap;

/// Entries up to which the map of a key is given up whole.
const LARGE: usize = 256;

/// Entries of a large map that are looked at, and that are given up in any case, when the clock's hand comes past.
const TRIM: usize = 128;
const TRIM_LEAST: usize = 16;

/// Entries read from the store at once.
const PAGE: usize = 128;

/// What is known of the map entries of one key and namespace: some of them, each as a cell.
pub(crate) struct MapCell<MK, MV, C> {
    entries: LiveMap<MK, Cell<MV>>,
    tally: Tally,
    used: Used,
    keys: PhantomData<fn() -> C>,
}

impl<MK: Clone, MV: Clone, C> Clone for MapCell<MK, MV, C> {
    fn clone(&self) -> Self {
        Self {
            entries: self.entries.clone(),
            tally: self.tally,
            used: self.used.clone(),
            keys: PhantomData,
        }
    }
}

impl<MK, MV, C> MapCell<MK, MV, C> {
    /// Creates one without entries; `base` is what it is charged with itself.
    fn new(base: usize) -> Self {
        Self {
            entries: LiveMap::new(),
            tally: Tally {
                bytes: base,
                ..Tally::default()
            },
            used: Used::yes(),
            keys: PhantomData,
        }
    }
}

impl<MK: StateKey, MV: StateType, C: MapKeys<MK>> MapCell<MK, MV, C> {
    fn put_dirty(key: &MK, cell: &Cell<MV>, how: Encoding, out: &mut Vec<u8>, f: &mut Changed<'_>) {
        if cell.is_dirty() {
            let composite = out.len();
            C::put(key, out);
            put_cell(cell, how, out, f);
            out.truncate(composite);
        }
    }
}

impl<MK: StateKey, MV: StateType, C: MapKeys<MK>> Kept for MapCell<MK, MV, C> {
    fn take_used(&self) -> bool {
        self.used.take()
    }

    fn tally(&self) -> Tally {
        self.tally
    }

    fn is_large(&self) -> bool {
        self.entries.len() > LARGE
    }

    fn each_dirty(&self, how: Encoding, key: &mut Vec<u8>, f: &mut Changed<'_>) {
        for (map_key, cell) in self.entries.iter() {
            Self::put_dirty(map_key, cell, how, key, f);
        }
    }

    fn mark_clean(&mut self) {
        if self.tally.dirty == 0 {
            return;
        }
        self.tally.dirty = 0;
        if self.entries.len() <= LARGE {
            self.entries.retain(|_, cell| {
                cell.set_dirty(false);
                true
            });
            return;
        }
        let dirty = self.entries.iter().filter(|(_, cell)| cell.is_dirty());
        let dirty: Vec<MK> = dirty.map(|(key, _)| key.clone()).collect();
        for key in &dirty {
            if let Some(cell) = self.entries.get_mut(key) {
                cell.set_dirty(false);
            }
        }
    }

    fn trim(&mut self, how: Encoding, key: &mut Vec<u8>, f: &mut Changed<'_>) -> Tally {
        // In the order of the hash, so that which entries come first has nothing to do with how they are used.
        let mut given_up: Vec<MK> = Vec::new();
        for (seen, (map_key, cell)) in self.entries.iter().take(TRIM).enumerate() {
            let force = TRIM_LEAST.saturating_sub(given_up.len()) >= TRIM - seen;
            if !cell.take_used() || force {
                Self::put_dirty(map_key, cell, how, key, f);
                given_up.push(map_key.clone());
            }
        }
        let mut freed = Tally::default();
        for map_key in &given_up {
            if let Some(cell) = self.entries.remove(map_key) {
                freed.add(cell.tally());
            }
        }
        self.tally.subtract(freed);
        freed
    }

    fn difference(&self, key: &mut Vec<u8>, store: &dyn ByteStore, column: Column) -> Result<i64> {
        let end = prefix_end(key);
        let (mut page, mut next) = (Page::default(), key.clone());
        let (mut stored, mut left) = (false, false);
        let mut dirty = self.entries.iter().filter(|(_, cell)| cell.is_dirty());
        let added = dirty.any(|(_, cell)| cell.value().is_some());
        // Something is left if an entry is added, or if the store has one that is not removed.
        loop {
            store.scan(column, &next, end.as_deref(), PAGE, &mut page)?;
            stored |= !page.entries.is_empty();
            for (entry, _) in &page.entries {
                let map_key = C::get(entry.get(key.len()..).unwrap_or_default())?;
                let cell = self.entries.get(&map_key).filter(|cell| cell.is_dirty());
                left |= cell.is_none_or(|cell| cell.value().is_some());
            }
            match page.entries.pop() {
                Some((last, _)) if !left && page.entries.len() + 1 == PAGE => {
                    next = last;
                    next.push(0);
                }
                _ => return Ok(i64::from(added || left) - i64::from(stored)),
            }
        }
    }
}

/// The map of one key and namespace in front of a byte store; `C` is how map keys are encoded.
pub(crate) struct CachedEntries<'a, K: StateKey, N, MK, MV, C> {
    cached: &'a mut CachedTable<K, N, MapCell<MK, MV, C>, ()>,
    behind: Behind<'a>,
    at: Address<'a, K, N>,
}

/// A map state in front of a byte store.
pub(crate) type CachedMap<'a, K, N, MK, MV> = CachedEntries<'a, K, N, MK, MV, CompactKeys>;

/// A sorted map state in front of a byte store.
pub(crate) type CachedSortedMap<'a, K, N, MK, MV> = CachedEntries<'a, K, N, MK, MV, OrderedKeys>;

impl<'a, K, N, MK, MV, C> CachedEntries<'a, K, N, MK, MV, C>
where
    K: StateKey,
    N: StateKey,
    MK: StateKey,
    MV: StateType,
    C: MapKeys<MK>,
{
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn new(
        cached: &'a mut CachedTable<K, N, MapCell<MK, MV, C>, ()>,
        behind: Behind<'a>,
        at: Address<'a, K, N>,
    ) -> Self {
        Self { cached, behind, at }
    }

    /// Bytes that an entry is charged with.
    fn charge(key: &MK, value: Option<&MV>) -> u32 {
        let own = if MK::HAS_HEAP { key.heap_size() } else { 0 };
        let value = value.filter(|_| MV::HAS_HEAP).map_or(0, MV::heap_size);
        charge_of(2 * (size_of::<(MK, Cell<MV>)>() + 8) + own + value)
    }

    /// Bytes that the map itself is charged with.
    fn base(&self) -> usize {
        CachedTable::<K, N, MapCell<MK, MV, C>, ()>::charge(&self.at)
    }

    #[inline]
    fn hit(&self, key: &MK) -> Option<&Cell<MV>> {
        let map = self.cached.get(&self.at)?;
        let cell = map.entries.get(key)?;
        map.used.mark();
        cell.mark_used();
        Some(cell)
    }

    /// Adds an entry that was not there; gives it back if it finds no room.
    fn insert(&mut self, key: MK, mut cell: Cell<MV>) -> std::result::Result<(), (MK, Cell<MV>)> {
        let charge = Self::charge(&key, cell.value());
        let is_new = self.cached.get(&self.at).is_none();
        let base = if is_new { self.base() } else { 0 };
        if !self.behind.share.charge(charge as usize + base) {
            return Err((key, cell));
        }
        if is_new {
            self.cached.insert(&self.at, MapCell::new(base));
        }
        cell.set_charge(charge);
        let (at, cached) = (&self.at, &mut *self.cached);
        let found = cached
            .table
            .get_mut(at.group, at.hash, at.key, at.namespace);
        if let Some(map) = found {
            let tally = cell.tally();
            map.tally.add(tally);
            cached.tally.add(tally);
            map.used.mark();
            map.entries.insert(key, cell);
        }
        Ok(())
    }

    /// Binds the store to a map key.
    fn locate(&mut self, key: &MK) -> crate::bytes::Located<'_> {
        let mut located = self.behind.locate(&self.at);
        located.push(|out| C::put(key, out));
        located
    }

    /// Makes sure that what the store holds of an entry is here; false if it finds no room.
    #[cold]
    #[inline(never)]
    fn bring_in(&mut self, key: &MK) -> Result<bool> {
        let charge = Self::charge(key, None) as usize + self.base();
        if !self.behind.share.has_room(charge) {
            return Ok(false);
        }
        let found = self.locate(key).load::<MV>()?;
        Ok(self.insert(key.clone(), Cell::new(found, false)).is_ok())
    }

    /// The store's own view of the map.
    fn entries(&mut self) -> ByteEntries<'_, MK, MV, C> {
        ByteEntries::new(self.behind.locate(&self.at))
    }

    /// Calls `f` with an entry if it is here, what is expired taken out; `f` says whether it changed it.
    #[inline]
    fn edit<R, F>(&mut self, key: &MK, now_ms: i64, f: F) -> std::result::Result<R, F>
    where
        F: FnOnce(&mut Cell<MV>) -> (R, bool),
    {
        // Looked up first: a miss must not copy a map that a snapshot holds.
        if self.hit(key).is_none() {
            return Err(f);
        }
        let Self { cached, behind, at } = self;
        let map = cached
            .table
            .get_mut(at.group, at.hash, at.key, at.namespace);
        let Some(map) = map else {
            return Err(f);
        };
        let Some(cell) = map.entries.get_mut(key) else {
            return Err(f);
        };
        let mut changed = false;
        if behind.is_timed() && behind.is_expired(cell, now_ms) {
            cell.set(None, now_ms);
            changed = true;
        }
        let (result, edited) = f(cell);
        if edited || changed {
            if cell.set_dirty(true) {
                map.tally.dirty += 1;
                cached.tally.dirty += 1;
            }
            if MV::HAS_HEAP {
                let (before, after) = (cell.charge(), Self::charge(key, cell.value()));
                cell.set_charge(after);
                let delta = after as isize - before as isize;
                map.tally.bytes = map.tally.bytes.saturating_add_signed(delta);
                cached.tally.bytes = cached.tally.bytes.saturating_add_signed(delta);
                behind.share.adjust(delta);
            }
        }
        Ok(result)
    }

    #[inline]
    fn change<R, F>(&mut self, key: &MK, f: F) -> Result<std::result::Result<R, F>>
    where
        F: FnOnce(&mut Cell<MV>) -> (R, bool),
    {
        let now = self.behind.now();
        match self.edit(key, now, f) {
            Err(f) if self.bring_in(key)? => Ok(self.edit(key, now, f)),
            done => Ok(done),
        }
    }

    /// Stores what is dirty of the map, so that a scan of the store sees it. A scan that may change what is stored must find
    /// nothing here afterwards (`forgets`).
    fn settle(&mut self, forgets: bool) -> Result<()> {
        self.cached.flush_at(&self.at, self.behind.store)?;
        if forgets {
            self.cached.forget(&self.at, self.behind.share);
        }
        Ok(())
    }

    #[inline(never)]
    fn look_twice<R>(&mut self, key: &MK, f: impl FnOnce(Option<&MV>) -> R) -> Result<R> {
        if self.hit(key).is_none() && !self.bring_in(key)? {
            return self.entries().with(key, f);
        }
        let now = self.behind.now();
        let cell = self.hit(key);
        let expired = cell.is_some_and(|cell| self.behind.is_expired(cell, now));
        let last_look = cell
            .filter(|_| expired && self.behind.returns_expired())
            .and_then(Cell::value)
            .cloned();
        let renews =
            self.behind.renews_on_read() && cell.is_some_and(|cell| cell.value().is_some());
        if expired || renews {
            // What is expired is taken out by the edit itself.
            let edited = self.edit(key, now, |cell| {
                cell.renew(now);
                ((), true)
            });
            debug_assert!(edited.is_ok(), "the entry was found just now");
        }
        let value = last_look.as_ref();
        Ok(f(value.or_else(|| self.hit(key).and_then(Cell::value))))
    }

    fn write(&mut self, key: MK, value: MV) -> Result<()> {
        let now = self.behind.now();
        let mut pending = Some(value);
        let edited = self.edit(&key, now, |cell| {
            cell.set(pending.take(), now);
            ((), true)
        });
        if edited.is_ok() {
            return Ok(());
        }
        let cell = Cell::new(pending.map(|value| (value, now)), true);
        match self.insert(key, cell) {
            Ok(()) => Ok(()),
            Err((key, cell)) => match cell.into_value() {
                Some(value) => self.entries().put(key, value),
                None => Ok(()),
            },
        }
    }
}

impl<K, N, MK, MV, C> MapAccess<MK, MV> for CachedEntries<'_, K, N, MK, MV, C>
where
    K: StateKey,
    N: StateKey,
    MK: StateKey,
    MV: StateType,
    C: MapKeys<MK>,
{
    #[inline]
    fn with<R>(&mut self, key: &MK, f: impl FnOnce(Option<&MV>) -> R) -> Result<R> {
        if !self.behind.is_timed()
            && let Some(cell) = self.hit(key)
        {
            return Ok(f(cell.value()));
        }
        self.look_twice(key, f)
    }

    #[inline]
    fn put(&mut self, key: MK, value: MV) -> Result<()> {
        self.write(key, value)
    }

    fn put_all(&mut self, entries: Vec<(MK, MV)>) -> Result<()> {
        entries
            .into_iter()
            .try_for_each(|(key, value)| self.write(key, value))
    }

    #[inline]
    fn modify<R>(&mut self, key: &MK, f: impl FnOnce(&mut Option<MV>) -> R) -> Result<R> {
        let now = self.behind.now();
        let changed = self.change(key, |cell| {
            let was_present = cell.value().is_some();
            let mut value = cell.value().cloned();
            let result = f(&mut value);
            let changes = was_present || value.is_some();
            cell.set(value, now);
            (result, changes)
        });
        match changed? {
            Ok(result) => Ok(result),
            Err(change) => {
                let (value, stored) = self.locate(key).take_up::<MV>()?;
                let mut cell = Cell::new(value.map(|value| (value, 0)), false);
                let (result, _) = change(&mut cell);
                match cell.into_value() {
                    Some(value) => self.locate(key).write(&value)?,
                    None if stored => self.locate(key).delete()?,
                    None => {}
                }
                Ok(result)
            }
        }
    }

    fn remove(&mut self, key: &MK) -> Result<bool> {
        let now = self.behind.now();
        let changed = self.change(key, |cell| {
            let found = cell.set(None, now).is_some();
            (found, found)
        });
        match changed? {
            Ok(found) => Ok(found),
            Err(_) => self.entries().remove(key),
        }
    }

    fn for_each(&mut self, f: impl FnMut(&MK, &MV) -> Result<()>) -> Result<()> {
        self.settle(self.behind.is_timed())?;
        self.entries().for_each(f)
    }

    fn retain(&mut self, f: impl FnMut(&MK, &mut MV) -> bool) -> Result<()> {
        self.settle(true)?;
        self.entries().retain(f)
    }

    fn is_empty(&mut self) -> Result<bool> {
        let known = self.cached.get(&self.at);
        if known.is_some_and(|map| map.entries.iter().any(|(_, cell)| cell.value().is_some())) {
            return Ok(false);
        }
        self.settle(false)?;
        self.entries().is_empty()
    }

    fn clear(&mut self) -> Result<()> {
        self.cached.forget(&self.at, self.behind.share);
        self.entries().clear()
    }
}

impl<K, N, MK, MV> SortedMapAccess<MK, MV> for CachedSortedMap<'_, K, N, MK, MV>
where
    K: StateKey,
    N: StateKey,
    MK: OrderedKey,
    MV: StateType,
{
    fn range(
        &mut self,
        from: Option<&MK>,
        to: Option<&MK>,
        f: impl FnMut(&MK, &MV) -> Result<()>,
    ) -> Result<()> {
        self.settle(self.behind.is_timed())?;
        self.entries().range(from, to, f)
    }

    fn first(&mut self) -> Result<Option<(MK, MV)>> {
        self.settle(self.behind.is_timed())?;
        self.entries().first()
    }

    fn last(&mut self) -> Result<Option<(MK, MV)>> {
        self.settle(self.behind.is_timed())?;
        self.entries().last()
    }

    fn remove_range(&mut self, from: Option<&MK>, to: Option<&MK>) -> Result<()> {
        self.settle(true)?;
        self.entries().remove_range(from, to)
    }
}
