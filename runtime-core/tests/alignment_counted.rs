//! Barriers counted for at least once: area W of the catalogue.
use runtime_core::alignment::{AlignmentReport, Arrival, CountedBarriers, Decision};
use runtime_core::channel::Barrier;
use state_api::{CheckpointId, ManualClock};

#[derive(Clone, Copy)]
enum Step {
    B(u64, usize),
    C(u64, usize),
    E(usize),
    /// The coordinator gives it up.
    A(u64),
    /// Milliseconds pass.
    T(i64),
}
use Step::{A, B, C, E, T};

struct Bench {
    barriers: CountedBarriers,
    clock: ManualClock,
    /// Ids in order; a negative one was given up.
    seen: Vec<i64>,
    reports: Vec<AlignmentReport>,
}

fn run(channels: usize, steps: &[Step]) -> Bench {
    let barriers = CountedBarriers::new(channels, true);
    let mut bench = Bench {
        barriers,
        clock: ManualClock::at(0),
        seen: Vec::new(),
        reports: Vec::new(),
    };
    for step in steps {
        let arrival = match *step {
            B(id, channel) => Arrival::Barrier {
                channel,
                barrier: Barrier::new(CheckpointId(id), 0),
            },
            C(id, channel) => Arrival::Cancel {
                channel,
                id: CheckpointId(id),
            },
            E(channel) => Arrival::EndOfPartition { channel },
            A(id) => Arrival::Abort {
                id: CheckpointId(id),
            },
            T(ms) => {
                bench.clock.advance(ms);
                continue;
            }
        };
        let mut decisions = Vec::new();
        bench.barriers.on(arrival, &bench.clock, &mut decisions);
        for decision in decisions {
            match decision {
                Decision::Trigger {
                    barrier, report, ..
                } => {
                    bench.seen.push(barrier.id.0 as i64);
                    bench.reports.push(report);
                }
                Decision::GiveUp { id, .. } => bench.seen.push(-(id.0 as i64)),
                Decision::Block(_) | Decision::Unblock(_) => panic!("channels are never blocked"),
                Decision::Overtake(_) | Decision::AllBarriersIn { .. } => {
                    panic!("nothing overtakes")
                }
            }
        }
    }
    bench
}

#[test]
fn what_the_oldest_checkpoint_waits_for_is_told() {
    let awaited = |steps: &[Step]| {
        let awaited = run(3, steps).barriers.awaited();
        awaited.map(|(id, missing)| (id.0, missing))
    };
    assert_eq!(awaited(&[]), None);
    assert_eq!(awaited(&[B(1, 1)]), Some((1, vec![0, 2])));
    assert_eq!(awaited(&[B(1, 1), B(2, 1), E(2)]), Some((1, vec![0])));
    assert_eq!(awaited(&[B(1, 1), B(1, 0), B(1, 2)]), None);
    // One that was given up waits for nothing.
    assert_eq!(awaited(&[C(1, 1)]), None);
    assert_eq!(awaited(&[C(1, 1), B(2, 1)]), Some((2, vec![0, 2])));
}

#[test]
fn the_bytes_since_its_first_barrier_are_told() {
    let mut bench = run(2, &[B(1, 0)]);
    bench.barriers.processed(70);
    assert_eq!(bench.barriers.bytes_so_far(), Some(70));
    assert_eq!(run(2, &[]).barriers.bytes_so_far(), None);
}

fn pending(bench: &Bench) -> Vec<u64> {
    bench.barriers.pending().iter().map(|id| id.0).collect()
}

#[test]
fn k_525_without_barriers_nothing_is_triggered() {
    assert_eq!(run(4, &[E(0), E(3)]).seen, [0_i64; 0]);
}

#[test]
fn k_526_a_single_channel_triggers_in_order_with_gaps() {
    assert_eq!(
        run(1, &[B(1, 0), B(2, 0), B(3, 0), B(4, 0), B(5, 0), B(6, 0)]).seen,
        [1, 2, 3, 4, 5, 6]
    );
    assert_eq!(
        run(1, &[B(1, 0), B(3, 0), B(4, 0), B(7, 0)]).seen,
        [1, 3, 4, 7]
    );
}

#[test]
fn k_527_the_last_barrier_of_each_triggers() {
    let script = [B(1, 0), B(1, 2), B(1, 1), B(2, 2), B(2, 1), B(2, 0)];
    assert_eq!(run(3, &script[..2]).seen, [0_i64; 0]);
    assert_eq!(run(3, &script).seen, [1, 2]);
}

#[test]
fn k_528_incomplete_checkpoints_are_dropped_when_a_later_one_completes() {
    let bench = run(
        3,
        &[
            B(1, 0),
            B(1, 2),
            B(2, 0),
            B(2, 1),
            B(3, 0),
            B(2, 2),
            B(1, 1),
        ],
    );
    assert_eq!(bench.seen, [2]);
    assert_eq!(pending(&bench), [3]);
}

#[test]
fn k_529_several_pending_checkpoints_complete_in_order() {
    let script = [
        B(2, 0),
        B(2, 1),
        B(3, 0),
        B(2, 2),
        B(3, 2),
        B(4, 0),
        B(3, 1),
        B(4, 1),
        B(5, 1),
        B(4, 2),
        B(5, 0),
        B(5, 2),
        B(6, 0),
        B(7, 0),
        B(7, 1),
        B(8, 0),
        B(8, 1),
        B(9, 0),
        B(10, 0),
        B(7, 2),
        B(8, 2),
        B(9, 1),
        B(10, 1),
        B(9, 2),
        B(10, 2),
    ];
    let bench = run(3, &script);
    assert_eq!(bench.seen, [2, 3, 4, 5, 7, 8, 9, 10]);
    assert_eq!(pending(&bench), [0_u64; 0]);
}

#[test]
fn k_530_a_barrier_that_overtakes_a_marker_is_measured_from_its_own_first() {
    let bench = run(
        2,
        &[
            B(1, 1),
            T(1000),
            B(2, 1),
            T(1000),
            C(1, 0),
            T(1000),
            B(2, 0),
        ],
    );
    assert_eq!(bench.seen, [-1, 2]);
    assert_eq!(bench.reports[0].duration_ns, 2_000_000_000);
}

#[test]
fn k_531_two_last_barriers_one_by_one() {
    let bench = run(
        2,
        &[
            B(1, 1),
            T(1000),
            B(2, 1),
            T(1000),
            B(1, 0),
            T(1000),
            B(2, 0),
        ],
    );
    assert_eq!(bench.seen, [1, 2]);
    assert_eq!(bench.reports[1].duration_ns, 2_000_000_000);
}

#[test]
fn k_532_a_single_channel_follows_barriers_and_markers() {
    assert_eq!(
        run(1, &[B(1, 0), B(2, 0), C(4, 0), B(5, 0), C(6, 0)]).seen,
        [1, 2, -4, 5, -6]
    );
}

#[test]
fn k_533_each_checkpoint_is_given_up_once_wherever_its_marker_comes() {
    let script = [
        B(1, 1),
        B(1, 2),
        B(1, 0),
        B(2, 0),
        B(2, 2),
        C(2, 1),
        B(3, 1),
        B(3, 2),
        B(3, 0),
        C(4, 1),
        B(4, 2),
        B(4, 0),
        B(5, 2),
        B(5, 1),
        B(5, 0),
        C(6, 1),
        C(6, 2),
        B(6, 0),
    ];
    let bench = run(3, &script);
    assert_eq!(bench.seen, [1, -2, 3, -4, 5, -6]);
    assert_eq!(pending(&bench), [0_u64; 0]);
}

#[test]
fn k_535_an_end_triggers_the_newest_that_is_complete_then() {
    let script = [
        B(1, 0),
        B(2, 0),
        B(2, 1),
        B(3, 0),
        B(4, 0),
        B(4, 1),
        B(5, 1),
        E(2),
    ];
    let bench = run(3, &script);
    assert_eq!(bench.seen, [4]);
    assert_eq!(pending(&bench), [5]);
    assert_eq!(bench.barriers.open_channels(), 2);
}

#[test]
fn k_536_a_channel_with_barrier_and_end_counts_once() {
    assert_eq!(run(3, &[B(2, 0), B(2, 1), E(1)]).seen, [0_i64; 0]);
    assert_eq!(run(3, &[B(2, 0), B(2, 1), E(1), B(2, 2)]).seen, [2]);
}

#[test]
fn k_537_checkpoints_go_on_after_channels_ended() {
    let script = [E(2), B(5, 0), B(6, 0), B(6, 1), E(1), B(7, 0)];
    assert_eq!(run(3, &script).seen, [6, 7]);
}

#[test]
fn k_538_a_pending_checkpoint_is_triggered_once_when_one_channel_is_left() {
    let bench = run(2, &[B(1, 0), E(0), B(1, 1)]);
    assert_eq!(bench.seen, [1]);
    assert_eq!(pending(&bench), [0_u64; 0]);
}

#[test]
fn k_539_a_pending_checkpoint_is_given_up_when_one_channel_is_left() {
    let bench = run(2, &[B(1, 0), E(0), C(1, 1)]);
    assert_eq!(bench.seen, [-1]);
    assert_eq!(pending(&bench), [0_u64; 0]);
}

#[test]
fn k_540_a_given_up_checkpoint_is_forgotten_at_the_end_of_its_last_channel() {
    let bench = run(3, &[C(4, 0), B(4, 1), B(5, 1), E(2)]);
    assert_eq!(bench.seen, [-4]);
    assert_eq!(pending(&bench), [5]);
}

#[test]
fn k_541_markers_after_ends_give_up_in_order() {
    let script = [E(2), B(5, 0), B(6, 0), C(6, 1), E(1), C(7, 0)];
    assert_eq!(run(3, &script).seen, [-5, -6, -7]);
}

#[test]
fn k_542_a_single_channel_has_no_alignment() {
    let bench = run(1, &[T(5), B(1, 0)]);
    assert_eq!(
        bench.reports,
        [AlignmentReport {
            duration_ns: 0,
            bytes: 0,
            start_delay_ms: 5,
            persisted_bytes: 0,
        }]
    );
}

#[test]
fn k_405_an_abort_leaves_an_older_checkpoint_to_be_counted_to_its_end() {
    let both = [B(4, 0), B(5, 0), A(5)];
    assert_eq!(run(2, &both).seen, [0_i64; 0]);
    let bench = run(2, &[&both[..], &[B(4, 1)]].concat());
    assert_eq!((&bench.seen[..], pending(&bench)), (&[4, -5][..], vec![5]));
    let bench = run(
        2,
        &[&both[..], &[B(4, 1), B(5, 1), B(6, 0), B(6, 1)]].concat(),
    );
    assert_eq!(bench.seen, [4, -5, 6]);
    // The word is out when the older one is given up, too, and once.
    assert_eq!(run(2, &[&both[..], &[A(4), A(5)]].concat()).seen, [-4, -5]);
    assert_eq!(run(2, &[&both[..], &[C(5, 1)]].concat()).seen, [-4, -5]);
    // A channel without a barrier of the older one: no such barrier comes any more.
    let bench = run(2, &[&both[..], &[B(5, 1)]].concat());
    assert_eq!((&bench.seen[..], pending(&bench)), (&[-5][..], vec![]));
}

#[test]
fn k_540_an_end_triggers_the_complete_checkpoint_behind_which_one_was_given_up() {
    let script = [B(4, 0), B(4, 1), B(5, 0), B(5, 1), A(5), E(2)];
    let bench = run(3, &script);
    assert_eq!((&bench.seen[..], pending(&bench)), (&[4, -5][..], vec![]));
    let bench = run(3, &[B(4, 0), B(5, 0), A(4), A(5), B(6, 0), E(2)]);
    assert_eq!(bench.seen, [-4, -5]);
    assert_eq!(pending(&bench), [4, 5, 6]);
}
