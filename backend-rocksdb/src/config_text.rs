use std::collections::BTreeMap;
use std::path::PathBuf;

use rocksdb::LogLevel;
use state_api::option_text::{nearest, parse_duration, parse_memory_size};
use state_api::{Error, Result};

use crate::NAME;
use crate::config::{BloomFilter, CompactionStyle, Compression, Predefined, RocksDbConfig};
use crate::gauges::NativeGauge;

/// Reads one option into the settings.
type Read = fn(&mut RocksDbConfig, Given<'_>) -> Result<()>;

/// An option as it was given.
#[derive(Clone, Copy)]
struct Given<'a> {
    key: &'a str,
    text: &'a str,
}

macro_rules! table {
    ($($key:literal => |$config:ident, $given:ident| $read:expr;)*) => {
        /// All options but those of `metrics.`.
        const OPTIONS: &[(&str, Read)] = &[$(($key, |$config, $given| { $read; Ok(()) })),*];
    };
}

table! {
    "localdir" => |c, given| c.local_dirs = given.folders()?;
    "predefined-options" => |c, given| c.predefined = given.word(PREDEFINED)?;
    "memory.managed" => |c, given| c.memory.managed = given.flag()?;
    "memory.fixed-per-slot" => |c, given| c.memory.per_slot = Some(given.bytes(1)?);
    "memory.fixed-per-tm" => |c, given| c.memory.per_process = given.bytes(1)?;
    "memory.write-buffer-ratio" => |c, given| c.memory.write_buffer_ratio = given.part()?;
    "memory.object-cache-ratio" => |c, given| c.memory.object_ratio = given.part_or_none()?;
    "memory.partitioned-index-filters" => |c, given| c.memory.partitioned_index = given.flag()?;
    "thread.num" => |c, given| c.threads = Some(given.number(1, 1_024)?);
    "files.open" => |c, given| c.open_files = Some(given.number(-1, i32::MAX)?);
    "log.dir" => |c, given| c.log.dir = given.folders()?.pop();
    "log.file-num" => |c, given| c.log.files = given.number(1, 1_000_000)? as usize;
    "log.max-file-size" => |c, given| c.log.file_size = given.size(0)?;
    "log.level" => |c, given| c.log.level = given.word(LEVELS)?;
    "compaction.style" => |c, given| c.compaction = Some(given.compaction()?);
    "compaction.cut-at-key-groups" => |c, given| c.cut_at_key_groups = given.flag()?;
    "compaction.level.use-dynamic-size" => |c, given| c.dynamic_levels = Some(given.flag()?);
    "compaction.level.target-file-size-base" => |c, given| c.target_file_size = Some(given.bytes(1)?);
    "compaction.level.max-size-level-base" => |c, given| c.level_base_size = Some(given.bytes(1)?);
    "compression.per.level" => |c, given| c.compression = given.words(COMPRESSION)?;
    "writebuffer.size" => |c, given| c.write_buffer_size = Some(given.size(64 << 10)?);
    "writebuffer.count" => |c, given| c.write_buffer_count = Some(given.number(1, 1_000)?);
    "writebuffer.number-to-merge" => |c, given| c.write_buffers_to_merge = Some(given.number(1, 1_000)?);
    "writebuffer.hashed" => |c, given| c.hashed_write_buffers = given.flag()?;
    "block.blocksize" => |c, given| c.block_size = Some(given.size(1)?);
    "block.metadata-blocksize" => |c, given| c.metadata_block_size = Some(given.size(1)?);
    "block.cache-size" => |c, given| c.block_cache_size = Some(given.size(0)?);
    "use-bloom-filter" => |c, given| c.bloom_filter = given.flag()?.then(|| c.bloom_filter.unwrap_or_default());
    "bloom-filter.bits-per-key" => |c, given| given.bloom(c, |filter, given| {
        filter.bits_per_key = given.fraction(0.0, 100.0)?;
        Ok(())
    })?;
    "bloom-filter.block-based-mode" => |c, given| given.bloom(c, |filter, given| {
        filter.block_based = given.flag()?;
        Ok(())
    })?;
    "compaction.filter.periodic-compaction-time" => |c, given| {
        let age = given.of(parse_duration(given.text))?;
        c.periodic_compaction = (!age.is_zero()).then_some(age);
    };
    "compaction.filter.query-time-after-num-entries" => |c, given| c.clock_every = given.number(1, i32::MAX)? as u64;
    "incremental" => |c, given| c.incremental = given.flag()?;
    "checkpoint.transfer.thread.num" => |c, given| c.transfers = given.number(1, 1_024)? as usize;
    "incremental-restore-async-compact-after-rescale" => |c, given| c.compact_after_rescale = given.flag()?;
    "metrics.column-family-as-variable" => |c, given| c.gauges_per_column = given.flag()?;
    // Flink's, of which only the default is offered.
    "timer-service.factory" => |_c, given| given.only("ROCKSDB")?;
    "options-factory" => |_c, given| given.never("options are changed in code: RocksDbBackend::with_options")?;
    "memory.high-prio-pool-ratio" => |_c, given| given.never(
        "it can't be set: index and filter blocks come first in half of the cache, as RocksDB has it"
    )?;
    "write-batch-size" => |_c, given| if given.size(0)? != 2 << 20 {
        given.never("it can't be set: a restore writes the entries of a key group in batches of its own")?;
    };
    "restore-overlap-fraction-threshold" => |_c, given| if given.fraction(0.0, 1.0)? != 0.0 {
        given.never("it can't be set: files are taken over as they are, however little of them is of the own key groups")?;
    };
    "use-ingest-db-restore-mode" => |_c, given| given.only("false")?;
    "rescaling.use-delete-files-in-range" => |_c, given| given.only("false")?;
    "manual-compaction.min-interval" => |_c, given| given.only("0")?;
}

const PREDEFINED: &[(&str, Predefined)] = &[
    ("DEFAULT", Predefined::Default),
    ("SPINNING_DISK_OPTIMIZED", Predefined::SpinningDisk),
    (
        "SPINNING_DISK_OPTIMIZED_HIGH_MEM",
        Predefined::SpinningDiskHighMemory,
    ),
    ("FLASH_SSD_OPTIMIZED", Predefined::Flash),
];

const LEVELS: &[(&str, LogLevel)] = &[
    ("DEBUG_LEVEL", LogLevel::Debug),
    ("INFO_LEVEL", LogLevel::Info),
    ("WARN_LEVEL", LogLevel::Warn),
    ("ERROR_LEVEL", LogLevel::Error),
    ("FATAL_LEVEL", LogLevel::Fatal),
    ("HEADER_LEVEL", LogLevel::Header),
];

const COMPACTION: &[(&str, CompactionStyle)] = &[
    ("LEVEL", CompactionStyle::Level),
    ("UNIVERSAL", CompactionStyle::Universal),
    ("NONE", CompactionStyle::None),
];

const COMPRESSION: &[(&str, Compression)] = &[
    ("NO_COMPRESSION", Compression::None),
    ("SNAPPY_COMPRESSION", Compression::Snappy),
    ("LZ4_COMPRESSION", Compression::Lz4),
    ("LZ4HC_COMPRESSION", Compression::Lz4Hc),
    ("ZSTD_COMPRESSION", Compression::Zstd),
];

impl RocksDbConfig {
    /// Reads options given as text, without their prefix `state.backend.rocksdb.`.
    ///
    /// # Errors
    /// `Config` for an unknown option or a bad value, naming the nearest valid one.
    pub fn parse(options: &BTreeMap<String, String>) -> Result<Self> {
        let mut config = Self::default();
        // In the order of the table, so that one option may build on another.
        for (key, read) in OPTIONS {
            if let Some(text) = options.get(*key) {
                let text = text.trim();
                read(&mut config, Given { key, text })?;
            }
        }
        for (key, text) in options {
            if OPTIONS.iter().any(|(known, _)| known == key) {
                continue;
            }
            let gauge = key.strip_prefix("metrics.").and_then(NativeGauge::named);
            let Some(gauge) = gauge else {
                return Err(unknown(key));
            };
            let given = Given {
                key,
                text: text.trim(),
            };
            if given.flag()? {
                config.gauges.push(gauge);
            }
        }
        Ok(config)
    }
}

#[cold]
fn unknown(key: &str) -> Error {
    let gauges: Vec<String> = NativeGauge::all()
        .map(|gauge| format!("metrics.{}", gauge.option()))
        .collect();
    let known = OPTIONS
        .iter()
        .map(|(known, _)| *known)
        .chain(gauges.iter().map(String::as_str));
    let hint =
        nearest(key, known).map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
    Error::config(format!(
        "the state backend {NAME} has no option {key:?}{hint}"
    ))
    .with("option", format!("state.backend.{NAME}.{key}"))
}

impl<'a> Given<'a> {
    #[cold]
    fn refuse(self, why: &str) -> Error {
        Error::config(format!(
            "{} = {:?} is not valid: {why}",
            self.key, self.text
        ))
        .with("option", format!("state.backend.{NAME}.{}", self.key))
    }

    fn of<T>(self, parsed: Result<T, String>) -> Result<T> {
        parsed.map_err(|why| self.refuse(&why))
    }

    fn flag(self) -> Result<bool> {
        match self.text.to_ascii_lowercase().as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(self.refuse("it must be true or false")),
        }
    }

    fn number(self, min: i32, max: i32) -> Result<i32> {
        match self.text.parse() {
            Ok(number) if (min..=max).contains(&number) => Ok(number),
            _ => Err(self.refuse(&format!("it must be a whole number from {min} to {max}"))),
        }
    }

    fn bytes(self, min: u64) -> Result<u64> {
        let bytes = self.of(parse_memory_size(self.text))?;
        if bytes < min {
            return Err(self.refuse(&format!("it must be a memory size of at least {min} bytes")));
        }
        Ok(bytes)
    }

    fn size(self, min: u64) -> Result<usize> {
        let bytes = self.bytes(min)?;
        usize::try_from(bytes).map_err(|_| self.refuse("it is more than this machine can address"))
    }

    fn fraction(self, min: f64, max: f64) -> Result<f64> {
        match self.text.parse() {
            Ok(number) if number >= min && number <= max => Ok(number),
            _ => Err(self.refuse(&format!("it must be a number from {min} to {max}"))),
        }
    }

    /// A part of a whole that is neither nothing nor all.
    fn part(self) -> Result<f64> {
        match self.text.parse() {
            Ok(number) if number > 0.0 && number < 1.0 => Ok(number),
            _ => Err(self.refuse("it must be above 0 and below 1")),
        }
    }

    fn part_or_none(self) -> Result<f64> {
        match self.text.parse() {
            Ok(number) if (0.0..1.0).contains(&number) => Ok(number),
            _ => Err(self.refuse("it must be 0, for none, or above it and below 1")),
        }
    }

    fn word<T: Copy>(self, words: &[(&str, T)]) -> Result<T> {
        self.one(self.text, words)
    }

    /// Finds a word; case, `-` and `_` make no difference, nor does what the words have in common at their end.
    fn one<T: Copy>(self, text: &str, words: &[(&str, T)]) -> Result<T> {
        let plain = |word: &str| -> String {
            let word: String = word
                .chars()
                .filter(|c| *c != '-' && *c != '_')
                .flat_map(char::to_lowercase)
                .collect();
            ["compression", "level"]
                .iter()
                .find_map(|end| word.strip_suffix(end).filter(|head| !head.is_empty()))
                .unwrap_or(&word)
                .to_owned()
        };
        if let Some((_, value)) = words.iter().find(|(word, _)| plain(word) == plain(text)) {
            return Ok(*value);
        }
        let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let hint = nearest(text, names.iter().copied())
            .map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
        Err(self.refuse(&format!("it must be one of {}{hint}", names.join(", "))))
    }

    fn words<T: Copy>(self, words: &[(&str, T)]) -> Result<Vec<T>> {
        self.text
            .split([';', ','])
            .map(|text| self.one(text.trim(), words))
            .collect()
    }

    fn compaction(self) -> Result<CompactionStyle> {
        if self.text.eq_ignore_ascii_case("fifo") {
            return Err(self.refuse("it drops the oldest files, and with them state"));
        }
        self.word(COMPACTION)
    }

    /// Reads a setting of filters that are switched on.
    fn bloom(
        self,
        config: &mut RocksDbConfig,
        read: impl FnOnce(&mut BloomFilter, Self) -> Result<()>,
    ) -> Result<()> {
        let mut unused = BloomFilter::default();
        read(config.bloom_filter.as_mut().unwrap_or(&mut unused), self)
    }

    fn folders(self) -> Result<Vec<PathBuf>> {
        let folder = |text: &str| {
            let text = text.trim();
            // `file:///a` and `file:/a` are `/a`.
            let path = text
                .strip_prefix("file:")
                .map_or(text, |path| path.strip_prefix("//").unwrap_or(path));
            if text.is_empty() {
                return Err(self.refuse("an element of the list is empty"));
            }
            if path.contains("://") {
                return Err(self.refuse("a database must be in a local folder"));
            }
            let path = PathBuf::from(path);
            if !path.is_absolute() {
                return Err(self.refuse("a folder must be given by its absolute path"));
            }
            Ok(path)
        };
        self.text.split([';', ',']).map(folder).collect()
    }

    fn never(self, why: &str) -> Result<()> {
        Err(self.refuse(why))
    }

    fn only(self, default: &str) -> Result<()> {
        if self.text.eq_ignore_ascii_case(default) || (default == "0" && self.is_no_time()) {
            return Ok(());
        }
        Err(self.refuse(&format!(
            "this version does not offer it: leave it at {default}"
        )))
    }

    fn is_no_time(self) -> bool {
        parse_duration(self.text).is_ok_and(|time| time.is_zero())
    }
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
