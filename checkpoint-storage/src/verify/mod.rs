//! Checking that what checkpoints need is there, whole.
mod affected;
mod many;
mod one;

pub use affected::Affected;
pub use many::{
    Damage, DamagedObject, Verification, VerifiedCheckpoint, VerifyOptions, verify_checkpoints,
};
pub use one::{Fault, VerifyReport, verify, verify_objects};
