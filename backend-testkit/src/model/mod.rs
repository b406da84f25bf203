//! Random operations on every kind of state, compared with plain sorted maps.
//!
//! [`run`] takes one backend or several. Each operation is done on all of them and on the model, and all must give the same.
//! In between, snapshots are cut, held while writes go on, written, completed, aborted and dropped; jobs go back to the last
//! completed one at another parallelism, or move on from a savepoint of another backend. At the end all of the state is
//! compared, and the canonical savepoints of all backends entry by entry.
mod ops;
mod plain;
mod run;
mod subject;

pub use crate::settings::Settings;
pub use run::run;
