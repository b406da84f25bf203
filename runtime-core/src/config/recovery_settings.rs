use std::collections::BTreeMap;

use state_api::{Error, Result};

use super::{Configuration, options};

/// Who owns the snapshot that a job starts from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClaimMode {
    /// The snapshot stays its owner's: the job never touches it, and its first checkpoint is full.
    #[default]
    NoClaim,
    /// The job takes it over and deletes it once it is subsumed.
    Claim,
    /// The job uses its files without owning them.
    Legacy,
}

/// What a job starts from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoverySettings {
    /// Checkpoint or savepoint to start from: its folder or its metadata file.
    pub path: Option<String>,
    /// Who owns it.
    pub claim_mode: ClaimMode,
    /// Whether state without an operator is dropped rather than refused.
    pub ignore_unclaimed_state: bool,
    /// The uids of the only operators to restore; without any, all are.
    pub restore_only: Vec<String>,
    /// New uids by old ones.
    pub rename: BTreeMap<String, String>,
}

impl RecoverySettings {
    /// Reads the settings of a configuration.
    ///
    /// # Errors
    /// `Config` when a renaming is not `old uid=new uid`.
    pub fn from_configuration(configuration: &Configuration) -> Result<Self> {
        let mut rename = BTreeMap::new();
        for pair in configuration.list(&options::RENAME) {
            let renaming = pair
                .split_once('=')
                .map(|(old, new)| (old.trim().to_owned(), new.trim().to_owned()))
                .filter(|(old, new)| !old.is_empty() && !new.is_empty() && !new.contains('='))
                .filter(|(old, _)| !rename.contains_key(old));
            let Some((old, new)) = renaming else {
                let error = Error::config(format!(
                    "{pair:?} is no renaming: write old uid=new uid, each old uid once"
                ))
                .with("option", options::RENAME.key);
                return Err(configuration.located(error, &options::RENAME));
            };
            rename.insert(old, new);
        }
        Ok(Self {
            restore_only: configuration.list(&options::RESTORE_ONLY),
            rename,
            path: configuration.string(&options::RECOVERY_PATH),
            claim_mode: match configuration.choice(&options::CLAIM_MODE) {
                Some("CLAIM") => ClaimMode::Claim,
                Some("LEGACY") => ClaimMode::Legacy,
                _ => ClaimMode::NoClaim,
            },
            ignore_unclaimed_state: configuration.bool(&options::IGNORE_UNCLAIMED),
        })
    }
}
