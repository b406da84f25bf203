use std::fmt;
use std::sync::Arc;

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
}

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
        }
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
