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
}

impl RecoverySettings {
    /// Reads the settings of a configuration.
    #[must_use]
    pub fn from_configuration(configuration: &Configuration) -> Self {
        Self {
            path: configuration.string(&options::RECOVERY_PATH),
            claim_mode: match configuration.choice(&options::CLAIM_MODE) {
                Some("CLAIM") => ClaimMode::Claim,
                Some("LEGACY") => ClaimMode::Legacy,
                _ => ClaimMode::NoClaim,
            },
            ignore_unclaimed_state: configuration.bool(&options::IGNORE_UNCLAIMED),
        }
    }
}
