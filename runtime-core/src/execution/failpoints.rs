use std::fmt;
use std::sync::Arc;

use crate::chain::link::Head;

/// A moment of a checkpoint or a restore at which a crash test may strike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failpoint {
    /// A subtask waits for barriers of other channels.
    Aligning,
    /// A subtask is about to freeze its state.
    Sync,
    /// The async part of a subtask's snapshot is about to write.
    Async,
    /// The metadata is about to be published.
    Publish,
    /// A sink is about to commit.
    Commit,
    /// A restored source is about to read on; answering `true` loses one record.
    ReplaySkip,
    /// A sink is about to carry transactions of a given up checkpoint into the next; answering `true` loses them.
    CarryOver,
    /// Restored records that were in flight are about to be processed; answering `true` loses them.
    InFlight,
}

/// A hook that is called at each [`Failpoint`]; without one, nothing is.
#[derive(Clone, Default)]
pub struct Failpoints {
    hook: Option<Arc<dyn Fn(Failpoint) -> bool + Send + Sync>>,
    #[cfg(feature = "testing")]
    around: Option<Arc<AroundChain>>,
}

/// Puts something around the chain of a subtask.
#[cfg(feature = "testing")]
type AroundChain = dyn Fn(Box<dyn Head>) -> Box<dyn Head> + Send + Sync;

impl Failpoints {
    /// Creates the points without a hook.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Creates the points with a hook; what it returns matters where the [`Failpoint`] says so.
    #[must_use]
    pub fn new(hook: impl Fn(Failpoint) -> bool + Send + Sync + 'static) -> Self {
        Self {
            hook: Some(Arc::new(hook)),
            #[cfg(feature = "testing")]
            around: None,
        }
    }

    /// Sets what is put around the chain of each subtask.
    #[cfg(feature = "testing")]
    #[must_use]
    pub(crate) fn around_chains(
        mut self,
        around: impl Fn(Box<dyn Head>) -> Box<dyn Head> + Send + Sync + 'static,
    ) -> Self {
        self.around = Some(Arc::new(around));
        self
    }

    /// Puts around a chain what was set.
    pub(crate) fn around_chain(&self, chain: Box<dyn Head>) -> Box<dyn Head> {
        #[cfg(feature = "testing")]
        if let Some(around) = &self.around {
            return around(chain);
        }
        chain
    }

    /// Calls the hook.
    #[inline]
    pub(crate) fn reach(&self, point: Failpoint) -> bool {
        self.hook.as_ref().is_some_and(|hook| hook(point))
    }
}

impl fmt::Debug for Failpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failpoints")
            .field("set", &self.hook.is_some())
            .finish()
    }
}
