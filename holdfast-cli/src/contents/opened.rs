//! A checkpoint that a command works on, and how its work is interrupted.
use std::future::Future;
use std::sync::Arc;

use checkpoint_storage::{StoreAccess, StoreRoot};
#[cfg(feature = "rocksdb")]
use checkpoint_tools::StoreFormat;
use checkpoint_tools::{ChangesFormat, CheckpointSource, Formats, Toolbox};
use state_api::Result;
use tokio::runtime::{Handle, Runtime};

use super::args::SourceArgs;
use super::steps::Steps;
use crate::failure::{Exit, Failure};

/// Returns what reads and writes checkpoints, with every format that this program was built with.
pub(crate) fn toolbox(
    io: &Handle,
    local_dir: Option<&std::path::Path>,
    progress: &Arc<Steps>,
) -> Result<Toolbox> {
    let local_dir = local_dir.map_or_else(std::env::temp_dir, ToOwned::to_owned);
    let mut toolbox = Toolbox::new(io.clone(), local_dir);
    toolbox.formats = formats()?;
    toolbox.progress = Arc::<Steps>::clone(progress);
    Ok(toolbox)
}

/// The word of `backend-fs` for bases and change streams.
const CHANGES: &str = "changes";

/// The word of `backend-rocksdb` for its files.
const ROCKSDB_FILES: &str = "rocksdb-files";

#[cfg(feature = "rocksdb")]
fn formats() -> Result<Formats> {
    let mut formats = Formats::new();
    formats.register(ChangesFormat::new(CHANGES))?;
    let backend = backend_rocksdb::RocksDbBackend::new();
    formats.register(StoreFormat::new(ROCKSDB_FILES, backend))?;
    Ok(formats)
}

#[cfg(not(feature = "rocksdb"))]
fn formats() -> Result<Formats> {
    let mut formats = Formats::new();
    formats.register(ChangesFormat::new(CHANGES))?;
    formats.declare_absent(ROCKSDB_FILES, "rocksdb");
    Ok(formats)
}

/// Finds the checkpoint that the command line names.
pub(crate) async fn open(
    args: &SourceArgs,
    access: &StoreAccess,
    progress: &Arc<Steps>,
) -> Result<CheckpointSource> {
    let found = crate::run::find(&args.checkpoint, access).await?;
    let roots = args.allow_root.iter();
    let roots: Vec<StoreRoot> = roots
        .map(|url| StoreRoot::open(url, access))
        .collect::<Result<_>>()?;
    let toolbox = toolbox(access.runtime(), args.local_dir.as_deref(), progress)?;
    Ok(CheckpointSource::new(found, roots, toolbox))
}

/// Runs work until it is done or Ctrl-C is pressed; then it is dropped, and what it had begun is cleaned up by the drop.
pub(crate) fn interruptible<T>(
    io: &Runtime,
    progress: &Steps,
    work: impl Future<Output = std::result::Result<T, Failure>>,
) -> std::result::Result<T, Failure> {
    let done = io.block_on(async {
        tokio::select! {
            biased;
            done = work => done,
            _ = tokio::signal::ctrl_c() => Err(Failure::new(Exit::Interrupted, "interrupted")),
        }
    });
    progress.clear();
    done
}
