use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How a running job stands, as it goes over the socket and as `--json` prints it.
///
/// Fields may be added; readers pass over what they don't know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunReport {
    /// The job id.
    pub(crate) job: String,
    /// The id of its process.
    pub(crate) process: u32,
    /// The version of its program.
    pub(crate) version: String,
    /// When the report was made, in milliseconds of wall-clock time.
    pub(crate) now_ms: i64,
    /// What it is doing, in one word.
    pub(crate) state: String,
    /// Why, if there is more to say.
    pub(crate) because: Option<String>,
    /// How often the job was started, this time included.
    pub(crate) attempt: u64,
    /// Restarts within the attempt.
    pub(crate) restarts: u32,
    /// Milliseconds since the attempt began.
    pub(crate) uptime_ms: u64,
    /// The checkpoint that the current run began from.
    pub(crate) restored: Option<Restored>,
    /// Records that the process has read.
    pub(crate) records: u64,
    /// Whether checkpoints are taken, where they go and how long they stay, in words.
    pub(crate) checkpoints: String,
    /// Checkpoints and savepoints that completed in this attempt.
    pub(crate) completed: u64,
    /// Those that were given up, by reason.
    pub(crate) given_up: BTreeMap<String, u64>,
    /// Requests that wait for their turn.
    pub(crate) waiting_requests: usize,
    /// Checkpoints whose deletion they wait for; 0 if it is something else.
    #[serde(default)]
    pub(crate) waiting_for_deletions: usize,
    /// Checkpoints under way, oldest first.
    pub(crate) pending: Vec<Pending>,
    /// The last checkpoints that ended, oldest first.
    pub(crate) history: Vec<Ended>,
    /// The last checkpoint that completed.
    pub(crate) last_completed: Option<Ended>,
    /// The last savepoint that completed.
    pub(crate) last_savepoint: Option<Ended>,
    /// The last one that was given up.
    pub(crate) last_given_up: Option<Ended>,
}

/// What a run began from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Restored {
    /// The checkpoint's id.
    pub(crate) id: u64,
    /// Where it was found.
    pub(crate) path: Option<String>,
    /// Bytes that were read out of copies on local disk.
    #[serde(default)]
    pub(crate) bytes_from_copies: u64,
    /// Bytes that were read out of the store.
    #[serde(default)]
    pub(crate) bytes_from_store: u64,
}

/// A checkpoint under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pending {
    /// Its id.
    pub(crate) id: u64,
    /// What it is.
    pub(crate) kind: String,
    /// How far it is, in words.
    pub(crate) phase: String,
    /// Milliseconds since its trigger.
    pub(crate) age_ms: u64,
    /// Milliseconds until it expires.
    pub(crate) left_ms: u64,
    /// Subtasks that are done.
    pub(crate) done: usize,
    /// Subtasks that take part.
    pub(crate) subtasks: usize,
    /// What is known of each subtask that is not done.
    pub(crate) missing: Vec<Missing>,
}

/// A subtask that a checkpoint waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Missing {
    /// Which one.
    pub(crate) subtask: String,
    /// The names of its operators.
    pub(crate) operators: String,
    /// How far it is, in words; `None` while no barrier has reached it.
    pub(crate) phase: Option<String>,
    /// For how long, in milliseconds.
    pub(crate) for_ms: u64,
    /// Bytes so far: processed while aligning, recorded in flight, or written.
    pub(crate) bytes: u64,
    /// The subtasks in front of it whose barrier it waits for.
    pub(crate) waits_for: Vec<String>,
    /// All of it in one line for people.
    pub(crate) text: String,
}

/// A checkpoint that ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ended {
    /// Its id.
    pub(crate) id: u64,
    /// What it is.
    pub(crate) kind: String,
    /// Why it was given up; `None` if it completed.
    pub(crate) given_up: Option<String>,
    /// When it was triggered, in milliseconds of wall-clock time.
    pub(crate) trigger_ms: i64,
    /// Milliseconds from the trigger to the end.
    pub(crate) duration_ms: u64,
    /// Bytes that it refers to.
    pub(crate) total_bytes: u64,
    /// Bytes that were written for it.
    pub(crate) new_bytes: u64,
    /// Where it is.
    pub(crate) path: Option<String>,
    /// What each subtask contributed.
    pub(crate) subtasks: Vec<SubtaskCost>,
}

/// What a subtask contributed to a checkpoint, and what it took.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SubtaskCost {
    /// Which one.
    pub(crate) subtask: String,
    /// The names of its operators.
    pub(crate) operators: String,
    /// Milliseconds from the trigger to the first barrier.
    pub(crate) start_delay_ms: u64,
    /// Nanoseconds from the first barrier to the last.
    pub(crate) alignment_ns: u64,
    /// Bytes of records processed meanwhile.
    pub(crate) alignment_bytes: u64,
    /// Bytes of records in flight that became part of it.
    #[serde(default)]
    pub(crate) persisted_bytes: u64,
    /// Nanoseconds that its thread was held up.
    pub(crate) sync_ns: u64,
    /// Nanoseconds until everything was durable.
    pub(crate) async_ns: u64,
    /// Bytes that it refers to.
    pub(crate) total_bytes: u64,
    /// Bytes that were written for it.
    pub(crate) new_bytes: u64,
}

impl Ended {
    /// Returns when it ended, in milliseconds of wall-clock time.
    pub(crate) fn ended_ms(&self) -> i64 {
        self.trigger_ms.saturating_add_unsigned(self.duration_ms)
    }

    /// Returns the largest of a figure over its subtasks.
    pub(crate) fn largest(&self, figure: impl Fn(&SubtaskCost) -> u64) -> u64 {
        self.subtasks.iter().map(figure).max().unwrap_or(0)
    }
}
