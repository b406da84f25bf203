use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// Remembers objects that nobody wants, until someone removes them.
#[derive(Debug, Default)]
pub(crate) struct Reaper {
    unwanted: Mutex<Vec<String>>,
    /// Objects being written, or left behind by an operation that may still run.
    open: AtomicUsize,
    changed: Notify,
}

impl Reaper {
    /// Puts an object on the list.
    pub(crate) fn add(&self, path: String) {
        self.unwanted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(path);
    }

    /// Takes the list, to remove what is on it.
    pub(crate) fn take(&self) -> Taken<'_> {
        let unwanted =
            std::mem::take(&mut *self.unwanted.lock().unwrap_or_else(PoisonError::into_inner));
        Taken {
            reaper: self,
            unwanted,
            put_off: Vec::new(),
        }
    }

    /// Returns the number of objects on the list.
    pub(crate) fn unwanted(&self) -> usize {
        self.unwanted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }

    /// Returns the number of objects that are being written.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    /// Waits until no object is being written.
    pub(crate) async fn idle(&self) {
        loop {
            let changed = self.changed.notified();
            if self.open() == 0 {
                return;
            }
            changed.await;
        }
    }
}

/// Objects that are being removed; those that are not go back on the list when it is dropped.
pub(crate) struct Taken<'a> {
    reaper: &'a Reaper,
    unwanted: Vec<String>,
    put_off: Vec<String>,
}

impl Taken<'_> {
    /// Returns an object to be removed.
    pub(crate) fn current(&self) -> Option<&str> {
        self.unwanted.last().map(String::as_str)
    }

    /// Says that it is gone.
    pub(crate) fn remove(&mut self) {
        self.unwanted.pop();
    }

    /// Says that it can't be removed now.
    pub(crate) fn put_off(&mut self) {
        self.put_off.extend(self.unwanted.pop());
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut unwanted = self
            .reaper
            .unwanted
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        unwanted.append(&mut self.unwanted);
        unwanted.append(&mut self.put_off);
    }
}

/// An object that goes on the reaper's list unless its fate is settled.
///
/// Every operation that can create the object holds it, so the path is listed after the last of them is over.
#[derive(Debug)]
pub(crate) struct OwnedObject {
    path: String,
    reaper: Arc<Reaper>,
    settled: AtomicBool,
}

impl OwnedObject {
    pub(crate) fn new(path: String, reaper: &Arc<Reaper>) -> Arc<Self> {
        reaper.open.fetch_add(1, Ordering::SeqCst);
        Arc::new(Self {
            path,
            reaper: Arc::clone(reaper),
            settled: AtomicBool::new(false),
        })
    }

    /// Says that the object is wanted, or gone, or somebody else's.
    pub(crate) fn settle(&self) {
        self.settled.store(true, Ordering::SeqCst);
    }
}

impl Drop for OwnedObject {
    fn drop(&mut self) {
        if !self.settled.load(Ordering::SeqCst) {
            self.reaper.add(std::mem::take(&mut self.path));
        }
        self.reaper.open.fetch_sub(1, Ordering::SeqCst);
        self.reaper.changed.notify_waiters();
    }
}
