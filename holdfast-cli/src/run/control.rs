use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use runtime_core::execution::{CheckpointDone, JobControl, Reply, SavepointFormat};
use serde_json::json;
use state_api::{Error, ErrorKind};
use tokio::sync::watch;

use super::job_report::{More, taken, waits_for};
use crate::control::protocol::{Ending, Fault, Format, Request, StopArguments, Taken};
use crate::control::{Answer, Controlled};
use crate::failure::plain;
use crate::input::Reading;

/// What ended the job, if somebody asked for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked(Arc<Mutex<Wish>>);

#[derive(Clone, Debug, Default)]
struct Wish {
    ends: bool,
    drain: bool,
    taken: Option<Taken>,
}

impl Asked {
    fn set(&self, change: impl FnOnce(&mut Wish)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Notes that the job was asked to end.
    pub(super) fn to_end(&self) {
        self.set(|wish| wish.ends = true);
    }

    /// Notes what it stops with.
    pub(super) fn stopped_with(&self, taken: Taken, drain: bool) {
        self.set(|wish| {
            wish.ends = true;
            (wish.drain, wish.taken) = (drain, Some(taken));
        });
    }

    /// Tells whether somebody asked the job to end.
    pub(super) fn was(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).ends
    }

    /// Returns what it was stopped with, and whether it was drained before.
    pub(super) fn stop(&self) -> Option<(Taken, bool)> {
        let wish = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        wish.taken.clone().map(|taken| (taken, wish.drain))
    }
}

/// How the job ended, for those who wait for that.
pub(super) type End = Option<Result<Ending, String>>;

/// A job that runs, as whoever connects sees it.
pub(super) struct RunningJob {
    pub(super) control: JobControl,
    pub(super) asked: Asked,
    pub(super) reading: Arc<Reading>,
    /// What becomes of checkpoints, in words.
    pub(super) checkpoints: String,
    /// Learns how it ends.
    pub(super) end: watch::Receiver<End>,
}

impl Controlled for RunningJob {
    fn perform(&self, request: Request) -> BoxFuture<'static, Answer> {
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
                let (stopped, asked, end) =
                    (self.stop(arguments), self.asked.clone(), self.end.clone());
                Box::pin(async move {
                    let taken = taken(&stopped.await.map_err(refused)?);
                    asked.stopped_with(taken, drain);
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
            checkpoints: self.checkpoints.clone(),
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
