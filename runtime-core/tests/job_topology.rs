//! A job is changed between two runs: state follows the uid of its operator, whatever else has changed around it.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
mod job_support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use checkpoint_storage::CheckpointMetadata;
use job_support::{
    Count, Items, Ledger, expected, lines, parts, settings, totals, with_memory, words,
};
use managed_state::operator::{OperatorListState, OperatorStates};
use runtime_core::restart::RestartStrategy;
use runtime_core::testing::Driver;
use runtime_core::{
    ExecutionSettings, Job, JobEvent, JobParts, MemoryCheckpoints, Operator, Out, Stream,
};
use state_api::{Error, ErrorKind, Result};

/// What an operator had when a run began, per subtask.
#[derive(Clone, Debug, PartialEq)]
struct Opened {
    restored: bool,
    split: Vec<u64>,
    union: Vec<u64>,
}

/// Keeps the length of every record in a list that is split, and their number in one that goes to all.
#[derive(Clone)]
struct Tally {
    split: OperatorListState<u64>,
    union: OperatorListState<u64>,
    opened: Arc<Mutex<Vec<Opened>>>,
}

impl Tally {
    fn new() -> Self {
        Self {
            split: OperatorListState::default(),
            union: OperatorListState::default(),
            opened: Arc::default(),
        }
    }

    fn take_opened(&self) -> Vec<Opened> {
        std::mem::take(&mut *self.opened.lock().unwrap())
    }
}

impl Operator for Tally {
    type In = String;
    type Out = String;

    fn open(&mut self, states: &mut OperatorStates) -> Result<()> {
        self.split = states.list("split")?;
        self.union = states.union_list("union")?;
        self.opened.lock().unwrap().push(Opened {
            restored: states.is_restored(),
            split: states.elements(self.split)?.to_vec(),
            union: states.elements(self.union)?.to_vec(),
        });
        // Each subtask goes on with a number of its own.
        states.elements_mut(self.union)?.clear();
        Ok(())
    }

    fn process(
        &mut self,
        record: String,
        states: &mut OperatorStates,
        out: &mut Out<'_, String>,
    ) -> Result<()> {
        states.elements_mut(self.split)?.push(record.len() as u64);
        let union = states.elements_mut(self.union)?;
        let number = union.iter().sum::<u64>() + 1;
        union.replace([number]);
        out.emit(record)
    }
}

/// Passes records on and has no state.
#[derive(Clone)]
struct Stateless;

impl Operator for Stateless {
    type In = String;
    type Out = String;

    fn process(
        &mut self,
        record: String,
        _: &mut OperatorStates,
        out: &mut Out<'_, String>,
    ) -> Result<()> {
        out.emit(record)
    }
}

fn source(job: &Job, lines: &[String]) -> Stream<String> {
    job.source("lines", Items::new(lines.to_vec(), 4))
}

fn count_into(lines: &Stream<String>, ledger: &Ledger<(String, u64)>) {
    lines
        .flat_map(words)
        .key_by(|word: &String| word.clone())
        .process("count", Count::default())
        .sink_exactly_once("out", ledger.clone());
}

/// Lets so many lines through, then fails.
fn failing_after(lines: &Stream<String>, limit: u64) -> Stream<String> {
    let seen = AtomicU64::new(0);
    lines.try_map(move |line| {
        if seen.fetch_add(1, Ordering::Relaxed) < limit {
            Ok(line)
        } else {
            Err(Error::user("on purpose"))
        }
    })
}

fn once() -> ExecutionSettings {
    ExecutionSettings {
        restart: RestartStrategy::None,
        ..settings(10)
    }
}

/// Runs a job until it fails; returns its last checkpoint.
fn interrupted(
    seed: u64,
    job: &Job,
    parts: &JobParts,
    store: &MemoryCheckpoints,
) -> Arc<CheckpointMetadata> {
    let run = Driver::new(seed).budget(2).run(job, &once(), parts.clone());
    let error = run.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::User, "seed {seed}: {error}");
    let last = store.completed().pop();
    last.expect("it failed after its first checkpoint")
}

#[test]
fn k_435_state_follows_its_operator_from_one_chain_into_another() {
    for seed in 0..4 {
        let (lines, ledger) = (lines(600), Ledger::new());
        let (parts, store) = with_memory(parts());
        let (moved, gone) = (Tally::new(), Tally::new());
        let job = Job::new("wordcount").parallelism(2);
        // All in the chain of the source.
        let chained = source(&job, &lines)
            .operator("moved", moved.clone())
            .operator("gone", gone.clone());
        count_into(&failing_after(&chained, 400), &ledger);
        let last = interrupted(seed, &job, &parts, &store);
        let had = |uid| {
            let parts = &last.operator(uid).unwrap().subtasks;
            let handles = parts.iter().flat_map(|s| &s.snapshot.managed_operator);
            let states = handles.flat_map(|handle| &handle.states);
            let split = states.filter(|state| &*state.meta.name == "split");
            split.map(|state| state.elements.len()).sum::<usize>()
        };
        assert!(had("moved") > 0 && had("gone") > 0, "seed {seed}");
        moved.take_opened();
        // A chain of its own, behind an exchange, with another operator in front of it.
        let new = Tally::new();
        let job = Job::new("wordcount").parallelism(2);
        let apart = source(&job, &lines)
            .operator("new", new.clone())
            .rebalance()
            .operator("moved", moved.clone())
            .rebalance();
        count_into(&apart, &ledger);
        let strict = Driver::new(seed).run(&job, &once(), parts.clone());
        let error = strict.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Incompatible);
        assert_eq!(error.context("operator"), Some("gone"));
        let lenient = ExecutionSettings {
            allow_non_restored_state: true,
            ..once()
        };
        Driver::new(seed).run(&job, &lenient, parts).unwrap();
        let opened = moved.take_opened();
        assert!(opened.iter().all(|opened| opened.restored));
        let restored: usize = opened.iter().map(|opened| opened.split.len()).sum();
        assert_eq!(restored, had("moved"), "seed {seed}");
        let fresh = Opened {
            restored: false,
            split: vec![],
            union: vec![],
        };
        assert_eq!(new.take_opened(), [fresh.clone(), fresh]);
        assert_eq!(totals(&ledger.records()), expected(&lines), "seed {seed}");
    }
}

#[test]
fn k_660_an_operator_that_is_gone_and_had_no_state_is_passed_over() {
    let (lines, ledger) = (lines(600), Ledger::new());
    let (parts, store) = with_memory(parts());
    let job = Job::new("wordcount").parallelism(2);
    let passed = source(&job, &lines).operator("stateless", Stateless);
    count_into(&failing_after(&passed, 400), &ledger);
    let last = interrupted(1, &job, &parts, &store);
    let listed = last.operator("stateless").expect("it could have had state");
    assert!(listed.parts().next().is_none());
    let job = Job::new("wordcount").parallelism(2);
    count_into(&source(&job, &lines), &ledger);
    Driver::new(2).run(&job, &once(), parts).unwrap();
    assert_eq!(totals(&ledger.records()), expected(&lines));
}

#[test]
fn k_779_operators_without_state_come_and_go_under_a_strict_restore() {
    for seed in 0..4 {
        let (lines, ledger) = (lines(600), Ledger::new());
        let (parts, store) = with_memory(parts());
        let tally = Tally::new();
        let job = Job::new("wordcount").parallelism(2);
        let first = source(&job, &lines)
            .filter(|line| !line.is_empty())
            .operator("removed", Stateless)
            .operator("tally", tally.clone());
        count_into(&failing_after(&first, 400), &ledger);
        interrupted(seed, &job, &parts, &store);
        tally.take_opened();
        let job = Job::new("wordcount").parallelism(2);
        let second = source(&job, &lines)
            .operator("tally", tally.clone())
            .map(|line| line)
            .operator("added", Stateless)
            .rebalance();
        count_into(&second, &ledger);
        Driver::new(seed).run(&job, &once(), parts).unwrap();
        assert!(tally.take_opened().iter().all(|opened| opened.restored));
        assert_eq!(totals(&ledger.records()), expected(&lines), "seed {seed}");
    }
}

#[test]
fn k_754_the_number_of_key_groups_is_the_checkpoints_where_another_would_be_derived() {
    // 128 key groups are derived from 2 subtasks, 256 from 90.
    for (before, after, groups) in [(2, 90, 128), (90, 2, 256)] {
        // Long enough for a checkpoint of 90 subtasks, of which one is stepped at a time.
        let (lines, ledger) = (lines(4_000), Ledger::new());
        let (parts, store) = with_memory(parts());
        let job_at = |parallelism, fails| {
            let job = Job::new("wordcount");
            let mut read = source(&job, &lines);
            if fails {
                read = failing_after(&read, 3_000);
            }
            read.flat_map(words)
                .key_by(|word: &String| word.clone())
                .process("count", Count::default())
                .parallelism(parallelism)
                .sink_exactly_once("out", ledger.clone());
            job
        };
        let found = |metadata: &CheckpointMetadata| {
            let count = metadata.operator("count").unwrap();
            (count.parallelism, count.max_parallelism.get())
        };
        let last = interrupted(3, &job_at(before, true), &parts, &store);
        assert_eq!(found(&last), (before, groups));
        let resumed = Driver::new(4).run(&job_at(after, false), &once(), parts);
        resumed.unwrap();
        let last = store.completed().pop().unwrap();
        assert_eq!(found(&last), (after, groups));
        assert_eq!(totals(&ledger.records()), expected(&lines));
    }
}

#[test]
fn k_757_a_split_list_is_dealt_out_whole_and_a_union_list_goes_to_every_subtask() {
    let lines = lines(400);
    for (before, after) in [(2, 3), (3, 1), (4, 2), (1, 4)] {
        let ledger = Ledger::new();
        let (parts, store) = with_memory(parts());
        let tally = Tally::new();
        let job_at = |parallelism| {
            let job = Job::new("tally").parallelism(parallelism);
            source(&job, &lines)
                .operator("tally", tally.clone())
                .sink_exactly_once("out", ledger.clone());
            job
        };
        let settings = ExecutionSettings {
            job_id: state_api::JobId::new("tally").unwrap(),
            ..once()
        };
        let run = |seed, parallelism| {
            Driver::new(seed)
                .run(&job_at(parallelism), &settings, parts.clone())
                .unwrap();
            tally.take_opened()
        };
        let fresh = run(1, before);
        assert!(fresh.iter().all(|opened| !opened.restored));
        assert_eq!(store.completed().len(), 1);
        // The final checkpoint has all of it.
        let opened = run(2, after);
        assert_eq!(opened.len(), after as usize);
        let mut dealt: BTreeMap<u64, usize> = BTreeMap::new();
        for length in opened.iter().flat_map(|opened| &opened.split) {
            *dealt.entry(*length).or_default() += 1;
        }
        let mut expected: BTreeMap<u64, usize> = BTreeMap::new();
        for line in &lines {
            *expected.entry(line.len() as u64).or_default() += 1;
        }
        assert_eq!(dealt, expected, "{before} to {after}");
        for opened in &opened {
            assert!(opened.restored);
            assert_eq!(opened.union.iter().sum::<u64>(), 400, "{before} to {after}");
            assert!(opened.union.len() <= before as usize);
        }
    }
}

/// Fails at its first record, so that no checkpoint is complete by then.
#[test]
fn k_739_without_a_checkpoint_to_go_back_to_a_restart_begins_afresh() {
    let (lines, ledger) = (lines(300), Ledger::new());
    let starts: Arc<Mutex<Vec<Option<u64>>>> = Arc::default();
    let ours = Arc::clone(&starts);
    let events = move |event: &JobEvent| {
        if let JobEvent::RunStarted { restored, .. } = event {
            ours.lock().unwrap().push(restored.map(|id| id.0));
        }
    };
    let (parts, _) = with_memory(JobParts {
        events: Arc::new(events),
        ..parts()
    });
    let tally = Tally::new();
    let (seen, failures) = (AtomicU64::new(0), AtomicU64::new(0));
    let job = Job::new("wordcount");
    let read = source(&job, &lines)
        .operator("tally", tally.clone())
        .try_map(move |line| {
            // Once at the start, once after some checkpoints.
            let n = seen.fetch_add(1, Ordering::Relaxed);
            let failed = failures.load(Ordering::Relaxed);
            if n >= [0, 250, u64::MAX][failed as usize] {
                failures.fetch_add(1, Ordering::Relaxed);
                return Err(Error::user("on purpose"));
            }
            Ok(line)
        });
    count_into(&read, &ledger);
    let outcome = Driver::new(1)
        .budget(2)
        .run(&job, &settings(10), parts)
        .unwrap();
    assert_eq!(outcome.restarts, 2);
    let starts = starts.lock().unwrap();
    assert_eq!(starts[..2], [None, None]);
    assert!(starts[2].is_some(), "{starts:?}");
    let opened = tally.take_opened();
    let fresh = Opened {
        restored: false,
        split: vec![],
        union: vec![],
    };
    assert_eq!(opened[..2], [fresh.clone(), fresh]);
    assert!(opened[2].restored && !opened[2].split.is_empty());
    assert_eq!(totals(&ledger.records()), expected(&lines));
}
