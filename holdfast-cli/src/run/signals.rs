use std::time::Duration;

use runtime_core::execution::JobControl;
use state_api::ErrorKind;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::control::Asked;
use super::job_report::{last_one_waits_for, taken};
use super::listening::Unlisten;
use crate::failure::{Exit, Failure, plain};
use crate::interruption::{ignores_hangups, received};
use crate::terminal::say;

/// Time between the first two tries of a last checkpoint; it doubles from one to the next.
const AGAIN: Duration = Duration::from_millis(200);

/// The longest such time.
const LONGEST: Duration = Duration::from_secs(5);

/// How long a job may take to say what its last checkpoint waits for.
const WHY: Duration = Duration::from_secs(1);

/// How long a job may take to end that is cancelled after SIGTERM or SIGHUP.
const CANCEL: Duration = Duration::from_secs(15);

/// What a signal does to a job.
pub(super) struct OnSignal {
    pub(super) control: JobControl,
    pub(super) asked: Asked,
    pub(super) unlisten: Unlisten,
    /// How long SIGTERM, or SIGHUP, waits for a last checkpoint; `None` when nothing would outlive the process.
    pub(super) stop_within: Option<Duration>,
    /// Why nothing would.
    pub(super) nothing_kept: &'static str,
}

/// The signals that ask a process to end.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// The terminal has gone; `None` where the program was started to outlive it.
    hangup: Option<Signal>,
    /// Whether SIGTERM has come before.
    terminated: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Interrupt,
    Terminate,
    Hangup,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
            Self::Hangup => "SIGHUP",
        }
    }
}

impl Signals {
    /// Begins to listen: from here on a signal does not end the process.
    ///
    /// # Errors
    /// When the signals can't be listened to.
    pub(super) fn listen(io: &Runtime) -> Result<Self, Failure> {
        let _entered = io.enter();
        let deaf = |error: std::io::Error| {
            Failure::failed(format!("signals can't be listened to: {error}"))
        };
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(deaf)?,
            terminate: signal(SignalKind::terminate()).map_err(deaf)?,
            hangup: match ignores_hangups() {
                true => None,
                false => Some(signal(SignalKind::hangup()).map_err(deaf)?),
            },
            terminated: false,
        })
    }

    /// Makes Ctrl-C cancel the job, and SIGTERM, or SIGHUP, stop it with a last checkpoint; the signal after a cancel ends the process at once.
    pub(super) fn control(mut self, io: &Runtime, job: OnSignal) {
        io.spawn(async move {
            let first = self.next().await;
            self.terminated = first == Kind::Terminate;
            let terminated = first != Kind::Interrupt;
            if terminated {
                job.stop(first, &mut self).await;
            }
            job.asked.to_end();
            job.control.cancel();
            // Whoever sits at a terminal sees that it hangs; whoever sends SIGTERM from afar relies on a bound.
            let insisted = async {
                match terminated {
                    true => self.insisted().await,
                    false => drop(self.next().await),
                }
            };
            tokio::select! {
                () = insisted => {}
                () = sleep(CANCEL), if terminated => {
                    say(&format!("warning: the job has not ended within {CANCEL:?}: leaving it as it is"));
                }
            }
            // Nothing that the job does now is worth waiting for.
            job.unlisten.now();
            std::process::exit(Exit::Interrupted as i32);
        });
    }

    async fn next(&mut self) -> Kind {
        tokio::select! {
            _ = self.interrupt.recv() => Kind::Interrupt,
            _ = self.terminate.recv() => Kind::Terminate,
            () = received(self.hangup.as_mut()) => Kind::Hangup,
        }
    }

    /// Waits for a signal that somebody sends who does not want to wait.
    ///
    /// SIGHUP is none: a shell that ends sends it, and so does its terminal a moment later, and others send it together with SIGTERM,
    /// in which case either is heard first.
    async fn insisted(&mut self) {
        loop {
            match self.next().await {
                Kind::Interrupt => return,
                Kind::Terminate if std::mem::replace(&mut self.terminated, true) => return,
                Kind::Terminate | Kind::Hangup => {}
            }
        }
    }
}

impl OnSignal {
    /// Stops the job; returns when it must be cancelled instead, and never when it stops.
    async fn stop(&self, asked_by: Kind, signals: &mut Signals) {
        let asked_by = asked_by.name();
        let Some(within) = self.stop_within else {
            say(&format!(
                "{asked_by}: {}, so nothing is kept",
                self.nothing_kept
            ));
            return;
        };
        say(&format!(
            "{asked_by}: stopping with a last checkpoint, within {within:?}; SIGINT or another SIGTERM cancels at once"
        ));
        let until = Instant::now() + within;
        tokio::select! {
            stopped = timeout_at(until, self.last_checkpoint()) => match stopped {
                Ok(true) => {
                    // The end of the job is waited for elsewhere; it has the rest of the time.
                    tokio::select! {
                        () = tokio::time::sleep_until(until) => {
                            say(&format!("warning: the job has not ended {within:?} after {asked_by}: cancelling it; {}", self.why().await));
                        }
                        () = signals.insisted() => say("cancelling at once"),
                    }
                }
                // It ends by itself.
                Ok(false) => {}
                Err(_) => say(&format!(
                    "warning: there was no last checkpoint within {within:?}: cancelling; {}",
                    self.why().await
                )),
            },
            () = signals.insisted() => say("cancelling at once"),
        }
    }

    /// Says what a stop waits for that takes too long.
    async fn why(&self) -> String {
        match timeout(WHY, self.control.status()).await {
            Ok(Ok(report)) => last_one_waits_for(&report),
            Ok(Err(_)) => "the job ends".into(),
            Err(_) => "the job does not say what it waits for".into(),
        }
    }

    /// Takes a last checkpoint, trying again for as long as it is waited for; `false` when the job ends before.
    async fn last_checkpoint(&self) -> bool {
        let mut again = AGAIN;
        loop {
            let stopping = self.asked.to_stop();
            let stopped = self.control.stop_with_checkpoint().await;
            match stopped {
                Ok(done) => {
                    stopping.with(taken(&done), false);
                    return true;
                }
                Err(error) if error.kind() == ErrorKind::Cancelled => return false,
                // Why each of the next fails is told as for every checkpoint.
                Err(error) if again == AGAIN => say(&format!(
                    "warning: no last checkpoint yet, trying again: {}",
                    plain(&error)
                )),
                Err(_) => {}
            }
            drop(stopping);
            sleep(again).await;
            again = LONGEST.min(again * 2);
        }
    }
}
