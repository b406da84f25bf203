//! Transactions that are carried over from checkpoints that were given up: what names them completes only once they survive a crash.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
mod job_support;

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use job_support::{
    Count, Items, Ledger, asking, expected, lines, now, parts, settings, totals, with_memory,
    without_interval, words,
};
use managed_state::operator::OperatorStates;
use managed_state::raw::RawStreams;
use runtime_core::coordinator::{CoordinatorConfig, JobStatus};
use runtime_core::execution::SavepointFormat;
use runtime_core::sink::{
    CommitOutcome, Harden, PreCommitted, SinkContext, TwoPhaseSink, TwoPhaseWriter,
};
use runtime_core::sinks::{FileSink, FileTransaction};
use runtime_core::testing::{Driver, SteppedJob};
use runtime_core::{
    ExecutionSettings, Job, JobEvent, JobOutcome, JobParts, Operator, Out, Record, RestoreFrom,
};
use state_api::{CheckpointId, Error, ManualClock, Result};

type Counted = (String, u64);

/// Which transactions of a run would not survive a crash, with the checkpoint that ended each.
#[derive(Default)]
struct Watch {
    unsafe_yet: Mutex<BTreeMap<String, CheckpointId>>,
    /// How many hardenings fail from now on.
    failures: AtomicU32,
    /// Where a file sink writes.
    folder: Option<PathBuf>,
}

impl Watch {
    fn on_event(&self, event: &JobEvent) {
        let mut unsafe_yet = self.unsafe_yet.lock().unwrap();
        match event {
            // What no checkpoint named is nobody's now.
            JobEvent::RunStarted { .. } => unsafe_yet.clear(),
            JobEvent::CheckpointCompleted(stats) => {
                let named = unsafe_yet.iter().filter(|(_, id)| **id <= stats.id);
                let named: Vec<_> = named.collect();
                assert!(named.is_empty(), "checkpoint {} names {named:?}", stats.id);
            }
            _ => {}
        }
    }

    /// Hardens, or fails: as a disk does that can't be written, or, without a folder, as something that is busy.
    fn harden(&self, harden: Option<&mut Harden>) -> Result<()> {
        let harden = || harden.map_or(Ok(()), |harden| harden());
        let take_one = |left: u32| left.checked_sub(1);
        let (set, fetch) = (Ordering::SeqCst, Ordering::SeqCst);
        if self.failures.fetch_update(set, fetch, take_one).is_err() {
            return harden();
        }
        let Some(folder) = &self.folder else {
            return Err(Error::retryable("busy"));
        };
        let away = folder.with_extension("away");
        fs::rename(folder, &away).unwrap();
        let result = harden();
        fs::rename(&away, folder).unwrap();
        assert!(result.is_err(), "a folder was synced that was not there");
        result
    }

    /// Does to the part files what a power cut may do.
    fn cut_power(&self) -> usize {
        let (folder, unsafe_yet) = (
            self.folder.as_ref().unwrap(),
            self.unsafe_yet.lock().unwrap(),
        );
        let mut cut = 0;
        for entry in fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if unsafe_yet.keys().any(|stem| name.contains(stem)) {
                let file = OpenOptions::new().write(true).open(folder.join(name));
                file.unwrap().set_len(0).unwrap();
                cut += 1;
            }
        }
        cut
    }
}

/// A sink whose transactions are watched.
#[derive(Clone)]
struct Watched<S> {
    sink: S,
    watch: Arc<Watch>,
    name: fn(&dyn std::any::Any) -> String,
}

struct WatchedWriter<W> {
    writer: W,
    watch: Arc<Watch>,
    name: fn(&dyn std::any::Any) -> String,
}

impl<S: TwoPhaseSink> TwoPhaseSink for Watched<S> {
    type In = S::In;
    type Transaction = S::Transaction;
    type Writer = WatchedWriter<S::Writer>;

    fn writer(&self, cx: &SinkContext) -> Result<Self::Writer> {
        Ok(WatchedWriter {
            writer: self.sink.writer(cx)?,
            watch: Arc::clone(&self.watch),
            name: self.name,
        })
    }
}

impl<W: TwoPhaseWriter<Transaction: 'static>> TwoPhaseWriter for WatchedWriter<W> {
    type In = W::In;
    type Transaction = W::Transaction;

    fn write(&mut self, record: W::In, time_ms: Option<i64>) -> Result<()> {
        self.writer.write(record, time_ms)
    }

    fn pre_commit(
        &mut self,
        checkpoint: CheckpointId,
    ) -> Result<Option<PreCommitted<W::Transaction>>> {
        let Some(ended) = self.writer.pre_commit(checkpoint)? else {
            return Ok(None);
        };
        let (name, watch) = ((self.name)(&ended.transaction), Arc::clone(&self.watch));
        let mut unsafe_yet = self.watch.unsafe_yet.lock().unwrap();
        unsafe_yet.insert(name.clone(), checkpoint);
        let mut harden = ended.harden;
        Ok(Some(PreCommitted {
            transaction: ended.transaction,
            harden: Some(Box::new(move || {
                watch.harden(harden.as_mut())?;
                watch.unsafe_yet.lock().unwrap().remove(&name);
                Ok(())
            })),
        }))
    }

    fn open_transaction(&self) -> Option<W::Transaction> {
        self.writer.open_transaction()
    }

    fn commit(&mut self, transaction: &W::Transaction) -> Result<CommitOutcome> {
        self.writer.commit(transaction)
    }

    fn recover_and_commit(&mut self, transaction: &W::Transaction) -> Result<CommitOutcome> {
        self.writer.recover_and_commit(transaction)
    }

    fn recover_and_abort(&mut self, transaction: &W::Transaction) -> Result<()> {
        self.writer.recover_and_abort(transaction)
    }

    fn recovered(&mut self) -> Result<()> {
        self.writer.recovered()
    }

    fn flush(&mut self) -> Result<()> {
        self.writer.flush()
    }
}

/// Passes records on; its first snapshots fail.
#[derive(Clone)]
struct Fails<T> {
    left: Arc<AtomicU32>,
    of: std::marker::PhantomData<fn(T)>,
}

impl<T> Fails<T> {
    fn times(left: u32) -> Self {
        Self {
            left: Arc::new(AtomicU32::new(left)),
            of: std::marker::PhantomData,
        }
    }
}

impl<T: Record> Operator for Fails<T> {
    type In = T;
    type Out = T;

    fn process(&mut self, record: T, _: &mut OperatorStates, out: &mut Out<'_, T>) -> Result<()> {
        out.emit(record)
    }

    fn snapshot(&mut self, _: &mut OperatorStates, _: &mut RawStreams) -> Result<()> {
        let take_one = |left: u32| left.checked_sub(1);
        let (set, fetch) = (Ordering::SeqCst, Ordering::SeqCst);
        match self.left.fetch_update(set, fetch, take_one) {
            Ok(_) => Err(Error::user("not now")),
            Err(_) => Ok(()),
        }
    }
}

/// A word count; snapshots fail at the source, and between the counts and the sink.
fn job<S>(lines: &[String], in_front: u32, before_the_sink: u32, sink: Watched<S>) -> Job
where
    S: TwoPhaseSink<In = Counted>,
{
    let job = Job::new("wordcount").parallelism(2);
    job.source("lines", Items::new(lines.to_vec(), 4))
        .operator("in front", Fails::times(in_front))
        .flat_map(words)
        .key_by(|word: &String| word.clone())
        .process("count", Count::default())
        .operator("before the sink", Fails::times(before_the_sink))
        .sink_exactly_once("out", sink);
    job
}

fn tolerant(settings: ExecutionSettings) -> ExecutionSettings {
    ExecutionSettings {
        checkpointing: CoordinatorConfig {
            tolerable_failures: CoordinatorConfig::UNLIMITED,
            max_concurrent: 2,
            ..settings.checkpointing
        },
        ..settings
    }
}

fn watching(parts: JobParts, watch: &Arc<Watch>) -> JobParts {
    let (watch, asking) = (Arc::clone(watch), parts.events);
    JobParts {
        events: Arc::new(move |event: &JobEvent| {
            asking.on_event(event);
            watch.on_event(event);
        }),
        ..parts
    }
}

#[test]
fn what_a_checkpoint_names_survives_a_crash_whatever_became_of_the_checkpoint_that_ended_it() {
    for seed in 0..20 {
        let (lines, ledger) = (lines(2000), Ledger::new());
        let sink = Watched {
            sink: ledger.clone(),
            watch: Arc::new(Watch {
                failures: AtomicU32::new(2),
                ..Watch::default()
            }),
            name: |transaction| transaction.downcast_ref::<u64>().unwrap().to_string(),
        };
        let mut driver = Driver::new(seed).budget(4);
        let savepoint = AtomicBool::new(false);
        let asked = asking(&driver, with_memory(parts()).0, move |control, event| {
            let first = matches!(event, JobEvent::CheckpointTriggered(_))
                && !savepoint.swap(true, Ordering::Relaxed);
            if first {
                drop(control.savepoint(None, SavepointFormat::Native));
            }
        });
        let parts = watching(asked, &sink.watch);
        let job = job(&lines, 2, 2, sink);
        let outcome = driver.run(&job, &tolerant(settings(10)), parts).unwrap();
        assert_eq!((outcome.status, outcome.restarts), (JobStatus::Finished, 0));
        assert!(outcome.aborted >= 2, "seed {seed}: {}", outcome.aborted);
        assert_eq!(totals(&ledger.records()), expected(&lines), "seed {seed}");
    }
}

fn files(folder: &Path, failures: u32) -> Watched<FileSink<Counted>> {
    let sink = FileSink::new(folder, |(word, count): &Counted, line: &mut Vec<u8>| {
        line.extend_from_slice(format!("{word} {count}\n").as_bytes());
        Ok(())
    });
    Watched {
        sink,
        watch: Arc::new(Watch {
            failures: AtomicU32::new(failures),
            folder: Some(folder.to_owned()),
            ..Watch::default()
        }),
        name: |transaction| {
            let part: &FileTransaction = transaction.downcast_ref().unwrap();
            part.stem.clone()
        },
    }
}

/// What a reader of the output finds; nothing else may be left there.
fn output(folder: &Path) -> Vec<Counted> {
    let mut records = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            !path.file_name().unwrap().to_str().unwrap().starts_with('.'),
            "{path:?} is left behind"
        );
        records.extend(text.lines().map(|line| {
            let (word, count) = line.split_once(' ').unwrap();
            (word.to_owned(), count.parse().unwrap())
        }));
    }
    records
}

#[test]
fn a_power_cut_between_completion_and_commit_costs_no_part_that_was_carried_over() {
    for seed in 0..10 {
        let (lines, home) = (lines(2000), tempfile::tempdir().unwrap());
        let folder = home.path().join("out");
        let sink = files(&folder, 0);
        let (parts, store) = with_memory(parts());
        let completed = Arc::new(AtomicBool::new(false));
        let ours = Arc::clone(&completed);
        let events = move |event: &JobEvent| {
            let of_interest = matches!(event, JobEvent::CheckpointCompleted(_));
            ours.fetch_or(of_interest, Ordering::Relaxed);
        };
        let first = JobParts {
            events: Arc::new(events),
            seed,
            ..parts.clone()
        };
        let settings = tolerant(settings(10));
        let mut stepped = SteppedJob::start(
            job(&lines, 1, 1, sink.clone()),
            settings.clone(),
            first,
            Arc::new(ManualClock::at(0)),
        )
        .budget(4);
        while !completed.load(Ordering::Relaxed) {
            assert_eq!(stepped.step().unwrap(), None, "seed {seed}");
        }
        // Nobody has been told, so nothing is committed.
        sink.watch.cut_power();
        drop(stepped);
        assert_eq!(store.completed().len(), 1);
        let again = ExecutionSettings {
            restore: RestoreFrom::Latest,
            ..settings
        };
        let job = job(&lines, 0, 0, sink);
        let mut driver = Driver::new(seed);
        driver.run(&job, &again, parts).unwrap();
        assert_eq!(totals(&output(&folder)), expected(&lines), "seed {seed}");
    }
}

/// Runs the word count into files, of which one can't be synced.
fn run_with_a_failing_disk(
    seed: u64,
    settings: &ExecutionSettings,
    ask_for_a_savepoint: bool,
) -> (JobOutcome, usize) {
    let (lines, home) = (lines(2000), tempfile::tempdir().unwrap());
    let folder = home.path().join("out");
    let sink = files(&folder, 1);
    let mut driver = Driver::new(seed).budget(4);
    let refused = Arc::new(Mutex::new(Vec::new()));
    let replies = Arc::clone(&refused);
    let asked = asking(&driver, with_memory(parts()).0, move |control, event| {
        let mut replies = replies.lock().unwrap();
        if ask_for_a_savepoint && matches!(event, JobEvent::Running { .. }) && replies.is_empty() {
            replies.push(control.savepoint(None, SavepointFormat::Native));
        }
    });
    let parts = watching(asked, &sink.watch);
    let job = job(&lines, 0, 0, sink);
    let outcome = driver.run(&job, settings, parts).unwrap();
    assert_eq!(totals(&output(&folder)), expected(&lines), "seed {seed}");
    let replies = std::mem::take(&mut *refused.lock().unwrap());
    let refused = replies.into_iter().filter_map(|reply| now(reply).err());
    (outcome, refused.count())
}

#[test]
fn a_part_that_could_not_be_synced_is_written_anew_after_a_restore_that_does_not_name_it() {
    for seed in 0..10 {
        let settings = tolerant(settings(10));
        let (outcome, _) = run_with_a_failing_disk(seed, &settings, false);
        assert_eq!((outcome.status, outcome.restarts), (JobStatus::Finished, 1));
    }
}

#[test]
fn a_savepoint_whose_part_could_not_be_synced_restarts_the_job() {
    for seed in 0..10 {
        let settings = without_interval();
        let (outcome, refused) = run_with_a_failing_disk(seed, &settings, true);
        assert_eq!((outcome.status, outcome.restarts), (JobStatus::Finished, 1));
        assert_eq!(refused, 1, "seed {seed}");
    }
}
