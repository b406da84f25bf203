//! The vocabulary and the traits of Holdfast.
mod error;
mod ids;
pub mod hash;
mod key_group;
mod key_group_offsets;
mod key_group_range;
mod schema;
mod schema_codec;
mod schema_text;
mod state_type;
mod types;
mod value;
mod value_json;
pub mod wire;

pub use error::{Error, ErrorKind, Result};
pub use ids::{Attempt, CheckpointId, JobId, OperatorUid, Subtask};
pub use hash::HashId;
pub use key_group::{KeyGroup, MaxParallelism};
pub use key_group_offsets::{GroupExtent, KeyGroupOffsets};
pub use key_group_range::KeyGroupRange;
pub use schema::{EnumSchema, Field, Fields, IntType, Schema, StructSchema, VariantSchema};
pub use state_type::{OrderedKey, StateKey, StateType};
pub use value::{Name, Value};
