use std::collections::BTreeMap;

use state_api::{Error, Result};

/// The options of this backend. It has none so far: what limits live tables is set for all backends of that kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HashMapConfig {}

impl HashMapConfig {
    /// Reads options given as text.
    ///
    /// # Errors
    /// `Config` for an unknown option.
    pub fn parse(options: &BTreeMap<String, String>) -> Result<Self> {
        match options.keys().next() {
            None => Ok(Self {}),
            Some(name) => Err(Error::config(format!(
                "the state backend hashmap has no option {name:?}"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use state_api::ErrorKind;

    #[test]
    fn an_unknown_option_is_refused_by_name() {
        let options = BTreeMap::from([("cache".to_owned(), "1".to_owned())]);
        let error = HashMapConfig::parse(&options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.message().contains("\"cache\""));
        assert!(HashMapConfig::parse(&BTreeMap::new()).is_ok());
    }
}
