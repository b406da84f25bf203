use std::fmt;
use std::sync::Arc;

use state_api::{CheckpointId, JobId, OperatorUid, SnapshotKind, StateKind};

use crate::execution::OperatorFate;

/// What would become of every state of a checkpoint, and of every state of a job that starts from it.
///
/// `Display` writes it for people, an operator and a state a line: `assert!(report.is_compatible(), "{report}")`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompatReport {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The job that took it.
    pub job: JobId,
    /// What it was taken for.
    pub kind: SnapshotKind,
    /// The operators of the job in its order, then those that only the checkpoint has.
    pub operators: Vec<OperatorCompat>,
}

/// What would become of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorCompat {
    /// The operator: the job's name of it, or the checkpoint's if the job has none.
    pub uid: OperatorUid,
    /// What happens to it as a whole.
    pub fate: OperatorFate,
    /// Where the job has no such operator, the one without state whose uid is nearest: perhaps it was renamed.
    pub nearest: Option<OperatorUid>,
    /// Why the job would not start, beside what is said of each state, a line each.
    pub problems: Vec<String>,
    /// What the check can't see into, a line each.
    pub remarks: Vec<String>,
    /// The states and timers, the job's first.
    pub states: Vec<StateCompat>,
}

/// What would become of a state, or of a set of timers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateCompat {
    /// The name.
    pub name: Arc<str>,
    /// The kind: the job's, or the checkpoint's if the job has none.
    pub kind: StateKind,
    /// What happens.
    pub fate: StateFate,
}

/// What would happen to a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateFate {
    /// Its bytes are read as they are.
    AsIs,
    /// Each value is converted.
    Migrates {
        /// What changes, a line each.
        changes: Vec<String>,
    },
    /// The job would fail when it registers the state.
    Incompatible {
        /// Why, in one line.
        reason: String,
    },
    /// The checkpoint does not know it.
    StartsEmpty,
    /// The job does not register it: later checkpoints have it unchanged, until a job does again.
    Carried {
        /// The state of the job that starts empty and whose name is nearest: perhaps it was renamed.
        nearest: Option<Arc<str>>,
    },
    /// The job has no use for it, and later checkpoints don't have it.
    Dropped,
}

impl CompatReport {
    /// Returns whether the job would start from the checkpoint, without losing an operator's state unasked.
    #[must_use]
    pub fn is_compatible(&self) -> bool {
        self.operators.iter().all(OperatorCompat::is_compatible)
    }

    /// Returns whether the job has what the checkpoint has, byte by byte: nothing migrates, starts empty or is left over.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        let mut states = self.operators.iter().flat_map(|o| &o.states);
        self.is_compatible()
            && states.all(|state| state.fate == StateFate::AsIs)
            && self.operators.iter().all(|operator| {
                matches!(operator.fate, OperatorFate::Restored { renamed_from: None })
            })
    }

    /// Finds an operator by its uid.
    #[must_use]
    pub fn operator(&self, uid: &str) -> Option<&OperatorCompat> {
        self.operators.iter().find(|o| o.uid.as_str() == uid)
    }

    /// Finds what would happen to a state.
    #[must_use]
    pub fn state(&self, operator: &str, state: &str) -> Option<&StateFate> {
        self.operator(operator)?.state(state)
    }
}

impl OperatorCompat {
    /// Returns whether neither the operator nor one of its states keeps the job from starting.
    #[must_use]
    pub fn is_compatible(&self) -> bool {
        let fits = |state: &StateCompat| !matches!(state.fate, StateFate::Incompatible { .. });
        self.problems.is_empty() && self.states.iter().all(fits)
    }

    /// Finds what would happen to a state.
    #[must_use]
    pub fn state(&self, name: &str) -> Option<&StateFate> {
        let state = self.states.iter().find(|state| &*state.name == name)?;
        Some(&state.fate)
    }
}

impl fmt::Display for CompatReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.kind.is_savepoint() {
            "savepoint"
        } else {
            "checkpoint"
        };
        let verdict = if self.is_compatible() {
            "compatible"
        } else {
            "incompatible"
        };
        write!(
            f,
            "{what} {} of job {}: {verdict}",
            self.checkpoint, self.job
        )?;
        self.operators
            .iter()
            .try_for_each(|operator| write!(f, "\n  {operator}"))
    }
}

impl fmt::Display for OperatorCompat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.uid, self.fate)?;
        if let Some(nearest) = &self.nearest {
            write!(f, " (is it {nearest} now?)")?;
        }
        for problem in &self.problems {
            write!(f, "\n    PROBLEM: {problem}")?;
        }
        for state in &self.states {
            write!(f, "\n    {state}")?;
        }
        for remark in &self.remarks {
            write!(f, "\n    {remark}")?;
        }
        Ok(())
    }
}

impl fmt::Display for StateCompat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.name, self.kind, self.fate)
    }
}

impl fmt::Display for StateFate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AsIs => f.write_str("as is"),
            Self::Migrates { changes } => write!(f, "migrates: {}", changes.join("; ")),
            Self::Incompatible { reason } => write!(f, "INCOMPATIBLE: {reason}"),
            Self::StartsEmpty => f.write_str("starts empty"),
            Self::Carried { nearest: None } => f.write_str("not registered, carried along"),
            Self::Carried {
                nearest: Some(nearest),
            } => write!(f, "not registered, carried along (is it {nearest} now?)"),
            Self::Dropped => f.write_str("dropped"),
        }
    }
}
