//! Drives the writers of a two-phase sink as the runtime does, checkpoints and crashes included.
#![allow(dead_code, reason = "not every test file uses all of it")]

use std::fs;
use std::path::Path;
use std::sync::Arc;

use runtime_core::sink::{CommitOutcome, SinkContext, TwoPhaseSink, TwoPhaseWriter};
use state_api::{
    Attempt, CheckpointId, CodecKind, JobId, ManualClock, OperatorUid, Result, Subtask,
};

pub(crate) fn context(
    attempt: u64,
    run: u32,
    index: u32,
    parallelism: u32,
    restored: Option<u64>,
) -> SinkContext {
    SinkContext {
        job: JobId::new("job").expect("a valid id"),
        uid: OperatorUid::new("output").expect("a valid uid"),
        subtask: Subtask { index, parallelism },
        attempt: Attempt(attempt),
        run,
        restored: restored.map(CheckpointId),
        clock: Arc::new(ManualClock::at(0)),
    }
}

/// A subtask with the transactions that it ended and has not committed, by checkpoint.
pub(crate) struct Task<S: TwoPhaseSink> {
    pub(crate) writer: S::Writer,
    pub(crate) pending: Vec<(u64, S::Transaction)>,
}

/// What a checkpoint keeps of a sink: encoded, as it would be on disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Saved {
    pub(crate) id: u64,
    ended: Vec<Vec<u8>>,
    open: Vec<Vec<u8>>,
}

impl<S: TwoPhaseSink> Task<S> {
    pub(crate) fn fresh(sink: &S, cx: &SinkContext) -> Result<Self> {
        let mut writer = sink.writer(cx)?;
        writer.recovered()?;
        Ok(Self {
            writer,
            pending: Vec::new(),
        })
    }

    pub(crate) fn write(&mut self, records: impl IntoIterator<Item = S::In>) -> Result<()> {
        records
            .into_iter()
            .try_for_each(|record| self.writer.write(record, None))
    }

    /// The part of a checkpoint that runs at the barrier, and the one that runs elsewhere.
    pub(crate) fn snapshot(&mut self, id: u64) -> Result<Saved> {
        if let Some(ended) = self.writer.pre_commit(CheckpointId(id))? {
            self.pending.push((id, ended.transaction));
            ended.harden.map_or(Ok(()), |mut harden| harden())?;
        }
        let encode = |transaction: &S::Transaction| {
            let mut bytes = Vec::new();
            CodecKind::Compact.encode(transaction, &mut bytes);
            bytes
        };
        Ok(Saved {
            id,
            ended: self
                .pending
                .iter()
                .map(|(_, transaction)| encode(transaction))
                .collect(),
            open: self.writer.open_transaction().iter().map(encode).collect(),
        })
    }

    /// The notification that a checkpoint is complete: commits all up to it, in order; tries all, returns the first error.
    pub(crate) fn complete(&mut self, id: u64) -> Result<()> {
        let mut first = Ok(());
        let mut kept = Vec::new();
        for (of, transaction) in std::mem::take(&mut self.pending) {
            if of > id {
                kept.push((of, transaction));
            } else {
                match self.writer.commit(&transaction) {
                    Ok(CommitOutcome::RetryLater(_)) => kept.push((of, transaction)),
                    Ok(_) => {}
                    Err(e) => {
                        kept.push((of, transaction));
                        first = first.and(Err(e));
                    }
                }
            }
        }
        self.pending = kept;
        first
    }
}

/// Restores the writers of a run from what the writers of another one saved, at any parallelism.
pub(crate) fn restore<S: TwoPhaseSink>(
    sink: &S,
    saved: &[Saved],
    attempt: u64,
    run: u32,
    parallelism: u32,
) -> Result<Vec<Task<S>>> {
    let id = saved.iter().map(|saved| saved.id).max();
    let decode = |bytes: &Vec<u8>| CodecKind::Compact.decode_all::<S::Transaction>(bytes);
    let ended: Vec<_> = saved
        .iter()
        .flat_map(|saved| saved.ended.iter().map(decode))
        .collect::<Result<_>>()?;
    let open: Vec<_> = saved
        .iter()
        .flat_map(|saved| saved.open.iter().map(decode))
        .collect::<Result<_>>()?;
    let mut tasks = Vec::new();
    for index in 0..parallelism {
        let mut writer = sink.writer(&context(attempt, run, index, parallelism, id))?;
        let mine = |at: &usize| at % parallelism as usize == index as usize;
        for (_, transaction) in ended.iter().enumerate().filter(|(at, _)| mine(at)) {
            writer.recover_and_commit(transaction)?;
        }
        for (_, transaction) in open.iter().enumerate().filter(|(at, _)| mine(at)) {
            writer.recover_and_abort(transaction)?;
        }
        // As each thread does, without waiting for the others.
        writer.recovered()?;
        tasks.push(Task {
            writer,
            pending: Vec::new(),
        });
    }
    Ok(tasks)
}

/// Ends a writer as SIGKILL does: its locks go, its files stay.
pub(crate) fn kill<T>(writer: T, folder: &Path) {
    let left: Vec<_> = hidden(folder)
        .into_iter()
        .map(|name| {
            (
                name.clone(),
                fs::read(folder.join(name)).expect("a file that is listed can be read"),
            )
        })
        .collect();
    drop(writer);
    for (name, content) in left {
        let path = folder.join(name);
        if !path.exists() {
            fs::write(path, content).expect("the folder can be written");
        }
    }
}

fn names(folder: &Path, wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the folder can be listed");
    let name = |entry: std::io::Result<fs::DirEntry>| {
        entry
            .expect("the folder can be listed")
            .file_name()
            .into_string()
            .expect("names are text")
    };
    let mut names: Vec<String> = entries.map(name).filter(|name| wanted(name)).collect();
    names.sort();
    names
}

/// Lists the files that a reader doesn't see.
pub(crate) fn hidden(folder: &Path) -> Vec<String> {
    names(folder, |name| name.starts_with('.'))
}

/// Lists the part files that a reader sees.
pub(crate) fn visible(folder: &Path) -> Vec<String> {
    names(folder, |name| name.starts_with("part-"))
}

/// Reads the visible records in the order of the names.
pub(crate) fn records(folder: &Path) -> Vec<u64> {
    let lines = |name: &String| fs::read_to_string(folder.join(name)).expect("part files are text");
    let text: String = visible(folder).iter().map(lines).collect();
    text.lines()
        .map(|line| line.parse().expect("each line is a whole record"))
        .collect()
}
