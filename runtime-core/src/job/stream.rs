use std::any::Any;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use state_api::{Result, StateKey, StateType};

use super::edge::{Edge, Incoming};
use super::graph::{Input, SharedGraph, Vertex};
use super::{KeyedStream, Watermarks};
use crate::chain::chained::{Chained, End, Stage};
use crate::chain::environment::Environment;
use crate::chain::fan_out::{FanOut, SideLink, TypedSide};
use crate::chain::gate::Gate;
use crate::chain::in_flight::{RecordCodec, SharedCodec};
use crate::chain::key_selector::KeySelector;
use crate::chain::link::Link;
use crate::chain::outputs::{Exchange, Pinned, RoundRobin, Route};
use crate::chain::plain_head::PlainHead;
use crate::chain::port::Port;
use crate::chain::sinks::{OperatorStage, SinkStage, TwoPhaseStage};
use crate::chain::stateless::{FilterStage, FlatMapStage, MapStage};
use crate::chain::watermarks::WatermarkStage;
use crate::channel::{BatchWriter, Receiver};
use crate::coordinator::Connection;
use crate::operator::{Operator, SideOutput, SideOutputId};
use crate::record::{Record, Timed};
use crate::sink::{Sink, TwoPhaseSink};

type LinkFactory<T> = Box<dyn Fn(&Environment) -> Box<dyn Link<T>> + Send + Sync>;

type SideFactory = Box<dyn Fn(&Environment) -> Box<dyn SideLink> + Send + Sync>;

/// A side output that is read.
struct ReadSide {
    id: SideOutputId,
    make: SideFactory,
    /// The [`Consumers`] of its records.
    consumers: Box<dyn Any + Send>,
}

struct Readers<T> {
    links: Vec<LinkFactory<T>>,
    sides: Vec<ReadSide>,
}

/// Who reads a stream: factories of the links behind it.
pub(crate) struct Consumers<T>(Arc<Mutex<Readers<T>>>);

impl<T> Clone for Consumers<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for Consumers<T> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Readers {
            links: Vec::new(),
            sides: Vec::new(),
        })))
    }
}

impl<T> Consumers<T> {
    fn lock(&self) -> MutexGuard<'_, Readers<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(
        &self,
        factory: impl Fn(&Environment) -> Box<dyn Link<T>> + Send + Sync + 'static,
    ) {
        self.lock().links.push(Box::new(factory));
    }

    /// Returns who reads a side output of the operator that makes the stream.
    fn side<S: Record>(&self, side: SideOutput<S>) -> Consumers<S> {
        let mut readers = self.lock();
        let known = readers.sides.iter().find(|known| known.id == side.id());
        if let Some(consumers) = known.and_then(|known| known.consumers.downcast_ref()) {
            return Consumers::clone(consumers);
        }
        let consumers = Consumers::<S>::default();
        let behind = consumers.clone();
        readers.sides.push(ReadSide {
            id: side.id(),
            make: Box::new(move |env| Box::new(TypedSide(build_links(&behind, env)))),
            consumers: Box::new(consumers.clone()),
        });
        consumers
    }
}

/// Makes what is behind a stream in one subtask.
pub(crate) fn build_links<T: Record>(
    consumers: &Consumers<T>,
    env: &Environment,
) -> Box<dyn Link<T>> {
    let readers = consumers.lock();
    match (readers.links.as_slice(), readers.sides.as_slice()) {
        ([factory], []) => factory(env),
        (factories, sides) => Box::new(FanOut::new(
            factories.iter().map(|factory| factory(env)).collect(),
            sides
                .iter()
                .map(|side| (side.id, (side.make)(env)))
                .collect(),
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

/// Describes exchanges to the vertex behind them.
pub(crate) fn inputs_of<W: Send + 'static>(edges: &[Incoming<W>]) -> Vec<Input> {
    let input = |(from, edge): &Incoming<W>| Input {
        from: *from,
        connection: Connection::AllToAll,
        edge: Arc::<Edge<W>>::clone(edge),
    };
    edges.iter().map(input).collect()
}

/// Takes the channels of a subtask behind some exchanges, one after the other.
pub(crate) fn receivers_of<W>(edges: &[Incoming<W>], env: &Environment) -> Vec<Receiver<Timed<W>>> {
    let receivers = |(_, edge): &Incoming<W>| edge.take_receivers(env.subtask.index);
    edges.iter().flat_map(receivers).collect()
}

/// A stream of records within a job under construction.
///
/// What reads a stream twice gets every record twice: each consumer sees all records.
pub struct Stream<T> {
    pub(crate) graph: SharedGraph,
    pub(crate) vertex: usize,
    pub(crate) consumers: Consumers<T>,
    /// Makes records in flight behind the next exchange part of unaligned checkpoints.
    pub(crate) codec: Option<SharedCodec<T>>,
}

impl<T> Clone for Stream<T> {
    fn clone(&self) -> Self {
        Self {
            graph: self.graph.clone(),
            vertex: self.vertex,
            consumers: self.consumers.clone(),
            codec: self.codec.clone(),
        }
    }
}

impl<T: StateType> Stream<T> {
    /// Lets barriers overtake the records of this stream at the next exchange: what is in flight there becomes part of an
    /// unaligned checkpoint.
    ///
    /// Without it barriers stay in line there, also in an unaligned checkpoint. An operator with several inputs needs it on
    /// all of them, and a chain behind an exchange needs an operator or sink with a uid. Broadcast inputs always stay in line.
    #[must_use]
    pub fn persist_in_flight(mut self) -> Self {
        self.codec = Some(Arc::new(RecordCodec::compact()));
        self
    }
}

impl<T: Record> Stream<T> {
    pub(crate) fn new(graph: SharedGraph, vertex: usize, consumers: Consumers<T>) -> Self {
        Self {
            graph,
            vertex,
            consumers,
            codec: None,
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
        self.assign_watermarks_with(Watermarks::out_of_order(bound_ms), time_of)
    }

    /// As [`assign_watermarks`](Self::assign_watermarks), with more to choose: which inputs watermarks do not wait for.
    pub fn assign_watermarks_with(
        &self,
        watermarks: Watermarks,
        time_of: impl Fn(&T) -> i64 + Send + Sync + 'static,
    ) -> Stream<T> {
        let time_of = Arc::new(time_of);
        self.stage("watermarks", None, move |env| {
            WatermarkStage::new(Arc::clone(&time_of), watermarks, Arc::clone(&env.clock))
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
        self.chain_behind("rebalance", vec![(self.vertex, edge)], self.codec.clone())
    }

    /// Brings this stream and others together into one.
    ///
    /// The records of one subtask stay in their order; those of different ones come in any. Event time advances with all of
    /// them: assign watermarks before, so that they follow the splits of each source.
    pub fn union<'a>(&self, others: impl IntoIterator<Item = &'a Stream<T>>) -> Stream<T> {
        let mut edges = Vec::new();
        // In flight, a record must be known whichever stream it comes from.
        let mut codec = self.codec.clone();
        for stream in
            std::iter::once(self).chain(others.into_iter().map(|other| -> &Self { other }))
        {
            self.graph.expect_same(&stream.graph);
            let edge = exchange(stream, |env| Pinned {
                to: env.subtask.index as usize,
            });
            edges.push((stream.vertex, edge));
            codec = codec.filter(|_| stream.codec.is_some());
        }
        self.chain_behind("union", edges, codec)
    }

    /// Adds a chain that begins with what comes in by some exchanges.
    fn chain_behind(
        &self,
        name: &str,
        edges: Vec<Incoming<T>>,
        codec: Option<SharedCodec<T>>,
    ) -> Stream<T> {
        let consumers = Consumers::default();
        let behind = consumers.clone();
        let vertex = self.graph.add_vertex(Vertex {
            names: vec![name.into()],
            parallelism: None,
            max_parallelism: None,
            uids: Vec::new(),
            keyed: None,
            inputs: inputs_of(&edges),
            reads_in_flight: true,
            head: Arc::new(move |env| {
                let receivers = receivers_of(&edges, env);
                let gate = Gate::new(receivers.len(), env);
                let next = build_links(&behind, env);
                Box::new(PlainHead::new(
                    gate,
                    Port::new(receivers, 0).persisted(0, codec.clone()),
                    next,
                    env.congested.clone(),
                ))
            }),
            reset: Arc::new(|| {}),
        });
        Stream::new(self.graph.clone(), vertex, consumers)
    }

    /// Returns what the operator that makes this stream writes to a side output.
    pub fn side_output<S: Record>(&self, side: SideOutput<S>) -> Stream<S> {
        let consumers = self.consumers.side(side);
        Stream::new(self.graph.clone(), self.vertex, consumers)
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
