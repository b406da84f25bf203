use std::sync::{Mutex, MutexGuard, PoisonError};

/// Requests that are being answered.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    /// Now, and the most of them at once.
    numbers: Mutex<(usize, usize)>,
}

/// One of them, until it is dropped.
pub(crate) struct InFlight<'a>(&'a Gauge);

impl Gauge {
    pub(crate) fn begin(&self) -> InFlight<'_> {
        let mut numbers = self.numbers();
        numbers.0 += 1;
        numbers.1 = numbers.1.max(numbers.0);
        InFlight(self)
    }

    /// Returns the most at once since the last call.
    pub(crate) fn take_most(&self) -> usize {
        let mut numbers = self.numbers();
        let now = numbers.0;
        std::mem::replace(&mut numbers.1, now)
    }

    fn numbers(&self) -> MutexGuard<'_, (usize, usize)> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.numbers().0 -= 1;
    }
}
