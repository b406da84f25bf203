use std::fmt;

use state_api::{KeyGroup, Result, StateKey};

use super::states::{KeyedStates, Slots, position};
use super::token::{Slot, Timers};
use crate::format::CompositeLayout;

/// The timers of one key and namespace. A timer is a point in time; setting it twice is setting it once.
pub struct TimersView<'a, K, N> {
    states: &'a mut KeyedStates<K>,
    slot: Slot,
    group: KeyGroup,
    key: &'a K,
    namespace: &'a N,
}

impl<'a, K: StateKey, N: StateKey> TimersView<'a, K, N> {
    pub(crate) fn new(
        states: &'a mut KeyedStates<K>,
        slot: Slot,
        group: KeyGroup,
        key: &'a K,
        namespace: &'a N,
    ) -> Self {
        Self {
            states,
            slot,
            group,
            key,
            namespace,
        }
    }

    /// Sets a timer; returns whether it is now the earliest of the subtask's.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn set(&mut self, time: i64) -> Result<bool> {
        let index = position(self.states.owner, self.slot)?;
        match &mut self.states.slots {
            Slots::Live(live) => {
                Ok(live
                    .timers(index)?
                    .add(time, self.group, self.key, self.namespace))
            }
            Slots::Bytes(bytes) => {
                bytes.bind(self.key, self.group);
                bytes.set_timer(index, time, self.namespace)
            }
        }
    }

    /// Removes a timer; returns whether the subtask's earliest timer changed by it.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn remove(&mut self, time: i64) -> Result<bool> {
        let index = position(self.states.owner, self.slot)?;
        match &mut self.states.slots {
            Slots::Live(live) => {
                Ok(live
                    .timers(index)?
                    .remove(time, self.group, self.key, self.namespace))
            }
            Slots::Bytes(bytes) => {
                bytes.bind(self.key, self.group);
                bytes.remove_timer(index, time, self.namespace)
            }
        }
    }
}

/// A timer that is due: taken out of its state, to be acted upon.
pub struct DueTimer<K> {
    slot: Slot,
    /// When it was to fire.
    pub time: i64,
    /// The key that it was set under.
    pub key: K,
    namespace: Box<[u8]>,
    layout: CompositeLayout,
}

impl<K> DueTimer<K> {
    /// Returns whether it is one of these timers.
    #[must_use]
    pub fn is_of<N>(&self, timers: Timers<N>) -> bool {
        self.slot == timers.slot()
    }

    /// Returns the namespace that it was set in.
    ///
    /// # Errors
    /// `Corrupt` when it was set in a namespace of another type.
    pub fn namespace<N: StateKey>(&self) -> Result<N> {
        let mut input = &self.namespace[..];
        let namespace = self.layout.take_part(&mut input)?;
        state_api::wire::expect_end(input)?;
        Ok(namespace)
    }
}

impl<K: fmt::Debug> fmt::Debug for DueTimer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DueTimer")
            .field("time", &self.time)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// A set of timers with the type of its namespaces hidden, for whoever fires them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnyTimers {
    slot: Slot,
    /// Whether a namespace is followed by its length.
    layout: CompositeLayout,
}

impl<N: StateKey> Timers<N> {
    /// Hides the type of the namespaces.
    #[must_use]
    pub fn erase<K: StateKey>(self) -> AnyTimers {
        AnyTimers {
            slot: self.slot(),
            layout: CompositeLayout::of::<K, N>(),
        }
    }
}

impl<K: StateKey> KeyedStates<K> {
    /// Returns the time of the earliest timer.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn next_timer(&mut self, timers: AnyTimers) -> Result<Option<i64>> {
        let index = position(self.owner, timers.slot)?;
        match &mut self.slots {
            Slots::Live(live) => Ok(live.timers(index)?.peek()),
            Slots::Bytes(bytes) => bytes.next_timer(index),
        }
    }

    /// Takes the earliest timer out if it is due at `up_to` (included).
    ///
    /// # Errors
    /// `Corrupt` when a stored timer makes no sense; those of the backend.
    pub fn pop_due(&mut self, timers: AnyTimers, up_to: i64) -> Result<Option<DueTimer<K>>> {
        let index = position(self.owner, timers.slot)?;
        let popped = match &mut self.slots {
            Slots::Live(live) => live.timers(index)?.pop_due(up_to),
            Slots::Bytes(bytes) => bytes.pop_due(index, up_to)?,
        };
        let Some(popped) = popped else {
            return Ok(None);
        };
        let mut composite = &popped.composite[..];
        let key = timers.layout.take_part(&mut composite)?;
        Ok(Some(DueTimer {
            slot: timers.slot,
            time: popped.time,
            key,
            namespace: composite.into(),
            layout: timers.layout,
        }))
    }
}
