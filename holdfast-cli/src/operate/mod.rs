//! The commands that ask something of a running job: `status`, `explain`, `checkpoint`, `savepoint`, `stop`, `cancel`.
mod explain;
mod request;
mod status;

pub(crate) use explain::explain;
pub(crate) use request::{cancel, checkpoint, savepoint, stop};
pub(crate) use status::{copies_in_words, status};

use std::future::Future;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::signal::unix::{SignalKind, signal};

use crate::control::protocol::Request;
use crate::control::report::RunReport;
use crate::control::{Reachable, SocketFolders, ask, find};
use crate::failure::{Exit, Failure};
use crate::interruption::{ignores_hangups, received};
use crate::terminal::say;

/// How long it may take to say why it has not answered.
const WHY_WITHIN: Duration = Duration::from_secs(2);

/// How long a job may take to say how it stands, unless said otherwise.
const STATUS_WITHIN: Duration = Duration::from_secs(10);

/// Runs what talks to jobs, until it is done or the user presses Ctrl-C; then `left` says what goes on without him.
fn with_jobs<T>(left: &str, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let io = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("no input and output: {error}")))?;
    io.block_on(async {
        let deaf = |error: std::io::Error| {
            Failure::failed(format!("signals can't be listened to: {error}"))
        };
        let mut interrupt = signal(SignalKind::interrupt()).map_err(deaf)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(deaf)?;
        let mut hangup = match ignores_hangups() {
            true => None,
            false => Some(signal(SignalKind::hangup()).map_err(deaf)?),
        };
        tokio::select! {
            done = work => return done,
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            () = received(hangup.as_mut()) => {}
        }
        if !left.is_empty() {
            say(left);
        }
        Err(Failure::silent(Exit::Interrupted))
    })
}

/// Asks a job that may take its time, and says on the standard error what it waits for.
async fn ask_patiently<T: DeserializeOwned>(
    job: &Reachable,
    request: &Request,
    within: Option<Duration>,
) -> Result<T, Failure> {
    let mut progress = Progress::default();
    let answer = ask(job, request, within, |text| progress.told(text)).await;
    match answer {
        Err(failure) if failure.exit() == Exit::NoAnswer => Err(match under_way(job).await {
            Some(text) => failure.and(&text),
            None => failure,
        }),
        answer => answer,
    }
}

/// Says what the checkpoints of a job wait for; nothing if there are none, or the job does not answer.
async fn under_way(job: &Reachable) -> Option<String> {
    let asked = ask::<RunReport>(job, &Request::Status, Some(WHY_WITHIN), |_| {});
    status::under_way(&asked.await.ok()?)
}

/// Says what is waited for after a while, and then when it changes, but not every second.
#[derive(Default)]
struct Progress {
    last: String,
    quiet: u32,
}

impl Progress {
    /// Words on what is waited for that pass between two that are said.
    const EVERY: u32 = 3;

    fn told(&mut self, text: &str) {
        self.quiet += 1;
        if self.quiet >= Self::EVERY && !text.is_empty() && text != self.last {
            say(&format!("waiting: {text}"));
            (self.last, self.quiet) = (text.to_owned(), 0);
        }
    }
}

/// Finds the job that is meant.
async fn meant(job: Option<&str>) -> Result<Reachable, Failure> {
    find(&SocketFolders::of_environment(), job).await
}
