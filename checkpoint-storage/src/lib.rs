//! Where checkpoints live: streams, objects, metadata, publishing and retention over any object store.
mod checkpoint;
mod cleanup;
mod digest;
mod job_store;
pub mod layout;
mod memory_storage;
mod metadata;
mod names;
mod options;
mod publish;
mod reader;
mod reaper;
mod registry;
mod root;
mod savepoint;
mod storage;
mod store;
mod stream;
mod verify;

pub use checkpoint::{CheckpointState, ListedCheckpoint, StoredCheckpoint, list_checkpoints};
pub use cleanup::{DeleteReport, SweepReport};
pub use digest::{DigestBuilder, digest_of};
pub use job_store::{JobStore, Published};
pub use layout::Layout;
pub use memory_storage::MemoryCheckpointStorage;
pub use metadata::{
    CheckpointMetadata, FORMAT_VERSION, HookState, METADATA_NAME, ObjectUse, OperatorMetadata,
    OwnRoot, RawSection, SubtaskMetadata, WRITER, tags,
};
pub use names::{ObjectNames, UuidSource, attempt_of_name};
pub use options::StreamOptions;
pub use publish::{ConditionalPublish, LocalPublish, MemoryPublish, ProbeOptions, Publish, probe};
pub use reader::read_handle;
pub use registry::{Ownership, Registration, SharedRegistry, Unused};
pub use root::StoreRoot;
pub use savepoint::SavepointFolder;
pub use storage::{ObjectCheckpointStorage, ReapReport};
pub use store::{
    Lease, LocalStore, MemoryStore, ObjectStore, ObjectWriter, OpendalStore, StoreEntry,
};
pub use verify::{Fault, VerifyReport, verify, verify_objects};
