use state_api::access::{Aggregator, MergeAccess, ValueAccess};
use state_api::{Result, StateKey, StateType};
use std::marker::PhantomData;

use super::bound::OfTable;
use super::form::ValueForm;
use super::kind::{AggregatingExtra, ReducingExtra, ValueExtra};
use super::live_slot::{Address, Cursor, TableSlot};
use super::stamp::Stamped;
use crate::live::Change;

/// A value state of one key and namespace in a live table.
pub(crate) struct LiveValue<'a, K: StateKey, N, T, S> {
    pub(crate) cell: Cursor<'a, K, N, S>,
    pub(crate) default: Option<&'a T>,
}

impl<'a, K, N, T, S> OfTable<'a, K, N> for LiveValue<'a, K, N, T, S>
where
    K: StateKey,
    N: StateKey,
    T: StateType,
    S: Stamped<T>,
{
    type Slot = TableSlot<K, N, ValueForm<T, S>, ValueExtra<T>>;

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn of_table(slot: &'a mut Self::Slot, at: Address<'a, K, N>) -> Self {
        let (cell, extra) = slot.cursor(at);
        let default = extra.default.as_ref();
        Self { cell, default }
    }
}

impl<K: StateKey, N: StateKey, T: StateType, S: Stamped<T>> LiveValue<'_, K, N, T, S> {
    /// Removes the value if it is expired; returns it if it may be seen once more.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn expire(&mut self) -> Result<Option<S>> {
        if !S::TIMED {
            return Ok(None);
        }
        let now = self.cell.expiry.now::<T, S>();
        let expired = self
            .cell
            .get()
            .is_some_and(|s| self.cell.expiry.is_expired(s, now));
        if !expired {
            return Ok(None);
        }
        let removed = self.cell.take();
        Ok(removed.filter(|_| self.cell.expiry.returns_expired()))
    }
}

impl<K: StateKey, N: StateKey, T: StateType, S: Stamped<T>> ValueAccess<T>
    for LiveValue<'_, K, N, T, S>
{
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn with<R>(&mut self, f: impl FnOnce(Option<&T>) -> R) -> Result<R> {
        if let Some(last_look) = self.expire()? {
            return Ok(f(Some(last_look.value())));
        }
        if self.cell.expiry.renews_on_read::<T, S>() {
            let now = self.cell.expiry.now::<T, S>();
            self.cell.edit(|stored| {
                stored.renew(now);
                true
            });
        }
        Ok(f(self.cell.get().map(S::value).or(self.default)))
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn set(&mut self, value: T) -> Result<()> {
        let now = self.cell.expiry.now::<T, S>();
        self.cell.set(S::new(value, now))
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn modify<R>(&mut self, f: impl FnOnce(&mut Option<T>) -> R) -> Result<R> {
        self.expire()?;
        let now = self.cell.expiry.now::<T, S>();
        let default = self.default;
        let room = self.cell.check_limit();
        self.cell.change(|stored| {
            let was_present = stored.is_some();
            let present = stored.as_deref().map(S::value);
            let mut value = present.or(default).cloned();
            let result = f(&mut value);
            match (room, stored, value) {
                (Err(full), _, Some(_)) => (Change::Keep, Err(full)),
                (_, Some(stored), Some(value)) => {
                    *stored = S::new(value, now);
                    (Change::Keep, Ok(result))
                }
                (_, None, Some(value)) => (Change::Put(S::new(value, now)), Ok(result)),
                (_, _, None) if was_present => (Change::Remove, Ok(result)),
                (_, _, None) => (Change::Keep, Ok(result)),
            }
        })
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn update<R>(&mut self, f: impl FnOnce(&mut T) -> R) -> Result<R>
    where
        T: Default,
    {
        self.expire()?;
        let now = self.cell.expiry.now::<T, S>();
        let default = self.default;
        self.cell.edit_or_insert(
            || S::new(default.cloned().unwrap_or_default(), now),
            |stored| {
                stored.renew(now);
                f(stored.value_mut())
            },
        )
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn clear(&mut self) -> Result<()> {
        self.cell.remove();
        Ok(())
    }
}

/// The function of a reducing state.
pub(crate) type ReduceFn<T> = std::sync::Arc<dyn Fn(&T, T) -> Result<T> + Send + Sync>;

/// A reducing state of one key and namespace in a live table.
pub(crate) struct LiveReducing<'a, K: StateKey, N, T, S> {
    pub(crate) value: LiveValue<'a, K, N, T, S>,
    pub(crate) reduce: &'a ReduceFn<T>,
}

impl<'a, K, N, T, S> OfTable<'a, K, N> for LiveReducing<'a, K, N, T, S>
where
    K: StateKey,
    N: StateKey,
    T: StateType,
    S: Stamped<T>,
{
    type Slot = TableSlot<K, N, ValueForm<T, S>, ReducingExtra<T>>;

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn of_table(slot: &'a mut Self::Slot, at: Address<'a, K, N>) -> Self {
        let (cell, extra) = slot.cursor(at);
        let value = LiveValue {
            cell,
            default: None,
        };
        Self {
            value,
            reduce: &extra.reduce,
        }
    }
}

impl<K: StateKey, N: StateKey, T: StateType, S: Stamped<T>> MergeAccess<T, T>
    for LiveReducing<'_, K, N, T, S>
{
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn add(&mut self, input: T) -> Result<()> {
        self.value.expire()?;
        let now = self.value.cell.expiry.now::<T, S>();
        let reduce = self.reduce;
        self.value.cell.check_limit()?;
        self.value.cell.change(|stored| match stored {
            Some(stored) => {
                let reduced = reduce(stored.value(), input);
                let result = reduced.map(|reduced| *stored = S::new(reduced, now));
                (Change::Keep, result)
            }
            None => (Change::Put(S::new(input, now)), Ok(())),
        })
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn get(&mut self) -> Result<Option<T>> {
        self.value.get()
    }

    fn clear(&mut self) -> Result<()> {
        self.value.clear()
    }
}

/// An aggregating state of one key and namespace in a live table.
pub(crate) struct LiveAggregating<'a, K: StateKey, N, A: Aggregator, S> {
    pub(crate) value: LiveValue<'a, K, N, A::Acc, S>,
    pub(crate) aggregator: &'a A,
    pub(crate) types: PhantomData<A>,
}

impl<'a, K, N, A, S> OfTable<'a, K, N> for LiveAggregating<'a, K, N, A, S>
where
    K: StateKey,
    N: StateKey,
    A: Aggregator,
    S: Stamped<A::Acc>,
{
    type Slot = TableSlot<K, N, ValueForm<A::Acc, S>, AggregatingExtra<A>>;

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn of_table(slot: &'a mut Self::Slot, at: Address<'a, K, N>) -> Self {
        let (cell, extra) = slot.cursor(at);
        let value = LiveValue {
            cell,
            default: None,
        };
        Self {
            value,
            aggregator: &extra.aggregator,
            types: PhantomData,
        }
    }
}

impl<K, N, A, S> MergeAccess<A::In, A::Out> for LiveAggregating<'_, K, N, A, S>
where
    K: StateKey,
    N: StateKey,
    A: Aggregator,
    S: Stamped<A::Acc>,
{
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn add(&mut self, input: A::In) -> Result<()> {
        self.value.expire()?;
        let now = self.value.cell.expiry.now::<A::Acc, S>();
        let aggregator = self.aggregator;
        self.value.cell.check_limit()?;
        self.value.cell.change(|stored| match stored {
            // Not copied: the aggregator itself leaves the accumulator alone when it fails.
            Some(stored) if A::Acc::HAS_HEAP => {
                let result = aggregator.add(stored.value_mut(), input);
                if result.is_ok() {
                    stored.renew(now);
                }
                (Change::Keep, result)
            }
            Some(stored) => {
                let mut acc = stored.value().clone();
                let result = aggregator.add(&mut acc, input);
                if result.is_ok() {
                    *stored = S::new(acc, now);
                }
                (Change::Keep, result)
            }
            // A first input that fails leaves no accumulator behind.
            None => {
                let mut acc = aggregator.create();
                match aggregator.add(&mut acc, input) {
                    Ok(()) => (Change::Put(S::new(acc, now)), Ok(())),
                    Err(error) => (Change::Keep, Err(error)),
                }
            }
        })
    }

    fn get(&mut self) -> Result<Option<A::Out>> {
        let aggregator = self.aggregator;
        self.value.with(|acc| acc.map(|acc| aggregator.result(acc)))
    }

    fn clear(&mut self) -> Result<()> {
        self.value.clear()
    }
}
