use std::time::Duration;

use futures_util::future::BoxFuture;
use state_api::Executor;
use tokio::runtime::Handle;

/// Runs the async parts of snapshots on a tokio runtime that the caller hands in.
#[derive(Clone, Debug)]
pub struct TokioExecutor {
    handle: Handle,
}

impl TokioExecutor {
    /// Creates an executor on a runtime.
    #[must_use]
    pub fn new(handle: Handle) -> Self {
        Self { handle }
    }

    /// Returns the runtime.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Executor for TokioExecutor {
    fn spawn_io(&self, future: BoxFuture<'static, ()>) {
        drop(self.handle.spawn(future));
    }

    fn spawn_cpu(&self, work: Box<dyn FnOnce() + Send>) {
        drop(self.handle.spawn_blocking(work));
    }

    fn pause(&self, ms: u64) -> BoxFuture<'static, ()> {
        // A runtime need not have a timer; pauses are rare and few at a time.
        let slept = self
            .handle
            .spawn_blocking(move || std::thread::sleep(Duration::from_millis(ms)));
        Box::pin(async move {
            // A runtime that shuts down cuts the pause short.
            drop(slept.await);
        })
    }
}
