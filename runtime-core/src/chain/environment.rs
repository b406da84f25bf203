use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use checkpoint_storage::{InputEnd, LocalCopies, RestoringStorage};
use futures_util::FutureExt;
use managed_state::operator::OperatorStates;
use state_api::{
    Attempt, BackendFactory, CheckpointId, CheckpointStorage, Clock, Error, Executor, JobId,
    MaxParallelism, ObjectCacheBudget, OperatorSnapshot, OperatorUid, RestoreContext, Result,
    Subtask,
};

use super::input_end::ToldOfEnd;
use crate::channel::{Barrier, Signal};
use crate::config::CheckpointMode;
use crate::execution::{Failpoints, Places};
use crate::job::RunPlan;

/// The state of a checkpoint that one subtask starts from, dealt out to it.
#[derive(Clone, Debug)]
pub(crate) struct RestoredState {
    pub(crate) checkpoint: CheckpointId,
    /// The operators that the checkpoint knows, with this subtask's part.
    pub(crate) operators: BTreeMap<OperatorUid, OperatorSnapshot>,
    /// What they had been told of the end of their input.
    pub(crate) input_ends: BTreeMap<OperatorUid, InputEnd>,
}

/// What a subtask is given by those who start it.
#[derive(Clone)]
pub(crate) struct Environment {
    pub(crate) job: JobId,
    pub(crate) attempt: Attempt,
    /// Counts restarts within the attempt.
    pub(crate) run: u32,
    pub(crate) subtask: Subtask,
    /// The operators of the chain that a checkpoint may have state of.
    pub(crate) uids: Arc<[OperatorUid]>,
    /// The shape of the job, by vertex.
    pub(crate) plan: RunPlan,
    pub(crate) max_parallelism: MaxParallelism,
    pub(crate) mode: CheckpointMode,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) signal: Arc<Signal>,
    /// Set when an output of the subtask has no room.
    pub(crate) congested: Rc<Cell<bool>>,
    pub(crate) storage: Arc<dyn CheckpointStorage>,
    /// Where savepoints go.
    pub(crate) places: Arc<Places>,
    pub(crate) restore_storage: Arc<RestoringStorage>,
    /// Second copies of objects on local disk.
    pub(crate) copies: Option<LocalCopies>,
    pub(crate) executor: Arc<dyn Executor>,
    pub(crate) backend: Arc<dyn BackendFactory>,
    pub(crate) backend_options: Arc<BTreeMap<String, String>>,
    pub(crate) local_dir: PathBuf,
    pub(crate) memory_limit: Option<usize>,
    pub(crate) object_cache: Option<Arc<ObjectCacheBudget>>,
    /// Mixed into the hash of live tables.
    pub(crate) seed: u64,
    pub(crate) restored: Option<Arc<RestoredState>>,
    pub(crate) failpoints: Failpoints,
}

impl Environment {
    /// Returns the checkpoint that the job was restored from, if it knows the operator, with this subtask's part.
    pub(crate) fn restored(&self, uid: &OperatorUid) -> Option<(CheckpointId, &OperatorSnapshot)> {
        let restored = self.restored.as_ref()?;
        restored
            .operators
            .get(uid)
            .map(|snapshot| (restored.checkpoint, snapshot))
    }

    /// Returns what an operator had been told of the end of its input by that checkpoint.
    pub(crate) fn told_of_end(&self, uid: &OperatorUid) -> ToldOfEnd {
        let restored = self.restored.as_ref();
        let told = restored.and_then(|restored| restored.input_ends.get(uid));
        ToldOfEnd::restored(told.copied().unwrap_or_default())
    }

    /// Returns what the snapshot of a checkpoint is written to; `None` for a savepoint that was given up.
    pub(crate) fn storage_for(&self, barrier: &Barrier) -> Option<Arc<dyn CheckpointStorage>> {
        if barrier.kind.is_savepoint() {
            self.places.of(barrier.id)
        } else {
            Some(Arc::clone(&self.storage))
        }
    }

    /// Lets states know that they are restored, if those of the operator are, without anything in them.
    pub(crate) fn restore_nothing(
        &self,
        uid: &OperatorUid,
        states: &mut OperatorStates,
    ) -> Result<()> {
        match self.restored(uid) {
            Some(_) => self.at_once(states.restore(&[], &self.restore_context())),
            None => Ok(()),
        }
    }

    /// Takes the result of a future that has nothing to wait for.
    pub(crate) fn at_once(&self, future: impl Future<Output = Result<()>>) -> Result<()> {
        let waits = || Err(Error::bug("restoring nothing waits for something"));
        future.now_or_never().unwrap_or_else(waits)
    }

    pub(crate) fn restore_context(&self) -> RestoreContext {
        RestoreContext {
            storage: Arc::clone(&self.restore_storage) as Arc<dyn CheckpointStorage>,
            executor: Arc::clone(&self.executor),
        }
    }
}
