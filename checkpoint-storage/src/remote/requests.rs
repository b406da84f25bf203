use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the requests to a store behind a network; clones count together.
#[derive(Clone, Default)]
pub struct Requests(Arc<Counters>);

#[derive(Default)]
struct Counters {
    get: AtomicU64,
    head: AtomicU64,
    put: AtomicU64,
    post: AtomicU64,
    delete: AtomicU64,
    sent_bytes: AtomicU64,
    throttled: AtomicU64,
    retries: AtomicU64,
}

/// Numbers of requests so far, each as the store may bill it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Reads and listings.
    pub get: u64,
    /// Looks at an object's length.
    pub head: u64,
    /// Objects and parts of objects written.
    pub put: u64,
    /// Uploads in parts begun and completed, and deletions by the batch.
    pub post: u64,
    /// Deletions.
    pub delete: u64,
    /// Bytes of all bodies sent.
    pub sent_bytes: u64,
    /// Answers that asked for fewer requests.
    pub throttled: u64,
    /// Calls that were made again after a failure.
    pub retries: u64,
}

impl RequestCounts {
    /// Returns the number of requests of all kinds.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.get + self.head + self.put + self.post + self.delete
    }

    /// Returns what was counted since an earlier moment.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            get: self.get - earlier.get,
            head: self.head - earlier.head,
            put: self.put - earlier.put,
            post: self.post - earlier.post,
            delete: self.delete - earlier.delete,
            sent_bytes: self.sent_bytes - earlier.sent_bytes,
            throttled: self.throttled - earlier.throttled,
            retries: self.retries - earlier.retries,
        }
    }
}

impl Requests {
    /// Returns the numbers so far.
    #[must_use]
    pub fn counts(&self) -> RequestCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters {
            get,
            head,
            put,
            post,
            delete,
            sent_bytes,
            throttled,
            retries,
        } = &*self.0;
        RequestCounts {
            get: read(get),
            head: read(head),
            put: read(put),
            post: read(post),
            delete: read(delete),
            sent_bytes: read(sent_bytes),
            throttled: read(throttled),
            retries: read(retries),
        }
    }

    #[cfg(feature = "http")]
    pub(crate) fn count(&self, method: &http::Method, body: usize) {
        let counters = &*self.0;
        let counter = match *method {
            http::Method::GET => &counters.get,
            http::Method::HEAD => &counters.head,
            http::Method::PUT => &counters.put,
            http::Method::DELETE => &counters.delete,
            _ => &counters.post,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        counters
            .sent_bytes
            .fetch_add(body as u64, Ordering::Relaxed);
    }

    #[cfg(feature = "http")]
    pub(crate) fn count_throttled(&self) {
        self.0.throttled.fetch_add(1, Ordering::Relaxed);
    }

    #[cfg(feature = "remote")]
    pub(crate) fn count_retry(&self) {
        self.0.retries.fetch_add(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.counts().fmt(f)
    }
}
