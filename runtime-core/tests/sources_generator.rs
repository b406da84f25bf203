//! Generated inputs and rates: records by index, replayable at any parallelism, paced by the clock that was passed in.

mod sources_support;

use std::sync::Arc;

use runtime_core::source::{Source, SourceOutput, SourceReader, SourceStatus};
use runtime_core::sources::{FileLines, Generator, IndexSplit, RateLimited};
use runtime_core::{NO_TIMESTAMP, Timed};
use sources_support::{context, context_with, drain, poll, read_all, readers};
use state_api::{ErrorKind, ManualClock};

#[test]
fn records_come_in_the_order_of_their_indexes_at_each_subtask() {
    let source = Generator::new(|index| index * 10).take(7);
    assert_eq!(read_all(&source, 1).unwrap(), [0, 10, 20, 30, 40, 50, 60]);
    let mut readers = readers(&source, source.enumerate(2).unwrap(), 2).unwrap();
    assert_eq!(drain(&mut readers[0]).unwrap(), [0, 20, 40, 60]);
    assert_eq!(drain(&mut readers[1]).unwrap(), [10, 30, 50]);
}

#[test]
fn k_740_a_restore_at_another_parallelism_gives_each_later_record_once() {
    let source = Generator::new(|index| index).take(100).splits(6);
    for (before, after) in [(1, 3), (4, 2), (2, 5), (6, 1)] {
        let mut seen = Vec::new();
        let mut splits = Vec::new();
        for mut reader in readers(&source, source.enumerate(before).unwrap(), before).unwrap() {
            seen.extend(poll(&mut reader, 9).unwrap().0);
            splits.extend(reader.snapshot().unwrap());
            let _ = poll(&mut reader, 5).unwrap();
        }
        for mut reader in readers(&source, splits, after).unwrap() {
            let records = drain(&mut reader).unwrap();
            assert!(records.is_sorted(), "{records:?}");
            seen.extend(records);
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..100).collect::<Vec<u64>>(), "{before} to {after}");
    }
}

#[test]
fn an_input_without_end_goes_on() {
    let source = Generator::new(|index| index);
    let splits = vec![IndexSplit {
        next: 1_000_000_007,
        step: 1,
        count: None,
    }];
    let mut reader = source.reader(&context(0, 1), splits).unwrap();
    let (records, status) = poll(&mut reader, 3).unwrap();
    assert_eq!(records, [1_000_000_007, 1_000_000_008, 1_000_000_009]);
    assert_eq!(status, SourceStatus::More);
}

#[test]
fn a_collection_is_an_input_with_and_without_event_times() {
    let source = Generator::collection(["a", "b", "c"]);
    assert_eq!(read_all(&source, 2).unwrap(), ["a", "c", "b"]);
    assert!(
        read_all(&Generator::<u8>::collection([]), 3)
            .unwrap()
            .is_empty()
    );

    let timed = Generator::timed_collection([
        Timed {
            value: 'x',
            time: 5,
        },
        Timed {
            value: 'y',
            time: 3,
        },
    ]);
    let mut out: Vec<Timed<char>> = Vec::new();
    let mut reader = timed
        .reader(&context(0, 1), timed.enumerate(1).unwrap())
        .unwrap();
    reader.poll(&mut SourceOutput::new(&mut out, 10)).unwrap();
    assert_eq!(
        out,
        [
            Timed {
                value: 'x',
                time: 5
            },
            Timed {
                value: 'y',
                time: 3
            }
        ]
    );

    let mut out: Vec<Timed<&str>> = Vec::new();
    let mut reader = source
        .reader(&context(0, 1), source.enumerate(1).unwrap())
        .unwrap();
    reader.poll(&mut SourceOutput::new(&mut out, 1)).unwrap();
    assert_eq!(out[0].time, NO_TIMESTAMP);
}

#[test]
fn splits_of_another_input_are_refused() {
    let splits = Generator::collection([1, 2, 3]).enumerate(1).unwrap();
    let error = Generator::collection([1, 2])
        .reader(&context(0, 1), splits)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    assert_eq!(error.context("records then"), Some("3"));
    let still = vec![IndexSplit {
        next: 0,
        step: 0,
        count: None,
    }];
    let error = Generator::new(|n| n)
        .reader(&context(0, 1), still)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}

#[test]
fn a_rate_is_shared_by_the_subtasks_and_kept_by_the_clock() {
    let source = Generator::new(|index| index).take(1_000).per_second(20.0);
    let clock = Arc::new(ManualClock::at(0));
    let splits = source.enumerate(2).unwrap();
    let mut reader = source
        .reader(&context_with(clock.clone(), 0, 2), splits[..1].to_vec())
        .unwrap();
    let mut counts = Vec::new();
    for _ in 0..12 {
        let (records, status) = poll(&mut reader, 1_000).unwrap();
        counts.push(records.len());
        let SourceStatus::Waiting {
            wake_at_ms: Some(at),
            idle: false,
        } = status
        else {
            panic!("{status:?}");
        };
        clock.set(at);
    }
    assert_eq!(counts, [1; 12]);
    // 12 records at 10 a second: the last one was due after 1.1 seconds, the next one is after 1.2.
    assert_eq!(clock_now(&clock), 1_200);
}

fn clock_now(clock: &ManualClock) -> i64 {
    state_api::Clock::now_ms(clock)
}

#[test]
fn a_rate_above_the_budget_asks_to_be_polled_again_and_ends_with_the_input() {
    let source = Generator::new(|index| index).take(600).per_second(1e6);
    let clock = Arc::new(ManualClock::at(0));
    let mut reader = source
        .reader(
            &context_with(clock.clone(), 0, 1),
            source.enumerate(1).unwrap(),
        )
        .unwrap();
    assert_eq!(poll(&mut reader, 10).unwrap().0.len(), 1);
    clock.advance(1_000);
    let (records, status) = poll(&mut reader, 400).unwrap();
    assert_eq!((records.len(), status), (400, SourceStatus::More));
    let (records, status) = poll(&mut reader, 400).unwrap();
    assert_eq!((records.len(), status), (199, SourceStatus::Finished));
    assert_eq!(reader.snapshot().unwrap(), []);
}

#[test]
fn any_source_can_be_slowed_down_and_splits_stay_those_of_the_source() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a"), "1\n2\n").unwrap();
    std::fs::write(folder.path().join("b"), "3\n").unwrap();
    let source = FileLines::new(folder.path()).per_second(1e9);
    let clock = Arc::new(ManualClock::at(0));
    let mut reader = source
        .reader(
            &context_with(clock.clone(), 0, 1),
            source.enumerate(1).unwrap(),
        )
        .unwrap();
    let mut events = sources_support::Events::default();
    for _ in 0..10 {
        clock.advance(1);
        reader
            .poll(&mut SourceOutput::new(&mut events, 100))
            .unwrap();
    }
    assert_eq!(
        events.0,
        ["+0", "+1", "@0", "1", "2", "-0", "@1", "3", "-1"]
    );
}

#[test]
fn a_rate_that_is_none_is_refused() {
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let source = RateLimited::new(Generator::new(|index| index), rate);
        assert_eq!(
            source.enumerate(1).unwrap_err().kind(),
            ErrorKind::Config,
            "{rate}"
        );
    }
}
