use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::{Exit, Failure};

/// Whether the process was asked to stop.
#[derive(Clone, Default)]
pub(crate) struct Interrupted(Arc<AtomicBool>);

impl Interrupted {
    pub(crate) fn was(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Calls a function at Ctrl-C or SIGTERM; a second one ends the process at once.
///
/// # Errors
/// When the signals can't be listened to.
pub(crate) fn cancel_on_interrupt(
    io: &Runtime,
    cancel: impl Fn() + Send + 'static,
) -> Result<Interrupted, Failure> {
    let interrupted = Interrupted::default();
    let flag = interrupted.clone();
    let _entered = io.enter();
    let deaf =
        |error: std::io::Error| Failure::failed(format!("signals can't be listened to: {error}"));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(deaf)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(deaf)?;
    io.spawn(async move {
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if flag.0.swap(true, Ordering::AcqRel) {
                std::process::exit(Exit::Interrupted as i32);
            }
            cancel();
        }
    });
    Ok(interrupted)
}
