//! What a job tells of the restore of its keyed state, subtask by subtask.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
mod job_support;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use backend_testkit::RecordedGauges;
use bytes::Bytes;
use checkpoint_storage::{
    Lease, MemoryPublish, MemoryStore, ObjectStore, ObjectWriter, StoreEntry, StoreRoot,
    StreamOptions, UuidSource,
};
use futures_util::future::BoxFuture;
use job_support::{Ledger, asking, expected, lines, parts, settings, totals, wordcount};
use metrics::with_local_recorder;
use runtime_core::coordinator::JobStatus;
use runtime_core::execution::LocalCopyOptions;
use runtime_core::testing::Driver;
use runtime_core::{ExecutionSettings, FolderCheckpoints, JobEvent};
use state_api::{BackendContext, BackendFactory, JobId, KeyedBackend, ManualClock, Result};

const PARALLELISM: u32 = 4;
const LATENCY_MS: i64 = 100;
const SLOW_MS: i64 = 3_000;
const MS: f64 = 1e6;

/// A store whose clock goes on with each read of an object.
#[derive(Clone, Debug)]
struct LateStore {
    inner: MemoryStore,
    clock: Arc<ManualClock>,
    /// Whether the next read takes long.
    slow: Arc<AtomicBool>,
}

impl ObjectStore for LateStore {
    fn create(&self, path: &str, lease: Lease) -> BoxFuture<'_, Result<Box<dyn ObjectWriter>>> {
        self.inner.create(path, lease)
    }

    fn read(&self, path: &str, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        let name = path.rsplit('/').next().unwrap();
        if checkpoint_storage::attempt_of_name(name).is_some() {
            let slow = self.slow.swap(false, Ordering::Relaxed);
            self.clock.advance(if slow { SLOW_MS } else { LATENCY_MS });
        }
        self.inner.read(path, range)
    }

    fn len(&self, path: &str) -> BoxFuture<'_, Result<Option<u64>>> {
        self.inner.len(path)
    }

    fn list(&self, folder: &str) -> BoxFuture<'_, Result<Vec<StoreEntry>>> {
        self.inner.list(folder)
    }

    fn delete(&self, path: &str) -> BoxFuture<'_, Result<()>> {
        self.inner.delete(path)
    }

    fn remove_folder(&self, folder: &str) -> BoxFuture<'_, Result<bool>> {
        self.inner.remove_folder(folder)
    }

    fn sync_folder(&self, folder: &str) -> BoxFuture<'_, Result<()>> {
        self.inner.sync_folder(folder)
    }
}

/// Takes long to make the backend of one subtask, or lets its state be read slowly, which is what comes next.
struct SlowBackend {
    clock: Arc<ManualClock>,
    slow: Slow,
    slow_read: Arc<AtomicBool>,
}

impl BackendFactory for SlowBackend {
    fn name(&self) -> &str {
        "slow"
    }

    fn create(&self, cx: &BackendContext) -> Result<KeyedBackend> {
        let subtask = Some(cx.subtask.index);
        if subtask == self.slow.to_make {
            self.clock.advance(SLOW_MS);
        }
        if subtask == self.slow.to_read {
            self.slow_read.store(true, Ordering::Relaxed);
        }
        backend_hashmap::HashMapBackend.create(cx)
    }
}

struct Case {
    dir: tempfile::TempDir,
    store: MemoryStore,
    seed: u64,
}

/// The subtasks that are slow in a run.
#[derive(Clone, Copy, Default)]
struct Slow {
    to_make: Option<u32>,
    to_read: Option<u32>,
}

impl Case {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            store: MemoryStore::default(),
            seed: 1,
        }
    }

    /// Runs the word count from its last checkpoint, until it has `stop`ped with another one or is finished; returns its gauges.
    fn run(
        &mut self,
        ledger: &Ledger<(String, u64)>,
        copies: bool,
        slow: Slow,
        stop: bool,
    ) -> RecordedGauges {
        self.seed += 1;
        let mut driver = Driver::new(self.seed).budget(2);
        let slow_read = Arc::new(AtomicBool::new(false));
        let store = LateStore {
            inner: self.store.clone(),
            clock: driver.clock(),
            slow: Arc::clone(&slow_read),
        };
        let publish = MemoryPublish::new(self.store.clone());
        let root = StoreRoot::new(Arc::new(store), Arc::new(publish), "memory://all");
        let checkpoints = FolderCheckpoints::new(
            root.folder("wordcount"),
            JobId::new("wordcount").unwrap(),
            UuidSource::seeded(self.seed),
            StreamOptions::new(0, 64).unwrap(),
        );
        let mut parts = parts().checkpoints(Arc::new(checkpoints));
        parts.backend = Arc::new(SlowBackend {
            clock: driver.clock(),
            slow,
            slow_read,
        });
        let asked = Mutex::new(!stop);
        let parts = asking(&driver, parts, move |control, event| {
            if let JobEvent::CheckpointCompleted(_) = event
                && !std::mem::replace(&mut *asked.lock().unwrap(), true)
            {
                drop(control.stop_with_checkpoint());
            }
        });
        let settings = ExecutionSettings {
            local_dir: self.dir.path().to_owned(),
            local_copies: LocalCopyOptions {
                keep: copies,
                restore: copies,
                roots: vec![self.dir.path().join("copies")],
            },
            ..settings(10)
        };
        let job = wordcount(&lines(4_000), PARALLELISM, ledger);
        let gauges = RecordedGauges::default();
        let outcome = with_local_recorder(&gauges, || driver.run(&job, &settings, parts)).unwrap();
        let expected = if stop {
            JobStatus::Suspended
        } else {
            JobStatus::Finished
        };
        assert_eq!(outcome.status, expected);
        gauges
    }
}

/// A figure of a subtask of the counting operator.
fn figure(gauges: &RecordedGauges, name: &str, subtask: u32, label: &str) -> f64 {
    let labels = format!("operator=count subtask={subtask}{label}");
    let figures = gauges.of(name);
    *figures
        .get(&labels)
        .unwrap_or_else(|| panic!("{name} has no {labels}: {figures:?}"))
}

fn part(gauges: &RecordedGauges, subtask: u32, part: &str) -> f64 {
    let label = format!(" part={part}");
    figure(gauges, "holdfast_restore_part_ns", subtask, &label)
}

/// Checks that the parts add up, and returns the subtasks of which a part took long, with the part.
fn slow_ones(gauges: &RecordedGauges) -> BTreeSet<(u32, &'static str)> {
    let mut slow = BTreeSet::new();
    for subtask in 0..PARALLELISM {
        let parts =
            ["fetch", "open", "clip", "entries"].map(|name| (name, part(gauges, subtask, name)));
        let sum: f64 = parts.iter().map(|(_, ns)| ns).sum();
        let total = figure(gauges, "holdfast_restore_ns", subtask, "");
        assert!((sum - total).abs() <= total / 20.0, "{parts:?} of {total}");
        let is_slow = |ns: f64| ns >= SLOW_MS as f64 * MS;
        slow.extend(
            parts
                .iter()
                .filter(|(_, ns)| is_slow(*ns))
                .map(|(name, _)| (subtask, *name)),
        );
    }
    slow
}

#[test]
fn rt_05_each_subtask_tells_where_its_state_came_from_and_what_its_restore_took() {
    let mut case = Case::new();
    let ledger = Ledger::new();
    let fresh = case.run(&ledger, false, Slow::default(), true);
    // There was nothing to restore.
    assert!(fresh.of("holdfast_restore_ns").is_empty());

    let slow = Slow {
        to_make: Some(2),
        ..Slow::default()
    };
    let gauges = case.run(&ledger, false, slow, true);
    assert_eq!(slow_ones(&gauges), BTreeSet::from([(2, "open")]));
    for subtask in 0..PARALLELISM {
        let of = |name, from| figure(&gauges, name, subtask, &format!(" from={from}"));
        assert_eq!(of("holdfast_restore_objects", "store"), 1.0);
        assert!(of("holdfast_restore_bytes", "store") > 20.0);
        assert_eq!(of("holdfast_restore_objects", "copies"), 0.0);
        assert_eq!(of("holdfast_restore_bytes", "copies"), 0.0);
        assert!(part(&gauges, subtask, "fetch") >= LATENCY_MS as f64 * MS);
    }

    let slow = Slow {
        to_read: Some(1),
        ..Slow::default()
    };
    let gauges = case.run(&ledger, false, slow, false);
    assert_eq!(slow_ones(&gauges), BTreeSet::from([(1, "fetch")]));
    assert_eq!(totals(&ledger.records()), expected(&lines(4_000)));
}

#[test]
fn rt_05_state_that_came_from_local_copies_is_told_as_such() {
    let mut case = Case::new();
    let ledger = Ledger::new();
    case.run(&ledger, true, Slow::default(), true);
    let gauges = case.run(&ledger, true, Slow::default(), false);
    for subtask in 0..PARALLELISM {
        let of = |name, from| figure(&gauges, name, subtask, &format!(" from={from}"));
        assert_eq!(of("holdfast_restore_objects", "copies"), 1.0);
        assert!(of("holdfast_restore_bytes", "copies") > 20.0);
        assert_eq!(of("holdfast_restore_objects", "store"), 0.0);
    }
}
