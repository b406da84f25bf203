use std::sync::atomic::{AtomicI64, Ordering};

/// Tells the time to code that must not ask the machine itself.
///
/// # Contract
/// Implemented by the runtime ([`SystemClock`]) and by tests ([`ManualClock`]); called from any thread. `monotonic_ns` never goes back.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Returns the wall-clock time in milliseconds since the Unix epoch.
    fn now_ms(&self) -> i64;

    /// Returns nanoseconds since an arbitrary fixed moment, never going back.
    fn monotonic_ns(&self) -> u64;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

#[expect(
    clippy::disallowed_methods,
    reason = "the one place where the machine's clock enters"
)]
impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX))
    }

    fn monotonic_ns(&self) -> u64 {
        use std::sync::OnceLock;
        use std::time::Instant;
        static START: OnceLock<Instant> = OnceLock::new();
        let elapsed = START.get_or_init(Instant::now).elapsed();
        u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// A clock that moves only when told to; wall-clock and monotonic time move together.
#[derive(Debug, Default)]
pub struct ManualClock {
    now_ms: AtomicI64,
}

impl ManualClock {
    /// Creates a clock that stands at a wall-clock time in milliseconds.
    #[must_use]
    pub fn at(now_ms: i64) -> Self {
        Self {
            now_ms: AtomicI64::new(now_ms),
        }
    }

    /// Sets the wall-clock time in milliseconds.
    pub fn set(&self, now_ms: i64) {
        self.now_ms.store(now_ms, Ordering::SeqCst);
    }

    /// Moves the clock forward by milliseconds.
    pub fn advance(&self, ms: i64) {
        self.now_ms.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.now_ms.load(Ordering::SeqCst)
    }

    fn monotonic_ns(&self) -> u64 {
        u64::try_from(self.now_ms())
            .unwrap_or(0)
            .saturating_mul(1_000_000)
    }
}
