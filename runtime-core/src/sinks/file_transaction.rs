use state_api::{Error, Result, StateType};

use super::part_name::{PartName, is_plain};

/// A part of a [`FileSink`](super::FileSink)'s output, as checkpoints name it.
///
/// Names are relative to the output folder, so that an output may be moved as a whole between two runs.
#[derive(Clone, Debug, PartialEq, Eq, StateType)]
pub struct FileTransaction {
    /// What the names of its files have in common.
    pub stem: String,
    /// The checkpoint for which it was ended; `None` while it is open.
    pub checkpoint: Option<u64>,
    /// Name of the file that it becomes; empty while it is open.
    pub visible: String,
    /// Length in bytes; 0 while it is open.
    pub length: u64,
}

impl FileTransaction {
    /// Returns the names of the pending and the visible file.
    ///
    /// # Errors
    /// `Corrupt` when the transaction, which comes out of a checkpoint, names anything else than such files.
    pub(super) fn files(&self) -> Result<(String, String)> {
        let part = self.part()?;
        match self.checkpoint {
            Some(checkpoint) if is_plain(&self.visible) => {
                Ok((part.pending(checkpoint), self.visible.clone()))
            }
            _ => Err(self.damaged()),
        }
    }

    /// Returns the name that its files are made from.
    ///
    /// # Errors
    /// `Corrupt`, as [`FileTransaction::files`].
    pub(super) fn part(&self) -> Result<PartName> {
        PartName::parse(&self.stem).ok_or_else(|| self.damaged())
    }

    fn damaged(&self) -> Error {
        Error::corrupt("a transaction of a file sink names no part of its output")
            .with("transaction", &self.stem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Transactions are stored by their schema: it must not change by accident.
    #[test]
    fn the_schema_is_as_old_checkpoints_have_it() {
        assert_eq!(
            FileTransaction::schema().to_string(),
            "struct FileTransaction{stem:string,checkpoint:option<u64>,visible:string,length:u64}"
        );
    }
}
