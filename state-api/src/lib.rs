//! The vocabulary and the traits of Holdfast.
mod error;
mod ids;
mod key_group;

pub use error::{Error, ErrorKind, Result};
pub use ids::{Attempt, CheckpointId, JobId, OperatorUid, Subtask};
pub use key_group::KeyGroup;
