use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use state_api::{BackendFactory, OperatorSnapshot, Result};

use super::KeyedHarness;
use crate::operator::{Side, TwoInputOperator, TwoInputs};
use crate::record::NO_TIMESTAMP;

/// Runs one subtask of a keyed operator with two inputs without a job.
///
/// Time, snapshots and outputs are those of the [`KeyedHarness`] to which this dereferences; its watermark is that of both inputs.
pub struct TwoInputHarness<O: TwoInputOperator> {
    harness: KeyedHarness<TwoInputs<O>>,
}

impl<O: TwoInputOperator> TwoInputHarness<O> {
    /// Starts an operator with empty state, as the only subtask.
    ///
    /// # Errors
    /// Those of the backend and of the operator's `open`.
    pub fn start(operator: O, backend: Arc<dyn BackendFactory>) -> Result<Self> {
        KeyedHarness::start(TwoInputs(operator), backend).map(|harness| Self { harness })
    }

    /// Starts as many subtasks as `parallelism` says from the snapshots of earlier ones, in their order.
    ///
    /// # Errors
    /// Those of the backend and of the operator's `open`.
    pub fn restore(
        operator: O,
        backend: Arc<dyn BackendFactory>,
        snapshots: &[OperatorSnapshot],
        parallelism: u32,
    ) -> Result<Vec<Self>> {
        let harnesses =
            KeyedHarness::restore(TwoInputs(operator), backend, snapshots, parallelism)?;
        let wrap = |harness| Self { harness };
        Ok(harnesses.into_iter().map(wrap).collect())
    }

    /// Processes a record of the first input, with an event time in milliseconds if it has one.
    ///
    /// # Errors
    /// Those of the operator.
    pub fn process_first(
        &mut self,
        key: O::Key,
        record: O::First,
        time_ms: Option<i64>,
    ) -> Result<()> {
        let time = time_ms.unwrap_or(NO_TIMESTAMP);
        self.harness.process_at(key, Side::First(record), time)
    }

    /// Processes a record of the second input, with an event time in milliseconds if it has one.
    ///
    /// # Errors
    /// Those of the operator.
    pub fn process_second(
        &mut self,
        key: O::Key,
        record: O::Second,
        time_ms: Option<i64>,
    ) -> Result<()> {
        let time = time_ms.unwrap_or(NO_TIMESTAMP);
        self.harness.process_at(key, Side::Second(record), time)
    }
}

impl<O: TwoInputOperator> Deref for TwoInputHarness<O> {
    type Target = KeyedHarness<TwoInputs<O>>;

    fn deref(&self) -> &Self::Target {
        &self.harness
    }
}

impl<O: TwoInputOperator> DerefMut for TwoInputHarness<O> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.harness
    }
}
