use std::collections::BTreeMap;
use std::sync::Arc;

use state_api::{BackendFactory, BackendRegistry, Error, ObjectCacheBudget, Result};

use super::{Configuration, options};
use state_api::option_text::nearest;

/// Backends of the project, with the cargo feature that brings each.
const BUILT_IN: &[(&str, &str)] = &[("hashmap", "hashmap"), ("fs", "fs"), ("rocksdb", "rocksdb")];

/// Which state backend a job uses and with which options.
#[derive(Clone, PartialEq, Eq)]
pub struct BackendSettings {
    /// Name of the factory, with old names replaced by the present ones.
    pub name: String,
    /// The backend's own options, as text, without their prefix.
    pub options: BTreeMap<String, String>,
    /// Memory for live objects in front of a byte store, in bytes, all subtasks together; 0 is no such cache.
    pub object_cache_bytes: u64,
}

impl Default for BackendSettings {
    fn default() -> Self {
        Self {
            name: "hashmap".to_owned(),
            options: BTreeMap::new(),
            object_cache_bytes: 0,
        }
    }
}

impl BackendSettings {
    /// Reads the settings of a configuration.
    #[must_use]
    pub fn from_configuration(configuration: &Configuration) -> Self {
        let given = configuration.string(&options::BACKEND).unwrap_or_default();
        let name = present_name(&given);
        // Options may stand under the name as it was given or under the present one, which holds.
        let mut own = configuration.backend_options(&given);
        own.extend(configuration.backend_options(&name));
        // What holds for checkpoints of all backends is told to those that can do something about it.
        if name == "rocksdb" && configuration.bool(&options::INCREMENTAL) {
            own.entry("incremental".to_owned())
                .or_insert_with(|| "true".to_owned());
        }
        Self {
            name,
            options: own,
            object_cache_bytes: configuration.bytes(&options::OBJECT_CACHE),
        }
    }

    /// Returns a budget for object caches, to be shared by all subtasks of the process; `None` if there are to be none.
    #[must_use]
    pub fn object_cache(&self) -> Option<Arc<ObjectCacheBudget>> {
        let bytes = usize::try_from(self.object_cache_bytes).unwrap_or(usize::MAX);
        (bytes > 0).then(|| ObjectCacheBudget::new(bytes))
    }

    /// Tells whether a backend name is one that brings checkpoints in the coordinator's memory with it.
    pub(super) fn implies_memory_storage(configuration: &Configuration) -> bool {
        let given = configuration.string(&options::BACKEND).unwrap_or_default();
        matches!(plain(&given).as_str(), "jobmanager" | "memory")
    }

    /// Finds the factory, and checks that options are set for known backends only.
    ///
    /// # Errors
    /// `Config` when the backend is unknown, naming the nearest one, or not compiled in, naming the cargo feature to build with.
    pub fn factory(
        &self,
        configuration: &Configuration,
        registry: &BackendRegistry,
    ) -> Result<Arc<dyn BackendFactory>> {
        let known = || {
            registry
                .names()
                .into_iter()
                .chain(BUILT_IN.iter().map(|(name, _)| *name))
        };
        let factory = registry.get(&self.name).map_err(|unknown| {
            let error = match BUILT_IN.iter().find(|(name, _)| *name == self.name) {
                Some((name, feature)) => Error::config(format!(
                    "the state backend {name:?} is not compiled in: build with the feature {feature:?}"
                )),
                None => match nearest(&self.name, known()) {
                    Some(near) => Error::config(format!(
                        "unknown state backend {:?}; did you mean {near:?}? known: {}",
                        self.name,
                        registry.names().join(", ")
                    )),
                    None => unknown,
                },
            };
            configuration.located(error.with("option", options::BACKEND.key), &options::BACKEND)
        })?;
        for (name, key) in configuration.configured_backends() {
            let name = present_name(name);
            if known().any(|known| known == name) || name == self.name {
                continue;
            }
            let hint = nearest(&name, known()).map_or_else(String::new, |near| {
                format!("; did you mean \"state.backend.{near}.…\"?")
            });
            let error = Error::config(format!(
                "unknown option {key:?}: no state backend is named {name:?}{hint}"
            ));
            let origin = configuration
                .origin(key)
                .map(ToString::to_string)
                .unwrap_or_default();
            return Err(error.with("option", key).with("file", origin));
        }
        Ok(factory)
    }
}

impl std::fmt::Debug for BackendSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown: BTreeMap<_, _> = self
            .options
            .iter()
            .map(|(key, text)| (key, super::secrets::masked(key, text)))
            .collect();
        f.debug_struct("BackendSettings")
            .field("name", &self.name)
            .field("options", &shown)
            .field("object_cache_bytes", &self.object_cache_bytes)
            .finish()
    }
}

/// Replaces the names that Flink's backends had before, whatever their case.
fn present_name(name: &str) -> String {
    match plain(name).as_str() {
        "jobmanager" | "memory" | "hashmap" => "hashmap".to_owned(),
        "filesystem" | "fs" => "fs".to_owned(),
        "rocksdb" => "rocksdb".to_owned(),
        _ => name.to_owned(),
    }
}

fn plain(name: &str) -> String {
    name.trim().to_ascii_lowercase()
}
