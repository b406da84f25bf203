//! `holdfast run`: a built-in job in this process.
mod control;
mod event;
mod job_report;
mod listener;
mod listening;
mod output;
mod restoring;
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
use crate::control::protocol::{Ending, Taken};
use crate::failure::{Exit, Failure, plain};
use crate::flights::{self, FlightsInput};
use crate::input::Reading;
use crate::terminal::{counted, print, say};
use crate::wordcount::{self, TextInput};
use control::{Asked, RunningJob};
use listener::Listener;
use listening::{Listening, Place};
use output::Output;
use settings::Settings;
use signals::{OnSignal, Signals};
use store::Checkpoints;

/// Runs a job to its end.
///
/// # Errors
/// What went wrong, and how to go on if the job was interrupted.
pub(crate) fn run(args: RunArgs) -> Result<(), Failure> {
    let mut settings = Settings::of(&args)?;
    let io = io_runtime()?;
    let checkpoints = Arc::new(Checkpoints::of(&settings, io.handle())?);
    let quiet = args.events;
    let input = input_of(&args)?;
    let output = Output::of(args.output.as_deref(), args.job);
    let restore = settings.execution.restore.clone();

    let reading = Reading::new(args.events);
    let mut job = Job::new(args.job.as_str()).parallelism(settings.parallelism.parallelism);
    if let Some(groups) = settings.parallelism.max_parallelism {
        job = job.max_parallelism(groups);
    }
    output.attach(&rows(&job, &input, &args, &reading)?);
    if args.plan || !args.reset.is_empty() {
        let start = io.block_on(checkpoints.start_of(&restore))?;
        if args.plan {
            start.iter().for_each(store::say_passed_over);
        }
        let plan = start.map(|start| {
            let (execution, metadata) = (&mut settings.execution, &start.metadata);
            restoring::plan(&job, execution, metadata, &args.reset)
        });
        let plan = plan.transpose()?;
        if args.plan {
            return print(&plan.map_or_else(
                || "from the beginning: there is no checkpoint yet\n".to_owned(),
                |plan| restoring::in_words(&plan),
            ));
        }
    }
    let found = io.block_on(checkpoints.look(&restore))?;
    if restore == RestoreFrom::Nothing || found.starts_empty {
        output.check_unused()?;
    }
    if let Some(start) = &found.start {
        store::say_passed_over(start);
        output.check_not_ahead(start.metadata.checkpoint, &shown(start.folder.url()))?;
    }
    output.check_writable()?;
    let job_id = settings.execution.job_id.clone();
    let (place, unlistened) = Place::of(&args, job_id.as_str())?;
    if !quiet {
        say(&checkpoints.announcement());
        let warnings = settings
            .warnings
            .iter()
            .map(|warning| format!("warning: {warning}"));
        let notes = found.note.iter().map(|note| format!("note: {note}"));
        let unlistened = unlistened.map(|told| format!("warning: {told}"));
        warnings
            .chain(notes)
            .chain(unlistened)
            .for_each(|line| say(&line));
    }

    let asked = Asked::default();
    let from_latest = restore == RestoreFrom::Latest;
    let listener = Listener::new(quiet, Arc::clone(&reading), asked.clone(), from_latest);
    let listener = Arc::new(listener);
    let mut parts = JobParts::new(settings.backend, Arc::new(SystemClock));
    parts.checkpoints = checkpoints.store();
    parts.events = Arc::<Listener>::clone(&listener);
    parts.failpoints = strike::failpoints(&args.failpoint);
    parts.seed = unpredictable();
    let retention = settings.execution.checkpointing.retention;
    // Before the job runs: whoever sees it run may send a signal.
    let signals = Signals::listen(&io)?;
    let handle = LocalExecution::start(job, settings.execution, parts, io.handle())?;
    let listening = Listening::start(io.handle(), place, |end| RunningJob {
        control: handle.control(),
        asked: asked.clone(),
        reading: Arc::clone(&reading),
        checkpoints: Arc::clone(&checkpoints),
        end,
    });
    let kept_at_stop = checkpoints.outlive() && retention.keeps(JobStatus::Suspended);
    signals.control(
        &io,
        OnSignal {
            control: handle.control(),
            asked: asked.clone(),
            unlisten: listening.unlisten(),
            stop_within: kept_at_stop.then_some(args.stop_timeout),
            nothing_kept: checkpoints.why_nothing_is_kept(),
        },
    );
    if quiet {
        io.spawn(listener::report_progress(Arc::clone(&listener)));
    }
    let outcome = handle.wait();
    let stopped = asked.stop();
    let status = match &outcome {
        Ok(outcome) => outcome.status,
        Err(_) => JobStatus::Failed,
    };
    let last = listener
        .last_checkpoint()
        .filter(|_| retention.keeps(status))
        .and_then(|id| checkpoints.path_of(id));
    let taken = stopped.as_ref().map(|(taken, _)| taken);
    let mut ending = ending(taken, last.clone(), &restore);
    ending.finished =
        taken.is_none() && matches!(&outcome, Ok(it) if it.status == JobStatus::Finished);
    let told = match &outcome {
        Ok(_) => Ok(ending.clone()),
        Err(error) if error.kind() == ErrorKind::Cancelled => Ok(ending.clone()),
        Err(error) => Err(plain(error)),
    };
    let end = End {
        asked: asked.was(),
        drained: stopped.is_some_and(|(_, drained)| drained),
        last,
        ending,
        quiet,
    };
    let result = conclude(outcome, &end, &listener, &output);
    io.block_on(listening.finish(told));
    // What is still being written to a store that hangs is not waited for.
    io.shutdown_background();
    result
}

/// Says what the job goes on from: the savepoint that it was stopped with, the last checkpoint, or what it began from.
fn ending(taken: Option<&Taken>, last: Option<String>, restore: &RestoreFrom) -> Ending {
    let savepoint = taken.filter(|taken| taken.is_savepoint());
    let savepoint = savepoint.and_then(|taken| taken.path.clone());
    let named = match restore {
        RestoreFrom::Path(path) if last.is_none() => Some(path.clone()),
        _ => None,
    };
    let from = savepoint.or(named);
    let kept = from.clone().or(last);
    let again = restore_is(restore, from.as_deref());
    let resume = kept.as_ref().map(|_| match again {
        true => quoted_all(std::env::args()),
        false => resume_command(std::env::args(), from.as_deref().unwrap_or("latest")),
    });
    let folder = std::env::current_dir().ok();
    Ending {
        taken: taken.cloned(),
        resume,
        folder: folder.and_then(|folder| folder.into_os_string().into_string().ok()),
        kept,
        finished: false,
    }
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

/// What is known of the end of a job beside its outcome.
struct End {
    /// Whether somebody asked for it.
    asked: bool,
    /// Whether event time ran to its end before.
    drained: bool,
    /// The last checkpoint, if it is kept.
    last: Option<String>,
    ending: Ending,
    quiet: bool,
}

/// Says how the job ended.
fn conclude(
    outcome: state_api::Result<JobOutcome>,
    end: &End,
    listener: &Listener,
    output: &Output,
) -> Result<(), Failure> {
    let kept = end.ending.kept.as_deref();
    let resume = end.ending.resume.as_deref().unwrap_or_default();
    if outcome.is_ok() {
        listener.say_held();
    }
    match outcome {
        Ok(outcome) if end.ending.taken.is_some() && outcome.status != JobStatus::Cancelled => {
            say_stopped(end);
            Ok(())
        }
        Ok(outcome) if outcome.status == JobStatus::Finished => {
            listener.finished();
            if !end.quiet {
                say_finished(&outcome, listener, output, end.last.as_deref());
            }
            Ok(())
        }
        Ok(_) => {
            let told = match kept {
                Some(path) => {
                    format!("interrupted; the last checkpoint is {path}; go on with: {resume}")
                }
                None => "interrupted; there is no checkpoint to go on from".to_owned(),
            };
            say(&told);
            Err(Failure::silent(Exit::Interrupted))
        }
        Err(error) if error.kind() == ErrorKind::Cancelled && !end.asked => {
            // Whoever read the rows has seen enough, as in `holdfast run … | head`.
            Ok(())
        }
        Err(error) => {
            match kept {
                _ if error.kind() == ErrorKind::Fenced => {}
                // The same command would fail in the same way.
                Some(path) if !listener.ran() && error.kind() == ErrorKind::Corrupt => {
                    say(&format!(
                        "note: `holdfast verify {}` tells what is damaged, and which checkpoint is whole",
                        quoted(path)
                    ));
                }
                Some(_) if !listener.ran() => {}
                Some(path) => say(&format!(
                    "note: the last checkpoint is {path}; go on from it with: {resume}"
                )),
                None => {}
            }
            Err(failure_of(error))
        }
    }
}

fn say_stopped(end: &End) {
    let stopped = if end.drained {
        "drained and stopped"
    } else {
        "stopped"
    };
    let taken = end.ending.taken.as_ref();
    let kind = taken.map_or("checkpoint", |taken| taken.kind.as_str());
    say(&match (&end.ending.kept, &end.ending.resume) {
        (Some(path), Some(resume)) => {
            format!("{stopped} with {kind} {path}; go on with: {resume}")
        }
        _ => format!("{stopped} with a {kind} that does not outlive the process"),
    });
}

fn say_finished(outcome: &JobOutcome, listener: &Listener, output: &Output, kept: Option<&str>) {
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

/// Tells whether a path is the one that the job was told to start from.
fn restore_is(restore: &RestoreFrom, path: Option<&str>) -> bool {
    matches!(restore, RestoreFrom::Path(named) if Some(named.as_str()) == path)
}

/// Options, each with a value, that are about the checkpoint that a run starts from.
const ABOUT_THE_START: [&str; 5] = ["--from", "--claim-mode", "--rename", "--only", "--reset"];

/// Returns the command line that goes on from another checkpoint than the one that the run started from.
fn resume_command(mut arguments: impl Iterator<Item = String>, from: &str) -> String {
    let mut words = Vec::new();
    while let Some(word) = arguments.next() {
        let with_value = |option: &&str| {
            word.strip_prefix(*option)
                .is_some_and(|rest| rest.starts_with('='))
        };
        if ABOUT_THE_START.contains(&word.as_str()) {
            arguments.next();
        } else if !ABOUT_THE_START.iter().any(with_value) && word != "--allow-non-restored-state" {
            words.push(word);
        }
    }
    words.extend(["--from".to_owned(), from.to_owned()]);
    quoted_all(words.into_iter())
}

fn quoted_all(words: impl Iterator<Item = String>) -> String {
    let words: Vec<String> = words.map(|word| quoted(&word)).collect();
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
        let command =
            |words: &[&str]| resume_command(words.iter().map(|word| (*word).to_owned()), "latest");
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
        assert_eq!(
            command(&[
                "holdfast",
                "run",
                "--only=a,b",
                "--rename",
                "a=b",
                "--allow-non-restored-state",
                "--claim-mode",
                "claim",
                "-v"
            ]),
            "holdfast run -v --from latest"
        );
        let words = ["holdfast", "run"].map(str::to_owned).into_iter();
        assert_eq!(
            resume_command(words, "/a b/savepoint-1"),
            "holdfast run --from '/a b/savepoint-1'"
        );
    }
}
