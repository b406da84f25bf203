use std::sync::Arc;

use state_api::{HashId, StateKey};

use super::edge::{Edge, Incoming};
use super::graph::{Input, SharedGraph, Vertex};
use super::stream::{Consumers, build_links, exchange, inputs_of, receivers_of};
use super::{Stream, WindowedStream};
use crate::chain::broadcast_head::BroadcastHead;
use crate::chain::environment::Environment;
use crate::chain::gate::Gate;
use crate::chain::in_flight::{KeyedCodec, SharedCodec, SidesCodec};
use crate::chain::key_selector::{KeySelector, Keyed, KeyedPort};
use crate::chain::keyed_core::KeyedCore;
use crate::chain::keyed_head::KeyedHead;
use crate::chain::outputs::{ByKey, ToAll, Wrapped};
use crate::chain::port::Port;
use crate::coordinator::Connection;
use crate::operator::{
    BroadcastOperator, KeyedOperator, Side, TwoInputOperator, TwoInputs, Windows,
};
use crate::record::Record;

/// A stream whose records have a key.
pub struct KeyedStream<K, T> {
    pub(crate) stream: Stream<T>,
    pub(crate) selector: KeySelector<K, T>,
}

impl<K: StateKey, T: Record> KeyedStream<K, T> {
    pub(crate) fn new(stream: Stream<T>, selector: KeySelector<K, T>) -> Self {
        Self { stream, selector }
    }

    /// Adds an operator over keyed state; `uid` names its state in checkpoints.
    pub fn process<O>(&self, uid: &str, operator: O) -> Stream<O::Out>
    where
        O: KeyedOperator<Key = K, In = T>,
    {
        let edges = vec![(self.stream.vertex, self.exchange_to_next())];
        let graph = &self.stream.graph;
        let codec = self.stream.codec.clone();
        keyed_vertex(graph, uid, edges, self.selector.clone(), codec, operator)
    }

    /// Brings another stream with keys of the same type together with this one, for an operator that shares state between them.
    #[must_use]
    pub fn connect<U: Record>(&self, other: &KeyedStream<K, U>) -> ConnectedStreams<K, T, U> {
        ConnectedStreams {
            first: self.clone(),
            second: other.clone(),
        }
    }

    /// Adds an operator over keyed state that reads what `broadcast` brings to every subtask.
    pub fn connect_broadcast<O>(
        &self,
        broadcast: &Stream<O::Broadcast>,
        uid: &str,
        operator: O,
    ) -> Stream<O::Out>
    where
        O: BroadcastOperator<Key = K, In = T>,
    {
        let graph = &self.stream.graph;
        graph.expect_same(&broadcast.graph);
        let id = graph.uid(uid);
        let keyed_edge = self.exchange_to_next();
        let broadcast_edge = exchange(broadcast, |_| ToAll);
        let consumers = Consumers::default();
        let behind = consumers.clone();
        let inputs = vec![
            Input {
                from: self.stream.vertex,
                connection: Connection::AllToAll,
                edge: Arc::<Edge<Keyed<K, T>>>::clone(&keyed_edge),
            },
            Input {
                from: broadcast.vertex,
                connection: Connection::AllToAll,
                edge: Arc::<Edge<O::Broadcast>>::clone(&broadcast_edge),
            },
        ];
        let (named, selector) = (id.clone(), self.selector.clone());
        let vertex = graph.add_vertex(Vertex {
            names: vec![uid.to_owned()],
            parallelism: None,
            max_parallelism: None,
            uids: vec![id.clone()],
            keyed: Some(id),
            inputs,
            reads_in_flight: false,
            head: Arc::new(move |env| {
                let keyed = keyed_edge.take_receivers(env.subtask.index);
                let broadcast = broadcast_edge.take_receivers(env.subtask.index);
                let gate = Gate::new(keyed.len() + broadcast.len(), env);
                let first = keyed.len();
                let (keyed, broadcast) = (Port::new(keyed, 0), Port::new(broadcast, first));
                let core = KeyedCore::new(named.clone());
                let next = build_links(&behind, env);
                Box::new(BroadcastHead::new(
                    gate,
                    KeyedPort::new(keyed, selector.clone()),
                    broadcast,
                    operator.clone(),
                    core,
                    next,
                    env,
                ))
            }),
            reset: Arc::new(|| {}),
        });
        Stream::new(graph.clone(), vertex, consumers)
    }

    /// Adds the exchange by key to the vertex that is added next.
    fn exchange_to_next(&self) -> Arc<Edge<Keyed<K, T>>> {
        exchange(&self.stream, self.route_to_next(self.selector.clone()))
    }

    /// As [`exchange_to_next`](Self::exchange_to_next), for an input that has records of two kinds.
    fn exchange_wrapped<V: Record>(
        &self,
        selector: &KeySelector<K, V>,
        wrap: fn(T) -> V,
    ) -> Incoming<Keyed<K, V>> {
        let by_key = self.route_to_next(selector.clone());
        let edge = exchange(&self.stream, move |env| Wrapped {
            wrap,
            route: by_key(env),
        });
        (self.stream.vertex, edge)
    }

    fn route_to_next<V>(
        &self,
        selector: KeySelector<K, V>,
    ) -> impl Fn(&Environment) -> ByKey<K, V> + use<K, T, V> {
        let behind_us = self.stream.graph.lock().vertices.len();
        move |env| {
            let plan = env.plan[behind_us];
            let (groups, parallelism) = (plan.max_parallelism, plan.parallelism);
            ByKey::new(selector.clone(), HashId::default(), groups, parallelism)
        }
    }

    /// Assigns records to windows, by their event time unless [`by_clock`](WindowedStream::by_clock) is asked for.
    #[must_use]
    pub fn window(self, windows: impl Into<Windows>) -> WindowedStream<K, T> {
        WindowedStream::new(self, windows.into())
    }
}

impl<K, T> Clone for KeyedStream<K, T> {
    fn clone(&self) -> Self {
        Self {
            stream: self.stream.clone(),
            selector: self.selector.clone(),
        }
    }
}

/// Two keyed streams that an operator reads together.
pub struct ConnectedStreams<K, A, B> {
    first: KeyedStream<K, A>,
    second: KeyedStream<K, B>,
}

impl<K: StateKey, A: Record, B: Record> ConnectedStreams<K, A, B> {
    /// Adds an operator over keyed state with both streams as inputs; `uid` names its state in checkpoints.
    pub fn process<O>(&self, uid: &str, operator: O) -> Stream<O::Out>
    where
        O: TwoInputOperator<Key = K, First = A, Second = B>,
    {
        let Self { first, second } = self;
        let graph = &first.stream.graph;
        graph.expect_same(&second.stream.graph);
        let selector = KeySelector::of_sides(first.selector.clone(), second.selector.clone());
        let edges = vec![
            first.exchange_wrapped(&selector, Side::First),
            second.exchange_wrapped(&selector, Side::Second),
        ];
        let codec = match (&first.stream.codec, &second.stream.codec) {
            (Some(first), Some(second)) => Some(Arc::new(SidesCodec {
                first: Arc::clone(first),
                second: Arc::clone(second),
            }) as SharedCodec<_>),
            _ => None,
        };
        keyed_vertex(graph, uid, edges, selector, codec, TwoInputs(operator))
    }
}

/// Adds a chain that begins with an operator over keyed state, behind exchanges by key.
fn keyed_vertex<O: KeyedOperator>(
    graph: &SharedGraph,
    uid: &str,
    edges: Vec<Incoming<Keyed<O::Key, O::In>>>,
    selector: KeySelector<O::Key, O::In>,
    codec: Option<SharedCodec<O::In>>,
    operator: O,
) -> Stream<O::Out> {
    let id = graph.uid(uid);
    let consumers = Consumers::default();
    let (behind, named) = (consumers.clone(), id.clone());
    let vertex = graph.add_vertex(Vertex {
        names: vec![uid.to_owned()],
        parallelism: None,
        max_parallelism: None,
        uids: vec![id.clone()],
        keyed: Some(id),
        inputs: inputs_of(&edges),
        reads_in_flight: true,
        head: Arc::new(move |env| {
            let receivers = receivers_of(&edges, env);
            let gate = Gate::new(receivers.len(), env);
            let core = KeyedCore::new(named.clone());
            let next = build_links(&behind, env);
            let codec = codec.as_ref().map(|codec| {
                let codec = Arc::clone(codec);
                let keyed = KeyedCodec::new(codec, selector.clone(), env.max_parallelism);
                Arc::new(keyed) as SharedCodec<_>
            });
            let port = Port::new(receivers, 0).persisted(0, codec);
            let port = KeyedPort::new(port, selector.clone());
            Box::new(KeyedHead::new(
                gate,
                port,
                operator.clone(),
                core,
                next,
                env,
            ))
        }),
        reset: Arc::new(|| {}),
    });
    Stream::new(graph.clone(), vertex, consumers)
}
