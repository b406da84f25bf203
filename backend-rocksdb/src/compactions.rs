use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rocksdb::event_listener::{CompactionJobInfo, DBCompactionReason, EventListener};

/// Lets compactions that somebody asks for take turns, and counts what those write that write files anew after a restore.
///
/// RocksDB tells of each compaction why it began, and nobody else asks for one meanwhile: what it does by itself, flushes
/// among it, is not counted.
#[derive(Clone, Default)]
pub(crate) struct Compactions {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    turn: Mutex<()>,
    rewriting: AtomicBool,
    rewritten: AtomicU64,
}

/// A turn of whoever asks for compactions.
pub(crate) struct Turn<'a> {
    rewriting: Option<&'a AtomicBool>,
    _turn: MutexGuard<'a, ()>,
}

impl Compactions {
    /// Waits until nobody else asks for compactions.
    pub(crate) fn asked(&self) -> Turn<'_> {
        let turn = self.shared.turn.lock();
        Turn {
            rewriting: None,
            _turn: turn.unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Waits for a turn in which what compactions that are asked for write is counted.
    pub(crate) fn rewriting(&self) -> Turn<'_> {
        let mut turn = self.asked();
        self.shared.rewriting.store(true, Ordering::SeqCst);
        turn.rewriting = Some(&self.shared.rewriting);
        turn
    }

    /// Returns the bytes that were counted so far.
    pub(crate) fn rewritten(&self) -> u64 {
        self.shared.rewritten.load(Ordering::SeqCst)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(rewriting) = self.rewriting {
            rewriting.store(false, Ordering::SeqCst);
        }
    }
}

impl EventListener for Compactions {
    /// Is called before whoever asked for the compaction goes on. One that moves files writes none.
    fn on_compaction_completed(&self, job: &CompactionJobInfo) {
        let is_asked_for = matches!(
            job.compaction_reason(),
            DBCompactionReason::KManualCompaction
        );
        if is_asked_for && self.shared.rewriting.load(Ordering::SeqCst) {
            let bytes = job.total_output_bytes();
            self.shared.rewritten.fetch_add(bytes, Ordering::SeqCst);
        }
    }
}
