use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use checkpoint_tools::{CheckpointSource, CsvRows, FoundState, Item, Selection, item_json};
use state_api::{Error, Result};

use super::args::{DumpArgs, Rows};
use super::opened::{interruptible, open};
use super::steps::Steps;
use crate::failure::Failure;
use crate::inspect::io_runtime;

/// Writes the entries of a checkpoint.
///
/// # Errors
/// When there is no such checkpoint or state, it is damaged, or the entries can't be written. A reader that has gone is none.
pub(crate) fn dump(args: &DumpArgs) -> std::result::Result<(), Failure> {
    let io = io_runtime()?;
    let progress = Steps::beside_rows(args.output.is_none());
    interruptible(&io, &progress, async {
        let access = args.source.stores.access(io.handle())?;
        let source = open(&args.source, &access, &progress).await?;
        let mut selection = Selection::all();
        for uid in &args.operator {
            selection = selection.operator(uid);
        }
        for name in &args.state {
            selection = selection.state(name);
        }
        selection.check(&source)?;
        match &args.output {
            None => {
                let out = BufWriter::new(std::io::stdout().lock());
                match write_entries(&source, &selection, args, out).await {
                    Err(error) if has_gone(&error) => Ok(()),
                    done => Ok(done?),
                }
            }
            Some(path) => {
                let file = NewFile::create(path)?;
                write_entries(&source, &selection, args, BufWriter::new(&file.file)).await?;
                Ok(file.complete()?)
            }
        }
    })
}

/// Says whether nobody reads the rows any more, as in `holdfast dump … | head`.
pub(super) fn has_gone(error: &Error) -> bool {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return io.kind() == ErrorKind::BrokenPipe;
        }
        cause = error.source();
    }
    false
}

fn unwritten(error: std::io::Error) -> Error {
    Error::retryable("entries can't be written").caused_by(error)
}

async fn write_entries(
    source: &CheckpointSource,
    selection: &Selection,
    args: &DumpArgs,
    mut out: impl Write,
) -> Result<()> {
    let mut left = args.limit.unwrap_or(u64::MAX);
    let mut counted = |take: &mut dyn FnMut() -> Result<()>| {
        if left == 0 {
            return Ok(ControlFlow::Break(()));
        }
        left -= 1;
        take()?;
        Ok(if left == 0 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        })
    };
    match args.format {
        Rows::Jsonl => {
            source
                .entries(selection, &mut |item| {
                    counted(&mut || {
                        let mut line = item_json(&item);
                        line.push('\n');
                        out.write_all(line.as_bytes()).map_err(unwritten)
                    })
                })
                .await?;
            out.flush().map_err(unwritten)
        }
        Rows::Csv => {
            let all = source.states();
            let chosen = all
                .into_iter()
                .filter(|state| selection.has_state(state.operator.uid.as_str(), &state.meta.name));
            let states: Vec<FoundState<'_>> = chosen.collect();
            let mut rows = CsvRows::new(&states, out)?;
            // Raw bytes are no rows of a table.
            let selection = selection.clone().without_raw();
            source
                .entries(&selection, &mut |item| match item {
                    Item::Entry(entry) => counted(&mut || rows.entry(&entry)),
                    Item::Raw(_) => Ok(ControlFlow::Continue(())),
                })
                .await?;
            rows.finish()
        }
    }
}

/// A file that appears when it is complete, and not at all otherwise.
pub(super) struct NewFile {
    path: PathBuf,
    file: tempfile::NamedTempFile,
}

impl NewFile {
    pub(super) fn create(path: &Path) -> Result<Self> {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let file = tempfile::Builder::new()
            .prefix(".holdfast-dump-")
            .tempfile_in(folder)
            .map_err(|e| {
                Error::config("the file can't be made")
                    .with("path", path.display())
                    .caused_by(e)
            })?;
        Ok(Self {
            path: path.to_owned(),
            file,
        })
    }

    pub(super) fn complete(self) -> Result<()> {
        let shown = self.path.display().to_string();
        let failed = |error: std::io::Error| {
            Error::retryable("the file can't be written")
                .with("path", &shown)
                .caused_by(error)
        };
        let file: &File = self.file.as_file();
        file.sync_all().map_err(failed)?;
        self.file
            .persist(&self.path)
            .map_err(|e| failed(e.error))
            .map(drop)
    }
}
