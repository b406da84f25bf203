//! Ctrl-C, SIGTERM and SIGHUP end work, and take along what it had put aside.
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::failure::{Exit, Failure};
use crate::terminal;

/// How long work may take to end by itself: what waits for a store ends at once, a loop over millions of entries does not look up.
const GRACE: Duration = Duration::from_millis(500);

/// What goes with the program, however it ends.
static ASIDE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn aside() -> MutexGuard<'static, Vec<PathBuf>> {
    ASIDE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes note of a file or folder of this program alone, of a name that is never used again.
pub(crate) fn goes_at_the_end(path: &Path) {
    aside().push(path.to_owned());
}

/// Removes what was put aside and is still there.
pub(crate) fn clean_up() {
    for path in aside().drain(..) {
        // A thread that is being left behind may add to a folder while it is removed.
        for _ in 0..3 {
            let removed = match path.is_dir() {
                true => std::fs::remove_dir_all(&path),
                false => std::fs::remove_file(&path),
            };
            if removed.is_ok() || !path.exists() {
                break;
            }
        }
    }
}

/// Runs work to its end, or until somebody wants the program to end: then `line` says what becomes of the work.
///
/// Work that does not notice is left behind, with what it has put aside.
///
/// # Errors
/// Those of the work; `Interrupted`.
pub(crate) fn until_interrupted<T>(
    io: &Runtime,
    line: &str,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let interrupted = listen(line)?;
    io.block_on(async {
        let work = std::pin::pin!(work);
        match select(work, interrupted).await {
            Either::Left((done, _)) => done,
            Either::Right((_, _)) => Err(Failure::new(Exit::Interrupted, line)),
        }
    })
}

/// Listens on a thread of its own, which nothing that the work does can hold up.
fn listen(line: &str) -> Result<oneshot::Receiver<()>, Failure> {
    let failed =
        |error: std::io::Error| Failure::failed(format!("can't listen to signals: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    let entered = runtime.enter();
    let mut signals = signals().map_err(failed)?;
    drop(entered);
    let (tell, told) = oneshot::channel();
    let line = line.to_owned();
    let thread = std::thread::Builder::new().name("signals".into());
    let listening = move || {
        runtime.block_on(async {
            let any = signals.iter_mut().map(|signal| Box::pin(signal.recv()));
            futures_util::future::select_all(any).await;
            // Nobody hears it where the work has just ended.
            let _ = tell.send(());
            tokio::time::sleep(GRACE).await;
        });
        clean_up();
        terminal::say(&format!("error: {line}"));
        std::process::exit(Exit::Interrupted as i32);
    };
    thread.spawn(listening).map_err(failed)?;
    Ok(told)
}

fn signals() -> std::io::Result<Vec<Signal>> {
    let mut signals = vec![
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    ];
    if !ignores_hangups() {
        signals.push(signal(SignalKind::hangup())?);
    }
    Ok(signals)
}

/// Has a write past the limit of file sizes (`ulimit -f`) fail like one on a full disk, instead of ending the process without a word.
pub(crate) fn outlive_file_limits() {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
    else {
        return;
    };
    let _entered = runtime.enter();
    // The handler stays when nobody listens any more. Without one the limit is as strict as before, only not as clear.
    drop(signal(SignalKind::from_raw(
        rustix::process::Signal::XFSZ.as_raw(),
    )));
}

/// Waits for a signal, if it is listened to.
pub(crate) async fn received(signal: Option<&mut Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

/// Says whether the program was started to outlive its terminal, as by `nohup`; or may have been, where nothing tells.
///
/// Whoever listens to SIGHUP all the same ends what was to go on; whoever does not leaves it to the system.
pub(crate) fn ignores_hangups() -> bool {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else {
        return true;
    };
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 == 1)
}
