//! The `holdfast` program: runs the built-in jobs, and shows what is in a checkpoint.
//!
//! | where | what |
//! | --- | --- |
//! | `args` | the command line |
//! | `run` | a job in this process |
//! | `flights`, `wordcount` | the built-in jobs |
//! | `demo` | a job that is killed twice, compared with one that is not |
//! | `control` | the socket of a running job, and who talks over it |
//! | `operate` | commands that ask something of a running job |
//! | `inspect` | listings of checkpoints, and what is in one |
//! | `upkeep` | verifying, cleaning up and copying checkpoints |
//! | `contents` | what is in a checkpoint, entry by entry: reading and changing it |
//! | `stores` | options of stores, for the commands above |
//! | `interruption` | signals that end work, and what goes with it |
//! | `progress` | how far long work has come |
//! | `manual` | completions for shells, man pages |
//! | `failure` | errors as one line, and exit codes |
mod args;
mod contents;
mod control;
mod date;
mod demo;
mod failure;
mod flights;
mod input;
mod inspect;
mod interruption;
mod logging;
mod manual;
mod operate;
mod progress;
mod run;
mod stores;
mod terminal;
mod upkeep;
mod wordcount;

use std::process::ExitCode;

use args::Command;
use failure::Failure;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    failure::install_panic_hook();
    interruption::outlive_file_limits();
    let outcome = args::parse().and_then(|cli| match cli {
        Some(cli) => dispatch(cli),
        None => Ok(()),
    });
    interruption::clean_up();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn dispatch(cli: args::Cli) -> Result<(), Failure> {
    logging::start(cli.verbose)?;
    match cli.command {
        Command::Run(args) => run::run(*args),
        Command::Demo(args) => demo::run(&args),
        Command::Status(args) => operate::status(&args),
        Command::Explain(args) => operate::explain(&args),
        Command::Checkpoint(args) => operate::checkpoint(&args),
        Command::Savepoint(args) => operate::savepoint(&args),
        Command::Stop(args) => operate::stop(&args),
        Command::Cancel(args) => operate::cancel(&args),
        Command::List(args) => inspect::list(&args),
        Command::Show(args) => inspect::show(&args),
        Command::Verify(args) => upkeep::verify(&args),
        Command::Completions(args) => manual::completions(&args),
        Command::Man(args) => manual::man(&args),
        Command::Copy(args) => upkeep::copy(&args),
        Command::Gc(args) => upkeep::gc(&args),
        Command::Get(args) => contents::get(&args),
        Command::Dump(args) => contents::dump(&args),
        Command::Diff(args) => contents::run_diff(&args),
        Command::Convert(args) => contents::run_convert(&args),
        Command::Rescale(args) => contents::run_rescale(&args),
        Command::Edit(args) => contents::run_edit(&args),
        Command::Bootstrap(args) => contents::run_bootstrap(&args),
    }
}
