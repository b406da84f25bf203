use std::time::Duration;

use state_api::ErrorKind;

use super::*;

fn parse(options: &[(&str, &str)]) -> Result<RocksDbConfig> {
    let options = options
        .iter()
        .map(|(key, text)| ((*key).to_owned(), (*text).to_owned()))
        .collect();
    RocksDbConfig::parse(&options)
}

fn refused(options: &[(&str, &str)]) -> String {
    let error = parse(options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(
        error
            .context("option")
            .unwrap()
            .starts_with("state.backend.rocksdb.")
    );
    error.message().to_owned()
}

#[test]
fn without_options_the_defaults_are_flinks() {
    let config = parse(&[]).unwrap();
    assert_eq!(config, RocksDbConfig::default());
    assert_eq!(config.predefined, Predefined::Default);
    assert_eq!(config.transfers, 4);
    assert_eq!(config.memory.write_buffer_ratio, 0.5);
    assert_eq!(
        config.periodic_compaction,
        Some(Duration::from_secs(30 * 86_400))
    );
    assert_eq!((config.log.files, config.log.file_size), (4, 25 << 20));
}

#[test]
fn every_option_is_read() {
    let config = parse(&[
        ("localdir", "/fast/a;/fast/b"),
        ("predefined-options", "FLASH_SSD_OPTIMIZED"),
        ("memory.managed", "false"),
        ("memory.fixed-per-slot", "64mb"),
        ("memory.fixed-per-tm", "1 gb"),
        ("memory.write-buffer-ratio", "0.4"),
        ("memory.partitioned-index-filters", "true"),
        ("thread.num", "8"),
        ("files.open", "-1"),
        ("log.dir", "file:///var/log/rocks"),
        ("log.file-num", "2"),
        ("log.max-file-size", "1mb"),
        ("log.level", "warn_level"),
        ("compaction.style", "universal"),
        ("compaction.level.use-dynamic-size", "TRUE"),
        ("compaction.level.target-file-size-base", "32mb"),
        ("compaction.level.max-size-level-base", "128mb"),
        (
            "compression.per.level",
            "NO_COMPRESSION;LZ4_COMPRESSION;zstd",
        ),
        ("writebuffer.size", "16mb"),
        ("writebuffer.count", "3"),
        ("writebuffer.number-to-merge", "2"),
        ("block.blocksize", "16kb"),
        ("block.metadata-blocksize", "8kb"),
        ("block.cache-size", "32mb"),
        ("bloom-filter.bits-per-key", "12.5"),
        ("use-bloom-filter", "true"),
        ("compaction.filter.periodic-compaction-time", "1 d"),
        ("compaction.filter.query-time-after-num-entries", "10"),
        ("checkpoint.transfer.thread.num", "6"),
        ("write-batch-size", "2 mb"),
        ("restore-overlap-fraction-threshold", "0.0"),
        ("incremental-restore-async-compact-after-rescale", "false"),
        ("metrics.estimate-num-keys", "true"),
        ("metrics.num-snapshots", "false"),
        ("metrics.column-family-as-variable", "true"),
        ("timer-service.factory", "ROCKSDB"),
        ("manual-compaction.min-interval", "0 ms"),
    ])
    .unwrap();
    assert_eq!(
        config.local_dirs,
        [PathBuf::from("/fast/a"), PathBuf::from("/fast/b")]
    );
    assert_eq!(config.predefined, Predefined::Flash);
    assert!(!config.memory.managed && config.memory.partitioned_index);
    assert_eq!(
        (config.memory.per_slot, config.memory.per_process),
        (Some(64 << 20), 1 << 30)
    );
    assert_eq!((config.threads, config.open_files), (Some(8), Some(-1)));
    assert_eq!(config.log.dir, Some(PathBuf::from("/var/log/rocks")));
    assert!(config.log.level == LogLevel::Warn && config.log.files == 2);
    assert_eq!(config.compaction, Some(CompactionStyle::Universal));
    assert_eq!(config.dynamic_levels, Some(true));
    assert_eq!(
        (config.target_file_size, config.level_base_size),
        (Some(32 << 20), Some(128 << 20))
    );
    assert_eq!(
        config.compression,
        [Compression::None, Compression::Lz4, Compression::Zstd]
    );
    assert_eq!(
        (config.write_buffer_size, config.write_buffer_count),
        (Some(16 << 20), Some(3))
    );
    assert_eq!(
        (config.write_buffers_to_merge, config.block_size),
        (Some(2), Some(16 << 10))
    );
    assert_eq!(
        (config.metadata_block_size, config.block_cache_size),
        (Some(8 << 10), Some(32 << 20))
    );
    assert_eq!(
        config.bloom_filter,
        Some(BloomFilter {
            bits_per_key: 12.5,
            block_based: false
        })
    );
    assert_eq!(
        (config.periodic_compaction, config.clock_every),
        (Some(Duration::from_secs(86_400)), 10)
    );
    assert_eq!(config.transfers, 6);
    assert!(!config.compact_after_rescale);
    assert_eq!(
        config.gauges,
        [NativeGauge::named("estimate-num-keys").unwrap()]
    );
    assert!(config.gauges_per_column);
}

#[test]
fn a_periodic_compaction_of_no_age_is_none() {
    let config = parse(&[("compaction.filter.periodic-compaction-time", "0")]).unwrap();
    assert_eq!(config.periodic_compaction, None);
}

#[test]
fn an_unknown_option_names_the_nearest_one() {
    assert_eq!(
        refused(&[("thread.nun", "2")]),
        "the state backend rocksdb has no option \"thread.nun\"; did you mean \"thread.num\"?"
    );
    assert!(
        refused(&[("metrics.estimate-num-kes", "true")])
            .ends_with("did you mean \"metrics.estimate-num-keys\"?")
    );
}

#[test]
fn k_265_k_269_a_bad_value_says_what_is_valid() {
    assert_eq!(
        refused(&[("predefined-options", "FLASH_SDD_OPTIMIZED")]),
        "predefined-options = \"FLASH_SDD_OPTIMIZED\" is not valid: it must be one of DEFAULT, SPINNING_DISK_OPTIMIZED, \
         SPINNING_DISK_OPTIMIZED_HIGH_MEM, FLASH_SSD_OPTIMIZED; did you mean \"FLASH_SSD_OPTIMIZED\"?"
    );
    for (key, text) in [
        ("thread.num", "0"),
        ("thread.num", "many"),
        ("memory.fixed-per-tm", "0"),
        ("memory.fixed-per-slot", "-1"),
        ("memory.write-buffer-ratio", "1"),
        ("memory.write-buffer-ratio", "0"),
        ("memory.high-prio-pool-ratio", "0.2"),
        ("memory.managed", "yes"),
        ("writebuffer.size", "1kb"),
        ("use-bloom-filter", "1"),
        ("bloom-filter.bits-per-key", "-1"),
        ("compression.per.level", "SNAPPY;;LZ4"),
        ("compaction.style", "fifo"),
        ("restore-overlap-fraction-threshold", "0.5"),
        ("write-batch-size", "64kb"),
        ("metrics.num-snapshots", "on"),
        ("timer-service.factory", "HEAP"),
        ("options-factory", "com.example.Factory"),
    ] {
        let message = refused(&[(key, text)]);
        assert!(
            message.starts_with(&format!("{key} = {text:?} is not valid: ")),
            "{message}"
        );
    }
}

#[test]
fn k_234_k_235_local_folders_are_absolute_local_and_not_empty() {
    for text in ["relative/path", "hdfs://host/dir", "/a;;/b", ""] {
        refused(&[("localdir", text)]);
    }
}

#[test]
fn filters_are_on_only_if_asked_for() {
    let config = parse(&[("bloom-filter.bits-per-key", "12")]).unwrap();
    assert_eq!(config.bloom_filter, None);
    let config = parse(&[("use-bloom-filter", "true")]).unwrap();
    assert_eq!(config.bloom_filter.unwrap().bits_per_key, 10.0);
}
