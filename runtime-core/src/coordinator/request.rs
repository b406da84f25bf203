use std::collections::BTreeMap;
use std::fmt;

use super::FailureReason;

/// Names a request of somebody who waits for the answer; the engine hands the numbers out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// What kind of snapshot of the whole job is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CheckpointKind {
    /// Owned by the system, for recovery; it is subsumed by later ones.
    Checkpoint,
    /// Owned by the user; a bystander that subsumes nothing and is never subsumed.
    Savepoint,
    /// A savepoint after whose completion the job ends.
    StopWithSavepoint {
        /// Whether event time runs to its end first, so that every window and timer fires.
        drain: bool,
    },
    /// A checkpoint after whose completion the job is put aside, to be continued from it.
    StopWithCheckpoint,
    /// The last checkpoint of a job whose input has ended; sinks commit on it.
    Final,
}

impl CheckpointKind {
    /// Tells whether the user owns what is written.
    #[must_use]
    pub fn is_savepoint(self) -> bool {
        matches!(self, Self::Savepoint | Self::StopWithSavepoint { .. })
    }

    /// Tells whether the job ends once it is complete.
    #[must_use]
    pub fn ends_the_job(self) -> bool {
        matches!(
            self,
            Self::StopWithSavepoint { .. } | Self::StopWithCheckpoint | Self::Final
        )
    }

    /// Tells whether nobody but its requester learns of its completion: it is not kept in the list of completed
    /// checkpoints and tasks are not notified.
    #[must_use]
    pub fn is_bystander(self) -> bool {
        self == Self::Savepoint
    }
}

impl fmt::Display for CheckpointKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Checkpoint => "checkpoint",
            Self::Savepoint => "savepoint",
            Self::StopWithSavepoint { drain: false } => "stop with savepoint",
            Self::StopWithSavepoint { drain: true } => "drain and stop with savepoint",
            Self::StopWithCheckpoint => "stop with checkpoint",
            Self::Final => "final checkpoint",
        })
    }
}

/// How the keyed state of a savepoint is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SavepointFormat {
    /// In the format that every backend reads, so that the job can go on with another one.
    #[default]
    Canonical,
    /// In the backend's own format, which is quicker.
    Native,
}

/// Asks for a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// The kind.
    pub kind: CheckpointKind,
    /// How a savepoint is written; without meaning for other kinds.
    pub format: SavepointFormat,
    /// Whether it must stand alone, referring to nothing that an earlier checkpoint wrote.
    pub full: bool,
    /// Where a savepoint goes; `None` for the configured place.
    pub target: Option<String>,
    /// Who waits for the answer.
    pub request: Option<RequestId>,
}

impl Trigger {
    /// Asks for a checkpoint of a kind on behalf of a request.
    #[must_use]
    pub fn new(kind: CheckpointKind, request: RequestId) -> Self {
        Self {
            kind,
            format: SavepointFormat::default(),
            full: false,
            target: None,
            request: Some(request),
        }
    }

    /// Asks for one that stands alone.
    #[must_use]
    pub fn full(mut self) -> Self {
        self.full = true;
        self
    }

    /// Says how a savepoint is written.
    #[must_use]
    pub fn in_format(mut self, format: SavepointFormat) -> Self {
        self.format = format;
        self
    }

    /// Names where a savepoint goes.
    #[must_use]
    pub fn to(mut self, target: impl Into<String>) -> Self {
        self.target = Some(target.into());
        self
    }
}

/// A request as it waits for its turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Queued {
    pub(crate) trigger: Trigger,
    /// Made by the timer, not by a person.
    pub(crate) periodic: bool,
    /// May pass over the limit of concurrent checkpoints and the minimum pause.
    pub(crate) forced: bool,
}

/// What the state of the coordinator allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// A request is between "chosen" and "tasks triggered".
    pub(crate) triggering: bool,
    /// The number of pending checkpoints is at its limit.
    pub(crate) full: bool,
    /// A checkpoint that ends the job is under way or complete.
    pub(crate) ending: bool,
    /// More checkpoints are being deleted than may be pending.
    pub(crate) cleaning: bool,
    /// What is left of the minimum pause, in milliseconds.
    pub(crate) pause_left_ms: u64,
}

/// The outcome of asking the queue.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Nothing can start now.
    Wait,
    /// This request starts.
    Start(Queued),
    /// This periodic request came before the end of the minimum pause: it fails, and the timer is set anew.
    TooEarly(Queued),
}

/// Savepoints before checkpoints, forced before others, a person's before the timer's, then the older.
type Rank = (bool, bool, bool, u64, u64);

/// The requests that wait, best first, as Flink's `CheckpointRequestDecider` orders them.
#[derive(Debug)]
pub(crate) struct RequestQueue {
    waiting: BTreeMap<Rank, Queued>,
    limit: usize,
    sequence: u64,
}

impl RequestQueue {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            waiting: BTreeMap::new(),
            limit,
            sequence: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Queues a request and returns the one that fell off the end for it, with the reason.
    ///
    /// At most one periodic request waits: after a slow checkpoint one new one is due, not one per missed interval.
    pub(crate) fn push(&mut self, request: Queued, now_ms: u64) -> Option<(Queued, FailureReason)> {
        let last_is_periodic = self
            .waiting
            .values()
            .next_back()
            .is_some_and(|r| r.periodic);
        if self.waiting.len() >= self.limit && !last_is_periodic {
            return Some((request, FailureReason::TooManyRequests));
        }
        if request.periodic && self.waiting.values().any(|r| r.periodic) {
            return Some((request, FailureReason::TooManyRequests));
        }
        self.sequence += 1;
        let rank = (
            !request.trigger.kind.is_savepoint(),
            !request.forced,
            request.periodic,
            now_ms,
            self.sequence,
        );
        self.waiting.insert(rank, request);
        if self.waiting.len() > self.limit {
            let (_, worst) = self.waiting.pop_last()?;
            return Some((worst, FailureReason::TooManyRequests));
        }
        None
    }

    /// Chooses what to do next.
    pub(crate) fn choose(&mut self, room: Room) -> Choice {
        let Some(first) = self.waiting.first_entry() else {
            return Choice::Wait;
        };
        let request = first.get();
        // The sources of a job that ends emit no more barriers, and a job ends once: who else wants a checkpoint waits, in case
        // the first try fails.
        if room.triggering || room.cleaning || room.ending || (room.full && !request.forced) {
            return Choice::Wait;
        }
        let first = first.remove();
        if first.periodic && !first.forced && room.pause_left_ms > 0 {
            return Choice::TooEarly(first);
        }
        Choice::Start(first)
    }

    /// Takes out every request.
    pub(crate) fn drain(&mut self) -> Vec<Queued> {
        std::mem::take(&mut self.waiting).into_values().collect()
    }

    /// Drops the periodic requests, and takes out those that speak of tasks that ran until now: that their input has ended is
    /// not true of the tasks that follow.
    pub(crate) fn outlive_tasks(&mut self) -> Vec<Queued> {
        self.waiting.retain(|_, r| !r.periodic);
        let is_final = |r: &Queued| r.trigger.kind == CheckpointKind::Final;
        self.waiting
            .extract_if(.., |_, r| is_final(r))
            .map(|(_, request)| request)
            .collect()
    }
}
