use std::path::Path;

use state_api::{Error, Result};

use super::{BackendSettings, Configuration, Origin, options};

/// Where the objects and the metadata of checkpoints go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageLocation {
    /// Into the coordinator's memory: they end with the process.
    Memory,
    /// Into a folder, given as a path or a URL.
    Folder(String),
}

/// How checkpoints are stored; the defaults are Flink's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageSettings {
    /// Where checkpoints go.
    pub location: StorageLocation,
    /// Where savepoints go when a request names no folder.
    pub savepoint_dir: Option<String>,
    /// Largest state in the coordinator's memory, in bytes; for [`StorageLocation::Memory`].
    pub max_state_bytes: u64,
    /// Whether each job has a folder of its own under the location.
    pub create_subdir: bool,
    /// Pieces of at most this many bytes go inline into the metadata.
    pub inline_threshold: u64,
    /// Bytes that a stream gathers before it writes; never less than the threshold.
    pub write_buffer_bytes: u64,
    /// Whether the objects of a checkpoint are deleted several at a time.
    pub parallel_cleanup: bool,
}

impl Default for StorageSettings {
    fn default() -> Self {
        Self {
            location: StorageLocation::Memory,
            savepoint_dir: None,
            max_state_bytes: 5 << 20,
            create_subdir: true,
            inline_threshold: 20 << 10,
            write_buffer_bytes: 20 << 10,
            parallel_cleanup: true,
        }
    }
}

impl StorageSettings {
    /// Reads the settings of a configuration.
    ///
    /// # Errors
    /// `Config` when periodic checkpoints are on and nothing says where they go, or when filesystem storage has no folder.
    pub fn from_configuration(configuration: &Configuration) -> Result<Self> {
        let inline_threshold = configuration.bytes(&options::INLINE_THRESHOLD);
        Ok(Self {
            location: location(configuration)?,
            savepoint_dir: configuration.string(&options::SAVEPOINT_DIR),
            max_state_bytes: configuration.bytes(&options::MEMORY_STORAGE_LIMIT),
            create_subdir: configuration.bool(&options::CREATE_SUBDIR),
            inline_threshold,
            write_buffer_bytes: configuration
                .bytes(&options::WRITE_BUFFER_SIZE)
                .max(inline_threshold),
            parallel_cleanup: configuration.bool(&options::CLEANER_PARALLEL),
        })
    }

    /// Warns about folders that are likely to be emptied by somebody else: those under a folder for temporary files.
    ///
    /// `temp_dir` is the machine's own, to be checked beside the usual ones.
    #[must_use]
    pub fn warnings(&self, temp_dir: &Path) -> Vec<String> {
        let checkpoints = match &self.location {
            StorageLocation::Folder(dir) => Some((options::DIR.key, dir)),
            StorageLocation::Memory => None,
        };
        let savepoints = self
            .savepoint_dir
            .as_ref()
            .map(|dir| (options::SAVEPOINT_DIR.key, dir));
        let roots = [
            Path::new("/tmp"),
            Path::new("/var/tmp"),
            Path::new("/dev/shm"),
            temp_dir,
        ];
        let risky = |dir: &str| {
            let path = dir
                .strip_prefix("file:")
                .map_or(dir, |rest| rest.strip_prefix("//").unwrap_or(rest));
            roots
                .iter()
                .any(|root| !root.as_os_str().is_empty() && Path::new(path).starts_with(root))
        };
        checkpoints
            .into_iter()
            .chain(savepoints)
            .filter(|(_, dir)| risky(dir))
            .map(|(key, dir)| {
                format!("{key} = {dir} is under a folder for temporary files, which the system may empty at any time")
            })
            .collect()
    }
}

fn location(configuration: &Configuration) -> Result<StorageLocation> {
    let dir = configuration.string(&options::DIR);
    let in_memory = match configuration.choice(&options::STORAGE) {
        Some("filesystem") => false,
        Some(_) => true,
        // Flink takes the folder's presence for the choice.
        None => dir.is_none() && BackendSettings::implies_memory_storage(configuration),
    };
    if in_memory {
        if let Some(Origin::File { .. } | Origin::Named(_)) = configuration.origin(options::DIR.key)
        {
            let error = Error::config(format!(
                "{} = jobmanager keeps checkpoints in memory, but {} names a folder: leave one of them out",
                options::STORAGE.key,
                options::DIR.key
            ));
            return Err(configuration.located(
                error.with("option", options::STORAGE.key),
                &options::STORAGE,
            ));
        }
        return Ok(StorageLocation::Memory);
    }
    if let Some(dir) = dir {
        return Ok(StorageLocation::Folder(dir));
    }
    if configuration.choice(&options::STORAGE).is_some() {
        let error = Error::config(format!(
            "{} = filesystem needs a folder: set {}",
            options::STORAGE.key,
            options::DIR.key
        ));
        return Err(
            configuration.located(error.with("option", options::DIR.key), &options::STORAGE)
        );
    }
    if configuration.duration(&options::INTERVAL).is_some() {
        let error = Error::config(format!(
            "checkpoints are on, but nothing says where they go: set {}, or {} = jobmanager to keep them in memory, where they end with the process",
            options::DIR.key,
            options::STORAGE.key
        ));
        return Err(
            configuration.located(error.with("option", options::DIR.key), &options::INTERVAL)
        );
    }
    Ok(StorageLocation::Memory)
}
