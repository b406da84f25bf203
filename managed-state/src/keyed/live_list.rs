use std::marker::PhantomData;

use state_api::access::ListAccess;
use state_api::{Result, StateKey, StateType};

use super::bound::OfTable;
use super::form::ListForm;
use super::history::ListMark;
use super::live_slot::{Address, Cursor, TableSlot};
use super::measured::{Measured, heap_of};
use super::stamp::Stamped;
use crate::live::LiveList;

/// A list state of one key and namespace in a live table.
pub(crate) struct LiveListView<'a, K: StateKey, N, T, S> {
    pub(crate) cell: Cursor<'a, K, N, Measured<LiveList<S>, ListMark>>,
    pub(crate) types: PhantomData<T>,
}

impl<'a, K, N, T, S> OfTable<'a, K, N> for LiveListView<'a, K, N, T, S>
where
    K: StateKey,
    N: StateKey,
    T: StateType,
    S: Stamped<T>,
{
    type Slot = TableSlot<K, N, ListForm<T, S>, ()>;

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn of_table(slot: &'a mut Self::Slot, at: Address<'a, K, N>) -> Self {
        let (cell, ()) = slot.cursor(at);
        let types = PhantomData;
        Self { cell, types }
    }
}

impl<K: StateKey, N: StateKey, T: StateType, S: Stamped<T>> LiveListView<'_, K, N, T, S> {
    /// Removes expired elements; returns all elements as they were if they may be seen once more.
    fn expire(&mut self) -> Option<Measured<LiveList<S>, ListMark>> {
        if !S::TIMED {
            return None;
        }
        let now = self.cell.expiry.now::<T, S>();
        let expiry = self.cell.expiry;
        if !self
            .cell
            .get()
            .is_some_and(|list| list.iter().any(|s| expiry.is_expired(s, now)))
        {
            return None;
        }
        let last_look = expiry
            .returns_expired()
            .then(|| self.cell.get().cloned())
            .flatten();
        self.retain_stored(|s| !expiry.is_expired(s, now));
        last_look
    }

    fn renew(&mut self) {
        if self.cell.expiry.renews_on_read::<T, S>() {
            let now = self.cell.expiry.now::<T, S>();
            let epoch = self.cell.epoch();
            self.cell.edit(|list| {
                if let Some(mark) = list.noted(epoch) {
                    mark.is_whole = true;
                }
                list.edit(|list| (list.iter_mut().for_each(|s| s.renew(now)), 0));
                true
            });
        }
    }

    fn retain_stored(&mut self, mut f: impl FnMut(&S) -> bool) {
        let epoch = self.cell.epoch();
        self.cell.edit(|list| {
            let before = list.len();
            list.noted(epoch);
            let is_left = list.edit(|list| {
                let mut freed = 0;
                list.retain(|s| {
                    let keep = f(s);
                    freed += if keep { 0 } else { heap_of(s.value()) };
                    keep
                });
                (!list.is_empty(), -freed)
            });
            if list.len() != before
                && let Some(mark) = list.noted(epoch)
            {
                mark.is_whole = true;
            }
            is_left
        });
    }
}

impl<K: StateKey, N: StateKey, T: StateType, S: Stamped<T>> ListAccess<T>
    for LiveListView<'_, K, N, T, S>
{
    #[inline]
    fn push(&mut self, element: T) -> Result<()> {
        let now = self.cell.expiry.now::<T, S>();
        let heap = heap_of(&element);
        let epoch = self.cell.epoch();
        let anew = || Measured::anew(epoch);
        self.cell.edit_or_insert(anew, |list| {
            list.noted(epoch);
            list.edit(|list| (list.push(S::new(element, now)), heap))
        })
    }

    fn extend(&mut self, elements: Vec<T>) -> Result<()> {
        if elements.is_empty() {
            return Ok(());
        }
        let now = self.cell.expiry.now::<T, S>();
        let heap = elements.iter().map(heap_of).sum();
        let stored = elements.into_iter().map(|element| S::new(element, now));
        let epoch = self.cell.epoch();
        let anew = || Measured::anew(epoch);
        self.cell.edit_or_insert(anew, |list| {
            list.noted(epoch);
            list.edit(|list| (list.extend(stored), heap))
        })
    }

    fn replace(&mut self, elements: Vec<T>) -> Result<()> {
        if elements.is_empty() {
            return self.clear();
        }
        let now = self.cell.expiry.now::<T, S>();
        let heap = elements.iter().map(heap_of).sum();
        let mut list = Measured::<LiveList<S>, ListMark>::anew(self.cell.epoch());
        list.edit(|list| {
            (
                list.extend(elements.into_iter().map(|element| S::new(element, now))),
                heap,
            )
        });
        self.cell.set(list)
    }

    fn for_each(&mut self, mut f: impl FnMut(&T) -> Result<()>) -> Result<()> {
        if let Some(last_look) = self.expire() {
            return last_look.iter().try_for_each(|s| f(s.value()));
        }
        self.renew();
        match self.cell.get() {
            Some(list) => list.try_for_each(|s| f(s.value())),
            None => Ok(()),
        }
    }

    fn retain(&mut self, mut f: impl FnMut(&T) -> bool) -> Result<()> {
        self.expire();
        self.retain_stored(|s| f(s.value()));
        Ok(())
    }

    fn pop_front(&mut self) -> Result<Option<T>> {
        self.expire();
        let mut popped = None;
        let epoch = self.cell.epoch();
        self.cell.edit(|list| {
            if let Some(mark) = list.noted(epoch) {
                mark.popped += 1;
            }
            list.edit(|list| {
                popped = list.pop_front().map(S::into_value);
                (!list.is_empty(), -popped.as_ref().map_or(0, heap_of))
            })
        });
        Ok(popped)
    }

    fn len(&mut self) -> Result<usize> {
        self.expire();
        Ok(self.cell.get().map_or(0, |list| list.len()))
    }

    fn clear(&mut self) -> Result<()> {
        self.cell.remove();
        Ok(())
    }
}
