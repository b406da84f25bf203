use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use state_api::{CheckpointId, Error, Result};

use super::pending::Pending;
use super::request::RequestQueue;
use super::{
    Acks, Action, CompletedCheckpoint, CompletedCheckpoints, CoordinatorConfig, Fact,
    FailureCounter, JobStatus, PendingView, Plan, Remark,
};

/// What a coordinator starts from when there were checkpoints before.
#[derive(Clone, Debug, Default)]
pub struct Restored {
    /// The completed checkpoints found in the store, in any order.
    pub completed: Vec<CompletedCheckpoint>,
    /// Whether checkpoints must stand alone until one completes: the restored one was not claimed, so nothing may
    /// refer to its objects for good.
    pub full_until_completed: bool,
}

/// Decides when checkpoints begin, complete and end; see the [module](super) for the idea.
///
/// `A` is what an ack carries. It is opaque here and moves through to [`Action::Publish`] or to a discard.
/// The machine is deterministic: the same facts at the same times give the same actions.
pub struct CheckpointCoordinator<A> {
    pub(super) config: CoordinatorConfig,
    pub(super) first_id: CheckpointId,
    pub(super) next_id: CheckpointId,
    pub(super) plan: Option<Plan>,
    pub(super) scheduler_on: bool,
    pub(super) next_periodic_ms: Option<u64>,
    pub(super) queue: RequestQueue,
    pub(super) pending: BTreeMap<CheckpointId, Pending<A>>,
    /// Given up while the metadata was being written; the outcome is outstanding.
    pub(super) abandoned: BTreeMap<CheckpointId, Acks<A>>,
    /// Newer than the last completed one, and nobody knows whether the metadata exists.
    pub(super) unresolved: BTreeSet<CheckpointId>,
    /// Ids of this coordinator whose objects are not ours to delete: savepoints, those left behind, those kept.
    pub(super) untouchable: BTreeSet<CheckpointId>,
    pub(super) cleaning: BTreeSet<CheckpointId>,
    pub(super) completed: CompletedCheckpoints,
    pub(super) failures: FailureCounter,
    pub(super) last_completion_ms: Option<u64>,
    pub(super) force_full: bool,
    /// A checkpoint that ends the job is complete: no other follows.
    pub(super) ended: bool,
    pub(super) life: Life,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Working,
    /// The job has ended; outcomes of publishing are outstanding.
    Stopping(JobStatus),
    Fenced,
    Stopped,
    /// Stopped after a newer attempt took over.
    StoppedFenced,
}

impl<A> CheckpointCoordinator<A> {
    /// Creates a coordinator of a job without checkpoints; `next_id` is the id of the first it begins.
    ///
    /// # Errors
    /// `Config` names a setting out of range; `InvalidArgument` when `next_id` is 0.
    pub fn new(config: CoordinatorConfig, next_id: CheckpointId) -> Result<Self> {
        Self::restored(config, next_id, Restored::default())
    }

    /// Creates a coordinator of a job with checkpoints; `next_id` is above every id ever used.
    ///
    /// # Errors
    /// As [`CheckpointCoordinator::new`], and `InvalidArgument` when `next_id` is not above the restored ids.
    pub fn restored(
        config: CoordinatorConfig,
        next_id: CheckpointId,
        restored: Restored,
    ) -> Result<Self> {
        let config = config.normalised()?;
        if next_id.0 == 0 {
            return Err(Error::invalid("checkpoint ids begin at 1"));
        }
        if let Some(used) = restored
            .completed
            .iter()
            .map(|c| c.id)
            .max()
            .filter(|id| *id >= next_id)
        {
            return Err(
                Error::invalid("the next checkpoint id must be above all that were used")
                    .with("next", next_id)
                    .with("used", used),
            );
        }
        Ok(Self {
            first_id: next_id,
            next_id,
            plan: None,
            scheduler_on: true,
            next_periodic_ms: None,
            queue: RequestQueue::new(config.max_queued),
            pending: BTreeMap::new(),
            abandoned: BTreeMap::new(),
            unresolved: BTreeSet::new(),
            untouchable: BTreeSet::new(),
            cleaning: BTreeSet::new(),
            completed: CompletedCheckpoints::new(config.retained, restored.completed)?,
            failures: FailureCounter::new(config.tolerable_failures),
            last_completion_ms: None,
            force_full: restored.full_until_completed,
            ended: false,
            life: Life::Working,
            config,
        })
    }

    /// Takes in a fact that became known at `now_ms` and returns what to do, in order.
    pub fn handle(&mut self, now_ms: u64, fact: Fact<A>) -> Vec<Action<A>> {
        let mut out = Vec::new();
        match self.life {
            Life::Working | Life::Stopping(_) => self.dispatch(now_ms, fact, &mut out),
            Life::Fenced | Life::Stopped | Life::StoppedFenced => self.turn_away(fact, &mut out),
        }
        if self.life == Life::Working {
            self.start_waiting(now_ms, &mut out);
        }
        if let Life::Stopping(status) = self.life {
            self.end_if_settled(status, &mut out);
        }
        out
    }

    fn dispatch(&mut self, now_ms: u64, fact: Fact<A>, out: &mut Vec<Action<A>>) {
        match fact {
            Fact::Tick => self.on_tick(now_ms, out),
            Fact::Trigger(trigger) => self.on_trigger(now_ms, trigger, out),
            Fact::TasksRunning { plan, random } => self.on_tasks_running(now_ms, plan, random, out),
            Fact::StartScheduler { random } => self.on_start_scheduler(now_ms, random),
            Fact::StopScheduler => self.on_stop_scheduler(now_ms, out),
            Fact::LocationReady { id } => self.on_location_ready(now_ms, id, out),
            Fact::StorageFailed { id, detail } => self.on_storage_failed(now_ms, id, detail, out),
            Fact::TriggerFailed { id, detail } => self.on_trigger_failed(now_ms, id, detail, out),
            Fact::Ack { task, id, state } => self.on_ack(task, id, state, out),
            Fact::Decline {
                task,
                id,
                reason,
                detail,
            } => self.on_decline(now_ms, task, id, reason, detail, out),
            Fact::Seal { id } => self.on_seal(id, out),
            Fact::TaskFinished { task } => self.on_task_finished(now_ms, task, out),
            Fact::TaskFailed { task } => self.on_task_failed(now_ms, task, out),
            Fact::Failover => self.on_failover(now_ms, out),
            Fact::Published { id } => self.on_published(now_ms, id, out),
            Fact::PublishFailed { id, fault, detail } => {
                self.on_publish_failed(now_ms, id, fault, detail, out)
            }
            Fact::Cleaned { id } => {
                self.cleaning.remove(&id);
            }
            Fact::Fenced => self.fence(now_ms, out),
            Fact::Stop { status } => self.on_stop(now_ms, status, out),
        }
    }

    /// Returns the next time at which [`Fact::Tick`] is due, in milliseconds; `None` when nothing is timed.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<u64> {
        let deadlines = self.pending.values().map(|p| p.deadline_ms);
        deadlines.chain(self.next_periodic_ms).min()
    }

    /// Returns what is known of every pending checkpoint, oldest first.
    #[must_use]
    pub fn pending(&self, now_ms: u64) -> Vec<PendingView> {
        self.pending.values().map(|p| p.view(now_ms)).collect()
    }

    /// Tells whether a checkpoint has begun and not ended.
    #[must_use]
    pub fn is_pending(&self, id: CheckpointId) -> bool {
        self.pending.contains_key(&id)
    }

    /// Returns the number of requests that wait for their turn.
    #[must_use]
    pub fn waiting_requests(&self) -> usize {
        self.queue.len()
    }

    /// Returns how many checkpoints are being deleted for whose deletion the waiting requests wait; 0 when nothing waits for that.
    #[must_use]
    pub fn waiting_for_deletions(&self) -> usize {
        if self.queue.len() > 0 && self.too_many_deletions() {
            self.cleaning.len()
        } else {
            0
        }
    }

    /// Tells whether more checkpoints are being deleted than may be pending: no other begins then.
    pub(super) fn too_many_deletions(&self) -> bool {
        self.cleaning.len() > self.config.max_concurrent as usize
    }

    /// Returns the completed checkpoints that are retained.
    #[must_use]
    pub fn completed(&self) -> &CompletedCheckpoints {
        &self.completed
    }

    /// Tells whether no outcome of publishing is outstanding: only then is the newest completed checkpoint final, and
    /// only then may an engine choose what to restore.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.abandoned.is_empty()
            && self
                .pending
                .values()
                .all(|p| p.phase != super::Phase::Publishing)
    }

    /// Returns the checkpoints above the newest completed one that may exist or not; while there are some, a restore
    /// looks into the store instead of trusting [`CheckpointCoordinator::completed`].
    #[must_use]
    pub fn unresolved(&self) -> &BTreeSet<CheckpointId> {
        &self.unresolved
    }

    /// Returns the id that the next checkpoint gets.
    #[must_use]
    pub fn next_id(&self) -> CheckpointId {
        self.next_id
    }

    /// Returns the settings as they are in force.
    #[must_use]
    pub fn config(&self) -> &CoordinatorConfig {
        &self.config
    }

    /// Returns the number of checkpoints whose deletion has not been reported as over.
    #[must_use]
    pub fn cleaning(&self) -> usize {
        self.cleaning.len()
    }

    /// Tells whether an id was given out by this coordinator.
    pub(super) fn began(&self, id: CheckpointId) -> bool {
        (self.first_id..self.next_id).contains(&id)
    }

    /// Remarks on a word about a checkpoint that is not pending.
    pub(super) fn remark_absent(&self, id: CheckpointId, out: &mut Vec<Action<A>>) {
        let remark = if self.began(id) {
            Remark::Late(id)
        } else {
            Remark::UnknownCheckpoint(id)
        };
        out.push(Action::Remark(remark));
    }
}

impl<A> fmt::Debug for CheckpointCoordinator<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckpointCoordinator")
            .field("next_id", &self.next_id)
            .field("pending", &self.pending.keys().collect::<Vec<_>>())
            .field(
                "completed",
                &self
                    .completed
                    .all()
                    .iter()
                    .map(|c| c.id)
                    .collect::<Vec<_>>(),
            )
            .field("waiting", &self.queue.len())
            .field("life", &self.life)
            .finish_non_exhaustive()
    }
}
