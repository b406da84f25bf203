//! What becomes of each operator's state when a job starts from a checkpoint, before it happens.
use checkpoint_storage::CheckpointMetadata;
use runtime_core::execution::{OperatorFate, OperatorRestore, RestorePlan};
use runtime_core::{ExecutionSettings, Job};
use state_api::{Error, Result};

use crate::inspect::Table;
use crate::terminal::bytes;

/// Works out what is restored; `reset` names the operators that start empty, beside those of the settings.
///
/// # Errors
/// When checkpoint and job don't fit, or a name fits neither.
pub(super) fn plan(
    job: &Job,
    settings: &mut ExecutionSettings,
    metadata: &CheckpointMetadata,
    reset: &[String],
) -> Result<RestorePlan> {
    let all = RestorePlan::new(job, settings, metadata)?;
    if reset.is_empty() {
        return Ok(all);
    }
    let ours: Vec<&str> = all
        .operators
        .iter()
        .filter(|each| each.new_parallelism.is_some())
        .map(|each| each.uid.as_str())
        .collect();
    if let Some(unknown) = reset.iter().find(|uid| !ours.contains(&uid.as_str())) {
        return Err(Error::config(format!(
            "--reset {unknown}: the job has no such operator; it has {}",
            ours.join(", ")
        )));
    }
    let rest = ours
        .iter()
        .filter(|uid| !reset.iter().any(|reset| reset == *uid));
    settings.restore_only = rest.map(|uid| (*uid).to_owned()).collect();
    if settings.restore_only.is_empty() {
        return Err(Error::config(
            "--reset names every operator: to begin with nothing leave out --from",
        ));
    }
    RestorePlan::new(job, settings, metadata)
}

/// Tells whether a person has to know: something is not simply restored.
pub(super) fn is_special(plan: &RestorePlan) -> bool {
    let plain = |each: &OperatorRestore| each.fate == OperatorFate::Restored { renamed_from: None };
    !plan.operators.iter().all(plain)
}

/// Writes a plan, an operator a line.
pub(super) fn in_words(plan: &RestorePlan) -> String {
    let what = if plan.kind.is_savepoint() {
        "savepoint"
    } else {
        "checkpoint"
    };
    let mut table = Table::new(&["operator", "state", "size", "subtasks"], &[2]);
    for each in &plan.operators {
        let fate = match &each.fate {
            OperatorFate::Restored { renamed_from: None } => "restored".to_owned(),
            OperatorFate::Restored {
                renamed_from: Some(old),
            } => format!("restored, was {old}"),
            OperatorFate::StartsEmpty => "starts empty, not in the checkpoint".to_owned(),
            OperatorFate::Reset => "reset, starts empty".to_owned(),
            OperatorFate::Dropped => "left behind, not in the job".to_owned(),
        };
        let subtasks = match (each.old_parallelism, each.new_parallelism) {
            (Some(old), Some(new)) if old != new => format!("{old} -> {new}"),
            (_, Some(now)) | (Some(now), None) => now.to_string(),
            (None, None) => "-".to_owned(),
        };
        let size = each
            .old_parallelism
            .map_or_else(|| "-".to_owned(), |_| bytes(each.bytes));
        table.row([each.uid.to_string(), fate, size, subtasks]);
    }
    format!(
        "from {what} {} of job {}\n{}",
        plan.checkpoint,
        plan.job,
        table.render(2)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use state_api::{CheckpointId, JobId, OperatorUid, SnapshotKind};

    fn operator(
        uid: &str,
        fate: OperatorFate,
        old: Option<u32>,
        new: Option<u32>,
    ) -> OperatorRestore {
        OperatorRestore {
            uid: OperatorUid::new(uid).unwrap(),
            fate,
            old_parallelism: old,
            new_parallelism: new,
            bytes: 2048,
        }
    }

    #[test]
    fn a_plan_is_an_operator_a_line() {
        let was = Some(OperatorUid::new("sum").unwrap());
        let mut plan = RestorePlan {
            checkpoint: CheckpointId(7),
            job: JobId::new("flights").unwrap(),
            kind: SnapshotKind::CanonicalSavepoint,
            operators: vec![
                operator(
                    "text",
                    OperatorFate::Restored { renamed_from: None },
                    Some(1),
                    Some(3),
                ),
                operator(
                    "count",
                    OperatorFate::Restored { renamed_from: was },
                    Some(2),
                    Some(2),
                ),
                operator("new", OperatorFate::StartsEmpty, None, Some(2)),
                operator("old", OperatorFate::Dropped, Some(4), None),
                operator("late", OperatorFate::Reset, Some(2), Some(2)),
            ],
        };
        assert_eq!(
            in_words(&plan),
            "\
from savepoint 7 of job flights
  operator  state                                   size  subtasks
  text      restored                             2.0 KiB  1 -> 3
  count     restored, was sum                    2.0 KiB  2
  new       starts empty, not in the checkpoint        -  2
  old       left behind, not in the job          2.0 KiB  4
  late      reset, starts empty                  2.0 KiB  2
"
        );
        assert!(is_special(&plan));
        plan.operators.truncate(1);
        assert!(!is_special(&plan));
    }
}
