use state_api::{Error, Result};

use super::{Configuration, options};

/// How many subtasks and key groups operators have that name none themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParallelismSettings {
    /// Number of subtasks, 1 to 32,768.
    pub parallelism: u32,
    /// Number of key groups, 1 to 32,768; `None` derives it from the parallelism.
    pub max_parallelism: Option<u32>,
}

impl Default for ParallelismSettings {
    fn default() -> Self {
        Self {
            parallelism: 1,
            max_parallelism: None,
        }
    }
}

impl ParallelismSettings {
    /// Reads the settings of a configuration.
    ///
    /// # Errors
    /// `Config` when there are more subtasks than key groups, or no key groups.
    pub fn from_configuration(configuration: &Configuration) -> Result<Self> {
        let parallelism = configuration.count(&options::PARALLELISM).unwrap_or(1);
        let max_parallelism = match configuration.number(&options::MAX_PARALLELISM) {
            None | Some(-1) => None,
            Some(groups) => Some(u32::try_from(groups).unwrap_or(0)),
        };
        let refuse = |why: String| {
            let error = Error::config(why).with("option", options::MAX_PARALLELISM.key);
            Err(configuration.located(error, &options::MAX_PARALLELISM))
        };
        match max_parallelism {
            Some(0) => refuse(format!(
                "{} must be -1 or at least 1",
                options::MAX_PARALLELISM.key
            )),
            Some(groups) if groups < parallelism => refuse(format!(
                "{} = {groups} is below {} = {parallelism}",
                options::MAX_PARALLELISM.key,
                options::PARALLELISM.key
            )),
            _ => Ok(Self {
                parallelism,
                max_parallelism,
            }),
        }
    }
}
