//! Commands that read and change what is in a checkpoint.
mod args;
mod bootstrap;
mod changes;
mod differences;
mod dump;
mod get;
mod opened;
mod output;
mod row_file;
mod steps;

pub(crate) use args::{
    BootstrapArgs, ConvertArgs, DiffArgs, DumpArgs, EditArgs, GetArgs, RescaleArgs,
};
pub(crate) use bootstrap::run_bootstrap;
pub(crate) use changes::{run_convert, run_edit, run_rescale};
pub(crate) use differences::run_diff;
pub(crate) use dump::dump;
pub(crate) use get::get;
