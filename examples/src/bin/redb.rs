//! How does a job run on a backend of one's own? By its name; here over redb (`src/redb_backend`), through a failure.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use examples::redb_backend::RedbBackend;
use managed_state::keyed::{At, ValueState};
use runtime_core::execution::FolderCheckpoints;
use runtime_core::restart::{FixedDelay, RestartStrategy};
use runtime_core::{ExecutionSettings, Job, JobParts, KeyedOperator, LocalExecution, Out, States};
use runtime_core::{sinks::TransactionalCollect, sources::Generator};
use state_api::{BackendRegistry, Error, Result, SystemClock, access::ValueAccess};

#[derive(Clone, Default)]
struct Count(ValueState<u64>, Arc<AtomicBool>);

impl KeyedOperator for Count {
    type Key = u64;
    type In = u64;
    type Out = (u64, u64);
    fn open(&mut self, states: &mut States<'_, u64>) -> Result<()> {
        self.0 = states.value("count")?;
        Ok(())
    }
    fn process(&mut self, n: u64, at: &mut At<'_, u64>, out: &mut Out<'_, Self::Out>) -> Result<()> {
        if n == 60_000 && !self.1.swap(true, Ordering::SeqCst) {
            return Err(Error::user("a failure on the way"));
        }
        let count = at.value(self.0).update(|count| std::mem::replace(count, *count + 1))?;
        out.emit((*at.key(), count))
    }
}

fn main() -> Result<()> {
    let (folder, io) = (tempfile::tempdir().expect("a folder"), tokio::runtime::Runtime::new().expect("a runtime"));
    let mut backends = BackendRegistry::new();
    backends.register(RedbBackend)?;
    let (counts, job) = (TransactionalCollect::new(), Job::new("counts").parallelism(2));
    job.source("numbers", Generator::new(|i| i).take(100_000))
        .key_by(|n| n % 10_000)
        .process("count", Count::default())
        .sink_exactly_once("collect", counts.clone());
    let mut settings = ExecutionSettings::new("counts")?;
    settings.checkpointing.interval = Some(Duration::from_millis(20));
    settings.restart = RestartStrategy::FixedDelay(FixedDelay { attempts: 1, delay: Duration::ZERO });
    let store = FolderCheckpoints::local(folder.path(), settings.job_id.clone(), io.handle())?;
    let parts = JobParts::new(backends.get("redb")?, Arc::new(SystemClock)).checkpoints(Arc::new(store));
    let outcome = LocalExecution::start(job, settings, parts, io.handle())?.wait()?;
    let mut counts = counts.records();
    counts.sort_unstable();
    assert!(counts.into_iter().eq((0..10_000).flat_map(|key| (0..10).map(move |n| (key, n)))));
    println!("{} restart went on from a checkpoint in redb; {} completed", outcome.restarts, outcome.checkpoints);
    Ok(())
}
