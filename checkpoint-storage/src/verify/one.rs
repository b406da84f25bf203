use std::collections::HashMap;

use state_api::{CheckpointStorage, Error, ErrorKind, ObjectHandle, OperatorUid, Result};

use crate::checkpoint::StoredCheckpoint;
use crate::metadata::CheckpointMetadata;
use crate::reader::{Whole, check_object};
use crate::root::StoreRoot;
use crate::storage::ObjectCheckpointStorage;

/// What [`verify`] found.
#[derive(Debug, Default)]
pub struct VerifyReport {
    /// Number of distinct objects that were read.
    pub objects: usize,
    /// Their bytes.
    pub bytes: u64,
    /// What is wrong, in the order of the metadata; an object that several subtasks use is there once for each.
    pub faults: Vec<Fault>,
}

/// An object that is not what the metadata says.
#[derive(Debug)]
pub struct Fault {
    /// The operator that needs it.
    pub operator: OperatorUid,
    /// The subtask that needs it; `None` for the operator's coordinator.
    pub subtask: Option<u32>,
    /// The object.
    pub object: ObjectHandle,
    /// What is wrong with it.
    pub reason: String,
}

impl VerifyReport {
    /// Turns the first fault into an error.
    ///
    /// # Errors
    /// `Corrupt`, naming object, operator and subtask.
    pub fn into_result(self) -> Result<()> {
        let more = self.faults.len().saturating_sub(1);
        match self.faults.into_iter().next() {
            None => Ok(()),
            Some(fault) => {
                let error = Error::corrupt(fault.reason)
                    .with("object", fault.object)
                    .with("operator", fault.operator);
                let error = match fault.subtask {
                    Some(index) => error.with("subtask", index),
                    None => error,
                };
                Err(if more > 0 {
                    error.with("more_faults", more)
                } else {
                    error
                })
            }
        }
    }
}

/// Reads every object of a checkpoint and compares length and digest.
///
/// # Errors
/// `Config` when the checkpoint refers to a root that is not among `roots`, or an object is encrypted with a key that is not
/// here; `Retryable` when the store fails.
pub async fn verify(
    checkpoint: &StoredCheckpoint,
    roots: impl IntoIterator<Item = StoreRoot>,
) -> Result<VerifyReport> {
    let storage = checkpoint.storage(roots);
    verify_through(&checkpoint.metadata, Way::Store(&storage)).await
}

/// As [`verify`], through a storage.
///
/// # Errors
/// As there.
pub async fn verify_objects(
    metadata: &CheckpointMetadata,
    storage: &dyn CheckpointStorage,
) -> Result<VerifyReport> {
    verify_through(metadata, Way::Stream(storage)).await
}

/// How objects are read.
#[derive(Clone, Copy)]
enum Way<'a> {
    /// As a restore reads them.
    Stream(&'a dyn CheckpointStorage),
    /// With every stored byte.
    Store(&'a ObjectCheckpointStorage),
}

async fn verify_through(metadata: &CheckpointMetadata, way: Way<'_>) -> Result<VerifyReport> {
    let mut report = VerifyReport::default();
    let mut known: HashMap<&ObjectHandle, Option<String>> = HashMap::new();
    for used in metadata.objects() {
        let fault = match known.get(used.object) {
            Some(fault) => fault.clone(),
            None => {
                let fault = check(way, used.object).await?;
                report.objects += 1;
                report.bytes += used.object.len;
                known.insert(used.object, fault.clone());
                fault
            }
        };
        if let Some(reason) = fault {
            let operator = used.operator.clone();
            report.faults.push(Fault {
                operator,
                subtask: used.subtask,
                object: used.object.clone(),
                reason,
            });
        }
    }
    Ok(report)
}

async fn check(way: Way<'_>, object: &ObjectHandle) -> Result<Option<String>> {
    let read = match way {
        Way::Stream(storage) => read_through(storage, object).await,
        Way::Store(storage) => {
            let root = storage.resolve(object)?;
            match check_object(root, object, &mut |_| {}).await {
                Ok(Whole::Stored(_, key)) => Err(Error::config(format!(
                    "the object is encrypted with key {key:?}, which is not here"
                ))
                .with("object", object)),
                other => other.map(drop),
            }
        }
    };
    match read {
        Ok(()) => Ok(None),
        Err(e) if matches!(e.kind(), ErrorKind::Corrupt | ErrorKind::InvalidArgument) => {
            Ok(Some(e.message().to_owned()))
        }
        Err(e) => Err(e),
    }
}

async fn read_through(storage: &dyn CheckpointStorage, object: &ObjectHandle) -> Result<()> {
    let mut reader = storage.open(object).await?;
    while reader.next().await?.is_some() {}
    Ok(())
}
