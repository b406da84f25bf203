use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use futures_util::lock::Mutex;
use state_api::{Error, ErrorKind, PersistContext, Result};

use crate::sink::Harden;

/// What is left to do until a transaction survives a crash: part of every checkpoint that names it, until it has succeeded once.
///
/// The checkpoint for which the transaction was ended may be given up before this ran, or had ended; the next one names the
/// transaction all the same.
pub struct Hardening {
    work: Arc<Mutex<Harden>>,
    state: AtomicU8,
}

/// Values of [`Hardening::state`].
const DUE: u8 = 0;
const DONE: u8 = 1;
const LOST: u8 = 2;

impl Hardening {
    /// Creates it of what a sink has left to do.
    #[must_use]
    pub fn new(work: Harden) -> Self {
        Self {
            work: Arc::new(Mutex::new(work)),
            state: AtomicU8::new(DUE),
        }
    }

    /// Does the work unless it was done, in turn with other checkpoints that need it as well.
    ///
    /// Work that hangs holds one thread: those that wait for it hold none.
    pub(crate) async fn run(self: Arc<Self>, cx: PersistContext) -> Result<()> {
        let mut work = Arc::clone(&self.work).lock_owned().await;
        if self.is_done() {
            return Ok(());
        }
        cx.on_cpu(move || self.attempt(&mut work)).await
    }

    /// Does the work on this thread, where no checkpoint can be at it.
    pub(crate) fn run_here(&self) -> Result<()> {
        match self.work.try_lock() {
            Some(mut work) => self.attempt(&mut work),
            None => Err(Error::bug("a transaction is made durable twice at a time")),
        }
    }

    fn attempt(&self, work: &mut Harden) -> Result<()> {
        let result = work();
        match &result {
            Ok(()) => self.state.store(DONE, Ordering::Release),
            Err(error) if error.kind() == ErrorKind::Poisoned => {
                self.state.store(LOST, Ordering::Release);
            }
            Err(_) => {}
        }
        result
    }

    /// Returns whether the transaction survives a crash.
    pub(crate) fn is_done(&self) -> bool {
        self.state.load(Ordering::Acquire) == DONE
    }

    /// Fails once it is known that the transaction will never survive a crash: only a restore writes its records anew.
    pub(crate) fn check(&self) -> Result<()> {
        if self.state.load(Ordering::Acquire) == LOST {
            return Err(Error::poisoned(
                "a transaction can't be made to survive a crash: no checkpoint can complete before its records are written anew",
            ));
        }
        Ok(())
    }
}

impl fmt::Debug for Hardening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hardening")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;
    use state_api::{CheckpointId, Executor};

    use super::*;
    use crate::execution::{CheckpointStore, MemoryCheckpoints};

    type Job = Box<dyn FnOnce() + Send>;

    /// Runs work when it is told to.
    #[derive(Default)]
    struct Later(Mutex<Vec<Job>>);

    impl Later {
        fn taken(&self) -> Vec<Job> {
            std::mem::take(&mut self.0.lock().expect("no test panics"))
        }
    }

    impl Executor for Later {
        fn spawn_io(&self, _future: BoxFuture<'static, ()>) {
            unreachable!("hardening computes");
        }

        fn spawn_cpu(&self, work: Job) {
            self.0.lock().expect("no test panics").push(work);
        }
    }

    fn context(later: &Arc<Later>) -> PersistContext {
        let executor: Arc<dyn Executor> = Arc::<Later>::clone(later);
        PersistContext::new(
            CheckpointId(1),
            MemoryCheckpoints::new().storage(),
            executor,
        )
    }

    fn run(hardening: &Arc<Hardening>) -> Result<()> {
        let later = Arc::new(Later::default());
        let mut run = Arc::clone(hardening).run(context(&later)).boxed();
        if let Some(result) = run.as_mut().now_or_never() {
            return result;
        }
        later.taken().into_iter().for_each(|work| work());
        run.now_or_never().expect("the work has ended")
    }

    #[test]
    fn one_that_hangs_holds_one_thread_however_many_checkpoints_need_it() {
        let hardening = Arc::new(Hardening::new(Box::new(|| Ok(()))));
        let later = Arc::new(Later::default());
        let begin = || {
            let mut run = Arc::clone(&hardening).run(context(&later)).boxed();
            assert!(run.as_mut().now_or_never().is_none());
            run
        };
        // The first is given up; what it began goes on.
        drop(begin());
        let waiting = [begin(), begin()];
        let work = later.taken();
        assert_eq!(work.len(), 1);
        work.into_iter().for_each(|work| work());
        for run in waiting {
            run.now_or_never()
                .expect("its turn has come")
                .expect("it is done");
        }
        assert!(later.taken().is_empty(), "it was done twice");
    }

    #[test]
    fn it_is_repeated_until_it_succeeds_and_never_after_that() {
        let mut tries = 0;
        let (told, heard) = std::sync::mpsc::channel();
        let hardening = Arc::new(Hardening::new(Box::new(move || {
            tries += 1;
            told.send(tries).expect("the test listens");
            match tries {
                1 => Err(Error::retryable("not now")),
                _ => Ok(()),
            }
        })));
        assert!(run(&hardening).is_err() && !hardening.is_done());
        hardening.check().expect("it may succeed later");
        for _ in 0..2 {
            run(&hardening).expect("the second try succeeds");
            assert!(hardening.is_done());
        }
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn one_that_never_will_succeed_says_so() {
        let lost = || Err(Error::poisoned("pages are lost"));
        let hardening = Arc::new(Hardening::new(Box::new(lost)));
        hardening.check().expect("nobody tried");
        assert!(run(&hardening).is_err());
        let error = hardening.check().expect_err("it is lost");
        assert_eq!(error.kind(), ErrorKind::Poisoned);
    }
}
