use state_api::access::{Aggregator, MergeAccess, ValueAccess};
use state_api::{ByteStore, KeyGroupRange, Result, StateKey, StateType};

use super::cell::Cell;
use super::share::CacheShare;
use super::table::{CachedTable, group_at};
use crate::bytes::{ByteAggregating, ByteKey, ByteReducing, ByteState, ByteValue, Located};
use crate::keyed::{Address, AggregatingExtra, ReducingExtra, ValueExtra};

/// What is behind a cache: the store, and what an access to it needs.
pub(crate) struct Behind<'a> {
    pub(crate) store: &'a mut dyn ByteStore,
    pub(crate) state: &'a mut ByteState,
    pub(crate) key: &'a mut ByteKey,
    pub(crate) share: &'a mut CacheShare,
    pub(crate) range: KeyGroupRange,
}

impl Behind<'_> {
    /// Lends all of it once more.
    pub(super) fn again(&mut self) -> Behind<'_> {
        Behind {
            store: &mut *self.store,
            state: &mut *self.state,
            key: &mut *self.key,
            share: &mut *self.share,
            range: self.range,
        }
    }

    /// Binds the store to key and namespace: the key is encoded now.
    pub(super) fn locate<K: StateKey, N: StateKey>(
        &mut self,
        at: &Address<'_, K, N>,
    ) -> Located<'_> {
        self.key.bind(at.key, group_at(self.range, at.group));
        self.state.at(self.store, self.key, at.namespace)
    }

    #[inline]
    pub(super) fn is_timed(&self) -> bool {
        self.state.ttl().is_some()
    }

    /// Returns the time; 0 where values have no timestamps.
    #[inline]
    pub(super) fn now(&self) -> i64 {
        if self.is_timed() {
            self.state.now_ms()
        } else {
            0
        }
    }

    pub(super) fn is_expired<T>(&self, cell: &Cell<T>, now_ms: i64) -> bool {
        cell.value().is_some()
            && self
                .state
                .ttl()
                .is_some_and(|ttl| ttl.is_expired(cell.stamp(), now_ms))
    }

    pub(super) fn renews_on_read(&self) -> bool {
        self.state.ttl().is_some_and(|ttl| ttl.renews_on_read())
    }

    pub(super) fn returns_expired(&self) -> bool {
        self.state.ttl().is_some_and(|ttl| ttl.returns_expired())
    }
}

/// A value of one key and namespace in front of a byte store.
pub(crate) struct CachedValue<'a, K: StateKey, N, T, X> {
    pub(super) cached: &'a mut CachedTable<K, N, Cell<T>, X>,
    pub(super) behind: Behind<'a>,
    pub(super) at: Address<'a, K, N>,
}

/// Bytes that something is charged with, as a cell keeps them.
pub(super) fn charge_of(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Bytes that a value owns elsewhere.
#[inline]
fn heap_of<T: StateType>(value: Option<&T>) -> usize {
    value.filter(|_| T::HAS_HEAP).map_or(0, T::heap_size)
}

impl<'a, K: StateKey, N: StateKey, T: StateType, X: 'static> CachedValue<'a, K, N, T, X> {
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn new(
        cached: &'a mut CachedTable<K, N, Cell<T>, X>,
        behind: Behind<'a>,
        at: Address<'a, K, N>,
    ) -> Self {
        Self { cached, behind, at }
    }

    /// Bytes that a cell of this key and namespace is charged with.
    fn charge(at: &Address<'_, K, N>, value: Option<&T>) -> u32 {
        charge_of(CachedTable::<K, N, Cell<T>, X>::charge(at) + heap_of(value))
    }

    /// Adds a cell that was not there; gives it back if it finds no room.
    fn insert(&mut self, mut cell: Cell<T>) -> std::result::Result<(), Cell<T>> {
        let charge = Self::charge(&self.at, cell.value());
        if !self.behind.share.charge(charge as usize) {
            return Err(cell);
        }
        cell.set_charge(charge);
        self.cached.insert(&self.at, cell);
        Ok(())
    }

    /// Makes sure that what the store holds is here; false if it finds no room.
    #[cold]
    #[inline(never)]
    fn bring_in(&mut self) -> Result<bool> {
        if !self
            .behind
            .share
            .has_room(Self::charge(&self.at, None) as usize)
        {
            return Ok(false);
        }
        let found = self.behind.locate(&self.at).load::<T>()?;
        Ok(self.insert(Cell::new(found, false)).is_ok())
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn hit(&self) -> Option<&Cell<T>> {
        self.cached.get(&self.at)
    }

    /// Calls `f` with the cell if it is here, what is expired taken out; `f` says whether it changed it.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn edit<R, F>(&mut self, now_ms: i64, f: F) -> std::result::Result<R, F>
    where
        F: FnOnce(&mut Cell<T>, &X) -> (R, bool),
    {
        let Self { cached, behind, at } = self;
        let found = cached
            .table
            .get_mut(at.group, at.hash, at.key, at.namespace);
        let Some(cell) = found else {
            return Err(f);
        };
        let owned = heap_of(cell.value());
        let mut changed = false;
        if behind.is_timed() && behind.is_expired(cell, now_ms) {
            cell.set(None, now_ms);
            changed = true;
        }
        let (result, edited) = f(cell, &cached.extra);
        cell.mark_used();
        if edited || changed {
            if cell.set_dirty(true) {
                cached.tally.dirty += 1;
            }
            if T::HAS_HEAP {
                let before = cell.charge();
                let kept = (before as usize).saturating_sub(owned);
                cell.set_charge(charge_of(kept + heap_of(cell.value())));
                let delta = cell.charge() as isize - before as isize;
                cached.tally.bytes = cached.tally.bytes.saturating_add_signed(delta);
                behind.share.adjust(delta);
            }
        }
        Ok(result)
    }

    /// Calls `f` with the cell, brought in first if it is not here; gives `f` back if there is no room for it.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn change<R, F>(&mut self, f: F) -> Result<std::result::Result<R, F>>
    where
        F: FnOnce(&mut Cell<T>, &X) -> (R, bool),
    {
        let now = self.behind.now();
        match self.edit(now, f) {
            Err(f) if self.bring_in()? => Ok(self.edit(now, f)),
            done => Ok(done),
        }
    }

    /// Calls `f` with the value, as a look at it.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn look<R, F>(&mut self, f: F) -> Result<std::result::Result<R, F>>
    where
        F: FnOnce(Option<&T>, &X) -> R,
    {
        if !self.behind.is_timed()
            && let Some(cell) = self.hit()
        {
            cell.mark_used();
            return Ok(Ok(f(cell.value(), &self.cached.extra)));
        }
        self.look_twice(f)
    }

    #[inline(never)]
    fn look_twice<R, F>(&mut self, f: F) -> Result<std::result::Result<R, F>>
    where
        F: FnOnce(Option<&T>, &X) -> R,
    {
        if self.hit().is_none() && !self.bring_in()? {
            return Ok(Err(f));
        }
        let now = self.behind.now();
        let expired = self
            .hit()
            .filter(|cell| self.behind.is_expired(cell, now))
            .filter(|_| self.behind.returns_expired())
            .and_then(Cell::value)
            .cloned();
        let writes = self.hit().is_some_and(|cell| {
            self.behind.is_expired(cell, now)
                || (self.behind.renews_on_read() && cell.value().is_some())
        });
        if writes {
            // What is expired is taken out by the edit itself.
            let edited = self.edit(now, |cell, _| {
                cell.renew(now);
                ((), true)
            });
            debug_assert!(edited.is_ok(), "the cell was found just now");
        }
        let cell = self.hit();
        if let Some(cell) = cell {
            cell.mark_used();
        }
        let value = expired.as_ref().or_else(|| cell.and_then(Cell::value));
        Ok(Ok(f(value, &self.cached.extra)))
    }

    /// Sets the value, or notes that there is none, without looking at what there was; gives it back if there is no room.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn put(&mut self, value: Option<T>) -> std::result::Result<(), Option<T>> {
        let now = self.behind.now();
        let mut pending = Some(value);
        let edited = self.edit(now, |cell, _| {
            let value = pending.take().flatten();
            let changes = value.is_some() || cell.value().is_some();
            cell.set(value, now);
            ((), changes)
        });
        match edited {
            Ok(()) => Ok(()),
            Err(_) => self.put_new(pending.flatten(), now),
        }
    }

    #[cold]
    #[inline(never)]
    fn put_new(&mut self, value: Option<T>, now_ms: i64) -> std::result::Result<(), Option<T>> {
        let cell = Cell::new(value.map(|value| (value, now_ms)), true);
        self.insert(cell).map_err(Cell::into_value)
    }

    fn remove(&mut self) -> Result<()> {
        match self.put(None) {
            Ok(()) => Ok(()),
            Err(_) => self.behind.locate(&self.at).delete(),
        }
    }

    /// Returns a copy of the value unless it is expired, and whether something is stored.
    pub(super) fn take_up(&mut self) -> Result<(Option<T>, bool)> {
        let now = self.behind.now();
        if self.hit().is_none() && !self.bring_in()? {
            return self.behind.locate(&self.at).take_up();
        }
        let cell = self.hit();
        let value = cell.and_then(Cell::value);
        let live = value.filter(|_| !cell.is_some_and(|cell| self.behind.is_expired(cell, now)));
        Ok((live.cloned(), value.is_some()))
    }

    pub(super) fn write(&mut self, value: T) -> Result<()> {
        match self.put(Some(value)) {
            Err(Some(value)) => self.behind.locate(&self.at).write(&value),
            _ => Ok(()),
        }
    }

    pub(super) fn delete(&mut self) -> Result<()> {
        self.remove()
    }
}

impl<K, N, T> ValueAccess<T> for CachedValue<'_, K, N, T, ValueExtra<T>>
where
    K: StateKey,
    N: StateKey,
    T: StateType,
{
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn with<R>(&mut self, f: impl FnOnce(Option<&T>) -> R) -> Result<R> {
        let looked = self.look(|value, extra| f(value.or(extra.default.as_ref())));
        match looked? {
            Ok(result) => Ok(result),
            Err(look) => {
                let mut found = None;
                let at = self.behind.locate(&self.at);
                ByteValue::new(at, None).with(|value| found = value.cloned())?;
                Ok(look(found.as_ref(), &self.cached.extra))
            }
        }
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn set(&mut self, value: T) -> Result<()> {
        self.write(value)
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn modify<R>(&mut self, f: impl FnOnce(&mut Option<T>) -> R) -> Result<R> {
        let now = self.behind.now();
        let changed = self.change(|cell, extra: &ValueExtra<T>| {
            let was_present = cell.value().is_some();
            let mut value = cell.value().or(extra.default.as_ref()).cloned();
            let result = f(&mut value);
            let changes = was_present || value.is_some();
            cell.set(value, now);
            (result, changes)
        });
        match changed? {
            Ok(result) => Ok(result),
            Err(change) => self.change_behind(change),
        }
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn update<R>(&mut self, f: impl FnOnce(&mut T) -> R) -> Result<R>
    where
        T: Default,
    {
        let now = self.behind.now();
        let changed = self.change(|cell, extra: &ValueExtra<T>| {
            if let Some(value) = cell.value_mut() {
                let result = f(value);
                cell.renew(now);
                return (result, true);
            }
            let mut value = extra.default.clone().unwrap_or_default();
            let result = f(&mut value);
            cell.set(Some(value), now);
            (result, true)
        });
        match changed? {
            Ok(result) => Ok(result),
            Err(change) => self.change_behind(change),
        }
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn clear(&mut self) -> Result<()> {
        self.remove()
    }
}

impl<K, N, T, X> CachedValue<'_, K, N, T, X>
where
    K: StateKey,
    N: StateKey,
    T: StateType,
    X: 'static,
{
    /// Does to what is stored what finds no room here.
    #[cold]
    #[inline(never)]
    fn change_behind<R>(
        &mut self,
        change: impl FnOnce(&mut Cell<T>, &X) -> (R, bool),
    ) -> Result<R> {
        let (value, stored) = self.behind.locate(&self.at).take_up::<T>()?;
        let mut cell = Cell::new(value.map(|value| (value, 0)), false);
        let (result, changed) = change(&mut cell, &self.cached.extra);
        let mut at = self.behind.locate(&self.at);
        match cell.into_value() {
            Some(value) if changed => at.write(&value)?,
            None if stored => at.delete()?,
            _ => {}
        }
        Ok(result)
    }
}

/// A reducing state of one key and namespace in front of a byte store.
pub(crate) struct CachedReducing<'a, K: StateKey, N, T>(
    pub(crate) CachedValue<'a, K, N, T, ReducingExtra<T>>,
);

impl<K: StateKey, N: StateKey, T: StateType> MergeAccess<T, T> for CachedReducing<'_, K, N, T> {
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn add(&mut self, input: T) -> Result<()> {
        let now = self.0.behind.now();
        let changed = self.0.change(|cell, extra: &ReducingExtra<T>| {
            let reduced = match cell.value() {
                Some(value) => (extra.reduce)(value, input),
                None => Ok(input),
            };
            match reduced {
                Ok(reduced) => {
                    cell.set(Some(reduced), now);
                    (Ok(()), true)
                }
                Err(error) => (Err(error), false),
            }
        });
        match changed? {
            Ok(result) => result,
            Err(change) => self.0.change_behind(change)?,
        }
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn get(&mut self) -> Result<Option<T>> {
        match self.0.look(|value, _| value.cloned())? {
            Ok(value) => Ok(value),
            Err(_) => {
                let reduce = &*self.0.cached.extra.reduce;
                ByteReducing::new(self.0.behind.locate(&self.0.at), reduce).get()
            }
        }
    }

    fn clear(&mut self) -> Result<()> {
        self.0.remove()
    }
}

/// An aggregating state of one key and namespace in front of a byte store.
pub(crate) struct CachedAggregating<'a, K: StateKey, N, A: Aggregator>(
    pub(crate) CachedValue<'a, K, N, A::Acc, AggregatingExtra<A>>,
);

impl<K, N, A> MergeAccess<A::In, A::Out> for CachedAggregating<'_, K, N, A>
where
    K: StateKey,
    N: StateKey,
    A: Aggregator,
{
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn add(&mut self, input: A::In) -> Result<()> {
        let now = self.0.behind.now();
        let changed = self.0.change(|cell, extra: &AggregatingExtra<A>| {
            let aggregator = &extra.aggregator;
            // Not copied if that is dear: the aggregator itself leaves the accumulator alone when it fails.
            if A::Acc::HAS_HEAP
                && let Some(acc) = cell.value_mut()
            {
                let result = aggregator.add(acc, input);
                let changed = result.is_ok();
                if changed {
                    cell.renew(now);
                }
                return (result, changed);
            }
            let mut acc = cell.value().cloned().unwrap_or_else(|| aggregator.create());
            match aggregator.add(&mut acc, input) {
                Ok(()) => {
                    cell.set(Some(acc), now);
                    (Ok(()), true)
                }
                Err(error) => (Err(error), false),
            }
        });
        match changed? {
            Ok(result) => result,
            Err(change) => self.0.change_behind(change)?,
        }
    }

    fn get(&mut self) -> Result<Option<A::Out>> {
        let looked = self
            .0
            .look(|acc, extra: &AggregatingExtra<A>| acc.map(|acc| extra.aggregator.result(acc)))?;
        match looked {
            Ok(value) => Ok(value),
            Err(_) => {
                let aggregator = &self.0.cached.extra.aggregator;
                ByteAggregating::new(self.0.behind.locate(&self.0.at), aggregator).get()
            }
        }
    }

    fn clear(&mut self) -> Result<()> {
        self.0.remove()
    }
}
