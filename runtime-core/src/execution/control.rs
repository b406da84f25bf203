use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_channel::oneshot;
use state_api::{CheckpointId, Error, Result};

use super::JobReport;
use super::inbox::{Inbox, Message};
use crate::channel::Signal;
use crate::coordinator::{CheckpointKind, RequestId, SavepointFormat, Trigger};

/// Asks things of a running job, from any thread; cheap to clone.
#[derive(Clone, Debug)]
pub struct JobControl {
    inbox: Arc<Inbox>,
}

/// A checkpoint that somebody asked for, complete and durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointDone {
    /// The checkpoint.
    pub id: CheckpointId,
    /// Its kind.
    pub kind: CheckpointKind,
    /// Its folder, as a path or URL that a job can be started from; `None` where there is no such thing.
    pub path: Option<String>,
    /// Milliseconds from its trigger to the published metadata.
    pub duration_ms: u64,
    /// All bytes it refers to.
    pub total_bytes: u64,
    /// The bytes written for it.
    pub new_bytes: u64,
}

/// What somebody asks of the loop of a job.
#[derive(Debug)]
pub(crate) enum Ask {
    /// Take a checkpoint; the request's number is given by the loop.
    Checkpoint {
        trigger: Trigger,
        reply: oneshot::Sender<Result<CheckpointDone>>,
    },
    /// Say how things stand.
    Status {
        reply: oneshot::Sender<Result<JobReport>>,
    },
}

impl JobControl {
    pub(crate) fn new(inbox: Arc<Inbox>) -> Self {
        Self { inbox }
    }

    /// Asks for a checkpoint beside the periodic ones; a `full` one refers to nothing that an earlier one wrote.
    pub fn checkpoint(&self, full: bool) -> Reply<CheckpointDone> {
        let trigger = request(CheckpointKind::Checkpoint);
        self.trigger(Trigger { full, ..trigger })
    }

    /// Asks for a savepoint below a folder, or below the configured one.
    pub fn savepoint(
        &self,
        target: Option<String>,
        format: SavepointFormat,
    ) -> Reply<CheckpointDone> {
        self.trigger(Trigger {
            format,
            target,
            ..request(CheckpointKind::Savepoint)
        })
    }

    /// Asks for a savepoint after which the job ends; with `drain` every window and timer fires before it.
    pub fn stop_with_savepoint(
        &self,
        drain: bool,
        target: Option<String>,
        format: SavepointFormat,
    ) -> Reply<CheckpointDone> {
        self.trigger(Trigger {
            format,
            target,
            ..request(CheckpointKind::StopWithSavepoint { drain })
        })
    }

    /// Asks for a last checkpoint after which the job is put aside; retained checkpoints stay.
    ///
    /// If the checkpoint fails, the job goes on.
    pub fn stop_with_checkpoint(&self) -> Reply<CheckpointDone> {
        self.trigger(request(CheckpointKind::StopWithCheckpoint))
    }

    /// Ends the job now: nothing more is processed or committed, checkpoints are kept or deleted as configured.
    pub fn cancel(&self) {
        self.inbox.send(Message::Cancel);
    }

    /// Asks how things stand.
    pub fn status(&self) -> Reply<JobReport> {
        let (reply, answer) = oneshot::channel();
        self.inbox.send(Message::Ask(Ask::Status { reply }));
        Reply { answer }
    }

    fn trigger(&self, trigger: Trigger) -> Reply<CheckpointDone> {
        let (reply, answer) = oneshot::channel();
        self.inbox
            .send(Message::Ask(Ask::Checkpoint { trigger, reply }));
        Reply { answer }
    }
}

fn request(kind: CheckpointKind) -> Trigger {
    Trigger::new(kind, RequestId(0))
}

/// The answer to come of a question to a job; an error when the job ends before it answers.
///
/// A future for those who have an executor; [`wait`](Self::wait) for those who have none.
#[must_use = "the answer says whether it worked"]
pub struct Reply<T> {
    answer: oneshot::Receiver<Result<T>>,
}

impl<T> Reply<T> {
    /// Waits for the answer on this thread.
    ///
    /// # Errors
    /// The answer's; `Cancelled` when the job ends first.
    pub fn wait(mut self) -> Result<T> {
        let signal = Signal::new();
        let waker = signal.waker();
        loop {
            match Pin::new(&mut self).poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(answer) => return answer,
                Poll::Pending => signal.wait(None),
            };
        }
    }
}

impl<T> Future for Reply<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        Pin::new(&mut self.answer).poll(cx).map(|answer| {
            answer.unwrap_or_else(|_| Err(Error::cancelled("the job ended before it answered")))
        })
    }
}

impl<T> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply")
    }
}
