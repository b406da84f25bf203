use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use checkpoint_storage::TokioExecutor;
use futures_util::future::LocalBoxFuture;
use managed_state::format::{CANONICAL, WRITE_BACK};
use state_api::{
    CheckpointId, CheckpointStorage, Clock, Error, JobId, KeyGroupRange, KeyGroupsHandle,
    KeyedHandle, MaxParallelism, OperatorUid, Result, Subtask,
};

/// The keyed state of one subtask, in a backend's own format.
#[derive(Clone, Debug)]
pub struct NativePart<'a> {
    /// The job that wrote it.
    pub job: &'a JobId,
    /// The operator.
    pub operator: &'a OperatorUid,
    /// The subtask.
    pub subtask: Subtask,
    /// Number of key groups of the operator.
    pub max_parallelism: MaxParallelism,
    /// Key groups that are wanted.
    pub range: KeyGroupRange,
    /// All handles of the subtask.
    pub handles: &'a [KeyedHandle],
}

/// What turning a part into the canonical format may use.
#[derive(Clone)]
pub struct Conversion {
    /// The checkpoint that the result belongs to.
    pub checkpoint: CheckpointId,
    /// Where the part is read from.
    pub from: Arc<dyn CheckpointStorage>,
    /// Where the result goes.
    pub to: Arc<dyn CheckpointStorage>,
    /// Threads to work on.
    pub executor: TokioExecutor,
    /// A local folder, empty and the conversion's own.
    pub local_dir: PathBuf,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
}

/// Reads a native format without the types of the states: by turning it into the canonical one.
///
/// # Contract
/// Implemented for backends with a format of their own; called on one thread at a time.
/// - The result has every entry of the wanted key groups once, as it is stored: expired ones too.
/// - Memory does not grow with the state, at most with one key group.
/// - Nothing is left in [`Conversion::to`] after an error but what its storage cleans up.
pub trait NativeFormat: Send + Sync {
    /// Returns the word under which the format stands in handles.
    fn format(&self) -> &str;

    /// Turns a part into canonical streams.
    ///
    /// # Errors
    /// `Corrupt`, naming the object, for bytes that are missing or damaged; those of the storage.
    fn to_canonical<'a>(
        &'a self,
        part: NativePart<'a>,
        cx: &'a Conversion,
    ) -> LocalBoxFuture<'a, Result<Vec<KeyGroupsHandle>>>;
}

/// The formats of keyed state that a program reads, by their words in handles.
///
/// The canonical one is always among them.
#[derive(Clone, Default)]
pub struct Formats {
    native: BTreeMap<String, Arc<dyn NativeFormat>>,
    /// Formats that exist but are not compiled in, with the cargo feature to build with.
    absent: BTreeMap<String, String>,
}

impl Formats {
    /// Creates a list with the canonical format alone.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a native format.
    ///
    /// # Errors
    /// `AlreadyExists` when its word is taken.
    pub fn register(&mut self, format: impl NativeFormat + 'static) -> Result<()> {
        let word = format.format().to_owned();
        if word == CANONICAL || word == WRITE_BACK || self.native.contains_key(&word) {
            return Err(Error::new(
                state_api::ErrorKind::AlreadyExists,
                format!("a format {word:?} is registered already"),
            ));
        }
        self.absent.remove(&word);
        self.native.insert(word, Arc::new(format));
        Ok(())
    }

    /// Names a format that this program was built without, and the cargo feature that brings it.
    pub fn declare_absent(&mut self, word: &str, feature: &str) {
        if !self.native.contains_key(word) {
            self.absent.insert(word.to_owned(), feature.to_owned());
        }
    }

    /// Returns the known words in alphabetical order.
    #[must_use]
    pub fn words(&self) -> Vec<&str> {
        let native = self.native.keys().map(String::as_str);
        let mut words: Vec<&str> = native.chain([CANONICAL]).collect();
        words.sort_unstable();
        words
    }

    /// Finds what reads the handles of a subtask; `None` if they are all canonical.
    ///
    /// # Errors
    /// `Unsupported` for an unknown format, naming it and the known ones; `Incompatible` for several native formats at once.
    pub(crate) fn of(&self, handles: &[KeyedHandle]) -> Result<Option<Arc<dyn NativeFormat>>> {
        let mut words = handles
            .iter()
            .map(KeyedHandle::format)
            .filter(|word| *word != WRITE_BACK && *word != CANONICAL);
        let Some(word) = words.next() else {
            // Dirty entries belong to the files of a store, which would be of a native format.
            if handles.iter().any(|handle| handle.format() == WRITE_BACK) {
                return Err(Error::unsupported(
                    "changes of an object cache without the snapshot that they belong to",
                ));
            }
            return Ok(None);
        };
        if words.any(|other| other != word) {
            return Err(Error::incompatible(
                "parts of the snapshot are in different formats",
            ));
        }
        if let Some(format) = self.native.get(word) {
            return Ok(Some(Arc::clone(format)));
        }
        let error = match self.absent.get(word) {
            Some(feature) => Error::unsupported(format!(
                "keyed state is in the format {word:?}, which this program was built without: build it with the feature {feature:?}"
            )),
            None => Error::unsupported(format!(
                "keyed state is in the format {word:?}, which this program can't read; it reads {}",
                self.words().join(", ")
            )),
        };
        Err(error)
    }
}

impl fmt::Debug for Formats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Formats").field(&self.words()).finish()
    }
}
