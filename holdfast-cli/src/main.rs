//! The `holdfast` program: runs the built-in jobs, and shows what is in a checkpoint.
//!
//! | where | what |
//! | --- | --- |
//! | `args` | the command line |
//! | `run` | a job in this process |
//! | `flights`, `wordcount` | the built-in jobs |
//! | `demo` | a job that is killed twice, compared with one that is not |
//! | `inspect` | listings of checkpoints, and what is in one |
//! | `failure` | errors as one line, and exit codes |
mod args;
mod date;
mod demo;
mod failure;
mod flights;
mod input;
mod inspect;
mod logging;
mod run;
mod terminal;
mod wordcount;

use std::process::ExitCode;

use args::Command;
use failure::Failure;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    failure::install_panic_hook();
    let outcome = args::parse().and_then(|cli| match cli {
        Some(cli) => dispatch(cli),
        None => Ok(()),
    });
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
        Command::List(args) => inspect::list(&args),
        Command::Show(args) => inspect::show(&args),
    }
}
