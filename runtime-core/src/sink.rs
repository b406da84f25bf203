//! Where records go: the traits that sinks implement.
//!
//! A [`Sink`] writes at once; after a failure it may see records again. A [`TwoPhaseSink`] writes into transactions that
//! become visible when their checkpoint completes, so each record is seen once.
use std::sync::Arc;

use state_api::{
    Attempt, CheckpointId, Clock, Error, JobId, OperatorUid, Result, StateType, Subtask,
};

use crate::record::Record;

/// What a writer learns about its place.
#[derive(Clone, Debug)]
pub struct SinkContext {
    /// The job.
    pub job: JobId,
    /// The sink's uid.
    pub uid: OperatorUid,
    /// The subtask that writes.
    pub subtask: Subtask,
    /// The attempt of the job; together with `run` it names one start of this writer, for names that are never reused.
    pub attempt: Attempt,
    /// Counts the restarts within the attempt, from 0.
    pub run: u32,
    /// The checkpoint that the job was restored from; `None` at a fresh start.
    pub restored: Option<CheckpointId>,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
}

/// Describes an output without transactions and makes its writers.
///
/// # Contract
/// Implemented by whoever connects an output; shared by all subtasks of a run.
pub trait Sink: Send + Sync + 'static {
    /// What is written.
    type In: Record;
    /// Writes the records of one subtask.
    type Writer: SinkWriter<In = Self::In>;

    /// Makes the writer of a subtask; called on the subtask's thread.
    ///
    /// # Errors
    /// Any: the job fails.
    fn writer(&self, cx: &SinkContext) -> Result<Self::Writer>;
}

/// Writes the records of one subtask.
///
/// # Contract
/// Implemented by sinks; used on the subtask's thread only.
pub trait SinkWriter: 'static {
    /// What is written.
    type In;

    /// Writes a record with its event time in milliseconds, if it has one.
    ///
    /// # Errors
    /// Any: the job fails.
    fn write(&mut self, record: Self::In, time_ms: Option<i64>) -> Result<()>;

    /// Passes on what is buffered; called when the subtask has nothing to do and before every checkpoint.
    ///
    /// # Errors
    /// Any: the job fails.
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    /// Learns that no more records come; in every run that comes to the end.
    ///
    /// # Errors
    /// Any: the job fails.
    fn finish(&mut self) -> Result<()> {
        self.flush()
    }
}

/// Describes an output with transactions and makes its writers.
///
/// # Contract
/// Implemented by whoever connects an output; shared by all subtasks of a run.
pub trait TwoPhaseSink: Send + Sync + 'static {
    /// What is written.
    type In: Record;
    /// Names a transaction: enough to commit or abort it from another process. It is stored in checkpoints.
    type Transaction: StateType;
    /// Writes the records of one subtask.
    type Writer: TwoPhaseWriter<In = Self::In, Transaction = Self::Transaction>;

    /// Makes the writer of a subtask; called on the subtask's thread. Opens no transaction before the first record.
    ///
    /// # Errors
    /// Any: the job fails.
    fn writer(&self, cx: &SinkContext) -> Result<Self::Writer>;
}

/// A transaction that was ended by [`TwoPhaseWriter::pre_commit`].
pub struct PreCommitted<T> {
    /// Names it.
    pub transaction: T,
    /// What is left to do until it survives a crash, such as a sync to disk.
    pub harden: Option<Harden>,
}

/// Makes a transaction survive a crash.
///
/// Run on another thread, once at a time. A checkpoint that names the transaction completes only after it succeeded: if the one
/// for which the transaction was ended is given up before that, the next one runs it again.
///
/// # Errors
/// Any: the checkpoint is declined, and the next one tries again. `Poisoned` when it never will succeed: the job fails, so that
/// the records are written anew after a restore of a checkpoint that does not name the transaction.
pub type Harden = Box<dyn FnMut() -> Result<()> + Send>;

/// What came of a commit that did not fail.
///
/// | outcome | what the runtime does |
/// | --- | --- |
/// | [`Committed`](Self::Committed), [`AlreadyCommitted`](Self::AlreadyCommitted) | forgets the transaction |
/// | [`RetryLater`](Self::RetryLater) | keeps it in the checkpoints and tries again when the next one completes, at once if the job ends with this one; the job fails with the reason after [`COMMIT_TRIES`] tries |
/// | [`Gone`](Self::Gone) | warns, counts it in `holdfast_sink_transactions_gone_total` and forgets it |
#[derive(Debug)]
pub enum CommitOutcome {
    /// It is visible now.
    Committed,
    /// It was visible before.
    AlreadyCommitted,
    /// It may be visible later, such as when the other side is busy or out of reach.
    RetryLater(Error),
    /// It can't be committed any more and was not committed before: its records are lost. A sink returns this only if its
    /// user accepted the loss, and an error otherwise.
    Gone(Error),
}

/// How often a transaction is tried before [`CommitOutcome::RetryLater`] fails the job.
pub const COMMIT_TRIES: u32 = 10;

/// Writes the records of one subtask into transactions.
///
/// The runtime keeps the list of ended transactions: it is part of every checkpoint until they are committed, and a
/// transaction whose checkpoint was aborted is committed with the next one that completes.
///
/// # Contract
/// Implemented by sinks; used on the subtask's thread only.
/// - At most one transaction is open: from the first record after the start or after `pre_commit`.
/// - `commit` is repeatable: committing again what is committed succeeds, in this process and in a later one.
/// - In this process a transaction is committed only after its [`harden`](PreCommitted::harden) succeeded.
/// - Transactions are committed in the order in which they were ended, except that those that failed or are to be retried
///   don't hold up the others.
/// - At restore, before the first record: `recover_and_commit` for every ended one of the checkpoint, then
///   `recover_and_abort` for every open one, then `recovered`. Dealt out anew after a change of the parallelism, each goes to exactly one writer.
/// - A writer never touches what another lineage wrote: a successor may be running while this one is thawed.
pub trait TwoPhaseWriter: 'static {
    /// What is written.
    type In;
    /// Names a transaction.
    type Transaction;

    /// Writes a record, with its event time in milliseconds if it has one, into the open transaction.
    ///
    /// # Errors
    /// Any: the job fails.
    fn write(&mut self, record: Self::In, time_ms: Option<i64>) -> Result<()>;

    /// Ends the open transaction: `None` if there is none. After an error the transaction stays open.
    ///
    /// # Errors
    /// Any: the checkpoint is declined.
    fn pre_commit(
        &mut self,
        checkpoint: CheckpointId,
    ) -> Result<Option<PreCommitted<Self::Transaction>>>;

    /// Names the open transaction, if there is one and it leaves something behind after a crash.
    fn open_transaction(&self) -> Option<Self::Transaction> {
        None
    }

    /// Makes an ended transaction visible.
    ///
    /// # Errors
    /// Any: the others are still tried, then the job fails, and the transaction is committed after the restart.
    fn commit(&mut self, transaction: &Self::Transaction) -> Result<CommitOutcome>;

    /// Makes a transaction visible that an earlier run ended. One to be retried later is part of the next checkpoint.
    ///
    /// # Errors
    /// `Corrupt` when what was to be committed is gone and was not committed before; any: the job fails.
    fn recover_and_commit(&mut self, transaction: &Self::Transaction) -> Result<CommitOutcome> {
        self.commit(transaction)
    }

    /// Removes what an earlier run left of a transaction that was open; nothing left is fine.
    ///
    /// # Errors
    /// Any: the job fails.
    fn recover_and_abort(&mut self, transaction: &Self::Transaction) -> Result<()>;

    /// Learns that recovery is over: what earlier runs of this job left behind without any checkpoint naming it may be removed.
    ///
    /// # Errors
    /// Any: the job fails.
    fn recovered(&mut self) -> Result<()> {
        Ok(())
    }

    /// Passes on what is buffered; called when the subtask has nothing to do.
    ///
    /// # Errors
    /// Any: the job fails.
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}
