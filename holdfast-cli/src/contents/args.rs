use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::failure::EXIT_CODES;
use crate::stores::{StoreArgs, TargetStoreArgs};

/// The checkpoint that a command reads.
#[derive(Debug, Args)]
pub(crate) struct SourceArgs {
    /// Folder of the checkpoint, its _metadata, or a job's folder for its latest checkpoint
    pub(crate) checkpoint: String,
    /// Read objects in this folder of another job too; repeatable (show names them as roots)
    #[arg(long, alias = "root", value_name = "URL")]
    pub(crate) allow_root: Vec<String>,
    /// Folder for what is put aside while it is read [default: the system's for temporary files]
    #[arg(long, value_name = "DIR")]
    pub(crate) local_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) stores: StoreArgs,
}

/// How entries are written by `dump`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DumpRows {
    /// One JSON object a line
    Jsonl,
    /// A table with a head; of one state, a column for each field of its structs
    Csv,
    /// The same table as a Parquet file, with typed columns (in a program built with the feature parquet)
    Parquet,
}

/// How entries are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Rows {
    /// One JSON object a line
    Jsonl,
    /// A table with a head; of one state, a column for each field of its structs
    Csv,
}

#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  holdfast dump checkpoints/flights                              the latest checkpoint of a job
  holdfast dump checkpoints/flights/chk-12 --state delays/window
  holdfast dump savepoints/savepoint-… --state delays/window --format csv --output window.csv
  holdfast dump checkpoints/flights | jq 'select(.key == \"AA\")'

Values are read by the types that stand in the checkpoint; what only the job can read is written in hexadecimal, raw bytes with
their length alone. Of a list each element is a line, of a map each of its keys. Expired entries are there too. Integers are written
whole: jq before 1.7 rounds those past 2^53, so what is to be read back by `holdfast bootstrap` better doesn't pass through it.

{EXIT_CODES}"))]
pub(crate) struct DumpArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Only this operator, by its uid; repeatable
    #[arg(long, value_name = "UID")]
    pub(crate) operator: Vec<String>,
    /// Only this state, by its name or as UID/NAME; repeatable
    #[arg(long, value_name = "STATE")]
    pub(crate) state: Vec<String>,
    /// How entries are written
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "jsonl")]
    pub(crate) format: DumpRows,
    /// File for the entries, which appears, or is replaced, when all of them are in it; a pipe or a device is written to
    /// [default: the standard output, which `-` is too]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Stop after so many entries
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
}

#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  holdfast get checkpoints/wordcount count the
  holdfast get checkpoints/flights delays/window AA
  holdfast get checkpoints/flights delays/window AA --namespace '{{\"start_ms\":1357084800000,\"end_ms\":1357171200000}}' --json
  holdfast get checkpoints/orders baskets '{{\"customer\":7,\"shop\":\"north\"}}' --map-key apples

KEY, namespace and map key are JSON, as dump writes them; a string may stand without quotes. The exit code is 8 when the state
holds nothing of the key.

{EXIT_CODES}"))]
pub(crate) struct GetArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Name of the state, or UID/NAME
    pub(crate) state: String,
    /// The key
    #[arg(allow_hyphen_values = true)]
    pub(crate) key: String,
    /// Only this namespace, such as a window
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    pub(crate) namespace: Option<String>,
    /// Only this key of a map
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    pub(crate) map_key: Option<String>,
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// The checkpoint that a command writes.
#[derive(Debug, Args)]
pub(crate) struct TargetArgs {
    /// Folder for the new checkpoint: empty, or not there, or left by a run that was interrupted
    #[arg(long, value_name = "DIR")]
    pub(crate) to: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) stores: TargetStoreArgs,
}

#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  holdfast diff checkpoints/flights/chk-12 checkpoints/flights/chk-13
  holdfast diff chk-12 savepoints/savepoint-… --entries | head

Backend, parallelism and number of key groups make no difference. A list is one entry. Of raw bytes and records in flight it is told
whether they are other bytes. The exit code is 0 when nothing differs, and
7 when something does.

{EXIT_CODES}"))]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// The checkpoint that it is compared with
    pub(crate) other: String,
    /// Print each entry that differs, as one JSON object a line, instead of the counts
    #[arg(long, conflicts_with = "json")]
    pub(crate) entries: bool,
    /// Don't compare when entries with a time-to-live were renewed
    #[arg(long)]
    pub(crate) values_only: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  holdfast convert checkpoints/flights/chk-12 --to portable
  holdfast run flights --from portable --backend hashmap …

The new checkpoint is a savepoint that every backend reads, with all its objects in its own folder. The old one stays as it is.

{EXIT_CODES}"))]
pub(crate) struct ConvertArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  holdfast rescale savepoints/savepoint-… --max-parallelism 1024 --to rescaled
  holdfast run flights --from rescaled --max-parallelism 1024 --parallelism 200 …

Every entry is put into the key group that its key has now, and the numbers of entries before and after are compared. The old
checkpoint stays as it is.

{EXIT_CODES}"))]
pub(crate) struct RescaleArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Number of key groups: the most subtasks that the state can be divided among
    #[arg(long, value_name = "N")]
    pub(crate) max_parallelism: u32,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  holdfast edit savepoints/savepoint-… --to edited --drop-state delays/window
  holdfast edit savepoints/savepoint-… --to edited --rename delays=mean-delays
  holdfast edit savepoints/savepoint-… --to edited --state count --key the --value 7
  holdfast edit savepoints/savepoint-… --to edited --state delays/window --key AA --delete
  holdfast edit savepoints/savepoint-… --to edited --rows changes.jsonl

The old checkpoint stays as it is. Rows are JSON objects, one a line, as dump writes them: what they name is set, or deleted if they
say \"delete\":true. A deletion without namespace, map key or time deletes all of the key's. A row of a list with an index is the
element of that index in the old list, or the next behind its end; without one its value is the whole list. Rows take effect in their
order; what a row has set no other may set again. A --delete that finds nothing is an error, after which there is no new checkpoint.

{EXIT_CODES}"))]
pub(crate) struct EditArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// Drop a state, by its name or as UID/NAME; repeatable
    #[arg(long, value_name = "STATE")]
    pub(crate) drop_state: Vec<String>,
    /// Give an operator another uid; repeatable
    #[arg(long, value_name = "OLD=NEW")]
    pub(crate) rename: Vec<String>,
    /// File of changes, one JSON object a line; `-` is the standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) rows: Option<PathBuf>,
    /// The state of which one key is set or deleted
    #[arg(long, value_name = "STATE")]
    pub(crate) state: Option<String>,
    /// The key
    #[arg(
        long,
        value_name = "JSON",
        requires = "state",
        allow_hyphen_values = true
    )]
    pub(crate) key: Option<String>,
    /// The namespace of the key
    #[arg(
        long,
        value_name = "JSON",
        requires = "state",
        allow_hyphen_values = true
    )]
    pub(crate) namespace: Option<String>,
    /// The key within a map, or within a broadcast state
    #[arg(
        long,
        value_name = "JSON",
        requires = "state",
        allow_hyphen_values = true
    )]
    pub(crate) map_key: Option<String>,
    /// The time of a timer in milliseconds
    #[arg(
        long,
        value_name = "MS",
        requires = "state",
        allow_hyphen_values = true
    )]
    pub(crate) time_ms: Option<i64>,
    /// What it is set to
    #[arg(
        long,
        value_name = "JSON",
        requires = "state",
        conflicts_with = "delete",
        allow_hyphen_values = true
    )]
    pub(crate) value: Option<String>,
    /// Delete it
    #[arg(long, requires = "state")]
    pub(crate) delete: bool,
}

#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  holdfast bootstrap totals.csv --to start --job flights --operator delays --state totals \\
      --key-type string --value-type 'struct Totals{{flights:u64,delay:f64}}'
  holdfast dump old --output rows.jsonl && holdfast bootstrap rows.jsonl --like old --to new
  holdfast bootstrap totals.csv --like old --operator delays --state totals --to new

Rows are JSON objects, one a line, or a table with a head (by the ending .csv, or --format): the columns are key, namespace, map_key,
value, index, time_ms, renewed_ms, those of structs key.FIELD and value.FIELD. Elements of a list stand in it by their index, or as
they come where none has one. Types are written as show prints them, and must be those of the job. A dump has the length alone of
bytes that only the job can read: a row of them is refused, or left out with --skip-raw. The new checkpoint is a savepoint: a job
starts from it with --from.

{EXIT_CODES}"))]
pub(crate) struct BootstrapArgs {
    /// File of rows; `-` is the standard input
    pub(crate) rows: PathBuf,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// How the rows are written [default: by the file's ending, else jsonl]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) format: Option<Rows>,
    /// Take job, operators, states and their types from this checkpoint
    #[arg(long, value_name = "CHECKPOINT")]
    pub(crate) like: Option<String>,
    /// Id of the job
    #[arg(long, value_name = "ID")]
    pub(crate) job: Option<String>,
    /// Uid of the operator; with --like, of rows that name none
    #[arg(long, value_name = "UID")]
    pub(crate) operator: Option<String>,
    /// Name of the state; with --like, of rows that name none
    #[arg(long, value_name = "NAME")]
    pub(crate) state: Option<String>,
    /// Kind of the state: value, list, map, sorted-map, reducing, aggregating, timer, operator-list or broadcast
    #[arg(
        long,
        value_name = "KIND",
        default_value = "value",
        conflicts_with = "like"
    )]
    pub(crate) kind: String,
    /// Type of the key
    #[arg(long, value_name = "TYPE", conflicts_with = "like")]
    pub(crate) key_type: Option<String>,
    /// Type of the namespace
    #[arg(long, value_name = "TYPE", conflicts_with = "like")]
    pub(crate) namespace_type: Option<String>,
    /// Type of the key within a map
    #[arg(long, value_name = "TYPE", conflicts_with = "like")]
    pub(crate) map_key_type: Option<String>,
    /// Type of the value, of a list's elements, or of the accumulator
    #[arg(long, value_name = "TYPE", conflicts_with = "like")]
    pub(crate) value_type: Option<String>,
    /// Codec of the value: compact or evolvable
    #[arg(
        long,
        value_name = "CODEC",
        default_value = "compact",
        conflicts_with = "like"
    )]
    pub(crate) codec: String,
    /// Time-to-live of the state, such as 1h
    #[arg(
        long,
        value_name = "TIME",
        value_parser = crate::args::time,
        conflicts_with = "like"
    )]
    pub(crate) ttl: Option<Duration>,
    /// Leave out the rows of a dump that stand for raw bytes: it has the length of them alone
    #[arg(long)]
    pub(crate) skip_raw: bool,
    /// Number of subtasks that the state is divided among [default: 1, or that of --like]
    #[arg(short, long, value_name = "N")]
    pub(crate) parallelism: Option<u32>,
    /// Number of key groups, which must be that of the job [default: 128, or that of --like]
    #[arg(long, value_name = "N")]
    pub(crate) max_parallelism: Option<u32>,
    /// Folder for what is put aside [default: the system's for temporary files]
    #[arg(long, value_name = "DIR")]
    pub(crate) local_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) stores: StoreArgs,
}
