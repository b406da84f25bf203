#![expect(
    unsafe_code,
    reason = "the standard library has no way to be called at the end of a process"
)]

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, Once, PoisonError};
use std::time::Duration;

/// The longest that the end of a process waits for databases, in milliseconds; a test that is to see it wait has more of it.
static PATIENCE_MS: AtomicU64 = AtomicU64::new(500);

/// Folders of databases in use.
static IN_USE: Mutex<usize> = Mutex::new(0);
static LESS_IN_USE: Condvar = Condvar::new();

/// Counts something that the end of the process waits for, as long as it is there.
#[derive(Debug)]
pub(crate) struct InUse(());

impl InUse {
    pub(crate) fn new() -> Self {
        *IN_USE.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Self(())
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        *IN_USE.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        LESS_IN_USE.notify_all();
    }
}

/// Has a process that ends wait until its databases are closed and their folders removed, though not for long.
///
/// At the end of a process RocksDB destroys what all databases share. A thread that closes one then, because it held a snapshot that was
/// given up with the job, would find a mutex that is no more, and RocksDB aborts the process. What is called at the end is called
/// in reverse order: this must be called after the first database was opened, when what is shared is there.
pub(crate) fn wait_for_databases() {
    unsafe extern "C" {
        fn atexit(function: extern "C" fn()) -> c_int;
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: `atexit` is the C standard's, with this signature, and may be called at any time before the end from any thread. The
        // function takes nothing, is there as long as the process is, uses statics that are never destroyed, and does not panic.
        let refused = unsafe { atexit(at_the_end) };
        if refused != 0 {
            tracing::warn!("the end of this process does not wait for its databases");
        }
    });
}

extern "C" fn at_the_end() {
    let in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
    let patience = Duration::from_millis(PATIENCE_MS.load(Ordering::Relaxed));
    // What is in use still is not waited for: a store may hang.
    let waits = |in_use: &mut usize| {
        #[cfg(test)]
        tests::WAITING.store(true, Ordering::Release);
        *in_use > 0
    };
    drop(LESS_IN_USE.wait_timeout_while(in_use, patience, waits));
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;
    use std::process::Command;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::fault_tests::open;

    /// The end of this process has looked for databases in use.
    pub(super) static WAITING: AtomicBool = AtomicBool::new(false);

    /// Runs one of the functions below in a process of its own; returns what that leaves in the folder of its databases.
    fn left_by(function: &str) -> usize {
        let dir = tempfile::tempdir().unwrap();
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--ignored", "--nocapture"])
            .arg(format!("process_end::tests::{function}"))
            .env("HOLDFAST_TEST_DIR", dir.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        // Under another name it would not be found, which is no failure to the runner.
        assert_eq!(output.status.code(), Some(7), "{said}");
        fs::read_dir(dir.path()).unwrap().count()
    }

    fn dir() -> PathBuf {
        std::env::var_os("HOLDFAST_TEST_DIR").unwrap().into()
    }

    #[test]
    fn a_process_that_ends_waits_for_a_database_that_another_thread_closes() {
        assert_eq!(left_by("ends_before_the_database"), 0);
    }

    #[test]
    fn a_process_that_ends_does_not_wait_for_ever() {
        assert_eq!(left_by("ends_without_the_database"), 1);
    }

    #[test]
    #[ignore = "run by a test above, in a process that ends"]
    fn ends_before_the_database() {
        let store = open(&dir());
        // However slow this machine is at the moment.
        PATIENCE_MS.store(60_000, Ordering::Relaxed);
        std::thread::spawn(move || {
            while !WAITING.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            drop(store);
        });
        std::process::exit(7);
    }

    #[test]
    #[ignore = "run by a test above, in a process that ends"]
    fn ends_without_the_database() {
        let _store = open(&dir());
        std::process::exit(7);
    }
}
