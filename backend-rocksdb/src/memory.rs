use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rocksdb::{Cache, LruCacheOptions, WriteBufferManager};
use state_api::ObjectCacheBudget;

use crate::config::MemoryConfig;

/// One memory budget of many databases: a block cache that holds index and filter blocks too, and a limit on write buffers
/// that are charged to it.
///
/// As in Flink, with `r` the part for write buffers: the cache has `(3 - r) / 3` of the budget and write buffers `2r / 3`, so that
/// cache and write buffers together stay within it even though RocksDB lets write buffers grow half above their limit before
/// it stops.
pub struct SharedMemory {
    total: u64,
    cache: Cache,
    write_buffers: WriteBufferManager,
    write_buffer_limit: usize,
    objects: Option<Arc<ObjectCacheBudget>>,
    /// Bytes of the buckets of one write buffer of each column that finds keys by hash.
    buckets: AtomicUsize,
}

impl SharedMemory {
    /// Creates a budget of `total` bytes, with `write_buffer_ratio` (between 0 and 1) of it for write buffers.
    #[must_use]
    pub fn new(total: u64, write_buffer_ratio: f64) -> Arc<Self> {
        Self::with_objects(total, write_buffer_ratio, 0.0)
    }

    /// Creates a budget of `total` bytes of which `object_ratio` (from 0 to below 1) is for live objects in front of the
    /// databases, and `write_buffer_ratio` (between 0 and 1) of the rest for write buffers.
    #[must_use]
    pub fn with_objects(total: u64, write_buffer_ratio: f64, object_ratio: f64) -> Arc<Self> {
        let objects = (total as f64 * object_ratio.clamp(0.0, 1.0)) as u64;
        let rest = total - objects.min(total);
        let ratio = write_buffer_ratio.clamp(0.0, 1.0);
        let capacity = (rest as f64 * (3.0 - ratio) / 3.0) as usize;
        let write_buffer_limit = (rest as f64 * 2.0 * ratio / 3.0) as usize;
        let mut options = LruCacheOptions::default();
        options.set_capacity(capacity);
        options.set_num_shard_bits(shard_bits(capacity));
        let cache = Cache::new_lru_cache_opts(&options);
        let write_buffers = WriteBufferManager::new_write_buffer_manager_with_cache(
            write_buffer_limit,
            false,
            cache.clone(),
        );
        Arc::new(Self {
            total,
            cache,
            write_buffers,
            write_buffer_limit,
            objects: (objects > 0)
                .then(|| ObjectCacheBudget::new(usize::try_from(objects).unwrap_or(usize::MAX))),
            buckets: AtomicUsize::new(0),
        })
    }

    /// Returns the budget in bytes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the bytes in use: blocks in the cache, write buffers, which are charged to it, and live objects.
    #[must_use]
    pub fn used(&self) -> usize {
        let objects = self.objects.as_ref().map_or(0, |objects| objects.drawn());
        self.cache.get_usage() + objects
    }

    /// Returns the bytes of write buffers.
    #[must_use]
    pub fn write_buffers(&self) -> usize {
        self.write_buffers.get_usage()
    }

    /// Returns the bytes at which write buffers are written to files.
    #[must_use]
    pub fn write_buffer_limit(&self) -> usize {
        self.write_buffer_limit
    }

    /// Returns the part of the budget that live objects in front of the databases may take, if there is one.
    #[must_use]
    pub fn objects(&self) -> Option<&Arc<ObjectCacheBudget>> {
        self.objects.as_ref()
    }

    pub(crate) fn cache(&self) -> &Cache {
        &self.cache
    }

    pub(crate) fn manager(&self) -> &WriteBufferManager {
        &self.write_buffers
    }
}

impl fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedMemory")
            .field("total", &self.total)
            .field("used", &self.used())
            .finish_non_exhaustive()
    }
}

/// A column whose write buffers find keys by hash. The buckets are there as soon as the column is, whether anything is written to
/// it or not.
#[derive(Debug)]
pub(crate) struct HashedColumn {
    bytes: usize,
    memory: Option<Arc<SharedMemory>>,
}

impl HashedColumn {
    /// Returns a column with so many bytes of buckets which nobody counts.
    pub(crate) fn of(bytes: usize) -> Self {
        Self {
            bytes,
            memory: None,
        }
    }

    /// Draws buckets of at most so many bytes, and of at most a hundredth of what all write buffers may take; `None` when those of
    /// all columns would take more than an eighth of it.
    pub(crate) fn draw(memory: &Arc<SharedMemory>, most: usize) -> Option<Self> {
        let bytes = most.min(memory.write_buffer_limit / 100);
        let all = memory.write_buffer_limit / 8;
        let draw = |drawn: usize| drawn.checked_add(bytes).filter(|&drawn| drawn <= all);
        let drawn = memory.buckets.fetch_update(Relaxed, Relaxed, draw);
        drawn.ok().map(|_| Self {
            bytes,
            memory: Some(Arc::clone(memory)),
        })
    }

    /// Returns the bytes of the buckets of one write buffer.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for HashedColumn {
    fn drop(&mut self) {
        if let Some(memory) = &self.memory {
            memory.buckets.fetch_sub(self.bytes, Relaxed);
        }
    }
}

/// Shards of a cache hold 4 MiB or more, so that one large block doesn't empty its shard; up to 64.
fn shard_bits(capacity: usize) -> i32 {
    let shards = (capacity / (4 << 20)).clamp(1, 64);
    shards.ilog2().cast_signed()
}

/// The budgets of a factory, one for each way to configure it; a budget ends with the last database that draws on it.
#[derive(Debug, Default)]
pub(crate) struct Budgets {
    open: Mutex<BTreeMap<BudgetKey, Weak<SharedMemory>>>,
}

/// Bytes, the ratios of write buffers and objects as bits, and the subtask number if each has its own.
type BudgetKey = (u64, [u64; 2], Option<u32>);

impl Budgets {
    /// Returns the budget that a database of a subtask draws on; `None` if memory is not shared.
    pub(crate) fn of(&self, config: &MemoryConfig, subtask: u32) -> Option<Arc<SharedMemory>> {
        let (total, slot) = match config.per_slot {
            Some(bytes) => (bytes, Some(subtask)),
            None if config.managed => (config.per_process, None),
            None => return None,
        };
        let ratios = [config.write_buffer_ratio, config.object_ratio];
        let key = (total, ratios.map(f64::to_bits), slot);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, budget| budget.strong_count() > 0);
        if let Some(budget) = open.get(&key).and_then(Weak::upgrade) {
            return Some(budget);
        }
        let budget =
            SharedMemory::with_objects(total, config.write_buffer_ratio, config.object_ratio);
        open.insert(key, Arc::downgrade(&budget));
        Some(budget)
    }
}
