use std::sync::{Arc, Weak};

use state_api::Result;

use crate::database::Database;
use crate::error::failed;

/// Compacts the database of a store from another thread, at a time when that disturbs nobody, while the store is in use.
///
/// It doesn't keep the database open. A restore by file puts another one in its place: ask the store for another compactor then.
#[derive(Clone, Debug)]
pub struct Compactor(Weak<Database>);

impl Compactor {
    pub(crate) fn new(database: &Arc<Database>) -> Self {
        Self(Arc::downgrade(database))
    }

    /// Writes all of memory to files and compacts them, column by column; returns whether the database is still there.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn compact(&self) -> Result<bool> {
        let Some(database) = self.0.upgrade() else {
            return Ok(false);
        };
        database.compact().map_err(|(state, error)| {
            failed("flush", database.path(), error).with("state", state)
        })?;
        Ok(true)
    }
}
