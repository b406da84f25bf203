use std::collections::VecDeque;
use std::sync::Arc;

use state_api::{CheckpointId, Clock, Error, KeyGroupRange, OperatorUid, Result};

use super::environment::Environment;
use super::in_flight::{Recording, RecordsInFlight, Recover, SharedCodec};
use crate::alignment::{
    AlignmentReport, Arrival, CountedBarriers, Decision, ExactlyOnceBarriers, GiveUp,
};
use crate::channel::{
    BATCH_RECORDS, Barrier, BarrierMode, Element, Received, Receiver, Signal, Urgent,
};
use crate::config::CheckpointMode;
use crate::execution::{Failpoint, Failpoints};
use crate::record::{END_OF_TIME, Timed};
use crate::task::ActivityPhase;

/// A checkpoint event that the inputs have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Take the snapshot.
    Snapshot {
        barrier: Barrier,
        report: AlignmentReport,
        /// Records in flight are part of it.
        unaligned: bool,
    },
    /// Decline, and pass a cancel marker on.
    GiveUp { id: CheckpointId, why: GiveUp },
}

enum Barriers {
    ExactlyOnce(ExactlyOnceBarriers),
    Counted(CountedBarriers),
}

/// Records taken per turn while barriers may have to overtake soon.
const HURRIED_BUDGET: usize = 32;

/// The barrier side of all input channels of a subtask, whatever they carry.
pub(crate) struct Gate {
    barriers: Barriers,
    decisions: Vec<Decision>,
    cuts: VecDeque<Cut>,
    /// A checkpoint whose queued barriers shall overtake.
    overtake: Option<CheckpointId>,
    /// For the newest checkpoint of which a barrier came: where they cut, by channel.
    passed: Passed,
    recording: Option<Recording>,
    /// The checkpoint whose recording has just ended.
    recorded: Option<CheckpointId>,
    /// Barriers came in since somebody asked.
    news: bool,
    /// Who the records in flight belong to; `None` if they can't be part of a checkpoint.
    persists: Option<(OperatorUid, KeyGroupRange)>,
    clock: Arc<dyn Clock>,
    signal: Arc<Signal>,
    failpoints: Failpoints,
}

#[derive(Default)]
struct Passed {
    id: u64,
    /// The number of the first element behind the barrier.
    cuts: Vec<Option<u64>>,
    /// The last barrier was in before the recording began.
    all_in: Option<AlignmentReport>,
}

impl Gate {
    pub(crate) fn new(channels: usize, env: &Environment) -> Self {
        let barriers = match env.mode {
            CheckpointMode::ExactlyOnce => {
                Barriers::ExactlyOnce(ExactlyOnceBarriers::new(channels, true))
            }
            CheckpointMode::AtLeastOnce => Barriers::Counted(CountedBarriers::new(channels, true)),
        };
        Self {
            barriers,
            decisions: Vec::new(),
            cuts: VecDeque::new(),
            overtake: None,
            passed: Passed {
                cuts: vec![None; channels],
                ..Passed::default()
            },
            recording: None,
            recorded: None,
            news: false,
            persists: None,
            clock: Arc::clone(&env.clock),
            signal: Arc::clone(&env.signal),
            failpoints: env.failpoints.clone(),
        }
    }

    /// Lets barriers overtake what is queued at the ports, if the records of all of them can be part of a checkpoint of the
    /// operator `uid`. If one can't, barriers stay in line on all.
    pub(crate) fn let_overtake(
        &mut self,
        uid: Option<&OperatorUid>,
        env: &Environment,
        ports: &mut [&mut dyn Ports],
    ) -> Result<()> {
        let Some(uid) = uid else { return Ok(()) };
        if ports.iter().all(|port| port.fingerprint().is_some()) {
            let range = env.max_parallelism.range_of(env.subtask)?;
            self.persists = Some((uid.clone(), range));
            ports.iter_mut().for_each(|port| port.let_overtake());
        }
        Ok(())
    }

    /// Takes in what does not wait in line, and returns the next cut; to be called at the start of each turn.
    pub(crate) fn attend(&mut self, ports: &mut [&mut dyn Ports]) -> Option<Cut> {
        if self.cuts.is_empty() {
            for port in ports.iter_mut() {
                port.receive_urgent(self);
            }
            if self
                .deadline_ms()
                .is_some_and(|at| at <= self.clock.now_ms())
            {
                self.on(Arrival::Tick);
            }
        }
        if let Some(id) = self.overtake.take() {
            for port in ports.iter_mut() {
                port.pull_barriers(id, self);
            }
        }
        self.cuts.pop_front()
    }

    /// Returns a cut that a port's poll came upon.
    pub(crate) fn next_cut(&mut self) -> Option<Cut> {
        self.cuts.pop_front()
    }

    /// Returns whether something wants to be heard before the next record.
    #[inline]
    pub(crate) fn is_called(&self) -> bool {
        self.signal.is_called()
    }

    /// Returns when barriers that are in line are to overtake.
    pub(crate) fn deadline_ms(&self) -> Option<i64> {
        match &self.barriers {
            Barriers::ExactlyOnce(barriers) => barriers.deadline_ms(),
            Barriers::Counted(_) => None,
        }
    }

    /// Returns how many records may be taken before the gate is asked again, of those that a turn has time for.
    pub(crate) fn budget(&self, budget: usize) -> usize {
        match self.deadline_ms() {
            Some(_) => budget.min(HURRIED_BUDGET),
            None => budget,
        }
    }

    /// Makes the records in flight part of a checkpoint that was triggered unaligned; `None` if there can be none here.
    pub(crate) fn record_in_flight(
        &mut self,
        id: CheckpointId,
        ports: &mut [&mut dyn Ports],
    ) -> Option<RecordsInFlight> {
        let (uid, range) = self.persists.clone()?;
        let fingerprints: Option<Vec<u64>> = ports.iter().map(|port| port.fingerprint()).collect();
        let (recording, in_flight) = Recording::begin(id, &fingerprints?, uid, range);
        self.recording = Some(recording);
        for port in ports.iter_mut() {
            port.record_queued(self);
        }
        if self.passed.id == id.0
            && let Some(report) = self.passed.all_in.take()
        {
            self.finish_recording(id, report);
        }
        Some(in_flight)
    }

    fn finish_recording(&mut self, id: CheckpointId, report: AlignmentReport) {
        match self.recording.take_if(|recording| recording.id == id) {
            Some(recording) => {
                recording.finish(report);
                self.recorded = Some(id);
            }
            None => self.passed.all_in = Some(report),
        }
    }

    fn fail_recording(&mut self, id: CheckpointId, why: GiveUp) {
        if let Some(recording) = self.recording.take_if(|recording| recording.id == id) {
            let message = match why {
                // Dropped in silence: the coordinator knows.
                GiveUp::Aborted => return,
                GiveUp::Subsumed => "a newer barrier came before all records in flight were known",
                GiveUp::CancelMarker => {
                    "a cancel marker came before all records in flight were known"
                }
                GiveUp::InputEnded => "an input channel ended before its barrier",
            };
            recording.fail(Error::retryable(message));
        }
    }

    /// Returns how far the checkpoint is whose barriers come in, if that has changed since it was asked last.
    pub(crate) fn take_news(&mut self) -> Option<(CheckpointId, ActivityPhase)> {
        if !std::mem::take(&mut self.news) {
            return None;
        }
        if let Some(id) = self.recorded.take() {
            return Some((id, ActivityPhase::AsyncPart));
        }
        let recording = self.recording.is_some();
        self.awaited().map(|(id, missing)| {
            let phase = if recording {
                ActivityPhase::RecordingInFlight { missing }
            } else {
                ActivityPhase::Aligning { missing }
            };
            (id, phase)
        })
    }

    /// Returns the checkpoint whose barriers come in, and the channels that have not brought it.
    pub(crate) fn awaited(&self) -> Option<(CheckpointId, Vec<usize>)> {
        match &self.barriers {
            Barriers::ExactlyOnce(barriers) => barriers.awaited(),
            Barriers::Counted(_) => None,
        }
    }

    pub(crate) fn give_up(&mut self, id: CheckpointId) {
        // Only what is being aligned is of interest here; the task itself remembers those to come.
        if self.is_aligning() {
            self.on(Arrival::Abort { id });
        }
        self.fail_recording(id, GiveUp::Aborted);
    }

    pub(crate) fn is_aligning(&self) -> bool {
        match &self.barriers {
            Barriers::ExactlyOnce(barriers) => barriers.is_aligning(),
            Barriers::Counted(counted) => counted.is_aligning(),
        }
    }

    fn is_blocked(&self, channel: usize) -> bool {
        match &self.barriers {
            Barriers::ExactlyOnce(barriers) => barriers.is_blocked(channel),
            Barriers::Counted(_) => false,
        }
    }

    /// Returns the recording if what a channel brings belongs in it.
    fn recording_of(&mut self, channel: usize) -> Option<&mut Recording> {
        match &self.barriers {
            Barriers::ExactlyOnce(barriers) if barriers.is_recording(channel) => {
                self.recording.as_mut()
            }
            _ => None,
        }
    }

    fn processed(&mut self, bytes: usize) {
        match &mut self.barriers {
            Barriers::ExactlyOnce(barriers) => barriers.processed(bytes as u64),
            Barriers::Counted(counted) => counted.processed(bytes as u64),
        }
    }

    /// Returns where the barrier of the recording cut a channel, if it has come.
    fn cut_of(&self, channel: usize) -> Option<u64> {
        let recording = self.recording.as_ref()?;
        let same = self.passed.id == recording.id.0;
        self.passed.cuts[channel].filter(|_| same)
    }

    /// Takes a barrier; the elements of its channel from number `cut` on come after it.
    fn passed(&mut self, channel: usize, barrier: Barrier, cut: u64) {
        if barrier.id.0 > self.passed.id {
            self.passed.id = barrier.id.0;
            self.passed.cuts.fill(None);
            self.passed.all_in = None;
        }
        if barrier.id.0 == self.passed.id {
            self.passed.cuts[channel] = Some(cut);
        }
        self.on(Arrival::Barrier { channel, barrier });
    }

    fn on(&mut self, arrival: Arrival) {
        let was_aligning = self.is_aligning();
        self.news = true;
        match &mut self.barriers {
            Barriers::ExactlyOnce(barriers) => {
                barriers.on(arrival, self.clock.as_ref(), &mut self.decisions)
            }
            Barriers::Counted(counted) => {
                counted.on(arrival, self.clock.as_ref(), &mut self.decisions)
            }
        }
        if !was_aligning && self.is_aligning() {
            self.failpoints.reach(Failpoint::Aligning);
        }
        let mut decisions = std::mem::take(&mut self.decisions);
        for decision in decisions.drain(..) {
            match decision {
                // Whether a channel is blocked is asked before each read.
                Decision::Block(_) | Decision::Unblock(_) => {}
                Decision::Trigger {
                    barrier,
                    report,
                    unaligned,
                } => self.cuts.push_back(Cut::Snapshot {
                    barrier,
                    report,
                    unaligned,
                }),
                Decision::Overtake(id) => self.overtake = Some(id),
                Decision::AllBarriersIn { id, report } => self.finish_recording(id, report),
                Decision::GiveUp { id, why } => {
                    self.fail_recording(id, why);
                    self.cuts.push_back(Cut::GiveUp { id, why });
                }
            }
        }
        self.decisions = decisions;
    }
}

/// A port as the gate sees it, whatever it carries.
pub(crate) trait Ports: Recover {
    /// Lets barriers overtake what is queued.
    fn let_overtake(&mut self);

    /// Takes in what does not wait in line.
    fn receive_urgent(&mut self, gate: &mut Gate);

    /// Takes the queued barriers of a checkpoint out of the line.
    fn pull_barriers(&mut self, id: CheckpointId, gate: &mut Gate);

    /// Records all that is queued and not processed, up to the barriers.
    fn record_queued(&mut self, gate: &mut Gate);
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
    /// The channel that the batch came from; `None` for restored records.
    batch_from: Option<usize>,
    valve: Valve,
    /// Its place among the ports of the chain.
    number: u8,
    /// Makes records in flight part of a checkpoint.
    codec: Option<SharedCodec<T>>,
    /// Restored records that were in flight; before everything else.
    recovered: VecDeque<Vec<Timed<T>>>,
    /// By channel, the number of the first element that is not recorded.
    recorded: Vec<u64>,
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
            batch_from: None,
            valve: Valve::new(channels),
            number: 0,
            codec: None,
            recovered: VecDeque::new(),
            recorded: vec![0; channels],
        }
    }

    /// Makes records in flight part of checkpoints, as those of port `number` of the chain.
    pub(crate) fn persisted(mut self, number: u8, codec: Option<SharedCodec<T>>) -> Self {
        (self.number, self.codec) = (number, codec);
        self
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
            let spent = std::mem::take(&mut self.batch).into();
            if let Some(channel) = self.batch_from {
                self.receivers[channel].recycle(spent);
            }
        }
    }

    /// Records a batch that was taken from a channel, if it belongs to a checkpoint and was not recorded when it was queued.
    fn record_taken(&mut self, channel: usize, records: &[Timed<T>], gate: &mut Gate) {
        let number = self.receivers[channel].taken() - 1;
        if let Some(recording) = gate.recording_of(self.first + channel)
            && let Some(codec) = &self.codec
            && number >= self.recorded[channel]
        {
            for record in records {
                recording.push(self.number, record, codec.as_ref());
            }
            self.recorded[channel] = number + 1;
        }
    }

    /// Records what is queued on a channel before the barrier of a recording that goes on, or all if that has not come.
    fn record_channel(&mut self, channel: usize, cut: Option<u64>, gate: &mut Gate) {
        let (Some(codec), Some(recording)) = (&self.codec, &mut gate.recording) else {
            return;
        };
        let receiver = &self.receivers[channel];
        self.recorded[channel] =
            receiver.read_before(recording.id, self.recorded[channel], cut, |records| {
                for record in records {
                    recording.push(self.number, record, codec.as_ref());
                }
            });
    }

    /// Takes the next element of some channel that is not blocked; the records of the last one must have been taken.
    pub(crate) fn poll(&mut self, gate: &mut Gate) -> Polled {
        self.recycle();
        if let Some(records) = self.recovered.pop_front() {
            (self.batch, self.batch_from) = (records.into(), None);
            return Polled::Records;
        }
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
                    self.record_taken(channel, &records, gate);
                    self.valve.active(channel);
                    (self.batch, self.batch_from) = (records.into(), Some(channel));
                    return Polled::Records;
                }
                Element::Watermark(time) => self.valve.watermark(channel, time),
                Element::Idle => self.valve.idle(channel),
                Element::Barrier(barrier) => {
                    // In line: all that came before it was taken.
                    gate.passed(global, barrier, self.receivers[channel].taken());
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

impl<T> Recover for Port<T> {
    fn fingerprint(&self) -> Option<u64> {
        self.codec.as_ref().map(|codec| codec.fingerprint())
    }

    fn recover(&mut self, time: i64, record: &mut &[u8]) -> Result<()> {
        let codec = self
            .codec
            .as_ref()
            .ok_or_else(|| Error::bug("a port without codec is given records"))?;
        let value = codec.decode(record)?;
        let record = Timed { value, time };
        match self.recovered.back_mut() {
            Some(batch) if batch.len() < BATCH_RECORDS => batch.push(record),
            _ => self.recovered.push_back(vec![record]),
        }
        Ok(())
    }
}

impl<T> Ports for Port<T> {
    fn let_overtake(&mut self) {
        self.receivers.iter().for_each(Receiver::let_overtake);
    }

    fn receive_urgent(&mut self, gate: &mut Gate) {
        for channel in 0..self.receivers.len() {
            let global = self.first + channel;
            while let Some(urgent) = self.receivers[channel].receive_urgent() {
                match urgent {
                    Urgent::Announced(barrier) => gate.on(Arrival::Announced {
                        channel: global,
                        barrier,
                    }),
                    Urgent::Barrier { barrier, cut } => self.passed(channel, barrier, cut, gate),
                }
            }
        }
    }

    fn pull_barriers(&mut self, id: CheckpointId, gate: &mut Gate) {
        for channel in 0..self.receivers.len() {
            if let Some((mut barrier, cut)) = self.receivers[channel].pull_barrier(id) {
                barrier.mode = BarrierMode::Unaligned;
                self.passed(channel, barrier, cut, gate);
            }
        }
    }

    fn record_queued(&mut self, gate: &mut Gate) {
        if let (Some(codec), Some(recording)) = (&self.codec, &mut gate.recording) {
            let waiting = self.batch.iter().chain(self.recovered.iter().flatten());
            waiting.for_each(|record| recording.push(self.number, record, codec.as_ref()));
        }
        self.recorded.fill(0);
        for channel in 0..self.receivers.len() {
            let cut = gate.cut_of(self.first + channel);
            self.record_channel(channel, cut, gate);
        }
    }
}

impl<T> Port<T> {
    /// Takes a barrier that overtook: with it, all that comes before it is known.
    fn passed(&mut self, channel: usize, barrier: Barrier, cut: u64, gate: &mut Gate) {
        let global = self.first + channel;
        if gate
            .recording_of(global)
            .is_some_and(|r| r.id == barrier.id)
        {
            self.record_channel(channel, Some(cut), gate);
        }
        gate.passed(global, barrier, cut);
    }
}

#[cfg(test)]
impl<T> Port<T> {
    /// Takes the restored records out.
    pub(crate) fn take_recovered(&mut self) -> impl Iterator<Item = Timed<T>> {
        std::mem::take(&mut self.recovered).into_iter().flatten()
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
