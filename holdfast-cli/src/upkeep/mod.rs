//! `holdfast verify`, `holdfast gc` and `holdfast copy`: looking after what lies in a store.
pub(crate) mod args;
mod copy;
mod gc;
mod verify;

pub(crate) use copy::copy;
pub(crate) use gc::gc;
pub(crate) use verify::verify;

use std::future::Future;

use checkpoint_storage::{StoreAccess, StoreRoot};
use tokio::runtime::Runtime;

use crate::failure::Failure;
use crate::interruption;

/// Runs work to its end, or until the program is to end: then nothing is waited for, and the line says what becomes of it.
///
/// # Errors
/// Those of the work; `Interrupted`.
fn until_interrupted<T>(
    io: Runtime,
    interrupted: &str,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let outcome = interruption::until_interrupted(&io, interrupted, work);
    // A store that hangs does not hold the program up.
    io.shutdown_background();
    outcome
}

/// Opens the folders that a command line names besides.
///
/// # Errors
/// `Config` when one can't be opened.
fn open_roots(urls: &[String], access: &StoreAccess) -> Result<Vec<StoreRoot>, Failure> {
    let opened = urls.iter().map(|url| StoreRoot::open(url, access));
    Ok(opened.collect::<Result<_, _>>()?)
}
