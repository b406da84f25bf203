use state_api::StateType;

/// A partition of a topic with the position reached in it.
#[derive(Clone, Debug, PartialEq, Eq, StateType)]
pub struct KafkaSplit {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// Offset of the first record that is not emitted yet.
    pub next: i64,
    /// Offset at which a bounded input ends; `None` without end.
    pub end: Option<i64>,
    /// Number of partitions that are being read, in the split of partition 0: those that the topic has beyond are found at a restore.
    pub partitions: i32,
}

impl KafkaSplit {
    /// Returns whether a bounded split is read to its end.
    pub(super) fn is_finished(&self) -> bool {
        self.end.is_some_and(|end| self.next >= end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Splits are stored by their schema: it must not change by accident.
    #[test]
    fn the_schema_is_as_old_checkpoints_have_it() {
        assert_eq!(
            KafkaSplit::schema().to_string(),
            "struct KafkaSplit{topic:string,partition:i32,next:i64,end:option<i64>,partitions:i32}"
        );
    }
}
