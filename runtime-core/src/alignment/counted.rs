use std::collections::VecDeque;

use state_api::{CheckpointId, Clock};

use super::{AlignmentReport, Arrival, Decision, GiveUp};
use crate::channel::Barrier;

/// The number of checkpoints counted at a time; the oldest is forgotten for one more.
const MAX_TRACKED: usize = 50;

/// The barriers of one checkpoint so far.
#[derive(Clone, Debug)]
struct Count {
    id: u64,
    /// `None` when all that came was a cancel marker.
    barrier: Option<Barrier>,
    given_up: bool,
    /// It was given up while an older one was counted, and nobody has been told yet.
    untold: bool,
    target: usize,
    seen: Vec<bool>,
    count: usize,
    started_ns: u64,
    start_delay_ms: u64,
    bytes: u64,
}

impl Count {
    /// Counts a channel, once; returns whether all have been seen.
    fn mark(&mut self, channel: usize) -> bool {
        if let Some(seen) = self.seen.get_mut(channel)
            && !std::mem::replace(seen, true)
        {
            self.count += 1;
        }
        self.is_full()
    }

    fn is_full(&self) -> bool {
        self.count >= self.target
    }

    /// Gives the checkpoint up; returns whether that is to be told.
    fn give_up(&mut self) -> bool {
        let is_new = !std::mem::replace(&mut self.given_up, true);
        is_new || std::mem::take(&mut self.untold)
    }
}

/// Counts barriers for at least once: blocks nothing, triggers when a checkpoint has its barrier from every open channel.
#[derive(Clone, Debug)]
pub struct CountedBarriers {
    closed: Vec<bool>,
    open_channels: usize,
    after_channels_end: bool,
    /// The newest checkpoint seen.
    latest: u64,
    /// By ascending id.
    pending: VecDeque<Count>,
}

impl CountedBarriers {
    /// Creates the counter of `channels` input channels; `after_channels_end` allows checkpoints when some have ended.
    #[must_use]
    pub fn new(channels: usize, after_channels_end: bool) -> Self {
        Self {
            closed: vec![false; channels],
            open_channels: channels,
            after_channels_end,
            latest: 0,
            pending: VecDeque::new(),
        }
    }

    /// Returns the number of channels that have not ended.
    #[must_use]
    pub fn open_channels(&self) -> usize {
        self.open_channels
    }

    /// Returns the checkpoints that are being counted, given up ones included.
    #[must_use]
    pub fn pending(&self) -> Vec<CheckpointId> {
        self.pending
            .iter()
            .map(|count| CheckpointId(count.id))
            .collect()
    }

    /// Returns whether a checkpoint is being counted.
    #[must_use]
    pub fn is_aligning(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Returns the oldest checkpoint that is counted and not given up.
    fn oldest(&self) -> Option<&Count> {
        self.pending.iter().find(|count| !count.given_up)
    }

    /// Returns the oldest checkpoint whose barriers are coming in, and the channels whose barrier is missing.
    #[must_use]
    pub fn awaited(&self) -> Option<(CheckpointId, Vec<usize>)> {
        let oldest = self.oldest()?;
        let channels = 0..self.closed.len();
        let missing = channels.filter(|channel| !oldest.seen[*channel] && !self.closed[*channel]);
        Some((CheckpointId(oldest.id), missing.collect()))
    }

    /// Returns the bytes of the records processed since its first barrier.
    #[must_use]
    pub fn bytes_so_far(&self) -> Option<u64> {
        self.oldest().map(|oldest| oldest.bytes)
    }

    /// Notes the bytes of records that were processed.
    pub fn processed(&mut self, bytes: u64) {
        for count in &mut self.pending {
            count.bytes += bytes;
        }
    }

    /// Takes an arrival and appends what to do; never blocks a channel.
    pub fn on(&mut self, arrival: Arrival, clock: &dyn Clock, decisions: &mut Vec<Decision>) {
        match arrival {
            Arrival::Barrier { channel, barrier } => {
                self.barrier(channel, barrier, clock, decisions)
            }
            // Nothing overtakes where nothing waits.
            Arrival::Announced { .. } | Arrival::Tick => {}
            Arrival::Cancel { channel, id } => self.cancel(channel, id.0, clock, decisions),
            Arrival::Abort { id } => {
                let mut pending = self.pending.iter_mut();
                if let Some(count) = pending.find(|count| count.id == id.0) {
                    count.untold |= !std::mem::replace(&mut count.given_up, true);
                }
            }
            Arrival::EndOfPartition { channel } => self.end_of_partition(channel, clock, decisions),
        }
        self.settle(decisions);
    }

    /// Tells of what the coordinator gave up, and forgets what is given up and has all its barriers.
    ///
    /// While an older one is counted the word waits: unlike a marker, an abort overtook nothing on a channel, and who gives up
    /// a checkpoint is through with the older ones.
    fn settle(&mut self, decisions: &mut Vec<Decision>) {
        let mut waits = false;
        self.pending.retain_mut(|count| {
            if (!waits || count.is_full()) && std::mem::take(&mut count.untold) {
                decisions.push(aborted(count.id));
            }
            waits |= !count.given_up;
            !count.is_full()
        });
    }

    fn barrier(
        &mut self,
        channel: usize,
        barrier: Barrier,
        clock: &dyn Clock,
        decisions: &mut Vec<Decision>,
    ) {
        let id = barrier.id.0;
        if id > self.latest && self.open_channels == 1 && self.pending.is_empty() {
            self.latest = id;
            let report = AlignmentReport {
                start_delay_ms: delay_ms(&barrier, clock),
                ..AlignmentReport::default()
            };
            decisions.push(Decision::Trigger {
                barrier,
                report,
                unaligned: false,
            });
            return;
        }
        if let Some(position) = self.pending.iter().position(|count| count.id == id) {
            self.pending[position].barrier.get_or_insert(barrier);
            if self.pending[position].mark(channel) {
                self.complete(position, clock, decisions);
            }
        } else if id > self.latest {
            let position = self.begin(id, Some(barrier), clock);
            if self.pending[position].mark(channel) {
                self.complete(position, clock, decisions);
            }
        }
    }

    /// Starts to count a checkpoint newer than all others; returns its position.
    fn begin(&mut self, id: u64, barrier: Option<Barrier>, clock: &dyn Clock) -> usize {
        self.latest = id;
        if self.pending.len() >= MAX_TRACKED {
            self.pending.pop_front();
        }
        self.pending.push_back(Count {
            id,
            barrier,
            given_up: barrier.is_none(),
            untold: false,
            target: self.open_channels,
            seen: vec![false; self.closed.len()],
            count: 0,
            started_ns: clock.monotonic_ns(),
            start_delay_ms: barrier.map_or(0, |b| delay_ms(&b, clock)),
            bytes: 0,
        });
        self.pending.len() - 1
    }

    /// Ends the checkpoint at a position and forgets the older ones, which can't complete any more.
    fn complete(&mut self, position: usize, clock: &dyn Clock, decisions: &mut Vec<Decision>) {
        let Some(done) = self.pending.drain(..=position).next_back() else {
            return;
        };
        if done.untold {
            decisions.push(aborted(done.id));
        }
        if let (false, Some(barrier)) = (done.given_up, done.barrier) {
            let single = done.target <= 1;
            let report = AlignmentReport {
                duration_ns: if single {
                    0
                } else {
                    clock.monotonic_ns().saturating_sub(done.started_ns)
                },
                bytes: if single { 0 } else { done.bytes },
                start_delay_ms: done.start_delay_ms,
                persisted_bytes: 0,
            };
            decisions.push(Decision::Trigger {
                barrier,
                report,
                unaligned: false,
            });
        }
    }

    fn cancel(
        &mut self,
        channel: usize,
        id: u64,
        clock: &dyn Clock,
        decisions: &mut Vec<Decision>,
    ) {
        // A cancelled checkpoint ends the older ones: their barriers would have come before.
        while self.pending.front().is_some_and(|count| count.id < id) {
            if let Some(older) = self.pending.pop_front()
                && !older.given_up
            {
                decisions.push(Decision::GiveUp {
                    id: CheckpointId(older.id),
                    why: GiveUp::Subsumed,
                });
            }
        }
        match self.pending.front_mut() {
            Some(count) if count.id == id => {
                if count.give_up() {
                    decisions.push(Decision::GiveUp {
                        id: CheckpointId(id),
                        why: GiveUp::CancelMarker,
                    });
                }
                // Counted on, so that the entry goes when its last barrier or marker came.
                if count.mark(channel) {
                    self.pending.pop_front();
                }
            }
            _ if id > self.latest => {
                decisions.push(Decision::GiveUp {
                    id: CheckpointId(id),
                    why: GiveUp::CancelMarker,
                });
                if self.open_channels <= 1 {
                    self.latest = id;
                } else {
                    let position = self.begin(id, None, clock);
                    self.pending[position].mark(channel);
                }
            }
            _ => {}
        }
    }

    fn end_of_partition(
        &mut self,
        channel: usize,
        clock: &dyn Clock,
        decisions: &mut Vec<Decision>,
    ) {
        match self.closed.get_mut(channel) {
            Some(closed) if !*closed => *closed = true,
            _ => return,
        }
        self.open_channels -= 1;
        if !self.after_channels_end {
            for mut count in self.pending.drain(..) {
                if count.give_up() {
                    decisions.push(Decision::GiveUp {
                        id: CheckpointId(count.id),
                        why: GiveUp::InputEnded,
                    });
                }
            }
            return;
        }
        // The newest that is complete now makes the older ones superfluous; one that was given up makes none.
        let mut newest = None;
        for (position, count) in self.pending.iter_mut().enumerate() {
            if count.mark(channel) && !count.given_up {
                newest = Some(position);
            }
        }
        if let Some(position) = newest {
            self.complete(position, clock, decisions);
        }
    }
}

fn aborted(id: u64) -> Decision {
    Decision::GiveUp {
        id: CheckpointId(id),
        why: GiveUp::Aborted,
    }
}

fn delay_ms(barrier: &Barrier, clock: &dyn Clock) -> u64 {
    u64::try_from(clock.now_ms().saturating_sub(barrier.timestamp_ms)).unwrap_or(0)
}
