use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::pending;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use checkpoint_storage::Ownership;
use futures_util::future::{Either, select};
use state_api::{Attempt, CheckpointId, CheckpointStorage, Error, ErrorKind, Executor, Result};

use super::control::Ask;
use super::coordination::{BarrierRules, Coordination, Effect};
use super::inbox::{Inbox, Message};
use super::journal::Journal;
use super::launch::{Host, Run, RunStart};
use super::local_copies;
use super::run_tasks::{RunEnd, RunTasks};
use super::shared::SharedObjects;
use super::{
    ExecutionSettings, JobEvent, JobOutcome, JobParts, JobState, LoadedCheckpoint,
    MemoryCheckpoints, ReadBytes, RestoreFrom, RestoredFrom, events,
};
use crate::CheckpointStore;
use crate::config::{CheckpointMode, ClaimMode};
use crate::coordinator::{
    CheckpointCoordinator, CheckpointKind, CompletedCheckpoint, CoordinatorConfig, Fact, JobStatus,
    Restored, TaskId,
};
use crate::job::Job;
use crate::random::Random;
use crate::restart::{RestartDecision, Restarts};
use crate::task::{CheckpointAck, TaskReport};

/// Milliseconds between two tries of the final checkpoint.
const FINAL_RETRY_MS: i64 = 100;

/// Milliseconds that the end of a run waits to learn whether a checkpoint exists that is being published; then the store is asked.
const OUTCOME_MS: i64 = 30_000;

/// Milliseconds that the end of a job waits for that.
const LAST_OUTCOME_MS: i64 = 5_000;

/// Milliseconds that the end of a job waits for the store in all: for that, for deletions, and for the note that it has ended.
const LAST_MS: i64 = 10_000;

/// Closes the inbox of a loop that has ended, however it did: those who wait for answers learn of it.
struct Closing(Arc<Inbox>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// What every run of an attempt begins with.
struct Start {
    attempt: Attempt,
    /// Where subtasks write to.
    storage: Arc<dyn CheckpointStorage>,
    /// What the job started from.
    initial: Option<LoadedCheckpoint>,
}

/// How a wait for the store, before the first run or between two, ended.
enum Waited<T> {
    /// What was waited for is done, or its time has come.
    Over(Option<T>),
    Cancelled,
    Fenced,
}

/// Runs a job to its end: run after run, each from the latest completed checkpoint.
pub(crate) struct Master<'a> {
    pub(crate) job: &'a Job,
    pub(crate) settings: &'a ExecutionSettings,
    pub(crate) parts: &'a JobParts,
    pub(crate) executor: Arc<dyn Executor>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) host: &'a mut dyn Host,
    pub(crate) random: Random,
}

impl Master<'_> {
    /// # Errors
    /// The last run's failure when no restart follows; `Fenced` when a newer attempt has taken over.
    pub(crate) async fn run(mut self) -> Result<JobOutcome> {
        let _closing = Closing(Arc::clone(&self.inbox));
        self.job.check()?;
        if self.settings.checkpointing.unaligned
            && self.settings.mode == CheckpointMode::AtLeastOnce
        {
            return Err(Error::config(
                "unaligned checkpoints need the mode exactly once",
            ));
        }
        if !self.settings.checkpointing.after_tasks_finish {
            return Err(Error::config(
                "checkpoints that end with the first task are not offered: subtasks whose input has ended take part in them until the job ends",
            )
            .with(
                "option",
                "execution.checkpointing.checkpoints-after-tasks-finish",
            ));
        }
        let mut restarts = Restarts::new(self.settings.restart.clone())?;
        let journal = Rc::new(RefCell::new(Journal::new(
            self.settings.job_id.clone(),
            self.parts.clock.now_ms(),
            self.settings.history,
        )));
        let prepared = self.prepare(&journal);
        let prepared = self.meanwhile(prepared, None, None, &journal).await;
        let (attempt, storage, mut coordination, initial) = match prepared {
            Waited::Over(Some(prepared)) => prepared?,
            Waited::Cancelled => {
                self.end_early(&journal).await;
                return self.ended(JobStatus::Cancelled, None, 0).await;
            }
            Waited::Fenced | Waited::Over(None) => return Err(fenced()),
        };
        if let Some(coordination) = &mut coordination {
            coordination.copies = local_copies::open(self.settings, &self.executor, &self.inbox);
        }
        let start = Start {
            attempt,
            storage,
            initial,
        };
        let mut found: Result<_> = Ok(start.initial.clone());
        let mut run = 0;
        loop {
            let end = match found {
                Ok(restored) => {
                    self.run_from(run, &start, restored, coordination.as_mut(), &journal)
                        .await
                }
                Err(error) if error.kind() == ErrorKind::Fenced => RunEnd::Fenced,
                Err(error) => RunEnd::Failed(error),
            };
            let error = match end {
                RunEnd::Suspended => {
                    return self.ended(JobStatus::Suspended, coordination, run).await;
                }
                RunEnd::Finished => {
                    return self.ended(JobStatus::Finished, coordination, run).await;
                }
                RunEnd::Cancelled(failed) => {
                    if let Some(error) = failed {
                        self.tell(JobEvent::RunFailed {
                            error,
                            restart_in_ms: None,
                        });
                    }
                    return self.ended(JobStatus::Cancelled, coordination, run).await;
                }
                RunEnd::Fenced => return Err(fenced()),
                RunEnd::Failed(error) => error,
            };
            if let Some(coordination) = &mut coordination {
                coordination.part(Some(&error.to_string()));
            }
            let random = self.random.next();
            let now_ms = self.parts.clock.now_ms();
            match restarts.on_error(u64::try_from(now_ms).unwrap_or(0), &error, random) {
                RestartDecision::GiveUp { why } => {
                    tracing::error!(why, "the job has failed");
                    self.tell(JobEvent::RunFailed {
                        error: copy_of(&error),
                        restart_in_ms: None,
                    });
                    drop(self.ended(JobStatus::Failed, coordination, run).await);
                    return Err(error);
                }
                RestartDecision::Restart { after, .. } => {
                    let after_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
                    let reason = error.to_string();
                    self.tell(JobEvent::RunFailed {
                        error,
                        restart_in_ms: Some(after_ms),
                    });
                    let until = now_ms.saturating_add(i64::try_from(after_ms).unwrap_or(i64::MAX));
                    journal.borrow_mut().state = JobState::Restarting {
                        reason,
                        failed_ms: now_ms,
                        restart_ms: until,
                    };
                    let pause = pending::<()>();
                    let paused = self
                        .meanwhile(pause, Some(until), coordination.as_mut(), &journal)
                        .await;
                    match paused {
                        Waited::Over(_) => {}
                        Waited::Cancelled => {
                            return self.ended(JobStatus::Cancelled, coordination, run).await;
                        }
                        Waited::Fenced => return Err(fenced()),
                    }
                }
            }
            found = Ok(None);
            if let Some(known) = &mut coordination {
                let newest = known.newest();
                match self.meanwhile(newest, None, Some(known), &journal).await {
                    Waited::Over(newest) => {
                        let newest = newest.unwrap_or(Ok(None));
                        if let Ok(Some(newest)) = &newest {
                            // That it is there is the answer.
                            known.unanswered.remove(&newest.metadata.checkpoint);
                        }
                        found = newest.map(|newest| newest.or_else(|| start.initial.clone()));
                    }
                    Waited::Cancelled => {
                        return self.ended(JobStatus::Cancelled, coordination, run).await;
                    }
                    Waited::Fenced => return Err(fenced()),
                }
            }
            run += 1;
        }
    }

    /// Starts the subtasks of a run and goes on until it has ended.
    async fn run_from(
        &mut self,
        run: u32,
        start: &Start,
        restored: Option<LoadedCheckpoint>,
        coordination: Option<&mut Coordination>,
        journal: &RefCell<Journal>,
    ) -> RunEnd {
        let of = |loaded: &LoadedCheckpoint| {
            let metadata = &loaded.metadata;
            (metadata.job.clone(), metadata.attempt, metadata.checkpoint)
        };
        let initial = start.initial.as_ref();
        {
            let mut journal = journal.borrow_mut();
            (journal.attempt, journal.run, journal.state) =
                (start.attempt, run, JobState::Starting);
            journal.restored = restored.as_ref().map(|restored| {
                let id = restored.metadata.checkpoint;
                let first = initial.map(|i| i.metadata.checkpoint) == Some(id);
                let store = coordination.as_ref().map(|c| &c.store);
                let path = match &self.settings.restore {
                    RestoreFrom::Path(path) if first => Some(path.clone()),
                    _ => store.and_then(|store| store.location(id)),
                };
                let read = ReadBytes::default();
                RestoredFrom { id, path, read }
            });
        }
        let copies = coordination.as_ref().and_then(|c| c.copies.clone());
        if let Some(copies) = &copies {
            local_copies::start_from(copies, restored.as_ref().map(|r| r.metadata.as_ref()));
        }
        let started = RunStart {
            job: self.job,
            settings: self.settings,
            parts: self.parts,
            executor: Arc::clone(&self.executor),
            storage: Arc::clone(&start.storage),
            places: coordination
                .as_ref()
                .map_or_else(Arc::default, |c| Arc::clone(&c.places)),
            copies,
            attempt: start.attempt,
            run,
            restored: restored.as_ref(),
            first: restored.as_ref().map(of) == initial.map(of),
            tell: &|event| {
                events::record(&event);
                self.parts.events.on_event(&event);
            },
            inbox: &self.inbox,
        };
        self.tell(JobEvent::RunStarted {
            attempt: start.attempt,
            run,
            restored: restored.as_ref().map(|r| r.metadata.checkpoint),
        });
        let end = match started.launch(self.host) {
            Ok(launched) => {
                self.drive(run, launched, restored.as_ref(), coordination, journal)
                    .await
            }
            Err(error) => RunEnd::Failed(error),
        };
        self.host.run_ended();
        end
    }

    fn tell(&self, event: JobEvent) {
        events::record(&event);
        self.parts.events.on_event(&event);
    }

    /// Takes an attempt number, finds the checkpoint to start from, and makes the coordinator.
    async fn prepare(
        &self,
        journal: &Rc<RefCell<Journal>>,
    ) -> Result<(
        Attempt,
        Arc<dyn CheckpointStorage>,
        Option<Coordination>,
        Option<LoadedCheckpoint>,
    )> {
        if self.settings.claim == ClaimMode::Legacy {
            return Err(Error::config(
                "execution.state-recovery.claim-mode = LEGACY is not offered: checkpoints would refer to files that nobody owns, and break when those are deleted; use NO_CLAIM or CLAIM",
            )
            .with("option", "execution.state-recovery.claim-mode"));
        }
        let Some(store) = &self.parts.checkpoints else {
            if let RestoreFrom::Path(path) = &self.settings.restore {
                return Err(Error::config(
                    "a checkpoint to restore is named, but no checkpoint storage",
                )
                .with("path", path));
            }
            let nowhere = MemoryCheckpoints::new().storage();
            return Ok((Attempt(1), nowhere, None, None));
        };
        let start = store.start().await?;
        if !self.settings.restore_only.is_empty()
            && !matches!(self.settings.restore, RestoreFrom::Path(_))
        {
            return Err(Error::config(
                "restoring only some operators needs a checkpoint that is named by its path: otherwise each start would reset the others again",
            )
            .with("option", "execution.state-recovery.restore-only"));
        }
        let claims = self.settings.claim == ClaimMode::Claim;
        let restored = match &self.settings.restore {
            RestoreFrom::Path(path) if claims => Some(store.claim(path).await?),
            from => store.load(from).await?,
        };
        // What this start does not build upon is left alone.
        let (known, ownership) = match (&self.settings.restore, &restored) {
            (RestoreFrom::Latest, _) => (start.completed, Ownership::Own),
            (RestoreFrom::Path(_), Some(claimed)) if claims => {
                (vec![Arc::clone(&claimed.metadata)], Ownership::Claimed)
            }
            _ => (Vec::new(), Ownership::NotClaimed),
        };
        let mut shared = SharedObjects::default();
        known
            .iter()
            .try_for_each(|metadata| shared.restored(metadata, ownership))?;
        if let (Ownership::NotClaimed, Some(restored)) = (ownership, &restored) {
            shared.restored(&restored.metadata, ownership)?;
        }
        let retention = self.settings.checkpointing.retention;
        let completed = known.iter().map(|metadata| {
            let created_ms = u64::try_from(metadata.created_ms).unwrap_or(0);
            CompletedCheckpoint {
                id: metadata.checkpoint,
                kind: CheckpointKind::Checkpoint,
                retention,
                owned: true,
                timestamp_ms: created_ms,
                completed_ms: created_ms,
            }
        });
        // A savepoint leaves no trace in the folder of checkpoints.
        let after = |loaded: &LoadedCheckpoint| {
            CheckpointId(loaded.metadata.checkpoint.0.saturating_add(1))
        };
        let next_checkpoint = start
            .next_checkpoint
            .max(restored.as_ref().map_or(CheckpointId(1), after));
        let found = Restored {
            completed: completed.collect(),
            // Nothing may refer to what belongs to somebody else.
            full_until_completed: ownership == Ownership::NotClaimed && restored.is_some(),
        };
        let coordinator = CheckpointCoordinator::restored(
            CoordinatorConfig {
                // A job is put aside to be continued from there.
                keep_on_suspend: true,
                ..self.settings.checkpointing.clone()
            },
            next_checkpoint,
            found,
        )?;
        let coordination = Coordination {
            coordinator,
            barriers: BarrierRules::of(self.settings),
            store: Arc::clone(store),
            job: self.settings.job_id.clone(),
            attempt: start.attempt,
            clock: Arc::clone(&self.parts.clock),
            executor: Arc::clone(&self.executor),
            events: Arc::clone(&self.parts.events),
            failpoints: self.parts.failpoints.clone(),
            inbox: Arc::clone(&self.inbox),
            metadata: known
                .into_iter()
                .map(|metadata| (metadata.checkpoint, metadata))
                .collect(),
            stats: BTreeMap::new(),
            completed: 0,
            aborted: 0,
            cleaning: 0,
            draining: 0,
            lowest_kept: None,
            deletions: Arc::default(),
            swept: false,
            journal: Rc::clone(journal),
            waiting: BTreeMap::new(),
            requests: 0,
            parting: Vec::new(),
            overdue: BTreeMap::new(),
            publishing: BTreeMap::new(),
            unanswered: BTreeMap::new(),
            kinds: BTreeMap::new(),
            places: Arc::default(),
            copies: None,
            shared,
        };
        Ok((start.attempt, store.storage(), Some(coordination), restored))
    }

    /// Goes on until every subtask of a run has ended, and it is known what came of each publish, or will not be known soon.
    async fn drive(
        &mut self,
        number: u32,
        run: Run,
        restored: Option<&LoadedCheckpoint>,
        mut coordination: Option<&mut Coordination>,
        journal: &RefCell<Journal>,
    ) -> RunEnd {
        let mut tasks = RunTasks::new(number, run, self.random.next());
        let mut outcomes_by_ms = None;
        loop {
            if tasks.have_ended() {
                let Some(coordination) = coordination.as_deref_mut() else {
                    return tasks.end();
                };
                if !tasks.failed_over && !tasks.ends_well() {
                    tasks.failed_over = true;
                    tasks.handle(coordination, Fact::Failover);
                }
                // Who ends the job waits for outcomes as well, but not as long.
                if coordination.coordinator.is_settled()
                    || tasks.cancelled
                    || matches!(tasks.end, Some(RunEnd::Fenced))
                {
                    return tasks.end();
                }
                let now_ms = self.parts.clock.now_ms();
                let by_ms = *outcomes_by_ms.get_or_insert(now_ms.saturating_add(OUTCOME_MS));
                if by_ms <= now_ms {
                    tasks.give_up_publishing(coordination);
                    return tasks.end();
                }
            }
            let wakeup = coordination
                .as_deref()
                .and_then(|c| c.coordinator.next_wakeup());
            let wakeup = wakeup.map(|at| i64::try_from(at).unwrap_or(i64::MAX));
            let wakeup = [wakeup, tasks.final_retry_ms, outcomes_by_ms];
            let wakeup = wakeup.into_iter().flatten().min();
            let message = self.inbox.next(wakeup, self.parts.clock.as_ref()).await;
            match (message, coordination.as_deref_mut()) {
                (None, Some(coordination)) => {
                    if tasks
                        .final_retry_ms
                        .is_some_and(|at| at <= self.parts.clock.now_ms())
                    {
                        tasks.final_retry_ms = None;
                        tasks.request_final(coordination);
                    }
                    tasks.handle(coordination, Fact::Tick);
                }
                (Some(Message::Task { run, task, report }), coordination) => {
                    if run == number {
                        self.on_report(&mut tasks, task, report, restored, coordination, journal);
                    } else if let Some(coordination) = coordination {
                        tasks.late_report(coordination, task, report);
                    }
                }
                (Some(Message::Fact(fact)), Some(coordination)) => tasks.handle(coordination, fact),
                (Some(Message::Warning(error)), _) => self.tell(JobEvent::Warning(error)),
                (Some(Message::Cancel), _) => tasks.cancel(),
                (Some(Message::Ask(ask)), coordination) => {
                    if tasks.end.is_some() {
                        journal.borrow_mut().state = JobState::Stopping;
                    }
                    if let Some((coordination, fact)) =
                        self.answer(ask, Some(&tasks.run), coordination, journal)
                    {
                        tasks.handle(coordination, fact);
                    }
                }
                (Some(Message::Drained), Some(coordination)) => {
                    coordination.draining = coordination.draining.saturating_sub(1);
                }
                (Some(Message::Written), _)
                | (None | Some(Message::Fact(_) | Message::Drained), None) => {}
            }
            if tasks.final_failed {
                tasks.final_failed = false;
                tasks.final_retry_ms =
                    Some(self.parts.clock.now_ms().saturating_add(FINAL_RETRY_MS));
            }
        }
    }

    /// Answers what can be answered at once; otherwise returns what the coordinator must be told.
    fn answer<'c>(
        &self,
        ask: Ask,
        run: Option<&Run>,
        coordination: Option<&'c mut Coordination>,
        journal: &RefCell<Journal>,
    ) -> Option<(&'c mut Coordination, Fact<CheckpointAck>)> {
        match (ask, coordination) {
            (Ask::Status { reply }, coordination) => {
                let report = match coordination {
                    Some(coordination) => coordination.report(run),
                    None => journal.borrow().report(self.parts.clock.now_ms()),
                };
                // Who no longer waits is not told.
                drop(reply.send(Ok(report)));
                None
            }
            (Ask::Checkpoint { trigger, reply }, Some(coordination)) => {
                let fact = coordination.request(trigger, reply);
                Some((coordination, fact))
            }
            (Ask::Checkpoint { reply, .. }, None) => {
                let error = match self.parts.checkpoints {
                    Some(_) => Error::retryable("the job looks for what it starts from: ask again"),
                    None => Error::config("the job has no checkpoint storage"),
                };
                drop(reply.send(Err(error)));
                None
            }
        }
    }

    fn on_report(
        &self,
        tasks: &mut RunTasks,
        task: TaskId,
        report: TaskReport,
        restored: Option<&LoadedCheckpoint>,
        coordination: Option<&mut Coordination>,
        journal: &RefCell<Journal>,
    ) {
        match report {
            TaskReport::Running { positions, read } => {
                tasks.positions.extend(positions);
                tasks.read = tasks.read.plus(read);
                tasks.running.insert(task);
                if tasks.running.len() == tasks.run.mailboxes.len() && tasks.end.is_none() {
                    let restored = restored.map(|loaded| loaded.metadata.checkpoint);
                    let mut noted = journal.borrow_mut();
                    noted.state = JobState::Running;
                    noted
                        .restored
                        .iter_mut()
                        .for_each(|from| from.read = tasks.read);
                    drop(noted);
                    self.tell(JobEvent::Running {
                        restored,
                        positions: std::mem::take(&mut tasks.positions),
                        read: tasks.read,
                    });
                    if let Some(coordination) = coordination {
                        match tasks.run.coordinator_plan() {
                            Ok(plan) => {
                                let random = tasks.random;
                                tasks.handle(coordination, Fact::TasksRunning { plan, random });
                            }
                            Err(error) => tasks.stop(RunEnd::Failed(error)),
                        }
                        tasks.request_final_if_due(coordination);
                    } else {
                        tasks.commit_if_due();
                    }
                }
            }
            TaskReport::Ack { .. } | TaskReport::Decline { .. } => {
                if let Some(coordination) = coordination {
                    tasks.late_report(coordination, task, report);
                }
            }
            TaskReport::InputEnded => {
                tasks.input_ended.insert(task);
                match coordination {
                    Some(coordination) => tasks.request_final_if_due(coordination),
                    None => tasks.commit_if_due(),
                }
            }
            TaskReport::Ended => drop(tasks.ended.insert(task)),
            TaskReport::Failed(error) => {
                tasks.ended.insert(task);
                tasks.stop(RunEnd::Failed(error));
                if let Some(coordination) = coordination {
                    tasks.handle(coordination, Fact::TaskFailed { task });
                }
            }
        }
    }

    /// Waits between two runs, for work or for a time, and hears meanwhile what is said.
    async fn meanwhile<T>(
        &self,
        work: impl Future<Output = T>,
        until_ms: Option<i64>,
        mut coordination: Option<&mut Coordination>,
        journal: &RefCell<Journal>,
    ) -> Waited<T> {
        let mut work = pin!(work);
        loop {
            let next = pin!(self.inbox.next(until_ms, self.parts.clock.as_ref()));
            let message = match select(work.as_mut(), next).await {
                Either::Left((done, _)) => return Waited::Over(Some(done)),
                Either::Right((message, _)) => message,
            };
            let effects = match (message, coordination.as_deref_mut()) {
                (None, _) => return Waited::Over(None),
                (Some(Message::Cancel), _) => return Waited::Cancelled,
                (Some(Message::Warning(error)), _) => {
                    self.tell(JobEvent::Warning(error));
                    Vec::new()
                }
                (Some(Message::Ask(ask)), coordination) => {
                    match self.answer(ask, None, coordination, journal) {
                        Some((coordination, fact)) => coordination.handle(None, fact),
                        None => Vec::new(),
                    }
                }
                (Some(Message::Fact(fact)), Some(coordination)) => coordination.handle(None, fact),
                (Some(Message::Task { task, report, .. }), Some(coordination)) => {
                    coordination.take_report(None, task, report)
                }
                (Some(Message::Drained), Some(coordination)) => {
                    coordination.draining = coordination.draining.saturating_sub(1);
                    Vec::new()
                }
                (Some(Message::Written), _)
                | (Some(Message::Fact(_) | Message::Task { .. } | Message::Drained), None) => {
                    Vec::new()
                }
            };
            // The rest concerns a run, and there is none.
            if effects
                .iter()
                .any(|effect| matches!(effect, Effect::Fenced))
            {
                return Waited::Fenced;
            }
        }
    }

    /// Says that the attempt is over, where the store has come as far as to give one, as long as the end of a job may take.
    async fn end_early(&self, journal: &RefCell<Journal>) {
        if let Some(store) = &self.parts.checkpoints {
            let until_ms = self.parts.clock.now_ms().saturating_add(LAST_MS);
            self.meanwhile(store.end(), Some(until_ms), None, journal)
                .await;
        }
    }

    /// Lets the coordinator decide what is kept, and waits for the last deletions and for those who still write, as long as the end of a
    /// job may take.
    async fn ended(
        &self,
        status: JobStatus,
        coordination: Option<Coordination>,
        restarts: u32,
    ) -> Result<JobOutcome> {
        let mut outcome = JobOutcome {
            status,
            restarts,
            checkpoints: 0,
            aborted: 0,
        };
        if let Some(mut coordination) = coordination {
            coordination.journal.borrow_mut().state = JobState::Stopping;
            let why = match status {
                JobStatus::Finished | JobStatus::Suspended => None,
                JobStatus::Cancelled => Some("it was cancelled"),
                JobStatus::Failed => Some("it failed"),
            };
            coordination.part(why);
            if let Some(copies) = &coordination.copies {
                // Whoever goes on from the last checkpoint here finds the copies.
                let kept = self.settings.checkpointing.retention.keeps(status);
                if !kept || status == JobStatus::Finished {
                    copies.dispose();
                }
            }
            let clock = self.parts.clock.as_ref();
            let outcomes_by_ms = clock.now_ms().saturating_add(LAST_OUTCOME_MS);
            let until_ms = clock.now_ms().saturating_add(LAST_MS);
            let mut effects = coordination.handle(None, Fact::Stop { status });
            let (mut stopped, mut late, mut noted) = (false, false, false);
            loop {
                stopped |= effects
                    .iter()
                    .any(|effect| matches!(effect, Effect::Stopped | Effect::Fenced));
                let deleting = coordination.cleaning + coordination.draining;
                // What was cancelled says what it had written already.
                if stopped && deleting == 0 && self.inbox.writing() == 0 {
                    if std::mem::take(&mut late) {
                        coordination.release_at_stop();
                    } else if !std::mem::replace(&mut noted, true) {
                        coordination.note_end();
                    } else {
                        break;
                    }
                }
                let wait_ms = if stopped { until_ms } else { outcomes_by_ms };
                effects = match self.inbox.next(Some(wait_ms), clock).await {
                    None if !stopped => {
                        stopped = true;
                        coordination.give_up_publishing(None)
                    }
                    None => {
                        self.tell(JobEvent::Warning(not_waited_for(&coordination)));
                        break;
                    }
                    Some(Message::Fact(fact)) => coordination.handle(None, fact),
                    Some(Message::Task { task, report, .. }) => {
                        late = true;
                        coordination.take_report(None, task, report)
                    }
                    Some(Message::Drained) => {
                        coordination.draining = coordination.draining.saturating_sub(1);
                        Vec::new()
                    }
                    Some(Message::Warning(error)) => {
                        self.tell(JobEvent::Warning(error));
                        Vec::new()
                    }
                    Some(Message::Ask(Ask::Status { reply })) => {
                        drop(reply.send(Ok(coordination.report(None))));
                        Vec::new()
                    }
                    Some(_) => Vec::new(),
                };
            }
            // A stop that completed only now.
            coordination.part(why);
            (outcome.checkpoints, outcome.aborted) = (coordination.completed, coordination.aborted);
        }
        self.tell(JobEvent::Ended(status));
        Ok(outcome)
    }
}

fn fenced() -> Error {
    Error::new(
        ErrorKind::Fenced,
        "a newer attempt of the job has taken over",
    )
}

/// Says that a job ends although the store is not done with what was asked of it.
fn not_waited_for(coordination: &Coordination) -> Error {
    Error::retryable("the store does not get done what the end of the job asks of it: the job ends all the same, and what is left is for `gc`")
        .with("milliseconds", LAST_MS)
        .with("calls", coordination.cleaning.max(coordination.draining))
}

/// Copies what an error says, for the listener; the original is returned.
fn copy_of(error: &Error) -> Error {
    Error::new(error.kind(), error.message()).caused_by(error.to_string())
}
