//! Whether a job can start from the checkpoint of an older program, said state by state without starting it.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
mod job_support;

use std::sync::{Arc, Mutex};

use checkpoint_storage::CheckpointMetadata;
use job_support::{Items, Ledger, asking, lines, now, parts, settings, with_memory, words};
use managed_state::keyed::{At, DueTimer, ListState, MapState, Timers, ValueState};
use managed_state::operator::{OperatorListState, OperatorStates};
use runtime_core::compat::{StateFate, check_compat, check_compat_with};
use runtime_core::execution::{OperatorFate, SavepointFormat};
use runtime_core::restart::RestartStrategy;
use runtime_core::testing::Driver;
use runtime_core::{
    ExecutionSettings, Job, JobEvent, JobParts, KeyedOperator, Operator, Out, RestoreFrom, States,
};
use state_api::access::{ListAccess, MapAccess, ValueAccess};
use state_api::{Error, ErrorKind, HashId, Result, TtlConfig};

/// The program that wrote the savepoint.
#[derive(Clone, Default)]
struct Old {
    count: ValueState<u32>,
    seen: ListState<u64>,
    lengths: MapState<u64, u32>,
    last: ValueState<u64>,
    due: Timers<()>,
}

impl KeyedOperator for Old {
    type Key = String;
    type In = String;
    type Out = (String, u64);

    fn open(&mut self, states: &mut States<'_, String>) -> Result<()> {
        self.count = states.value("count")?;
        self.seen = states.list("seen")?;
        self.lengths = states.map("lengths")?;
        self.last = states.value("last")?;
        self.due = states.event_timers("due")?;
        Ok(())
    }

    fn process(
        &mut self,
        word: String,
        at: &mut At<'_, String>,
        out: &mut Out<'_, Self::Out>,
    ) -> Result<()> {
        let n = at.value(self.count).update(|n| {
            *n += 1;
            *n
        })?;
        at.list(self.seen).push(u64::from(n))?;
        at.map(self.lengths).put(word.len() as u64, n)?;
        at.value(self.last).set(7)?;
        at.timers(self.due).set(1_000_000)?;
        out.emit((word, u64::from(n)))
    }
}

/// What became of it.
#[derive(Clone, Default)]
struct New {
    /// Opening fails after the first state.
    fails: bool,
}

impl KeyedOperator for New {
    type Key = String;
    type In = String;
    type Out = (String, u64);

    fn open(&mut self, states: &mut States<'_, String>) -> Result<()> {
        assert!(states.is_restored(), "as at a restore");
        let _: ValueState<u64> = states.value("count")?;
        if self.fails {
            return Err(Error::user("no such table"));
        }
        let _: ListState<String> = states.list("seen")?;
        let ttl = TtlConfig::new(std::time::Duration::from_secs(60))?;
        let _: MapState<u64, u32> = states.map(state_api::StateOptions::new("lengths").ttl(ttl))?;
        let _: ValueState<u64> = states.value("lasts")?;
        let _: Timers<u64> = states.event_timers("due")?;
        Ok(())
    }

    fn process(
        &mut self,
        word: String,
        _: &mut At<'_, String>,
        out: &mut Out<'_, Self::Out>,
    ) -> Result<()> {
        out.emit((word, 0))
    }

    fn on_timer(
        &mut self,
        _: &DueTimer<String>,
        _: &mut At<'_, String>,
        _: &mut Out<'_, Self::Out>,
    ) -> Result<()> {
        Err(Error::bug("nothing runs in a check"))
    }
}

/// Notes lines in a list that all subtasks get, or in one that is dealt out.
#[derive(Clone)]
struct Noted {
    union: bool,
    state: OperatorListState<u64>,
}

impl Noted {
    fn new(union: bool) -> Self {
        Self {
            union,
            state: OperatorListState::default(),
        }
    }
}

impl Operator for Noted {
    type In = String;
    type Out = String;

    fn open(&mut self, states: &mut OperatorStates) -> Result<()> {
        self.state = if self.union {
            states.union_list("noted")?
        } else {
            states.list("noted")?
        };
        Ok(())
    }

    fn process(
        &mut self,
        line: String,
        states: &mut OperatorStates,
        out: &mut Out<'_, String>,
    ) -> Result<()> {
        states
            .elements_mut(self.state)?
            .replace(vec![line.len() as u64]);
        out.emit(line)
    }
}

/// A job around a counting operator.
fn job<O>(operator: O, count: &str, union: bool, ledger: &Ledger<(String, u64)>) -> Job
where
    O: KeyedOperator<Key = String, In = String, Out = (String, u64)>,
{
    let job = Job::new("wordcount").parallelism(2);
    job.source("lines", Items::new(lines(400), 4))
        .operator("noted", Noted::new(union))
        .flat_map(words)
        .key_by(|word: &String| word.clone())
        .process(count, operator)
        .sink_exactly_once("out", ledger.clone());
    job
}

/// Stops the old job in its middle; returns what its savepoint says about itself.
fn savepoint() -> CheckpointMetadata {
    stopped(&Ledger::new()).2
}

/// As [`savepoint`], with what the old job ran with and the path.
fn stopped(ledger: &Ledger<(String, u64)>) -> (JobParts, String, CheckpointMetadata) {
    let (parts, store): (JobParts, _) = with_memory(parts());
    let reply = Arc::new(Mutex::new(None));
    let ours = Arc::clone(&reply);
    let mut driver = Driver::new(3).budget(4);
    let first = asking(&driver, parts.clone(), move |control, event| {
        let mut ours = ours.lock().unwrap();
        if let (JobEvent::CheckpointCompleted(_), None) = (event, &*ours) {
            *ours = Some(control.stop_with_savepoint(false, None, SavepointFormat::Canonical));
        }
    });
    let old = job(Old::default(), "count", false, ledger);
    driver.run(&old, &settings(10), first).unwrap();
    let done = now(reply.lock().unwrap().take().unwrap()).unwrap();
    let path = done.path.unwrap();
    // As a test would: out of the small file that it brings along.
    let file = store.savepoints()[&path].encode().unwrap();
    (parts, path, CheckpointMetadata::decode(&file).unwrap())
}

fn migrates(changes: &[&str]) -> StateFate {
    let changes = changes.iter().map(|change| (*change).to_owned()).collect();
    StateFate::Migrates { changes }
}

#[test]
fn the_same_program_has_every_state_as_it_is() {
    let metadata = savepoint();
    let same = job(Old::default(), "count", false, &Ledger::new());
    let report = check_compat(&metadata, &same).unwrap();
    assert!(report.is_unchanged(), "{report}");
    let names: Vec<_> = report
        .operators
        .iter()
        .flat_map(|o| {
            o.states
                .iter()
                .map(move |s| format!("{}/{}", o.uid, s.name))
        })
        .collect();
    assert_eq!(
        names,
        [
            "lines/splits",
            "noted/noted",
            "count/count",
            "count/seen",
            "count/lengths",
            "count/last",
            "count/due",
            "count/holdfast.event-time",
            "out/pending-transactions",
            "out/open-transactions",
        ]
    );
    // The check leaves nothing behind: the job runs afterwards.
    let outcome = Driver::new(1).run(&same, &settings(10), parts()).unwrap();
    assert_eq!(outcome.restarts, 0);
}

#[test]
fn every_state_of_a_changed_program_is_judged_though_the_first_would_fail_the_job() {
    let ledger = Ledger::new();
    let (parts, path, metadata) = stopped(&ledger);
    let report = check_compat(
        &metadata,
        &job(New::default(), "count", true, &Ledger::new()),
    )
    .unwrap();
    assert!(!report.is_compatible());
    let fate = |state| report.state("count", state).unwrap().clone();
    assert_eq!(
        fate("count"),
        migrates(&["the value widens from u32 to u64"])
    );
    assert_eq!(
        fate("seen"),
        StateFate::Incompatible {
            reason: "the value can't change from u64 to string".into()
        }
    );
    assert_eq!(
        fate("lengths"),
        migrates(&["values get a time-to-live, which begins at the restore"])
    );
    assert_eq!(fate("lasts"), StateFate::StartsEmpty);
    assert_eq!(
        fate("last"),
        StateFate::Carried {
            nearest: Some("lasts".into())
        }
    );
    assert!(
        matches!(fate("due"), StateFate::Incompatible { reason } if reason.contains("namespaces don't migrate"))
    );
    assert!(matches!(
        report.state("noted", "noted").unwrap(),
        StateFate::Incompatible { reason } if reason.contains("a split list")
    ));
    let text = report.to_string();
    let first = format!(
        "savepoint {} of job wordcount: incompatible",
        metadata.checkpoint
    );
    assert!(text.starts_with(&first), "{text}");
    let line = "\n    seen (list): INCOMPATIBLE: the value can't change from u64 to string\n";
    assert!(text.contains(line), "{text}");
    // What it says is what happens.
    let settings = ExecutionSettings {
        restore: RestoreFrom::Path(path),
        restart: RestartStrategy::None,
        ..settings(10)
    };
    let changed = job(New::default(), "count", false, &ledger);
    let error = Driver::new(1).run(&changed, &settings, parts).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    assert_eq!(error.context("state"), Some("seen"), "{error}");
}

#[test]
fn operators_without_a_counterpart_are_named_with_the_nearest_of_the_job() {
    let metadata = savepoint();
    let renamed = job(Old::default(), "counts", false, &Ledger::new());
    let report = check_compat(&metadata, &renamed).unwrap();
    assert!(!report.is_compatible());
    let lost = report.operators.last().unwrap();
    assert_eq!(
        (lost.uid.as_str(), &lost.fate),
        ("count", &OperatorFate::Dropped)
    );
    assert_eq!(lost.nearest.as_ref().unwrap().as_str(), "counts");
    assert_eq!(lost.state("seen"), Some(&StateFate::Dropped));
    assert_eq!(
        report.state("counts", "seen"),
        Some(&StateFate::StartsEmpty)
    );

    let settings = ExecutionSettings {
        rename_operators: [("count".into(), "counts".into())].into(),
        ..settings(10)
    };
    let report = check_compat_with(&metadata, &renamed, &settings).unwrap();
    assert!(report.is_compatible() && !report.is_unchanged(), "{report}");
    assert_eq!(report.state("counts", "seen"), Some(&StateFate::AsIs));

    let settings = ExecutionSettings {
        rename_operators: Default::default(),
        allow_non_restored_state: true,
        ..settings
    };
    let report = check_compat_with(&metadata, &renamed, &settings).unwrap();
    assert!(report.is_compatible(), "{report}");
}

#[test]
fn what_concerns_an_operator_as_a_whole_is_told_beside_its_states() {
    let mut metadata = savepoint();
    let failing = job(New { fails: true }, "count", false, &Ledger::new());
    let report = check_compat(&metadata, &failing.max_parallelism(64)).unwrap();
    let count = report.operator("count").unwrap();
    assert_eq!(count.problems.len(), 2, "{report}");
    assert!(count.problems[0].contains("no such table"), "{report}");
    assert!(
        count.problems[1].contains("128 key groups and the job asks for 64"),
        "{report}"
    );
    // What was registered until then is judged.
    assert!(matches!(
        count.state("count"),
        Some(StateFate::Migrates { .. })
    ));

    let count = metadata.operators.iter_mut();
    let count = count.filter(|o| o.uid.as_str() == "count");
    count.for_each(|o| o.hash = HashId::Flink);
    let same = job(Old::default(), "count", false, &Ledger::new());
    let report = check_compat(&metadata, &same).unwrap();
    let count = report.operator("count").unwrap();
    assert!(count.problems[0].contains("hash flink"), "{report}");
}
