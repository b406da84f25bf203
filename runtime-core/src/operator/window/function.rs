use managed_state::keyed::At;
use state_api::{Result, StateKey, StateType};

use super::TimeWindow;
use crate::operator::{Out, States};
use crate::record::Record;

/// Processes all records of a window together.
///
/// # Contract
/// Implemented by users; called as a [`KeyedOperator`](crate::KeyedOperator) is. The records are kept in a list until the
/// window's time is over: prefer an aggregator where one will do. State names `window`, `window-end` and `sessions` are taken.
pub trait WindowFunction: Clone + Send + Sync + 'static {
    /// What state is keyed by.
    type Key: StateKey;
    /// What comes in.
    type In: Record + StateType;
    /// What goes out.
    type Out: Record;

    /// Registers states of its own, shared by the windows of a key, or one per window with the window as namespace.
    ///
    /// # Errors
    /// Those of registration.
    fn open(&mut self, states: &mut States<'_, Self::Key>) -> Result<()> {
        let _ = states;
        Ok(())
    }

    /// Processes the records of a window in the order in which they came; again for each record that comes late but in time for
    /// the allowed lateness. What it emits has the window's last millisecond as event time.
    ///
    /// # Errors
    /// Any: the job fails.
    fn process(
        &mut self,
        window: TimeWindow,
        records: Vec<Self::In>,
        at: &mut At<'_, Self::Key>,
        out: &mut Out<'_, Self::Out>,
    ) -> Result<()>;

    /// Removes states of its own that lie in a window's namespace; called when the window's time is over.
    ///
    /// # Errors
    /// Any: the job fails.
    fn clear(&mut self, window: TimeWindow, at: &mut At<'_, Self::Key>) -> Result<()> {
        let _ = (window, at);
        Ok(())
    }
}
