use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use checkpoint_storage::{
    CheckpointMetadata, InputEnd, LocalCopies, OperatorMetadata, RestoringStorage,
};
use state_api::{
    Attempt, CheckpointId, CheckpointStorage, Executor, MaxParallelism, OperatorSnapshot, Result,
    Subtask as Place,
};

use super::inbox::{Inbox, RunReporter};
use super::restore_plan::RestoreSources;
use super::{ExecutionSettings, JobEvent, JobParts, LoadedCheckpoint, Places, RestorePlan};
use crate::assign::assign;
use crate::chain::environment::{Environment, RestoredState};
use crate::channel::Signal;
use crate::coordinator::{Plan, PlanVertex, TaskId};
use crate::job::{Job, RunPlan, Vertex};
use crate::task::{Mailbox, Subtask};

/// A subtask on its way to the thread that will step it.
pub(crate) struct Launch {
    pub(crate) id: TaskId,
    pub(crate) name: Arc<str>,
    pub(crate) signal: Arc<Signal>,
    /// Makes the subtask on its thread, because what is in it stays there.
    pub(crate) make: Box<dyn FnOnce() -> Subtask + Send>,
}

/// Gives subtasks something to run on.
pub(crate) trait Host {
    /// Starts to step a subtask.
    fn start(&mut self, launch: Launch) -> Result<()>;

    /// Takes note that all subtasks of a run have ended.
    fn run_ended(&mut self) {}
}

/// The subtasks of one run.
pub(super) struct Run {
    pub(super) plan: RunPlan,
    pub(super) vertices: Vec<Vertex>,
    /// The names of the vertices.
    pub(super) names: Vec<Arc<str>>,
    pub(super) mailboxes: BTreeMap<TaskId, Arc<Mailbox>>,
}

impl Run {
    /// Returns the name of a task's vertex.
    pub(super) fn name_of(&self, task: TaskId) -> Arc<str> {
        match self.names.get(task.vertex as usize) {
            Some(name) => Arc::clone(name),
            None => "?".into(),
        }
    }

    /// Returns the subtask at the other end of a task's input channel.
    pub(super) fn sender(&self, task: TaskId, channel: usize) -> Option<TaskId> {
        let mut channel = channel;
        for input in &self.vertices.get(task.vertex as usize)?.inputs {
            let channels = self.plan.get(input.from)?.parallelism as usize;
            if channel < channels {
                return Some(TaskId::new(narrow(input.from), narrow(channel)));
            }
            channel -= channels;
        }
        None
    }

    /// Describes the run to the coordinator.
    pub(super) fn coordinator_plan(&self) -> Result<Plan> {
        let describe = |(index, vertex): (usize, &Vertex)| {
            let start = PlanVertex::source(narrow(index), self.plan[index].parallelism);
            vertex.inputs.iter().fold(start, |v, input| {
                v.fed_by(narrow(input.from), input.connection)
            })
        };
        Plan::new(self.vertices.iter().enumerate().map(describe))
    }
}

fn narrow(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// What a run is started with.
pub(super) struct RunStart<'a> {
    pub(super) job: &'a Job,
    pub(super) settings: &'a ExecutionSettings,
    pub(super) parts: &'a JobParts,
    pub(super) executor: Arc<dyn Executor>,
    pub(super) storage: Arc<dyn CheckpointStorage>,
    pub(super) places: Arc<Places>,
    /// Second copies of objects on local disk.
    pub(super) copies: Option<LocalCopies>,
    pub(super) attempt: Attempt,
    pub(super) run: u32,
    pub(super) restored: Option<&'a LoadedCheckpoint>,
    /// Whether that is what the job starts from: then what was set about the restore applies.
    pub(super) first: bool,
    /// Tells what is going to happen.
    pub(super) tell: &'a dyn Fn(JobEvent),
    pub(super) inbox: &'a Arc<Inbox>,
}

impl RunStart<'_> {
    /// Deals the restored state out and starts every subtask.
    ///
    /// # Errors
    /// `Incompatible` when the checkpoint does not fit the job; those of the host.
    pub(super) fn launch(self, host: &mut dyn Host) -> Result<Run> {
        let metadata = self.restored.map(|loaded| loaded.metadata.as_ref());
        let (plan, sources) = match metadata {
            None => (self.job.plan(|_, _| Ok(None))?, RestoreSources::default()),
            Some(metadata) => {
                let (restore, plan, sources) =
                    RestorePlan::with_sources(self.job, self.settings, metadata, self.first)?;
                if self.first {
                    (self.tell)(JobEvent::RestorePlanned(restore));
                }
                (plan, sources)
            }
        };
        let vertices = self.job.vertices();
        vertices.iter().for_each(|vertex| (vertex.reset)());
        let signals: Vec<Vec<Arc<Signal>>> = plan
            .iter()
            .map(|vertex| (0..vertex.parallelism).map(|_| Signal::new()).collect())
            .collect();
        for (index, vertex) in vertices.iter().enumerate() {
            for input in &vertex.inputs {
                input.edge.connect(&signals[input.from], &signals[index]);
            }
        }
        let mut mailboxes = BTreeMap::new();
        let mut launches = Vec::new();
        for (index, vertex) in vertices.iter().enumerate() {
            let mut states = self.restored_states(
                metadata.map(|metadata| (metadata, &sources)),
                vertex,
                plan[index].parallelism,
                plan[index].max_parallelism,
            )?;
            states.resize_with(plan[index].parallelism as usize, || None);
            for ((subtask, signal), state) in (0..).zip(&signals[index]).zip(states) {
                let id = TaskId::new(narrow(index), subtask);
                let mailbox = Mailbox::new(Arc::clone(signal));
                mailboxes.insert(id, Arc::clone(&mailbox));
                launches.push(self.launch_one(id, vertex, &plan, mailbox, state));
            }
        }
        // All or none: nothing is started before everything is known to fit.
        launches
            .into_iter()
            .try_for_each(|launch| host.start(launch))?;
        Ok(Run {
            names: vertices.iter().map(|v| v.name().into()).collect(),
            plan,
            vertices,
            mailboxes,
        })
    }

    fn restored_states(
        &self,
        restored: Option<(&CheckpointMetadata, &RestoreSources)>,
        vertex: &Vertex,
        parallelism: u32,
        max_parallelism: MaxParallelism,
    ) -> Result<Vec<Option<Arc<RestoredState>>>> {
        let Some((metadata, sources)) = restored else {
            return Ok(Vec::new());
        };
        let nothing = RestoredState {
            checkpoint: metadata.checkpoint,
            operators: BTreeMap::new(),
            input_ends: BTreeMap::new(),
        };
        let mut by_subtask = vec![nothing; parallelism as usize];
        for uid in &vertex.uids {
            let Some(operator) = sources.of(metadata, uid) else {
                continue;
            };
            let dealt = assign(&old_subtasks(operator), parallelism, max_parallelism)
                .map_err(|error| error.with("operator", uid))?;
            let input_ends = input_ends(operator, parallelism);
            for ((restored, mut snapshot), told) in by_subtask.iter_mut().zip(dealt).zip(input_ends)
            {
                if self.settings.without_in_flight == Some(metadata.checkpoint) {
                    snapshot.in_flight_keyed.clear();
                    snapshot.in_flight.clear();
                }
                restored.operators.insert(uid.clone(), snapshot);
                restored.input_ends.insert(uid.clone(), told);
            }
        }
        let whole = by_subtask.into_iter();
        Ok(whole.map(|restored| Some(Arc::new(restored))).collect())
    }

    fn launch_one(
        &self,
        id: TaskId,
        vertex: &Vertex,
        plan: &RunPlan,
        mailbox: Arc<Mailbox>,
        restored: Option<Arc<RestoredState>>,
    ) -> Launch {
        let name: Arc<str> = vertex.name().into();
        let signal = Arc::clone(mailbox.signal());
        let (head, plan, of_vertex) = (
            Arc::clone(&vertex.head),
            Arc::clone(plan),
            plan[id.vertex as usize],
        );
        let reporter = Arc::new(RunReporter {
            run: self.run,
            inbox: Arc::clone(self.inbox),
        });
        let (settings, parts) = (self.settings.clone(), self.parts.clone());
        let places = Arc::clone(&self.places);
        let place = Place {
            index: id.subtask,
            parallelism: of_vertex.parallelism,
        };
        let restore_storage = RestoringStorage::new(
            self.restored.map_or_else(
                || Arc::clone(&self.storage),
                |loaded| Arc::clone(&loaded.storage),
            ),
            self.copies.clone(),
            self.restored
                .map_or(CheckpointId(0), |loaded| loaded.metadata.checkpoint),
            &name,
            place,
        );
        let storage = match &self.copies {
            Some(copies) => copies.keeping(Arc::clone(&self.storage), &name, place),
            None => Arc::clone(&self.storage),
        };
        let copies = self.copies.clone();
        let (attempt, run, executor) = (self.attempt, self.run, Arc::clone(&self.executor));
        let uids = vertex.uids.as_slice().into();
        let (task_signal, task_name) = (Arc::clone(&signal), Arc::clone(&name));
        let make = move || {
            let env = Environment {
                job: settings.job_id,
                attempt,
                run,
                subtask: place,
                uids,
                plan,
                max_parallelism: of_vertex.max_parallelism,
                mode: settings.mode,
                clock: parts.clock,
                signal: task_signal,
                congested: Rc::new(Cell::new(false)),
                storage,
                places,
                restore_storage: Arc::new(restore_storage),
                copies,
                executor,
                backend: parts.backend,
                backend_options: Arc::new(settings.backend_options),
                local_dir: settings.local_dir,
                memory_limit: settings.memory_limit,
                object_cache: settings.object_cache,
                seed: parts.seed,
                restored,
                failpoints: parts.failpoints,
            };
            let opening_env = env.clone();
            let opening = Box::pin(async move {
                let mut chain = opening_env.failpoints.around_chain(head(&opening_env));
                chain.open(&opening_env).await?;
                Ok(chain)
            });
            Subtask::new(id, task_name, opening, mailbox, reporter, env)
        };
        Launch {
            id,
            name,
            signal,
            make: Box::new(make),
        }
    }
}

/// Returns by new subtask what had been told of the end of the input: each goes on from the old one of its number, or, at
/// another parallelism, from what all had been told.
fn input_ends(operator: &OperatorMetadata, parallelism: u32) -> Vec<InputEnd> {
    let mut old = vec![InputEnd::Ahead; operator.parallelism as usize];
    for subtask in &operator.subtasks {
        if let Some(told) = old.get_mut(subtask.index as usize) {
            *told = subtask.told_of_end();
        }
    }
    if parallelism == operator.parallelism {
        return old;
    }
    let least = old.into_iter().min().unwrap_or_default();
    vec![least; parallelism as usize]
}

/// Returns the parts of an operator by old subtask; one without a part has an empty one.
fn old_subtasks(operator: &OperatorMetadata) -> Vec<&OperatorSnapshot> {
    static NOTHING: std::sync::LazyLock<OperatorSnapshot> =
        std::sync::LazyLock::new(OperatorSnapshot::default);
    let mut old: Vec<&OperatorSnapshot> = vec![&NOTHING; operator.parallelism as usize];
    for subtask in &operator.subtasks {
        if let Some(slot) = old.get_mut(subtask.index as usize) {
            *slot = &subtask.snapshot;
        }
    }
    old
}
