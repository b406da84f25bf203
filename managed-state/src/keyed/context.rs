use std::sync::Arc;

use state_api::{
    Clock, HashId, KeyGroup, KeyGroupRange, MaxParallelism, ObjectCacheBudget, Result,
};

/// What an operator subtask's keyed states need to know about their place in the job.
#[derive(Clone, Debug)]
pub struct KeyedContext {
    /// Number of key groups.
    pub max_parallelism: MaxParallelism,
    /// Key groups of this subtask.
    pub range: KeyGroupRange,
    /// How keys are mapped to groups.
    pub hash: HashId,
    /// Tells the time, for times-to-live.
    pub clock: Arc<dyn Clock>,
    /// Mixed into the hash of live tables, so that crafted keys don't collide; any number, new in each process.
    pub seed: u64,
    /// Bytes that live tables may take, all states of the subtask together; `None` for no limit.
    pub memory_limit: Option<usize>,
    /// Part of a table's bytes that frozen layers may add before the snapshot is given up, such as 0.25.
    pub overlay_ratio: f64,
    /// Memory for live objects in front of a byte store, shared by all subtasks of a process; `None` for no such cache. A
    /// store that [has memory for it](state_api::ByteStore::object_cache) goes before.
    pub object_cache: Option<Arc<ObjectCacheBudget>>,
}

impl KeyedContext {
    /// Creates a context for one subtask: hash `holdfast-1`, no memory limit, 25 % for frozen layers, no object cache.
    #[must_use]
    pub fn new(
        max_parallelism: MaxParallelism,
        range: KeyGroupRange,
        clock: Arc<dyn Clock>,
        seed: u64,
    ) -> Self {
        Self {
            max_parallelism,
            range,
            hash: HashId::default(),
            clock,
            seed,
            memory_limit: None,
            overlay_ratio: 0.25,
            object_cache: None,
        }
    }

    /// Returns the position of a key group in the subtask's range, unless it is another subtask's.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn place(&self, group: KeyGroup) -> Option<usize> {
        let place = group.index().wrapping_sub(self.range.start().index());
        (place < self.range.len()).then_some(place)
    }

    /// Creates a context for a single subtask that owns every key group.
    ///
    /// # Errors
    /// `InvalidArgument` when the number of key groups is out of range.
    pub fn single(max_parallelism: u32, clock: Arc<dyn Clock>) -> Result<Self> {
        let max_parallelism = MaxParallelism::new(max_parallelism)?;
        Ok(Self::new(
            max_parallelism,
            max_parallelism.all_groups(),
            clock,
            0,
        ))
    }
}
