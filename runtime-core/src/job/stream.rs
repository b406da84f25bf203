use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use state_api::{Result, StateKey};

use super::KeyedStream;
use super::edge::Edge;
use super::graph::{Input, SharedGraph, Vertex};
use crate::chain::chained::{Chained, End, Stage};
use crate::chain::environment::Environment;
use crate::chain::fan_out::FanOut;
use crate::chain::gate::{Gate, Port};
use crate::chain::key_selector::KeySelector;
use crate::chain::link::Link;
use crate::chain::outputs::{Exchange, RoundRobin, Route};
use crate::chain::plain_head::PlainHead;
use crate::chain::sinks::{OperatorStage, SinkStage, TwoPhaseStage};
use crate::chain::stateless::{FilterStage, FlatMapStage, MapStage};
use crate::chain::watermarks::WatermarkStage;
use crate::channel::BatchWriter;
use crate::coordinator::Connection;
use crate::operator::Operator;
use crate::record::Record;
use crate::sink::{Sink, TwoPhaseSink};

type LinkFactory<T> = Box<dyn Fn(&Environment) -> Box<dyn Link<T>> + Send + Sync>;

/// Who reads a stream: factories of the links behind it.
pub(crate) struct Consumers<T>(Arc<Mutex<Vec<LinkFactory<T>>>>);

impl<T> Clone for Consumers<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for Consumers<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Consumers<T> {
    pub(crate) fn add(
        &self,
        factory: impl Fn(&Environment) -> Box<dyn Link<T>> + Send + Sync + 'static,
    ) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Box::new(factory));
    }
}

/// Makes what is behind a stream in one subtask.
pub(crate) fn build_links<T: Record>(
    consumers: &Consumers<T>,
    env: &Environment,
) -> Box<dyn Link<T>> {
    let factories = consumers.0.lock().unwrap_or_else(PoisonError::into_inner);
    match factories.as_slice() {
        [factory] => factory(env),
        factories => Box::new(FanOut::new(
            factories.iter().map(|factory| factory(env)).collect(),
        )),
    }
}

/// Adds an exchange behind a stream; the edge is what the chain behind receives from.
pub(crate) fn exchange<T: Record, R: Route<T>>(
    stream: &Stream<T>,
    route: impl Fn(&Environment) -> R + Send + Sync + 'static,
) -> Arc<Edge<R::Wire>> {
    let edge = Arc::new(Edge::default());
    let ours = Arc::clone(&edge);
    stream.consumers.add(move |env| {
        let writers = ours
            .take_senders(env.subtask.index)
            .into_iter()
            .map(|sender| BatchWriter::new(sender, env.congested.clone()))
            .collect();
        Box::new(Exchange::<T, R>::new(route(env), writers))
    });
    edge
}

/// A stream of records within a job under construction.
///
/// What reads a stream twice gets every record twice: each consumer sees all records.
pub struct Stream<T> {
    pub(crate) graph: SharedGraph,
    pub(crate) vertex: usize,
    pub(crate) consumers: Consumers<T>,
}

impl<T> Clone for Stream<T> {
    fn clone(&self) -> Self {
        Self {
            graph: self.graph.clone(),
            vertex: self.vertex,
            consumers: self.consumers.clone(),
        }
    }
}

impl<T: Record> Stream<T> {
    pub(crate) fn new(graph: SharedGraph, vertex: usize, consumers: Consumers<T>) -> Self {
        Self {
            graph,
            vertex,
            consumers,
        }
    }

    /// Sets the number of subtasks of the chain that this stream is in, from its last exchange on.
    #[must_use]
    pub fn parallelism(self, parallelism: u32) -> Self {
        if let Some(vertex) = self.graph.lock().vertices.get_mut(self.vertex) {
            vertex.parallelism = Some(parallelism);
        }
        self
    }

    /// Sets the number of key groups of the keyed operator at the head of this stream's chain.
    #[must_use]
    pub fn max_parallelism(self, key_groups: u32) -> Self {
        if let Some(vertex) = self.graph.lock().vertices.get_mut(self.vertex) {
            vertex.max_parallelism = Some(key_groups);
        }
        self
    }

    fn stage<S>(
        &self,
        name: &str,
        uid: Option<&state_api::OperatorUid>,
        make: impl Fn(&Environment) -> S + Send + Sync + 'static,
    ) -> Stream<S::Out>
    where
        S: Stage<In = T>,
    {
        self.graph.chain(self.vertex, name, uid.cloned());
        let consumers = Consumers::default();
        let behind = consumers.clone();
        self.consumers
            .add(move |env| Box::new(Chained::new(make(env), build_links(&behind, env))));
        Stream::new(self.graph.clone(), self.vertex, consumers)
    }

    /// Turns each record into one other.
    pub fn map<B: Record>(&self, f: impl Fn(T) -> B + Send + Sync + 'static) -> Stream<B> {
        self.try_map(move |value| Ok(f(value)))
    }

    /// Turns each record into one other, or fails the job.
    pub fn try_map<B: Record>(
        &self,
        f: impl Fn(T) -> Result<B> + Send + Sync + 'static,
    ) -> Stream<B> {
        let f = Arc::new(f);
        self.stage("map", None, move |_| MapStage {
            f: Arc::clone(&f),
            types: PhantomData,
        })
    }

    /// Turns each record into any number of others.
    pub fn flat_map<B, I>(&self, f: impl Fn(T) -> I + Send + Sync + 'static) -> Stream<B>
    where
        B: Record,
        I: IntoIterator<Item = B> + 'static,
    {
        self.try_flat_map(move |value| Ok(f(value)))
    }

    /// Turns each record into any number of others, or fails the job.
    pub fn try_flat_map<B, I>(
        &self,
        f: impl Fn(T) -> Result<I> + Send + Sync + 'static,
    ) -> Stream<B>
    where
        B: Record,
        I: IntoIterator<Item = B> + 'static,
    {
        let f = Arc::new(f);
        self.stage("flat map", None, move |_| FlatMapStage {
            f: Arc::clone(&f),
            types: PhantomData,
        })
    }

    /// Keeps the records that a predicate accepts.
    pub fn filter(&self, f: impl Fn(&T) -> bool + Send + Sync + 'static) -> Stream<T> {
        let f = Arc::new(f);
        self.stage("filter", None, move |_| FilterStage {
            f: Arc::clone(&f),
            types: PhantomData,
        })
    }

    /// Gives records their event time and derives watermarks: records may be out of order by up to `bound_ms` milliseconds.
    pub fn assign_watermarks(
        &self,
        bound_ms: i64,
        time_of: impl Fn(&T) -> i64 + Send + Sync + 'static,
    ) -> Stream<T> {
        let time_of = Arc::new(time_of);
        self.stage("watermarks", None, move |_| {
            WatermarkStage::new(Arc::clone(&time_of), bound_ms)
        })
    }

    /// Adds an operator with state that is not bound to keys.
    pub fn operator<O: Operator<In = T>>(&self, uid: &str, operator: O) -> Stream<O::Out> {
        let id = self.graph.uid(uid);
        let named = id.clone();
        self.stage(uid, Some(&id), move |_| {
            OperatorStage::new(operator.clone(), named.clone())
        })
    }

    /// Names what the records are keyed by; they are exchanged by key group.
    pub fn key_by<K: StateKey>(
        &self,
        key_of: impl Fn(&T) -> K + Send + Sync + 'static,
    ) -> KeyedStream<K, T> {
        KeyedStream::new(self.clone(), KeySelector::Made(Arc::new(key_of)))
    }

    /// As [`key_by`](Self::key_by), by a key that is part of the record, which saves a copy of it on its way.
    pub fn key_by_ref<K: StateKey>(
        &self,
        key_in: impl Fn(&T) -> &K + Send + Sync + 'static,
    ) -> KeyedStream<K, T> {
        KeyedStream::new(self.clone(), KeySelector::Held(Arc::new(key_in)))
    }

    /// Deals the records out to the subtasks of a new chain, in turn.
    pub fn rebalance(&self) -> Stream<T> {
        let edge = exchange(self, |env| RoundRobin {
            next: env.subtask.index as usize,
        });
        let consumers = Consumers::default();
        let behind = consumers.clone();
        let receiving = Arc::clone(&edge);
        let vertex = self.graph.add_vertex(Vertex {
            names: vec!["rebalance".into()],
            parallelism: None,
            max_parallelism: None,
            uids: Vec::new(),
            keyed: None,
            inputs: vec![Input {
                from: self.vertex,
                connection: Connection::AllToAll,
                edge,
            }],
            head: Arc::new(move |env| {
                let receivers = receiving.take_receivers(env.subtask.index);
                let gate = Gate::new(receivers.len(), env);
                let next = build_links(&behind, env);
                Box::new(PlainHead::new(
                    gate,
                    Port::new(receivers, 0),
                    next,
                    env.congested.clone(),
                ))
            }),
            reset: Arc::new(|| {}),
        });
        Stream::new(self.graph.clone(), vertex, consumers)
    }

    /// Ends the stream in a sink without transactions: after a failure it may see records again.
    pub fn sink<S: Sink<In = T>>(&self, uid: &str, sink: S) {
        let id = self.graph.uid(uid);
        self.graph.chain(self.vertex, uid, Some(id.clone()));
        let sink = Arc::new(sink);
        self.consumers.add(move |_| {
            let stage = SinkStage::new(Arc::clone(&sink), id.clone());
            Box::new(Chained::new(stage, Box::new(End)))
        });
    }

    /// Ends the stream in a sink with transactions: each record becomes visible once, when its checkpoint completes.
    pub fn sink_exactly_once<S: TwoPhaseSink<In = T>>(&self, uid: &str, sink: S) {
        let id = self.graph.uid(uid);
        self.graph.chain(self.vertex, uid, Some(id.clone()));
        let sink = Arc::new(sink);
        self.consumers.add(move |env| {
            let stage = TwoPhaseStage::new(Arc::clone(&sink), id.clone(), env.failpoints.clone());
            Box::new(Chained::new(stage, Box::new(End)))
        });
    }
}
