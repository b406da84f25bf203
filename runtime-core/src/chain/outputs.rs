use futures_util::future::LocalBoxFuture;
use state_api::{CheckpointId, HashId, KeyHash, MaxParallelism, Result, SnapshotRequest, StateKey};

use super::environment::Environment;
use super::key_selector::{KeySelector, Keyed};
use super::link::Control;
use crate::channel::{Barrier, BatchWriter, Element};
use crate::record::{Emit, Record, Timed};
use crate::task::SubtaskSnapshot;

/// Chooses the channel of each record.
pub(crate) trait Route<T>: 'static {
    /// What travels.
    type Wire: Record;

    fn route(&mut self, value: T, time: i64, channels: &mut [BatchWriter<Timed<Self::Wire>>]);
}

/// Sends each record to the subtask that owns its key group.
pub(crate) struct ByKey<K, T> {
    selector: KeySelector<K, T>,
    hash: HashId,
    max_parallelism: MaxParallelism,
    /// Channel by key group.
    channel_of: Vec<u32>,
}

impl<K: StateKey, T> ByKey<K, T> {
    pub(crate) fn new(
        selector: KeySelector<K, T>,
        hash: HashId,
        max_parallelism: MaxParallelism,
        parallelism: u32,
    ) -> Self {
        let groups = max_parallelism.all_groups().iter();
        let channel_of = groups
            .map(|group| max_parallelism.subtask_of(group, parallelism))
            .collect();
        Self {
            selector,
            hash,
            max_parallelism,
            channel_of,
        }
    }

    #[inline]
    fn hash(&self, key: &K) -> KeyHash {
        KeyHash::of(key, self.hash, self.max_parallelism)
    }
}

impl<K: StateKey, T: Record> Route<T> for ByKey<K, T> {
    type Wire = Keyed<K, T>;

    #[inline]
    fn route(&mut self, value: T, time: i64, channels: &mut [BatchWriter<Timed<Keyed<K, T>>>]) {
        let (hash, key) = match &self.selector {
            KeySelector::Made(make) => {
                let key = make(&value);
                (self.hash(&key), Some(key))
            }
            KeySelector::Held(find) => (self.hash(find(&value)), None),
        };
        let channel = self.channel_of[hash.group().index()] as usize;
        channels[channel].push(Timed {
            value: Keyed { key, hash, value },
            time,
        });
    }
}

/// Deals records out in turn.
pub(crate) struct RoundRobin {
    pub(crate) next: usize,
}

impl<T: Record> Route<T> for RoundRobin {
    type Wire = T;

    #[inline]
    fn route(&mut self, value: T, time: i64, channels: &mut [BatchWriter<Timed<T>>]) {
        let channel = self.next % channels.len();
        self.next = channel + 1;
        channels[channel].push(Timed { value, time });
    }
}

/// Sends all records of a subtask to one subtask: those of a chain of the same parallelism to the one of the same number.
pub(crate) struct Pinned {
    pub(crate) to: usize,
}

impl<T: Record> Route<T> for Pinned {
    type Wire = T;

    #[inline]
    fn route(&mut self, value: T, time: i64, channels: &mut [BatchWriter<Timed<T>>]) {
        let channel = self.to % channels.len();
        channels[channel].push(Timed { value, time });
    }
}

/// Wraps each record before it is sent.
pub(crate) struct Wrapped<T, R, V> {
    pub(crate) wrap: fn(T) -> V,
    pub(crate) route: R,
}

impl<T: Record, V: Record, R: Route<V>> Route<T> for Wrapped<T, R, V> {
    type Wire = R::Wire;

    #[inline]
    fn route(&mut self, value: T, time: i64, channels: &mut [BatchWriter<Timed<R::Wire>>]) {
        self.route.route((self.wrap)(value), time, channels);
    }
}

/// Sends every record to every subtask.
pub(crate) struct ToAll;

impl<T: Record> Route<T> for ToAll {
    type Wire = T;

    fn route(&mut self, value: T, time: i64, channels: &mut [BatchWriter<Timed<T>>]) {
        let Some((last, others)) = channels.split_last_mut() else {
            return;
        };
        for channel in others {
            channel.push(Timed {
                value: value.clone(),
                time,
            });
        }
        last.push(Timed { value, time });
    }
}

/// The end of a chain at an exchange: one channel per subtask behind it.
pub(crate) struct Exchange<T, R: Route<T>> {
    route: R,
    channels: Vec<BatchWriter<Timed<R::Wire>>>,
    types: std::marker::PhantomData<fn(T)>,
}

impl<T, R: Route<T>> Exchange<T, R> {
    pub(crate) fn new(route: R, channels: Vec<BatchWriter<Timed<R::Wire>>>) -> Self {
        Self {
            route,
            channels,
            types: std::marker::PhantomData,
        }
    }

    fn broadcast(&mut self, element: impl Fn() -> Element<Timed<R::Wire>>) {
        self.channels
            .iter_mut()
            .for_each(|channel| channel.push_element(element()));
    }
}

impl<T, R: Route<T>> Emit<T> for Exchange<T, R> {
    #[inline]
    fn emit(&mut self, value: T, time: i64) -> Result<()> {
        self.route.route(value, time, &mut self.channels);
        Ok(())
    }
}

impl<T, R: Route<T>> Control for Exchange<T, R> {
    fn next(&mut self) -> Option<&mut dyn Control> {
        None
    }

    fn open<'a>(&'a mut self, _env: &'a Environment) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn watermark(&mut self, time: i64) -> Result<()> {
        self.broadcast(|| Element::Watermark(time));
        Ok(())
    }

    fn idle(&mut self) -> Result<()> {
        self.broadcast(|| Element::Idle);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.channels.iter_mut().for_each(BatchWriter::flush);
        Ok(())
    }

    fn pump(&mut self) -> bool {
        // Each one has its turn, also behind one that has no room.
        let mut clear = true;
        for channel in &mut self.channels {
            clear &= channel.pump();
        }
        clear
    }

    fn prepare_barrier(&mut self, _barrier: &Barrier) -> Result<()> {
        Ok(())
    }

    fn emit_barrier(&mut self, barrier: Option<&Barrier>, id: CheckpointId) {
        match barrier {
            Some(barrier) => self
                .channels
                .iter_mut()
                .for_each(|channel| channel.push_barrier(*barrier)),
            None => self.broadcast(|| Element::CancelMarker(id)),
        }
    }

    fn snapshot(&mut self, _request: &SnapshotRequest, _set: &mut SubtaskSnapshot) -> Result<()> {
        Ok(())
    }

    fn completed(&mut self, _id: CheckpointId) -> Result<()> {
        Ok(())
    }

    fn aborted(&mut self, _id: CheckpointId) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.broadcast(|| Element::EndOfInput);
        Ok(())
    }

    fn maintain(&mut self) -> bool {
        false
    }
}
