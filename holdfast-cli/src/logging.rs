use tracing::{Level, Metadata};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, fmt, registry};

use crate::failure::Failure;

/// The environment variable that says what is logged, in the syntax of `tracing-subscriber`'s filters.
const VARIABLE: &str = "HOLDFAST_LOG";

/// Crates whose log lines hold no credentials at any level.
const OURS: [&str; 12] = [
    "backend_fs",
    "backend_hashmap",
    "backend_rocksdb",
    "checkpoint_storage",
    "checkpoint_tools",
    "examples",
    "holdfast",
    "holdfast_cli",
    "managed_state",
    "runtime_core",
    "state_api",
    "state_derive",
];

/// Sends log lines to the standard error: what the environment asks for, or else as much as `-v` is repeated.
///
/// # Errors
/// When the environment variable is no filter.
pub(crate) fn start(verbose: u8) -> Result<(), Failure> {
    let filter = match std::env::var(VARIABLE) {
        Ok(text) if !text.trim().is_empty() => text.parse::<EnvFilter>().map_err(|error| {
            Failure::usage(format!("{VARIABLE}={text} is no log filter: {error}"))
        })?,
        _ => EnvFilter::new(match verbose {
            0 => "off",
            1 => "info",
            2 => "debug",
            _ => "trace",
        }),
    };
    let colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let lines = fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(colours)
        .with_filter(filter)
        .with_filter(filter_fn(is_without_secrets));
    drop(registry().with(lines).try_init());
    Ok(())
}

/// Says whether a line may be shown: what others' crates say of their work in detail may hold requests as they were signed.
fn is_without_secrets(line: &Metadata<'_>) -> bool {
    let of = line.target().split("::").next().unwrap_or_default();
    *line.level() <= Level::INFO || OURS.contains(&of)
}
