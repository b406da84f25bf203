//! What the operators of a job register, found out by opening them where nothing is restored and nothing is kept.
use std::collections::BTreeMap;

use futures_util::future::LocalBoxFuture;
use managed_state::operator::OperatorStates;
use state_api::{
    BackendContext, BackendFactory, Error, FrozenTables, KeyedBackend, KeyedHandle, LiveSnapshots,
    LoadTables, OperatorStateMode, OperatorUid, RestoreContext, Result, Snapshot, SnapshotRequest,
    StateMeta,
};

/// The states that operators registered.
#[derive(Debug, Default)]
pub(crate) struct Declared(pub(crate) BTreeMap<OperatorUid, DeclaredStates>);

/// The states of one operator.
#[derive(Debug, Default)]
pub(crate) struct DeclaredStates {
    /// Keyed states and timers; `None` for an operator that has no keys.
    pub(crate) keyed: Option<Vec<StateMeta>>,
    /// Operator and broadcast states.
    pub(crate) operator: Vec<(StateMeta, OperatorStateMode)>,
    /// Why there may be more.
    pub(crate) failed: Option<Error>,
}

impl Declared {
    /// Takes note of an operator's own states, and of how its opening went.
    pub(crate) fn operator(
        &mut self,
        uid: &OperatorUid,
        opened: Result<()>,
        states: &OperatorStates,
    ) {
        let declared = self.0.entry(uid.clone()).or_default();
        declared.operator = states.descriptions();
        declared.failed = opened.err();
    }

    /// Takes note of keyed states and timers.
    pub(crate) fn keyed(&mut self, uid: &OperatorUid, states: Vec<StateMeta>) {
        self.0.entry(uid.clone()).or_default().keyed = Some(states);
    }
}

/// The backend of states that are only registered.
pub(crate) struct NothingKept;

impl LiveSnapshots for NothingKept {
    fn snapshot(
        &mut self,
        _request: &SnapshotRequest,
        _tables: Box<dyn FrozenTables>,
    ) -> Result<Box<dyn Snapshot<Vec<KeyedHandle>>>> {
        Err(Error::bug(
            "states that are only registered have no snapshot",
        ))
    }

    fn restore<'a>(
        &'a mut self,
        _handles: &'a [KeyedHandle],
        _cx: &'a RestoreContext,
        _into: &'a mut dyn LoadTables,
    ) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

impl BackendFactory for NothingKept {
    fn name(&self) -> &str {
        "nothing kept"
    }

    fn create(&self, _cx: &BackendContext) -> Result<KeyedBackend> {
        Ok(KeyedBackend::Live(Box::new(NothingKept)))
    }
}
