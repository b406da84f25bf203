//! Where checkpoints live: streams, objects, metadata, publishing and retention over any object store.
//!
//! A [`StoreRoot`] is a folder of a store: a local disk, a bucket, memory. Over it stand the two sides of a job:
//! - a task writes snapshots through [`ObjectCheckpointStorage`] or [`MemoryCheckpointStorage`], which implement
//!   [`state_api::CheckpointStorage`];
//! - the coordinator holds the job folder through [`JobStore`]: it takes an attempt number, publishes
//!   [`CheckpointMetadata`], lists, loads, discards. [`SharedRegistry`] tells it when shared objects can go.
//!
//! A tool that has just a path starts at [`StoredCheckpoint::find`] and [`verify`].
//!
//! What lies on disk is described in `docs/formats/storage.md` and `docs/formats/metadata.md`.
//!
//! ```
//! use checkpoint_storage::{JobStore, MemoryStore, StoreRoot, StreamOptions, UuidSource, read_handle};
//! use checkpoint_storage::CheckpointMetadata;
//! use state_api::{CheckpointStorage, JobId, Scope, SnapshotKind};
//!
//! # futures_util::FutureExt::now_or_never(async {
//! let root = StoreRoot::memory(&MemoryStore::new(), "flights");
//! let job = JobStore::open(root, JobId::new("flights")?, UuidSource::seeded(1)).await?;
//! let storage = job.storage(StreamOptions::default());
//!
//! let mut stream = storage.create(job.first_checkpoint(), Scope::Exclusive);
//! stream.write("state of a subtask".into()).await?;
//! let handle = stream.finish().await?.expect("something was written");
//! assert_eq!(read_handle(&storage, &handle).await?, "state of a subtask");
//!
//! let id = job.first_checkpoint();
//! let metadata = CheckpointMetadata::new(id, job.job().clone(), job.attempt(), SnapshotKind::Checkpoint, 0);
//! job.publish(&metadata).await?;
//! assert_eq!(job.load("latest").await?.metadata, metadata);
//! # Ok::<(), state_api::Error>(())
//! # }).expect("nothing waits").expect("nothing fails");
//! ```
mod checkpoint;
mod choice;
mod claim;
mod cleanup;
mod copies;
mod copy;
mod digest;
mod executor;
mod gc;
mod job_store;
pub mod layout;
mod liveness;
mod memory_storage;
mod metadata;
mod names;
mod options;
mod progress;
mod publish;
mod reader;
mod reaper;
mod registered;
mod registry;
mod remote;
mod root;
mod savepoint;
mod sealed;
mod slots;
mod stop;
mod storage;
mod store;
mod stream;
mod survey;
mod verify;

pub use checkpoint::{
    CheckpointState, ListedCheckpoint, PassedOver, StoredCheckpoint, list_checkpoints,
};
pub use choice::StorageChoice;
pub use claim::{CLAIM_NAME, ClaimRecord};
pub use cleanup::{DeleteReport, SweepReport};
pub use copies::{LocalCopies, LocalCopyOptions, ReadBytes, RestoringStorage};
pub use copy::{CopyOptions, CopyReport, CopySealing, copy_checkpoint};
pub use digest::{DigestBuilder, digest_of};
pub use executor::TokioExecutor;
pub use gc::{
    ConsultedCheckpoint, ConsultedClaim, Evidence, Fate, GcOptions, GcReport, LeftBeside,
    OtherJobs, RootOpener, Unreferenced, Why, collect_garbage, left_beside,
};
pub use job_store::{JobStore, Published};
pub use layout::{Layout, checkpoint_of_folder};
pub use liveness::Liveness;
pub use memory_storage::MemoryCheckpointStorage;
pub use metadata::{
    Blake3Signer, CheckpointMetadata, FORMAT_VERSION, HookState, InputEnd, METADATA_NAME,
    MetadataSigner, ObjectUse, OperatorMetadata, OwnRoot, RawSection, SubtaskMetadata, WRITER,
    tags,
};
pub use names::{ObjectNames, UuidSource, attempt_of_name};
pub use options::StreamOptions;
pub use progress::{Watcher, WorkDone};
pub use publish::{
    ConditionalPublish, Content, LocalPublish, MemoryPublish, ProbeOptions, Publish, probe,
};
pub use registry::{Ownership, Registration, SharedRegistry, Unused};
pub use remote::{
    Pacing, RequestCounts, RequestPolicy, Requests, STORE_OPTIONS, StoreAccess, StoreOption,
    StoreOptions,
};
pub use root::StoreRoot;
pub use savepoint::SavepointFolder;
#[cfg(feature = "encryption")]
pub use sealed::XChaChaCipher;
pub use sealed::{BlockCipher, Compression, KeyRing, Protection, SEALED_ENDING, Sealing};
pub use state_api::read_handle;
pub use stop::StopRecord;
pub use storage::{ObjectCheckpointStorage, ReapReport};
pub use store::{
    Held, Lease, LocalStore, MemoryStore, ObjectStore, ObjectWriter, OpenUpload, OpendalStore,
    StoreEntry,
};
pub use survey::{CheckpointFolder, Place, Survey, survey};
pub use verify::{
    Affected, Damage, DamagedObject, Fault, Verification, VerifiedCheckpoint, VerifyOptions,
    VerifyReport, verify, verify_checkpoints, verify_objects,
};
