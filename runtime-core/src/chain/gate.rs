use std::collections::VecDeque;
use std::sync::Arc;

use state_api::{CheckpointId, Clock};

use super::environment::Environment;
use crate::alignment::{
    AlignedBarriers, AlignmentReport, Arrival, CountedBarriers, Decision, GiveUp,
};
use crate::channel::{Barrier, Element, Received, Receiver};
use crate::config::CheckpointMode;
use crate::execution::{Failpoint, Failpoints};
use crate::record::{END_OF_TIME, Timed};

/// A checkpoint event that the inputs have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Take the snapshot.
    Snapshot {
        barrier: Barrier,
        report: AlignmentReport,
    },
    /// Decline, and pass a cancel marker on.
    GiveUp { id: CheckpointId, why: GiveUp },
}

enum Barriers {
    Aligned(AlignedBarriers),
    Counted(CountedBarriers),
}

/// The barrier side of all input channels of a subtask, whatever they carry.
pub(crate) struct Gate {
    barriers: Barriers,
    decisions: Vec<Decision>,
    cuts: VecDeque<Cut>,
    clock: Arc<dyn Clock>,
    failpoints: Failpoints,
}

impl Gate {
    pub(crate) fn new(channels: usize, env: &Environment) -> Self {
        let barriers = match env.mode {
            CheckpointMode::ExactlyOnce => Barriers::Aligned(AlignedBarriers::new(channels, true)),
            CheckpointMode::AtLeastOnce => Barriers::Counted(CountedBarriers::new(channels, true)),
        };
        Self {
            barriers,
            decisions: Vec::new(),
            cuts: VecDeque::new(),
            clock: Arc::clone(&env.clock),
            failpoints: env.failpoints.clone(),
        }
    }

    pub(crate) fn next_cut(&mut self) -> Option<Cut> {
        self.cuts.pop_front()
    }

    pub(crate) fn give_up(&mut self, id: CheckpointId) {
        // Only what is being aligned is of interest here; the task itself remembers those to come.
        if self.is_aligning() {
            self.on(Arrival::Abort { id });
        }
    }

    pub(crate) fn is_aligning(&self) -> bool {
        match &self.barriers {
            Barriers::Aligned(aligned) => aligned.is_aligning(),
            Barriers::Counted(counted) => counted.is_aligning(),
        }
    }

    fn is_blocked(&self, channel: usize) -> bool {
        match &self.barriers {
            Barriers::Aligned(aligned) => aligned.is_blocked(channel),
            Barriers::Counted(_) => false,
        }
    }

    fn processed(&mut self, bytes: usize) {
        match &mut self.barriers {
            Barriers::Aligned(aligned) => aligned.processed(bytes as u64),
            Barriers::Counted(counted) => counted.processed(bytes as u64),
        }
    }

    fn on(&mut self, arrival: Arrival) {
        let was_aligning = self.is_aligning();
        match &mut self.barriers {
            Barriers::Aligned(aligned) => {
                aligned.on(arrival, self.clock.as_ref(), &mut self.decisions)
            }
            Barriers::Counted(counted) => {
                counted.on(arrival, self.clock.as_ref(), &mut self.decisions)
            }
        }
        if !was_aligning && self.is_aligning() {
            self.failpoints.reach(Failpoint::Aligning);
        }
        for decision in self.decisions.drain(..) {
            match decision {
                // Whether a channel is blocked is asked before each read.
                Decision::Block(_) | Decision::Unblock(_) => {}
                Decision::Trigger { barrier, report } => {
                    self.cuts.push_back(Cut::Snapshot { barrier, report })
                }
                Decision::GiveUp { id, why } => self.cuts.push_back(Cut::GiveUp { id, why }),
            }
        }
    }
}

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

/// What the channels of a port bring next.
pub(crate) enum Polled {
    /// Records, to be taken by [`Port::next_record`].
    Records,
    /// Event time advanced.
    Watermark(i64),
    /// All channels are idle.
    Idle,
    /// The inputs agreed on a cut: ask the gate.
    Cut,
    /// The last channel brought its end.
    Ended,
    /// Nothing for now.
    Nothing,
}

/// The input channels of one edge.
pub(crate) struct Port<T> {
    receivers: Vec<Receiver<Timed<T>>>,
    /// Number of the first channel within the gate.
    first: usize,
    closed: Vec<bool>,
    ended: Vec<bool>,
    cursor: usize,
    batch: VecDeque<Timed<T>>,
    /// The channel that the batch came from.
    batch_from: usize,
    valve: Valve,
}

impl<T> Port<T> {
    pub(crate) fn new(receivers: Vec<Receiver<Timed<T>>>, first: usize) -> Self {
        let channels = receivers.len();
        Self {
            receivers,
            first,
            closed: vec![false; channels],
            ended: vec![false; channels],
            cursor: 0,
            batch: VecDeque::new(),
            batch_from: 0,
            valve: Valve::new(channels),
        }
    }

    #[inline]
    pub(crate) fn next_record(&mut self) -> Option<Timed<T>> {
        self.batch.pop_front()
    }

    /// Iterates over the records of the batch that are not taken yet.
    #[inline]
    pub(crate) fn ahead(&self) -> impl ExactSizeIterator<Item = &T> {
        self.batch.iter().map(|record| &record.value)
    }

    pub(crate) fn has_records(&self) -> bool {
        !self.batch.is_empty()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.iter().all(|ended| *ended)
    }

    /// Gives the memory of the last batch back to where it came from.
    fn recycle(&mut self) {
        if self.batch.capacity() > 0 && self.batch.is_empty() {
            self.receivers[self.batch_from].recycle(std::mem::take(&mut self.batch).into());
        }
    }

    /// Takes the next element of some channel that is not blocked; the records of the last one must have been taken.
    pub(crate) fn poll(&mut self, gate: &mut Gate) -> Polled {
        self.recycle();
        let channels = self.receivers.len();
        let mut empty = 0;
        while empty < channels {
            let channel = self.cursor;
            let global = self.first + channel;
            let received = if self.closed[channel] || gate.is_blocked(global) {
                Received::Empty
            } else {
                self.receivers[channel].receive()
            };
            let element = match received {
                Received::Element(element) => element,
                Received::Empty => {
                    self.cursor = (channel + 1) % channels;
                    empty += 1;
                    continue;
                }
                Received::Closed => {
                    self.closed[channel] = true;
                    gate.on(Arrival::EndOfPartition { channel: global });
                    if !gate.cuts.is_empty() {
                        return Polled::Cut;
                    }
                    continue;
                }
            };
            let advance = match element {
                Element::Batch(records) => {
                    // After each batch another channel has its turn, so that none starves.
                    self.cursor = (channel + 1) % channels;
                    gate.processed(records.len() * size_of::<T>());
                    self.valve.active(channel);
                    (self.batch, self.batch_from) = (records.into(), channel);
                    return Polled::Records;
                }
                Element::Watermark(time) => self.valve.watermark(channel, time),
                Element::Idle => self.valve.idle(channel),
                Element::Barrier(barrier) => {
                    gate.on(Arrival::Barrier {
                        channel: global,
                        barrier,
                    });
                    Advance::Nothing
                }
                Element::CancelMarker(id) => {
                    gate.on(Arrival::Cancel {
                        channel: global,
                        id,
                    });
                    Advance::Nothing
                }
                Element::EndOfInput => {
                    self.ended[channel] = true;
                    if self.has_ended() {
                        return Polled::Ended;
                    }
                    Advance::Nothing
                }
            };
            if !gate.cuts.is_empty() {
                return Polled::Cut;
            }
            match advance {
                Advance::Watermark(time) => return Polled::Watermark(time),
                Advance::Idle => return Polled::Idle,
                Advance::Nothing => empty = 0,
            }
        }
        Polled::Nothing
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
