//! Values with and without the time of their last renewal, behind one trait: the rules of time-to-live are written once.

use std::sync::Arc;

use state_api::{Clock, TtlConfig};

/// A stored value of type `T`, with or without a timestamp.
pub(crate) trait Stamped<T>: Clone + Send + Sync + 'static {
    /// Whether there is a timestamp.
    const TIMED: bool;

    fn new(value: T, now_ms: i64) -> Self;
    fn value(&self) -> &T;
    fn value_mut(&mut self) -> &mut T;
    fn into_value(self) -> T;
    /// Time of the last renewal; 0 without a timestamp.
    fn stamp(&self) -> i64;
    fn renew(&mut self, now_ms: i64);
}

/// A value without a timestamp; costs nothing over the bare value.
#[derive(Clone, Debug)]
pub(crate) struct Plain<T>(pub(crate) T);

impl<T: Clone + Send + Sync + 'static> Stamped<T> for Plain<T> {
    const TIMED: bool = false;

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn new(value: T, _now_ms: i64) -> Self {
        Self(value)
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn value(&self) -> &T {
        &self.0
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn value_mut(&mut self) -> &mut T {
        &mut self.0
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn into_value(self) -> T {
        self.0
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn stamp(&self) -> i64 {
        0
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn renew(&mut self, _now_ms: i64) {}
}

/// A value with the time of its last renewal.
#[derive(Clone, Debug)]
pub(crate) struct Timed<T> {
    value: T,
    stamp_ms: i64,
}

impl<T: Clone + Send + Sync + 'static> Stamped<T> for Timed<T> {
    const TIMED: bool = true;

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn new(value: T, now_ms: i64) -> Self {
        Self {
            value,
            stamp_ms: now_ms,
        }
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn value(&self) -> &T {
        &self.value
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn value_mut(&mut self) -> &mut T {
        &mut self.value
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn into_value(self) -> T {
        self.value
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn stamp(&self) -> i64 {
        self.stamp_ms
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn renew(&mut self, now_ms: i64) {
        self.stamp_ms = now_ms;
    }
}

/// The time-to-live of a state together with the clock it goes by; empty for plain states.
#[derive(Clone, Debug)]
pub(crate) struct Expiry {
    config: Option<TtlConfig>,
    clock: Arc<dyn Clock>,
}

impl Expiry {
    pub(crate) fn new(config: Option<TtlConfig>, clock: Arc<dyn Clock>) -> Self {
        Self { config, clock }
    }

    pub(crate) fn config(&self) -> Option<&TtlConfig> {
        self.config.as_ref()
    }

    /// Returns the time for a stamp; the clock is read only if the value has one.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn now<T, S: Stamped<T>>(&self) -> i64 {
        if S::TIMED { self.clock.now_ms() } else { 0 }
    }

    pub(crate) fn clock_now(&self) -> i64 {
        self.clock.now_ms()
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn is_expired<T, S: Stamped<T>>(&self, stored: &S, now_ms: i64) -> bool {
        S::TIMED
            && self
                .config
                .is_some_and(|ttl| ttl.is_expired(stored.stamp(), now_ms))
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn renews_on_read<T, S: Stamped<T>>(&self) -> bool {
        S::TIMED && self.config.is_some_and(|ttl| ttl.renews_on_read())
    }

    pub(crate) fn returns_expired(&self) -> bool {
        self.config.is_some_and(|ttl| ttl.returns_expired())
    }
}
