//! `holdfast run`: a built-in job in this process.
mod event;
mod listener;
mod output;
mod settings;
mod signals;
mod store;
mod strike;

pub(crate) use event::WorkerEvent;
pub(crate) use settings::backends;
pub(crate) use store::{find, shown};
pub(crate) use strike::Strike;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use runtime_core::coordinator::JobStatus;
use runtime_core::{Job, JobOutcome, JobParts, LocalExecution, RestoreFrom, Stream};
use state_api::{Error, ErrorKind, SystemClock};
use tokio::runtime::Runtime;

use crate::args::{JobName, RunArgs};
use crate::failure::{Exit, Failure, plain};
use crate::flights::{self, FlightsInput};
use crate::input::Reading;
use crate::terminal::{counted, say};
use crate::wordcount::{self, TextInput};
use listener::Listener;
use output::Output;
use settings::Settings;
use store::Checkpoints;

/// Runs a job to its end.
///
/// # Errors
/// What went wrong, and how to go on if the job was interrupted.
pub(crate) fn run(args: RunArgs) -> Result<(), Failure> {
    let settings = Settings::of(&args)?;
    let io = io_runtime()?;
    let checkpoints = Checkpoints::of(&settings, io.handle())?;
    let quiet = args.events;
    let input = input_of(&args)?;
    let output = Output::of(args.output.as_deref(), args.job);
    let found = io.block_on(checkpoints.look(&settings.execution.restore))?;
    if settings.execution.restore == RestoreFrom::Nothing || found.starts_empty {
        output.check_unused()?;
    }
    output.check_writable()?;

    let reading = Reading::new(args.events);
    let mut job = Job::new(args.job.as_str()).parallelism(settings.parallelism.parallelism);
    if let Some(groups) = settings.parallelism.max_parallelism {
        job = job.max_parallelism(groups);
    }
    output.attach(&rows(&job, &input, &args, &reading)?);
    if !quiet {
        say(&checkpoints.announcement());
        let warnings = settings
            .warnings
            .iter()
            .map(|warning| format!("warning: {warning}"));
        let notes = found.note.iter().map(|note| format!("note: {note}"));
        warnings.chain(notes).for_each(|line| say(&line));
    }

    let listener = Arc::new(Listener::new(quiet, Arc::clone(&reading)));
    let mut parts = JobParts::new(settings.backend, Arc::new(SystemClock));
    parts.checkpoints = checkpoints.store();
    parts.events = Arc::<Listener>::clone(&listener);
    parts.failpoints = strike::failpoints(&args.failpoint);
    parts.seed = unpredictable();
    let retention = settings.execution.checkpointing.retention;
    let handle = LocalExecution::start(job, settings.execution, parts, io.handle())?;
    let interrupted = signals::cancel_on_interrupt(&io, handle.canceller())?;
    if quiet {
        io.spawn(listener::report_progress(Arc::clone(&listener)));
    }
    let outcome = handle.wait();
    let status = match &outcome {
        Ok(outcome) => outcome.status,
        Err(_) => JobStatus::Failed,
    };
    let kept = retention
        .keeps(status)
        .then(|| {
            listener
                .last_checkpoint()
                .and_then(|id| checkpoints.path_of(id))
        })
        .flatten();
    let result = conclude(outcome, interrupted.was(), &listener, &output, kept, quiet);
    // What is still being written to a store that hangs is not waited for.
    io.shutdown_background();
    result
}

/// Returns a number that whoever sends records can't know: it keeps crafted keys from colliding.
fn unpredictable() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}

fn io_runtime() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("io")
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("no threads for input and output: {error}")))
}

/// What a job reads.
enum Input {
    Text(TextInput),
    Flights(FlightsInput),
}

fn input_of(args: &RunArgs) -> Result<Input, Failure> {
    let path = args.input.as_deref().ok_or_else(|| {
        Failure::usage(format!(
            "nothing to read: name a file or a folder, as in `holdfast run {} --input FILE`",
            args.job.as_str()
        ))
    })?;
    let is_stdin = path == Path::new("-");
    match args.job {
        JobName::Flights if is_stdin => Err(Failure::usage(
            "flights can't be read from the standard input, since it does not come twice: name a file",
        )),
        JobName::Flights => Ok(Input::Flights(FlightsInput::new(
            path,
            args.airlines.as_deref(),
        ))),
        JobName::Wordcount if args.airlines.is_some() => {
            Err(Failure::usage("--airlines is for the job flights"))
        }
        JobName::Wordcount
            if is_stdin
                && (args.checkpoints.is_some() || args.from.is_some() || args.rate.is_some()) =>
        {
            Err(Failure::usage(
                "the standard input does not come twice: with --checkpoints, --from or --rate name a file",
            ))
        }
        JobName::Wordcount if is_stdin => Ok(Input::Text(TextInput::Stdin)),
        JobName::Wordcount => Ok(Input::Text(TextInput::Files(path.to_owned()))),
    }
}

fn rows(
    job: &Job,
    input: &Input,
    args: &RunArgs,
    reading: &Arc<Reading>,
) -> Result<Stream<String>, Failure> {
    Ok(match input {
        Input::Text(text) => wordcount::build(job, text, args.rate, reading)?,
        Input::Flights(flights) => flights::build(job, flights, args.rate, reading)?,
    })
}

/// Says how the job ended.
fn conclude(
    outcome: state_api::Result<JobOutcome>,
    interrupted: bool,
    listener: &Listener,
    output: &Output,
    kept: Option<String>,
    quiet: bool,
) -> Result<(), Failure> {
    let resume = || {
        kept.as_ref()
            .map(|_| resume_command(std::env::args()))
            .unwrap_or_default()
    };
    if outcome.is_ok() {
        listener.say_held();
    }
    match outcome {
        Ok(outcome) if outcome.status == JobStatus::Finished => {
            listener.finished();
            if !quiet {
                let records = counted(listener.records(), "record");
                let restarts = match outcome.restarts {
                    0 => String::new(),
                    n => format!(", {}", counted(u64::from(n), "restart")),
                };
                say(&format!(
                    "finished: {records} read{restarts}; {}",
                    output.summary()
                ));
                if let Some(path) = kept {
                    let count = counted(outcome.checkpoints, "checkpoint");
                    say(&format!(
                        "{count}; the last one is {path} (holdfast show {path})"
                    ));
                }
            }
            Ok(())
        }
        Ok(_) => {
            let told = match &kept {
                Some(path) => format!(
                    "interrupted; the last checkpoint is {path}; go on with: {}",
                    resume()
                ),
                None => "interrupted; there is no checkpoint to go on from".to_owned(),
            };
            say(&told);
            Err(Failure::silent(Exit::Interrupted))
        }
        Err(error) if error.kind() == ErrorKind::Cancelled && !interrupted => {
            // Whoever read the rows has seen enough, as in `holdfast run … | head`.
            Ok(())
        }
        Err(error) => {
            if let Some(path) = &kept
                && error.kind() != ErrorKind::Fenced
            {
                say(&format!(
                    "note: the last checkpoint is {path}; go on from it with: {}",
                    resume()
                ));
            }
            Err(failure_of(error))
        }
    }
}

fn failure_of(error: Error) -> Failure {
    match error.kind() {
        // Our own mistakes are the user's to report.
        ErrorKind::Bug => Failure::failed(format!(
            "{}; please report it at {}/issues",
            plain(&error),
            env!("CARGO_PKG_REPOSITORY")
        )),
        _ => Failure::from(error),
    }
}

/// Returns the command line that goes on from the last checkpoint.
fn resume_command(arguments: impl Iterator<Item = String>) -> String {
    let mut words = Vec::new();
    let mut arguments = arguments.peekable();
    while let Some(word) = arguments.next() {
        if word == "--from" {
            arguments.next();
        } else if !word.starts_with("--from=") {
            words.push(quoted(&word));
        }
    }
    words.push("--from latest".into());
    words.join(" ")
}

/// Puts a word into quotation marks where a shell needs them.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Returns the files of a folder that hold rows: those that are visible.
///
/// # Errors
/// Those of reading the folder.
pub(crate) fn visible_files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if !hidden && entry.file_type()?.is_file() {
            files.push(entry.path());
        }
    }
    files.sort_unstable();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_to_go_on_with_replaces_where_to_start_from() {
        let command = |words: &[&str]| resume_command(words.iter().map(|word| (*word).to_owned()));
        assert_eq!(
            command(&[
                "holdfast", "run", "flights", "--from", "a/chk-1", "--input", "my file"
            ]),
            "holdfast run flights --input 'my file' --from latest"
        );
        assert_eq!(
            command(&["holdfast", "--from=latest", "it's"]),
            r"holdfast 'it'\''s' --from latest"
        );
    }
}
