use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use state_api::CheckpointId;

use super::{Activity, ActivityPhase};
use crate::channel::{Barrier, Signal};

/// What the engine tells a subtask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Begin a checkpoint; for sources.
    Trigger(Barrier),
    /// A checkpoint is complete.
    Completed(CheckpointId),
    /// A checkpoint is given up.
    Aborted(CheckpointId),
    /// The input has ended and nothing else is to be done: leave.
    Finish,
    /// The input has ended in a job without checkpoints: let sinks commit, then leave.
    CommitAndFinish,
    /// Leave at once.
    Stop,
}

/// What a subtask lets others see of its work; bytes are counted beside it.
#[derive(Clone, Debug)]
struct Shown {
    checkpoint: CheckpointId,
    phase: ActivityPhase,
    since_ms: i64,
}

/// Commands on their way to a subtask, and what it lets others see of its work.
#[derive(Debug)]
pub struct Mailbox {
    commands: Mutex<VecDeque<Command>>,
    any: AtomicBool,
    signal: Arc<Signal>,
    activity: Mutex<Option<Shown>>,
    /// Bytes that came in since the first barrier.
    aligning: AtomicU64,
    /// Bytes that the newest async part has written.
    written: Arc<AtomicU64>,
}

impl Mailbox {
    /// Creates an empty mailbox that rings a subtask's signal.
    #[must_use]
    pub fn new(signal: Arc<Signal>) -> Arc<Self> {
        Arc::new(Self {
            commands: Mutex::default(),
            any: AtomicBool::new(false),
            signal,
            activity: Mutex::new(None),
            aligning: AtomicU64::new(0),
            written: Arc::default(),
        })
    }

    /// Puts a command in.
    pub fn send(&self, command: Command) {
        self.commands
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push_back(command);
        self.any.store(true, Ordering::Release);
        self.signal.call();
    }

    /// Takes the oldest command out.
    #[must_use]
    pub fn take(&self) -> Option<Command> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        let command = commands.pop_front();
        self.any.store(!commands.is_empty(), Ordering::Release);
        command
    }

    /// Takes out the oldest word that a checkpoint is complete, whatever else came before it.
    pub(crate) fn take_completed(&self) -> Option<CheckpointId> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, id) = commands.iter().enumerate().find_map(|(at, command)| {
            let Command::Completed(id) = command else {
                return None;
            };
            Some((at, *id))
        })?;
        commands.remove(at);
        self.any.store(!commands.is_empty(), Ordering::Release);
        Some(id)
    }

    /// Returns the signal that it rings.
    #[must_use]
    pub fn signal(&self) -> &Arc<Signal> {
        &self.signal
    }

    /// Shows what the subtask does for a checkpoint, and since when.
    pub(crate) fn show(&self, checkpoint: CheckpointId, phase: ActivityPhase, since_ms: i64) {
        let mut shown = self.activity.lock().unwrap_or_else(PoisonError::into_inner);
        let precedes = |shown: &Shown| {
            shown.checkpoint < checkpoint
                || (shown.checkpoint == checkpoint && shown.phase != ActivityPhase::Reported)
        };
        if shown.as_ref().is_none_or(precedes) {
            *shown = Some(Shown {
                checkpoint,
                phase,
                since_ms,
            });
        }
    }

    /// Says how many bytes came in since the first barrier of the checkpoint that is shown.
    pub(crate) fn show_aligning(&self, bytes: u64) {
        self.aligning.store(bytes, Ordering::Relaxed);
    }

    /// Returns a new count of the bytes that an async part writes; it is shown from now on.
    pub(crate) fn count_written(&self) -> Arc<AtomicU64> {
        self.written.store(0, Ordering::Relaxed);
        Arc::clone(&self.written)
    }

    /// Returns what the subtask does for the newest checkpoint that it has seen a barrier of; `None` before the first.
    #[must_use]
    pub fn activity(&self) -> Option<Activity> {
        let shown = self.activity.lock().unwrap_or_else(PoisonError::into_inner);
        let Shown {
            checkpoint,
            phase,
            since_ms,
        } = shown.clone()?;
        let bytes = match phase {
            ActivityPhase::Aligning { .. } | ActivityPhase::RecordingInFlight { .. } => {
                self.aligning.load(Ordering::Relaxed)
            }
            ActivityPhase::AsyncPart | ActivityPhase::Reported => {
                self.written.load(Ordering::Relaxed)
            }
            ActivityPhase::SyncPart => 0,
        };
        Some(Activity {
            checkpoint,
            phase,
            since_ms,
            bytes,
        })
    }
}
