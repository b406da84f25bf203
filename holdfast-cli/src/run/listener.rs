use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use runtime_core::{JobEvent, JobEvents};
use state_api::CheckpointId;

use super::WorkerEvent;
use super::control::Asked;
use super::restoring::{self, is_special};
use crate::failure::{Exit, plain};
use crate::input::Reading;
use crate::operate::copies_in_words;
use crate::terminal::say;

/// Time between two reports of progress.
const PROGRESS: Duration = Duration::from_millis(40);

/// Tells people, or the process that started this one, what happens to the job.
pub(crate) struct Listener {
    /// Whether events go to the standard output as JSON, instead of words for people.
    as_events: bool,
    reading: Arc<Reading>,
    asked: Asked,
    /// Whether the first run starts from a checkpoint of this job's own folder.
    from_latest: bool,
    attempt: AtomicU64,
    running: AtomicBool,
    /// Whether any run got so far that records could come.
    ran: AtomicBool,
    /// The newest checkpoint that the job can go on from.
    last: Mutex<Option<CheckpointId>>,
    /// What is said only if the run does not fail for the same reason right away.
    held: Mutex<Option<String>>,
}

impl Listener {
    pub(super) fn new(
        as_events: bool,
        reading: Arc<Reading>,
        asked: Asked,
        from_latest: bool,
    ) -> Self {
        Self {
            as_events,
            reading,
            asked,
            from_latest,
            attempt: AtomicU64::new(0),
            running: AtomicBool::new(false),
            ran: AtomicBool::new(false),
            last: Mutex::new(None),
            held: Mutex::new(None),
        }
    }

    /// Returns the newest checkpoint in the job's own folder that it completed or was restored from.
    pub(crate) fn last_checkpoint(&self) -> Option<CheckpointId> {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells whether any run got past its start.
    pub(crate) fn ran(&self) -> bool {
        self.ran.load(Ordering::Acquire)
    }

    /// Returns the number of records that this process read.
    pub(crate) fn records(&self) -> u64 {
        self.reading.emitted()
    }

    /// Takes note that the job has finished.
    pub(crate) fn finished(&self) {
        if self.as_events {
            self.running.store(false, Ordering::Release);
            write_event(&WorkerEvent::Finished {
                records: self.records(),
            });
        }
    }

    /// Says what was held back.
    pub(crate) fn say_held(&self) {
        let held = self
            .held
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        held.iter().for_each(|line| say(line));
    }

    fn note(&self, id: CheckpointId) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(id);
    }

    fn as_event(&self, event: &JobEvent) -> Option<WorkerEvent> {
        Some(match event {
            JobEvent::Running {
                restored,
                positions,
                read,
            } => WorkerEvent::Running {
                attempt: self.attempt.load(Ordering::Acquire),
                restored: restored.map(|id| id.0),
                positions: positions
                    .iter()
                    .filter(|position| is_of_file(position))
                    .cloned()
                    .collect(),
                left: self.reading.left(),
                from_copies: read.from_copies,
                from_store: read.from_store,
            },
            JobEvent::CheckpointTriggered(id) => WorkerEvent::Triggered { checkpoint: id.0 },
            JobEvent::CheckpointCompleted(stats) => WorkerEvent::Completed {
                checkpoint: stats.id.0,
                duration_ms: stats.duration_ms,
                bytes: stats.total_bytes,
                left: self.reading.left(),
            },
            JobEvent::CheckpointAborted { id, failure } => WorkerEvent::Aborted {
                checkpoint: id.0,
                reason: plain(&failure.to_error()),
            },
            JobEvent::RunFailed {
                error,
                restart_in_ms: Some(_),
            } => WorkerEvent::Restarting {
                reason: plain(error),
            },
            _ => return None,
        })
    }

    fn in_words(&self, event: &JobEvent) -> Option<String> {
        Some(match event {
            JobEvent::Running {
                restored: Some(id),
                positions,
                read,
            } => {
                let files: Vec<&str> = positions
                    .iter()
                    .filter(|position| is_of_file(position))
                    .map(String::as_str)
                    .collect();
                let at = if files.is_empty() {
                    "behind the end of the input".to_owned()
                } else {
                    files.join(", ")
                };
                let copies = copies_in_words(read.from_copies, read.from_store);
                format!("restored checkpoint {id}{copies}; the input goes on at {at}")
            }
            JobEvent::CheckpointAborted { id, failure } => {
                format!(
                    "warning: checkpoint {id} was given up: {}",
                    plain(&failure.to_error())
                )
            }
            JobEvent::RestorePlanned(plan) if !self.from_latest || is_special(plan) => {
                restoring::in_words(plan).trim_end().to_owned()
            }
            JobEvent::Warning(error) => format!("warning: {}", plain(error)),
            JobEvent::RunFailed {
                error,
                restart_in_ms: Some(ms),
            } => format!(
                "warning: the run failed and is restarted in {ms} ms: {}",
                plain(error)
            ),
            _ => return None,
        })
    }
}

/// Positions of the built-in list of carriers say nothing to anybody.
fn is_of_file(position: &str) -> bool {
    position.contains('/')
}

impl JobEvents for Listener {
    fn on_event(&self, event: &JobEvent) {
        match event {
            JobEvent::RunStarted {
                attempt,
                restored,
                run,
            } => {
                self.attempt.store(attempt.0, Ordering::Release);
                if *run > 0 || self.from_latest {
                    restored.iter().for_each(|id| self.note(*id));
                }
            }
            JobEvent::CheckpointCompleted(stats) if !stats.kind.is_savepoint() => {
                self.note(stats.id);
            }
            JobEvent::Running { .. } => self.ran.store(true, Ordering::Release),
            JobEvent::RunFailed {
                restart_in_ms: Some(_),
                ..
            } => self.asked.goes_on(),
            _ => {}
        }
        if self.as_events {
            if let Some(event) = self.as_event(event) {
                write_event(&event);
            }
            if matches!(event, JobEvent::Running { .. }) {
                self.running.store(true, Ordering::Release);
            }
            return;
        }
        if !matches!(event, JobEvent::RunFailed { .. }) {
            self.say_held();
        }
        let words = self.in_words(event);
        if matches!(event, JobEvent::CheckpointAborted { .. }) {
            *self.held.lock().unwrap_or_else(PoisonError::into_inner) = words;
        } else {
            words.iter().for_each(|line| say(line));
        }
    }
}

/// Reports progress several times a second, for as long as the process lives.
pub(crate) async fn report_progress(listener: Arc<Listener>) {
    let mut ticks = tokio::time::interval(PROGRESS);
    loop {
        ticks.tick().await;
        if listener.running.load(Ordering::Acquire) {
            write_event(&WorkerEvent::Progress {
                left: listener.reading.left(),
            });
        }
    }
}

fn write_event(event: &WorkerEvent) {
    let line = serde_json::to_string(event).unwrap_or_default();
    let mut stdout = std::io::stdout().lock();
    if writeln!(stdout, "{line}")
        .and_then(|()| stdout.flush())
        .is_err()
    {
        // Whoever started this process has gone.
        std::process::exit(Exit::Failed as i32);
    }
}
