use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use state_api::CheckpointId;

use super::{Acked, Acks, CheckpointKind, RequestId, Retention, SavepointFormat, TaskId};

/// How far a pending checkpoint is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Its place in the storage is being prepared; no task knows of it.
    Preparing,
    /// Tasks take their snapshots.
    Snapshotting,
    /// All acks are in, the metadata is being written.
    Publishing,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Preparing => "preparing its place in the storage",
            Self::Snapshotting => "waiting for acks",
            Self::Publishing => "publishing its metadata",
        })
    }
}

/// What becomes of an ack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AckResult {
    Accepted,
    Duplicate,
    UnknownTask,
}

/// A checkpoint that has begun and not ended.
#[derive(Debug)]
pub(crate) struct Pending<A> {
    pub(crate) id: CheckpointId,
    pub(crate) kind: CheckpointKind,
    pub(crate) format: SavepointFormat,
    pub(crate) full: bool,
    pub(crate) forced: bool,
    pub(crate) retention: Retention,
    pub(crate) request: Option<RequestId>,
    pub(crate) started_ms: u64,
    pub(crate) deadline_ms: u64,
    pub(crate) phase: Phase,
    pub(crate) trigger: BTreeSet<TaskId>,
    /// Tasks whose ack is missing.
    pub(crate) missing: BTreeSet<TaskId>,
    pub(crate) finished: BTreeSet<TaskId>,
    /// The plan names no task: the engine alone knows who takes part.
    open: bool,
    acks: BTreeMap<TaskId, A>,
    /// The acks once they are all in.
    sealed: Option<Acks<A>>,
}

/// What a [`Pending`] is made from.
pub(crate) struct Begin {
    pub(crate) id: CheckpointId,
    pub(crate) kind: CheckpointKind,
    pub(crate) format: SavepointFormat,
    pub(crate) full: bool,
    pub(crate) forced: bool,
    pub(crate) retention: Retention,
    pub(crate) request: Option<RequestId>,
    pub(crate) started_ms: u64,
    pub(crate) deadline_ms: u64,
}

impl<A> Pending<A> {
    pub(crate) fn new(begin: Begin, participants: super::Participants) -> Self {
        let Begin {
            id,
            kind,
            format,
            full,
            forced,
            retention,
            request,
            started_ms,
            deadline_ms,
        } = begin;
        Self {
            id,
            kind,
            format,
            full,
            forced,
            retention,
            request,
            started_ms,
            deadline_ms,
            phase: Phase::Preparing,
            open: participants.is_empty(),
            trigger: participants.trigger,
            missing: participants.wait_for,
            finished: participants.finished,
            acks: BTreeMap::new(),
            sealed: None,
        }
    }

    /// Takes the ack of a task; a refused one is handed back.
    pub(crate) fn acknowledge(&mut self, task: TaskId, state: A) -> (AckResult, Option<A>) {
        if self.acks.contains_key(&task) || self.sealed_ack(task) {
            return (AckResult::Duplicate, None);
        }
        if self.phase != Phase::Snapshotting || !(self.missing.remove(&task) || self.open) {
            return (AckResult::UnknownTask, Some(state));
        }
        self.acks.insert(task, state);
        (AckResult::Accepted, None)
    }

    fn sealed_ack(&self, task: TaskId) -> bool {
        self.sealed
            .as_ref()
            .is_some_and(|acks| acks.binary_search_by_key(&task, |a| a.task).is_ok())
    }

    /// Counts a task as acked because it ended, without state of its own; returns whether it was waited for.
    pub(crate) fn finish(&mut self, task: TaskId) -> bool {
        let waited = self.missing.remove(&task);
        if waited {
            self.finished.insert(task);
        }
        waited
    }

    /// Tells whether an ack of the task is missing, or may be.
    pub(crate) fn waits_for(&self, task: TaskId) -> bool {
        self.missing.contains(&task) || (self.open && !self.acks.contains_key(&task))
    }

    /// Tells whether the checkpoint was sent to the task and is not finished with it for good.
    pub(crate) fn takes_part(&self, task: TaskId) -> bool {
        self.phase == Phase::Snapshotting
            && (self.open || self.missing.contains(&task) || self.acks.contains_key(&task))
    }

    /// Tells whether no ack is missing.
    pub(crate) fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// Freezes the acks and moves on to publishing.
    pub(crate) fn seal(&mut self) -> Acks<A> {
        self.phase = Phase::Publishing;
        let acks = take(&mut self.acks);
        self.sealed = Some(Arc::clone(&acks));
        acks
    }

    /// Gives up the acks, sealed or not.
    pub(crate) fn into_acks(mut self) -> Acks<A> {
        match self.sealed {
            Some(acks) => acks,
            None => take(&mut self.acks),
        }
    }

    /// Tells whether completion of a later checkpoint ends this one.
    pub(crate) fn can_be_subsumed(&self) -> bool {
        !self.forced && !self.kind.is_savepoint()
    }

    pub(crate) fn acked(&self) -> usize {
        self.acks.len() + self.sealed.as_ref().map_or(0, |a| a.len())
    }

    pub(crate) fn view(&self, now_ms: u64) -> PendingView {
        PendingView {
            id: self.id,
            kind: self.kind,
            phase: self.phase,
            age_ms: now_ms.saturating_sub(self.started_ms),
            left_ms: self.deadline_ms.saturating_sub(now_ms),
            acked: self.acked(),
            finished: self.finished.len(),
            missing: self.missing.iter().copied().collect(),
        }
    }
}

fn take<A>(acks: &mut BTreeMap<TaskId, A>) -> Acks<A> {
    std::mem::take(acks)
        .into_iter()
        .map(|(task, state)| Acked { task, state })
        .collect()
}

/// A pending checkpoint as whoever is on call wants to see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingView {
    /// Its id.
    pub id: CheckpointId,
    /// Its kind.
    pub kind: CheckpointKind,
    /// How far it is.
    pub phase: Phase,
    /// How long ago it was triggered, in milliseconds.
    pub age_ms: u64,
    /// How long until it expires, in milliseconds.
    pub left_ms: u64,
    /// Number of tasks that have acked.
    pub acked: usize,
    /// Number of tasks that count as acked because they are finished.
    pub finished: usize,
    /// Tasks whose ack is missing, in ascending order.
    pub missing: Vec<TaskId>,
}

const SHOWN: usize = 10;

impl fmt::Display for PendingView {
    /// Writes one line; of many missing tasks the first ten are named.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.acked + self.finished + self.missing.len();
        let (seconds, tenths) = (self.age_ms / 1000, self.age_ms % 1000 / 100);
        write!(
            f,
            "{} {}: {} for {seconds}.{tenths} s, ",
            self.kind, self.id, self.phase
        )?;
        write!(f, "{} of {total} tasks done", self.acked + self.finished)?;
        if self.finished > 0 {
            write!(f, " ({} of them finished)", self.finished)?;
        }
        for (i, task) in self.missing.iter().take(SHOWN).enumerate() {
            write!(f, "{}{task}", if i == 0 { ", missing: " } else { ", " })?;
        }
        match self.missing.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}
