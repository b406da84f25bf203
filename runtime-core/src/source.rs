//! Where records come from: the traits that sources implement.
//!
//! A [`Source`] describes an input and is cloned into every subtask's thread; a [`SourceReader`] reads the parts
//! (*splits*) that one subtask was given. A split carries the position reached in it, so a checkpoint of a reader is the
//! list of its splits. On restore the splits of all readers are dealt out again, at whatever parallelism.
use std::cell::Cell;
use std::sync::Arc;
use std::task::Waker;

use state_api::{CheckpointId, Clock, OperatorUid, Result, StateType, Subtask};

use crate::channel::Signal;
use crate::record::{Emit, NO_TIMESTAMP, Record, SplitEvent};

/// What a reader learns about its place.
#[derive(Clone, Debug)]
pub struct SourceContext {
    /// The source's uid.
    pub uid: OperatorUid,
    /// The subtask that reads.
    pub subtask: Subtask,
    /// The checkpoint that the splits come from; `None` at a fresh start.
    pub restored: Option<CheckpointId>,
    /// Tells the time, for rates.
    pub clock: Arc<dyn Clock>,
    /// Wakes the subtask: for readers that learn from another thread that there is something to read.
    pub waker: Waker,
}

/// Describes an input and makes its readers.
///
/// # Contract
/// Implemented by whoever connects an input; shared by all subtasks of a run.
pub trait Source: Send + Sync + 'static {
    /// What is read.
    type Out: Record;
    /// A part of the input with the position reached in it.
    type Split: StateType;
    /// Reads the splits of one subtask.
    type Reader: SourceReader<Out = Self::Out, Split = Self::Split>;

    /// Lists the parts of the input, each at its start; called once per fresh start, before the first record, and not
    /// after a restore. Fewer parts than `parallelism` leave subtasks without work.
    ///
    /// # Errors
    /// `Config` when the input does not exist or can't be opened; `Retryable` when it might later.
    fn enumerate(&self, parallelism: u32) -> Result<Vec<Self::Split>>;

    /// Makes the reader of a subtask, which goes on where its splits say; called on the subtask's thread.
    ///
    /// # Errors
    /// `Incompatible` when the input is not what the splits were made from; `Retryable` when it can't be opened.
    fn reader(&self, cx: &SourceContext, splits: Vec<Self::Split>) -> Result<Self::Reader>;

    /// Describes a split with its position for people, such as `flights.csv 4096/9731`.
    fn describe(&self, split: &Self::Split) -> String {
        split.to_value().to_string()
    }
}

/// How a source goes on after a call of [`SourceReader::poll`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceStatus {
    /// There is more to read at once.
    More,
    /// Nothing to read now: poll again when the context's waker is called or the clock reaches `wake_at_ms`.
    Waiting {
        /// Wall-clock time in milliseconds.
        wake_at_ms: Option<i64>,
        /// Whether the wait may be long, so that watermarks shall not wait for this reader.
        idle: bool,
    },
    /// All splits are read to their end; [`SourceReader::poll`] is not called again.
    Finished,
}

/// Reads the splits of one subtask.
///
/// # Contract
/// Implemented by sources; used on the subtask's thread only, and may be `!Send`.
/// - `poll` never waits: it emits at most what the output's budget allows, or returns [`SourceStatus::Waiting`].
/// - `snapshot` names exactly the records emitted so far: reading on from its splits brings every later record once, and
///   no earlier one. Splits read to their end are left out.
/// - The same splits give the same records in the same order, or the source says in its documentation that it is not replayable.
pub trait SourceReader: 'static {
    /// What is read.
    type Out;
    /// A part of the input with the position reached in it.
    type Split;

    /// Emits the next records, until there are none for now or [`SourceOutput::is_full`].
    ///
    /// # Errors
    /// Those of the input and those of [`SourceOutput::emit`].
    fn poll(&mut self, out: &mut SourceOutput<'_, Self::Out>) -> Result<SourceStatus>;

    /// Returns the unfinished splits at the positions reached.
    ///
    /// # Errors
    /// Any: the checkpoint is declined.
    fn snapshot(&mut self) -> Result<Vec<Self::Split>>;

    /// Returns what [`snapshot`](Self::snapshot) does, for readers that want to know for which checkpoint; this is what the
    /// runtime calls.
    ///
    /// # Errors
    /// Any: the checkpoint is declined.
    fn snapshot_for(&mut self, checkpoint: CheckpointId) -> Result<Vec<Self::Split>> {
        let _ = checkpoint;
        self.snapshot()
    }

    /// Learns that a checkpoint is complete, for inputs that want to be told what is safe to forget.
    ///
    /// # Errors
    /// Any: the job fails.
    fn checkpoint_completed(&mut self, checkpoint: CheckpointId) -> Result<()> {
        let _ = checkpoint;
        Ok(())
    }
}

/// Takes the records of one call of [`SourceReader::poll`].
pub struct SourceOutput<'a, T> {
    target: &'a mut dyn Emit<T>,
    watched: Option<(&'a Cell<bool>, &'a Signal)>,
    left: usize,
    emitted: usize,
}

impl<'a, T> SourceOutput<'a, T> {
    /// Creates an output that is full after `budget` records; a `Vec` is a target, for tests.
    pub fn new(target: &'a mut dyn Emit<T>, budget: usize) -> Self {
        Self {
            target,
            watched: None,
            left: budget,
            emitted: 0,
        }
    }

    /// Creates an output that is also full while `congested` is set, or when somebody calls by `signal`.
    pub(crate) fn watching(
        target: &'a mut dyn Emit<T>,
        budget: usize,
        congested: &'a Cell<bool>,
        signal: &'a Signal,
    ) -> Self {
        Self {
            target,
            watched: Some((congested, signal)),
            left: budget,
            emitted: 0,
        }
    }

    /// Returns whether the reader shall stop for now; a record emitted nevertheless is still taken.
    #[inline]
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.left == 0
            || self
                .watched
                .is_some_and(|(congested, signal)| congested.get() || signal.is_called())
    }

    /// Returns how many records the budget still allows; 0 when the output is full for another reason.
    #[must_use]
    pub fn remaining(&self) -> usize {
        if self.is_full() { 0 } else { self.left }
    }

    /// Returns how many records were emitted through this output.
    #[must_use]
    pub fn emitted(&self) -> usize {
        self.emitted
    }

    /// Emits a record without event time.
    ///
    /// # Errors
    /// Those of the operators behind; pass them on.
    #[inline]
    pub fn emit(&mut self, value: T) -> Result<()> {
        self.emit_at(value, NO_TIMESTAMP)
    }

    /// Emits a record with its event time in milliseconds.
    ///
    /// # Errors
    /// Those of the operators behind; pass them on.
    #[inline]
    pub fn emit_at(&mut self, value: T, time_ms: i64) -> Result<()> {
        self.left = self.left.saturating_sub(1);
        self.emitted += 1;
        self.target.emit(value, time_ms)
    }

    /// Declares a split that will bring records: until its first one it holds back the watermark.
    ///
    /// Sources that read one ordered input per subtask need none of this; sources with several splits declare them all at
    /// their first poll, select the one being read, and finish each, so that a split read late is not late in event time.
    ///
    /// # Errors
    /// Those of the operators behind; pass them on.
    pub fn start_split(&mut self, id: u64) -> Result<()> {
        self.target.split(SplitEvent::Started(id))
    }

    /// Says that the records that follow are of this split.
    ///
    /// # Errors
    /// Those of the operators behind; pass them on.
    pub fn select_split(&mut self, id: u64) -> Result<()> {
        self.target.split(SplitEvent::Selected(id))
    }

    /// Says that a split brings no more records.
    ///
    /// # Errors
    /// Those of the operators behind; pass them on.
    pub fn finish_split(&mut self, id: u64) -> Result<()> {
        self.target.split(SplitEvent::Finished(id))
    }
}
