use std::collections::VecDeque;
use std::sync::Arc;

use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};
use state_api::{BackendFactory, Clock, Error, ErrorKind, Result, SnapshotKind};

use super::ops::{
    Ending, KEYS, ListChange, MapChange, MapTarget, MergeChange, MergeTarget, NAMESPACES, Op,
    ValueChange, ValueTarget, ops,
};
use super::plain::{Outcome, Plain};
use super::subject::{Subject, apply, register};
use crate::dump::dump;
use crate::job::Cut;
use crate::settings::Settings;
use crate::setup::{Checkpoint, Mode, Setup};

/// The most snapshots that are open at once.
const OPEN: usize = 2;

/// Runs random operations on all backends at once and on the model.
///
/// # Panics
/// When a backend differs from the model or from another one; the message holds the seed and the shortest run that shows it.
pub fn run(factories: &[Arc<dyn BackendFactory>], settings: Settings) {
    let config = Config {
        cases: settings.cases,
        rng_seed: RngSeed::Fixed(settings.seed),
        failure_persistence: None,
        max_shrink_iters: 4_000,
        ..Config::default()
    };
    let outcome = TestRunner::new(config).run(&ops(), |ops| {
        let mut world = World::new(factories).map_err(|e| TestCaseError::fail(e.to_string()))?;
        for (step, op) in ops.iter().enumerate() {
            world
                .step(op)
                .map_err(|e| TestCaseError::fail(format!("step {step}, {op:?}: {e}")))?;
        }
        world.finish().map_err(TestCaseError::fail)
    });
    if let Err(failure) = outcome {
        panic!(
            "HOLDFAST_SEED={} HOLDFAST_CASES={}: {failure}",
            settings.seed, settings.cases
        );
    }
}

/// A snapshot of all backends that is cut and not written, and the model at that moment.
struct Open {
    kind: SnapshotKind,
    cuts: Vec<Cut>,
    plain: Plain,
}

struct World {
    setups: Vec<Setup>,
    jobs: Vec<Subject>,
    plain: Plain,
    open: VecDeque<Open>,
    completed: Option<(Vec<Checkpoint>, Plain)>,
}

impl World {
    fn new(factories: &[Arc<dyn BackendFactory>]) -> Result<Self> {
        let mut setups: Vec<Setup> = Vec::new();
        for factory in factories {
            let mut setup = Setup::new(Arc::clone(factory), Mode::Direct)?.max_parallelism(7);
            // One store and one clock for all, so that one backend can read what another has written.
            if let Some(first) = setups.first() {
                setup.clock = Arc::clone(&first.clock);
                setup = setup.storage(Arc::clone(&first.storage));
            }
            setups.push(setup);
        }
        let jobs = setups
            .iter()
            .map(|setup| setup.start_at(2, register))
            .collect::<Result<_>>()?;
        Ok(Self {
            setups,
            jobs,
            plain: Plain::default(),
            open: VecDeque::new(),
            completed: None,
        })
    }

    fn now(&self) -> i64 {
        self.setups[0].clock.now_ms()
    }

    fn step(&mut self, op: &Op) -> Result<(), String> {
        match op {
            Op::Advance(ms) => self.setups[0].clock.advance(*ms),
            Op::Cut(kind) => self.cut(*kind).map_err(|e| e.to_string())?,
            Op::Finish(ending) => self.finish_oldest(*ending).map_err(|e| e.to_string())?,
            Op::Restore(parallelism) => {
                if let Some((checkpoints, plain)) = self.completed.clone() {
                    self.restore(&checkpoints, *parallelism)
                        .map_err(|e| e.to_string())?;
                    self.plain = plain;
                }
            }
            Op::Move(parallelism) => {
                let mut savepoints = self.savepoints().map_err(|e| e.to_string())?;
                savepoints.rotate_left(1);
                self.restore(&savepoints, *parallelism)
                    .map_err(|e| e.to_string())?;
            }
            op => self.compare(op)?,
        }
        Ok(())
    }

    fn compare(&mut self, op: &Op) -> Result<(), String> {
        let expected = self.plain.apply(op, self.now());
        for (job, setup) in self.jobs.iter_mut().zip(&self.setups) {
            let found = match apply(job, op) {
                Err(error) if error.kind() == ErrorKind::User => Outcome::Failed(ErrorKind::User),
                Err(error) => return Err(format!("{}: {error}", setup.factory.name())),
                Ok(found) => found,
            };
            if found != expected && expected != Outcome::Open {
                return Err(format!(
                    "{}: found {found:?}, expected {expected:?}",
                    setup.factory.name()
                ));
            }
        }
        Ok(())
    }

    fn cut(&mut self, kind: SnapshotKind) -> Result<()> {
        if self.open.len() == OPEN {
            self.finish_oldest(Ending::Complete)?;
        }
        let mut cuts = Vec::new();
        for job in &mut self.jobs {
            match job.cut(kind) {
                Ok(cut) => cuts.push(cut),
                // Declined: too much is open or not merged yet.
                Err(error) if error.kind() == ErrorKind::LimitExceeded => break,
                Err(error) => return Err(error),
            }
        }
        if cuts.len() < self.jobs.len() {
            return self.abort(cuts.into_iter().map(|cut| cut.id).collect());
        }
        self.open.push_back(Open {
            kind,
            cuts,
            plain: self.plain.clone(),
        });
        Ok(())
    }

    fn abort(&mut self, ids: Vec<state_api::CheckpointId>) -> Result<()> {
        self.jobs
            .iter_mut()
            .zip(ids)
            .try_for_each(|(job, id)| job.aborted(id))
    }

    fn finish_oldest(&mut self, ending: Ending) -> Result<()> {
        let Some(open) = self.open.pop_front() else {
            return Ok(());
        };
        let ids: Vec<_> = open.cuts.iter().map(|cut| cut.id).collect();
        if matches!(ending, Ending::Drop) {
            drop(open.cuts);
            return if open.kind.is_savepoint() {
                Ok(())
            } else {
                self.abort(ids)
            };
        }
        let written: Vec<Checkpoint> = open
            .cuts
            .into_iter()
            .zip(&self.setups)
            .map(|(cut, setup)| cut.persist(setup))
            .collect::<Result<_>>()?;
        match ending {
            Ending::Complete => {
                if !open.kind.is_savepoint() {
                    self.jobs
                        .iter_mut()
                        .zip(ids)
                        .try_for_each(|(job, id)| job.completed(id))?;
                }
                self.completed = Some((written, open.plain));
                Ok(())
            }
            _ if open.kind.is_savepoint() => Ok(()),
            _ => self.abort(ids),
        }
    }

    fn savepoints(&mut self) -> Result<Vec<Checkpoint>> {
        // Snapshots that are open would be one too many.
        while !self.open.is_empty() {
            self.finish_oldest(Ending::Complete)?;
        }
        for job in &mut self.jobs {
            for subtask in 0..job.parallelism() as usize {
                while job.subtask(subtask).0.maintain(10_000) {}
            }
        }
        let write = |(job, setup): (&mut Subject, &Setup)| {
            job.cut(SnapshotKind::CanonicalSavepoint)?.persist(setup)
        };
        self.jobs.iter_mut().zip(&self.setups).map(write).collect()
    }

    fn restore(&mut self, checkpoints: &[Checkpoint], parallelism: u32) -> Result<()> {
        // As after a crash: nothing of the old instances is left.
        self.open.clear();
        self.jobs.clear();
        for (setup, checkpoint) in self.setups.iter().zip(checkpoints) {
            self.jobs
                .push(setup.restore(checkpoint, parallelism, register)?);
        }
        Ok(())
    }

    /// Compares everything there is.
    fn finish(mut self) -> Result<(), String> {
        for key in 0..KEYS.len() as u8 {
            for namespace in 0..NAMESPACES {
                let at = (key, namespace);
                for target in [
                    ValueTarget::Plain,
                    ValueTarget::Defaulted,
                    ValueTarget::Timed,
                ] {
                    self.compare(&Op::Value(target, at, ValueChange::Get))?;
                }
                for timed in [false, true] {
                    self.compare(&Op::List {
                        timed,
                        at,
                        change: ListChange::Get,
                    })?;
                }
                for target in [MapTarget::Plain, MapTarget::Sorted, MapTarget::Timed] {
                    self.compare(&Op::Map(target, at, MapChange::Entries))?;
                }
                for target in [MergeTarget::Sum, MergeTarget::Mean, MergeTarget::TimedSum] {
                    self.compare(&Op::Merge(target, at, MergeChange::Get))?;
                }
            }
        }
        self.compare_savepoints()
            .map_err(|e| format!("at the end: {e}"))?;
        self.compare(&Op::Fire(i64::MAX))
    }

    fn compare_savepoints(&mut self) -> Result<()> {
        let savepoints = self.savepoints()?;
        let mut dumps = Vec::new();
        for (setup, savepoint) in self.setups.iter().zip(&savepoints) {
            dumps.push((setup.factory.name(), dump(savepoint, &*setup.storage)?));
        }
        let Some(((_, first), others)) = dumps.split_first() else {
            return Ok(());
        };
        for (name, other) in others {
            if first.keys().ne(other.keys()) {
                return Err(
                    Error::bug("the savepoints hold different states").with("backend", name)
                );
            }
            let differing = first
                .iter()
                .find(|(state, dumped)| other.get(*state) != Some(dumped));
            if let Some((state, dumped)) = differing {
                return Err(Error::bug(format!(
                    "the savepoints differ: {dumped:?} and {:?}",
                    other.get(state)
                ))
                .with("state", state)
                .with("backend", name));
            }
        }
        Ok(())
    }
}
