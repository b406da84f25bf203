//! How acks become the metadata of a checkpoint, and that a checkpoint that exists.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use checkpoint_storage::{CheckpointMetadata, OperatorMetadata, SubtaskMetadata};
use state_api::{CheckpointId, Error, ErrorKind, HashId, SnapshotKind};

use super::coordination::{Coordination, Effect};
use super::inbox::Message;
use super::launch::Run;
use super::{CheckpointStats, Failpoint};
use crate::coordinator::{Acks, CheckpointKind, Fact, PublishFault};
use crate::task::CheckpointAck;

impl Coordination {
    /// Puts the metadata of a checkpoint together and makes it exist.
    pub(super) fn publish(
        &mut self,
        run: &Run,
        id: CheckpointId,
        kind: CheckpointKind,
        timestamp_ms: u64,
        acks: &Acks<CheckpointAck>,
    ) {
        let created_ms = i64::try_from(timestamp_ms).unwrap_or(i64::MAX);
        let snapshot_kind = match self.kinds.get(&id) {
            // That it is full is no property of what is there.
            Some(SnapshotKind::FullCheckpoint) | None => SnapshotKind::Checkpoint,
            Some(kind) => *kind,
        };
        let mut metadata = CheckpointMetadata::new(
            id,
            self.job.clone(),
            self.attempt,
            snapshot_kind,
            created_ms,
        );
        let mut operators: BTreeMap<_, OperatorMetadata> = BTreeMap::new();
        for acked in acks.iter() {
            let index = acked.task.vertex as usize;
            let (plan, name) = (run.plan[index], run.vertices[index].name());
            for (uid, snapshot) in &acked.state.operators {
                let operator = operators
                    .entry(uid.clone())
                    .or_insert_with(|| OperatorMetadata {
                        name: Some(name.as_str().into()),
                        ..OperatorMetadata::new(
                            uid.clone(),
                            plan.parallelism,
                            plan.max_parallelism,
                            HashId::default(),
                        )
                    });
                let subtask = SubtaskMetadata {
                    input_end: acked.state.input_end(uid),
                    ..SubtaskMetadata::new(acked.task.subtask, Arc::clone(snapshot))
                };
                operator.subtasks.push(subtask);
            }
        }
        metadata.operators = operators.into_values().collect();
        metadata.collect_roots();
        let metadata = Arc::new(metadata);
        self.metadata.insert(id, Arc::clone(&metadata));
        let reports = || acks.iter().map(|acked| acked.state.report);
        self.stats.insert(
            id,
            CheckpointStats {
                id,
                kind,
                duration_ms: 0,
                total_bytes: metadata.total_bytes(),
                new_bytes: metadata.new_bytes(),
                alignment_ns: reports()
                    .map(|r| r.alignment.duration_ns)
                    .max()
                    .unwrap_or(0),
                alignment_bytes: reports().map(|r| r.alignment.bytes).max().unwrap_or(0),
                persisted_bytes: reports().map(|r| r.alignment.persisted_bytes).sum(),
                sync_ns: reports().map(|r| r.sync_ns).max().unwrap_or(0),
                async_ns: reports().map(|r| r.async_ns).max().unwrap_or(0),
                subtasks: acks.len(),
            },
        );
        let (store, inbox, failpoints) = (
            Arc::clone(&self.store),
            Arc::clone(&self.inbox),
            self.failpoints.clone(),
        );
        let wanted = Arc::new(AtomicBool::new(true));
        self.publishing.insert(id, Arc::clone(&wanted));
        self.executor.spawn_io(Box::pin(async move {
            failpoints.reach(Failpoint::Publish);
            let stops = matches!(kind, CheckpointKind::StopWithSavepoint { .. });
            let published = match store.publish(metadata).await {
                // The job does not end with it any more.
                Ok(()) if !wanted.load(Ordering::Acquire) => Ok(()),
                // The savepoint is there whatever becomes of the note.
                Ok(()) if stops => store.note_stop(id).await.map_err(|error| {
                    if error.kind() == ErrorKind::Fenced {
                        return error;
                    }
                    Error::retryable("the savepoint is complete, and that could not be noted")
                        .caused_by(error)
                }),
                other => other,
            };
            let fact = match published {
                Ok(()) => Fact::Published { id },
                Err(error) => {
                    let fault = match error.kind() {
                        ErrorKind::Fenced => PublishFault::Fenced,
                        // The last two: the work was dropped, nobody knows where.
                        ErrorKind::Retryable | ErrorKind::Cancelled | ErrorKind::Bug => {
                            PublishFault::Unknown
                        }
                        _ => PublishFault::NotWritten,
                    };
                    Fact::PublishFailed {
                        id,
                        fault,
                        detail: error.to_string(),
                    }
                }
            };
            inbox.send(Message::Fact(fact));
        }));
    }

    /// Takes note that nobody wants a checkpoint any more that is being published: a stop with it is not noted.
    pub(super) fn unwanted(&self, id: CheckpointId) {
        if let Some(wanted) = self.publishing.get(&id) {
            wanted.store(false, Ordering::Release);
        }
    }

    /// Lets the answer on a publication through. One that comes after it was given up says only that the attempt is fenced, if it is; and
    /// what it is about is deleted if nobody can go on from it.
    pub(super) fn first_answer(
        &mut self,
        fact: Fact<CheckpointAck>,
    ) -> Option<Fact<CheckpointAck>> {
        let (id, fenced) = match &fact {
            Fact::Published { id } => (id, false),
            Fact::PublishFailed { id, fault, .. } => (id, *fault == PublishFault::Fenced),
            _ => return Some(fact),
        };
        if self.publishing.remove(id).is_some() {
            return Some(fact);
        }
        if fenced {
            return Some(Fact::Fenced);
        }
        let is_overtaken = self.unanswered.remove(id).unwrap_or_default();
        let metadata = self.metadata.get(id);
        // A job that has stopped with one is not restarted, and this one was.
        let is_savepoint = metadata.is_some_and(|metadata| metadata.kind.is_savepoint());
        if is_overtaken || is_savepoint {
            self.discard(*id);
        }
        None
    }

    /// Waits no longer for the store to say what came of publications: whether these checkpoints exist is not known then.
    pub(super) fn give_up_publishing(&mut self, run: Option<&Run>) -> Vec<Effect> {
        let mut effects = Vec::new();
        let outstanding: Vec<_> = self.publishing.keys().copied().collect();
        for id in outstanding {
            self.unwanted(id);
            self.unanswered.insert(id, false);
            let fact = Fact::PublishFailed {
                id,
                fault: PublishFault::Unknown,
                detail: "the store does not answer".into(),
            };
            effects.extend(self.handle(run, fact));
        }
        effects
    }
}
