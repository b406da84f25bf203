use tracing_subscriber::EnvFilter;

use crate::failure::Failure;

/// The environment variable that says what is logged, in the syntax of `tracing-subscriber`'s filters.
const VARIABLE: &str = "HOLDFAST_LOG";

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
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colours);
    drop(subscriber.try_init());
    Ok(())
}
