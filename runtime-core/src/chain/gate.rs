use std::collections::VecDeque;
use std::sync::Arc;

use state_api::{CheckpointId, Clock, Error, KeyGroupRange, OperatorUid, Result};

use super::environment::Environment;
use super::in_flight::{Recording, RecordsInFlight, Recover};
use crate::alignment::{
    AlignmentReport, Arrival, CountedBarriers, Decision, ExactlyOnceBarriers, GiveUp,
};
use crate::channel::{Barrier, Signal};
use crate::config::CheckpointMode;
use crate::execution::{Failpoint, Failpoints};
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
    pub(super) recording: Option<Recording>,
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
        ports: &mut [&mut dyn InputPort],
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
    pub(crate) fn attend(&mut self, ports: &mut [&mut dyn InputPort]) -> Option<Cut> {
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

    /// Returns whether there is a cut to be taken.
    pub(super) fn has_cut(&self) -> bool {
        !self.cuts.is_empty()
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
        ports: &mut [&mut dyn InputPort],
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

    /// Returns the bytes of the checkpoint whose barriers come in: recorded ones, or those that were processed meanwhile.
    pub(crate) fn bytes_so_far(&self) -> Option<u64> {
        match (&self.barriers, &self.recording) {
            (_, Some(recording)) => Some(recording.bytes()),
            (Barriers::ExactlyOnce(barriers), None) => barriers.bytes_so_far(),
            (Barriers::Counted(counted), None) => counted.bytes_so_far(),
        }
    }

    /// Returns the checkpoint whose barriers come in, and the channels that have not brought it.
    pub(crate) fn awaited(&self) -> Option<(CheckpointId, Vec<usize>)> {
        match &self.barriers {
            Barriers::ExactlyOnce(barriers) => barriers.awaited(),
            Barriers::Counted(counted) => counted.awaited(),
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

    pub(super) fn is_blocked(&self, channel: usize) -> bool {
        match &self.barriers {
            Barriers::ExactlyOnce(barriers) => barriers.is_blocked(channel),
            Barriers::Counted(_) => false,
        }
    }

    /// Returns the recording if what a channel brings belongs in it.
    pub(super) fn recording_of(&mut self, channel: usize) -> Option<&mut Recording> {
        match &self.barriers {
            Barriers::ExactlyOnce(barriers) if barriers.is_recording(channel) => {
                self.recording.as_mut()
            }
            _ => None,
        }
    }

    pub(super) fn processed(&mut self, bytes: usize) {
        match &mut self.barriers {
            Barriers::ExactlyOnce(barriers) => barriers.processed(bytes as u64),
            Barriers::Counted(counted) => counted.processed(bytes as u64),
        }
    }

    /// Returns where the barrier of the recording cut a channel, if it has come.
    pub(super) fn cut_of(&self, channel: usize) -> Option<u64> {
        let recording = self.recording.as_ref()?;
        let same = self.passed.id == recording.id.0;
        self.passed.cuts[channel].filter(|_| same)
    }

    /// Takes a barrier; the elements of its channel from number `cut` on come after it.
    pub(super) fn passed(&mut self, channel: usize, barrier: Barrier, cut: u64) {
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

    pub(super) fn on(&mut self, arrival: Arrival) {
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
pub(crate) trait InputPort: Recover {
    /// Lets barriers overtake what is queued.
    fn let_overtake(&mut self);

    /// Takes in what does not wait in line.
    fn receive_urgent(&mut self, gate: &mut Gate);

    /// Takes the queued barriers of a checkpoint out of the line.
    fn pull_barriers(&mut self, id: CheckpointId, gate: &mut Gate);

    /// Records all that is queued and not processed, up to the barriers.
    fn record_queued(&mut self, gate: &mut Gate);
}
