use std::fs;
use std::path::Path;

use futures_util::FutureExt;
use state_api::{ErrorKind, Executor, SnapshotKind};

use super::*;
use crate::chain::chained::End;
use crate::channel::Signal;
use crate::sinks::FileSink;
use crate::task::subtask_tests::environment;
use crate::testing::StepExecutor;

/// A file sink at the end of a chain, opened.
fn opened(folder: &Path) -> TwoPhaseStage<FileSink<u64>> {
    let executor = StepExecutor::new() as Arc<dyn Executor>;
    let env = environment(Signal::new(), executor);
    let uid = OperatorUid::new("out").unwrap();
    let sink = Arc::new(FileSink::lines(folder));
    let mut stage = TwoPhaseStage::new(sink, uid, Failpoints::none());
    stage.open(&env).now_or_never().unwrap().unwrap();
    stage
}

fn snapshot(stage: &mut TwoPhaseStage<FileSink<u64>>, id: u64) {
    let request = SnapshotRequest {
        checkpoint: CheckpointId(id),
        kind: SnapshotKind::Checkpoint,
        now_ms: 0,
    };
    let mut set = SubtaskSnapshot::new();
    stage.snapshot(&request, &mut set).unwrap();
    for due in set.take_harden() {
        due.run_here().unwrap();
    }
}

/// How many files a reader doesn't see, and how many one sees.
fn files(folder: &Path) -> (usize, usize) {
    let names = fs::read_dir(folder).unwrap();
    let hidden = names.map(|entry| {
        let name = entry.unwrap().file_name();
        name.to_str().unwrap().starts_with('.')
    });
    let (hidden, visible): (Vec<bool>, Vec<bool>) = hidden.partition(|hidden| *hidden);
    (hidden.len(), visible.len())
}

#[test]
fn k_720_after_its_end_a_sink_opens_no_transaction_and_takes_no_record() {
    let folder = tempfile::tempdir().unwrap();
    let mut stage = opened(folder.path());
    stage.process(1, NO_TIMESTAMP, &mut End).unwrap();
    stage.finish(&mut End).unwrap();
    snapshot(&mut stage, 1);
    let open = |stage: &TwoPhaseStage<FileSink<u64>>| {
        let writer = stage.writer.as_ref().unwrap();
        writer.open_transaction().is_some()
    };
    assert_eq!((files(folder.path()), open(&stage)), ((1, 0), false));
    let refused = stage.process(2, NO_TIMESTAMP, &mut End).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Bug);
    assert!(
        refused.to_string().contains("after the end of its input"),
        "{refused}"
    );
    stage.flush(&mut End).unwrap();
    assert_eq!((files(folder.path()), open(&stage)), ((1, 0), false));
    snapshot(&mut stage, 2);
    assert_eq!((files(folder.path()), open(&stage)), ((1, 0), false));
    stage.completed(CheckpointId(2)).unwrap();
    assert_eq!(files(folder.path()), (0, 1));
}
