use state_api::Clock;

use super::{AlignmentReport, Arrival, Decision, GiveUp};
use crate::channel::Barrier;

/// The alignment that is going on.
#[derive(Clone, Debug)]
struct Open {
    barrier: Barrier,
    /// Channels that count: those open when the first barrier came.
    target: usize,
    /// Channels at the cut, by barrier or by their end.
    aligned: Vec<bool>,
    count: usize,
    started_ns: u64,
    start_delay_ms: u64,
    bytes: u64,
}

/// Aligns barriers for exactly once: blocks what runs ahead until every open channel is at the cut.
///
/// A checkpoint ends here in one of six ways: the last barrier, the end of the last missing channel, a newer barrier, a
/// cancel marker of it or of a newer one, the coordinator's abort, or the end of a channel where that is not allowed. Each
/// unblocks every channel it blocked, reports once, and makes stragglers of the checkpoint harmless.
#[derive(Clone, Debug)]
pub struct AlignedBarriers {
    closed: Vec<bool>,
    blocked: Vec<bool>,
    open_channels: usize,
    after_channels_end: bool,
    /// The newest checkpoint begun, completed or given up here; 0 before the first.
    current: u64,
    open: Option<Open>,
}

impl AlignedBarriers {
    /// Creates the alignment of `channels` input channels; `after_channels_end` allows checkpoints when some have ended.
    #[must_use]
    pub fn new(channels: usize, after_channels_end: bool) -> Self {
        Self {
            closed: vec![false; channels],
            blocked: vec![false; channels],
            open_channels: channels,
            after_channels_end,
            current: 0,
            open: None,
        }
    }

    /// Returns whether a channel must not be read.
    #[inline]
    #[must_use]
    pub fn is_blocked(&self, channel: usize) -> bool {
        self.blocked.get(channel).copied().unwrap_or(false)
    }

    /// Returns whether a checkpoint is being aligned.
    #[must_use]
    pub fn is_aligning(&self) -> bool {
        self.open.is_some()
    }

    /// Returns the number of channels that have not ended.
    #[must_use]
    pub fn open_channels(&self) -> usize {
        self.open_channels
    }

    /// Notes the bytes of records that were processed.
    #[inline]
    pub fn processed(&mut self, bytes: u64) {
        if let Some(open) = &mut self.open {
            open.bytes += bytes;
        }
    }

    /// Takes an arrival and appends what to do.
    pub fn on(&mut self, arrival: Arrival, clock: &dyn Clock, decisions: &mut Vec<Decision>) {
        match arrival {
            Arrival::Barrier { channel, barrier } => {
                self.barrier(channel, barrier, clock, decisions)
            }
            Arrival::Cancel { channel: _, id } => {
                self.give_up(id.0, GiveUp::CancelMarker, decisions)
            }
            Arrival::Abort { id } => self.give_up(id.0, GiveUp::Aborted, decisions),
            Arrival::EndOfPartition { channel } => self.end_of_partition(channel, clock, decisions),
        }
    }

    fn barrier(
        &mut self,
        channel: usize,
        barrier: Barrier,
        clock: &dyn Clock,
        decisions: &mut Vec<Decision>,
    ) {
        let id = barrier.id.0;
        if channel >= self.closed.len()
            || id < self.current
            || (id == self.current && self.open.is_none())
        {
            return;
        }
        if id > self.current {
            if let Some(older) = self.close(decisions) {
                decisions.push(Decision::GiveUp {
                    id: older.barrier.id,
                    why: GiveUp::Subsumed,
                });
            }
            self.current = id;
            let waited = clock.now_ms().saturating_sub(barrier.timestamp_ms);
            self.open = Some(Open {
                barrier,
                target: self.open_channels,
                aligned: vec![false; self.closed.len()],
                count: 0,
                started_ns: clock.monotonic_ns(),
                start_delay_ms: u64::try_from(waited).unwrap_or(0),
                bytes: 0,
            });
        }
        self.mark(channel, true, clock, decisions);
    }

    /// Counts a channel as being at the cut; the last one triggers.
    fn mark(
        &mut self,
        channel: usize,
        block: bool,
        clock: &dyn Clock,
        decisions: &mut Vec<Decision>,
    ) {
        let Some(open) = &mut self.open else { return };
        if std::mem::replace(&mut open.aligned[channel], true) {
            return;
        }
        open.count += 1;
        if open.count < open.target {
            if block {
                self.blocked[channel] = true;
                decisions.push(Decision::Block(channel));
            }
            return;
        }
        let single = open.target <= 1;
        let position = decisions.len();
        if let Some(done) = self.close(decisions) {
            let duration_ns = if single {
                0
            } else {
                clock.monotonic_ns().saturating_sub(done.started_ns)
            };
            let bytes = if single { 0 } else { done.bytes };
            let report = AlignmentReport {
                duration_ns,
                bytes,
                start_delay_ms: done.start_delay_ms,
            };
            // Triggered before the channels go on: nothing may be read in between.
            decisions.insert(
                position,
                Decision::Trigger {
                    barrier: done.barrier,
                    report,
                },
            );
        }
    }

    fn give_up(&mut self, id: u64, why: GiveUp, decisions: &mut Vec<Decision>) {
        if id < self.current || (id == self.current && self.open.is_none()) {
            return;
        }
        let given_up = self.close(decisions);
        if let Some(older) = given_up
            && older.barrier.id.0 < id
        {
            decisions.push(Decision::GiveUp {
                id: older.barrier.id,
                why: GiveUp::Subsumed,
            });
        }
        // Remembered, so that barriers of this checkpoint that still come block nothing.
        self.current = id;
        decisions.push(Decision::GiveUp {
            id: state_api::CheckpointId(id),
            why,
        });
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
        if self.open.is_none() {
            return;
        }
        if self.after_channels_end {
            self.mark(channel, false, clock, decisions);
        } else {
            self.give_up(self.current, GiveUp::InputEnded, decisions);
        }
    }

    /// Ends the alignment, if one is going on, and unblocks every channel.
    fn close(&mut self, decisions: &mut Vec<Decision>) -> Option<Open> {
        for (channel, blocked) in self.blocked.iter_mut().enumerate() {
            if std::mem::take(blocked) {
                decisions.push(Decision::Unblock(channel));
            }
        }
        self.open.take()
    }
}
