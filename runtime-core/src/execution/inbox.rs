use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use state_api::{Clock, Error};

use super::control::Ask;
use crate::channel::Signal;
use crate::coordinator::{Fact, TaskId};
use crate::task::{CheckpointAck, Reporter, TaskReport};

/// What the loop of a job is told.
#[derive(Debug)]
pub(crate) enum Message {
    /// By a subtask of a run.
    Task {
        run: u32,
        task: TaskId,
        report: TaskReport,
    },
    /// By work that an action of the coordinator started.
    Fact(Fact<CheckpointAck>),
    /// A deletion is over that the coordinator does not wait for.
    Drained,
    /// The async part of a snapshot has ended, with or without a report before this.
    Written,
    /// Something failed without harm.
    Warning(Error),
    /// By a person who waits for the answer.
    Ask(Ask),
    /// By a person: end the job now.
    Cancel,
}

/// Messages on their way to the loop of a job, and when it wants to be woken without one.
#[derive(Debug)]
pub(crate) struct Inbox {
    messages: Mutex<VecDeque<Message>>,
    /// The loop has ended: nobody reads any more.
    closed: AtomicBool,
    /// Async parts of snapshots whose end the loop has not read.
    writing: AtomicUsize,
    signal: Arc<Signal>,
    wake_at_ms: AtomicI64,
}

impl Inbox {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            messages: Mutex::default(),
            closed: AtomicBool::new(false),
            writing: AtomicUsize::new(0),
            signal: Signal::new(),
            wake_at_ms: AtomicI64::new(i64::MAX),
        })
    }

    pub(crate) fn signal(&self) -> &Arc<Signal> {
        &self.signal
    }

    /// Adds a message; after the end of the loop it is dropped, and with it the way to answer it.
    pub(crate) fn send(&self, message: Message) {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        if self.closed.load(Ordering::Acquire) {
            return;
        }
        messages.push_back(message);
        drop(messages);
        self.signal.ring();
    }

    /// Drops what nobody will read, now and later.
    pub(crate) fn close(&self) {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        self.closed.store(true, Ordering::Release);
        let unread = std::mem::take(&mut *messages);
        drop(messages);
        drop(unread);
    }

    /// Waits for the next message; `None` when the clock reaches `wake_at_ms` first.
    ///
    /// Whoever polls the loop rings it at that time; see [`wake_at_ms`](Self::wake_at_ms).
    pub(crate) async fn next(&self, wake_at_ms: Option<i64>, clock: &dyn Clock) -> Option<Message> {
        // Whoever waits for something else as well may have enough before a message comes.
        let _awake = Awake(&self.wake_at_ms);
        poll_fn(|_| {
            if let Some(message) = self
                .messages
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop_front()
            {
                if matches!(message, Message::Written) {
                    self.writing.fetch_sub(1, Ordering::AcqRel);
                }
                return Poll::Ready(Some(message));
            }
            if wake_at_ms.is_some_and(|at| at <= clock.now_ms()) {
                return Poll::Ready(None);
            }
            self.wake_at_ms
                .store(wake_at_ms.unwrap_or(i64::MAX), Ordering::Release);
            Poll::Pending
        })
        .await
    }

    /// Returns the number of async parts of snapshots that may still report.
    pub(crate) fn writing(&self) -> usize {
        self.writing.load(Ordering::Acquire)
    }

    /// Returns when the loop wants to be polled at the latest.
    pub(crate) fn wake_at_ms(&self) -> Option<i64> {
        let at = self.wake_at_ms.load(Ordering::Acquire);
        (at != i64::MAX).then_some(at)
    }
}

/// Takes back when the loop wants to be woken.
struct Awake<'a>(&'a AtomicI64);

impl Drop for Awake<'_> {
    fn drop(&mut self) {
        self.0.store(i64::MAX, Ordering::Release);
    }
}

/// Passes the reports of one run's subtasks on.
pub(crate) struct RunReporter {
    pub(crate) run: u32,
    pub(crate) inbox: Arc<Inbox>,
}

impl Reporter for RunReporter {
    fn report(&self, task: TaskId, report: TaskReport) {
        self.inbox.send(Message::Task {
            run: self.run,
            task,
            report,
        });
    }

    fn writing(&self) -> Option<Box<dyn Send>> {
        self.inbox.writing.fetch_add(1, Ordering::AcqRel);
        Some(Box::new(Writing(Arc::clone(&self.inbox))))
    }
}

/// The async part of a snapshot, for as long as it goes on.
struct Writing(Arc<Inbox>);

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.send(Message::Written);
    }
}
