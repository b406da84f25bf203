//! `holdfast list` and `holdfast show`: what is in a folder of checkpoints, and in one of them.
mod broadcast;
mod json;
mod list;
mod objects;
mod show;
mod table;

pub(crate) use list::list;
pub(crate) use show::show;
pub(crate) use table::Table;

use tokio::runtime::Runtime;

use crate::failure::Failure;

/// Makes the threads that a command reads a store with.
///
/// # Errors
/// When there are no threads.
pub(crate) fn io_runtime() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("no threads for input and output: {error}")))
}
