use crate::record::END_OF_TIME;

/// The watermark of several channels: the least of those that are not idle.
#[derive(Debug)]
pub(crate) struct Valve {
    /// Last watermark, and whether the channel is idle.
    channels: Vec<(i64, bool)>,
    sent: i64,
    sent_idle: bool,
}

/// What the channels together say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advance {
    Nothing,
    Watermark(i64),
    Idle,
}

impl Valve {
    pub(crate) fn new(channels: usize) -> Self {
        Self {
            channels: vec![(i64::MIN, false); channels],
            sent: i64::MIN,
            sent_idle: false,
        }
    }

    pub(crate) fn watermark(&mut self, channel: usize, time: i64) -> Advance {
        let (last, idle) = &mut self.channels[channel];
        *last = (*last).max(time);
        *idle = false;
        self.advance()
    }

    #[inline]
    pub(crate) fn active(&mut self, channel: usize) {
        self.channels[channel].1 = false;
        self.sent_idle = false;
    }

    pub(crate) fn idle(&mut self, channel: usize) -> Advance {
        self.channels[channel].1 = true;
        self.advance()
    }

    fn advance(&mut self) -> Advance {
        // A channel at the end of time holds nobody back, and does not speak for those that are merely idle.
        let awake = self
            .channels
            .iter()
            .filter(|(time, idle)| !idle && *time != END_OF_TIME);
        let least = awake.map(|(time, _)| *time).min();
        let all_ended = self.channels.iter().all(|(time, _)| *time == END_OF_TIME);
        let least = if all_ended { Some(END_OF_TIME) } else { least };
        match least {
            None if self.sent_idle => Advance::Nothing,
            None => {
                self.sent_idle = true;
                Advance::Idle
            }
            Some(time) if time > self.sent => {
                self.sent = time;
                self.sent_idle = false;
                Advance::Watermark(time)
            }
            Some(_) => Advance::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watermark_is_the_least_of_the_channels_that_are_not_idle() {
        let mut valve = Valve::new(3);
        assert_eq!(valve.watermark(0, 10), Advance::Nothing);
        assert_eq!(valve.watermark(1, 7), Advance::Nothing);
        assert_eq!(valve.idle(2), Advance::Watermark(7));
        assert_eq!(valve.watermark(1, 5), Advance::Nothing);
        assert_eq!(valve.watermark(1, 20), Advance::Watermark(10));
        valve.active(2);
        assert_eq!(valve.watermark(0, 30), Advance::Nothing);
        assert_eq!(valve.watermark(2, 15), Advance::Watermark(15));
    }

    #[test]
    fn idle_is_said_once_and_the_end_of_time_only_by_all() {
        let mut valve = Valve::new(2);
        assert_eq!(valve.idle(0), Advance::Nothing);
        assert_eq!(valve.idle(1), Advance::Idle);
        assert_eq!(valve.idle(1), Advance::Nothing);
        assert_eq!(valve.watermark(0, END_OF_TIME), Advance::Nothing);
        assert_eq!(valve.watermark(1, 4), Advance::Watermark(4));
        assert_eq!(
            valve.watermark(1, END_OF_TIME),
            Advance::Watermark(END_OF_TIME)
        );
    }
}
