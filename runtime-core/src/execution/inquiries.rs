//! What people ask of the coordinator while it works: checkpoints on demand, how things stand, why something takes so long.
use futures_channel::oneshot;
use state_api::{CheckpointId, Error, Result};

use super::coordination::Coordination;
use super::launch::Run;
use super::{CheckpointDone, JobReport, MissingSubtask, PendingReport};
use crate::coordinator::{CheckpointFailure, Fact, FailureReason, PendingView, RequestId, Trigger};
use crate::task::{ActivityPhase, CheckpointAck};

impl Coordination {
    /// Asks for a checkpoint on behalf of somebody who waits.
    pub(super) fn request(
        &mut self,
        mut trigger: Trigger,
        reply: oneshot::Sender<Result<CheckpointDone>>,
    ) -> Fact<CheckpointAck> {
        self.requests += 1;
        let request = RequestId(self.requests);
        self.waiting.insert(request, reply);
        trigger.request = Some(request);
        Fact::Trigger(trigger)
    }

    pub(super) fn answer(
        &mut self,
        request: RequestId,
        result: &std::result::Result<CheckpointId, CheckpointFailure>,
    ) {
        let Some(reply) = self.waiting.remove(&request) else {
            return;
        };
        let answer = match result {
            Err(failure) => Err(failure.to_error()),
            Ok(id) => match self.journal.borrow().record(*id) {
                None => Err(Error::bug("an ended checkpoint left no record")),
                Some(record) => Ok(CheckpointDone {
                    id: *id,
                    kind: record.kind,
                    path: record.path.clone(),
                    duration_ms: record.duration_ms,
                    total_bytes: record.total_bytes,
                    new_bytes: record.new_bytes,
                }),
            },
        };
        match answer {
            Ok(done) if done.kind.ends_the_job() => self.parting.push((reply, done)),
            // Who no longer waits is not told.
            answer => drop(reply.send(answer)),
        }
    }

    /// Answers those who asked the job to stop; `failed` says what came after the checkpoint was complete.
    pub(super) fn part(&mut self, failed: Option<&str>) {
        for (reply, done) in self.parting.drain(..) {
            let answer = match failed {
                None => Ok(done),
                Some(why) => {
                    let error = Error::retryable(format!(
                        "the {} is complete, but the job did not stop in peace: {why}",
                        done.kind
                    ))
                    .with("checkpoint", done.id);
                    Err(match done.path {
                        Some(path) => error.with("path", path),
                        None => error,
                    })
                }
            };
            drop(reply.send(answer));
        }
    }

    /// Says how things stand.
    pub(super) fn report(&self, run: Option<&Run>) -> JobReport {
        let mut report = self.journal.borrow().report(self.clock.now_ms());
        report.waiting_requests = self.coordinator.waiting_requests();
        report.waiting_for_deletions = self.coordinator.waiting_for_deletions();
        report.pending = self.pending(run);
        report
    }

    pub(super) fn pending(&self, run: Option<&Run>) -> Vec<PendingReport> {
        let now_ms = self.clock.now_ms();
        let views = self.coordinator.pending(self.now_ms());
        let report = |view: &PendingView| {
            let triggered_ms = now_ms.saturating_sub(i64::try_from(view.age_ms).unwrap_or(0));
            PendingReport::new(view, |task| {
                let activity = run.and_then(|run| run.mailboxes.get(&task)?.activity());
                let activity = activity.filter(|activity| activity.checkpoint == view.id);
                let since_ms = activity.as_ref().map_or(triggered_ms, |a| a.since_ms);
                let bytes = activity.as_ref().map_or(0, |activity| activity.bytes);
                let phase = activity.map(|activity| activity.phase);
                let channels = match &phase {
                    Some(
                        ActivityPhase::Aligning { missing }
                        | ActivityPhase::RecordingInFlight { missing },
                    ) => missing.as_slice(),
                    _ => &[],
                };
                MissingSubtask {
                    task,
                    vertex: run.map_or_else(|| "?".into(), |run| run.name_of(task)),
                    waits_for: channels
                        .iter()
                        .filter_map(|channel| run?.sender(task, *channel))
                        .collect(),
                    phase,
                    since_ms,
                    for_ms: u64::try_from(now_ms.saturating_sub(since_ms)).unwrap_or(0),
                    bytes,
                }
            })
        };
        views.iter().map(report).collect()
    }

    /// Notes what checkpoints wait for whose time is over: afterwards nobody knows.
    pub(super) fn note_overdue(&mut self, run: Option<&Run>) {
        self.overdue.clear();
        if self.coordinator.next_wakeup() <= Some(self.now_ms()) {
            let overdue = self.pending(run).into_iter().filter(|p| p.left_ms == 0);
            self.overdue = overdue
                .map(|pending| (pending.id, pending.in_one_line()))
                .collect();
        }
    }

    /// Says in the failure of a checkpoint that expired what it waited for.
    pub(super) fn explain(&self, failure: &mut CheckpointFailure) {
        if failure.reason == FailureReason::Expired
            && let Some(waited) = failure.id.and_then(|id| self.overdue.get(&id))
        {
            failure.detail.clone_from(waited);
        }
    }
}
