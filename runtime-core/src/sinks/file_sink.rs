use std::fmt::Display;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use state_api::{CheckpointId, Error, Result};

use super::all_recovered::AllRecovered;
use super::output_folder::OutputFolder;
use super::part_name::{self, is_plain};
use super::{FileSinkWriter, FileTransaction};
use crate::Record;
use crate::sink::{SinkContext, TwoPhaseSink};

/// Appends the bytes of a record.
pub(super) type Format<T> = Arc<dyn Fn(&T, &mut Vec<u8>) -> Result<()> + Send + Sync>;

/// Writes records into part files in a folder; a file becomes visible when the checkpoint it belongs to is complete.
///
/// Each subtask writes one file per checkpoint, hidden (`.part-….inprogress`) while it grows. For the checkpoint the file
/// is synced to disk and named `.part-….pending`; once the checkpoint is complete it is renamed to
/// `part-<checkpoint>-<subtask>-<attempt and run>-<random>`. After a crash the pending files that the restored checkpoint names are
/// published and what nobody can publish any more is removed, so each record is in the visible files once.
///
/// A reader takes the files whose names don't start with a dot; a visible file never changes. Names are never used twice. A writer
/// publishes, renames and removes only files that it made, that a checkpoint names to it, or that an earlier run of the
/// same job and sink left behind without a living owner (files are locked while their process lives): other files in the folder, and
/// those of a successor while an old process is thawed, are never touched.
///
/// ```
/// use runtime_core::sinks::FileSink;
///
/// let counts = FileSink::new("out/counts", |(word, n): &(String, u64), line: &mut Vec<u8>| {
///     line.extend_from_slice(format!("{word},{n}\n").as_bytes());
///     Ok(())
/// })
/// .suffix(".csv");
/// # let _ = counts;
/// ```
pub struct FileSink<T> {
    folder: PathBuf,
    prefix: String,
    suffix: String,
    format: Format<T>,
    random: Arc<dyn Fn() -> u64 + Send + Sync>,
    accept_gone: Option<CheckpointId>,
    recovered: Arc<AllRecovered>,
}

impl<T: Record> FileSink<T> {
    /// Creates a sink that writes what a function appends for each record; the folder is created when the job starts.
    #[must_use]
    pub fn new(
        folder: impl AsRef<Path>,
        format: impl Fn(&T, &mut Vec<u8>) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self {
            folder: folder.as_ref().to_owned(),
            prefix: "part".to_owned(),
            suffix: String::new(),
            format: Arc::new(format),
            random: Arc::new(|| uuid::Uuid::new_v4().as_u64_pair().0),
            accept_gone: None,
            recovered: Arc::default(),
        }
    }

    /// Creates a sink that writes each record as a line of text.
    #[must_use]
    pub fn lines(folder: impl AsRef<Path>) -> Self
    where
        T: Display,
    {
        Self::new(folder, |record, line| {
            // A Vec takes everything; only the record's own `Display` can fail.
            writeln!(line, "{record}")
                .map_err(|e| Error::user("a record can't be written as text").caused_by(e))
        })
    }

    /// Sets what names begin with, `part` unless set.
    #[must_use]
    pub fn prefix(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.prefix);
        self
    }

    /// Sets what names of visible files end with, such as `.csv`.
    #[must_use]
    pub fn suffix(mut self, suffix: &str) -> Self {
        suffix.clone_into(&mut self.suffix);
        self
    }

    /// Takes the random part of names from a function instead of the machine, for simulations; the lowest 48 bits count.
    #[must_use]
    pub fn random(mut self, random: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        self.random = Arc::new(random);
        self
    }

    /// Returns the names of the visible files of this sink that later checkpoints than this one committed, sorted.
    ///
    /// A job that starts from the checkpoint writes their rows again. A restart never does, since it goes on from the newest checkpoint; whoever
    /// names an older one to start from moves such files away before. Files of other jobs with the same prefix in the folder count too.
    ///
    /// # Errors
    /// Those of reading the folder; one that is not there holds nothing.
    pub fn parts_after(&self, checkpoint: CheckpointId) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let name = entry?.file_name().into_string();
            names.extend(name.ok().filter(|name| {
                part_name::committed_by(name, &self.prefix).is_some_and(|by| by > checkpoint.0)
            }));
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Accepts, at a restore from this checkpoint only, that pending files are gone: their records are lost.
    #[must_use]
    pub fn accept_gone(mut self, checkpoint: CheckpointId) -> Self {
        self.accept_gone = Some(checkpoint);
        self
    }
}

impl<T: Record> TwoPhaseSink for FileSink<T> {
    type In = T;
    type Transaction = FileTransaction;
    type Writer = FileSinkWriter<T>;

    fn writer(&self, cx: &SinkContext) -> Result<FileSinkWriter<T>> {
        if !is_plain(&self.prefix) {
            return Err(Error::config("the prefix of part files must be letters, digits, '.', '_' and '-', and not begin with a dot")
                .with("prefix", &self.prefix));
        }
        if !self.suffix.is_empty() && !is_plain(&format!("x{}", self.suffix)) {
            return Err(Error::config(
                "the suffix of part files must be letters, digits, '.', '_' and '-'",
            )
            .with("suffix", &self.suffix));
        }
        Ok(FileSinkWriter::new(
            OutputFolder::open(&self.folder)?,
            Arc::clone(&self.format),
            super::file_writer::Naming {
                prefix: self.prefix.clone(),
                suffix: self.suffix.clone(),
                lineage: part_name::lineage(cx),
                random: Arc::clone(&self.random),
            },
            self.accept_gone.is_some() && self.accept_gone == cx.restored,
            Arc::clone(&self.recovered),
            cx.clone(),
        ))
    }
}

impl<T> Clone for FileSink<T> {
    fn clone(&self) -> Self {
        Self {
            folder: self.folder.clone(),
            prefix: self.prefix.clone(),
            suffix: self.suffix.clone(),
            format: Arc::clone(&self.format),
            random: Arc::clone(&self.random),
            accept_gone: self.accept_gone,
            recovered: Arc::clone(&self.recovered),
        }
    }
}

impl<T> std::fmt::Debug for FileSink<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileSink")
            .field("folder", &self.folder)
            .field("prefix", &self.prefix)
            .field("suffix", &self.suffix)
            .finish_non_exhaustive()
    }
}
