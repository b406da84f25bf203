use state_api::access::{Aggregator, MergeAccess, ValueAccess};
use state_api::{Result, StateKey, StateType};
use std::marker::PhantomData;

use super::bound::OfTable;
use super::form::ValueForm;
use super::kind::{AggregatingExtra, ReducingExtra, ValueExtra};
use super::live_slot::{Address, Cursor, TableSlot};
use super::stamp::Stamped;

/// A value state of one key and namespace in a live table.
pub(crate) struct LiveValue<'a, K, N, T, S> {
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
        let present = self.cell.get().map(S::value);
        let was_present = present.is_some();
        let mut value = present.or(self.default).cloned();
        let result = f(&mut value);
        match value {
            Some(value) => self.set(value)?,
            None if was_present => self.cell.remove(),
            None => {}
        }
        Ok(result)
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
pub(crate) struct LiveReducing<'a, K, N, T, S> {
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
        let reduced = match self.value.cell.get() {
            Some(stored) => (self.reduce)(stored.value(), input)?,
            None => input,
        };
        self.value.cell.set(S::new(reduced, now))
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
pub(crate) struct LiveAggregating<'a, K, N, A: Aggregator, S> {
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
        let mut input = Some(input);
        if A::Acc::HAS_HEAP {
            // Not copied: the aggregator itself leaves the accumulator alone when it fails.
            self.value.cell.check_limit()?;
            let mut outcome = Ok(());
            self.value.cell.edit(|stored| {
                if let Some(input) = input.take() {
                    outcome = aggregator.add(stored.value_mut(), input);
                    if outcome.is_ok() {
                        stored.renew(now);
                    }
                }
                true
            });
            outcome?;
        }
        // A first input that fails leaves no accumulator behind.
        let Some(input) = input else { return Ok(()) };
        let mut acc = match self.value.cell.get() {
            Some(stored) => stored.value().clone(),
            None => aggregator.create(),
        };
        aggregator.add(&mut acc, input)?;
        self.value.cell.set(S::new(acc, now))
    }

    fn get(&mut self) -> Result<Option<A::Out>> {
        let aggregator = self.aggregator;
        self.value.with(|acc| acc.map(|acc| aggregator.result(acc)))
    }

    fn clear(&mut self) -> Result<()> {
        self.value.clear()
    }
}
