//! The command line.
use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand, ValueEnum};
use runtime_core::config::parse_duration;

use crate::contents::{
    BootstrapArgs, ConvertArgs, DiffArgs, DumpArgs, EditArgs, GetArgs, RescaleArgs,
};
use crate::control::protocol::Format;
use crate::failure::{EXIT_CODES, Exit, Failure, one_line};
use crate::stores::StoreArgs;
use crate::terminal;
use crate::upkeep::args::{CopyArgs, GcArgs, VerifyArgs};

/// Durable, checkpointed state for Rust dataflows: run a job, watch it survive, look at its checkpoints.
#[derive(Debug, Parser)]
#[command(name = "holdfast", version, max_term_width = 110, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    /// Log more to the standard error: -v info, -vv debug, -vvv trace (or set HOLDFAST_LOG to a filter)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a built-in job
    Run(Box<RunArgs>),
    /// Kill a job twice, and compare its result with that of a run that was never killed
    Demo(DemoArgs),
    /// Say how a running job stands
    Status(AskArgs),
    /// Say what a job's checkpoints wait for, and what the last ones cost
    Explain(ExplainArgs),
    /// Take a checkpoint of a running job now
    Checkpoint(CheckpointArgs),
    /// Take a savepoint of a running job: a checkpoint of your own, that stays until you delete it
    Savepoint(SavepointArgs),
    /// Stop a running job with a savepoint
    Stop(StopArgs),
    /// End a running job at once; its last checkpoint stays, unless it runs with another --retain
    Cancel(AskArgs),
    /// List jobs and their checkpoints
    List(ListArgs),
    /// Show what is in a checkpoint
    Show(ShowArgs),
    /// Read every object that checkpoints need, and name what is damaged
    Verify(VerifyArgs),
    /// Copy a checkpoint with all that it needs into a folder of its own, on another store too
    Copy(CopyArgs),
    /// Delete objects that no checkpoint refers to, or list them
    Gc(GcArgs),
    /// Print what a state of a checkpoint holds of one key
    Get(GetArgs),
    /// Write the entries of a checkpoint's states, without the job's code
    Dump(DumpArgs),
    /// Compare two checkpoints, state by state and entry by entry
    Diff(DiffArgs),
    /// Write a checkpoint anew in the format that every backend reads
    Convert(ConvertArgs),
    /// Write a checkpoint anew with another number of key groups
    Rescale(RescaleArgs),
    /// Write a checkpoint anew with changes: states dropped, operators renamed, keys set or deleted
    Edit(Box<EditArgs>),
    /// Build a checkpoint out of rows, for a job to start from
    Bootstrap(Box<BootstrapArgs>),
    /// Print what completes this command line in a shell
    Completions(CompletionsArgs),
    /// Write man pages
    Man(ManArgs),
}

/// The built-in jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum JobName {
    /// How often each word stands in a text
    Wordcount,
    /// Flights, cancellations and the mean departure delay per carrier and day
    Flights,
}

impl JobName {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Wordcount => "wordcount",
            Self::Flights => "flights",
        }
    }
}

/// When the last checkpoints are kept after the end of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Retain {
    /// However the job ends
    Always,
    /// When it is interrupted or fails
    OnCancel,
    /// When it fails
    OnFailure,
    /// Never: they serve restarts within the run only
    Never,
}

/// Whose the checkpoint is that a job starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClaimMode {
    /// Its owner's: the job never touches it, and its first checkpoint is full
    NoClaim,
    /// The job's: it is deleted when the job no longer needs it
    Claim,
}

const RUN_EXAMPLES: &str = "\
Examples:
  holdfast run wordcount --input /usr/share/common-licenses
  holdfast run flights --input flights.csv --output delays --checkpoints checkpoints
  holdfast run flights --input flights.csv --output delays --checkpoints checkpoints --from latest
  holdfast run flights --input flights.csv --output delays --checkpoints checkpoints --from savepoints/savepoint-… --plan
  holdfast run flights --input flights.csv --config holdfast.yaml --parallelism 4 -D execution.checkpointing.timeout=1min

Rows go to the standard output, or to part files in --output: there each row stands once, whatever happened on the way. With
--from the input goes on where the checkpoint says: files that have come or grown since are not read. A job that fails ends,
and says how to go on; -D restart-strategy.type=exponential-delay (or another one) has it restart by itself.";

#[derive(Debug, Args)]
#[command(after_help = format!("{RUN_EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct RunArgs {
    /// Which job
    pub(crate) job: JobName,
    /// File to read, or a folder of files; `-` is the standard input (wordcount only)
    #[arg(short, long, value_name = "PATH")]
    pub(crate) input: Option<PathBuf>,
    /// Folder for the rows; without it they go to the standard output
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Folder for checkpoints; turns them on, every second unless --interval says otherwise
    #[arg(short, long, value_name = "DIR")]
    pub(crate) checkpoints: Option<String>,
    /// Time between two checkpoints, such as 500ms or 1min
    #[arg(long, value_name = "TIME")]
    pub(crate) interval: Option<String>,
    /// When the last checkpoint is kept after the end [default: always, with --checkpoints]
    #[arg(long, value_enum, value_name = "WHEN")]
    pub(crate) retain: Option<Retain>,
    /// Where to start from: `latest`, or the path of a checkpoint; without it, from the beginning
    #[arg(long, value_name = "CHECKPOINT")]
    pub(crate) from: Option<String>,
    /// Whose the checkpoint or savepoint at the path of --from is [default: no-claim]
    #[arg(long, value_enum, value_name = "MODE")]
    pub(crate) claim_mode: Option<ClaimMode>,
    /// Start although the checkpoint has state of operators that the job does not have, and leave it behind
    #[arg(long)]
    pub(crate) allow_non_restored_state: bool,
    /// Give an operator the state that the checkpoint has under another uid; repeatable
    #[arg(long, value_name = "OLD=NEW")]
    pub(crate) rename: Vec<String>,
    /// Restore these operators only, all others start empty
    #[arg(
        long,
        value_name = "UID,…",
        value_delimiter = ',',
        conflicts_with = "reset"
    )]
    pub(crate) only: Vec<String>,
    /// Let these operators start empty, all others are restored
    #[arg(long, value_name = "UID,…", value_delimiter = ',')]
    pub(crate) reset: Vec<String>,
    /// Print what would be restored, and end
    #[arg(long)]
    pub(crate) plan: bool,
    /// Let barriers overtake records in flight, which become part of the checkpoint: it is quick although the output is slow
    #[arg(long)]
    pub(crate) unaligned: bool,
    /// How long barriers stay in line before they overtake, such as 1s [default: 0s]; with --unaligned
    #[arg(long, value_name = "TIME")]
    pub(crate) aligned_timeout: Option<String>,
    /// State backend: `hashmap`, `fs` (checkpoints cost what changed), `rocksdb` (if built with that feature), or `reference` (an ordered byte store in memory, for
    /// comparison)
    #[arg(long, value_name = "NAME")]
    pub(crate) backend: Option<String>,
    /// Number of subtasks
    #[arg(short, long, value_name = "N")]
    pub(crate) parallelism: Option<u32>,
    /// Number of key groups: the most subtasks that the state can ever be divided among
    #[arg(long, value_name = "N")]
    pub(crate) max_parallelism: Option<u32>,
    /// Name of the job's folder below the checkpoint folder [default: the job's name]
    #[arg(long, value_name = "ID")]
    pub(crate) job_id: Option<String>,
    /// Read at most so many records per second
    #[arg(long, value_name = "RECORDS", value_parser = rate)]
    pub(crate) rate: Option<f64>,
    /// File of carriers and their names, for flights [default: airlines.csv beside the input, or built in]
    #[arg(long, value_name = "FILE")]
    pub(crate) airlines: Option<PathBuf>,
    /// File of options, in YAML or TOML, under Flink's names; what the command line says goes before it
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Set any option
    #[arg(short = 'D', value_name = "OPTION=VALUE")]
    pub(crate) set: Vec<String>,
    /// Where the job listens for `holdfast status` and the like [default: a folder of this user's]
    #[arg(long, value_name = "PATH", conflicts_with = "no_socket")]
    pub(crate) socket: Option<PathBuf>,
    /// Don't listen: the job can be controlled by signals only
    #[arg(long)]
    pub(crate) no_socket: bool,
    /// Longest time for the last checkpoint at SIGTERM and SIGHUP; after it the job is cancelled
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "60s")]
    pub(crate) stop_timeout: Duration,
    /// Write what happens to the standard output, one JSON object a line (what the demo reads)
    #[arg(long, hide = true, requires = "output")]
    pub(crate) events: bool,
    /// Die by SIGKILL when a moment is reached for the n-th time, such as `sync:2` (for crash tests)
    #[arg(long, hide = true, value_name = "MOMENT[:N]")]
    pub(crate) failpoint: Vec<crate::run::Strike>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The job counts the flights that left New York in January 2013 by carrier and day. Its process is killed with SIGKILL twice,
each time after a checkpoint, and started again from the last one. The last line begins with `identical:` when the rows are
those of a run that nobody interrupted, none lost and none twice (exit code 0), or with `different:` (exit code 7).

Examples:
  holdfast demo
  holdfast demo --keep --parallelism 2
  holdfast demo --backend reference --rate 5000")]
pub(crate) struct DemoArgs {
    /// State backend
    #[arg(long, value_name = "NAME", default_value = "hashmap")]
    pub(crate) backend: String,
    /// Number of subtasks
    #[arg(short, long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) parallelism: u32,
    /// Records per second, so that it can be watched
    #[arg(long, value_name = "RECORDS", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(100..=20_000))]
    pub(crate) rate: u32,
    /// Keep the folder with input, output and checkpoints
    #[arg(long)]
    pub(crate) keep: bool,
    /// Passed on to the process after each kill (for tests)
    #[arg(long, hide = true, value_name = "MOMENT[:N]")]
    pub(crate) failpoint: Vec<crate::run::Strike>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  holdfast list checkpoints
  holdfast list checkpoints/flights --json")]
pub(crate) struct ListArgs {
    /// Folder of checkpoints, or the folder of one job in it
    #[arg(value_name = "DIR", default_value = ".")]
    pub(crate) folder: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) stores: StoreArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  holdfast show checkpoints/flights                  the latest checkpoint of a job
  holdfast show checkpoints/flights/chk-12
  holdfast show checkpoints/flights/chk-12 --verify  read every object, and compare length and digest
  holdfast show checkpoints/flights --json")]
pub(crate) struct ShowArgs {
    /// Folder of the checkpoint, its _metadata, or a job's folder for its latest checkpoint
    pub(crate) checkpoint: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Read every object, and compare its length and digest
    #[arg(long)]
    pub(crate) verify: bool,
    /// List every object
    #[arg(long)]
    pub(crate) objects: bool,
    /// A folder outside that --verify may read, such as that of a job whose checkpoint was claimed; repeatable
    #[arg(long, alias = "root", value_name = "URL", requires = "verify")]
    pub(crate) allow_root: Vec<String>,
    #[command(flatten)]
    pub(crate) stores: StoreArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  holdfast completions bash > /usr/share/bash-completion/completions/holdfast
  holdfast completions zsh > /usr/local/share/zsh/site-functions/_holdfast
  holdfast completions fish > ~/.config/fish/completions/holdfast.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  holdfast man | man -l -
  holdfast man /usr/local/share/man/man1")]
pub(crate) struct ManArgs {
    /// Folder for the pages, one for each command; without it, the page of the program goes to the standard output
    #[arg(value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
}

const JOB: &str = "\
JOB is the id of a job that this user runs (its name, unless --job-id said otherwise) or the path of its socket. It may be
left out when one job runs. Paths go to the standard output, everything else to the standard error.";

/// What every command that asks a running job takes.
#[derive(Debug, Args)]
#[command(after_help = format!("{JOB}\n\n{EXIT_CODES}"))]
pub(crate) struct AskArgs {
    /// Which job, by its id or by the path of its socket; may be left out when one runs
    pub(crate) job: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Longest time to wait for the answer, such as 30s [default: 10s to say how it stands, none for the rest]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) timeout: Option<Duration>,
}

#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  holdfast explain
  holdfast explain flights --checkpoint 12

{JOB}\n\n{EXIT_CODES}"))]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) ask: AskArgs,
    /// Only this one, of those under way and the last that ended
    #[arg(long, value_name = "ID")]
    pub(crate) checkpoint: Option<u64>,
}

#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  holdfast checkpoint
  holdfast checkpoint flights --full

{JOB}\n\n{EXIT_CODES}"))]
pub(crate) struct CheckpointArgs {
    #[command(flatten)]
    pub(crate) ask: AskArgs,
    /// Refer to nothing that an earlier checkpoint wrote
    #[arg(long)]
    pub(crate) full: bool,
}

#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  holdfast savepoint flights --target savepoints
  path=$(holdfast savepoint flights) && holdfast show \"$path\"

The path of the savepoint is the last line of the standard output. Ctrl-C leaves the savepoint to the job.

{JOB}\n\n{EXIT_CODES}"))]
pub(crate) struct SavepointArgs {
    #[command(flatten)]
    pub(crate) ask: AskArgs,
    /// Folder that the savepoint's own folder is made in [default: execution.checkpointing.savepoint-dir of the job]
    #[arg(long, value_name = "DIR")]
    pub(crate) target: Option<String>,
    /// How it is written
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "canonical")]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  holdfast stop flights --target savepoints      with a savepoint
  holdfast stop flights --drain                  every window and timer fires first: for the end of a job, not for a pause
  holdfast stop flights --no-savepoint           with a last checkpoint of its own, as at SIGTERM

If there is no savepoint, the job goes on. The path to go on from is the last line of the standard output.

{JOB}\n\n{EXIT_CODES}"))]
pub(crate) struct StopArgs {
    #[command(flatten)]
    pub(crate) ask: AskArgs,
    /// Let event time run to its end first, so that every window and timer fires
    #[arg(long, conflicts_with = "no_savepoint")]
    pub(crate) drain: bool,
    /// Take a last checkpoint instead of a savepoint
    #[arg(long, conflicts_with_all = ["target", "format"])]
    pub(crate) no_savepoint: bool,
    /// Folder that the savepoint's own folder is made in [default: execution.checkpointing.savepoint-dir of the job]
    #[arg(long, value_name = "DIR")]
    pub(crate) target: Option<String>,
    /// How the savepoint is written
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "canonical")]
    pub(crate) format: Format,
}

pub(crate) fn time(text: &str) -> Result<Duration, String> {
    if text.trim().ends_with(|last: char| last.is_ascii_digit()) {
        // Flink's milliseconds are not what a person means.
        return Err(format!("name a unit, as in {}s", text.trim()));
    }
    let time = parse_duration(text)?;
    if time.is_zero() {
        Err("it must be longer than 0".into())
    } else {
        Ok(time)
    }
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(rate),
        _ => Err("it must be a number of records per second above 0".into()),
    }
}

/// Reads the command line; `None` when it asked for help or the version, which are printed.
///
/// # Errors
/// One line that says what is wrong with the command line.
pub(crate) fn parse() -> Result<Option<Cli>, Failure> {
    let error = match Cli::try_parse() {
        Ok(cli) => return Ok(Some(cli)),
        Err(error) => error,
    };
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            terminal::print(&error.render().to_string())?;
            Ok(None)
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            terminal::say(error.render().to_string().trim_end());
            Err(Failure::silent(Exit::Usage))
        }
        _ => Err(Failure::usage(usage_line(&error.render().to_string()))),
    }
}

/// Makes one line of clap's several: what is wrong, and the tips.
fn usage_line(rendered: &str) -> String {
    let told = rendered
        .split("\n\n")
        .take_while(|part| !part.starts_with("Usage:"));
    let parts: Vec<String> = told
        .map(one_line)
        .filter(|part| !part.starts_with("For more information"))
        .collect();
    let line = parts.join("; ");
    let line = line.strip_prefix("error: ").unwrap_or(&line);
    format!("{line} (see --help)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_wrong_argument_is_told_in_one_line_with_the_tip() {
        let error =
            Cli::try_parse_from(["holdfast", "run", "flights", "--intervall", "1s"]).unwrap_err();
        let line = usage_line(&error.render().to_string());
        assert!(
            line.starts_with("unexpected argument '--intervall' found; tip: "),
            "{line}"
        );
        assert!(!line.contains('\n') && !line.contains("Usage"), "{line}");
        let error = Cli::try_parse_from(["holdfast", "run", "flight"]).unwrap_err();
        let line = usage_line(&error.render().to_string());
        assert!(
            line.contains("possible values: wordcount, flights"),
            "{line}"
        );
    }
}
