//! Barriers that overtake: unaligned checkpoints, and aligned ones that turn unaligned after a timeout.
use std::sync::Arc;

use runtime_core::CheckpointMode;
use runtime_core::alignment::{AlignmentReport, Arrival, Decision, ExactlyOnceBarriers, GiveUp};
use runtime_core::channel::{Barrier, BarrierMode};
use state_api::{CheckpointId, ErrorKind, ManualClock, SnapshotKind};

use BarrierMode::{Aligned, AlignedWithTimeout, Unaligned};

/// What the machine decided, without the blocking of channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// A snapshot, and whether records in flight are part of it.
    Cut(u64, bool),
    Overtake(u64),
    AllIn(u64),
    GaveUp(u64, GiveUp),
}

use Seen::{AllIn, Cut, GaveUp, Overtake};

struct Bench {
    barriers: ExactlyOnceBarriers,
    channels: usize,
    clock: Arc<ManualClock>,
    mode: BarrierMode,
    reports: Vec<AlignmentReport>,
}

impl Bench {
    fn new(channels: usize, mode: BarrierMode) -> Self {
        Self {
            barriers: ExactlyOnceBarriers::new(channels, true),
            channels,
            clock: Arc::new(ManualClock::at(1_000)),
            mode,
            reports: Vec::new(),
        }
    }

    /// The barrier of a checkpoint that was triggered at time 1,000.
    fn barrier_of(&self, id: u64) -> Barrier {
        Barrier {
            mode: self.mode,
            ..Barrier::new(CheckpointId(id), 1_000)
        }
    }

    fn on(&mut self, arrival: Arrival) -> Vec<Seen> {
        let mut decisions = Vec::new();
        self.barriers
            .on(arrival, self.clock.as_ref(), &mut decisions);
        let mut seen = Vec::new();
        for decision in decisions {
            seen.push(match decision {
                Decision::Trigger {
                    barrier, unaligned, ..
                } => {
                    assert!(!barrier.forced_aligned);
                    assert!(!unaligned || barrier.mode == Unaligned);
                    Cut(barrier.id.0, unaligned)
                }
                Decision::Overtake(id) => Overtake(id.0),
                Decision::AllBarriersIn { id, report } => {
                    self.reports.push(report);
                    AllIn(id.0)
                }
                Decision::GiveUp { id, why } => GaveUp(id.0, why),
                Decision::Block(channel) => {
                    assert!(self.barriers.is_blocked(channel));
                    continue;
                }
                Decision::Unblock(channel) => {
                    assert!(!self.barriers.is_blocked(channel));
                    continue;
                }
            });
        }
        seen
    }

    fn barrier(&mut self, id: u64, channel: usize) -> Vec<Seen> {
        let barrier = self.barrier_of(id);
        self.on(Arrival::Barrier { channel, barrier })
    }

    fn announce(&mut self, id: u64, channel: usize) -> Vec<Seen> {
        let barrier = self.barrier_of(id);
        self.on(Arrival::Announced { channel, barrier })
    }

    fn cancel(&mut self, id: u64, channel: usize) -> Vec<Seen> {
        let id = CheckpointId(id);
        self.on(Arrival::Cancel { channel, id })
    }

    fn end(&mut self, channel: usize) -> Vec<Seen> {
        self.on(Arrival::EndOfPartition { channel })
    }

    fn tick(&mut self, after_ms: i64) -> Vec<Seen> {
        self.clock.advance(after_ms);
        self.on(Arrival::Tick)
    }

    fn recording(&self) -> Vec<usize> {
        let channels = 0..self.channels;
        channels
            .filter(|channel| self.barriers.is_recording(*channel))
            .collect()
    }

    fn blocked(&self) -> usize {
        let channels = 0..self.channels;
        channels
            .filter(|channel| self.barriers.is_blocked(*channel))
            .count()
    }
}

#[test]
fn k_543_the_first_barrier_triggers_and_the_others_only_end_their_channels_recording() {
    let mut bench = Bench::new(3, Unaligned);
    assert_eq!(bench.barrier(1, 1), [Cut(1, true)]);
    assert_eq!(bench.recording(), [0, 2]);
    assert_eq!(bench.barrier(1, 0), []);
    assert_eq!((bench.recording(), bench.blocked()), (vec![2], 0));
    assert_eq!(bench.barrier(1, 2), [AllIn(1)]);
    assert!(bench.recording().is_empty() && !bench.barriers.is_aligning());
}

#[test]
fn k_543_with_one_channel_the_only_barrier_triggers_and_completes() {
    let mut bench = Bench::new(1, Unaligned);
    assert_eq!(bench.barrier(1, 0), [Cut(1, true), AllIn(1)]);
    assert_eq!(bench.barrier(1, 0), []);
    assert_eq!(bench.barrier(2, 0), [Cut(2, true), AllIn(2)]);
}

#[test]
fn k_545_a_cancel_marker_gives_up_once_whether_it_comes_before_or_after_barriers() {
    let mut bench = Bench::new(3, Unaligned);
    assert_eq!(bench.cancel(1, 0), [GaveUp(1, GiveUp::CancelMarker)]);
    assert_eq!(bench.barrier(1, 1), []);
    assert_eq!(bench.cancel(1, 2), []);
    assert_eq!(bench.barrier(2, 0), [Cut(2, true)]);
    assert_eq!(bench.cancel(2, 1), [GaveUp(2, GiveUp::CancelMarker)]);
    assert!(bench.recording().is_empty());
    assert_eq!(bench.barrier(2, 2), []);
    assert_eq!(
        bench.on(Arrival::Abort {
            id: CheckpointId(2)
        }),
        [],
        "it has ended"
    );
}

#[test]
fn k_546_a_newer_barrier_gives_up_a_checkpoint_whose_records_in_flight_are_not_complete() {
    let mut bench = Bench::new(2, Unaligned);
    bench.barrier(1, 0);
    assert_eq!(
        bench.barrier(2, 0),
        [GaveUp(1, GiveUp::Subsumed), Cut(2, true)]
    );
    assert_eq!(bench.recording(), [1]);
    assert_eq!(bench.barrier(1, 1), []);
    assert_eq!(bench.barrier(2, 1), [AllIn(2)]);
}

#[test]
fn k_547_the_end_of_the_last_missing_channel_completes_the_records_in_flight() {
    let mut bench = Bench::new(3, Unaligned);
    bench.barrier(1, 0);
    assert_eq!(bench.end(1), []);
    assert_eq!(bench.recording(), [2]);
    assert_eq!(bench.end(2), [AllIn(1)]);
    assert_eq!(bench.barrier(2, 0), [Cut(2, true), AllIn(2)]);
}

#[test]
fn k_550_a_barrier_that_is_read_after_the_timeout_is_unaligned_and_a_fresh_one_is_not() {
    let mut bench = Bench::new(1, AlignedWithTimeout(100));
    assert_eq!(bench.announce(1, 0), []);
    assert_eq!(bench.barriers.deadline_ms(), Some(1_100));
    bench.clock.advance(101);
    assert_eq!(bench.barrier(1, 0), [Cut(1, true), Overtake(1), AllIn(1)]);
    let fresh = Barrier {
        timestamp_ms: 1_101,
        ..bench.barrier_of(2)
    };
    let arrival = Arrival::Barrier {
        channel: 0,
        barrier: fresh,
    };
    assert_eq!(bench.on(arrival), [Cut(2, false)]);
}

#[test]
fn k_552_a_timeout_between_two_announcements_lets_the_barriers_overtake() {
    let mut bench = Bench::new(2, AlignedWithTimeout(100));
    assert_eq!(bench.announce(1, 0), []);
    bench.clock.advance(101);
    assert_eq!(bench.announce(1, 1), [Overtake(1)]);
    // The gate pulls both out of the line: they arrive as barriers that overtook.
    bench.mode = Unaligned;
    assert_eq!(bench.barrier(1, 0), [Cut(1, true)]);
    assert_eq!(bench.barrier(1, 1), [AllIn(1)]);
}

#[test]
fn k_554_after_all_announcements_the_timer_makes_the_first_barrier_trigger_unaligned() {
    let mut bench = Bench::new(2, AlignedWithTimeout(100));
    bench.announce(1, 0);
    bench.announce(1, 1);
    assert_eq!(bench.tick(99), []);
    assert_eq!(bench.tick(1), [Overtake(1)]);
    bench.mode = Unaligned;
    assert_eq!(bench.barrier(1, 1), [Cut(1, true)]);
    assert_eq!(bench.barrier(1, 0), [AllIn(1)]);
}

#[test]
fn k_555_a_first_barrier_that_is_too_old_already_triggers_unaligned_at_once() {
    let mut bench = Bench::new(2, AlignedWithTimeout(100));
    bench.clock.advance(100);
    assert_eq!(bench.barrier(1, 0), [Cut(1, true), Overtake(1)]);
    assert_eq!((bench.recording(), bench.blocked()), (vec![1], 0));
}

#[test]
fn k_556_the_timer_runs_from_the_trigger_whichever_channel_speaks_first() {
    let mut bench = Bench::new(3, AlignedWithTimeout(100));
    bench.clock.advance(10);
    assert_eq!(bench.barrier(1, 0), []);
    assert_eq!(
        (bench.barriers.deadline_ms(), bench.blocked()),
        (Some(1_100), 1)
    );
    assert_eq!(bench.announce(1, 1), []);
    bench.clock.advance(90);
    assert_eq!(bench.announce(1, 2), [Cut(1, true), Overtake(1)]);
    assert_eq!(bench.blocked(), 0);
}

#[test]
fn k_557_a_timer_that_fires_after_an_event_noticed_the_timeout_triggers_nothing_again() {
    let mut bench = Bench::new(2, AlignedWithTimeout(100));
    bench.barrier(1, 0);
    bench.clock.advance(100);
    assert_eq!(bench.announce(1, 1), [Cut(1, true), Overtake(1)]);
    assert_eq!(bench.tick(0), []);
    assert_eq!(bench.barriers.deadline_ms(), None);
    assert_eq!(bench.barrier(1, 1), [AllIn(1)]);
    assert_eq!(bench.tick(1_000), []);
}

#[test]
fn k_558_k_559_the_timer_alone_turns_an_alignment_unaligned_and_unblocks_every_channel() {
    let mut bench = Bench::new(3, AlignedWithTimeout(100));
    bench.barrier(1, 0);
    bench.barrier(1, 1);
    assert_eq!(bench.blocked(), 2);
    assert_eq!(bench.tick(100), [Cut(1, true), Overtake(1)]);
    assert_eq!((bench.blocked(), bench.recording()), (0, vec![2]));
}

#[test]
fn k_560_a_timer_has_no_effect_after_the_last_barrier_a_marker_or_an_abort() {
    for ending in 0..3 {
        let mut bench = Bench::new(2, AlignedWithTimeout(100));
        bench.barrier(1, 0);
        let seen = match ending {
            0 => bench.barrier(1, 1),
            1 => bench.cancel(1, 1),
            _ => bench.on(Arrival::Abort {
                id: CheckpointId(1),
            }),
        };
        assert_eq!(seen.len(), 1);
        assert_eq!(bench.tick(1_000), []);
        assert_eq!((bench.blocked(), bench.recording()), (0, Vec::new()));
    }
}

#[test]
fn an_abort_of_a_newer_checkpoint_leaves_the_older_one_and_its_timer() {
    let newer = Arrival::Abort {
        id: CheckpointId(2),
    };
    let mut bench = Bench::new(2, Unaligned);
    bench.barrier(1, 0);
    assert_eq!(bench.on(newer), []);
    assert_eq!(bench.recording(), [1]);
    assert_eq!(bench.barrier(1, 1), [AllIn(1)]);
    let mut bench = Bench::new(2, AlignedWithTimeout(100));
    bench.barrier(1, 0);
    assert_eq!(bench.on(newer), []);
    assert_eq!(bench.blocked(), 1);
    assert_eq!(bench.tick(100), [Cut(1, true), Overtake(1)]);
    assert_eq!(bench.on(newer), []);
    assert_eq!(bench.barrier(1, 1), [AllIn(1)]);
}

#[test]
fn k_561_a_barrier_that_overtook_in_front_turns_the_alignment_unaligned() {
    let mut bench = Bench::new(3, AlignedWithTimeout(1_000));
    bench.barrier(1, 0);
    bench.mode = Unaligned;
    assert_eq!(bench.barrier(1, 1), [Cut(1, true)]);
    assert_eq!((bench.blocked(), bench.recording()), (0, vec![2]));
    // One that is still in line elsewhere is pulled out as soon as it is known.
    bench.mode = AlignedWithTimeout(1_000);
    assert_eq!(bench.announce(1, 2), [Overtake(1)]);
    bench.mode = Unaligned;
    assert_eq!(bench.barrier(1, 2), [AllIn(1)]);
}

#[test]
fn k_562_the_end_of_a_channel_notices_that_the_time_is_up() {
    let mut bench = Bench::new(3, AlignedWithTimeout(100));
    bench.barrier(1, 0);
    bench.clock.advance(100);
    assert_eq!(bench.end(1), [Cut(1, true), Overtake(1)]);
    assert_eq!(bench.recording(), [2]);
}

#[test]
fn k_563_a_checkpoint_begun_by_an_announcement_completes_once() {
    let mut bench = Bench::new(3, AlignedWithTimeout(100));
    assert_eq!(bench.announce(1, 0), []);
    assert_eq!(bench.end(1), []);
    assert_eq!(bench.barrier(1, 0), []);
    assert_eq!(bench.barrier(1, 2), [Cut(1, false)]);
    assert_eq!(bench.announce(1, 2), []);
}

#[test]
fn k_564_k_565_checkpoints_of_either_mode_follow_one_another() {
    let mut bench = Bench::new(2, Unaligned);
    assert_eq!(bench.barrier(1, 0), [Cut(1, true)]);
    assert_eq!(bench.barrier(1, 1), [AllIn(1)]);
    bench.mode = Aligned;
    assert_eq!(bench.barrier(2, 0), []);
    assert_eq!(bench.blocked(), 1);
    bench.mode = Unaligned;
    assert_eq!(
        bench.barrier(3, 1),
        [GaveUp(2, GiveUp::Subsumed), Cut(3, true)]
    );
    assert_eq!((bench.blocked(), bench.recording()), (0, vec![0]));
    assert_eq!(bench.barrier(3, 0), [AllIn(3)]);
    bench.mode = Aligned;
    assert_eq!(bench.barrier(4, 0), []);
    assert_eq!(bench.barrier(4, 1), [Cut(4, false)]);
}

#[test]
fn k_566_the_barrier_of_an_older_checkpoint_is_ignored() {
    let mut bench = Bench::new(2, Unaligned);
    bench.barrier(2, 0);
    assert_eq!(bench.barrier(1, 1), []);
    assert_eq!(bench.announce(1, 1), []);
    assert_eq!(bench.recording(), [1]);
}

#[test]
fn k_567_a_barrier_that_overtakes_a_cancel_marker_of_an_older_checkpoint_stands() {
    let mut bench = Bench::new(2, Unaligned);
    bench.barrier(1, 0);
    bench.clock.advance(5);
    bench.barrier(2, 1);
    assert_eq!(bench.cancel(1, 1), []);
    bench.clock.advance(3);
    assert_eq!(bench.barrier(2, 0), [AllIn(2)]);
    assert_eq!(bench.reports[0].duration_ns, 3_000_000);
}

#[test]
fn k_568_the_alignment_of_an_unaligned_checkpoint_is_measured_to_its_last_barrier() {
    let mut bench = Bench::new(2, Unaligned);
    bench.clock.advance(10);
    bench.barrier(1, 0);
    bench.barriers.processed(1_000);
    bench.barriers.processed(1_000);
    bench.clock.advance(6);
    bench.barrier(1, 1);
    let expected = AlignmentReport {
        duration_ns: 6_000_000,
        bytes: 2_000,
        persisted_bytes: 0,
        start_delay_ms: 10,
    };
    assert_eq!(bench.reports, [expected]);
}

#[test]
fn k_572_the_mode_of_a_barrier_follows_from_kind_guarantee_and_timeout() {
    use CheckpointMode::{AtLeastOnce, ExactlyOnce};
    use SnapshotKind::{CanonicalSavepoint, Checkpoint, FullCheckpoint, NativeSavepoint};
    let of = BarrierMode::of;
    assert_eq!(of(Checkpoint, AtLeastOnce, true, 0), Aligned);
    assert_eq!(of(CanonicalSavepoint, ExactlyOnce, true, 0), Aligned);
    assert_eq!(of(NativeSavepoint, ExactlyOnce, true, 10), Aligned);
    assert_eq!(of(Checkpoint, ExactlyOnce, false, 0), Aligned);
    assert_eq!(of(Checkpoint, ExactlyOnce, true, 0), Unaligned);
    assert_eq!(of(FullCheckpoint, ExactlyOnce, true, 0), Unaligned);
    assert_eq!(
        of(Checkpoint, ExactlyOnce, true, 10),
        AlignedWithTimeout(10)
    );
    assert_eq!(of(Checkpoint, ExactlyOnce, true, u64::MAX), Aligned);
}

#[test]
fn k_573_the_barrier_of_a_savepoint_can_not_overtake() {
    let savepoint = Barrier {
        kind: SnapshotKind::CanonicalSavepoint,
        ..Barrier::new(CheckpointId(1), 0)
    };
    for mode in [Unaligned, AlignedWithTimeout(5)] {
        let refused = savepoint.with_mode(mode).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    }
    assert_eq!(savepoint.with_mode(Aligned).unwrap(), savepoint);
}

#[test]
fn k_574_a_barrier_that_is_forced_into_line_has_its_mode_back_behind() {
    let barrier = Barrier {
        mode: Unaligned,
        ..Barrier::new(CheckpointId(1), 0)
    };
    let forced = barrier.force_aligned();
    assert_eq!(forced.effective_mode(), Aligned);
    assert_eq!(forced.unforced(), barrier);
    let mut barriers = ExactlyOnceBarriers::new(1, true);
    let mut decisions = Vec::new();
    let arrival = Arrival::Barrier {
        channel: 0,
        barrier: forced,
    };
    barriers.on(arrival, &ManualClock::at(0), &mut decisions);
    let [
        Decision::Trigger {
            barrier: onward,
            unaligned,
            ..
        },
    ] = decisions[..]
    else {
        panic!("one cut but {decisions:?}")
    };
    assert_eq!((onward, unaligned), (barrier, false));
}
