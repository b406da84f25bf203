use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// How far a long piece of work is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkDone {
    /// Objects that are done.
    pub objects: usize,
    /// All objects.
    pub objects_total: usize,
    /// Bytes that are done.
    pub bytes: u64,
    /// All bytes.
    pub bytes_total: u64,
}

/// Is told how far a long piece of work is; called often, so it should return at once.
pub type Watcher<'a> = &'a (dyn Fn(WorkDone) + Send + Sync);

/// Counts what several workers have done.
pub(crate) struct Progress<'a> {
    objects: AtomicUsize,
    bytes: AtomicU64,
    objects_total: usize,
    bytes_total: u64,
    watcher: Watcher<'a>,
}

impl<'a> Progress<'a> {
    pub(crate) fn of(objects_total: usize, bytes_total: u64, watcher: Watcher<'a>) -> Self {
        Self {
            objects: AtomicUsize::new(0),
            bytes: AtomicU64::new(0),
            objects_total,
            bytes_total,
            watcher,
        }
    }

    /// Notes bytes of an object that is not done yet.
    pub(crate) fn advanced(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.tell();
    }

    /// Notes that an object is done, with the bytes of it that were not noted yet.
    pub(crate) fn done(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.objects.fetch_add(1, Ordering::Relaxed);
        self.tell();
    }

    fn tell(&self) {
        (self.watcher)(WorkDone {
            objects: self.objects.load(Ordering::Relaxed),
            objects_total: self.objects_total,
            bytes: self.bytes.load(Ordering::Relaxed),
            bytes_total: self.bytes_total,
        });
    }
}
