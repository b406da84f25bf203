use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use managed_state::keyed::{AnyTimers, KeyedStates, Timers};
use state_api::{Result, StateKey, Subtask};

/// The timers of an operator by what makes them fire.
#[derive(Clone, Debug, Default)]
pub(crate) struct RegisteredTimers {
    /// Fired by watermarks.
    pub(crate) event: Vec<AnyTimers>,
    /// Fired by the clock.
    pub(crate) processing: Vec<AnyTimers>,
}

/// What a keyed operator registers its states and timers on, before the first record.
///
/// Registration is that of [`KeyedStates`], to which this dereferences.
pub struct States<'a, K> {
    keyed: &'a mut KeyedStates<K>,
    timers: &'a mut RegisteredTimers,
    subtask: Subtask,
}

impl<'a, K: StateKey> States<'a, K> {
    pub(crate) fn new(
        keyed: &'a mut KeyedStates<K>,
        timers: &'a mut RegisteredTimers,
        subtask: Subtask,
    ) -> Self {
        Self {
            keyed,
            timers,
            subtask,
        }
    }

    /// Registers timers in event time: they fire when the watermark reaches them.
    ///
    /// # Errors
    /// `AlreadyExists` when the name is taken, `Incompatible` when restored timers have another namespace.
    pub fn event_timers<N: StateKey>(&mut self, name: impl Into<Arc<str>>) -> Result<Timers<N>> {
        let timers = self.keyed.timers(name)?;
        self.timers.event.push(timers.erase::<K>());
        Ok(timers)
    }

    /// Registers timers in processing time: they fire when the clock reaches them.
    ///
    /// # Errors
    /// As [`event_timers`](Self::event_timers).
    pub fn processing_timers<N: StateKey>(
        &mut self,
        name: impl Into<Arc<str>>,
    ) -> Result<Timers<N>> {
        let timers = self.keyed.timers(name)?;
        self.timers.processing.push(timers.erase::<K>());
        Ok(timers)
    }

    /// Returns the subtask that the operator runs in.
    #[must_use]
    pub fn subtask(&self) -> Subtask {
        self.subtask
    }
}

impl<K> Deref for States<'_, K> {
    type Target = KeyedStates<K>;

    fn deref(&self) -> &KeyedStates<K> {
        self.keyed
    }
}

impl<K> DerefMut for States<'_, K> {
    fn deref_mut(&mut self) -> &mut KeyedStates<K> {
        self.keyed
    }
}
