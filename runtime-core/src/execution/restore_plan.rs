use std::collections::BTreeMap;
use std::fmt;

use checkpoint_storage::{CheckpointMetadata, OperatorMetadata};
use state_api::{CheckpointId, Error, HashId, JobId, OperatorUid, Result, SnapshotKind};

use super::ExecutionSettings;
use super::unread::unread_in_flight;
use crate::assign::restored_max_parallelism;
use crate::job::{Job, RunPlan, Vertex};
use state_api::option_text::nearest;

/// What becomes of each operator when a job starts from a checkpoint: worked out before anything is applied.
///
/// `Display` writes it for people, an operator a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestorePlan {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The job that took it.
    pub job: JobId,
    /// What it was taken for.
    pub kind: SnapshotKind,
    /// The operators of the job in its order, then those that only the checkpoint has.
    pub operators: Vec<OperatorRestore>,
}

/// What becomes of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorRestore {
    /// The operator: the job's name of it, or the checkpoint's if the job has none.
    pub uid: OperatorUid,
    /// What happens.
    pub fate: OperatorFate,
    /// Number of subtasks in the checkpoint, if it knows the operator.
    pub old_parallelism: Option<u32>,
    /// Number of subtasks in the job, if it has the operator.
    pub new_parallelism: Option<u32>,
    /// Bytes of state in the checkpoint.
    pub bytes: u64,
}

/// What happens to an operator's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperatorFate {
    /// It gets the state that the checkpoint has under its uid, or under an older one.
    Restored {
        /// The uid in the checkpoint, if it was another.
        renamed_from: Option<OperatorUid>,
    },
    /// The checkpoint does not know it.
    StartsEmpty,
    /// The checkpoint knows it, but it starts empty on purpose.
    Reset,
    /// The job does not have it: what the checkpoint has of it is dropped, as was allowed.
    Dropped,
}

/// Which operator of the checkpoint an operator of the job gets the state of.
#[derive(Clone, Debug, Default)]
pub(crate) struct RestoreSources(BTreeMap<OperatorUid, OperatorUid>);

impl RestoreSources {
    /// Returns what the checkpoint has for an operator.
    pub(crate) fn of<'m>(
        &self,
        metadata: &'m CheckpointMetadata,
        uid: &OperatorUid,
    ) -> Option<&'m OperatorMetadata> {
        metadata.operator(self.0.get(uid)?.as_str())
    }
}

/// Pairs the operators of a job with those of a checkpoint, without a look at what is in them; with the operators of the
/// checkpoint that have state and no counterpart.
pub(crate) fn pair<'m>(
    vertices: &[Vertex],
    settings: &ExecutionSettings,
    metadata: &'m CheckpointMetadata,
) -> Result<(RestoreSources, Vec<&'m OperatorMetadata>)> {
    let mut rules = Rules::new(settings, metadata, vertices, true)?;
    rules.may_drop = true;
    let dropped = rules.dropped()?.into_iter();
    let dropped = dropped.filter_map(|o| metadata.operator(o.uid.as_str()));
    Ok((RestoreSources(rules.sources()), dropped.collect()))
}

impl RestorePlan {
    /// Works the plan out for the first run of a job.
    ///
    /// # Errors
    /// `Incompatible` when state would be dropped that may not be, when records in flight would not be read, or when the key
    /// groups don't fit; `Config` when a name
    /// in the settings fits nothing, with the nearest one that does.
    pub fn new(
        job: &Job,
        settings: &ExecutionSettings,
        metadata: &CheckpointMetadata,
    ) -> Result<Self> {
        Self::with_sources(job, settings, metadata, true).map(|(plan, _, _)| plan)
    }

    /// As [`new`](Self::new), with what a run is started from; a later run of the job (`first` is false) goes on from a
    /// checkpoint of its own, to which renaming and resetting don't apply.
    pub(super) fn with_sources(
        job: &Job,
        settings: &ExecutionSettings,
        metadata: &CheckpointMetadata,
        first: bool,
    ) -> Result<(Self, RunPlan, RestoreSources)> {
        let vertices = job.vertices();
        let rules = Rules::new(settings, metadata, &vertices, first)?;
        let sources = RestoreSources(rules.sources());
        let plan = job.plan(|uid, shape| match sources.of(metadata, uid) {
            Some(operator) => restored_max_parallelism(shape, operator.max_parallelism).map(Some),
            None => Ok(None),
        })?;
        let mut operators = Vec::new();
        for keyed in vertices.iter().filter_map(|vertex| vertex.keyed.as_ref()) {
            let hash = sources.of(metadata, keyed).map(|operator| operator.hash);
            if let Some(hash) = hash.filter(|hash| *hash != HashId::default()) {
                return Err(Error::incompatible(other_hash(hash))
                    .with("checkpoint", metadata.checkpoint)
                    .with("operator", keyed));
            }
        }
        for (index, vertex) in vertices.iter().enumerate() {
            for uid in &vertex.uids {
                let known = rules.known(uid);
                let operator = known.and_then(|uid| metadata.operator(uid.as_str()));
                let fate = match (known, sources.0.contains_key(uid)) {
                    (None, _) => OperatorFate::StartsEmpty,
                    (Some(_), false) => OperatorFate::Reset,
                    (Some(old), true) => OperatorFate::Restored {
                        renamed_from: (old != uid).then(|| old.clone()),
                    },
                };
                operators.push(OperatorRestore {
                    uid: uid.clone(),
                    fate,
                    old_parallelism: operator.map(|o| o.parallelism),
                    new_parallelism: Some(plan[index].parallelism),
                    bytes: operator.map_or(0, bytes_of),
                });
            }
        }
        for operator in rules.dropped()? {
            tracing::warn!(checkpoint = metadata.checkpoint.0, operator = %operator.uid, "state is dropped");
            operators.push(OperatorRestore {
                uid: operator.uid.clone(),
                fate: OperatorFate::Dropped,
                old_parallelism: Some(operator.parallelism),
                new_parallelism: None,
                bytes: bytes_of(operator),
            });
        }
        let unread = unread_in_flight(&vertices, settings, metadata, &sources);
        if let Some((operator, reason)) = unread.first_key_value() {
            return Err(Error::incompatible(*reason)
                .with("checkpoint", metadata.checkpoint)
                .with("operator", operator));
        }
        let restore = Self {
            checkpoint: metadata.checkpoint,
            job: metadata.job.clone(),
            kind: metadata.kind,
            operators,
        };
        Ok((restore, plan, sources))
    }
}

/// Says that an operator's state lies in other key groups than a job would look for it in.
pub(crate) fn other_hash(hash: HashId) -> String {
    let ours = HashId::default();
    format!("keys are dealt out by hash {hash} in the checkpoint, and by {ours} in a job")
}

fn bytes_of(operator: &OperatorMetadata) -> u64 {
    operator.parts().map(|(_, part)| part.len()).sum()
}

/// The settings, checked against the job and the checkpoint.
struct Rules<'a> {
    metadata: &'a CheckpointMetadata,
    may_drop: bool,
    ours: Vec<&'a OperatorUid>,
    /// Old uids by new ones.
    renamed: BTreeMap<&'a str, &'a str>,
    /// The only operators to restore; empty for all.
    only: Vec<&'a str>,
}

impl<'a> Rules<'a> {
    fn new(
        settings: &'a ExecutionSettings,
        metadata: &'a CheckpointMetadata,
        vertices: &'a [Vertex],
        first: bool,
    ) -> Result<Self> {
        let mut rules = Self {
            metadata,
            may_drop: settings.allow_non_restored_state,
            ours: vertices.iter().flat_map(|vertex| &vertex.uids).collect(),
            renamed: BTreeMap::new(),
            only: Vec::new(),
        };
        if !first {
            return Ok(rules);
        }
        for (old, new) in &settings.rename_operators {
            rules.rename(old, new)?;
        }
        for uid in &settings.restore_only {
            rules.check_ours(uid, "execution.state-recovery.restore-only")?;
            rules.only.push(uid);
        }
        Ok(rules)
    }

    fn rename(&mut self, old: &'a str, new: &'a str) -> Result<()> {
        const OPTION: &str = "execution.state-recovery.rename";
        self.check_ours(new, OPTION)?;
        if self.metadata.operator(old).is_none() {
            // A later start from a checkpoint that has the new name already.
            if self.metadata.operator(new).is_some() {
                return Ok(());
            }
            let theirs = self.metadata.operators.iter().map(|o| o.uid.as_str());
            return Err(unknown("the checkpoint", old, nearest(old, theirs), OPTION));
        }
        if self.metadata.operator(new).is_some() {
            return Err(Error::config(format!(
                "the checkpoint has both operators {old:?} and {new:?}: renaming one to the other would drop state"
            ))
            .with("option", OPTION));
        }
        if let Some(other) = self.renamed.insert(new, old) {
            return Err(Error::config(format!(
                "operators {other:?} and {old:?} can't both become {new:?}"
            ))
            .with("option", OPTION));
        }
        Ok(())
    }

    fn check_ours(&self, uid: &str, option: &'static str) -> Result<()> {
        let mut ours = self.ours.iter().map(|uid| uid.as_str());
        if ours.any(|known| known == uid) {
            return Ok(());
        }
        let ours = self.ours.iter().map(|uid| uid.as_str());
        Err(unknown("the job", uid, nearest(uid, ours), option))
    }

    /// Returns what the checkpoint calls an operator of the job, if it knows it.
    fn known(&self, uid: &OperatorUid) -> Option<&'a OperatorUid> {
        let old = self.renamed.get(uid.as_str()).copied();
        let operator = self.metadata.operator(old.unwrap_or(uid.as_str()))?;
        Some(&operator.uid)
    }

    fn sources(&self) -> BTreeMap<OperatorUid, OperatorUid> {
        let wanted = self
            .ours
            .iter()
            .filter(|uid| self.only.is_empty() || self.only.contains(&uid.as_str()));
        wanted
            .filter_map(|uid| Some(((*uid).clone(), self.known(uid)?.clone())))
            .collect()
    }

    /// Returns the operators with state that the job does not have.
    fn dropped(&self) -> Result<Vec<&'a OperatorMetadata>> {
        let known = |operator: &OperatorMetadata| {
            let of_ours = self.ours.iter().filter_map(|uid| self.known(uid));
            of_ours.into_iter().any(|uid| *uid == operator.uid)
        };
        let lost = self.metadata.operators.iter();
        let lost: Vec<_> = lost
            .filter(|operator| !known(operator) && operator.parts().next().is_some())
            .collect();
        match lost.first() {
            Some(operator) if !self.may_drop => {
                // Perhaps it lives on under another name, of which the checkpoint knows nothing.
                let empty = self.ours.iter().filter(|uid| self.known(uid).is_none());
                let near = nearest(operator.uid.as_str(), empty.map(|uid| uid.as_str()));
                let error = Error::incompatible(
                    "the checkpoint has state of an operator that the job does not have: give the operator its uid back, rename it, or allow its state to be dropped",
                )
                .with("checkpoint", self.metadata.checkpoint)
                .with("operator", &operator.uid);
                Err(match near {
                    Some(near) => error.with("nearest operator without state", near),
                    None => error,
                })
            }
            _ => Ok(lost),
        }
    }
}

fn unknown(who: &str, uid: &str, near: Option<&str>, option: &'static str) -> Error {
    let hint = near.map_or(String::new(), |near| format!(": did you mean {near:?}?"));
    Error::config(format!("{who} has no operator {uid:?}{hint}")).with("option", option)
}

impl fmt::Display for RestorePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.kind.is_savepoint() {
            "savepoint"
        } else {
            "checkpoint"
        };
        write!(f, "from {what} {} of job {}:", self.checkpoint, self.job)?;
        self.operators
            .iter()
            .try_for_each(|operator| write!(f, "\n  {operator}"))
    }
}

impl fmt::Display for OperatorFate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Restored { renamed_from: None } => f.write_str("restored"),
            Self::Restored {
                renamed_from: Some(old),
            } => write!(f, "restored from {old}"),
            Self::StartsEmpty => f.write_str("starts empty"),
            Self::Reset => f.write_str("reset: starts empty on purpose"),
            Self::Dropped => f.write_str("state is dropped"),
        }
    }
}

impl fmt::Display for OperatorRestore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.uid, self.fate)?;
        if self.old_parallelism.is_some() {
            write!(f, ", {} bytes", self.bytes)?;
        }
        match (self.old_parallelism, self.new_parallelism) {
            (Some(old), Some(new)) if old != new => write!(f, ", parallelism {old} -> {new}"),
            (_, Some(now)) | (Some(now), None) => write!(f, ", parallelism {now}"),
            (None, None) => Ok(()),
        }
    }
}
