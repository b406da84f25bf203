//! A checkpoint that a command works on, and how its work is interrupted.
use std::future::Future;
use std::sync::Arc;

use checkpoint_storage::{StoreAccess, StoreRoot};
#[cfg(feature = "rocksdb")]
use checkpoint_tools::StoreFormat;
use checkpoint_tools::{ChangesFormat, CheckpointSource, Formats, Toolbox};
use state_api::{Error, Result};
use tokio::runtime::{Handle, Runtime};

use super::args::SourceArgs;
use super::steps::Steps;
use crate::failure::Failure;
use crate::interruption::{goes_at_the_end, until_interrupted};

/// Returns what reads and writes checkpoints, with every format that this program was built with.
pub(crate) fn toolbox(
    io: &Handle,
    local_dir: Option<&std::path::Path>,
    progress: &Arc<Steps>,
) -> Result<Toolbox> {
    let above = local_dir.map_or_else(std::env::temp_dir, ToOwned::to_owned);
    let unmade = |error: std::io::Error| {
        Error::config("no folder can be made for what is put aside")
            .with("path", above.display())
            .caused_by(error)
    };
    std::fs::create_dir_all(&above).map_err(unmade)?;
    let mut own = tempfile::Builder::new();
    let own = own.prefix("holdfast-tools-").tempdir_in(&above);
    let own = own.map_err(unmade)?.keep();
    goes_at_the_end(&own);
    let mut toolbox = Toolbox::new(io.clone(), own);
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

/// Says of what failed whether the checkpoint is damaged, or was deleted while it was read.
pub(crate) async fn judged<T>(
    source: &CheckpointSource,
    done: Result<T>,
) -> std::result::Result<T, Failure> {
    match done {
        Ok(done) => Ok(done),
        Err(error) => Err(Failure::of_roots(source.judged(error).await)),
    }
}

/// Runs work until it is done or the program is to end; then it is dropped, and what it had begun is cleaned up by the drop.
pub(crate) fn interruptible<T>(
    io: &Runtime,
    progress: &Steps,
    work: impl Future<Output = std::result::Result<T, Failure>>,
) -> std::result::Result<T, Failure> {
    let done = until_interrupted(io, "interrupted", work);
    progress.clear();
    done
}
