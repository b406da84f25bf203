use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use state_api::{Error, Result};

/// One task of a job: a vertex of the job graph and the index of its subtask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId {
    /// Index of the vertex (a chain of operators) in the job graph.
    pub vertex: u32,
    /// Index of the subtask, from 0.
    pub subtask: u32,
}

impl TaskId {
    /// Creates an id.
    #[must_use]
    pub fn new(vertex: u32, subtask: u32) -> Self {
        Self { vertex, subtask }
    }
}

impl fmt::Display for TaskId {
    /// Writes `vertex.subtask`, both from 0.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.vertex, self.subtask)
    }
}

/// How the subtasks of two vertices are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    /// Subtask `i` feeds subtask `i`; both vertices have the same parallelism.
    OneToOne,
    /// Every subtask feeds every subtask.
    AllToAll,
}

/// A vertex as the coordinator sees it: how many tasks, and which vertices feed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanVertex {
    /// Index of the vertex.
    pub vertex: u32,
    /// Number of its tasks, at least 1.
    pub parallelism: u32,
    /// The vertices that feed it; none for a source.
    pub inputs: Vec<(u32, Connection)>,
}

impl PlanVertex {
    /// Describes a source.
    #[must_use]
    pub fn source(vertex: u32, parallelism: u32) -> Self {
        Self {
            vertex,
            parallelism,
            inputs: Vec::new(),
        }
    }

    /// Adds an input.
    #[must_use]
    pub fn fed_by(mut self, vertex: u32, connection: Connection) -> Self {
        self.inputs.push((vertex, connection));
        self
    }
}

/// The running tasks of a job: whom a trigger reaches and whose acks a checkpoint needs.
///
/// A trigger goes to every running task that no running task feeds: the sources at first, and once those of a region
/// are finished, the tasks behind them (FLIP-147, Flink's `DefaultCheckpointPlanCalculator`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    vertices: BTreeMap<u32, PlanVertex>,
    finished: BTreeSet<TaskId>,
    failed: BTreeSet<TaskId>,
    tasks: usize,
}

/// What one checkpoint asks of the tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Participants {
    /// Tasks that the trigger is sent to.
    pub trigger: BTreeSet<TaskId>,
    /// Tasks whose ack is needed.
    pub wait_for: BTreeSet<TaskId>,
    /// Tasks that were finished already and count as acked.
    pub finished: BTreeSet<TaskId>,
}

impl Participants {
    /// Tells whether no task is named at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.trigger.is_empty() && self.wait_for.is_empty() && self.finished.is_empty()
    }
}

impl Plan {
    /// Creates a plan without tasks, for an engine that triggers and seals by itself: acks of any task are taken.
    #[must_use]
    pub fn of_engine() -> Self {
        Self {
            vertices: BTreeMap::new(),
            finished: BTreeSet::new(),
            failed: BTreeSet::new(),
            tasks: 0,
        }
    }

    /// Creates a plan in which every task runs.
    ///
    /// # Errors
    /// `InvalidArgument` when a vertex occurs twice or has no task, when an input is not part of the plan, or when a
    /// one-to-one connection joins different parallelisms.
    pub fn new(vertices: impl IntoIterator<Item = PlanVertex>) -> Result<Self> {
        let mut plan = Self::of_engine();
        for vertex in vertices {
            if vertex.parallelism == 0 {
                return Err(Error::invalid("a vertex needs at least one task")
                    .with("vertex", vertex.vertex));
            }
            plan.tasks += vertex.parallelism as usize;
            let index = vertex.vertex;
            if plan.vertices.insert(index, vertex).is_some() {
                return Err(
                    Error::invalid("a vertex occurs twice in the plan").with("vertex", index)
                );
            }
        }
        for vertex in plan.vertices.values() {
            for (from, connection) in &vertex.inputs {
                let Some(upstream) = plan.vertices.get(from) else {
                    return Err(
                        Error::invalid("an input of a vertex is not part of the plan")
                            .with("vertex", vertex.vertex)
                            .with("input", from),
                    );
                };
                if *connection == Connection::OneToOne && upstream.parallelism != vertex.parallelism
                {
                    return Err(Error::invalid(
                        "a one-to-one connection joins different parallelisms",
                    )
                    .with("vertex", vertex.vertex)
                    .with("input", from));
                }
            }
        }
        Ok(plan)
    }

    /// Returns the number of tasks, finished ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tasks
    }

    /// Tells whether the plan has no task.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tasks == 0
    }

    /// Tells whether a task belongs to the plan.
    #[must_use]
    pub fn contains(&self, task: TaskId) -> bool {
        self.vertices
            .get(&task.vertex)
            .is_some_and(|v| task.subtask < v.parallelism)
    }

    /// Tells whether every task is finished.
    #[must_use]
    pub fn all_finished(&self) -> bool {
        self.finished.len() == self.tasks
    }

    /// Tells whether some task is neither running nor finished.
    #[must_use]
    pub fn has_failed_tasks(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Tells whether some task is finished.
    #[must_use]
    pub fn has_finished_tasks(&self) -> bool {
        !self.finished.is_empty()
    }

    /// Notes that a task reached the end of its input and ended; returns whether that was news.
    pub(crate) fn finish(&mut self, task: TaskId) -> bool {
        self.contains(task) && self.finished.insert(task)
    }

    /// Notes that a task failed; returns whether it belongs to the plan.
    pub(crate) fn fail(&mut self, task: TaskId) -> bool {
        let known = self.contains(task);
        if known {
            self.failed.insert(task);
        }
        known
    }

    /// Works out whom the next checkpoint is sent to and whom it waits for.
    #[must_use]
    pub fn participants(&self) -> Participants {
        let mut result = Participants {
            finished: self.finished.clone(),
            ..Participants::default()
        };
        let running: BTreeMap<u32, u32> = self
            .vertices
            .values()
            .map(|v| (v.vertex, v.parallelism - self.finished_of(v.vertex)))
            .collect();
        for vertex in self.vertices.values() {
            // Decided once per vertex, so that two vertices of 1,000 tasks do not cost a million steps.
            let fed_by_all = vertex.inputs.iter().any(|(from, connection)| {
                *connection == Connection::AllToAll && running.get(from).is_some_and(|n| *n > 0)
            });
            for subtask in 0..vertex.parallelism {
                let task = TaskId::new(vertex.vertex, subtask);
                if self.finished.contains(&task) {
                    continue;
                }
                result.wait_for.insert(task);
                let fed_by_one = vertex.inputs.iter().any(|(from, connection)| {
                    *connection == Connection::OneToOne
                        && !self.finished.contains(&TaskId::new(*from, subtask))
                });
                if !fed_by_all && !fed_by_one {
                    result.trigger.insert(task);
                }
            }
        }
        result
    }

    fn finished_of(&self, vertex: u32) -> u32 {
        let tasks = TaskId::new(vertex, 0)..=TaskId::new(vertex, u32::MAX);
        u32::try_from(self.finished.range(tasks).count()).unwrap_or(u32::MAX)
    }
}
