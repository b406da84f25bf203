use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use state_api::{CheckpointId, Error, Result};

use super::FileTransaction;
use super::all_recovered::AllRecovered;
use super::file_sink::Format;
use super::output_folder::{OutputFolder, Published};
use super::part_file::PartFile;
use super::part_name::{Hidden, PartName};
use crate::sink::{CommitOutcome, PreCommitted, SinkContext, TwoPhaseWriter};

/// Writes the part files of one subtask of a [`FileSink`](super::FileSink).
pub struct FileSinkWriter<T> {
    folder: OutputFolder,
    format: Format<T>,
    naming: Naming,
    accept_gone: bool,
    all_recovered: Arc<AllRecovered>,
    cx: SinkContext,
    open: Option<OpenPart>,
    /// Parts that this writer ended and that are not committed yet, by stem. Their files stay open, and so locked.
    ended: BTreeMap<String, Ended>,
    /// Files of earlier runs that go once a checkpoint of this number is complete.
    leftovers: Vec<(u64, String)>,
    sequence: u64,
}

/// What goes into the names of part files.
pub(super) struct Naming {
    pub prefix: String,
    pub suffix: String,
    pub lineage: u64,
    pub random: Arc<dyn Fn() -> u64 + Send + Sync>,
}

struct OpenPart {
    name: PartName,
    part: PartFile<Shared>,
    file: Arc<File>,
}

/// A file that is written on the task's thread and synced on another one.
struct Shared(Arc<File>);

impl io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self.0).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Ended {
    file: Arc<File>,
    state: Arc<AtomicU8>,
}

/// Values of [`Ended::state`].
const UNSYNCED: u8 = 0;
const SYNCED: u8 = 1;
const BROKEN: u8 = 2;

impl<T> FileSinkWriter<T> {
    pub(super) fn new(
        folder: OutputFolder,
        format: Format<T>,
        naming: Naming,
        accept_gone: bool,
        all_recovered: Arc<AllRecovered>,
        cx: SinkContext,
    ) -> Self {
        Self {
            folder,
            format,
            naming,
            accept_gone,
            all_recovered,
            cx,
            open: None,
            ended: BTreeMap::new(),
            leftovers: Vec::new(),
            sequence: 0,
        }
    }

    fn open_part(&mut self) -> Result<&mut OpenPart> {
        if self.open.is_none() {
            self.open = Some(self.create_part()?);
        }
        self.open
            .as_mut()
            .ok_or_else(|| Error::bug("a part file that was opened is not there"))
    }

    fn create_part(&mut self) -> Result<OpenPart> {
        loop {
            let name = PartName {
                prefix: self.naming.prefix.clone(),
                lineage: self.naming.lineage,
                subtask: self.cx.subtask.index,
                attempt: self.cx.attempt.0,
                run: self.cx.run,
                sequence: self.sequence,
                random: (self.naming.random)() & 0xffff_ffff_ffff,
            };
            self.sequence += 1;
            if let Some(file) = self.folder.create(&name.in_progress())? {
                let file = Arc::new(file);
                return Ok(OpenPart {
                    name,
                    part: PartFile::new(Shared(Arc::clone(&file))),
                    file,
                });
            }
        }
    }

    /// Makes sure that an ended part survives a crash, for those who commit without a checkpoint that waits for that.
    fn settle(&mut self, transaction: &FileTransaction) -> Result<()> {
        match self.ended.get(&transaction.stem) {
            // Ended by an earlier run: a checkpoint that names it was complete, and so was the sync.
            None => Ok(()),
            Some(ended) => sync(&ended.file, &self.folder, &ended.state)
                .map_err(|e| e.with("transaction", &transaction.stem)),
        }
    }

    fn publish(&mut self, transaction: &FileTransaction) -> Result<Published> {
        let (pending, visible) = transaction.files()?;
        self.folder.publish(&pending, &visible, transaction.length)
    }

    fn gone(&self, transaction: &FileTransaction) -> Error {
        Error::corrupt(
            "a part file that a checkpoint names is gone: it is neither pending nor published",
        )
        .with("sink", &self.cx.uid)
        .with("transaction", &transaction.stem)
        .with("checkpoint", transaction.checkpoint.unwrap_or_default())
        .with("output", self.folder.path().display())
    }

    /// Removes what is due among the leftovers of earlier runs.
    fn remove_leftovers(&mut self, completed: u64) -> Result<()> {
        let mut kept = Vec::new();
        for (from, name) in std::mem::take(&mut self.leftovers) {
            if from > completed || !self.folder.remove_if_abandoned(&name)? {
                kept.push((from, name));
            }
        }
        self.leftovers = kept;
        Ok(())
    }

    /// Says from which completed checkpoint on a hidden file is nobody's; `None` for one that isn't ours to judge.
    fn abandoned_from(&self, file: &str) -> Option<u64> {
        let hidden = Hidden::parse(file)?;
        let part = hidden.part();
        let of_an_earlier_run = part.prefix == self.naming.prefix
            && part.lineage == self.naming.lineage
            && (part.attempt, part.run) < (self.cx.attempt.0, self.cx.run);
        match hidden {
            _ if !of_an_earlier_run => None,
            Hidden::InProgress(_) => Some(0),
            // It may belong to a checkpoint that is newer than the one restored, until the job has gone past that.
            Hidden::Pending(_, checkpoint) => Some(checkpoint),
        }
    }
}

/// Makes a part file survive a crash, once.
fn sync(file: &File, folder: &OutputFolder, state: &AtomicU8) -> Result<()> {
    let broken = || {
        Error::poisoned(
            "a part file could not be synced to disk; it is written anew after a restore",
        )
    };
    match state.load(Ordering::Acquire) {
        SYNCED => return Ok(()),
        // A second sync may succeed although the first one lost pages.
        BROKEN => return Err(broken()),
        _ => {}
    }
    let synced = file
        .sync_all()
        .map_err(|e| Error::retryable("a part file can't be synced to disk").caused_by(e))
        .and_then(|()| folder.sync());
    state.store(
        if synced.is_ok() { SYNCED } else { BROKEN },
        Ordering::Release,
    );
    synced.map_err(|e| broken().caused_by(e))
}

impl<T: 'static> TwoPhaseWriter for FileSinkWriter<T> {
    type In = T;
    type Transaction = FileTransaction;

    fn write(&mut self, record: T, _: Option<i64>) -> Result<()> {
        let format = Arc::clone(&self.format);
        let open = self.open_part()?;
        let mut formatted = Ok(());
        let written = open.part.append(|bytes| {
            formatted = format(&record, bytes);
            if formatted.is_ok() {
                Ok(())
            } else {
                Err(io::Error::other("the record has no bytes"))
            }
        });
        formatted?;
        let name = open.name.in_progress();
        written.map_err(|e| self.folder.failed("a part file can't be written", &name, e))
    }

    fn pre_commit(
        &mut self,
        checkpoint: CheckpointId,
    ) -> Result<Option<PreCommitted<FileTransaction>>> {
        let Some(open) = self.open.as_mut().filter(|open| !open.part.is_empty()) else {
            return Ok(None);
        };
        let (hidden, pending) = (open.name.in_progress(), open.name.pending(checkpoint.0));
        open.part.flush().map_err(|e| {
            self.folder
                .failed("a part file can't be written", &hidden, e)
        })?;
        self.folder.rename(&hidden, &pending)?;
        let transaction = FileTransaction {
            stem: open.name.stem(),
            checkpoint: Some(checkpoint.0),
            visible: open.name.visible(checkpoint.0, &self.naming.suffix),
            length: open.part.written(),
        };
        let ended = Ended {
            file: Arc::clone(&open.file),
            state: Arc::new(AtomicU8::new(UNSYNCED)),
        };
        let (file, state, folder) = (
            Arc::clone(&ended.file),
            Arc::clone(&ended.state),
            self.folder.clone(),
        );
        self.ended.insert(transaction.stem.clone(), ended);
        self.open = None;
        let about = transaction.stem.clone();
        let harden =
            move || sync(&file, &folder, &state).map_err(|e| e.with("transaction", &about));
        Ok(Some(PreCommitted {
            transaction,
            harden: Some(Box::new(harden)),
        }))
    }

    fn open_transaction(&self) -> Option<FileTransaction> {
        let open = self.open.as_ref()?;
        Some(FileTransaction {
            stem: open.name.stem(),
            checkpoint: None,
            visible: String::new(),
            length: 0,
        })
    }

    fn commit(&mut self, transaction: &FileTransaction) -> Result<CommitOutcome> {
        self.settle(transaction)?;
        let outcome = match self.publish(transaction)? {
            Published::Now => CommitOutcome::Committed,
            Published::Before => CommitOutcome::AlreadyCommitted,
            Published::Gone => return Err(self.gone(transaction)),
        };
        self.ended.remove(&transaction.stem);
        self.remove_leftovers(transaction.checkpoint.unwrap_or(0))?;
        Ok(outcome)
    }

    fn recover_and_commit(&mut self, transaction: &FileTransaction) -> Result<CommitOutcome> {
        match self.publish(transaction)? {
            Published::Now => Ok(CommitOutcome::Committed),
            Published::Before => Ok(CommitOutcome::AlreadyCommitted),
            Published::Gone if self.accept_gone => Ok(CommitOutcome::Gone(self.gone(transaction))),
            Published::Gone => Err(self.gone(transaction)),
        }
    }

    fn recover_and_abort(&mut self, transaction: &FileTransaction) -> Result<()> {
        // Not its pending file: a later checkpoint than the one restored may name that.
        self.folder.remove(&transaction.part()?.in_progress())
    }

    fn recovered(&mut self) -> Result<()> {
        if !self.all_recovered.arrive(&self.cx) {
            return Ok(());
        }
        let names = self.folder.names()?;
        self.leftovers = names
            .into_iter()
            .filter_map(|name| Some((self.abandoned_from(&name)?, name)))
            .collect();
        self.remove_leftovers(self.cx.restored.map_or(0, |id| id.0))
    }

    fn flush(&mut self) -> Result<()> {
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        let name = open.name.in_progress();
        open.part
            .flush()
            .map_err(|e| self.folder.failed("a part file can't be written", &name, e))
    }
}

impl<T> Drop for FileSinkWriter<T> {
    /// Removes the open part: no checkpoint can name it any more.
    fn drop(&mut self) {
        if let Some(open) = self.open.take()
            && let Err(error) = self.folder.remove(&open.name.in_progress())
        {
            tracing::warn!(sink = %self.cx.uid, %error, "an unfinished part file is left behind");
        }
    }
}

impl<T> std::fmt::Debug for FileSinkWriter<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileSinkWriter")
            .field("folder", &self.folder)
            .field("open", &self.open.as_ref().map(|open| open.name.stem()))
            .field("ended", &self.ended.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
