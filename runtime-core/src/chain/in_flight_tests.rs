use std::cell::Cell;
use std::rc::Rc;

use backend_testkit::fuzz::fuzz;
use backend_testkit::meter::{Bound, Metered};
use futures_util::FutureExt;
use state_api::{CancelToken, ErrorKind, Executor, ManualClock};

use super::*;
use crate::chain::gate::{Cut, Gate};
use crate::chain::port::{Polled, Port};
use crate::channel::{Barrier, BarrierMode, BatchWriter, Element, Signal, channel};
use crate::task::subtask_tests::environment;
use crate::testing::StepExecutor;

#[global_allocator]
static METERED: Metered = Metered;

/// A record in the batch that it is decoded into, and what an error says.
const BOUND: Bound = Bound {
    fixed: 64 << 10,
    per_byte: 64,
};

fn port() -> Port<String> {
    let codec: SharedCodec<String> = Arc::new(RecordCodec::compact());
    Port::new(Vec::new(), 0).persisted(0, Some(codec))
}

fn recorded(records: &[(i64, &str)]) -> Recorded {
    let codec = RecordCodec::<String>::compact();
    let mut recorded = Recorded {
        header: header(&[codec.fingerprint]),
        groups: BTreeMap::new(),
        partitions: Vec::new(),
        bytes: 0,
    };
    for (time, value) in records {
        let value = (*value).to_owned();
        recorded.push(0, &Timed { value, time: *time }, &codec);
    }
    recorded
}

fn encoded(records: &[(i64, &str)]) -> Vec<u8> {
    let mut recorded = recorded(records);
    assert_eq!(recorded.partitions.len(), 1);
    recorded.partitions.remove(0)
}

/// The texts in a recording, sorted.
fn texts(recorded: &Recorded) -> Vec<String> {
    let mut port = port();
    for partition in &recorded.partitions {
        decode(partition, &mut [&mut port]).unwrap();
    }
    let mut texts: Vec<String> = port.take_recovered().map(|record| record.value).collect();
    texts.sort();
    texts
}

/// A port of two channels with what feeds them.
struct Bench {
    gate: Gate,
    port: Port<String>,
    writers: Vec<BatchWriter<Timed<String>>>,
    env: Environment,
}

impl Bench {
    /// Creates a port of channels that hold `capacity` records.
    fn new(capacity: usize) -> Self {
        let signal = Signal::new();
        let env = environment(
            Arc::clone(&signal),
            StepExecutor::new() as Arc<dyn Executor>,
        );
        let congested = Rc::new(Cell::new(false));
        let (mut writers, mut receivers) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            let (sender, receiver) = channel(capacity, Signal::new(), Arc::clone(&signal));
            writers.push(BatchWriter::new(sender, Rc::clone(&congested)));
            receivers.push(receiver);
        }
        let codec: SharedCodec<String> = Arc::new(RecordCodec::compact());
        let mut port = Port::new(receivers, 0).persisted(0, Some(codec));
        let mut gate = Gate::new(2, &env);
        let uid = OperatorUid::new("operator").unwrap();
        gate.let_overtake(Some(&uid), &env, &mut [&mut port])
            .unwrap();
        Self {
            gate,
            port,
            writers,
            env,
        }
    }

    fn send(&mut self, channel: usize, text: &str) {
        let value = text.to_owned();
        self.writers[channel].push(Timed { value, time: 0 });
        self.writers[channel].flush();
    }

    fn barrier(&mut self, channel: usize, id: u64, mode: BarrierMode) {
        let barrier = Barrier::new(CheckpointId(id), 0).with_mode(mode).unwrap();
        self.writers[channel].push_barrier(barrier);
    }

    fn attend(&mut self) -> Option<Cut> {
        self.gate.attend(&mut [&mut self.port])
    }

    fn cut(&mut self, id: u64) -> RecordsInFlight {
        let cut = self.attend();
        assert!(
            matches!(cut, Some(Cut::Snapshot { barrier, unaligned: true, .. }) if barrier.id.0 == id),
            "{cut:?}"
        );
        let ports: &mut [&mut dyn crate::chain::gate::InputPort] = &mut [&mut self.port];
        self.gate.record_in_flight(CheckpointId(id), ports).unwrap()
    }

    /// Takes the records that the channels bring, as far as they go.
    fn take(&mut self) -> Vec<String> {
        let mut taken = Vec::new();
        while let Polled::Records = self.port.poll(&mut self.gate) {
            while let Some(record) = self.port.next_record() {
                taken.push(record.value);
            }
        }
        taken
    }
}

/// Returns what was recorded, once the last barrier is in.
fn outcome(records: RecordsInFlight) -> Option<Result<(Vec<String>, AlignmentReport)>> {
    let received = records.coming.now_or_never()?;
    let handed = received.unwrap_or_else(|_| Err(Error::cancelled("dropped")));
    Some(handed.map(|(recorded, report)| (texts(&recorded), report)))
}

#[test]
fn k_544_what_comes_before_a_barrier_is_recorded_and_what_comes_behind_is_not() {
    let mut bench = Bench::new(100);
    for (channel, text) in [(0, "a1"), (0, "a2"), (1, "b1")] {
        bench.send(channel, text);
    }
    bench.barrier(0, 1, BarrierMode::Unaligned);
    bench.send(0, "a3, behind");
    let records = bench.cut(1);
    bench.send(1, "b2");
    // Nothing is blocked, and what was overtaken is processed all the same.
    let mut taken = bench.take();
    taken.sort();
    assert_eq!(taken, ["a1", "a2", "a3, behind", "b1", "b2"]);
    bench.send(1, "b3");
    bench.barrier(1, 1, BarrierMode::Unaligned);
    bench.send(1, "b4, behind");
    assert!(bench.attend().is_none());
    let (texts, report) = outcome(records).unwrap().unwrap();
    assert_eq!(texts, ["a1", "a2", "b1", "b2", "b3"]);
    assert!(report.persisted_bytes > 0);
}

#[test]
fn k_544_a_batch_that_is_half_processed_is_recorded_from_where_it_stands() {
    let mut bench = Bench::new(100);
    for text in ["done", "not yet"] {
        let value = text.to_owned();
        bench.writers[0].push(Timed { value, time: 0 });
    }
    bench.writers[0].flush();
    assert!(matches!(bench.port.poll(&mut bench.gate), Polled::Records));
    assert_eq!(bench.port.next_record().unwrap().value, "done");
    bench.barrier(0, 1, BarrierMode::Unaligned);
    bench.barrier(1, 1, BarrierMode::Unaligned);
    let records = bench.cut(1);
    assert!(bench.attend().is_none());
    assert_eq!(outcome(records).unwrap().unwrap().0, ["not yet"]);
}

#[test]
fn what_a_sender_kept_back_is_recorded_and_it_goes_on_only_when_there_is_room() {
    let mut bench = Bench::new(1);
    for text in ["in the channel", "kept back 1", "kept back 2"] {
        bench.send(0, text);
    }
    bench.barrier(0, 1, BarrierMode::Unaligned);
    bench.barrier(1, 1, BarrierMode::Unaligned);
    let records = bench.cut(1);
    bench.attend();
    let (texts, _) = outcome(records).unwrap().unwrap();
    assert_eq!(texts, ["in the channel", "kept back 1", "kept back 2"]);
    assert!(!bench.writers[0].pump(), "the channel is over its capacity");
    assert_eq!(bench.take().len(), 3);
    assert!(bench.writers[0].pump());
}

#[test]
fn k_603_a_barrier_with_a_timeout_waits_in_line_and_is_pulled_out_when_the_time_is_up() {
    let mut bench = Bench::new(100);
    let clock = Arc::new(ManualClock::at(0));
    bench.env.clock = Arc::clone(&clock) as _;
    bench.gate = {
        let mut gate = Gate::new(2, &bench.env);
        let uid = OperatorUid::new("operator").unwrap();
        gate.let_overtake(Some(&uid), &bench.env, &mut [&mut bench.port])
            .unwrap();
        gate
    };
    bench.send(0, "before");
    bench.barrier(0, 1, BarrierMode::AlignedWithTimeout(50));
    bench.send(0, "behind");
    assert!(bench.attend().is_none(), "it waits in line");
    assert_eq!(bench.gate.deadline_ms(), Some(50));
    clock.advance(50);
    let records = bench.cut(1);
    bench.barrier(1, 1, BarrierMode::AlignedWithTimeout(50));
    assert!(bench.attend().is_none());
    assert_eq!(outcome(records).unwrap().unwrap().0, ["before"]);
    assert_eq!(bench.take(), ["before", "behind"]);
}

#[test]
fn k_545_k_580_k_604_an_abort_ends_the_recording_and_the_next_checkpoint_is_not_touched() {
    let mut bench = Bench::new(100);
    bench.send(1, "b1");
    bench.barrier(0, 1, BarrierMode::Unaligned);
    let records = bench.cut(1);
    bench.gate.give_up(CheckpointId(1));
    let failed = outcome(records).unwrap().unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Cancelled);
    bench.take();
    bench.attend();
    bench.send(1, "b2");
    bench.barrier(0, 2, BarrierMode::Unaligned);
    let records = bench.cut(2);
    // The barrier of the first, that comes late, is nobody's.
    bench.barrier(1, 1, BarrierMode::Unaligned);
    bench.barrier(1, 2, BarrierMode::Unaligned);
    bench.attend();
    assert_eq!(outcome(records).unwrap().unwrap().0, ["b2"]);
}

#[test]
fn k_546_a_newer_barrier_fails_the_recording_of_the_older_checkpoint_with_the_reason() {
    let mut bench = Bench::new(100);
    bench.barrier(0, 1, BarrierMode::Unaligned);
    let older = bench.cut(1);
    bench.barrier(0, 2, BarrierMode::Unaligned);
    assert!(matches!(bench.attend(), Some(Cut::GiveUp { id, .. }) if id.0 == 1));
    let newer = bench.cut(2);
    let failed = outcome(older).unwrap().unwrap_err();
    assert!(failed.to_string().contains("newer barrier"), "{failed}");
    bench.barrier(1, 2, BarrierMode::Unaligned);
    bench.attend();
    assert!(outcome(newer).unwrap().is_ok());
}

#[test]
fn k_548_k_581_a_chain_that_is_dropped_lets_go_of_what_it_recorded() {
    let mut bench = Bench::new(100);
    bench.send(1, "b1");
    bench.barrier(0, 1, BarrierMode::Unaligned);
    let records = bench.cut(1);
    drop(bench);
    let cx = PersistContext {
        cancel: CancelToken::new(),
        ..PersistContext::new(
            CheckpointId(1),
            Arc::new(checkpoint_storage::MemoryCheckpointStorage::new(1 << 20)),
            StepExecutor::new() as Arc<dyn Executor>,
        )
    };
    let mut done = OperatorSnapshot::default();
    let failed = records.persist(&cx, &mut done).now_or_never().unwrap();
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::Cancelled);
    assert!(done.is_empty());
}

#[test]
fn a_channel_that_does_not_let_barriers_overtake_gets_them_in_line() {
    let (sender, receiver) = channel(100, Signal::new(), Signal::new());
    let mut writer = BatchWriter::new(sender, Rc::default());
    writer.push(1_u64);
    let barrier = Barrier::new(CheckpointId(1), 0);
    writer.push_barrier(barrier.with_mode(BarrierMode::Unaligned).unwrap());
    assert!(receiver.receive_urgent().is_none());
    let next = || match receiver.receive() {
        crate::channel::Received::Element(element) => element,
        other => panic!("no element but {other:?}"),
    };
    assert_eq!(next(), Element::Batch(vec![1]));
    let Element::Barrier(forced) = next() else {
        panic!("no barrier")
    };
    assert_eq!(forced.effective_mode(), BarrierMode::Aligned);
    assert_eq!(forced.unforced().mode, BarrierMode::Unaligned);
}

#[test]
fn records_come_back_in_order_with_their_times() {
    let bytes = encoded(&[(5, "a"), (i64::MIN, "longer"), (7, "")]);
    let mut port = port();
    decode(&bytes, &mut [&mut port]).unwrap();
    let back: Vec<_> = port.take_recovered().collect();
    let expected = [(5, "a"), (i64::MIN, "longer"), (7, "")].map(|(time, value)| Timed {
        value: value.to_owned(),
        time,
    });
    assert_eq!(back, expected);
}

fn key_of(record: &(u64, String)) -> &u64 {
    &record.0
}

/// What comes by one of two inputs.
type Sides = Side<(u64, String), u64>;

/// The codec of two keyed inputs, one of which has its keys in the records.
fn two_sided() -> SharedCodec<Keyed<u64, Sides>> {
    let sides: SharedCodec<Sides> = Arc::new(SidesCodec {
        first: Arc::new(RecordCodec::compact()),
        second: Arc::new(RecordCodec::compact()),
    });
    let first = KeySelector::Held(Arc::new(key_of));
    let second = KeySelector::Made(Arc::new(|number: &u64| *number));
    let max = MaxParallelism::new(128).unwrap();
    Arc::new(KeyedCodec::new(
        sides,
        KeySelector::of_sides(first, second),
        max,
    ))
}

#[test]
fn k_649_records_of_two_inputs_come_back_each_from_its_own_with_its_key() {
    let codec = two_sided();
    let max = MaxParallelism::new(128).unwrap();
    let keyed = |key: u64, value| Keyed {
        key: Some(key),
        hash: KeyHash::of(&key, HashId::default(), max),
        value,
    };
    // Both inputs have records of one key.
    let sent = [
        (5, keyed(7, Side::First((7, "seven".to_owned())))),
        (6, keyed(7, Side::Second(7))),
        (i64::MIN, keyed(8, Side::Second(8))),
        (9, keyed(7, Side::First((7, String::new())))),
    ];
    let mut recorded = recorded(&[]);
    recorded.header = header(&[codec.fingerprint()]);
    for (time, value) in &sent {
        let (value, time) = (value.clone(), *time);
        recorded.push(0, &Timed { value, time }, codec.as_ref());
    }
    assert_eq!(recorded.partitions.len(), 0, "each has a key group");
    let groups: Vec<_> = recorded.groups.keys().copied().collect();
    let mut expected: Vec<_> = sent.iter().map(|(_, sent)| sent.hash.group()).collect();
    expected.sort();
    expected.dedup();
    assert_eq!((groups.len(), &groups), (2, &expected));
    for (group, bytes) in &recorded.groups {
        let mut port = Port::new(Vec::new(), 0).persisted(0, Some(two_sided()));
        decode(bytes, &mut [&mut port]).unwrap();
        let back: Vec<_> = port.take_recovered().map(|r| (r.time, r.value)).collect();
        let of_group = |(_, sent): &&(i64, Keyed<u64, _>)| sent.hash.group() == *group;
        let expected: Vec<_> = sent.iter().filter(of_group).cloned().collect();
        assert_eq!(back, expected);
    }
}

#[test]
fn two_inputs_are_told_from_one_and_from_those_the_other_way_round() {
    fn sides<A: StateType + Record, B: StateType + Record>() -> SidesCodec<A, B> {
        SidesCodec {
            first: Arc::new(RecordCodec::compact()),
            second: Arc::new(RecordCodec::compact()),
        }
    }
    let one = RecordCodec::<String>::compact().fingerprint;
    let fingerprints = [
        one,
        RecordCodec::<u64>::compact().fingerprint,
        sides::<String, u64>().fingerprint(),
        sides::<u64, String>().fingerprint(),
        sides::<String, String>().fingerprint(),
        sides::<u64, u64>().fingerprint(),
    ];
    let different: std::collections::BTreeSet<_> = fingerprints.into_iter().collect();
    assert_eq!(different.len(), fingerprints.len());
    let codec = sides::<String, u64>();
    for damaged in [&[2, 0][..], &[]] {
        let refused = codec.decode(&mut &damaged[..]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Corrupt, "{damaged:?}");
    }
}

#[test]
fn records_of_another_type_are_refused_before_one_is_decoded() {
    let bytes = encoded(&[(5, "a")]);
    let codec: SharedCodec<u64> = Arc::new(RecordCodec::compact());
    let mut other = Port::<u64>::new(Vec::new(), 0).persisted(0, Some(codec));
    let refused = decode(&bytes, &mut [&mut other]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Incompatible);
    let refused = decode(&bytes, &mut [&mut port(), &mut port()]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Incompatible);
    let mut none = Port::<String>::new(Vec::new(), 0);
    let refused = decode(&bytes, &mut [&mut none]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Incompatible);
}

#[test]
fn k_589_records_in_flight_that_are_cut_off_or_of_another_format_are_refused() {
    let bytes = encoded(&[(5, "a"), (6, "bb")]);
    let read = |bytes: &[u8]| decode(bytes, &mut [&mut port()]).map_err(|error| error.kind());
    let one = encoded(&[(5, "a")]).len();
    let header = header(&[RecordCodec::<String>::compact().fingerprint]).len();
    for len in 0..=bytes.len() {
        let is_whole = [header, one, bytes.len()].contains(&len);
        let expected = is_whole.then_some(()).ok_or(ErrorKind::Corrupt);
        assert_eq!(read(&bytes[..len]), expected, "{len} bytes");
    }
    let with = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        read(&bytes)
    };
    assert_eq!(with(0, VERSION + 1), Err(ErrorKind::Incompatible));
    assert_eq!(with(header, 9), Err(ErrorKind::Corrupt));
}

#[test]
fn k_589_damaged_records_in_flight_are_refused_without_taking_memory_for_them() {
    let samples = [
        encoded(&[(5, "a"), (6, "bb")]),
        encoded(&[(0, "some longer text")]),
    ];
    fuzz(5_000, &samples, |_, bytes| {
        let mut port = port();
        let read = BOUND.hold(bytes.len(), || decode(&bytes, &mut [&mut port]));
        if let Err(error) = read {
            let kind = error.kind();
            assert!(
                matches!(kind, ErrorKind::Corrupt | ErrorKind::Incompatible),
                "{error}"
            );
        }
    });
}
