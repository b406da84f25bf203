use state_api::{BackendRegistry, Result};

/// Adds the state backends that cargo features of this crate bring; those of features that are off are declared absent, so that
/// who asks for one by name learns which feature to build with.
///
/// # Errors
/// `AlreadyExists` when a name is taken.
pub fn register_backends(registry: &mut BackendRegistry) -> Result<()> {
    #[cfg(feature = "fs")]
    backend_fs::register(registry)?;
    #[cfg(not(feature = "fs"))]
    ["fs", "filesystem"].map(|name| registry.declare_absent(name, "fs"));
    #[cfg(feature = "rocksdb")]
    backend_rocksdb::register(registry)?;
    #[cfg(not(feature = "rocksdb"))]
    registry.declare_absent("rocksdb", "rocksdb");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_is_there_or_names_its_feature() {
        let mut registry = BackendRegistry::new();
        register_backends(&mut registry).unwrap();
        let found = registry
            .get("rocksdb")
            .map(|backend| backend.name().to_owned());
        for name in ["fs", "filesystem"] {
            let found = registry.get(name).map(|backend| backend.name().to_owned());
            match found {
                Ok(found) => assert_eq!((cfg!(feature = "fs"), &*found), (true, "fs")),
                Err(error) => assert!(error.message().ends_with("the feature \"fs\"")),
            }
        }
        if cfg!(feature = "rocksdb") {
            assert_eq!(found.unwrap(), "rocksdb");
        } else {
            let error = found.unwrap_err();
            assert_eq!(error.kind(), state_api::ErrorKind::Config);
            assert!(
                error
                    .message()
                    .ends_with("build with the feature \"rocksdb\"")
            );
        }
    }
}
