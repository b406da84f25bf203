//! What checkpoints cost a whole job: words → key by → count → discard, with a checkpoint every second and without, in turns.
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use backend_hashmap::HashMapBackend;
use runtime_core::execution::{CheckpointStats, JobHandle};
use runtime_core::sink::{Sink, SinkContext, SinkWriter};
use runtime_core::sources::Generator;
use runtime_core::{ExecutionSettings, FolderCheckpoints, Job, JobEvent, JobParts, LocalExecution};
use state_api::{Error, Result, SystemClock};

use crate::job::Count;
use crate::process::cpu_time;
use crate::stopwatch::{Spread, now};
use crate::table::Table;
use crate::workload::{KEY_GROUPS, mix64, word};

/// As the other measurements of whole jobs.
const PARALLELISM: u32 = 2;
/// Records between two looks of a sink.
const LOOK: u64 = 1024;
/// How long the job runs on once every key is there, before anything is measured: the first checkpoint falls into it.
const SETTLE: Duration = Duration::from_secs(2);
/// How often the measuring thread looks whether the job still runs.
const GLANCE: Duration = Duration::from_millis(20);

/// What a run of the job was like, from when every key was there.
#[derive(Clone, Copy, Debug, Default)]
pub struct Run {
    /// Records counted per second.
    pub records_per_second: f64,
    /// Nanoseconds that all threads together were on a core per record; 0 where the system does not say.
    pub cpu_ns: f64,
    /// Checkpoints completed.
    pub checkpoints: usize,
    /// Mean milliseconds of a checkpoint from its trigger to the published metadata.
    pub checkpoint_ms: f64,
    /// Mean bytes that a checkpoint wrote.
    pub bytes: f64,
}

#[derive(Default)]
struct Counted {
    records: AtomicU64,
    /// Distinct words so far.
    keys: AtomicU64,
}

struct Discard(Arc<Counted>);

struct Discarding {
    counted: Arc<Counted>,
    records: u64,
    keys: u64,
}

impl Sink for Discard {
    type In = (String, u64);
    type Writer = Discarding;

    fn writer(&self, _: &SinkContext) -> Result<Discarding> {
        Ok(Discarding {
            counted: Arc::clone(&self.0),
            records: 0,
            keys: 0,
        })
    }
}

impl Discarding {
    fn tell(&mut self) {
        let (records, keys) = (&self.counted.records, &self.counted.keys);
        records.fetch_add(std::mem::take(&mut self.records), Ordering::Relaxed);
        keys.fetch_add(std::mem::take(&mut self.keys), Ordering::Relaxed);
    }
}

impl SinkWriter for Discarding {
    type In = (String, u64);

    fn write(&mut self, record: (String, u64), _: Option<i64>) -> Result<()> {
        self.records += 1;
        self.keys += u64::from(record.1 == 1);
        std::hint::black_box(record);
        if self.records == LOOK {
            self.tell();
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.tell();
        Ok(())
    }
}

/// The job over distinct words, as it runs.
struct Running {
    handle: JobHandle,
    counted: Arc<Counted>,
    stats: Arc<Mutex<Vec<CheckpointStats>>>,
    io: tokio::runtime::Runtime,
    _folder: tempfile::TempDir,
}

impl Running {
    /// Starts the job over `n` distinct words, with a checkpoint every `interval` if there is one.
    fn start(n: usize, interval: Option<Duration>) -> Result<Self> {
        let failed =
            |error| Error::config("no place for checkpoints, or no threads").caused_by(error);
        let folder = tempfile::tempdir().map_err(failed)?;
        let io = tokio::runtime::Runtime::new().map_err(failed)?;
        let counted = Arc::new(Counted::default());
        let dictionary: Arc<[String]> = (0..n as u64).map(word).collect();
        // Every word once, then words at random, without end.
        let words = Generator::new(move |i| {
            let keys = dictionary.len() as u64;
            let at = if i < keys { i } else { mix64(i) % keys };
            dictionary[at as usize].clone()
        });
        let job = Job::new("words").parallelism(PARALLELISM);
        job.source("source", words)
            .key_by_ref(|word: &String| word)
            .process("count", Count::default())
            .max_parallelism(KEY_GROUPS)
            .sink("discard", Discard(Arc::clone(&counted)));

        let mut settings = ExecutionSettings::new("words")?;
        settings.checkpointing.interval = interval;
        let stats = Arc::new(Mutex::new(Vec::<CheckpointStats>::new()));
        let mut parts = JobParts::new(Arc::new(HashMapBackend), Arc::new(SystemClock));
        let gathered = Arc::clone(&stats);
        parts.events = Arc::new(move |event: &JobEvent| {
            if let JobEvent::CheckpointCompleted(done) = event {
                let mut all = gathered.lock().unwrap_or_else(PoisonError::into_inner);
                all.push(done.clone());
            }
        });
        let store = FolderCheckpoints::local(folder.path(), settings.job_id.clone(), io.handle())?;
        parts = parts.checkpoints(Arc::new(store));
        Ok(Self {
            handle: LocalExecution::start(job, settings, parts, io.handle())?,
            counted,
            stats,
            io,
            _folder: folder,
        })
    }

    /// Waits, and returns whether the job is still there when the time has come.
    fn wait(&self, until: impl Fn() -> bool) -> bool {
        while !until() && !self.handle.has_ended() {
            std::thread::sleep(GLANCE);
        }
        !self.handle.has_ended()
    }

    /// Waits until each of `n` words has been counted, and some time more.
    fn settle(&self, n: usize, settle: Duration) {
        // A sink may hold back the last few below a look until more records come; they do.
        self.wait(|| self.counted.keys.load(Ordering::Relaxed) >= n as u64);
        let start = now();
        self.wait(|| start.elapsed() >= settle);
    }

    /// Measures for a while, in which checkpoints are asked for at once and then every so often if they are wanted.
    fn measure(&self, measured: Duration, demanded: Option<Duration>) -> Result<Run> {
        drop(self.take_stats());
        let (start, cpu) = (now(), cpu_time());
        let before = self.counted.records.load(Ordering::Relaxed);
        let mut asked = Duration::ZERO;
        while start.elapsed() < measured {
            if let Some(every) = demanded.filter(|_| start.elapsed() >= asked) {
                // It is counted when it is complete.
                drop(self.handle.control().checkpoint(false));
                asked += every;
            }
            std::thread::sleep(GLANCE);
            if self.handle.has_ended() {
                return Err(Error::bug("the job ended by itself"));
            }
        }
        let records = self.counted.records.load(Ordering::Relaxed) - before;
        let seconds = start.elapsed().as_secs_f64();
        let cpu = cpu.zip(cpu_time()).map(|(before, after)| after - before);
        let stats = self.take_stats();
        let mean = |of: fn(&CheckpointStats) -> u64| {
            stats.iter().map(of).sum::<u64>() as f64 / stats.len().max(1) as f64
        };
        Ok(Run {
            records_per_second: records as f64 / seconds,
            cpu_ns: cpu.unwrap_or_default().as_nanos() as f64 / records.max(1) as f64,
            checkpoints: stats.len(),
            checkpoint_ms: mean(|stats| stats.duration_ms),
            bytes: mean(|stats| stats.new_bytes),
        })
    }

    fn take_stats(&self) -> Vec<CheckpointStats> {
        std::mem::take(&mut *self.stats.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn end(self) -> Result<()> {
        self.handle.cancel();
        self.handle.wait()?;
        drop(self.io);
        Ok(())
    }
}

/// Runs the job over `n` distinct words until each has been counted, for `settle` more, and then for `measured`, which is
/// what the result is about; with a checkpoint every `interval` if there is one.
///
/// # Errors
/// Those of the job.
pub fn run(
    n: usize,
    settle: Duration,
    measured: Duration,
    interval: Option<Duration>,
) -> Result<Run> {
    let running = Running::start(n, interval)?;
    running.settle(n, settle);
    let run = running.measure(measured, None);
    running.end()?;
    run
}

/// Returns what checkpoints cost a job that goes on all the time: windows with a checkpoint each second and without, in pairs
/// that begin with either in turns, so that what slows the machine down for longer than a window slows both.
///
/// # Errors
/// Those of the job.
pub fn windows_table(n: usize, window: Duration, pairs: usize) -> Result<Table> {
    let every = Duration::from_secs(1);
    let running = Running::start(n, None)?;
    running.settle(n, SETTLE);
    let (mut records, mut cores, mut ms) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 0..pairs {
        let without = |running: &Running| running.measure(window, None);
        let with = |running: &Running| running.measure(window, Some(every));
        let (without, with) = if pair % 2 == 0 {
            (without(&running)?, with(&running)?)
        } else {
            let with = with(&running)?;
            (without(&running)?, with)
        };
        records.push(throughput(&without, &with));
        cores.push(cpu(&without, &with));
        ms.push(with.checkpoint_ms);
    }
    running.end()?;
    let mut table = Table::new(
        format!(
            "One job over {n} words: {pairs} pairs of windows of {} s with a checkpoint each second and without",
            window.as_secs()
        ),
        &[
            "of the pairs",
            "with ÷ without, records/s",
            "ns on a core, without ÷ with",
            "mean ms",
        ],
    );
    for (name, part) in [
        ("a quarter below", 0.25),
        ("median", 0.5),
        ("a quarter above", 0.75),
    ] {
        table.row([
            name.to_owned(),
            format!("{:.3}", quantile(&mut records, part)),
            format!("{:.3}", quantile(&mut cores, part)),
            format!("{:.0}", quantile(&mut ms, part)),
        ]);
    }
    Ok(table)
}

fn quantile(all: &mut [f64], part: f64) -> f64 {
    all.sort_by(f64::total_cmp);
    let at = (all.len().saturating_sub(1) as f64 * part).round() as usize;
    all.get(at).copied().unwrap_or(f64::NAN)
}

/// Returns the table: pairs of runs of `measured` each, the first of a pair with checkpoints and without in turns.
///
/// # Errors
/// Those of the job.
pub fn table(n: usize, measured: Duration, rounds: usize) -> Result<Table> {
    let every = Some(Duration::from_secs(1));
    let mut table = Table::new(
        format!(
            "A job over {n} words with a checkpoint every second and without, {} s each",
            measured.as_secs()
        ),
        &[
            "pair",
            "records/s without",
            "with",
            "with ÷ without",
            "ns on a core per record without",
            "with",
            "without ÷ with",
            "checkpoints",
            "mean ms",
            "mean MB",
        ],
    );
    let mut pairs = Vec::new();
    for round in 0..rounds {
        let one = |interval| run(n, SETTLE, measured, interval);
        let (without, with) = if round % 2 == 0 {
            let without = one(None)?;
            (without, one(every)?)
        } else {
            let with = one(every)?;
            (one(None)?, with)
        };
        row(&mut table, &(round + 1).to_string(), &without, &with);
        pairs.push((without, with));
    }
    let spread = |of: &dyn Fn(&Run, &Run) -> f64| {
        Spread::of(
            pairs
                .iter()
                .map(|(without, with)| of(without, with))
                .collect(),
        )
    };
    table.row([
        "median".to_owned(),
        format!("{:.0}", spread(&|without, _| without.records_per_second)),
        format!("{:.0}", spread(&|_, with| with.records_per_second)),
        format!("{:.3}", spread(&throughput)),
        format!("{:.0}", spread(&|without, _| without.cpu_ns)),
        format!("{:.0}", spread(&|_, with| with.cpu_ns)),
        format!("{:.3}", spread(&cpu)),
        format!("{:.0}", spread(&|_, with| with.checkpoints as f64)),
        format!("{:.0}", spread(&|_, with| with.checkpoint_ms)),
        format!("{:.1}", spread(&|_, with| with.bytes / 1e6)),
    ]);
    Ok(table)
}

fn throughput(without: &Run, with: &Run) -> f64 {
    with.records_per_second / without.records_per_second
}

fn cpu(without: &Run, with: &Run) -> f64 {
    without.cpu_ns / with.cpu_ns
}

fn row(table: &mut Table, pair: &str, without: &Run, with: &Run) {
    table.row([
        pair.to_owned(),
        format!("{:.0}", without.records_per_second),
        format!("{:.0}", with.records_per_second),
        format!("{:.3}", throughput(without, with)),
        format!("{:.0}", without.cpu_ns),
        format!("{:.0}", with.cpu_ns),
        format!("{:.3}", cpu(without, with)),
        with.checkpoints.to_string(),
        format!("{:.0}", with.checkpoint_ms),
        format!("{:.1}", with.bytes / 1e6),
    ]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_measures_once_every_key_is_there_and_ends() {
        let (settle, measured) = (Duration::ZERO, Duration::from_millis(100));
        let run = run(5000, settle, measured, None).unwrap();
        assert!(run.records_per_second > 0.0);
        assert_eq!((run.checkpoints, run.bytes), (0, 0.0));
    }

    #[test]
    fn a_window_has_the_checkpoints_that_it_asks_for_and_the_next_one_none() {
        let running = Running::start(100, None).unwrap();
        running.settle(100, Duration::ZERO);
        let every = Some(Duration::from_millis(50));
        let with = running.measure(Duration::from_millis(500), every).unwrap();
        let settled = running.measure(Duration::from_millis(200), None).unwrap();
        let without = running.measure(Duration::from_millis(200), None).unwrap();
        running.end().unwrap();
        assert!(with.checkpoints > 1 && with.bytes > 0.0, "{with:?}");
        assert!(settled.checkpoints <= 1, "{settled:?}");
        assert_eq!(without.checkpoints, 0, "{without:?}");
    }

    #[test]
    fn the_checkpoints_of_a_run_are_counted() {
        let interval = Some(Duration::from_millis(10));
        let run = run(100, Duration::ZERO, Duration::from_secs(1), interval).unwrap();
        assert!(run.checkpoints > 0 && run.bytes > 0.0, "{run:?}");
    }
}
