use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use state_api::{Clock, SystemClock};
use tokio::runtime::Handle;

use crate::names::UuidSource;
use crate::remote::StoreOptions;
use crate::root::StoreRoot;
use crate::sealed::Protection;

/// What opening a store by URL takes: a runtime that its calls run on, and options.
///
/// A tokio handle alone becomes one with no options set: credentials, region and endpoint then come from where the service's
/// own tools look for them (environment, profile, machine).
#[derive(Clone, Debug)]
pub struct StoreAccess {
    runtime: Handle,
    options: Arc<StoreOptions>,
    pacing: Pacing,
    protection: Arc<Protection>,
}

impl StoreAccess {
    /// Creates an access without options on a runtime, which needs timers and network I/O for stores behind a network.
    #[must_use]
    pub fn new(runtime: Handle) -> Self {
        Self {
            runtime,
            options: Arc::default(),
            pacing: Pacing::default(),
            protection: Arc::default(),
        }
    }

    /// Sets how what is stored is protected, in every folder that is opened with this access.
    #[must_use]
    pub fn with_protection(self, protection: Protection) -> Self {
        Self {
            protection: Arc::new(protection),
            ..self
        }
    }

    /// Returns how what is stored is protected.
    #[must_use]
    pub fn protection(&self) -> &Protection {
        &self.protection
    }

    /// Opens a local folder; see [`StoreRoot::local`].
    ///
    /// # Errors
    /// As there.
    pub(crate) fn local(
        &self,
        folder: impl AsRef<std::path::Path>,
    ) -> state_api::Result<StoreRoot> {
        StoreRoot::local(folder, self.runtime.clone()).map(|root| self.protection.of(root))
    }

    /// Sets the options.
    #[must_use]
    pub fn with_options(self, options: StoreOptions) -> Self {
        Self {
            options: Arc::new(options),
            ..self
        }
    }

    /// Sets what time and chance are for retries.
    #[must_use]
    pub fn with_pacing(self, pacing: Pacing) -> Self {
        Self { pacing, ..self }
    }

    /// Returns the runtime.
    #[must_use]
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Returns the options.
    #[must_use]
    pub fn options(&self) -> &StoreOptions {
        &self.options
    }

    /// Returns what time and chance are for retries.
    #[must_use]
    pub fn pacing(&self) -> &Pacing {
        &self.pacing
    }
}

impl From<Handle> for StoreAccess {
    fn from(runtime: Handle) -> Self {
        Self::new(runtime)
    }
}

impl From<&Handle> for StoreAccess {
    fn from(runtime: &Handle) -> Self {
        Self::new(runtime.clone())
    }
}

impl From<&StoreAccess> for StoreAccess {
    fn from(access: &StoreAccess) -> Self {
        access.clone()
    }
}

type Sleep = dyn Fn(Duration) -> BoxFuture<'static, ()> + Send + Sync;

/// Time and chance for whoever tries again: a clock, randomness and a way to wait.
#[derive(Clone)]
pub struct Pacing {
    clock: Arc<dyn Clock>,
    random: UuidSource,
    sleep: Arc<Sleep>,
}

impl Pacing {
    /// Creates a pacing out of its parts.
    #[must_use]
    pub fn new(
        clock: Arc<dyn Clock>,
        random: UuidSource,
        sleep: impl Fn(Duration) -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) -> Self {
        Self {
            clock,
            random,
            sleep: Arc::new(sleep),
        }
    }

    /// Returns nanoseconds since an arbitrary fixed moment.
    pub(crate) fn now_ns(&self) -> u64 {
        self.clock.monotonic_ns()
    }

    /// Returns the wall-clock time.
    pub(crate) fn now(&self) -> SystemTime {
        let since_epoch = u64::try_from(self.clock.now_ms()).unwrap_or(0);
        SystemTime::UNIX_EPOCH + Duration::from_millis(since_epoch)
    }

    /// Returns a fraction from 0 to 1, 1 excluded.
    pub(crate) fn fraction(&self) -> f64 {
        // 53 bits, as many as a fraction keeps; the low half of a UUID has only random ones behind its variant.
        let bits = self.random.next().as_u128() as u64 & ((1 << 53) - 1);
        bits as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        (self.sleep)(time)
    }
}

impl Default for Pacing {
    /// The machine's clock and randomness, and the timers of the tokio runtime that the calls run on.
    fn default() -> Self {
        Self::new(Arc::new(SystemClock), UuidSource::machine(), |time| {
            tokio::time::sleep(time).boxed()
        })
    }
}

impl fmt::Debug for Pacing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pacing")
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}
