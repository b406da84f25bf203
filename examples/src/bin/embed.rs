//! How do I add state and checkpoints to a loop that I have? Without `runtime-core`; the process is killed and recovers.
use std::{path::Path, sync::Arc};

use checkpoint_storage::{CheckpointMetadata, JobStore, StoreRoot, SubtaskMetadata, TokioExecutor};
use checkpoint_storage::{OperatorMetadata, UuidSource};
use managed_state::keyed::{KeyedContext, KeyedStates, ValueState};
use state_api::{access::ValueAccess, *};

async fn run(folder: &Path, die_at: u64) -> Result<u64> {
    let io = tokio::runtime::Handle::current();
    let executor = Arc::new(TokioExecutor::new(io.clone()));
    let store = JobStore::open(StoreRoot::local(folder, io)?, JobId::new("loop")?, UuidSource::machine()).await?;
    let cx = KeyedContext::single(128, Arc::new(SystemClock))?;
    let operator = OperatorMetadata::new(OperatorUid::new("count")?, 1, cx.max_parallelism, cx.hash);
    let backend = KeyedBackend::Live(Box::new(backend_hashmap::HashMapSnapshots));
    let mut states = KeyedStates::new(backend, cx)?;
    let mut next = 0;
    if let Some(found) = store.latest().await? {
        next = found.metadata.properties["next"].parse().expect("the number that was written");
        let cx = RestoreContext { storage: Arc::new(found.storage([])), executor: executor.clone() };
        states.restore(&found.metadata.operators[0].subtasks[0].snapshot.managed_keyed, &cx).await?;
        println!("restored checkpoint {}, going on at {next}", found.metadata.checkpoint);
    }
    let count: ValueState<u64> = states.value("count")?;
    let (storage, first) = (Arc::new(store.storage(Default::default())), store.first_checkpoint().0);
    for record in next..1000 {
        if record == die_at {
            std::process::abort();
        }
        states.at(&(record % 10)).value(count).update(|n| *n += 1)?;
        if record % 100 == 99 {
            let (checkpoint, kind) = (CheckpointId(first + record / 100), SnapshotKind::Checkpoint);
            let frozen = states.snapshot(&SnapshotRequest { checkpoint, kind, now_ms: 0 })?;
            let cx = PersistContext::new(checkpoint, storage.clone(), executor.clone());
            let snapshot = OperatorSnapshot { managed_keyed: frozen.persist(cx).await?, ..Default::default() };
            let mut metadata = CheckpointMetadata::new(checkpoint, store.job().clone(), store.attempt(), kind, 0);
            metadata.properties.insert("next".into(), (record + 1).to_string());
            metadata.operators.push(operator.clone());
            metadata.operators[0].subtasks.push(SubtaskMetadata::new(0, snapshot));
            store.publish(&metadata).await?;
        }
    }
    Ok(states.at(&7).value(count).get()?.unwrap_or_default())
}

fn main() -> Result<()> {
    let io = tokio::runtime::Runtime::new().expect("a runtime");
    if let Some(folder) = std::env::args_os().nth(1) {
        return io.block_on(run(folder.as_ref(), 550)).map(drop);
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let itself = std::env::current_exe().expect("this program");
    let killed = std::process::Command::new(itself).arg(folder.path()).status().expect("a process");
    assert!(!killed.success());
    assert_eq!(io.block_on(run(folder.path(), u64::MAX))?, 100);
    Ok(())
}
