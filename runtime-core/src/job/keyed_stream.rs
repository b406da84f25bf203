use std::sync::Arc;

use state_api::access::Aggregator;
use state_api::{HashId, StateKey};

use super::Stream;
use super::edge::Edge;
use super::graph::{Input, Vertex};
use super::stream::{Consumers, build_links, exchange};
use crate::chain::broadcast_head::BroadcastHead;
use crate::chain::gate::{Gate, Port};
use crate::chain::key_selector::{KeySelector, Keyed, KeyedPort};
use crate::chain::keyed_core::KeyedCore;
use crate::chain::keyed_head::KeyedHead;
use crate::chain::outputs::{ByKey, ToAll};
use crate::coordinator::Connection;
use crate::operator::{BroadcastOperator, KeyedOperator, Tumbling, WindowOperator, Windowed};
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
        let graph = &self.stream.graph;
        let id = graph.uid(uid);
        let edge = self.exchange_to_next();
        let consumers = Consumers::default();
        let behind = consumers.clone();
        let (receiving, named) = (Arc::clone(&edge), id.clone());
        let selector = self.selector.clone();
        let vertex = graph.add_vertex(Vertex {
            names: vec![uid.to_owned()],
            parallelism: None,
            max_parallelism: None,
            uids: vec![id.clone()],
            keyed: Some(id),
            inputs: vec![Input {
                from: self.stream.vertex,
                connection: Connection::AllToAll,
                edge,
            }],
            head: Arc::new(move |env| {
                let receivers = receiving.take_receivers(env.subtask.index);
                let gate = Gate::new(receivers.len(), env);
                let core = KeyedCore::new(named.clone());
                let next = build_links(&behind, env);
                Box::new(KeyedHead::new(
                    gate,
                    KeyedPort::new(Port::new(receivers, 0), selector.clone()),
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
        let behind_us = self.stream.graph.lock().vertices.len();
        let selector = self.selector.clone();
        exchange(&self.stream, move |env| {
            let plan = env.plan[behind_us];
            ByKey::new(
                selector.clone(),
                HashId::default(),
                plan.max_parallelism,
                plan.parallelism,
            )
        })
    }

    /// Assigns records to tumbling windows by their event time.
    #[must_use]
    pub fn window(self, windows: Tumbling) -> WindowedStream<K, T> {
        WindowedStream {
            keyed: self,
            windows,
        }
    }
}

/// A keyed stream whose records are assigned to windows.
pub struct WindowedStream<K, T> {
    keyed: KeyedStream<K, T>,
    windows: Tumbling,
}

impl<K: StateKey, T: Record> WindowedStream<K, T> {
    /// Folds the records of each key and window; a result is emitted when the watermark passes the window's end, and
    /// records that come after that are dropped.
    pub fn aggregate<A>(&self, uid: &str, aggregator: A) -> Stream<Windowed<K, A::Out>>
    where
        A: Aggregator<In = T>,
        A::Out: Record,
    {
        self.keyed
            .process(uid, WindowOperator::new(self.windows, aggregator))
    }
}
