//! The vocabulary and the traits of Holdfast.

// The derive names this crate by its path; so do the types derived in here.
extern crate self as state_api;

#[cfg(feature = "derive")]
#[doc(hidden)]
#[path = "derive_support.rs"]
pub mod __derive;
pub mod access;
mod backend;
mod bases;
mod byte_store;
mod cancel;
mod clock;
mod codec;
pub mod compat;
mod descriptor;
mod error;
mod evolvable;
mod handle;
pub mod hash;
mod ids;
mod key_group;
mod key_group_offsets;
mod key_group_range;
mod live;
mod object_cache;
mod opaque;
pub mod option_text;
mod restore_times;
mod schema;
mod schema_codec;
mod schema_hash;
mod schema_ordered;
mod schema_text;
mod snapshot;
mod state_type;
mod storage;
mod ttl;
mod types;
mod value;
mod value_json;
pub mod wire;

pub use codec::CodecKind;
pub use compat::{Compatibility, Position, TypeMeta};
pub use error::{Error, ErrorKind, Result};
pub use hash::{HashId, KeyHash};
pub use ids::{Attempt, CheckpointId, JobId, OperatorUid, Subtask};
pub use key_group::{KeyGroup, MaxParallelism};
pub use key_group_offsets::{GroupExtent, KeyGroupOffsets};
pub use key_group_range::KeyGroupRange;
pub use opaque::{Opaque, OpaqueKey, OpaqueType};
pub use schema::{EnumSchema, Field, Fields, IntType, Schema, StructSchema, VariantSchema};
#[cfg(feature = "derive")]
pub use state_derive::{OrderedKey, StateKey, StateType};
pub use state_type::{OrderedKey, StateKey, StateType, StoredKey};
pub use value::{Name, Value};

pub use backend::{BackendContext, BackendFactory, BackendRegistry, KeyedBackend};
pub use bases::Bases;
pub use byte_store::{
    BatchEntry, ByteStore, ByteView, Column, Filtered, NativeSnapshots, Page, ValueFilter,
    WriteBatch, prefix_end, unknown_column,
};
pub use cancel::{CancelToken, Cancelled};
pub use clock::{Clock, ManualClock, SystemClock};
pub use descriptor::{StateKind, StateMeta, StateOptions};
pub use handle::{
    Digest, EntryCount, IncrementalHandle, KeyGroupsHandle, KeyedHandle, NamedHandle, ObjectHandle,
    OperatorSnapshot, OperatorStateHandle, OperatorStateMode, OperatorStatePart, RelPath, Root,
    StateHandle, StateSummary,
};
pub use live::{FrozenChanges, FrozenTables, LiveSnapshots, LoadTables, RestoreContext};
pub use object_cache::ObjectCacheBudget;
pub use restore_times::RestoreTimes;
pub use snapshot::{Executor, PersistContext, Snapshot, SnapshotKind, SnapshotRequest};
pub use storage::{
    CheckpointStorage, CheckpointStream, ObjectReader, Scope, read_handle, read_pieces,
};
pub use ttl::{IncrementalCleanup, TtlConfig, TtlUpdate, TtlVisibility};
