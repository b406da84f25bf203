//! Whether a job can start from a checkpoint that an older program wrote, state by state: for a test beside the job.
//!
//! [`check_compat`] opens a clone of each operator where nothing is restored and nothing is kept, so that it registers its states,
//! and compares them with what the checkpoint says of its own. Neither sources nor sinks are opened, no state is read:
//! the metadata of a savepoint is enough, a small file (`_metadata` in its folder) that a test can bring along.
mod check;
mod report;

pub use check::{check_compat, check_compat_with};
pub use report::{CompatReport, OperatorCompat, StateCompat, StateFate};
