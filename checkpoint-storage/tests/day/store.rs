//! A store with every fault, and processes that die between any two calls of it.
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use checkpoint_storage::{
    Lease, MemoryPublish, MemoryStore, ObjectStore, ObjectWriter, Publish, StoreEntry, StoreRoot,
};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use state_api::{Error, Result};

const URL: &str = "sim";

type Interlude = dyn Fn() + Send + Sync;

/// The store, the clock and the dice.
pub(crate) struct World {
    pub(crate) store: MemoryStore,
    state: Mutex<State>,
    interlude: Mutex<Option<Arc<Interlude>>>,
    /// While somebody else has a turn.
    busy: AtomicBool,
}

struct State {
    random: u64,
    now_ms: u64,
    storm_until_ms: u64,
    faults: u64,
    /// URLs of the checkpoints that a process has called complete, or begun with.
    reported: BTreeSet<String>,
}

impl World {
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            store: MemoryStore::new(),
            state: Mutex::new(State {
                random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
                now_ms: 0,
                storm_until_ms: 0,
                faults: 0,
                reported: BTreeSet::new(),
            }),
            interlude: Mutex::new(None),
            busy: AtomicBool::new(false),
        })
    }

    /// Sets what may happen between two calls.
    pub(crate) fn on_interlude(&self, turn: impl Fn() + Send + Sync + 'static) {
        *self.interlude.lock().unwrap() = Some(Arc::new(turn));
    }

    pub(crate) fn below(&self, n: u64) -> u64 {
        let mut state = self.state.lock().unwrap();
        // xorshift64* (Vigna, 2016).
        state.random ^= state.random >> 12;
        state.random ^= state.random << 25;
        state.random ^= state.random >> 27;
        (state.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % n.max(1)
    }

    pub(crate) fn chance(&self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.state.lock().unwrap().now_ms
    }

    pub(crate) fn advance(&self, ms: u64) {
        self.state.lock().unwrap().now_ms += ms;
    }

    pub(crate) fn faults(&self) -> u64 {
        self.state.lock().unwrap().faults
    }

    /// Notes that a checkpoint is one to go on from.
    pub(crate) fn reported(&self, url: &str) {
        self.state.lock().unwrap().reported.insert(url.to_owned());
    }

    /// Whether a process has called a checkpoint complete; a fenced one may have published another that nobody hears of.
    pub(crate) fn was_reported(&self, url: &str) -> bool {
        self.state.lock().unwrap().reported.contains(url)
    }

    /// The store as one process sees it.
    pub(crate) fn process(self: &Arc<Self>) -> (StoreRoot, Life) {
        let life = Life::default();
        let store = Arc::new(SimStore {
            world: Arc::clone(self),
            life: life.clone(),
            fresh: Arc::default(),
        });
        let url = format!("memory://{URL}");
        (StoreRoot::new(Arc::clone(&store) as _, store, &url), life)
    }

    /// The store without faults.
    pub(crate) fn bare(&self) -> StoreRoot {
        StoreRoot::memory(&self.store, URL)
    }

    fn fault(&self, what: &str) -> Error {
        self.state.lock().unwrap().faults += 1;
        Error::retryable(format!("a simulated fault: {what}"))
    }

    /// Whether the store refuses everything for a while.
    fn storms(&self) -> bool {
        if self.chance(1) && self.chance(100) {
            let mut state = self.state.lock().unwrap();
            state.storm_until_ms = state.now_ms + 30_000;
        }
        let storms = {
            let state = self.state.lock().unwrap();
            state.now_ms < state.storm_until_ms
        };
        storms && self.chance(800)
    }

    fn maybe_interlude(&self) {
        if !self.chance(2) || self.busy.swap(true, Ordering::SeqCst) {
            return;
        }
        let turn = self.interlude.lock().unwrap().clone();
        if let Some(turn) = turn {
            turn();
        }
        self.busy.store(false, Ordering::SeqCst);
    }
}

/// Whether a process lives.
#[derive(Clone, Default)]
pub(crate) struct Life {
    dead: Arc<AtomicBool>,
    /// Calls until it dies; 0 for never.
    left: Arc<AtomicI64>,
}

impl Life {
    pub(crate) fn die_within(&self, calls: u64) {
        self.left.store(calls as i64 + 1, Ordering::SeqCst);
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    /// Whether it dies at this call.
    fn dies(&self) -> bool {
        let left = self.left.load(Ordering::SeqCst);
        if left > 0 {
            self.left.store(left - 1, Ordering::SeqCst);
        }
        left == 1
    }
}

#[derive(Clone)]
struct SimStore {
    world: Arc<World>,
    life: Life,
    /// Objects that this process wrote and does not find at once, and how often it does not.
    fresh: Arc<Mutex<HashMap<String, u32>>>,
}

impl std::fmt::Debug for SimStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SimStore")
    }
}

impl SimStore {
    /// Does a call, or not, or twice, and says so, or not.
    async fn call<'a, T>(
        &self,
        call: &str,
        work: impl Fn() -> BoxFuture<'a, Result<T>>,
    ) -> Result<T> {
        let world = &self.world;
        world.maybe_interlude();
        if self.life.is_dead() {
            return Err(Error::retryable("the process is dead"));
        }
        world.advance(1 + world.below(20));
        if self.life.dies() {
            self.life.dead.store(true, Ordering::SeqCst);
            if world.chance(500) {
                drop(work().await);
            }
            return Err(Error::retryable("the process dies"));
        }
        if world.storms() {
            return Err(world.fault("503"));
        }
        match world.below(1000) {
            0..4 => Err(world.fault(call)),
            4..8 => {
                drop(work().await);
                Err(world.fault("no answer"))
            }
            8..12 => {
                // Sent again by something on the way.
                drop(work().await);
                work().await
            }
            12..15 => {
                world.advance(1000 * (1 + world.below(60)));
                work().await
            }
            _ => work().await,
        }
    }

    fn wrote(&self, path: &str) {
        if self.world.chance(5) {
            let times = 1 + self.world.below(2) as u32;
            self.fresh.lock().unwrap().insert(path.to_owned(), times);
        }
    }

    /// Whether an object that was just written is not found yet.
    fn lags(&self, path: &str) -> bool {
        let mut fresh = self.fresh.lock().unwrap();
        match fresh.get_mut(path) {
            Some(times) if *times > 0 => {
                *times -= 1;
                true
            }
            _ => false,
        }
    }
}

impl ObjectStore for SimStore {
    fn create(&self, path: &str, lease: Lease) -> BoxFuture<'_, Result<Box<dyn ObjectWriter>>> {
        let path = path.to_owned();
        async move {
            let made = self
                .call("create", || {
                    self.world.store.create(&path, Arc::clone(&lease))
                })
                .await;
            let writer = SimWriter {
                store: self.clone(),
                path: path.clone(),
                inner: made?,
                bytes: Vec::new(),
            };
            Ok(Box::new(writer) as Box<dyn ObjectWriter>)
        }
        .boxed()
    }

    fn read(&self, path: &str, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        let path = path.to_owned();
        async move {
            if self.lags(&path) {
                return Err(Error::not_found("a simulated fault: not found yet"));
            }
            self.call("read", || self.world.store.read(&path, range.clone()))
                .await
        }
        .boxed()
    }

    fn len(&self, path: &str) -> BoxFuture<'_, Result<Option<u64>>> {
        let path = path.to_owned();
        async move {
            if self.lags(&path) {
                return Ok(None);
            }
            self.call("len", || self.world.store.len(&path)).await
        }
        .boxed()
    }

    fn list(&self, folder: &str) -> BoxFuture<'_, Result<Vec<StoreEntry>>> {
        let folder = folder.to_owned();
        async move { self.call("list", || self.world.store.list(&folder)).await }.boxed()
    }

    fn delete(&self, path: &str) -> BoxFuture<'_, Result<()>> {
        let path = path.to_owned();
        async move { self.call("delete", || self.world.store.delete(&path)).await }.boxed()
    }

    fn remove_folder(&self, folder: &str) -> BoxFuture<'_, Result<bool>> {
        let folder = folder.to_owned();
        async move {
            self.call("remove a folder", || {
                self.world.store.remove_folder(&folder)
            })
            .await
        }
        .boxed()
    }

    fn sync_folder(&self, folder: &str) -> BoxFuture<'_, Result<()>> {
        let folder = folder.to_owned();
        async move {
            self.call("sync", || self.world.store.sync_folder(&folder))
                .await
        }
        .boxed()
    }
}

impl Publish for SimStore {
    fn method(&self) -> &'static str {
        "map in memory, with every fault"
    }

    fn publish(&self, path: &str, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        let path = path.to_owned();
        async move {
            let publish = MemoryPublish::new(self.world.store.clone());
            let (publish, at) = (&publish, &path);
            let published = self
                .call("publish", || {
                    let (bytes, publish) = (bytes.clone(), publish.clone());
                    let at = at.clone();
                    async move { publish.publish(&at, bytes).await }.boxed()
                })
                .await;
            self.wrote(&path);
            published
        }
        .boxed()
    }
}

struct SimWriter {
    store: SimStore,
    path: String,
    inner: Box<dyn ObjectWriter>,
    bytes: Vec<u8>,
}

impl ObjectWriter for SimWriter {
    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        async move {
            self.store
                .call("write", || async { Ok(()) }.boxed())
                .await?;
            self.bytes.extend_from_slice(&bytes);
            self.inner.write(bytes).await
        }
        .boxed()
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        async move {
            let Self {
                store,
                path,
                inner,
                bytes,
            } = *self;
            store.call("finish", || async { Ok(()) }.boxed()).await?;
            if store.world.chance(5) {
                let torn = bytes[..bytes.len() / 2].to_vec();
                store.world.store.put(&path, torn);
                return Err(store.world.fault("torn"));
            }
            inner.finish().await
        }
        .boxed()
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        async move {
            let Self { store, inner, .. } = *self;
            store.call("abort", || async { Ok(()) }.boxed()).await?;
            inner.abort().await
        }
        .boxed()
    }
}
