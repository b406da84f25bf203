use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use state_api::{Error, MaxParallelism, OperatorUid, Result};

use super::Stream;
use super::edge::Connect;
use super::stream::{Consumers, build_links};
use crate::chain::environment::Environment;
use crate::chain::link::Head;
use crate::chain::source_head::{Enumeration, SourceHead};
use crate::coordinator::Connection;
use crate::source::Source;

type HeadFactory = Arc<dyn Fn(&Environment) -> Box<dyn Head> + Send + Sync>;

/// A chain of operators that run in one subtask.
#[derive(Clone)]
pub(crate) struct Vertex {
    /// The operators' names, for messages.
    pub(crate) names: Vec<String>,
    pub(crate) parallelism: Option<u32>,
    pub(crate) max_parallelism: Option<u32>,
    /// The operators that a checkpoint may have state of.
    pub(crate) uids: Vec<OperatorUid>,
    /// The one with keyed state.
    pub(crate) keyed: Option<OperatorUid>,
    pub(crate) inputs: Vec<Input>,
    /// Whether its head takes back records that were in flight when a checkpoint was taken.
    pub(crate) reads_in_flight: bool,
    pub(crate) head: HeadFactory,
    /// Forgets what an earlier run left.
    pub(crate) reset: Arc<dyn Fn() + Send + Sync>,
}

/// An exchange that feeds a vertex.
#[derive(Clone)]
pub(crate) struct Input {
    pub(crate) from: usize,
    pub(crate) connection: Connection,
    pub(crate) edge: Arc<dyn Connect>,
}

impl Vertex {
    pub(crate) fn name(&self) -> String {
        self.names.join(" -> ")
    }
}

/// How many subtasks and key groups a vertex has in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VertexPlan {
    pub(crate) parallelism: u32,
    pub(crate) max_parallelism: MaxParallelism,
}

/// The shape of a job in a run, by vertex.
pub(crate) type RunPlan = Arc<[VertexPlan]>;

/// The chains of a job.
#[derive(Default)]
pub(crate) struct Graph {
    pub(crate) vertices: Vec<Vertex>,
    uids: BTreeSet<OperatorUid>,
    /// The first mistake of the builder's user.
    mistake: Option<Error>,
}

/// A graph under construction, shared by the streams that extend it.
#[derive(Clone, Default)]
pub(crate) struct SharedGraph(Arc<Mutex<Graph>>);

impl SharedGraph {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Graph> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a uid; a bad one or one taken twice is remembered as the user's mistake.
    pub(crate) fn uid(&self, name: &str) -> OperatorUid {
        let mut graph = self.lock();
        let uid = OperatorUid::new(name).unwrap_or_else(|error| {
            graph.mistake.get_or_insert(error);
            placeholder()
        });
        if !graph.uids.insert(uid.clone()) {
            let error = Error::invalid(format!("two operators have the uid {name:?}"))
                .with("operator", name);
            graph.mistake.get_or_insert(error);
        }
        uid
    }

    /// Remembers as the user's mistake that a stream of another job is connected to this one.
    pub(crate) fn expect_same(&self, other: &Self) {
        if !Arc::ptr_eq(&self.0, &other.0) {
            let error = Error::invalid("streams of two jobs can't be connected");
            self.lock().mistake.get_or_insert(error);
        }
    }

    pub(crate) fn add_vertex(&self, vertex: Vertex) -> usize {
        let mut graph = self.lock();
        graph.vertices.push(vertex);
        graph.vertices.len() - 1
    }

    /// Adds an operator to a chain, by name, and by uid if it has state.
    pub(crate) fn chain(&self, vertex: usize, name: &str, uid: Option<OperatorUid>) {
        let mut graph = self.lock();
        if let Some(vertex) = graph.vertices.get_mut(vertex) {
            vertex.names.push(name.to_owned());
            vertex.uids.extend(uid);
        }
    }
}

#[expect(clippy::unwrap_used, reason = "the name is valid")]
fn placeholder() -> OperatorUid {
    OperatorUid::new("invalid").unwrap()
}

/// A job: sources, operators and sinks, as they will run.
///
/// A job can be run several times, one run after the other: a run that fails is followed by one that starts from its last checkpoint.
/// A clone is the same job, which is run by one of them at a time.
#[derive(Clone)]
pub struct Job {
    name: String,
    parallelism: u32,
    max_parallelism: Option<u32>,
    graph: SharedGraph,
}

impl Job {
    /// Begins a job of parallelism 1.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            parallelism: 1,
            max_parallelism: None,
            graph: SharedGraph::default(),
        }
    }

    /// Sets the number of subtasks of every chain that sets none of its own.
    #[must_use]
    pub fn parallelism(mut self, parallelism: u32) -> Self {
        self.parallelism = parallelism;
        self
    }

    /// Sets the number of key groups of every operator that sets none of its own.
    ///
    /// Without it the number is derived from the parallelism, or is that of the checkpoint the job starts from.
    #[must_use]
    pub fn max_parallelism(mut self, key_groups: u32) -> Self {
        self.max_parallelism = Some(key_groups);
        self
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds a source; `uid` names its positions in checkpoints.
    pub fn source<S: Source>(&self, uid: &str, source: S) -> Stream<S::Out> {
        let id = self.graph.uid(uid);
        let consumers = Consumers::default();
        let behind = consumers.clone();
        let source = Arc::new(source);
        let current = Arc::new(Mutex::new(Arc::new(Enumeration::default())));
        let (of_run, named) = (Arc::clone(&current), id.clone());
        let vertex = self.graph.add_vertex(Vertex {
            names: vec![uid.to_owned()],
            parallelism: None,
            max_parallelism: None,
            uids: vec![id],
            keyed: None,
            inputs: Vec::new(),
            reads_in_flight: false,
            head: Arc::new(move |env| {
                let enumeration =
                    Arc::clone(&of_run.lock().unwrap_or_else(PoisonError::into_inner));
                let next = build_links(&behind, env);
                Box::new(SourceHead::new(
                    Arc::clone(&source),
                    enumeration,
                    named.clone(),
                    next,
                    env,
                ))
            }),
            reset: Arc::new(move || {
                *current.lock().unwrap_or_else(PoisonError::into_inner) =
                    Arc::new(Enumeration::default());
            }),
        });
        Stream::new(self.graph.clone(), vertex, consumers)
    }

    /// Checks what can be checked before a run.
    ///
    /// # Errors
    /// `InvalidArgument` for a bad or duplicate uid, a parallelism out of range, or a job without a source.
    pub fn check(&self) -> Result<()> {
        let mut graph = self.graph.lock();
        if let Some(mistake) = graph.mistake.take() {
            let copy = Error::new(mistake.kind(), mistake.message());
            graph.mistake = Some(copy);
            return Err(mistake);
        }
        if graph.vertices.is_empty() {
            return Err(Error::invalid("the job has no source"));
        }
        drop(graph);
        self.plan(|_, _| Ok(None)).map(drop)
    }

    pub(crate) fn vertices(&self) -> Vec<Vertex> {
        self.graph.lock().vertices.clone()
    }

    /// Decides on parallelisms; `stored` says how many key groups a checkpoint has of a keyed operator.
    pub(crate) fn plan(
        &self,
        stored: impl Fn(&OperatorUid, crate::assign::OperatorShape) -> Result<Option<MaxParallelism>>,
    ) -> Result<RunPlan> {
        let graph = self.graph.lock();
        let plan = |vertex: &Vertex| {
            let parallelism = vertex.parallelism.unwrap_or(self.parallelism);
            let wanted = vertex
                .max_parallelism
                .or(self.max_parallelism)
                .map(MaxParallelism::new)
                .transpose()?;
            let shape = crate::assign::OperatorShape {
                parallelism,
                max_parallelism: wanted,
            };
            let known = match &vertex.keyed {
                Some(uid) => stored(uid, shape).map_err(|error| error.with("operator", uid))?,
                None => None,
            };
            let max_parallelism = match known.or(wanted) {
                Some(max_parallelism) => max_parallelism,
                None => MaxParallelism::derive_default(parallelism)?,
            };
            if parallelism == 0 || parallelism > max_parallelism.get() {
                return Err(Error::invalid(format!(
                    "parallelism {parallelism} must be 1 to the maximum parallelism {max_parallelism}"
                ))
                .with("operator", vertex.name()));
            }
            Ok(VertexPlan {
                parallelism,
                max_parallelism,
            })
        };
        graph.vertices.iter().map(plan).collect()
    }
}
