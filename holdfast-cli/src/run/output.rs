use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use runtime_core::Stream;
use runtime_core::sinks::{FileSink, PrintSink};
use state_api::CheckpointId;

use super::visible_files;
use crate::args::JobName;
use crate::failure::Failure;
use crate::{flights, wordcount};

/// Where the rows go.
pub(crate) struct Output {
    folder: Option<PathBuf>,
    columns: &'static str,
}

impl Output {
    pub(crate) fn of(folder: Option<&Path>, job: JobName) -> Self {
        let columns = match job {
            JobName::Flights => flights::HEADER,
            JobName::Wordcount => wordcount::HEADER,
        };
        Self {
            folder: folder.map(Path::to_owned),
            columns,
        }
    }

    /// Checks that a run from the beginning does not add its rows to those of another run.
    ///
    /// # Errors
    /// When the folder has rows already.
    pub(crate) fn check_unused(&self) -> Result<(), Failure> {
        let Some(folder) = &self.folder else {
            return Ok(());
        };
        match visible_files(folder) {
            Ok(files) if files.is_empty() => Ok(()),
            Ok(_) => Err(Failure::usage(format!(
                "the output folder {} has files in it, and a run from the beginning would add the same rows again: name another folder, or go on with --from latest",
                folder.display()
            ))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(unusable(folder, &error)),
        }
    }

    /// Checks that the rows that come after a checkpoint are not there yet, as after a run that went on from it before.
    ///
    /// # Errors
    /// When they are.
    pub(crate) fn check_not_ahead(&self, id: CheckpointId, path: &str) -> Result<(), Failure> {
        let Some(folder) = &self.folder else {
            return Ok(());
        };
        let ahead = files(folder)
            .parts_after(id)
            .map_err(|error| unusable(folder, &error))?;
        let Some(first) = ahead.first() else {
            return Ok(());
        };
        let files = match ahead.len() {
            1 => "1 file that a later checkpoint".to_owned(),
            n => format!("{n} files that later checkpoints"),
        };
        Err(Failure::usage(format!(
            "the output folder {} has {files} committed, from {first} on, and a run from {path} would write these rows again: go on from the newest checkpoint, move those files away first, or name another folder",
            folder.display()
        )))
    }

    /// Makes the folder and checks that files can be written in it.
    ///
    /// # Errors
    /// When they can't.
    pub(crate) fn check_writable(&self) -> Result<(), Failure> {
        let Some(folder) = &self.folder else {
            return Ok(());
        };
        fs::create_dir_all(folder)
            .and_then(|()| {
                tempfile::Builder::new()
                    .prefix(".probe-")
                    .tempfile_in(folder)
            })
            .map(drop)
            .map_err(|error| unusable(folder, &error))
    }

    /// Ends a stream of rows here.
    ///
    /// The two kinds of output have names of their own: what a checkpoint holds of one can't be taken for the other's.
    pub(crate) fn attach(&self, rows: &Stream<String>) {
        match &self.folder {
            Some(folder) => rows.sink_exactly_once("files", files(folder)),
            None => rows.sink("stdout", PrintSink::new(io::stdout())),
        }
    }

    /// Says where the rows are and what is in them.
    pub(crate) fn summary(&self) -> String {
        match &self.folder {
            Some(folder) => format!("rows ({}) are in {}", self.columns, folder.display()),
            None => format!("the columns are {}", self.columns),
        }
    }
}

fn files(folder: &Path) -> FileSink<String> {
    FileSink::lines(folder).suffix(".csv")
}

fn unusable(folder: &Path, error: &io::Error) -> Failure {
    Failure::usage(format!(
        "the output folder {} can't be used: {error}",
        folder.display()
    ))
}
