use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rocksdb::event_listener::{BackgroundErrorStatus, DBBackgroundErrorReason, EventListener};
use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, MergeOperands, Options, SstPartitionerFactory,
};
use state_api::Clock;

use crate::config::{CompactionStyle, Predefined, RocksDbConfig};
use crate::expiry::Expiry;
use crate::folder::InstanceFolder;
use crate::key_access::KeyAccess;
use crate::log_folder::LogFolder;
use crate::memory::{HashedColumn, SharedMemory};

/// Changes RocksDB's own options: those of a database for `None`, those of the column of a state for its name.
pub(crate) type OptionsHook = Arc<dyn Fn(&mut Options, Option<&str>) + Send + Sync>;

/// Makes RocksDB's options out of the settings: a predefined set first, then what is set one by one, then the user's hook, then
/// what the store needs whatever the others say.
#[derive(Clone)]
pub(crate) struct Tuning {
    config: Arc<RocksDbConfig>,
    memory: Option<Arc<SharedMemory>>,
    hook: Option<OptionsHook>,
    expiry: Expiry,
    clock: Arc<dyn Clock>,
    /// The subtask's folder below `log.dir`.
    logs: Option<Arc<InstanceFolder>>,
}

/// Name of the merge operator, which is stored in the database.
const APPEND: &str = "holdfast.append";

impl Tuning {
    pub(crate) fn new(
        config: Arc<RocksDbConfig>,
        memory: Option<Arc<SharedMemory>>,
        hook: Option<OptionsHook>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let expiry = Expiry::new(Arc::clone(&clock), config.clock_every);
        Self {
            config,
            memory,
            hook,
            expiry,
            clock,
            logs: None,
        }
    }

    /// Has databases write their logs below a folder.
    pub(crate) fn with_logs(mut self, logs: Option<Arc<InstanceFolder>>) -> Self {
        self.logs = logs;
        self
    }

    /// Returns where the database at a path writes its log, if not into its own folder.
    pub(crate) fn log_folder(&self, database: &Path) -> Option<LogFolder> {
        let logs = self.logs.as_ref()?;
        LogFolder::of(logs, database)
    }

    /// Returns what compactions leave out.
    pub(crate) fn expiry(&self) -> &Expiry {
        &self.expiry
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    pub(crate) fn config(&self) -> &Arc<RocksDbConfig> {
        &self.config
    }

    pub(crate) fn memory(&self) -> Option<&Arc<SharedMemory>> {
        self.memory.as_ref()
    }

    /// Returns the options of a database, which writes its log into a folder or, without one, into its own.
    pub(crate) fn of_database(&self, log: Option<&LogFolder>) -> Options {
        let config = &self.config;
        let mut options = Options::default();
        if config.predefined != Predefined::Default {
            options.set_max_background_jobs(4);
            options.set_max_open_files(-1);
        }
        if let Some(threads) = config.threads {
            options.set_max_background_jobs(threads);
        }
        if let Some(files) = config.open_files {
            options.set_max_open_files(files);
        }
        options.set_log_level(config.log.level);
        options.set_keep_log_file_num(config.log.files);
        options.set_max_log_file_size(config.log.file_size);
        if let Some(log) = log {
            options.set_db_log_dir(log.path());
        }
        options.set_stats_dump_period_sec(0);
        options.set_skip_stats_update_on_db_open(true);
        if config.gauges.iter().any(|gauge| gauge.counts()) {
            options.enable_statistics();
        }
        // One thread writes.
        options.set_allow_concurrent_memtable_write(false);
        options.set_enable_write_thread_adaptive_yield(false);
        if let Some(memory) = &self.memory {
            options.set_write_buffer_manager(memory.manager());
        }
        if let Some(hook) = &self.hook {
            hook(&mut options, None);
        }
        options.create_if_missing(true);
        options.add_event_listener(NoOwnRecovery);
        options.set_max_bgerror_resume_count(0);
        // A snapshot is one cut through all columns.
        options.set_atomic_flush(true);
        // Nothing in a database outlives it but by snapshots.
        options.set_avoid_flush_during_shutdown(true);
        options
    }

    /// Returns the options of the column of a state, whose keys are read in such a way. What is drawn from the shared memory for it is
    /// given back with the second value.
    pub(crate) fn of_column(
        &self,
        state: &str,
        access: KeyAccess,
    ) -> (Options, Option<HashedColumn>) {
        let config = &self.config;
        let mut options = Options::default();
        let mut table = BlockBasedOptions::default();
        self.predefine(&mut options, &mut table);
        if let Some(style) = config.compaction {
            options.set_compaction_style(style.native());
            options.set_disable_auto_compactions(style == CompactionStyle::None);
        }
        if let Some(dynamic) = config.dynamic_levels {
            options.set_level_compaction_dynamic_level_bytes(dynamic);
        }
        if let Some(bytes) = config.target_file_size {
            options.set_target_file_size_base(bytes);
        }
        if let Some(bytes) = config.level_base_size {
            options.set_max_bytes_for_level_base(bytes);
        }
        match config.compression.as_slice() {
            [] => {}
            [one] => options.set_compression_type(one.native()),
            many => {
                let levels: Vec<_> = many.iter().map(|level| level.native()).collect();
                options.set_compression_per_level(&levels);
            }
        }
        if config.cut_at_key_groups {
            options.set_sst_partitioner_factory(&SstPartitionerFactory::fixed_prefix(1));
        }
        if let Some(bytes) = config.write_buffer_size {
            options.set_write_buffer_size(bytes);
        }
        if let Some(count) = config.write_buffer_count {
            options.set_max_write_buffer_number(count);
        }
        if let Some(count) = config.write_buffers_to_merge {
            options.set_min_write_buffer_number_to_merge(count);
        }
        if let Some(bytes) = config.block_size {
            table.set_block_size(bytes);
        }
        if let Some(filter) = config.bloom_filter {
            table.set_bloom_filter(filter.bits_per_key, filter.block_based);
        }
        self.share_memory(&mut options, &mut table);
        let hashed = self.hash(access, &mut options);
        options.set_block_based_table_factory(&table);
        if let Some(hook) = &self.hook {
            hook(&mut options, Some(state));
        }
        options.set_merge_operator_associative(APPEND, append);
        options.set_compaction_filter_factory(self.expiry.factory(state));
        // With a filter RocksDB would go through all files every 30 days; that is for states whose values expire.
        options.set_periodic_compaction_seconds(0);
        (options, hashed)
    }

    /// Has write buffers find keys by hash, if the memory for it is there.
    fn hash(&self, access: KeyAccess, options: &mut Options) -> Option<HashedColumn> {
        if !self.config.hashed_write_buffers || !access.is_hashed() {
            return None;
        }
        // A bucket is a pointer.
        let most = options.get_write_buffer_size() / 64;
        let column = match &self.memory {
            Some(memory) => HashedColumn::draw(memory, most)?,
            None => HashedColumn::of(most),
        };
        access.hash(column.bytes() / size_of::<usize>(), options);
        Some(column)
    }

    fn predefine(&self, options: &mut Options, table: &mut BlockBasedOptions) {
        match self.config.predefined {
            Predefined::Default | Predefined::Flash => {}
            Predefined::SpinningDisk => options.set_level_compaction_dynamic_level_bytes(true),
            Predefined::SpinningDiskHighMemory => {
                options.set_level_compaction_dynamic_level_bytes(true);
                options.set_target_file_size_base(256 << 20);
                options.set_max_bytes_for_level_base(1 << 30);
                options.set_write_buffer_size(64 << 20);
                options.set_min_write_buffer_number_to_merge(3);
                options.set_max_write_buffer_number(4);
                table.set_block_size(128 << 10);
                table.set_bloom_filter(10.0, false);
            }
        }
    }

    /// Puts blocks, index and filter blocks included, and write buffers under the budget.
    fn share_memory(&self, options: &mut Options, table: &mut BlockBasedOptions) {
        let config = &self.config;
        match &self.memory {
            Some(memory) => {
                table.set_block_cache(memory.cache());
                table.set_cache_index_and_filter_blocks(true);
                table.set_cache_index_and_filter_blocks_with_high_priority(true);
                table.set_pin_l0_filter_and_index_blocks_in_cache(true);
                // A write buffer grows in blocks of an eighth of its size, up to 1 MiB: with many columns under a small limit
                // the first blocks alone would pass it, and each write would be followed by a flush.
                // Nor may a block be as large as the buffer of a column, which would be full with its first entry.
                let block = (memory.write_buffer_limit() / 64).clamp(32 << 10, 1 << 20);
                let block = block.min(options.get_write_buffer_size() / 8);
                options.set_arena_block_size(block);
            }
            None => {
                let bytes = config
                    .block_cache_size
                    .or((config.predefined == Predefined::SpinningDiskHighMemory)
                        .then_some(256 << 20));
                if let Some(bytes) = bytes {
                    table.set_block_cache(&Cache::new_lru_cache(bytes));
                }
            }
        }
        if config.memory.partitioned_index {
            table.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
            table.set_partition_filters(true);
            table.set_pin_top_level_index_and_filter(true);
        }
        if let Some(bytes) = config.metadata_block_size {
            table.set_metadata_block_size(bytes);
        }
    }
}

impl fmt::Debug for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tuning")
            .field("config", &self.config)
            .field("memory", &self.memory)
            .finish_non_exhaustive()
    }
}

/// Keeps RocksDB from looking by itself, every few seconds, whether a failure is over: writers would wait as long as it is not.
struct NoOwnRecovery;

impl EventListener for NoOwnRecovery {
    fn on_error_recovery_begin(
        &self,
        _: DBBackgroundErrorReason,
        _: &BackgroundErrorStatus,
        auto_recovery: &mut bool,
    ) {
        *auto_recovery = false;
    }
}

/// Appends operands to a value, or to each other.
fn append(_key: &[u8], value: Option<&[u8]>, operands: &MergeOperands) -> Option<Vec<u8>> {
    let value = value.unwrap_or_default();
    let len = operands.iter().map(<[u8]>::len).sum::<usize>() + value.len();
    let mut merged = Vec::with_capacity(len);
    merged.extend_from_slice(value);
    for operand in operands {
        merged.extend_from_slice(operand);
    }
    Some(merged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rocksdb::{DBCompactionStyle, DBCompressionType};
    use state_api::ManualClock;
    use std::collections::BTreeMap;

    fn tuning(options: &[(&str, &str)], hook: Option<OptionsHook>) -> Tuning {
        let options: BTreeMap<String, String> = options
            .iter()
            .map(|(key, text)| ((*key).to_owned(), (*text).to_owned()))
            .collect();
        let config = RocksDbConfig::parse(&options).unwrap();
        Tuning::new(Arc::new(config), None, hook, Arc::new(ManualClock::at(0)))
    }

    #[test]
    fn k_268_the_hook_beats_what_is_set_and_that_beats_the_predefined_set() {
        let predefined = ("predefined-options", "SPINNING_DISK_OPTIMIZED_HIGH_MEM");
        let options = tuning(&[predefined], None)
            .of_column("state", KeyAccess::Ordered)
            .0;
        assert_eq!(options.get_max_write_buffer_number(), 4);
        assert_eq!(options.get_write_buffer_size(), 64 << 20);
        let set = [
            predefined,
            ("writebuffer.count", "6"),
            ("writebuffer.size", "8mb"),
            ("compaction.style", "UNIVERSAL"),
            ("compression.per.level", "ZSTD"),
        ];
        let options = tuning(&set, None).of_column("state", KeyAccess::Ordered).0;
        assert_eq!(options.get_max_write_buffer_number(), 6);
        assert_eq!(
            options.get_compaction_style(),
            Some(DBCompactionStyle::Universal)
        );
        assert_eq!(
            options.get_compression_type(),
            Some(DBCompressionType::Zstd)
        );
        let hook: OptionsHook = Arc::new(|options: &mut Options, state: Option<&str>| {
            if state == Some("state") {
                options.set_write_buffer_size(4 << 20);
            }
            options.set_atomic_flush(false);
        });
        let hooked = tuning(&set, Some(hook));
        let options = hooked.of_column("state", KeyAccess::Ordered).0;
        assert_eq!(options.get_max_write_buffer_number(), 6);
        assert_eq!(options.get_write_buffer_size(), 4 << 20);
        assert_eq!(
            hooked
                .of_column("other", KeyAccess::Ordered)
                .0
                .get_write_buffer_size(),
            8 << 20
        );
        assert!(
            hooked.of_database(None).get_atomic_flush(),
            "the store relies on it"
        );
    }
}
