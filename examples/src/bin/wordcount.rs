//! How do I write a stateful job? Words are counted per key; the counts survive failures.
use std::sync::Arc;
use std::time::Duration;

use managed_state::keyed::{At, ValueState};
use runtime_core::execution::FolderCheckpoints;
use runtime_core::sinks::TransactionalCollect;
use runtime_core::sources::FileLines;
use runtime_core::{ExecutionSettings, Job, JobParts, KeyedOperator, LocalExecution, Out, States};
use state_api::access::ValueAccess;
use state_api::{Result, SystemClock};

#[derive(Clone, Default)]
struct Count {
    seen: ValueState<u64>,
}

impl KeyedOperator for Count {
    type Key = String;
    type In = String;
    type Out = (String, u64);

    fn open(&mut self, states: &mut States<'_, String>) -> Result<()> {
        self.seen = states.value("seen")?;
        Ok(())
    }

    fn process(&mut self, word: String, at: &mut At<'_, String>, out: &mut Out<'_, Self::Out>) -> Result<()> {
        let seen = at.value(self.seen).get()?.unwrap_or(0) + 1;
        at.value(self.seen).set(seen)?;
        out.emit((word, seen))
    }
}

fn main() -> Result<()> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let text = folder.path().join("text.txt");
    std::fs::write(&text, "to be or not to be\n".repeat(1000)).expect("a writable folder");
    let (counts, job) = (TransactionalCollect::new(), Job::new("wordcount").parallelism(2));
    job.source("text", FileLines::new(&text))
        .flat_map(|line: String| line.split(' ').map(str::to_owned).collect::<Vec<_>>())
        .key_by_ref(|word: &String| word)
        .process("count", Count::default())
        .sink_exactly_once("collect", counts.clone());

    let io = tokio::runtime::Runtime::new().expect("a runtime");
    let mut settings = ExecutionSettings::new("wordcount")?;
    settings.checkpointing.interval = Some(Duration::from_millis(10));
    let checkpoints = folder.path().join("checkpoints");
    let store = FolderCheckpoints::local(checkpoints, settings.job_id.clone(), io.handle())?;
    let parts = JobParts::new(Arc::new(backend_hashmap::HashMapBackend), Arc::new(SystemClock));
    let parts = parts.checkpoints(Arc::new(store));
    let outcome = LocalExecution::start(job, settings, parts, io.handle())?.wait()?;

    let most = counts.records().into_iter().filter(|(word, _)| word == "be").map(|(_, n)| n).max();
    println!("\"be\" was seen {most:?} times; {} checkpoints", outcome.checkpoints);
    assert_eq!(most, Some(2000));
    Ok(())
}
