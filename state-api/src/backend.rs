use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::{
    ByteStore, Clock, Error, JobId, KeyGroupRange, LiveSnapshots, MaxParallelism, OperatorUid,
    Result, Subtask,
};

/// What a factory makes: one of the two representations of keyed state.
pub enum KeyedBackend {
    /// State as encoded bytes in an ordered store.
    Bytes(Box<dyn ByteStore>),
    /// State as live objects, made durable by a strategy.
    Live(Box<dyn LiveSnapshots>),
}

impl fmt::Debug for KeyedBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bytes(_) => "Bytes",
            Self::Live(_) => "Live",
        })
    }
}

/// What a factory learns about the backend it makes.
#[derive(Clone, Debug)]
pub struct BackendContext {
    /// The job.
    pub job: JobId,
    /// The operator.
    pub operator: OperatorUid,
    /// The subtask.
    pub subtask: Subtask,
    /// Number of key groups.
    pub max_parallelism: MaxParallelism,
    /// Key groups of the subtask.
    pub range: KeyGroupRange,
    /// Local folder for files of this process.
    pub local_dir: PathBuf,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Options under the backend's own prefix, as text.
    pub options: BTreeMap<String, String>,
}

/// Makes keyed backends of one kind.
///
/// # Contract
/// Implemented by backends; called once per keyed operator subtask, on the task's thread, before the state is restored.
pub trait BackendFactory: Send + Sync {
    /// Returns the name by which a configuration chooses it.
    fn name(&self) -> &str;

    /// Makes an empty backend.
    ///
    /// # Errors
    /// `Config` when an option is unknown or has a bad value.
    fn create(&self, cx: &BackendContext) -> Result<KeyedBackend>;
}

/// The backends that a program offers, by name. There is no global one.
#[derive(Clone, Default)]
pub struct BackendRegistry {
    factories: BTreeMap<String, Arc<dyn BackendFactory>>,
    /// Names that exist but are not compiled in, with the cargo feature to build with.
    absent: BTreeMap<String, String>,
}

impl BackendRegistry {
    /// Creates a registry without backends.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a factory under its name.
    ///
    /// # Errors
    /// `AlreadyExists` when the name is taken.
    pub fn register(&mut self, factory: impl BackendFactory + 'static) -> Result<()> {
        let name = factory.name().to_owned();
        self.register_as(&name, Arc::new(factory))
    }

    /// Adds a factory under another name.
    ///
    /// # Errors
    /// `AlreadyExists` when the name is taken.
    pub fn register_as(&mut self, name: &str, factory: Arc<dyn BackendFactory>) -> Result<()> {
        if self.factories.contains_key(name) {
            return Err(Error::new(
                crate::ErrorKind::AlreadyExists,
                format!("a state backend named {name:?} is registered already"),
            ));
        }
        self.absent.remove(name);
        self.factories.insert(name.to_owned(), factory);
        Ok(())
    }

    /// Names a backend that this program was built without, and the cargo feature that brings it.
    pub fn declare_absent(&mut self, name: &str, feature: &str) {
        if !self.factories.contains_key(name) {
            self.absent.insert(name.to_owned(), feature.to_owned());
        }
    }

    /// Returns the known names in alphabetical order.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        self.factories.keys().map(String::as_str).collect()
    }

    /// Finds a factory.
    ///
    /// # Errors
    /// `Config` for an unknown name, listing the known ones, or for one that is not compiled in, naming the feature.
    pub fn get(&self, name: &str) -> Result<Arc<dyn BackendFactory>> {
        if let Some(factory) = self.factories.get(name) {
            return Ok(Arc::clone(factory));
        }
        if let Some(feature) = self.absent.get(name) {
            return Err(Error::config(format!(
                "the state backend {name:?} is not compiled in: build with the feature {feature:?}"
            )));
        }
        Err(Error::config(format!(
            "unknown state backend {name:?}; known: {}",
            self.names().join(", ")
        )))
    }
}

impl fmt::Debug for BackendRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackendRegistry")
            .field("names", &self.names())
            .finish()
    }
}
