//! Every option that a configuration may set, with Flink's names and defaults.

use super::{ConfigOption, Support, ValueKind};
use std::time::Duration;

const NO_LIMIT: Duration = Duration::MAX;
const YEAR: Duration = Duration::from_secs(365 * 86_400);
const MS: Duration = Duration::from_millis(1);
const SHORTEST: Duration = Duration::from_millis(10);

const fn count(min: i64) -> ValueKind {
    ValueKind::Number {
        min,
        max: u32::MAX as i64,
        infinite: false,
    }
}

const fn span(min: Duration) -> ValueKind {
    ValueKind::Duration { min, max: NO_LIMIT }
}

const ANY_SIZE: ValueKind = ValueKind::MemorySize { max: u64::MAX };

macro_rules! options {
    ($($name:ident: $support:ident $key:literal ($($old:literal),*) $kind:expr, $default:expr, $meaning:literal;)*) => {
        $(
            #[doc = concat!("`", $key, "`: ", $meaning)]
            pub static $name: ConfigOption = ConfigOption {
                key: $key,
                old_keys: &[$($old),*],
                kind: $kind,
                default: $default,
                support: Support::$support,
                meaning: $meaning,
            };
        )*

        /// All options, in the order of the documentation.
        pub static ALL: &[&ConfigOption] = &[$(&$name),*];
    };
}

options! {
    INTERVAL: Offered "execution.checkpointing.interval" () span(SHORTEST), None,
        "Period of automatic checkpoints; unset switches them off.";
    MODE: Offered "execution.checkpointing.mode" () ValueKind::Choice(&["EXACTLY_ONCE", "AT_LEAST_ONCE"]), Some("EXACTLY_ONCE"),
        "Whether barriers are aligned or only counted.";
    TIMEOUT: Offered "execution.checkpointing.timeout" () span(SHORTEST), Some("10 min"),
        "Age at which a pending checkpoint is aborted.";
    MIN_PAUSE: Offered "execution.checkpointing.min-pause" () ValueKind::Duration { min: Duration::ZERO, max: YEAR }, Some("0 ms"),
        "Least time from the end of a checkpoint to the next periodic one.";
    MAX_CONCURRENT: Offered "execution.checkpointing.max-concurrent-checkpoints" () count(1), Some("1"),
        "Number of checkpoints that may be pending at a time.";
    TOLERABLE_FAILURES: Offered "execution.checkpointing.tolerable-failed-checkpoints" () count(0), Some("0"),
        "Consecutive counted failures that the job outlives.";
    RETENTION: Offered "execution.checkpointing.externalized-checkpoint-retention" ()
        ValueKind::Choice(&["NO_EXTERNALIZED_CHECKPOINTS", "DELETE_ON_CANCELLATION", "RETAIN_ON_CANCELLATION", "ALWAYS"]),
        Some("NO_EXTERNALIZED_CHECKPOINTS"),
        "What happens to the last checkpoints when the job ends; `ALWAYS` keeps them even when it finishes.";
    NUM_RETAINED: Offered "execution.checkpointing.num-retained" ("state.checkpoints.num-retained") count(1), Some("1"),
        "Number of completed checkpoints that are kept.";
    DIR: Offered "execution.checkpointing.dir" ("state.checkpoints.dir") ValueKind::Text, None,
        "Folder for checkpoints; setting it selects filesystem storage.";
    SAVEPOINT_DIR: Offered "execution.checkpointing.savepoint-dir" ("state.savepoints.dir", "savepoints.state.backend.fs.dir") ValueKind::Text, None,
        "Folder for savepoints.";
    STORAGE: Offered "execution.checkpointing.storage" ("state.checkpoint-storage") ValueKind::Choice(&["jobmanager", "filesystem", "memory"]), None,
        "Where checkpoints live: `jobmanager` (or `memory`) keeps them in the coordinator's memory.";
    MEMORY_STORAGE_LIMIT: Offered "execution.checkpointing.memory-storage.max-state-size" () ANY_SIZE, Some("5 mb"),
        "Largest state that the coordinator's memory takes.";
    CREATE_SUBDIR: Offered "execution.checkpointing.create-subdir" ("state.checkpoints.create-subdir") ValueKind::Bool, Some("true"),
        "Whether each job has a folder of its own under the checkpoint folder.";
    INCREMENTAL: Offered "execution.checkpointing.incremental" ("state.backend.incremental") ValueKind::Bool, Some("false"),
        "Whether backends that can write only what changed.";
    INLINE_THRESHOLD: Offered "execution.checkpointing.data-inline-threshold" ("state.storage.fs.memory-threshold", "state.backend.fs.memory-threshold")
        ValueKind::MemorySize { max: 1 << 20 }, Some("20 kb"),
        "Smaller pieces go inline into the metadata.";
    WRITE_BUFFER_SIZE: Offered "execution.checkpointing.write-buffer-size" ("state.storage.fs.write-buffer-size")
        ValueKind::MemorySize { max: 1 << 30 }, Some("4096"),
        "Bytes that a checkpoint stream gathers before it writes; at least the inline threshold.";
    CLEANER_PARALLEL: Offered "execution.checkpointing.cleaner.parallel-mode" ("state.checkpoint.cleaner.parallel-mode") ValueKind::Bool, Some("true"),
        "Whether the pieces of a checkpoint are deleted several at a time.";
    AFTER_TASKS_FINISH: DefaultOnly "execution.checkpointing.checkpoints-after-tasks-finish" ("execution.checkpointing.checkpoints-after-tasks-finish.enabled")
        ValueKind::Bool, Some("true"),
        "Whether checkpoints go on when some tasks have finished.";
    SNAPSHOT_COMPRESSION: Offered "execution.checkpointing.snapshot-compression" () ValueKind::Choice(&["false", "true", "lz4", "zstd"]), Some("false"),
        "How new objects of checkpoints are compressed; `true` is LZ4. What there is already is read as it is.";
    ENCRYPTION_KEYS_FILE: Offered "execution.checkpointing.encryption.keys-file" () ValueKind::Text, None,
        "File of keys; setting it encrypts new objects of checkpoints with the first of them, and all of them decrypt.";
    ENCRYPTION_KEYS_ENV: Offered "execution.checkpointing.encryption.keys-env" () ValueKind::Text, None,
        "Environment variable that holds the keys in place of a file.";
    SIGNING_KEYS_FILE: Offered "execution.checkpointing.signing.keys-file" () ValueKind::Text, None,
        "File of keys; setting it signs new metadata of checkpoints with the first of them, and all of them are accepted.";
    SIGNING_KEYS_ENV: Offered "execution.checkpointing.signing.keys-env" () ValueKind::Text, None,
        "Environment variable that holds the keys in place of a file.";
    SIGNING_REQUIRED: Offered "execution.checkpointing.signing.required" () ValueKind::Bool, Some("true"),
        "Whether metadata without a signature is refused where signing is on; `false` while older checkpoints are needed.";
    UNALIGNED: Offered "execution.checkpointing.unaligned.enabled" ("execution.checkpointing.unaligned") ValueKind::Bool, Some("false"),
        "Whether barriers overtake records in flight.";
    ALIGNED_TIMEOUT: Offered "execution.checkpointing.aligned-checkpoint-timeout" ("execution.checkpointing.alignment-timeout")
        span(Duration::ZERO), Some("0 ms"),
        "How long an unaligned checkpoint is tried aligned first.";
    WITHOUT_IN_FLIGHT: Offered "execution.checkpointing.without-channel-state.checkpoint-id"
        ("execution.checkpointing.recover-without-channel-state.checkpoint-id")
        ValueKind::Number { min: -1, max: i64::MAX, infinite: false }, Some("-1"),
        "The checkpoint that is restored without its records in flight, which are lost then; -1 for none.";
    INTERVAL_DURING_BACKLOG: DefaultOnly "execution.checkpointing.interval-during-backlog" () span(Duration::ZERO), None,
        "Period of checkpoints while a source reports a backlog.";
    LOCAL_BACKUP: Offered "execution.checkpointing.local-backup.enabled" () ValueKind::Bool, None,
        "Whether a second copy of each object is kept on local disk; unset is what `execution.state-recovery.from-local` says.";
    LOCAL_BACKUP_DIRS: Offered "execution.checkpointing.local-backup.dirs" ("taskmanager.state.local.root-dirs") ValueKind::List, None,
        "Local folders for copies, used in turn; unset is the folder for files of the process.";
    FILE_MERGING: DefaultOnly "execution.checkpointing.file-merging.enabled" ("state.checkpoints.file-merging.enabled") ValueKind::Bool, Some("false"),
        "Whether small files are packed into larger ones.";
    CHECKPOINT_HISTORY: Offered "web.checkpoints.history" () count(1), Some("10"),
        "Number of checkpoints whose statistics are kept.";

    RECOVERY_PATH: Offered "execution.state-recovery.path" ("execution.savepoint.path") ValueKind::Text, None,
        "Checkpoint or savepoint to start from.";
    CLAIM_MODE: Offered "execution.state-recovery.claim-mode" ("execution.savepoint-restore-mode") ValueKind::Choice(&["NO_CLAIM", "CLAIM", "LEGACY"]), Some("NO_CLAIM"),
        "Who owns the snapshot that the job starts from: `NO_CLAIM` leaves it alone, `CLAIM` takes it over and deletes it once it is subsumed; `LEGACY` is refused.";
    IGNORE_UNCLAIMED: Offered "execution.state-recovery.ignore-unclaimed-state" ("execution.savepoint.ignore-unclaimed-state") ValueKind::Bool, Some("false"),
        "Whether state without an operator is dropped rather than refused.";
    RESTORE_ONLY: Offered "execution.state-recovery.restore-only" () ValueKind::List, None,
        "The uids of the only operators to restore, all others start empty; with a path only.";
    RENAME: Offered "execution.state-recovery.rename" () ValueKind::List, None,
        "Operators that have a new uid: `old uid=new uid`.";
    FROM_LOCAL: Offered "execution.state-recovery.from-local" ("state.backend.local-recovery") ValueKind::Bool, Some("false"),
        "Whether local copies are used when state is restored, where they are what the checkpoint says.";

    BACKEND: Offered "state.backend.type" ("state.backend") ValueKind::Text, Some("hashmap"),
        "Name of the state backend.";
    OBJECT_CACHE: Offered "state.object-cache.size" () ANY_SIZE, Some("0 b"),
        "Memory for hot keys as live objects in front of backends that store bytes, all subtasks of the process together; 0 is no such cache. A backend whose own memory budget includes it goes before.";
    MAX_PARALLELISM: Offered "pipeline.max-parallelism" () ValueKind::Number { min: -1, max: 32_768, infinite: false }, Some("-1"),
        "Number of key groups; -1 derives it from the parallelism.";
    PARALLELISM: Offered "parallelism.default" () ValueKind::Number { min: 1, max: 32_768, infinite: false }, Some("1"),
        "Number of subtasks of an operator that names none.";

    RESTART: Offered "restart-strategy.type" ("restart-strategy") ValueKind::Choice(&["none", "off", "disable", "fixed-delay", "failure-rate", "exponential-delay"]), None,
        "Restart strategy; unset is exponential-delay with checkpoints and none without.";
    FIXED_ATTEMPTS: Offered "restart-strategy.fixed-delay.attempts" () ValueKind::Number { min: 0, max: u32::MAX as i64, infinite: true }, Some("1"),
        "Number of restarts before the job fails.";
    FIXED_DELAY: Offered "restart-strategy.fixed-delay.delay" () span(Duration::ZERO), Some("1 s"),
        "Time between a failure and the restart.";
    RATE_MAX_FAILURES: Offered "restart-strategy.failure-rate.max-failures-per-interval" () count(1), Some("1"),
        "Failures within the interval that the job outlives.";
    RATE_INTERVAL: Offered "restart-strategy.failure-rate.failure-rate-interval" () span(MS), Some("1 min"),
        "Interval in which failures are counted.";
    RATE_DELAY: Offered "restart-strategy.failure-rate.delay" () span(Duration::ZERO), Some("1 s"),
        "Time between a failure and the restart.";
    EXP_INITIAL: Offered "restart-strategy.exponential-delay.initial-backoff" () span(MS), Some("1 s"),
        "First wait.";
    EXP_MAX: Offered "restart-strategy.exponential-delay.max-backoff" () span(MS), Some("1 min"),
        "Longest wait.";
    EXP_MULTIPLIER: Offered "restart-strategy.exponential-delay.backoff-multiplier" () ValueKind::Fraction { above: 1.0, max: f64::MAX }, Some("1.5"),
        "Factor from one wait to the next.";
    EXP_JITTER: Offered "restart-strategy.exponential-delay.jitter-factor" () ValueKind::Fraction { above: -f64::MIN_POSITIVE, max: 1.0 }, Some("0.1"),
        "Share of the wait by which it varies at random.";
    EXP_RESET: Offered "restart-strategy.exponential-delay.reset-backoff-threshold" () span(MS), Some("1 h"),
        "Time without failure after which the wait is the first one again.";
    EXP_ATTEMPTS: Offered "restart-strategy.exponential-delay.attempts-before-reset-backoff" () ValueKind::Number { min: 1, max: u32::MAX as i64, infinite: true }, Some("infinite"),
        "Number of restarts before the job fails, unless the wait was reset.";
}

/// Prefixes of Flink's options that a job in one process has no use for.
static ELSEWHERE: &[&str] = &[
    "akka.",
    "blob.",
    "classloader.",
    "cleanup-strategy.",
    "client.",
    "cluster.",
    "env.",
    "heartbeat.",
    "high-availability",
    "historyserver.",
    "jobmanager.",
    "kubernetes.",
    "metrics.",
    "pekko.",
    "python.",
    "rest.",
    "security.",
    "table.",
    "taskmanager.",
    "web.",
    "yarn.",
];

/// Finds an option by its name or an old spelling; the flag says that the spelling is old.
pub(super) fn find(key: &str) -> Option<(&'static ConfigOption, bool)> {
    ALL.iter().copied().find_map(|option| {
        if option.key == key {
            Some((option, false))
        } else {
            option.old_keys.contains(&key).then_some((option, true))
        }
    })
}

/// Says why Flink's option of this name is not taken, if it is one that belongs to something we don't have.
pub(super) fn why_not(key: &str) -> Option<&'static str> {
    if key.starts_with("state.changelog.") {
        return Some(
            "there is no change log around backends; the backend fs writes only what changed",
        );
    }
    if key == "state.backend.async" {
        return Some("snapshots are always asynchronous");
    }
    let cluster = ELSEWHERE.iter().any(|prefix| key.starts_with(prefix));
    cluster.then_some("it is an option of a Flink cluster and has no meaning here")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_spelling_is_unique_and_every_default_is_valid() {
        let mut seen = BTreeSet::new();
        for option in ALL {
            for key in std::iter::once(&option.key).chain(option.old_keys) {
                assert!(seen.insert(*key), "{key} appears twice");
            }
            if let Some(default) = option.default {
                assert!(option.check(default).is_ok(), "{} = {default}", option.key);
            }
            assert!(option.meaning.ends_with('.'), "{}", option.key);
        }
    }
}
