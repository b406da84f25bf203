use std::io::{BufWriter, ErrorKind, Write};
use std::ops::ControlFlow;

use checkpoint_tools::{CheckpointSource, CsvRows, FoundState, Item, Selection, item_json};
use state_api::{Error, Result};

use super::args::{DumpArgs, DumpRows};
use super::opened::{interruptible, judged, open};
use super::output::{Output, is_stdout};
use super::steps::Steps;
use crate::failure::Failure;
use crate::inspect::io_runtime;

/// Writes the entries of a checkpoint.
///
/// # Errors
/// When there is no such checkpoint or state, it is damaged, or the entries can't be written. A reader that has gone is none.
pub(crate) fn dump(args: &DumpArgs) -> std::result::Result<(), Failure> {
    let io = io_runtime()?;
    let is_printed = args.output.as_deref().is_none_or(is_stdout);
    let progress = Steps::beside_rows(is_printed);
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
        let output = Output::open(args.output.as_deref())?;
        let out = BufWriter::new(output.file());
        match write_entries(&source, &selection, args, out).await {
            Err(error) if has_gone(&error) && !output.is_new() => Ok(()),
            // Where the reading had come to when the disk was full says nothing.
            Err(error) if error.message() == UNWRITTEN => {
                let cause = std::error::Error::source(&error);
                let cause = cause.map_or(String::new(), |cause| format!(": {cause}"));
                Err(Failure::failed(format!("{UNWRITTEN}{cause}")))
            }
            done => {
                judged(&source, done).await?;
                Ok(output.complete()?)
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

const UNWRITTEN: &str = "entries can't be written";

pub(super) fn unwritten(error: std::io::Error) -> Error {
    Error::retryable(UNWRITTEN).caused_by(error)
}

async fn write_entries(
    source: &CheckpointSource,
    selection: &Selection,
    args: &DumpArgs,
    mut out: impl Write + Send,
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
    let all = source.states();
    let chosen = all
        .into_iter()
        .filter(|state| selection.has_state(state.operator.uid.as_str(), &state.meta.name));
    let states: Vec<FoundState<'_>> = chosen.collect();
    // Raw bytes are no rows of a table.
    let tabular = selection.clone().without_raw();
    match args.format {
        DumpRows::Jsonl => {
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
        DumpRows::Csv => {
            let mut rows = CsvRows::new(&states, out)?;
            source
                .entries(&tabular, &mut |item| match item {
                    Item::Entry(entry) => counted(&mut || rows.entry(&entry)),
                    Item::Raw(_) => Ok(ControlFlow::Continue(())),
                })
                .await?;
            rows.finish()
        }
        #[cfg(feature = "parquet")]
        DumpRows::Parquet => {
            let mut rows = checkpoint_tools::ParquetRows::new(&states, out)?;
            source
                .entries(&tabular, &mut |item| match item {
                    Item::Entry(entry) => counted(&mut || rows.entry(&entry)),
                    Item::Raw(_) => Ok(ControlFlow::Continue(())),
                })
                .await?;
            rows.finish()
        }
        #[cfg(not(feature = "parquet"))]
        DumpRows::Parquet => Err(Error::config(
            "this program can't write Parquet: build it with the feature \"parquet\"",
        )),
    }
}
