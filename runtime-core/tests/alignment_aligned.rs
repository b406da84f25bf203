//! Barriers aligned for exactly once: area V of the catalogue.
//!
//! A script is a sequence of arrivals, written as in the catalogue: `B(id, channel)` barrier, `C(id, channel)` cancel
//! marker, `E(channel)` end of partition, `A(id)` abort by the coordinator.
use runtime_core::alignment::{AlignmentReport, Arrival, Decision, ExactlyOnceBarriers, GiveUp};
use runtime_core::channel::Barrier;
use state_api::{CheckpointId, ManualClock};

#[derive(Clone, Copy)]
enum Step {
    B(u64, usize),
    C(u64, usize),
    E(usize),
    A(u64),
}
use Step::{A, B, C, E};

#[derive(Debug, PartialEq)]
enum Seen {
    Triggered(u64),
    Aborted(u64, GiveUp),
}
use Seen::{Aborted, Triggered};

struct Bench {
    barriers: ExactlyOnceBarriers,
    clock: ManualClock,
    channels: usize,
    seen: Vec<Seen>,
    reports: Vec<AlignmentReport>,
}

impl Bench {
    fn new(channels: usize, after_end: bool) -> Self {
        let barriers = ExactlyOnceBarriers::new(channels, after_end);
        Self {
            barriers,
            clock: ManualClock::at(0),
            channels,
            seen: Vec::new(),
            reports: Vec::new(),
        }
    }

    fn run(&mut self, steps: &[Step]) -> &mut Self {
        for step in steps {
            let arrival = match *step {
                B(id, channel) => {
                    assert!(
                        !self.barriers.is_blocked(channel),
                        "a blocked channel {channel} is read"
                    );
                    Arrival::Barrier {
                        channel,
                        barrier: Barrier::new(CheckpointId(id), 0),
                    }
                }
                C(id, channel) => Arrival::Cancel {
                    channel,
                    id: CheckpointId(id),
                },
                E(channel) => Arrival::EndOfPartition { channel },
                A(id) => Arrival::Abort {
                    id: CheckpointId(id),
                },
            };
            let mut decisions = Vec::new();
            self.barriers.on(arrival, &self.clock, &mut decisions);
            let triggers = decisions
                .iter()
                .position(|d| matches!(d, Decision::Trigger { .. }));
            let unblocks = decisions
                .iter()
                .position(|d| matches!(d, Decision::Unblock(_)));
            if let (Some(trigger), Some(unblock)) = (triggers, unblocks) {
                assert!(trigger < unblock, "channels go on only after the snapshot");
            }
            for decision in decisions {
                match decision {
                    Decision::Trigger {
                        barrier,
                        report,
                        unaligned,
                    } => {
                        assert!(!unaligned, "aligned barriers overtake nothing");
                        self.seen.push(Triggered(barrier.id.0));
                        self.reports.push(report);
                    }
                    Decision::GiveUp { id, why } => self.seen.push(Aborted(id.0, why)),
                    Decision::Block(channel) => assert!(self.barriers.is_blocked(channel)),
                    Decision::Unblock(channel) => assert!(!self.barriers.is_blocked(channel)),
                    Decision::Overtake(_) | Decision::AllBarriersIn { .. } => {
                        panic!("aligned barriers overtake nothing")
                    }
                }
            }
        }
        self
    }

    fn blocked(&self) -> Vec<usize> {
        (0..self.channels)
            .filter(|c| self.barriers.is_blocked(*c))
            .collect()
    }
}

/// Runs a script and compares what was triggered and aborted, and what is blocked at the end.
fn check(channels: usize, steps: &[Step], seen: &[Seen], blocked: &[usize]) {
    let mut bench = Bench::new(channels, true);
    bench.run(steps);
    assert_eq!(bench.seen, seen);
    assert_eq!(bench.blocked(), blocked);
}

#[test]
fn k_502_without_barriers_nothing_happens() {
    check(1, &[E(0)], &[], &[]);
    check(4, &[E(2), E(1), E(0), E(3)], &[], &[]);
}

#[test]
fn k_504_a_single_channel_triggers_at_each_barrier_and_is_never_blocked() {
    let steps: Vec<_> = (1..=6).map(|id| B(id, 0)).collect();
    let mut bench = Bench::new(1, true);
    bench.run(&steps);
    assert_eq!(bench.seen, (1..=6).map(Triggered).collect::<Vec<_>>());
    assert!(
        bench
            .reports
            .iter()
            .all(|r| r.duration_ns == 0 && r.bytes == 0)
    );
}

#[test]
fn k_506_barriers_back_to_back_trigger_when_all_have_come() {
    let script = [
        B(1, 0),
        B(1, 2),
        B(1, 1),
        B(2, 2),
        B(2, 1),
        B(2, 0),
        B(3, 2),
        B(3, 0),
        B(3, 1),
        B(4, 1),
        B(4, 2),
        B(4, 0),
    ];
    check(
        3,
        &script,
        &[Triggered(1), Triggered(2), Triggered(3), Triggered(4)],
        &[],
    );
    check(3, &script[..5], &[Triggered(1)], &[1, 2]);
}

#[test]
fn k_507_a_newer_barrier_gives_up_the_older_checkpoint_and_unblocks_its_channels() {
    let script = [B(1, 1), B(1, 2), B(1, 0), B(2, 1), B(2, 0), B(3, 2)];
    check(
        3,
        &script,
        &[Triggered(1), Aborted(2, GiveUp::Subsumed)],
        &[2],
    );
    let rest = [B(3, 0), B(3, 1)];
    check(
        3,
        &[&script[..], &rest].concat(),
        &[Triggered(1), Aborted(2, GiveUp::Subsumed), Triggered(3)],
        &[],
    );
}

#[test]
fn k_509_markers_of_skipped_checkpoints_leave_no_channel_blocked() {
    let script = [B(1, 0), C(3, 1), C(2, 0), C(3, 0)];
    check(
        2,
        &script,
        &[
            Aborted(1, GiveUp::Subsumed),
            Aborted(3, GiveUp::CancelMarker),
        ],
        &[],
    );
}

#[test]
fn k_510_closed_channels_are_not_waited_for() {
    check(4, &[E(2), E(1), B(2, 3)], &[], &[3]);
    check(4, &[E(2), E(1), B(2, 3), B(2, 0)], &[Triggered(2)], &[]);
}

#[test]
fn k_511_the_last_open_channel_triggers_at_once() {
    let script = [E(2), E(1), B(2, 3), B(2, 0), E(0), B(4, 3)];
    check(4, &script, &[Triggered(2), Triggered(4)], &[]);
}

#[test]
fn k_512_an_end_aborts_where_checkpoints_after_an_end_are_off() {
    let mut bench = Bench::new(3, false);
    bench.run(&[B(1, 0), B(1, 1), B(1, 2), B(2, 2), B(2, 0)]);
    assert_eq!(bench.blocked(), [0, 2]);
    bench.run(&[E(1)]);
    assert_eq!(bench.seen, [Triggered(1), Aborted(2, GiveUp::InputEnded)]);
    assert_eq!(bench.blocked(), [0_usize; 0]);
}

#[test]
fn k_513_a_single_channel_follows_barriers_and_markers() {
    let script = [B(1, 0), B(2, 0), C(4, 0), B(5, 0), C(6, 0)];
    let cancelled = GiveUp::CancelMarker;
    check(
        1,
        &script,
        &[
            Triggered(1),
            Triggered(2),
            Aborted(4, cancelled),
            Triggered(5),
            Aborted(6, cancelled),
        ],
        &[],
    );
}

#[test]
fn k_514_a_marker_among_barriers_aborts_and_unblocks() {
    check(
        3,
        &[B(2, 0), B(2, 2), C(2, 1)],
        &[Aborted(2, GiveUp::CancelMarker)],
        &[],
    );
}

#[test]
fn k_515_barriers_behind_a_marker_are_ignored_and_block_nothing() {
    check(
        3,
        &[C(4, 1), B(4, 2), B(4, 0)],
        &[Aborted(4, GiveUp::CancelMarker)],
        &[],
    );
}

#[test]
fn k_516_several_markers_abort_once() {
    check(
        3,
        &[C(6, 1), C(6, 2), B(6, 0)],
        &[Aborted(6, GiveUp::CancelMarker)],
        &[],
    );
}

#[test]
fn k_517_barriers_behind_an_abort_of_the_coordinator_are_ignored() {
    check(
        3,
        &[B(1, 0), A(1), B(1, 1), B(1, 2)],
        &[Aborted(1, GiveUp::Aborted)],
        &[],
    );
    check(
        3,
        &[A(1), B(1, 0), B(1, 1), B(1, 2), B(2, 0)],
        &[Aborted(1, GiveUp::Aborted)],
        &[0],
    );
}

#[test]
fn an_abort_of_a_newer_checkpoint_leaves_the_older_one_that_is_aligning() {
    check(
        3,
        &[B(1, 0), A(2), B(1, 1), A(3), B(1, 2)],
        &[Triggered(1)],
        &[],
    );
    // A marker of the newer one says that the older one's barrier was overtaken on its channel.
    check(
        2,
        &[B(1, 0), A(2), C(2, 1), B(1, 1)],
        &[
            Aborted(1, GiveUp::Subsumed),
            Aborted(2, GiveUp::CancelMarker),
        ],
        &[],
    );
}

#[test]
fn k_519_an_end_of_partition_completes_the_alignment() {
    check(3, &[B(2, 0), B(2, 1), E(2)], &[Triggered(2)], &[]);
}

#[test]
fn k_520_a_channel_with_barrier_and_end_counts_once() {
    check(3, &[B(2, 0), B(2, 1), E(1)], &[], &[0, 1]);
    check(3, &[B(2, 0), B(2, 1), E(1), B(2, 2)], &[Triggered(2)], &[]);
}

#[test]
fn k_521_checkpoints_go_on_after_channels_ended() {
    let script = [E(2), B(6, 0), B(6, 1), E(1), B(7, 0)];
    check(3, &script, &[Triggered(6), Triggered(7)], &[]);
}

#[test]
fn k_522_the_report_measures_time_bytes_and_start_delay() {
    let mut bench = Bench::new(3, true);
    bench.clock.set(10);
    bench.barriers.processed(100);
    bench.run(&[B(1, 0)]);
    bench.barriers.processed(200);
    bench.clock.advance(3);
    bench.run(&[B(1, 1)]);
    bench.barriers.processed(100);
    bench.clock.advance(4);
    bench.run(&[B(1, 2)]);
    bench.barriers.processed(100);
    assert_eq!(
        bench.reports,
        [AlignmentReport {
            duration_ns: 7_000_000,
            bytes: 300,
            start_delay_ms: 10,
            persisted_bytes: 0,
        }]
    );
}

#[test]
fn k_523_a_barrier_of_an_old_checkpoint_is_ignored() {
    check(
        2,
        &[B(5, 0), B(5, 1), B(4, 0), B(5, 0)],
        &[Triggered(5)],
        &[],
    );
    check(2, &[B(5, 0), B(4, 1)], &[], &[0]);
}
