//! Does my changed job start from yesterday's checkpoint? A test says so state by state, without running it.
use std::sync::Arc;
use std::time::Duration;

use checkpoint_storage::StoredCheckpoint;
use managed_state::keyed::{At, ValueState};
use runtime_core::execution::FolderCheckpoints;
use runtime_core::{ExecutionSettings, Job, JobParts, KeyedOperator, LocalExecution, Out, States};
use runtime_core::{check_compat, coordinator::Retention, sinks::CollectSink, sources::Generator};
use state_api::access::ValueAccess;
use state_api::{Result, StateType, SystemClock};

/// Sums numbers as a `T`.
#[derive(Clone, Default)]
struct Sum<T>(ValueState<T>);

impl<T: StateType + From<u32> + std::ops::AddAssign + Default> KeyedOperator for Sum<T> {
    type Key = u32;
    type In = u32;
    type Out = u32;

    fn open(&mut self, states: &mut States<'_, u32>) -> Result<()> {
        self.0 = states.value("sum")?;
        Ok(())
    }

    fn process(&mut self, n: u32, at: &mut At<'_, u32>, out: &mut Out<'_, u32>) -> Result<()> {
        at.value(self.0).update(|sum: &mut T| *sum += n.into())?;
        out.emit(n)
    }
}

fn job<T: StateType + From<u32> + std::ops::AddAssign + Default>() -> Job {
    let job = Job::new("sums");
    let numbers = job.source("numbers", Generator::new(|i| i as u32).take(10_000));
    let sums = numbers.key_by(|n| n % 10).process("sums", Sum::<T>::default());
    sums.sink("out", CollectSink::new());
    job
}

fn main() -> Result<()> {
    let (io, folder) = (tokio::runtime::Runtime::new().expect("a runtime"), tempfile::tempdir().expect("a folder"));
    let mut settings = ExecutionSettings::new("sums")?;
    settings.checkpointing.interval = Some(Duration::from_millis(10));
    settings.checkpointing.retention = Retention::Always;
    let store = FolderCheckpoints::local(folder.path(), settings.job_id.clone(), io.handle())?;
    let parts = JobParts::new(Arc::new(backend_hashmap::HashMapBackend), Arc::new(SystemClock));
    let parts = parts.checkpoints(Arc::new(store));
    LocalExecution::start(job::<u32>(), settings, parts, io.handle())?.wait()?;

    // A test beside a job brings the small file `_metadata` of a savepoint along: `CheckpointMetadata::decode(include_bytes!(…))`.
    let path = folder.path().join("sums/latest").display().to_string();
    let yesterday = io.block_on(StoredCheckpoint::find(&path, io.handle()))?.metadata;
    println!("{}", check_compat(&yesterday, &job::<u64>())?);
    println!("{}", check_compat(&yesterday, &job::<f64>())?);
    Ok(())
}
