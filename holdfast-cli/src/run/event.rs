use serde::{Deserialize, Serialize};

/// What a job in another process tells, one JSON object a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum WorkerEvent {
    /// All subtasks run.
    Running {
        /// The attempt of the job.
        attempt: u64,
        /// The checkpoint that the run started from.
        restored: Option<u64>,
        /// The source's positions in it, for people.
        positions: Vec<String>,
        /// Records that are still to be read.
        left: u64,
        /// Bytes of it that were read out of copies on local disk.
        #[serde(default)]
        from_copies: u64,
        /// Bytes of it that were read out of the store.
        #[serde(default)]
        from_store: u64,
    },
    /// A checkpoint began.
    Triggered {
        /// Its id.
        checkpoint: u64,
    },
    /// A checkpoint is complete and durable.
    Completed {
        /// Its id.
        checkpoint: u64,
        /// Milliseconds that it took.
        duration_ms: u64,
        /// Bytes that it refers to.
        bytes: u64,
        /// Records that were still to be read when this was noticed, a little after the checkpoint.
        left: u64,
    },
    /// A checkpoint was given up.
    Aborted {
        /// Its id.
        checkpoint: u64,
        /// Why.
        reason: String,
    },
    /// Sent several times a second.
    Progress {
        /// Records that are still to be read.
        left: u64,
    },
    /// A run failed and is followed by another one.
    Restarting {
        /// Why.
        reason: String,
    },
    /// The job has finished.
    Finished {
        /// Records that this process read.
        records: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_of_json() {
        let event = WorkerEvent::Completed {
            checkpoint: 3,
            duration_ms: 8,
            bytes: 120,
            left: 7,
        };
        let line = serde_json::to_string(&event).unwrap();
        assert_eq!(
            line,
            r#"{"event":"completed","checkpoint":3,"duration_ms":8,"bytes":120,"left":7}"#
        );
        assert_eq!(serde_json::from_str::<WorkerEvent>(&line).unwrap(), event);
    }
}
