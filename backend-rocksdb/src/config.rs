use std::path::PathBuf;
use std::time::Duration;

use rocksdb::{DBCompactionStyle, DBCompressionType, LogLevel};

use crate::gauges::NativeGauge;

/// The settings of this backend, named as the options of Flink's under `state.backend.rocksdb.`; what is `None` is left to
/// [`predefined`](Self::predefined), and then to RocksDB.
#[derive(Clone, Debug, PartialEq)]
pub struct RocksDbConfig {
    /// Folders for databases (`localdir`), absolute; subtasks take turns. Without any, the folder of the job.
    pub local_dirs: Vec<PathBuf>,
    /// A set of options to start from (`predefined-options`).
    pub predefined: Predefined,
    /// What memory databases may take (`memory.*`).
    pub memory: MemoryConfig,
    /// Flushes and compactions that run at once (`thread.num`).
    pub threads: Option<i32>,
    /// Files that are kept open (`files.open`); -1 for all of them.
    pub open_files: Option<i32>,
    /// RocksDB's own log (`log.*`).
    pub log: InfoLog,
    /// How files are merged (`compaction.style`).
    pub compaction: Option<CompactionStyle>,
    /// Whether the sizes of levels follow the last one (`compaction.level.use-dynamic-size`).
    pub dynamic_levels: Option<bool>,
    /// Bytes of a file (`compaction.level.target-file-size-base`).
    pub target_file_size: Option<u64>,
    /// Bytes of the first level (`compaction.level.max-size-level-base`).
    pub level_base_size: Option<u64>,
    /// Compression of each level (`compression.per.level`); the last holds for all further ones.
    pub compression: Vec<Compression>,
    /// Bytes of a write buffer (`writebuffer.size`).
    pub write_buffer_size: Option<usize>,
    /// Write buffers of a column (`writebuffer.count`).
    pub write_buffer_count: Option<i32>,
    /// Write buffers that are merged into one file (`writebuffer.number-to-merge`).
    pub write_buffers_to_merge: Option<i32>,
    /// Whether write buffers find keys by hash where they are read one by one (`writebuffer.hashed`), instead of by a search
    /// through ordered ones.
    pub hashed_write_buffers: bool,
    /// Bytes of a block before compression (`block.blocksize`).
    pub block_size: Option<usize>,
    /// Bytes of a block of index or filter (`block.metadata-blocksize`).
    pub metadata_block_size: Option<usize>,
    /// Bytes of the block cache of each column, where no memory is shared (`block.cache-size`).
    pub block_cache_size: Option<usize>,
    /// Filters that tell which files can't hold a key (`use-bloom-filter`, `bloom-filter.*`).
    pub bloom_filter: Option<BloomFilter>,
    /// Age at which files are compacted for the sake of expired entries (`compaction.filter.periodic-compaction-time`).
    pub periodic_compaction: Option<Duration>,
    /// Values that a compaction looks at between two looks at the clock (`compaction.filter.query-time-after-num-entries`).
    pub clock_every: u64,
    /// Whether files that compactions write end where a key group does, or with more than 128 key groups where every 256th does
    /// (`compaction.cut-at-key-groups`): less is fetched and rewritten when the parallelism changes, and small states are in
    /// more and smaller files.
    pub cut_at_key_groups: bool,
    /// Whether checkpoints are files that earlier ones may have written already (`incremental`, which follows
    /// `execution.checkpointing.incremental`); otherwise each holds everything, in the canonical format.
    pub incremental: bool,
    /// Objects of a snapshot that are moved at once (`checkpoint.transfer.thread.num`).
    pub transfers: usize,
    /// Whether files that reach beyond the key groups after a restore at another parallelism are written anew in the background
    /// (`incremental-restore-async-compact-after-rescale`; on, unlike Flink's: the next such restore need not do it then).
    pub compact_after_rescale: bool,
    /// Figures of RocksDB that are reported as gauges (`metrics.*`).
    pub gauges: Vec<NativeGauge>,
    /// Whether gauges are reported per column (`metrics.column-family-as-variable`).
    pub gauges_per_column: bool,
}

impl Default for RocksDbConfig {
    fn default() -> Self {
        Self {
            local_dirs: Vec::new(),
            predefined: Predefined::Default,
            memory: MemoryConfig::default(),
            threads: None,
            open_files: None,
            log: InfoLog::default(),
            compaction: None,
            dynamic_levels: None,
            target_file_size: None,
            level_base_size: None,
            compression: Vec::new(),
            write_buffer_size: None,
            write_buffer_count: None,
            write_buffers_to_merge: None,
            block_size: None,
            metadata_block_size: None,
            block_cache_size: None,
            hashed_write_buffers: true,
            bloom_filter: None,
            periodic_compaction: Some(Duration::from_secs(30 * 86_400)),
            clock_every: 1_000,
            cut_at_key_groups: false,
            incremental: false,
            transfers: 4,
            compact_after_rescale: true,
            gauges: Vec::new(),
            gauges_per_column: false,
        }
    }
}

/// Flink's named sets of options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Predefined {
    /// RocksDB's own.
    #[default]
    Default,
    /// Dynamic levels and more threads, for disks that seek slowly.
    SpinningDisk,
    /// As [`SpinningDisk`](Self::SpinningDisk), with larger write buffers, files and blocks, and bloom filters.
    SpinningDiskHighMemory,
    /// More threads, for flash.
    Flash,
}

/// What memory databases may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryConfig {
    /// Whether block cache and write buffers come out of a budget that all databases share (`memory.managed`).
    pub managed: bool,
    /// Bytes shared by all databases of a process (`memory.fixed-per-tm`).
    pub per_process: u64,
    /// Bytes shared by the databases of all operators with the same subtask number (`memory.fixed-per-slot`), instead.
    pub per_slot: Option<u64>,
    /// Part of the budget for write buffers (`memory.write-buffer-ratio`), between 0 and 1.
    pub write_buffer_ratio: f64,
    /// Part of the budget for live objects in front of the databases (`memory.object-cache-ratio`), from 0, which is none, to
    /// below 1; the other parts are of what is left.
    pub object_ratio: f64,
    /// Whether index and filter are split in two levels, of which only the upper must be in memory
    /// (`memory.partitioned-index-filters`).
    pub partitioned_index: bool,
}

impl MemoryConfig {
    /// Bytes that all databases of a process share unless something else is set.
    pub const DEFAULT_BYTES: u64 = 512 << 20;
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self {
            managed: true,
            per_process: Self::DEFAULT_BYTES,
            per_slot: None,
            write_buffer_ratio: 0.5,
            object_ratio: 0.0,
            partitioned_index: false,
        }
    }
}

/// RocksDB's own log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InfoLog {
    /// Folder (`log.dir`), absolute; the folder of the database unless set.
    pub dir: Option<PathBuf>,
    /// Files that are kept (`log.file-num`).
    pub files: usize,
    /// Bytes of a file (`log.max-file-size`); 0 for one file without limit.
    pub file_size: usize,
    /// Least severity that is logged (`log.level`).
    pub level: LogLevel,
}

impl Default for InfoLog {
    fn default() -> Self {
        Self {
            dir: None,
            files: 4,
            file_size: 25 << 20,
            level: LogLevel::Info,
        }
    }
}

/// How files are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactionStyle {
    /// Level by level.
    Level,
    /// All files of similar size at once.
    Universal,
    /// Never, unless asked for.
    None,
}

impl CompactionStyle {
    pub(crate) fn native(self) -> DBCompactionStyle {
        match self {
            Self::Level | Self::None => DBCompactionStyle::Level,
            Self::Universal => DBCompactionStyle::Universal,
        }
    }
}

/// How blocks are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// Snappy.
    Snappy,
    /// LZ4.
    Lz4,
    /// LZ4, slower and smaller.
    Lz4Hc,
    /// Zstandard.
    Zstd,
}

impl Compression {
    pub(crate) fn native(self) -> DBCompressionType {
        match self {
            Self::None => DBCompressionType::None,
            Self::Snappy => DBCompressionType::Snappy,
            Self::Lz4 => DBCompressionType::Lz4,
            Self::Lz4Hc => DBCompressionType::Lz4hc,
            Self::Zstd => DBCompressionType::Zstd,
        }
    }
}

/// Filters that tell which files can't hold a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BloomFilter {
    /// Bits for each key (`bloom-filter.bits-per-key`).
    pub bits_per_key: f64,
    /// Whether there is a filter per block instead of per file (`bloom-filter.block-based-mode`).
    pub block_based: bool,
}

impl Default for BloomFilter {
    fn default() -> Self {
        Self {
            bits_per_key: 10.0,
            block_based: false,
        }
    }
}
