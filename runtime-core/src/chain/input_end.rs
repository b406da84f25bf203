use checkpoint_storage::InputEnd;

use crate::record::END_OF_TIME;

/// What an operator has been told of the end of its input, before a restore included.
///
/// After a restore the end comes down the chain once more, since sources without splits end again. An operator that was
/// told before the checkpoint is not told again: what it emitted then is committed, or in flight. It is when its input goes
/// on after all, because the job has more of it now.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ToldOfEnd(InputEnd);

impl ToldOfEnd {
    /// Begins with what a checkpoint says.
    pub(crate) fn restored(told: InputEnd) -> Self {
        Self(told)
    }

    /// Takes note of a record.
    ///
    /// One that follows the end of event time, but not that of the input, may be of what was emitted at the end.
    #[inline]
    pub(crate) fn record(&mut self) {
        if self.is_finished() {
            self.0 = InputEnd::Ahead;
        }
    }

    /// Takes note of a watermark; returns whether the operator is to be told.
    pub(crate) fn watermark(&mut self, time: i64) -> bool {
        if time != END_OF_TIME {
            self.0 = InputEnd::Ahead;
            return true;
        }
        let is_new = self.0 == InputEnd::Ahead;
        self.0 = self.0.max(InputEnd::TimeEnded);
        is_new
    }

    /// Takes note of the end of the input; returns whether the operator is to be told.
    pub(crate) fn finish(&mut self) -> bool {
        let is_new = !self.is_finished();
        self.0 = InputEnd::Finished;
        is_new
    }

    #[inline]
    pub(crate) fn is_finished(self) -> bool {
        self.0 == InputEnd::Finished
    }

    /// Returns what a checkpoint is to say.
    pub(crate) fn get(self) -> InputEnd {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_is_told_once() {
        for restored in [InputEnd::Ahead, InputEnd::TimeEnded, InputEnd::Finished] {
            let mut told = ToldOfEnd::restored(restored);
            assert_eq!(told.watermark(END_OF_TIME), restored == InputEnd::Ahead);
            assert_eq!(told.finish(), restored != InputEnd::Finished);
            assert_eq!(told.get(), InputEnd::Finished);
            assert!(!told.watermark(END_OF_TIME) && !told.finish());
        }
    }

    #[test]
    fn an_input_that_goes_on_ends_again() {
        let mut told = ToldOfEnd::restored(InputEnd::Finished);
        told.record();
        assert!(told.watermark(END_OF_TIME) && told.finish());
        assert!(told.watermark(7) && told.watermark(END_OF_TIME) && told.finish());
    }

    #[test]
    fn what_was_emitted_at_the_end_of_the_input_does_not_bring_back_the_end_of_time() {
        let mut told = ToldOfEnd::restored(InputEnd::TimeEnded);
        told.record();
        assert!(!told.watermark(END_OF_TIME) && told.finish());
    }
}
