use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use runtime_core::execution::{CheckpointDone, JobControl, Reply, SavepointFormat};
use serde_json::json;
use state_api::{Error, ErrorKind};
use tokio::sync::watch;

use super::job_report::{More, taken, waits_for};
use super::store::Checkpoints;
use crate::control::protocol::{Ending, Fault, Format, Request, StopArguments, Taken};
use crate::control::{Answer, Controlled};
use crate::failure::plain;
use crate::input::Reading;

/// How long those who heard that the job stops may take to say so.
const WORD: Duration = Duration::from_secs(5);

/// What ended the job, if somebody asked for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked(Arc<Wishes>);

#[derive(Debug, Default)]
struct Wishes {
    wish: Mutex<Wish>,
    settled: Condvar,
}

#[derive(Clone, Debug, Default)]
struct Wish {
    ends: bool,
    drain: bool,
    taken: Option<Taken>,
    /// Requests to stop whose answer has not come.
    open: usize,
}

/// A request to stop the job that waits for its answer.
pub(super) struct Stopping(Asked);

impl Asked {
    fn wish(&self) -> MutexGuard<'_, Wish> {
        self.0.wish.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the job was asked to end.
    pub(super) fn to_end(&self) {
        self.wish().ends = true;
    }

    /// Notes that the job is asked to stop.
    pub(super) fn to_stop(&self) -> Stopping {
        self.wish().open += 1;
        Stopping(self.clone())
    }

    /// Notes that the job goes on although it was to stop: its last run failed at the very end, and is restarted.
    pub(super) fn goes_on(&self) {
        let mut wish = self.wish();
        if wish.taken.take().is_some() {
            wish.ends = false;
        }
    }

    /// Tells whether somebody asked the job to end.
    pub(super) fn was(&self) -> bool {
        self.wish().ends
    }

    /// Returns what the job, which has ended, was stopped with, and whether it was drained before.
    ///
    /// The job may be faster than those who heard that it stops.
    pub(super) fn stop(&self) -> Option<(Taken, bool)> {
        let open = |wish: &mut Wish| wish.open > 0;
        let waited = self.0.settled.wait_timeout_while(self.wish(), WORD, open);
        let wish = waited.unwrap_or_else(PoisonError::into_inner).0;
        wish.taken.clone().map(|taken| (taken, wish.drain))
    }
}

impl Stopping {
    /// Notes what the job stops with.
    pub(super) fn with(self, taken: Taken, drain: bool) {
        let mut wish = self.0.wish();
        wish.ends = true;
        (wish.drain, wish.taken) = (drain, Some(taken));
    }
}

impl Drop for Stopping {
    fn drop(&mut self) {
        self.0.wish().open -= 1;
        self.0.0.settled.notify_all();
    }
}

/// How the job ended, for those who wait for that.
pub(super) type End = Option<Result<Ending, String>>;

/// A job that runs, as whoever connects sees it.
pub(super) struct RunningJob {
    pub(super) control: JobControl,
    pub(super) asked: Asked,
    pub(super) reading: Arc<Reading>,
    /// Where checkpoints go.
    pub(super) checkpoints: Arc<Checkpoints>,
    /// Learns how it ends.
    pub(super) end: watch::Receiver<End>,
}

impl Controlled for RunningJob {
    fn perform(&self, request: Request) -> BoxFuture<'static, Answer> {
        let target = match &request {
            Request::Savepoint(arguments) => Some(&arguments.target),
            Request::Stop(arguments) if !arguments.no_savepoint => Some(&arguments.target),
            _ => None,
        };
        let refused_at_once =
            target.and_then(|target| self.checkpoints.refuses_savepoint(target.as_deref()));
        if let Some(why) = refused_at_once {
            return Box::pin(async move { Err((Fault::Request, why.to_owned())) });
        }
        match request {
            Request::Status => {
                let (report, more) = (self.control.status(), self.more());
                Box::pin(async move { Ok(json!(more.report(&report.await.map_err(refused)?))) })
            }
            Request::Checkpoint(arguments) => answer_with(self.control.checkpoint(arguments.full)),
            Request::Savepoint(arguments) => answer_with(
                self.control
                    .savepoint(arguments.target, format(arguments.format)),
            ),
            Request::Stop(arguments) => {
                let drain = arguments.drain;
                let stopping = self.asked.to_stop();
                let (stopped, end) = (self.stop(arguments), self.end.clone());
                Box::pin(async move {
                    let taken = taken(&stopped.await.map_err(refused)?);
                    stopping.with(taken, drain);
                    ended(end).await
                })
            }
            Request::Cancel => {
                self.asked.to_end();
                self.control.cancel();
                let end = self.end.clone();
                Box::pin(ended(end))
            }
        }
    }

    fn progress(&self) -> BoxFuture<'static, Option<String>> {
        let report = self.control.status();
        Box::pin(async move { report.await.ok().map(|report| waits_for(&report)) })
    }
}

impl RunningJob {
    fn stop(&self, arguments: StopArguments) -> Reply<CheckpointDone> {
        if arguments.no_savepoint {
            self.control.stop_with_checkpoint()
        } else {
            self.control.stop_with_savepoint(
                arguments.drain,
                arguments.target,
                format(arguments.format),
            )
        }
    }

    fn more(&self) -> More {
        More {
            records: self.reading.emitted(),
            checkpoints: self.checkpoints.in_words(),
        }
    }
}

/// Waits for the end of the job.
async fn ended(mut end: watch::Receiver<End>) -> Answer {
    let gone = || (Fault::Ended, "the job has ended".to_owned());
    let end = end
        .wait_for(Option::is_some)
        .await
        .map_err(|_| gone())?
        .clone();
    match end {
        Some(Ok(ending)) => Ok(json!(ending)),
        Some(Err(told)) => Err((Fault::Failed, told)),
        None => Err(gone()),
    }
}

fn answer_with(reply: Reply<CheckpointDone>) -> BoxFuture<'static, Answer> {
    Box::pin(async move { Ok(json!(taken(&reply.await.map_err(refused)?))) })
}

fn refused(error: Error) -> (Fault, String) {
    let fault = match error.kind() {
        ErrorKind::Cancelled => Fault::Ended,
        ErrorKind::Config | ErrorKind::InvalidArgument | ErrorKind::NotFound => Fault::Request,
        _ => Fault::Failed,
    };
    (fault, plain(&error))
}

fn format(format: Format) -> SavepointFormat {
    match format {
        Format::Canonical => SavepointFormat::Canonical,
        Format::Native => SavepointFormat::Native,
    }
}
