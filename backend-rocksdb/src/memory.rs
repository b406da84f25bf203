use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rocksdb::{Cache, LruCacheOptions, WriteBufferManager};

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
    /// Bytes that were taken out of the cache by [`share`](Self::share).
    shared: Mutex<usize>,
    capacity: usize,
}

impl SharedMemory {
    /// Creates a budget of `total` bytes, with `write_buffer_ratio` (between 0 and 1) of it for write buffers.
    #[must_use]
    pub fn new(total: u64, write_buffer_ratio: f64) -> Arc<Self> {
        let ratio = write_buffer_ratio.clamp(0.0, 1.0);
        let capacity = (total as f64 * (3.0 - ratio) / 3.0) as usize;
        let write_buffer_limit = (total as f64 * 2.0 * ratio / 3.0) as usize;
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
            shared: Mutex::default(),
            capacity,
        })
    }

    /// Returns the budget in bytes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the bytes in use: blocks in the cache, and write buffers, which are charged to it.
    #[must_use]
    pub fn used(&self) -> usize {
        self.cache.get_usage() + self.shared()
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

    /// Takes part of the block cache's bytes for something else, such as a cache of objects, until the share is dropped; at
    /// most half of the cache, and what other shares leave of that.
    #[must_use]
    pub fn share(self: &Arc<Self>, bytes: usize) -> MemoryShare {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = bytes.min((self.capacity / 2).saturating_sub(*shared));
        *shared += bytes;
        self.cache.clone().set_capacity(self.capacity - *shared);
        MemoryShare {
            memory: Arc::clone(self),
            bytes,
        }
    }

    fn shared(&self) -> usize {
        *self.shared.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Shards of a cache hold 4 MiB or more, so that one large block doesn't empty its shard; up to 64.
fn shard_bits(capacity: usize) -> i32 {
    let shards = (capacity / (4 << 20)).clamp(1, 64);
    shards.ilog2().cast_signed()
}

/// A part of a [`SharedMemory`] that something else than the block cache uses; given back when dropped.
#[derive(Debug)]
pub struct MemoryShare {
    memory: Arc<SharedMemory>,
    bytes: usize,
}

impl MemoryShare {
    /// Returns the bytes of the share, which may be fewer than were asked for.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        let memory = &self.memory;
        let mut shared = memory.shared.lock().unwrap_or_else(PoisonError::into_inner);
        *shared -= self.bytes;
        memory.cache.clone().set_capacity(memory.capacity - *shared);
    }
}

/// The budgets of a factory, one for each way to configure it; a budget ends with the last database that draws on it.
#[derive(Debug, Default)]
pub(crate) struct Budgets {
    open: Mutex<BTreeMap<BudgetKey, Weak<SharedMemory>>>,
}

/// Bytes, write buffer ratio as bits, and the subtask number if each has its own.
type BudgetKey = (u64, u64, Option<u32>);

impl Budgets {
    /// Returns the budget that a database of a subtask draws on; `None` if memory is not shared.
    pub(crate) fn of(&self, config: &MemoryConfig, subtask: u32) -> Option<Arc<SharedMemory>> {
        let (total, slot) = match config.per_slot {
            Some(bytes) => (bytes, Some(subtask)),
            None if config.managed => (config.per_process, None),
            None => return None,
        };
        let key = (total, config.write_buffer_ratio.to_bits(), slot);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, budget| budget.strong_count() > 0);
        if let Some(budget) = open.get(&key).and_then(Weak::upgrade) {
            return Some(budget);
        }
        let budget = SharedMemory::new(total, config.write_buffer_ratio);
        open.insert(key, Arc::downgrade(&budget));
        Some(budget)
    }
}
