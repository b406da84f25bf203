/// How watermarks follow from the event times of records, and which inputs they do not wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    pub(crate) bound_ms: i64,
    pub(crate) idle_after_ms: Option<i64>,
}

impl Watermarks {
    /// Allows for records that are out of order by up to `bound_ms` milliseconds.
    #[must_use]
    pub fn out_of_order(bound_ms: i64) -> Self {
        Self {
            bound_ms: bound_ms.max(0),
            idle_after_ms: None,
        }
    }

    /// Waits no longer for a split of a source that has brought no record for `ms` milliseconds by the clock (at least 1), and
    /// not for a subtask when that holds for all its splits. Its next record ends that.
    ///
    /// Records that such a split brings later may be late. Time in which a subtask is held up by those behind it does not count.
    #[must_use]
    pub fn idle_after(mut self, ms: i64) -> Self {
        self.idle_after_ms = Some(ms.max(1));
        self
    }
}
