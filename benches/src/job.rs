//! A whole job: words → key by → count → discard, with checkpoints; the same as the peer harness runs.
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use backend_hashmap::HashMapBackend;
use managed_state::keyed::{At, ValueState};
use runtime_core::sink::{Sink, SinkContext, SinkWriter};
use runtime_core::sources::Generator;
use runtime_core::{
    ExecutionSettings, FolderCheckpoints, Job, JobEvent, JobParts, KeyedOperator, LocalExecution,
    Out, States,
};
use state_api::access::ValueAccess;
use state_api::{Error, Result, SystemClock};

use crate::process::cpu_time;
use crate::stopwatch::{Spread, now};
use crate::table::Table;
use crate::workload::{KEY_GROUPS, mix64, word};

/// The parallelism of the peer harness.
const PARALLELISM: u32 = 2;
/// Records between two looks at the clock.
const LOOK: u64 = 1024;

/// What a run of the job was like.
#[derive(Clone, Copy, Debug, Default)]
pub struct JobRun {
    /// Records per second from the first one made to the last one counted.
    pub records_per_second: f64,
    /// Seconds of that.
    pub seconds: f64,
    /// Nanoseconds that all threads together were on a core per record, start and end of the job included; 0 where the
    /// system does not say.
    pub cpu_ns: f64,
    /// Checkpoints completed.
    pub checkpoints: usize,
    /// Median time of a checkpoint from trigger to published metadata.
    pub checkpoint_ms: f64,
    /// Median of the longest sync part of a subtask.
    pub sync_ms: f64,
    /// Median of the longest async part of a subtask.
    pub async_ms: f64,
    /// Median size of a checkpoint in bytes.
    pub bytes: f64,
}

/// When the first record was made and the last one counted, in nanoseconds of one clock.
struct Watch {
    origin: Instant,
    started: OnceLock<u64>,
    ended: AtomicU64,
    counted: AtomicU64,
}

impl Watch {
    fn nanos(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }
}

/// Counts the occurrences of each word.
#[derive(Clone, Default)]
pub(crate) struct Count(ValueState<u64>);

impl KeyedOperator for Count {
    type Key = String;
    type In = String;
    type Out = (String, u64);

    fn open(&mut self, states: &mut States<'_, String>) -> Result<()> {
        self.0 = states.value("count")?;
        Ok(())
    }

    fn process(
        &mut self,
        word: String,
        at: &mut At<'_, String>,
        out: &mut Out<'_, Self::Out>,
    ) -> Result<()> {
        let count = at.value(self.0).update(|n| {
            *n += 1;
            *n
        })?;
        out.emit((word, count))
    }
}

/// Counts records and forgets them.
struct Discard(Arc<Watch>);

struct Discarding {
    watch: Arc<Watch>,
    seen: u64,
}

impl Sink for Discard {
    type In = (String, u64);
    type Writer = Discarding;

    fn writer(&self, _: &SinkContext) -> Result<Discarding> {
        Ok(Discarding {
            watch: Arc::clone(&self.0),
            seen: 0,
        })
    }
}

impl SinkWriter for Discarding {
    type In = (String, u64);

    fn write(&mut self, record: (String, u64), _: Option<i64>) -> Result<()> {
        std::hint::black_box(record);
        self.seen += 1;
        if self.seen.is_multiple_of(LOOK) {
            self.watch
                .ended
                .fetch_max(self.watch.nanos(), Ordering::Relaxed);
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.watch.counted.fetch_add(self.seen, Ordering::Relaxed);
        Ok(())
    }
}

/// Runs the job over `records` records of `n` distinct words at parallelism 2, with a checkpoint every `interval` if there
/// is one.
///
/// # Errors
/// Those of the job.
pub fn run(n: usize, records: u64, interval: Option<Duration>) -> Result<JobRun> {
    run_at(PARALLELISM, n, records, interval)
}

/// As [`run`], at another parallelism.
///
/// # Errors
/// Those of the job.
pub fn run_at(
    parallelism: u32,
    n: usize,
    records: u64,
    interval: Option<Duration>,
) -> Result<JobRun> {
    let failed = |error| Error::config("no place for checkpoints, or no threads").caused_by(error);
    let folder = tempfile::tempdir().map_err(failed)?;
    let io = tokio::runtime::Runtime::new().map_err(failed)?;
    let watch = Arc::new(Watch {
        origin: now(),
        started: OnceLock::new(),
        ended: AtomicU64::new(0),
        counted: AtomicU64::new(0),
    });
    let dictionary: Arc<[String]> = (0..n as u64).map(word).collect();
    let first = Arc::clone(&watch);
    let words = Generator::new(move |i| {
        first.started.get_or_init(|| first.nanos());
        dictionary[(mix64(i) % dictionary.len() as u64) as usize].clone()
    });

    let job = Job::new("words").parallelism(parallelism);
    job.source("words", words.take(records))
        .key_by_ref(|word: &String| word)
        .process("count", Count::default())
        .max_parallelism(KEY_GROUPS)
        .sink("discard", Discard(Arc::clone(&watch)));

    let mut settings = ExecutionSettings::new("words")?;
    settings.checkpointing.interval = interval;
    let stats = Arc::new(Mutex::new(Vec::new()));
    let mut parts = JobParts::new(Arc::new(HashMapBackend), Arc::new(SystemClock));
    let gathered = Arc::clone(&stats);
    parts.events = Arc::new(move |event: &JobEvent| {
        if let JobEvent::CheckpointCompleted(done) = event {
            let mut all = gathered.lock().unwrap_or_else(PoisonError::into_inner);
            all.push(done.clone());
        }
    });
    if interval.is_some() {
        let store = FolderCheckpoints::local(folder.path(), settings.job_id.clone(), io.handle())?;
        parts = parts.checkpoints(Arc::new(store));
    }
    let cpu = cpu_time();
    LocalExecution::start(job, settings, parts, io.handle())?.wait()?;
    let cpu = cpu.zip(cpu_time()).map(|(before, after)| after - before);

    let counted = watch.counted.load(Ordering::Relaxed);
    if counted != records {
        return Err(Error::bug("records were lost")
            .with("records", records)
            .with("counted", counted));
    }
    let begun = watch.started.get().copied().unwrap_or_default();
    let ended = watch.ended.load(Ordering::Relaxed);
    let seconds = ended.saturating_sub(begun) as f64 / 1e9;
    let stats = stats.lock().unwrap_or_else(PoisonError::into_inner);
    let median = |of: &dyn Fn(&runtime_core::execution::CheckpointStats) -> f64| {
        Spread::of(stats.iter().map(of).collect()).median
    };
    Ok(JobRun {
        records_per_second: records as f64 / seconds,
        seconds,
        cpu_ns: cpu.unwrap_or_default().as_nanos() as f64 / records.max(1) as f64,
        checkpoints: stats.len(),
        checkpoint_ms: median(&|s| s.duration_ms as f64),
        sync_ms: median(&|s| s.sync_ns as f64 / 1e6),
        async_ms: median(&|s| s.async_ns as f64 / 1e6),
        bytes: median(&|s| s.total_bytes as f64),
    })
}

/// Returns the table: the job at parallelism 1 and 2, without checkpoints and with one a second, in turns.
///
/// # Errors
/// Those of the job.
pub fn table(n: usize, records: u64, rounds: usize) -> Result<Table> {
    let every = Duration::from_secs(1);
    let shapes = [(1, None), (1, Some(every)), (2, None), (2, Some(every))];
    let mut runs: [Vec<JobRun>; 4] = Default::default();
    for _ in 0..rounds {
        for ((parallelism, interval), runs) in shapes.into_iter().zip(&mut runs) {
            runs.push(run_at(parallelism, n, records, interval)?);
        }
    }
    let mut table = Table::new(
        format!("A whole job, {records} records of {n} words"),
        &[
            "parallelism",
            "checkpoints",
            "records/s",
            "ns on a core per record",
            "done",
            "sync, ms",
            "async, ms",
        ],
    );
    for ((parallelism, interval), runs) in shapes.into_iter().zip(&runs) {
        let spread = |of: &dyn Fn(&JobRun) -> f64| Spread::of(runs.iter().map(of).collect());
        table.row([
            parallelism.to_string(),
            interval.map_or("none", |_| "every second").to_owned(),
            format!("{:.0}", spread(&|run| run.records_per_second)),
            format!("{:.0}", spread(&|run| run.cpu_ns)),
            format!("{:.0}", spread(&|run| run.checkpoints as f64).median),
            format!("{:.3}", spread(&|run| run.sync_ms).median),
            format!("{:.0}", spread(&|run| run.async_ms).median),
        ]);
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_job_counts_every_record() {
        let run = run(100, 20_000, None).unwrap();
        assert!(run.records_per_second > 0.0);
        assert_eq!(run.checkpoints, 0);
    }
}
