use state_api::{CheckpointId, Clock};

use super::{AlignmentReport, Arrival, Decision, GiveUp};
use crate::channel::{Barrier, BarrierMode};

/// The checkpoint whose barriers are coming in.
#[derive(Clone, Debug)]
struct Open {
    barrier: Barrier,
    /// Channels that count: those open when the first barrier came.
    target: usize,
    /// Channels that brought the barrier or ended.
    arrived: Vec<bool>,
    count: usize,
    started_ns: u64,
    start_delay_ms: u64,
    bytes: u64,
    /// When barriers overtake, in milliseconds; `None` if they don't, or did.
    deadline_ms: Option<i64>,
    /// The snapshot was taken at the first barrier; the others only end the recording of their channel.
    triggered: bool,
}

impl Open {
    fn report(&self, clock: &dyn Clock) -> AlignmentReport {
        let (duration_ns, bytes) = if self.target <= 1 {
            (0, 0)
        } else {
            let ended_ns = clock.monotonic_ns();
            (ended_ns.saturating_sub(self.started_ns), self.bytes)
        };
        AlignmentReport {
            duration_ns,
            bytes,
            start_delay_ms: self.start_delay_ms,
            persisted_bytes: 0,
        }
    }
}

/// Makes the barriers of several channels one cut, for exactly once: aligned, unaligned, or aligned until a timeout.
///
/// Aligned, a channel that runs ahead is blocked until every open channel is at the cut. Unaligned, the first barrier cuts, no
/// channel is blocked, and what comes on a channel before its barrier is recorded ([`is_recording`](Self::is_recording)).
///
/// A checkpoint ends here in one of six ways: the last barrier, the end of the last missing channel, a newer barrier, a
/// cancel marker of it or of a newer one, the coordinator's abort of it, or the end of a channel where that is not allowed. Each
/// unblocks every channel it blocked, reports once, and makes stragglers of the checkpoint harmless.
#[derive(Clone, Debug)]
pub struct ExactlyOnceBarriers {
    closed: Vec<bool>,
    blocked: Vec<bool>,
    open_channels: usize,
    after_channels_end: bool,
    /// The newest checkpoint begun, completed or given up here; 0 before the first.
    current: u64,
    open: Option<Open>,
}

impl ExactlyOnceBarriers {
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

    /// Returns whether barriers of a checkpoint are coming in.
    #[must_use]
    pub fn is_aligning(&self) -> bool {
        self.open.is_some()
    }

    /// Returns the checkpoint whose barriers are coming in, and the channels whose barrier is missing.
    #[must_use]
    pub fn awaited(&self) -> Option<(CheckpointId, Vec<usize>)> {
        let open = self.open.as_ref()?;
        let channels = 0..self.closed.len();
        let missing = channels.filter(|channel| !open.arrived[*channel] && !self.closed[*channel]);
        Some((open.barrier.id, missing.collect()))
    }

    /// Returns whether what a channel brings is part of a checkpoint that was triggered unaligned.
    #[inline]
    #[must_use]
    pub fn is_recording(&self, channel: usize) -> bool {
        self.open
            .as_ref()
            .is_some_and(|open| open.triggered && !open.arrived[channel] && !self.closed[channel])
    }

    /// Returns when barriers overtake that are in line: an [`Arrival::Tick`] is due then. Milliseconds of wall-clock time.
    #[must_use]
    pub fn deadline_ms(&self) -> Option<i64> {
        self.open.as_ref().and_then(|open| open.deadline_ms)
    }

    /// Returns the number of channels that have not ended.
    #[must_use]
    pub fn open_channels(&self) -> usize {
        self.open_channels
    }

    /// Returns the bytes of the records processed since the first barrier, while the others come in.
    #[must_use]
    pub fn bytes_so_far(&self) -> Option<u64> {
        self.open.as_ref().map(|open| open.bytes)
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
            Arrival::Announced { channel, barrier } => {
                self.announced(channel, barrier, clock, decisions)
            }
            Arrival::Tick => self.overtake_if_due(clock, decisions),
            Arrival::Cancel { channel: _, id } => {
                self.give_up(id.0, GiveUp::CancelMarker, decisions)
            }
            // An older one that is open goes on: unlike a marker, this overtook nothing on a channel.
            Arrival::Abort { id } if self.open.as_ref().is_some_and(|o| o.barrier.id < id) => {}
            Arrival::Abort { id } => self.give_up(id.0, GiveUp::Aborted, decisions),
            Arrival::EndOfPartition { channel } => self.end_of_partition(channel, clock, decisions),
        }
    }

    /// Returns whether a barrier on a channel is of no use any more.
    fn is_stale(&self, channel: usize, barrier: &Barrier) -> bool {
        let id = barrier.id.0;
        channel >= self.closed.len()
            || id < self.current
            || (id == self.current && self.open.is_none())
    }

    /// Begins the checkpoint of a barrier, unless it has begun; a newer one gives up the older one.
    fn begin(&mut self, barrier: Barrier, clock: &dyn Clock, decisions: &mut Vec<Decision>) {
        if barrier.id.0 <= self.current {
            return;
        }
        if let Some(older) = self.close(decisions) {
            decisions.push(Decision::GiveUp {
                id: older.barrier.id,
                why: GiveUp::Subsumed,
            });
        }
        self.current = barrier.id.0;
        let deadline_ms = match barrier.effective_mode() {
            BarrierMode::AlignedWithTimeout(after_ms) => {
                let after_ms = i64::try_from(after_ms).unwrap_or(i64::MAX);
                Some(barrier.timestamp_ms.saturating_add(after_ms))
            }
            BarrierMode::Aligned | BarrierMode::Unaligned => None,
        };
        let waited = clock.now_ms().saturating_sub(barrier.timestamp_ms);
        self.open = Some(Open {
            barrier,
            target: self.open_channels,
            arrived: vec![false; self.closed.len()],
            count: 0,
            started_ns: clock.monotonic_ns(),
            start_delay_ms: u64::try_from(waited).unwrap_or(0),
            bytes: 0,
            deadline_ms,
            triggered: false,
        });
    }

    fn barrier(
        &mut self,
        channel: usize,
        barrier: Barrier,
        clock: &dyn Clock,
        decisions: &mut Vec<Decision>,
    ) {
        if self.is_stale(channel, &barrier) {
            return;
        }
        self.begin(barrier, clock, decisions);
        let due = self.is_due(clock);
        if barrier.effective_mode() == BarrierMode::Unaligned || due {
            self.trigger_unaligned(clock, decisions);
            if due {
                decisions.push(Decision::Overtake(barrier.id));
            }
        }
        self.mark(channel, true, clock, decisions);
    }

    fn announced(
        &mut self,
        channel: usize,
        barrier: Barrier,
        clock: &dyn Clock,
        decisions: &mut Vec<Decision>,
    ) {
        if self.is_stale(channel, &barrier) {
            return;
        }
        self.begin(barrier, clock, decisions);
        match &self.open {
            Some(open) if open.triggered => decisions.push(Decision::Overtake(barrier.id)),
            _ => self.overtake_if_due(clock, decisions),
        }
    }

    fn is_due(&self, clock: &dyn Clock) -> bool {
        self.deadline_ms().is_some_and(|at| at <= clock.now_ms())
    }

    /// Goes over to unaligned once the time is up. Without a barrier that came, the first one that overtakes does it.
    fn overtake_if_due(&mut self, clock: &dyn Clock, decisions: &mut Vec<Decision>) {
        if !self.is_due(clock) {
            return;
        }
        let Some(open) = &mut self.open else { return };
        let id = open.barrier.id;
        if open.count > 0 {
            self.trigger_unaligned(clock, decisions);
        } else {
            // What is pulled out of the line arrives as a barrier that overtook.
            open.deadline_ms = None;
            open.barrier.mode = BarrierMode::Unaligned;
        }
        decisions.push(Decision::Overtake(id));
    }

    /// Cuts now, whatever is missing, and unblocks every channel; the second time it does nothing.
    fn trigger_unaligned(&mut self, clock: &dyn Clock, decisions: &mut Vec<Decision>) {
        let Some(open) = &mut self.open else { return };
        if std::mem::replace(&mut open.triggered, true) {
            return;
        }
        open.deadline_ms = None;
        open.barrier.mode = BarrierMode::Unaligned;
        decisions.push(Decision::Trigger {
            barrier: open.barrier.unforced(),
            report: open.report(clock),
            unaligned: true,
        });
        self.unblock(decisions);
    }

    /// Counts a channel as having brought its barrier; the last one ends the checkpoint here.
    fn mark(
        &mut self,
        channel: usize,
        block: bool,
        clock: &dyn Clock,
        decisions: &mut Vec<Decision>,
    ) {
        let Some(open) = &mut self.open else { return };
        if std::mem::replace(&mut open.arrived[channel], true) {
            return;
        }
        open.count += 1;
        if open.count < open.target {
            if block && !open.triggered {
                self.blocked[channel] = true;
                decisions.push(Decision::Block(channel));
            }
            return;
        }
        let position = decisions.len();
        if let Some(done) = self.close(decisions) {
            let report = done.report(clock);
            // Triggered before the channels go on: nothing may be read in between.
            decisions.insert(
                position,
                if done.triggered {
                    Decision::AllBarriersIn {
                        id: done.barrier.id,
                        report,
                    }
                } else {
                    Decision::Trigger {
                        barrier: done.barrier.unforced(),
                        report,
                        unaligned: false,
                    }
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
            id: CheckpointId(id),
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
            self.overtake_if_due(clock, decisions);
            self.mark(channel, false, clock, decisions);
        } else {
            self.give_up(self.current, GiveUp::InputEnded, decisions);
        }
    }

    fn unblock(&mut self, decisions: &mut Vec<Decision>) {
        for (channel, blocked) in self.blocked.iter_mut().enumerate() {
            if std::mem::take(blocked) {
                decisions.push(Decision::Unblock(channel));
            }
        }
    }

    /// Ends the checkpoint, if one is going on, and unblocks every channel.
    fn close(&mut self, decisions: &mut Vec<Decision>) -> Option<Open> {
        self.unblock(decisions);
        self.open.take()
    }
}
