use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use checkpoint_storage::{CheckpointMetadata, LocalCopies};
use futures_channel::oneshot;
use futures_util::future::BoxFuture;
use state_api::{
    Attempt, CheckpointId, Clock, ErrorKind, Executor, JobId, ObjectHandle, OperatorSnapshot,
    Result, SnapshotKind,
};

use super::deletions::{Deletion, Deletions};
use super::inbox::{Inbox, Message};
use super::journal::{Ending, Journal};
use super::launch::Run;
use super::shared::SharedObjects;
use super::{
    CheckpointDone, CheckpointStats, CheckpointStore, ExecutionSettings, Failpoints, JobEvent,
    JobEvents, LoadedCheckpoint, Places, SubtaskRecord, events,
};
use crate::channel::{Barrier, BarrierMode};
use crate::config::CheckpointMode;
use crate::coordinator::{
    Acks, Action, CheckpointCoordinator, CheckpointFailure, CheckpointKind, Fact, FailureReason,
    Outcome, PublishFault, RequestId, SavepointFormat, TaskId,
};
use crate::task::{CheckpointAck, Command, TaskReport};

/// What an action of the coordinator means for the loop of the job.
#[derive(Debug)]
pub(super) enum Effect {
    /// Too many checkpoints failed.
    FailRun(CheckpointFailure),
    /// A newer attempt has taken over.
    Fenced,
    /// A request was answered.
    Replied(
        RequestId,
        std::result::Result<CheckpointId, CheckpointFailure>,
    ),
    /// A checkpoint is complete that the job ends with.
    LastCompleted(CheckpointKind),
    /// Nothing more comes from the coordinator.
    Stopped,
}

/// How the barriers of checkpoints pass queued records.
#[derive(Clone, Copy, Debug)]
pub(super) struct BarrierRules {
    mode: CheckpointMode,
    unaligned: bool,
    timeout_ms: u64,
}

impl BarrierRules {
    pub(super) fn of(settings: &ExecutionSettings) -> Self {
        let timeout = settings.checkpointing.aligned_timeout.as_millis();
        Self {
            mode: settings.mode,
            unaligned: settings.checkpointing.unaligned,
            timeout_ms: u64::try_from(timeout).unwrap_or(u64::MAX),
        }
    }

    /// A checkpoint that ends the job stays in line: what is in flight is processed first.
    fn mode(self, kind: CheckpointKind, snapshot: SnapshotKind) -> BarrierMode {
        let unaligned = self.unaligned && !kind.ends_the_job();
        BarrierMode::of(snapshot, self.mode, unaligned, self.timeout_ms)
    }
}

/// The coordinator with everything that its actions need.
pub(super) struct Coordination {
    pub(super) coordinator: CheckpointCoordinator<CheckpointAck>,
    pub(super) barriers: BarrierRules,
    pub(super) store: Arc<dyn CheckpointStore>,
    pub(super) job: JobId,
    pub(super) attempt: Attempt,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) executor: Arc<dyn Executor>,
    pub(super) events: Arc<dyn JobEvents>,
    pub(super) failpoints: Failpoints,
    pub(super) inbox: Arc<Inbox>,
    /// The checkpoints that exist or are being published.
    pub(super) metadata: BTreeMap<CheckpointId, Arc<CheckpointMetadata>>,
    pub(super) stats: BTreeMap<CheckpointId, CheckpointStats>,
    pub(super) completed: u64,
    pub(super) aborted: u64,
    /// Deletions that have been started and not reported as over.
    pub(super) cleaning: usize,
    /// Rounds of deletions, and other work that the coordinator does not wait for, that have been started and are not over.
    pub(super) draining: usize,
    /// Publications without an answer yet, with whether somebody still wants each.
    pub(super) publishing: BTreeMap<CheckpointId, Arc<AtomicBool>>,
    /// Publications that were given up and have no answer yet, with whether a later checkpoint is complete: what comes of them goes then.
    pub(super) unanswered: BTreeMap<CheckpointId, bool>,
    /// The oldest checkpoint that is kept, or may exist, when the job has ended; `None` when none is.
    pub(super) lowest_kept: Option<CheckpointId>,
    /// What is to be deleted and not gone yet.
    pub(super) deletions: Arc<Deletions>,
    /// Whether left-overs of earlier attempts were cleared away, or are being.
    pub(super) swept: bool,
    pub(super) journal: Rc<RefCell<Journal>>,
    /// Those who wait for the answer to a request.
    pub(super) waiting: BTreeMap<RequestId, oneshot::Sender<Result<CheckpointDone>>>,
    pub(super) requests: u64,
    /// Those who asked the job to stop: they are answered when it has.
    pub(super) parting: Vec<(oneshot::Sender<Result<CheckpointDone>>, CheckpointDone)>,
    /// What pending checkpoints wait for that are about to expire.
    pub(super) overdue: BTreeMap<CheckpointId, String>,
    /// What tasks call the pending checkpoints.
    pub(super) kinds: BTreeMap<CheckpointId, SnapshotKind>,
    /// Which checkpoints use which shared objects.
    pub(super) shared: SharedObjects,
    /// Where the pending savepoints go.
    pub(super) places: Arc<Places>,
    /// Second copies of objects on local disk.
    pub(super) copies: Option<LocalCopies>,
}

impl Coordination {
    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.clock.now_ms()).unwrap_or(0)
    }

    pub(super) fn tell(&self, event: JobEvent) {
        events::record(&event);
        self.events.on_event(&event);
    }

    /// Hands a fact to the coordinator and carries out what follows.
    pub(super) fn handle(&mut self, run: Option<&Run>, fact: Fact<CheckpointAck>) -> Vec<Effect> {
        if matches!(fact, Fact::Cleaned { .. }) {
            self.cleaning = self.cleaning.saturating_sub(1);
        }
        let Some(fact) = self.first_answer(fact) else {
            return Vec::new();
        };
        let fact = self.register(fact);
        match &fact {
            Fact::Ack { task, id, state } if self.coordinator.is_pending(*id) => {
                let record = SubtaskRecord {
                    task: *task,
                    vertex: run.map_or_else(|| "?".into(), |run| run.name_of(*task)),
                    cost: state.report,
                    total_bytes: state.total_bytes(),
                    new_bytes: state.new_bytes(),
                };
                self.journal.borrow_mut().acked(*id, record);
            }
            Fact::Tick => self.note_overdue(run),
            _ => {}
        }
        let mut effects = Vec::new();
        let mut facts = VecDeque::from([fact]);
        while let Some(fact) = facts.pop_front() {
            for action in self.coordinator.handle(self.now_ms(), fact) {
                self.act(run, action, &mut facts, &mut effects);
            }
        }
        for effect in &effects {
            if let Effect::Replied(request, result) = effect {
                self.answer(*request, result);
            }
        }
        effects
    }

    /// Takes note of shared objects in an ack; one that contradicts what is known is a decline.
    fn register(&mut self, fact: Fact<CheckpointAck>) -> Fact<CheckpointAck> {
        let Fact::Ack { task, id, state } = fact else {
            return fact;
        };
        let snapshots = state.operators.iter().map(|(_, snapshot)| &**snapshot);
        match self.shared.acked(id, snapshots) {
            Ok(()) => Fact::Ack { task, id, state },
            Err(error) => Fact::Decline {
                task,
                id,
                reason: FailureReason::Declined,
                detail: error.to_string(),
            },
        }
    }

    /// Takes what a subtask, of an earlier run perhaps, says about a checkpoint.
    pub(super) fn take_report(
        &mut self,
        run: Option<&Run>,
        task: TaskId,
        report: TaskReport,
    ) -> Vec<Effect> {
        match report {
            TaskReport::Ack { id, ack } => self.handle(
                run,
                Fact::Ack {
                    task,
                    id,
                    state: ack,
                },
            ),
            TaskReport::Decline {
                id,
                reason,
                detail,
                orphans,
            } => {
                if !orphans.operators.is_empty() {
                    self.register_orphans(id, &orphans);
                    let snapshots = orphans
                        .operators
                        .into_iter()
                        .map(|(_, snapshot)| snapshot)
                        .collect();
                    self.discard_unpublished(id, snapshots, false);
                }
                self.handle(
                    run,
                    Fact::Decline {
                        task,
                        id,
                        reason,
                        detail,
                    },
                )
            }
            _ => Vec::new(),
        }
    }

    /// Takes note of shared objects that a snapshot wrote before it failed: they go when a later checkpoint completes.
    fn register_orphans(&mut self, id: CheckpointId, orphans: &CheckpointAck) {
        let snapshots = orphans.operators.iter().map(|(_, snapshot)| &**snapshot);
        if let Err(error) = self.shared.acked(id, snapshots) {
            self.tell(JobEvent::Warning(error.with("checkpoint", id)));
        }
    }

    /// Deletes what nobody needs any more now that a checkpoint is complete.
    fn release(&mut self) {
        let lowest = self.coordinator.completed().lowest_id();
        let released = self.shared.release(lowest);
        for id in released.stay {
            // It goes later; nobody need wait for that.
            self.cleaned(id);
        }
        let mut doomed = Vec::new();
        for id in released.checkpoints {
            match self.metadata.remove(&id) {
                Some(metadata) => doomed.push(metadata),
                None => self.cleaned(id),
            }
        }
        if doomed.is_empty() && released.objects.is_empty() {
            return;
        }
        self.delete(doomed, released.objects);
    }

    /// Deletes what is not kept when the job has ended, and tries once more what failed to go before.
    pub(super) fn release_at_stop(&mut self) {
        let released = self.shared.release(self.lowest_kept);
        let doomed = released.checkpoints.iter();
        let doomed: Vec<_> = doomed.filter_map(|id| self.metadata.remove(id)).collect();
        self.delete(doomed, released.objects);
    }

    /// Notes in the store that this attempt has ended.
    pub(super) fn note_end(&mut self) {
        let (store, inbox) = (Arc::clone(&self.store), Arc::clone(&self.inbox));
        self.draining += 1;
        self.executor.spawn_io(Box::pin(async move {
            if let Err(error) = store.end().await {
                // Whoever cleans up has to find out by other means.
                tracing::debug!(%error, "that the job has ended could not be noted");
            }
            inbox.send(Message::Drained);
        }));
    }

    /// Deletes checkpoints that exist, and shared objects, in turn with what is being deleted already.
    fn delete(&mut self, doomed: Vec<Arc<CheckpointMetadata>>, objects: Vec<ObjectHandle>) {
        self.cleaning += doomed.len();
        self.draining += 1;
        // Known before any task deletes anything: whichever is first does the work of all.
        self.deletions.add(doomed, objects);
        let deletions = Arc::clone(&self.deletions);
        let (store, inbox) = (Arc::clone(&self.store), Arc::clone(&self.inbox));
        self.executor.spawn_io(Box::pin(async move {
            let tell = |deletion| match deletion {
                Deletion::Checkpoint(id, error) => {
                    told(error.map_or(Ok(()), Err), Some(id), &inbox);
                    inbox.send(Message::Fact(Fact::Cleaned { id }));
                }
                Deletion::Objects(error) => told(Err(error), None, &inbox),
            };
            deletions.carry_out(store.as_ref(), &tell).await;
            inbox.send(Message::Drained);
        }));
    }

    /// Clears away what killed attempts left behind, once, after the first checkpoint of this attempt was reported.
    ///
    /// A start that finds its checkpoint damaged leaves everything as it was.
    fn sweep(&mut self) {
        if std::mem::replace(&mut self.swept, true) {
            return;
        }
        let (store, inbox) = (Arc::clone(&self.store), Arc::clone(&self.inbox));
        self.draining += 1;
        self.executor.spawn_io(Box::pin(async move {
            told(store.sweep().await, None, &inbox);
            inbox.send(Message::Drained);
        }));
    }

    /// Says that nothing is left to delete of a checkpoint.
    fn cleaned(&mut self, id: CheckpointId) {
        self.cleaning += 1;
        self.inbox.send(Message::Fact(Fact::Cleaned { id }));
    }

    fn act(
        &mut self,
        run: Option<&Run>,
        action: Action<CheckpointAck>,
        facts: &mut VecDeque<Fact<CheckpointAck>>,
        effects: &mut Vec<Effect>,
    ) {
        if let Action::PrepareLocation { id, kind, .. } = &action {
            let lowest = self.coordinator.completed().lowest_id();
            self.shared.began(*id, kind.is_savepoint(), lowest);
        }
        match action {
            Action::PrepareLocation {
                id, kind, target, ..
            } if kind.is_savepoint() => self.prepare_savepoint(id, target),
            Action::PrepareLocation { id, .. } => match self.store.check_fenced() {
                None => facts.push_back(Fact::LocationReady { id }),
                Some(check) => self.prepare(id, check),
            },
            Action::TriggerTasks {
                id,
                kind,
                format,
                full,
                timestamp_ms,
                tasks,
            } => {
                let snapshot_kind = snapshot_kind(kind, format, full);
                let barrier = Barrier {
                    kind: snapshot_kind,
                    last: kind.ends_the_job(),
                    drain: matches!(kind, CheckpointKind::StopWithSavepoint { drain: true }),
                    mode: self.barriers.mode(kind, snapshot_kind),
                    ..Barrier::new(id, i64::try_from(timestamp_ms).unwrap_or(i64::MAX))
                };
                self.kinds.insert(id, barrier.kind);
                for task in tasks {
                    match run.and_then(|run| run.mailboxes.get(&task)) {
                        Some(mailbox) => mailbox.send(Command::Trigger(barrier)),
                        None => facts.push_back(Fact::TriggerFailed {
                            id,
                            detail: format!("task {task} is not running"),
                        }),
                    }
                }
                self.tell(JobEvent::CheckpointTriggered(id));
            }
            Action::Publish {
                id,
                kind,
                timestamp_ms,
                acks,
                ..
            } => match run {
                Some(run) => self.publish(run, id, kind, timestamp_ms, &acks),
                None => facts.push_back(Fact::PublishFailed {
                    id,
                    fault: PublishFault::NotWritten,
                    detail: "the job is not running".into(),
                }),
            },
            // What is on its way to the store can't be called back; the answer decides.
            Action::CancelPublish { id } => self.unwanted(id),
            Action::LeaveBehind { id } => drop(self.places.remove(id)),
            Action::NotifyComplete { id, .. } => {
                to_all(run, Command::Completed(id));
                let known = self.metadata.get(&id);
                if known.is_some_and(|m| !m.kind.is_savepoint()) {
                    self.copies.iter().for_each(|copies| copies.confirm(id));
                    self.sweep();
                }
                self.release();
            }
            Action::NotifyAbort { id, .. } => {
                to_all(run, Command::Aborted(id));
                self.copies.iter().for_each(|copies| copies.abort(id));
            }
            Action::Discard { id, acks } => {
                self.metadata.remove(&id);
                self.discard_unpublished(id, snapshots(&acks), true);
                if let Some(returned) = self.places.remove(id) {
                    let store = Arc::clone(&self.store);
                    let drained = async move {
                        // Dropped unsent: that is the word.
                        returned.await.unwrap_or_default();
                        store.drain_savepoint(id).await
                    };
                    self.clean(id, false, Box::pin(drained));
                }
            }
            Action::DiscardAck { id, ack } => {
                let snapshots = ack
                    .state
                    .operators
                    .into_iter()
                    .map(|(_, snapshot)| snapshot)
                    .collect();
                self.discard_unpublished(id, snapshots, false);
            }
            Action::Retract { id, .. } => {
                drop(self.places.remove(id));
                self.discard(id);
            }
            Action::Overtaken { id } => {
                // One that the store still writes would be found without its objects.
                match self.unanswered.get_mut(&id) {
                    Some(is_overtaken) => {
                        *is_overtaken = true;
                        self.cleaned(id);
                    }
                    None => self.discard(id),
                }
            }
            Action::Subsume { id, delete: true } => self.shared.subsumed(id),
            Action::Subsume { id, delete: false } => drop(self.metadata.remove(&id)),
            Action::ReplyTrigger {
                request,
                mut result,
            } => {
                if let Err(failure) = &mut result {
                    self.explain(failure);
                }
                effects.push(Effect::Replied(request, result));
            }
            Action::FailJob { mut failure } => {
                self.explain(&mut failure);
                effects.push(Effect::FailRun(failure));
            }
            Action::Fenced => effects.push(Effect::Fenced),
            Action::Ended {
                id,
                kind,
                started_ms,
                ended_ms,
                mut outcome,
            } => {
                if let Outcome::Aborted(failure) = &mut outcome {
                    self.explain(failure);
                }
                if outcome == Outcome::Completed && kind.ends_the_job() {
                    effects.push(Effect::LastCompleted(kind));
                }
                let path = self.store.location(id);
                self.ended(Ending {
                    id,
                    kind,
                    started_ms,
                    ended_ms,
                    outcome,
                    bytes: None,
                    path,
                });
            }
            Action::AtStop(verdict) => {
                verdict
                    .delete
                    .iter()
                    .for_each(|id| self.shared.subsumed(*id));
                // What may exist, published without an answer, is the latest for whoever goes on from it.
                let may_exist = self.coordinator.unresolved().iter();
                self.lowest_kept = verdict.keep.iter().chain(may_exist).min().copied();
                self.release_at_stop();
            }
            Action::Stopped => effects.push(Effect::Stopped),
            Action::Remark(remark) => tracing::debug!(?remark, "coordinator"),
        }
    }

    fn ended(&mut self, mut end: Ending) {
        let (id, started_ms, ended_ms) = (end.id, end.started_ms, end.ended_ms);
        self.kinds.remove(&id);
        self.shared.ended(id);
        if end.outcome == Outcome::Completed {
            drop(self.places.remove(id));
            if end.kind.is_bystander() {
                // It is the user's now.
                self.metadata.remove(&id);
            }
        }
        let stats = self.stats.remove(&id);
        end.bytes = stats
            .as_ref()
            .map(|stats| (stats.total_bytes, stats.new_bytes));
        let outcome = end.outcome.clone();
        self.journal.borrow_mut().ended(end);
        match outcome {
            Outcome::Completed => {
                self.completed += 1;
                if let Some(mut stats) = stats {
                    stats.duration_ms = ended_ms.saturating_sub(started_ms);
                    self.tell(JobEvent::CheckpointCompleted(stats));
                }
            }
            Outcome::Aborted(failure) => {
                self.aborted += 1;
                self.tell(JobEvent::CheckpointAborted { id, failure });
            }
        }
    }

    fn prepare(&self, id: CheckpointId, check: BoxFuture<'static, Result<()>>) {
        let inbox = Arc::clone(&self.inbox);
        self.executor.spawn_io(Box::pin(async move {
            let fact = match check.await {
                Ok(()) => Fact::LocationReady { id },
                Err(error) if error.kind() == ErrorKind::Fenced => Fact::Fenced,
                Err(error) => Fact::StorageFailed {
                    id,
                    detail: error.to_string(),
                },
            };
            inbox.send(Message::Fact(fact));
        }));
    }

    fn prepare_savepoint(&self, id: CheckpointId, target: Option<String>) {
        let (store, places, inbox) = (
            Arc::clone(&self.store),
            Arc::clone(&self.places),
            Arc::clone(&self.inbox),
        );
        self.executor.spawn_io(Box::pin(async move {
            let fact = match store.prepare_savepoint(id, target).await {
                Ok(storage) => {
                    places.add(id, storage);
                    Fact::LocationReady { id }
                }
                Err(error) if error.kind() == ErrorKind::Fenced => Fact::Fenced,
                Err(error) => Fact::StorageFailed {
                    id,
                    detail: error.to_string(),
                },
            };
            inbox.send(Message::Fact(fact));
        }));
    }

    pub(super) fn discard(&mut self, id: CheckpointId) {
        let Some(metadata) = self.metadata.remove(&id) else {
            return self.cleaned(id);
        };
        self.delete(vec![metadata], Vec::new());
    }

    fn discard_unpublished(
        &mut self,
        id: CheckpointId,
        snapshots: Vec<Arc<OperatorSnapshot>>,
        answer: bool,
    ) {
        let store = Arc::clone(&self.store);
        self.clean(
            id,
            answer,
            Box::pin(async move { store.discard_unpublished(id, snapshots).await }),
        );
    }

    fn clean(&mut self, id: CheckpointId, answer: bool, work: BoxFuture<'static, Result<()>>) {
        self.cleaning += usize::from(answer);
        self.draining += usize::from(!answer);
        let inbox = Arc::clone(&self.inbox);
        self.executor.spawn_io(Box::pin(async move {
            told(work.await, Some(id), &inbox);
            inbox.send(match answer {
                true => Message::Fact(Fact::Cleaned { id }),
                false => Message::Drained,
            });
        }));
    }

    /// Finds the checkpoint that a restart goes on from; `None` when this attempt has none and was handed none.
    pub(super) fn newest(&self) -> impl Future<Output = Result<Option<LoadedCheckpoint>>> + use<> {
        let store = Arc::clone(&self.store);
        let unresolved: Vec<_> = self.coordinator.unresolved().iter().copied().collect();
        let newest = self.coordinator.completed().latest();
        let newest = newest.and_then(|newest| self.metadata.get(&newest.id).cloned());
        async move {
            // Whether these were published is not known here, but the store knows. What else it holds belongs to other histories.
            for id in unresolved.into_iter().rev() {
                if let Some(found) = store.find_published(id).await? {
                    return Ok(Some(found));
                }
            }
            Ok(newest.map(|metadata| LoadedCheckpoint {
                storage: store.storage_of(metadata.checkpoint),
                metadata,
            }))
        }
    }
}

/// Passes the failure of a deletion on, with the checkpoint if it is of one alone.
fn told(result: Result<()>, of: Option<CheckpointId>, inbox: &Inbox) {
    let Err(error) = result else {
        return;
    };
    if error.kind() == ErrorKind::Fenced {
        inbox.send(Message::Fact(Fact::Fenced));
    } else {
        let error = match of {
            Some(id) => error.with("checkpoint", id),
            None => error,
        };
        inbox.send(Message::Warning(error));
    }
}

/// Returns what tasks and metadata call a kind of checkpoint.
fn snapshot_kind(kind: CheckpointKind, format: SavepointFormat, full: bool) -> SnapshotKind {
    match (kind.is_savepoint(), format) {
        (true, SavepointFormat::Canonical) => SnapshotKind::CanonicalSavepoint,
        (true, SavepointFormat::Native) => SnapshotKind::NativeSavepoint,
        (false, _) if full => SnapshotKind::FullCheckpoint,
        (false, _) => SnapshotKind::Checkpoint,
    }
}

fn snapshots(acks: &Acks<CheckpointAck>) -> Vec<Arc<OperatorSnapshot>> {
    acks.iter()
        .flat_map(|acked| {
            acked
                .state
                .operators
                .iter()
                .map(|(_, snapshot)| Arc::clone(snapshot))
        })
        .collect()
}

pub(super) fn to_all(run: Option<&Run>, command: Command) {
    if let Some(run) = run {
        run.mailboxes
            .values()
            .for_each(|mailbox| mailbox.send(command));
    }
}
