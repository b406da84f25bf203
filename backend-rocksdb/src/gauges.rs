use std::sync::Arc;

use metrics::Gauge;
use rocksdb::Options;
use rocksdb::statistics::Ticker;

use crate::database::{ColumnCell, Db};
use crate::memory::SharedMemory;
use crate::snapshot::RestoreStats;

/// Where a figure comes from.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// A property of a column.
    Column(&'static str),
    /// A property of the database.
    Database(&'static str),
    /// A property of the block cache, which many databases share.
    Cache(&'static str),
    /// A figure of the memory that many databases share.
    Memory(fn(&SharedMemory) -> u64),
    /// The number of files of each level of a column.
    Levels,
    /// A count kept by RocksDB since the database was opened.
    Ticker(Ticker),
}

/// A figure of RocksDB that can be reported as a gauge, by the name of Flink's option without `metrics.`; those of the shared memory
/// (`memory-…`) have no option in Flink.
#[derive(Clone, Copy, Debug)]
pub struct NativeGauge {
    option: &'static str,
    source: Source,
}

const fn column(option: &'static str, property: &'static str) -> NativeGauge {
    NativeGauge {
        option,
        source: Source::Column(property),
    }
}

const fn database(option: &'static str, property: &'static str) -> NativeGauge {
    NativeGauge {
        option,
        source: Source::Database(property),
    }
}

const fn cache(option: &'static str, property: &'static str) -> NativeGauge {
    NativeGauge {
        option,
        source: Source::Cache(property),
    }
}

const fn memory(option: &'static str, figure: fn(&SharedMemory) -> u64) -> NativeGauge {
    NativeGauge {
        option,
        source: Source::Memory(figure),
    }
}

const fn ticker(option: &'static str, ticker: Ticker) -> NativeGauge {
    NativeGauge {
        option,
        source: Source::Ticker(ticker),
    }
}

const ALL: &[NativeGauge] = &[
    column("num-immutable-mem-table", "rocksdb.num-immutable-mem-table"),
    column("mem-table-flush-pending", "rocksdb.mem-table-flush-pending"),
    column("compaction-pending", "rocksdb.compaction-pending"),
    database("background-errors", "rocksdb.background-errors"),
    column(
        "cur-size-active-mem-table",
        "rocksdb.cur-size-active-mem-table",
    ),
    column("cur-size-all-mem-tables", "rocksdb.cur-size-all-mem-tables"),
    column("size-all-mem-tables", "rocksdb.size-all-mem-tables"),
    column(
        "num-entries-active-mem-table",
        "rocksdb.num-entries-active-mem-table",
    ),
    column(
        "num-entries-imm-mem-tables",
        "rocksdb.num-entries-imm-mem-tables",
    ),
    column(
        "num-deletes-active-mem-table",
        "rocksdb.num-deletes-active-mem-table",
    ),
    column(
        "num-deletes-imm-mem-tables",
        "rocksdb.num-deletes-imm-mem-tables",
    ),
    column("estimate-num-keys", "rocksdb.estimate-num-keys"),
    column(
        "estimate-table-readers-mem",
        "rocksdb.estimate-table-readers-mem",
    ),
    database("num-snapshots", "rocksdb.num-snapshots"),
    column("num-live-versions", "rocksdb.num-live-versions"),
    column("estimate-live-data-size", "rocksdb.estimate-live-data-size"),
    column("total-sst-files-size", "rocksdb.total-sst-files-size"),
    column("live-sst-files-size", "rocksdb.live-sst-files-size"),
    column(
        "estimate-pending-compaction-bytes",
        "rocksdb.estimate-pending-compaction-bytes",
    ),
    database("num-running-compactions", "rocksdb.num-running-compactions"),
    database("num-running-flushes", "rocksdb.num-running-flushes"),
    database(
        "actual-delayed-write-rate",
        "rocksdb.actual-delayed-write-rate",
    ),
    database("is-write-stopped", "rocksdb.is-write-stopped"),
    cache("block-cache-capacity", "rocksdb.block-cache-capacity"),
    cache("block-cache-usage", "rocksdb.block-cache-usage"),
    cache(
        "block-cache-pinned-usage",
        "rocksdb.block-cache-pinned-usage",
    ),
    memory("memory-budget", SharedMemory::total),
    memory("memory-used", |memory| memory.used() as u64),
    memory("memory-write-buffers", |memory| {
        memory.write_buffers() as u64
    }),
    memory("memory-objects", |memory| {
        memory.objects().map_or(0, |objects| objects.drawn() as u64)
    }),
    NativeGauge {
        option: "num-files-at-level",
        source: Source::Levels,
    },
    ticker("block-cache-hit", Ticker::BlockCacheHit),
    ticker("block-cache-miss", Ticker::BlockCacheMiss),
    ticker("bloom-filter-useful", Ticker::BloomFilterUseful),
    ticker(
        "bloom-filter-full-positive",
        Ticker::BloomFilterFullPositive,
    ),
    ticker(
        "bloom-filter-full-true-positive",
        Ticker::BloomFilterFullTruePositive,
    ),
    ticker("bytes-read", Ticker::BytesRead),
    ticker("iter-bytes-read", Ticker::IterBytesRead),
    ticker("bytes-written", Ticker::BytesWritten),
    ticker("compaction-read-bytes", Ticker::CompactReadBytes),
    ticker("compaction-write-bytes", Ticker::CompactWriteBytes),
    ticker("stall-micros", Ticker::StallMicros),
];

/// Levels that RocksDB has unless told otherwise.
const LEVELS: usize = 7;

impl PartialEq for NativeGauge {
    fn eq(&self, other: &Self) -> bool {
        self.option == other.option
    }
}

impl Eq for NativeGauge {}

impl NativeGauge {
    /// Returns all of them.
    pub fn all() -> impl Iterator<Item = Self> {
        ALL.iter().copied()
    }

    /// Finds one by the name of Flink's option without `metrics.`.
    #[must_use]
    pub fn named(option: &str) -> Option<Self> {
        Self::all().find(|gauge| gauge.option == option)
    }

    /// Returns the name of Flink's option without `metrics.`.
    #[must_use]
    pub fn option(self) -> &'static str {
        self.option
    }

    /// Returns whether RocksDB counts for it, which costs some time of each access.
    #[must_use]
    pub fn counts(self) -> bool {
        matches!(self.source, Source::Ticker(_))
    }

    /// Returns the name under which it is reported.
    #[must_use]
    pub fn name(self) -> String {
        format!("holdfast_rocksdb_{}", self.option.replace('-', "_"))
    }
}

/// The gauges of one database: `holdfast_rocksdb_…` with the labels `operator`, `subtask` and, if asked for, `state`. What is about
/// memory that databases share has the label `subtask` if those of each subtask have their own, and none if all share it: so that sums
/// over labels are right. Those of a restore are reported whatever was chosen: they cost nothing.
pub(crate) struct Gauges {
    chosen: Vec<NativeGauge>,
    per_column: bool,
    operator: String,
    subtask: String,
    memory: Option<DrawnOn>,
}

/// The memory that a database draws on with others.
pub(crate) struct DrawnOn {
    pub(crate) memory: Arc<SharedMemory>,
    /// Whether these are the others of its subtask only.
    pub(crate) of_subtask: bool,
}

impl Gauges {
    pub(crate) fn new(
        chosen: Vec<NativeGauge>,
        per_column: bool,
        operator: String,
        subtask: String,
        memory: Option<DrawnOn>,
    ) -> Self {
        Self {
            chosen,
            per_column,
            operator,
            subtask,
            memory,
        }
    }

    /// Returns the gauge of something that the memory is about.
    fn of_memory(&self, name: String) -> Gauge {
        match &self.memory {
            None => self.gauge(name, None),
            Some(drawn) if drawn.of_subtask => {
                metrics::gauge!(name, "subtask" => self.subtask.clone())
            }
            Some(_) => metrics::gauge!(name),
        }
    }

    fn gauge(&self, name: String, state: Option<&str>) -> Gauge {
        let (operator, subtask) = (self.operator.clone(), self.subtask.clone());
        match state {
            Some(state) => {
                metrics::gauge!(name, "operator" => operator, "subtask" => subtask, "state" => state.to_owned())
            }
            None => metrics::gauge!(name, "operator" => operator, "subtask" => subtask),
        }
    }

    /// Reports the figures of now. What RocksDB has no figure for is left out.
    pub(crate) fn report(&self, db: &Db, options: &Options, columns: &[Arc<ColumnCell>]) {
        for gauge in &self.chosen {
            match gauge.source {
                Source::Database(property) => {
                    if let Ok(Some(figure)) = db.property_int_value(property) {
                        self.gauge(gauge.name(), None).set(figure as f64);
                    }
                }
                Source::Cache(property) => {
                    if let Ok(Some(figure)) = db.property_int_value(property) {
                        self.of_memory(gauge.name()).set(figure as f64);
                    }
                }
                Source::Memory(figure) => {
                    if let Some(drawn) = &self.memory {
                        let figure = figure(&drawn.memory);
                        self.of_memory(gauge.name()).set(figure as f64);
                    }
                }
                Source::Ticker(ticker) => {
                    let count = options.get_ticker_count(ticker);
                    self.gauge(gauge.name(), None).set(count as f64);
                }
                Source::Column(property) => {
                    self.report_columns(db, columns, property, gauge.name())
                }
                Source::Levels => {
                    for level in 0..LEVELS {
                        let property = format!("rocksdb.num-files-at-level{level}");
                        let name = format!("{}{level}", gauge.name());
                        self.report_columns(db, columns, &property, name);
                    }
                }
            }
        }
    }

    /// Reports what a restore out of files has done.
    pub(crate) fn report_restore(&self, stats: &RestoreStats) {
        let figures = [
            ("fetched_files", stats.fetched_files),
            ("fetched_bytes", stats.fetched_bytes),
            ("copied_files", stats.copied_files),
            ("copied_bytes", stats.copied_bytes),
            ("skipped_files", stats.skipped_files),
            ("skipped_bytes", stats.skipped_bytes),
            ("rewritten_bytes", stats.rewritten_bytes),
            ("cleaned_parts", stats.cleaned_parts),
        ];
        for (name, figure) in figures {
            let name = format!("holdfast_rocksdb_restored_{name}");
            self.gauge(name, None).set(figure as f64);
        }
        let times = stats.times;
        for (name, ns) in [
            ("fetch_ns", times.fetch_ns),
            ("open_ns", times.open_ns),
            ("clip_ns", times.clip_ns),
        ] {
            let name = format!("holdfast_rocksdb_restored_{name}");
            self.gauge(name, None).set(ns as f64);
        }
    }

    fn report_columns(&self, db: &Db, columns: &[Arc<ColumnCell>], property: &str, name: String) {
        let mut sum = 0;
        for column in columns {
            let figure = match db.property_value_cf(column.handle(), property) {
                Ok(Some(text)) => text.trim().parse().unwrap_or(0_u64),
                _ => continue,
            };
            sum += figure;
            if self.per_column {
                self.gauge(name.clone(), Some(column.state()))
                    .set(figure as f64);
            }
        }
        if !self.per_column {
            self.gauge(name, None).set(sum as f64);
        }
    }
}

#[cfg(test)]
#[path = "gauges_tests.rs"]
mod tests;
