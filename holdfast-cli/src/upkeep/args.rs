use clap::Args;

use crate::failure::EXIT_CODES;
use crate::stores::{StoreArgs, TargetStoreArgs};

/// What a folder may be, for `--help`.
const PATHS: &str = "\
PATH is a local path or the URL of a store, such as s3://bucket/checkpoints: of a checkpoint or savepoint, of a job's folder,
or of a folder of jobs or savepoints.";

#[derive(Debug, Args)]
#[command(after_help = format!("\
Every object that a checkpoint needs is read, one that several share once, and its length and digest are compared with what
the checkpoint's metadata says. Each damaged or missing object is named with the checkpoints, operators and states that it is
missed by; the last line names the newest checkpoint that is whole.

{PATHS}

Examples:
  holdfast verify checkpoints                    every checkpoint of every job
  holdfast verify checkpoints/flights/latest     the newest checkpoint of a job
  holdfast verify savepoints/savepoint-flight-0123456789ab --json

{EXIT_CODES}"))]
pub(crate) struct VerifyArgs {
    /// What to verify
    #[arg(value_name = "PATH")]
    pub(crate) path: String,
    /// A folder outside that a checkpoint may refer to, such as that of a job whose checkpoint was claimed; repeatable
    #[arg(long = "allow-root", alias = "root", value_name = "URL")]
    pub(crate) root: Vec<String>,
    /// Objects that are read at once
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) concurrency: u16,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) stores: StoreArgs,
}

#[derive(Debug, Args)]
#[command(after_help = format!("\
An object is deleted when no complete checkpoint refers to it, of the job or of another one that has claimed a checkpoint of
it; how old it is plays no part. Before that the next attempt of the job is taken, as a run does, and every checkpoint that was
begun is kept from being completed. While the job runs it only lists. Where a checkpoint or a claim can't be read, nothing is
deleted. What is not ours is told and left alone. It may be interrupted and run again.

PATH is a local path or the URL of a store: of a job's folder, or of a folder of jobs.

Examples:
  holdfast gc checkpoints --dry-run              what would be deleted, and why
  holdfast gc checkpoints/flights
  holdfast gc s3://bucket/checkpoints/flights --take-over

{EXIT_CODES}"))]
pub(crate) struct GcArgs {
    /// Folder of a job, or of several
    #[arg(value_name = "PATH")]
    pub(crate) path: String,
    /// Only list what would be deleted, with the reason
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Take the folder of a job although the store can't tell whether it runs: one that does ends as fenced
    #[arg(long)]
    pub(crate) take_over: bool,
    /// Calls of the store at once
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) concurrency: u16,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) stores: StoreArgs,
}

#[derive(Debug, Args)]
#[command(after_help = format!("\
The copy holds every object that the checkpoint needs, wherever they lie now: a job starts from it without anything else, and it
can be moved. Each object's digest is checked while it is copied. The copy exists once the last byte is there; a copy that was
interrupted is run again, and keeps what is there whole. Its path is the last line of the standard output.

Objects that are compressed or encrypted are copied as they are stored. --unsealed stores what is inside, for which the key of
encrypted ones is needed.

Paths are local or URLs of stores, such as s3://bucket/backup/flights.

Examples:
  holdfast copy checkpoints/flights /backup/flights-before-upgrade     the newest checkpoint of a job
  holdfast copy checkpoints/flights/chk-12 s3://bucket/backup/flights-12
  holdfast run flights … --from $(holdfast copy s3://bucket/backup/flights-12 here)

{EXIT_CODES}"))]
pub(crate) struct CopyArgs {
    /// Folder of the checkpoint, its _metadata, or a job's folder for its latest checkpoint
    #[arg(value_name = "CHECKPOINT")]
    pub(crate) checkpoint: String,
    /// Folder for the copy alone, which need not exist
    #[arg(value_name = "TARGET")]
    pub(crate) target: String,
    /// A folder outside that the checkpoint may refer to, such as that of a job whose checkpoint was claimed; repeatable
    #[arg(long = "allow-root", alias = "root", value_name = "URL")]
    pub(crate) root: Vec<String>,
    /// Store what is inside of objects that are compressed or encrypted
    #[arg(long)]
    pub(crate) unsealed: bool,
    /// Objects that are copied at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) concurrency: u16,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) stores: StoreArgs,
    #[command(flatten)]
    pub(crate) target_stores: TargetStoreArgs,
}
