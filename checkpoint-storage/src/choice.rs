use state_api::{Error, Result};

/// Which storage the configuration asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageChoice<'a> {
    /// State in the coordinator's memory; metadata in a folder if there is one, else in memory too.
    Memory {
        /// URL of the checkpoint folder.
        folder: Option<&'a str>,
    },
    /// State and metadata in a folder.
    Folder {
        /// URL of the checkpoint folder.
        folder: &'a str,
    },
}

impl<'a> StorageChoice<'a> {
    /// The names that are understood.
    pub const NAMES: [&'static str; 4] = ["jobmanager", "memory", "filesystem", "fs"];

    /// Picks the storage: by name, or else a folder if one is set, or else memory.
    ///
    /// # Errors
    /// `Config` for an unknown name, and for a storage in a folder without one.
    pub fn resolve(name: Option<&str>, folder: Option<&'a str>) -> Result<Self> {
        let folder = folder.filter(|folder| !folder.trim().is_empty());
        match (name, folder) {
            (None, Some(folder)) | (Some("filesystem" | "fs"), Some(folder)) => {
                Ok(Self::Folder { folder })
            }
            (None, None) | (Some("jobmanager" | "memory"), _) => Ok(Self::Memory { folder }),
            (Some("filesystem" | "fs"), None) => Err(Error::config(
                "checkpoint storage in a folder needs the folder: set execution.checkpointing.dir",
            )),
            (Some(name), _) => Err(Error::config(format!(
                "checkpoint storage {name:?} is unknown; known are {}",
                Self::NAMES.join(", ")
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use state_api::ErrorKind;

    #[test]
    fn k_493_the_name_decides_or_else_the_folder_or_else_memory() {
        let resolve = StorageChoice::resolve;
        assert_eq!(
            resolve(None, None).unwrap(),
            StorageChoice::Memory { folder: None }
        );
        assert_eq!(
            resolve(None, Some(" ")).unwrap(),
            StorageChoice::Memory { folder: None }
        );
        for name in [None, Some("filesystem"), Some("fs")] {
            assert_eq!(
                resolve(name, Some("/c")).unwrap(),
                StorageChoice::Folder { folder: "/c" }
            );
        }
        for name in ["jobmanager", "memory"] {
            assert_eq!(
                resolve(Some(name), Some("/c")).unwrap(),
                StorageChoice::Memory { folder: Some("/c") }
            );
        }
        for (name, words) in [
            ("filesystem", "execution.checkpointing.dir"),
            ("ftp", "known are jobmanager, memory"),
        ] {
            let error = resolve(Some(name), None).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
