use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use checkpoint_storage::InputEnd;
use futures_util::future::LocalBoxFuture;
use managed_state::operator::{OperatorListState, OperatorStates};
use state_api::{CheckpointId, OperatorUid, Result, SnapshotRequest};

use super::declared::Declared;
use super::environment::Environment;
use super::link::{Control, Head, Link, Turn, at_operator, first_error};
use crate::channel::Signal;
use crate::execution::Failpoint;
use crate::record::{END_OF_TIME, Emit, SplitEvent};
use crate::source::{Source, SourceContext, SourceOutput, SourceReader, SourceStatus};
use crate::task::{OperatorParts, SubtaskSnapshot};

/// The state that the positions of a source are stored in.
const SPLITS: &str = "splits";

/// The parts of an input as found at a fresh start: looked up once, whichever subtask comes first.
pub(crate) struct Enumeration<Split> {
    found: Mutex<Option<Vec<Split>>>,
}

impl<Split> Default for Enumeration<Split> {
    fn default() -> Self {
        Self {
            found: Mutex::new(None),
        }
    }
}

impl<Split: Clone> Enumeration<Split> {
    /// Returns the parts of one subtask: each part goes to one.
    fn deal(
        &self,
        index: usize,
        parallelism: usize,
        find: impl FnOnce() -> Result<Vec<Split>>,
    ) -> Result<Vec<Split>> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let splits = match &*found {
            Some(splits) => splits,
            None => &*found.insert(find()?),
        };
        Ok(splits
            .iter()
            .skip(index)
            .step_by(parallelism.max(1))
            .cloned()
            .collect())
    }
}

/// A source at the start of a chain.
pub(crate) struct SourceHead<S: Source> {
    source: Arc<S>,
    enumeration: Arc<Enumeration<S::Split>>,
    uid: OperatorUid,
    reader: Option<S::Reader>,
    states: OperatorStates,
    positions: OperatorListState<S::Split>,
    next: Box<dyn Link<S::Out>>,
    congested: Rc<Cell<bool>>,
    signal: Arc<Signal>,
    ended: bool,
    idle: bool,
    /// Set by a failpoint: the next record is lost.
    skip_one: bool,
    restored: Vec<String>,
}

impl<S: Source> SourceHead<S> {
    pub(crate) fn new(
        source: Arc<S>,
        enumeration: Arc<Enumeration<S::Split>>,
        uid: OperatorUid,
        next: Box<dyn Link<S::Out>>,
        env: &Environment,
    ) -> Self {
        let (congested, signal) = (Rc::clone(&env.congested), Arc::clone(&env.signal));
        Self {
            source,
            enumeration,
            uid,
            reader: None,
            states: OperatorStates::of_subtask(env.subtask.index),
            positions: OperatorListState::default(),
            next,
            congested,
            signal,
            ended: false,
            idle: false,
            skip_one: false,
            restored: Vec::new(),
        }
    }

    async fn open_reader(&mut self, env: &Environment) -> Result<()> {
        let restored = env.restored(&self.uid);
        if let Some((_, snapshot)) = restored {
            self.states
                .restore(&snapshot.managed_operator, &env.restore_context())
                .await?;
        }
        self.positions = self.states.list(SPLITS)?;
        let splits = match restored {
            Some(_) => {
                let splits = self.states.elements(self.positions)?.to_vec();
                self.restored = splits
                    .iter()
                    .map(|split| self.source.describe(split))
                    .collect();
                self.skip_one = !splits.is_empty() && env.failpoints.reach(Failpoint::ReplaySkip);
                splits
            }
            None => {
                let (index, parallelism) =
                    (env.subtask.index as usize, env.subtask.parallelism as usize);
                self.enumeration.deal(index, parallelism, || {
                    self.source.enumerate(env.subtask.parallelism)
                })?
            }
        };
        let cx = SourceContext {
            uid: self.uid.clone(),
            subtask: env.subtask,
            restored: restored.map(|(id, _)| id),
            clock: Arc::clone(&env.clock),
            waker: env.signal.waker(),
        };
        self.reader = Some(self.source.reader(&cx, splits)?);
        Ok(())
    }
}

/// Loses the first record: the negative control of crash tests.
struct SkipOne<'a, T> {
    next: &'a mut dyn Emit<T>,
    skip: &'a mut bool,
}

impl<T> Emit<T> for SkipOne<'_, T> {
    fn emit(&mut self, value: T, time: i64) -> Result<()> {
        if std::mem::take(self.skip) {
            Ok(())
        } else {
            self.next.emit(value, time)
        }
    }

    fn split(&mut self, event: SplitEvent) -> Result<()> {
        self.next.split(event)
    }
}

impl<S: Source> Head for SourceHead<S> {
    fn turn(&mut self, budget: usize) -> Result<Turn> {
        if self.congested.get() {
            if !self.next.pump() {
                return Ok(Turn::Congested);
            }
            self.congested.set(false);
        }
        let (Some(reader), false) = (&mut self.reader, self.ended) else {
            return Ok(Turn::Waiting { wake_at_ms: None });
        };
        let mut skipping;
        let target: &mut dyn Emit<S::Out> = if self.skip_one {
            skipping = SkipOne {
                next: self.next.as_mut(),
                skip: &mut self.skip_one,
            };
            &mut skipping
        } else {
            self.next.as_mut()
        };
        let mut out = SourceOutput::watching(target, budget, &self.congested, &self.signal);
        let status = reader
            .poll(&mut out)
            .map_err(|error| at_operator(error, Some(&self.uid)))?;
        let emitted = out.emitted();
        if emitted > 0 {
            self.idle = false;
        }
        match status {
            SourceStatus::More => Ok(Turn::Worked),
            SourceStatus::Waiting { wake_at_ms, idle } => {
                if idle && !self.idle {
                    self.idle = true;
                    self.next.flush()?;
                    self.next.idle()?;
                }
                Ok(if emitted > 0 {
                    Turn::Worked
                } else {
                    Turn::Waiting { wake_at_ms }
                })
            }
            SourceStatus::Finished => {
                self.drain()?;
                Ok(Turn::InputEnded)
            }
        }
    }

    fn is_source(&self) -> bool {
        true
    }

    fn drain(&mut self) -> Result<()> {
        if !self.ended {
            self.ended = true;
            self.next.watermark(END_OF_TIME)?;
        }
        Ok(())
    }

    fn restored_positions(&self) -> Vec<String> {
        self.restored.clone()
    }
}

impl<S: Source> Control for SourceHead<S> {
    fn next(&mut self) -> Option<&mut dyn Control> {
        Some(self.next.as_mut())
    }

    fn open<'a>(&'a mut self, env: &'a Environment) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.next.open(env).await?;
            let result = self.open_reader(env).await;
            result.map_err(|error| at_operator(error, Some(&self.uid)))
        })
    }

    fn declare(&mut self, env: &Environment, declared: &mut Declared) {
        self.next.declare(env, declared);
        let mut states = OperatorStates::new();
        let registered = states.list::<S::Split>(SPLITS).map(drop);
        declared.operator(&self.uid, registered, &states);
    }

    fn snapshot(&mut self, request: &SnapshotRequest, set: &mut SubtaskSnapshot) -> Result<()> {
        self.next.snapshot(request, set)?;
        let Some(reader) = &mut self.reader else {
            return Ok(());
        };
        let splits = reader
            .snapshot_for(request.checkpoint)
            .map_err(|error| at_operator(error, Some(&self.uid)))?;
        self.states.elements_mut(self.positions)?.replace(splits);
        let operator = Some(self.states.snapshot(request)?);
        let parts = OperatorParts {
            operator,
            input_end: match self.ended {
                true => InputEnd::Finished,
                false => InputEnd::Ahead,
            },
            ..OperatorParts::default()
        };
        set.add(self.uid.clone(), parts);
        Ok(())
    }

    fn completed(&mut self, id: CheckpointId) -> Result<()> {
        let behind = self.next.completed(id);
        let own = self
            .reader
            .as_mut()
            .map_or(Ok(()), |reader| reader.checkpoint_completed(id));
        first_error(
            behind,
            own.map_err(|error| at_operator(error, Some(&self.uid))),
        )
    }
}
