//! Collecting and printing sinks.

mod sinks_support;

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use runtime_core::sink::{Sink, SinkWriter, TwoPhaseWriter};
use runtime_core::sinks::{CollectSink, PrintSink, TransactionalCollect};
use sinks_support::{Task, context, restore};
use state_api::{CheckpointId, ErrorKind};

#[test]
fn collected_records_are_there_once_they_are_flushed() {
    let sink = CollectSink::new();
    let mut first = sink.writer(&context(1, 0, 0, 2, None)).unwrap();
    let mut second = sink.writer(&context(1, 0, 1, 2, None)).unwrap();
    first.write(1, None).unwrap();
    second.write(2, Some(5)).unwrap();
    assert_eq!(sink.records(), [0; 0]);
    second.flush().unwrap();
    first.finish().unwrap();
    assert_eq!(sink.records(), [2, 1]);
    for n in 0..5_000 {
        first.write(n, None).unwrap();
    }
    assert!(sink.records().len() > 4_000);
}

#[test]
fn k_716_transactional_records_are_visible_up_to_the_completed_checkpoint() {
    let sink = TransactionalCollect::new();
    let mut task = Task::fresh(&sink, &context(1, 0, 0, 1, None)).unwrap();
    for (id, record) in [(0, 42), (1, 43), (2, 44)] {
        task.write([record]).unwrap();
        task.snapshot(id).unwrap();
    }
    assert_eq!(sink.records(), [0; 0]);
    task.complete(1).unwrap();
    assert_eq!(sink.records(), [42, 43]);
    assert_eq!(sink.pending(), 1);
    task.complete(2).unwrap();
    task.complete(1).unwrap();
    assert_eq!(sink.records(), [42, 43, 44]);
}

#[test]
fn k_717_k_727_transactional_records_survive_a_restart_at_another_parallelism_once() {
    let sink = TransactionalCollect::new();
    let mut saved = Vec::new();
    let mut tasks = Vec::new();
    for index in 0..3 {
        let mut task = Task::fresh(&sink, &context(1, 0, index, 3, None)).unwrap();
        task.write([index]).unwrap();
        saved.push(task.snapshot(1).unwrap());
        task.write([99]).unwrap();
        task.snapshot(2).unwrap();
        tasks.push(task);
    }
    tasks[0].complete(1).unwrap();
    drop(tasks);
    for run in 1..3 {
        let _ = restore(&sink, &saved, 1, run, 2).unwrap();
        let mut records = sink.records();
        records.sort_unstable();
        assert_eq!(records, [0, 1, 2]);
        assert_eq!(sink.pending(), 0);
    }
}

#[test]
fn a_transaction_that_is_not_in_memory_is_refused() {
    let elsewhere = TransactionalCollect::new();
    let mut task = Task::fresh(&elsewhere, &context(1, 0, 0, 1, None)).unwrap();
    task.write([1]).unwrap();
    let saved = task.snapshot(1).unwrap();
    let error = restore(&TransactionalCollect::<i32>::new(), &[saved], 2, 0, 1)
        .map(|_| ())
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert_eq!(error.context("sink"), Some("output"));
    assert!(task.writer.pre_commit(CheckpointId(2)).unwrap().is_none());
}

/// A writer that takes so many bytes and then fails.
#[derive(Clone, Default)]
struct Narrow {
    taken: Arc<Mutex<Vec<u8>>>,
    room: usize,
    failure: Option<io::ErrorKind>,
}

impl Write for Narrow {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let (0, Some(failure)) = (self.room, self.failure) {
            return Err(failure.into());
        }
        let take = bytes.len().min(self.room.max(1));
        self.room = self.room.saturating_sub(take);
        self.taken
            .lock()
            .expect("no test panics with the lock")
            .extend_from_slice(&bytes[..take]);
        Ok(take)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn printed_records_are_whole_lines_of_whoever_flushes() {
    let to = Narrow {
        room: usize::MAX,
        ..Narrow::default()
    };
    let sink = PrintSink::new(to.clone());
    let mut first = sink.writer(&context(1, 0, 0, 2, None)).unwrap();
    let mut second = sink.writer(&context(1, 0, 1, 2, None)).unwrap();
    for n in 0..3 {
        first.write(format!("first {n}"), None).unwrap();
        second.write(format!("second {n}"), None).unwrap();
    }
    second.flush().unwrap();
    first.finish().unwrap();
    let text = String::from_utf8(to.taken.lock().unwrap().clone()).unwrap();
    assert_eq!(
        text,
        "second 0\nsecond 1\nsecond 2\nfirst 0\nfirst 1\nfirst 2\n"
    );
}

#[test]
fn a_print_that_fails_says_whether_trying_again_helps() {
    for (failure, kind) in [
        (io::ErrorKind::BrokenPipe, ErrorKind::Cancelled),
        (io::ErrorKind::StorageFull, ErrorKind::Retryable),
    ] {
        let sink = PrintSink::new(Narrow {
            room: 0,
            failure: Some(failure),
            ..Narrow::default()
        });
        let mut writer = sink.writer(&context(1, 0, 0, 1, None)).unwrap();
        writer.write(1, None).unwrap();
        assert_eq!(writer.flush().unwrap_err().kind(), kind);
    }
}
