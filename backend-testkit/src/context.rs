use std::path::Path;
use std::sync::Arc;

use state_api::{BackendContext, JobId, ManualClock, MaxParallelism, OperatorUid, Subtask};

/// Describes a subtask to a backend that is opened without a job: the only one of operator `op` of job `job`, with all key groups, and
/// with a clock that stands at 0. A test changes what is to be different.
///
/// # Panics
/// When there can't be so many key groups.
#[expect(
    clippy::unwrap_used,
    reason = "a wrong number fails the test that gave it"
)]
#[must_use]
pub fn only_subtask(
    max_parallelism: u32,
    local_dir: &Path,
    options: &[(&str, &str)],
) -> BackendContext {
    let max_parallelism = MaxParallelism::new(max_parallelism).unwrap();
    let pair = |(key, text): &(&str, &str)| ((*key).to_owned(), (*text).to_owned());
    BackendContext {
        job: JobId::new("job").unwrap(),
        operator: OperatorUid::new("op").unwrap(),
        subtask: Subtask {
            index: 0,
            parallelism: 1,
        },
        max_parallelism,
        range: max_parallelism.all_groups(),
        local_dir: local_dir.to_owned(),
        clock: Arc::new(ManualClock::at(0)),
        options: options.iter().map(pair).collect(),
    }
}
