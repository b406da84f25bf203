use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use state_api::{
    CheckpointId, Error, KeyHash, KeyedBackend, KeyedHandle, LiveSnapshots, RestoreContext,
    RestoreTimes, Result, Snapshot, SnapshotRequest, StateKey, StateMeta,
};

use super::at::At;
use super::byte_slot::ByteSlots;
use super::context::KeyedContext;
use super::frozen::FrozenLive;
use super::live_slot::{LiveSlot, MemoryLimit, table_hash};
use super::live_timers::LiveTimers;
use super::restored::{Loader, RestoredStates};
use super::timed_restore::TimedRestore;
use super::token::Slot;
use super::total::Total;

/// Numbers the sets of states of a process, so that a token can't be used with another operator's states.
static OWNERS: AtomicU32 = AtomicU32::new(0);

/// The keyed states and timers of one operator subtask, on either representation.
///
/// States are registered by name and reached through [`At`], a view bound to one key. The life of a set of states is:
/// [`restore`](Self::restore) (if there is something), registration, then access and [`snapshot`](Self::snapshot)s.
/// Restored states that are not registered are carried unchanged into later snapshots.
pub struct KeyedStates<K> {
    pub(crate) cx: KeyedContext,
    pub(crate) owner: u32,
    pub(crate) names: BTreeMap<Arc<str>, u32>,
    pub(crate) slots: Slots<K>,
    pub(crate) restored: bool,
    restore_times: RestoreTimes,
}

/// The states of a subtask by representation.
pub(crate) enum Slots<K> {
    Live(LiveSlots<K>),
    Bytes(ByteSlots),
}

/// Live tables and the strategy that makes them durable.
pub(crate) struct LiveSlots<K> {
    pub(crate) strategy: Box<dyn LiveSnapshots>,
    pub(crate) slots: Vec<LiveEntry<K>>,
    pub(crate) unregistered: RestoredStates,
    /// The snapshot taken last.
    pub(crate) latest: Option<u64>,
    /// Savepoints whose changes are still kept apart, though nothing will be based on them.
    pub(crate) savepoints: Vec<u64>,
    /// The bytes of all tables, if there is a limit for them.
    pub(crate) total: Option<Total>,
}

/// A live table, and whether its values have timestamps: known without asking the table.
pub(crate) struct LiveEntry<K> {
    pub(crate) timed: bool,
    pub(crate) slot: Box<dyn LiveSlot<K>>,
}

/// How much memory keyed states take, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUsage {
    /// Tables, nested collections and what keys and values own.
    pub total: usize,
    /// The part of it that layers above a frozen one take.
    pub overlays: usize,
}

impl<K: StateKey> KeyedStates<K> {
    /// Creates an empty set of states over a backend.
    ///
    /// # Errors
    /// `Unsupported` when the context asks for a hash that the key type does not have.
    pub fn new(backend: KeyedBackend, cx: KeyedContext) -> Result<Self> {
        cx.hash.check::<K>()?;
        let slots = match backend {
            KeyedBackend::Live(strategy) => Slots::Live(LiveSlots {
                strategy,
                slots: Vec::new(),
                unregistered: RestoredStates::new(),
                latest: None,
                savepoints: Vec::new(),
                total: cx.memory_limit.map(|_| Total::default()),
            }),
            KeyedBackend::Bytes(store) => Slots::Bytes(ByteSlots::new(store, &cx)),
        };
        let owner = OWNERS.fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            cx,
            owner,
            names: BTreeMap::new(),
            slots,
            restored: false,
            restore_times: RestoreTimes::default(),
        })
    }

    /// Returns the context.
    #[must_use]
    pub fn context(&self) -> &KeyedContext {
        &self.cx
    }

    /// Returns whether state was restored.
    #[must_use]
    pub fn is_restored(&self) -> bool {
        self.restored
    }

    /// Returns what the time of [`restore`](Self::restore) went to. Live tables are filled when their states are registered, which is
    /// not part of it.
    #[must_use]
    pub fn restore_times(&self) -> RestoreTimes {
        self.restore_times
    }

    /// Takes the key groups of this subtask out of the handles of a checkpoint.
    ///
    /// # Errors
    /// `Corrupt` when bytes are missing or damaged, `Incompatible` when a handle is in a format that the backend can't read,
    /// `InvalidArgument` when states are registered already. The states can't be used after an error.
    pub async fn restore(&mut self, handles: &[KeyedHandle], cx: &RestoreContext) -> Result<()> {
        if !self.names.is_empty() {
            return Err(Error::invalid(
                "state must be restored before states are registered",
            ));
        }
        self.restored = true;
        let (mut timed, cx) = TimedRestore::start(&self.cx.clock, cx);
        match &mut self.slots {
            Slots::Live(live) => {
                let mut loader = Loader::new(self.cx.range, &mut live.unregistered);
                live.strategy.restore(handles, &cx, &mut loader).await?;
            }
            Slots::Bytes(bytes) => bytes.restore(handles, &cx, &mut timed).await?,
        }
        self.restore_times = timed.times();
        Ok(())
    }

    /// Binds the states to a key.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn at<'a>(&'a mut self, key: &'a K) -> At<'a, K> {
        let hash = self.hash(key);
        At::new(self, key, hash)
    }

    /// Binds the states to a key whose hash is known already, as that of a record that came through an exchange is.
    ///
    /// The hash must be the one that [`hash`](Self::hash) gives for this key. With another one its state is not found, or
    /// is written where nobody looks for it; debug builds panic.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn at_hashed<'a>(&'a mut self, key: &'a K, hash: KeyHash) -> At<'a, K> {
        debug_assert_eq!(hash, self.hash(key), "not the key's hash");
        At::new(self, key, hash)
    }

    /// Hashes a key as these states do.
    #[cfg_attr(not(debug_assertions), inline(always))]
    #[must_use]
    pub fn hash(&self, key: &K) -> KeyHash {
        KeyHash::of(key, self.cx.hash, self.cx.max_parallelism)
    }

    /// Says which keys are used next, so that what is stored for them comes near all at once instead of one by one.
    ///
    /// For a batch of some 16 to 256 keys. Nothing is done where it brings nothing: in tables that fit the processor's caches,
    /// in stores that don't prefetch. State in namespaces is not looked for. It changes nothing, and what goes wrong in it goes wrong again at the access itself.
    pub fn prefetch<'k>(&mut self, keys: impl IntoIterator<Item = (&'k K, KeyHash)>)
    where
        K: 'k,
    {
        let Self { cx, slots, .. } = self;
        let keys = keys.into_iter();
        match slots {
            Slots::Live(live) if live.slots.iter().all(|entry| entry.slot.is_near()) => {}
            Slots::Live(live) => {
                // Filtering hides how many there are.
                let mut owned = Vec::with_capacity(keys.size_hint().0);
                owned.extend(keys.filter_map(|(key, hash)| {
                    let place = cx.place(hash.group())?;
                    Some((place, table_hash(hash.stable(), &(), cx.seed), key))
                }));
                for entry in &live.slots {
                    entry.slot.prefetch(&owned);
                }
            }
            Slots::Bytes(bytes) if bytes.store.prefetches() => {
                bytes.prefetch(keys.filter(|(_, hash)| cx.place(hash.group()).is_some()));
            }
            Slots::Bytes(_) => {}
        }
    }

    /// Freezes all states and returns the async part of a snapshot.
    ///
    /// # Errors
    /// `LimitExceeded` when earlier snapshots are still open and hold too many layers; those of the backend.
    pub fn snapshot(
        &mut self,
        request: &SnapshotRequest,
    ) -> Result<Box<dyn Snapshot<Vec<KeyedHandle>>>> {
        match &mut self.slots {
            Slots::Live(live) => {
                live.expect_any_change();
                live.latest = Some(request.checkpoint.0);
                if request.kind.is_savepoint() {
                    live.savepoints.push(request.checkpoint.0);
                }
                let frozen = live
                    .slots
                    .iter_mut()
                    .map(|entry| entry.slot.freeze(request.checkpoint.0, request.now_ms))
                    .collect::<Result<Vec<_>>>()?;
                let tables = FrozenLive::new(self.cx.range, frozen, live.unregistered.values());
                let snapshot = live.strategy.snapshot(request, Box::new(tables))?;
                live.forget_changes();
                Ok(snapshot)
            }
            Slots::Bytes(bytes) => bytes.snapshot(request),
        }
    }

    /// Tells that a checkpoint is complete.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn checkpoint_completed(&mut self, checkpoint: CheckpointId) -> Result<()> {
        match &mut self.slots {
            Slots::Live(live) => {
                live.expect_any_change();
                live.strategy.checkpoint_completed(checkpoint)?;
                live.forget_changes();
                live.join_changes(None);
                Ok(())
            }
            Slots::Bytes(bytes) => match bytes.store.native() {
                Some(native) => native.checkpoint_completed(checkpoint),
                None => Ok(()),
            },
        }
    }

    /// Tells that a checkpoint will never complete.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn checkpoint_aborted(&mut self, checkpoint: CheckpointId) -> Result<()> {
        match &mut self.slots {
            Slots::Live(live) => {
                live.expect_any_change();
                live.strategy.checkpoint_aborted(checkpoint)?;
                live.forget_changes();
                live.join_changes(Some(checkpoint.0));
                Ok(())
            }
            Slots::Bytes(bytes) => match bytes.store.native() {
                Some(native) => native.checkpoint_aborted(checkpoint),
                None => Ok(()),
            },
        }
    }

    /// Does work that was put off, such as merging the layers of released snapshots; returns whether more is left.
    ///
    /// Called between batches and when idle; `budget` is in entries.
    pub fn maintain(&mut self, budget: usize) -> bool {
        match &mut self.slots {
            Slots::Live(live) => {
                live.expect_any_change();
                let mut more = false;
                for entry in &mut live.slots {
                    more |= entry.slot.maintain(budget);
                }
                more
            }
            Slots::Bytes(bytes) => bytes.maintain(budget),
        }
    }

    /// Lets states with such a clean-up look for expired entries, once per record.
    pub fn sweep_for_record(&mut self) {
        if let Slots::Live(live) = &mut self.slots {
            for (index, entry) in live.slots.iter_mut().enumerate() {
                if entry.slot.sweep_for_record()
                    && let Some(total) = &mut live.total
                {
                    total.expect_change(index);
                }
            }
        }
    }

    /// Returns the memory that live tables take; on a byte store, which accounts for itself, that of the object cache.
    #[must_use]
    pub fn memory(&self) -> MemoryUsage {
        match &self.slots {
            Slots::Live(live) => MemoryUsage {
                total: live.slots.iter().map(|entry| entry.slot.bytes()).sum(),
                overlays: live
                    .slots
                    .iter()
                    .map(|entry| entry.slot.overlay_bytes())
                    .sum(),
            },
            Slots::Bytes(bytes) => MemoryUsage {
                total: bytes.cached_bytes(),
                overlays: 0,
            },
        }
    }

    /// Returns the names of the registered states.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(AsRef::as_ref)
    }

    /// Describes the registered states and timers, in the order of their registration.
    #[must_use]
    pub fn descriptions(&self) -> Vec<StateMeta> {
        match &self.slots {
            Slots::Live(live) => {
                let slots = live.slots.iter();
                slots.map(|entry| entry.slot.meta().clone()).collect()
            }
            Slots::Bytes(bytes) => bytes.descriptions().cloned().collect(),
        }
    }

    /// Returns the number of entries of a state: (key, namespace) pairs with something in them; exact on live tables, counted by a scan on a byte store.
    ///
    /// # Errors
    /// `NotFound` when no state of that name is registered; those of the backend.
    pub fn entries(&self, state: &str) -> Result<u64> {
        let index = *self
            .names
            .get(state)
            .ok_or_else(|| Error::not_found("no such state is registered").with("state", state))?;
        match &self.slots {
            Slots::Live(live) => Ok(live.slots[index as usize].slot.entries()),
            Slots::Bytes(bytes) => bytes.entries(index),
        }
    }
}

/// Returns the position of a token's state.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn position(owner: u32, slot: Slot) -> Result<usize> {
    if slot.owner == owner {
        return Ok(slot.index as usize);
    }
    Err(foreign(slot))
}

#[cold]
fn foreign(slot: Slot) -> Error {
    Error::invalid(if slot == Slot::UNREGISTERED {
        "the state was not registered: keep the token that registration returns"
    } else {
        "the state belongs to another operator"
    })
}

#[cold]
pub(crate) fn wrong_type() -> Error {
    Error::bug("a token names a state of another type")
}

impl<K: StateKey> LiveSlots<K> {
    /// Finds the slot of a state by position and type.
    #[inline]
    pub(crate) fn get_mut<T: Any>(&mut self, index: usize) -> Option<&mut T> {
        let slot: &mut dyn Any = self.slots.get_mut(index)?.slot.as_mut();
        slot.downcast_mut()
    }

    /// Returns what limits the growth of a table that is about to be reached in a key group, whether or not it changes.
    #[cold]
    pub(crate) fn measured_limit(
        &mut self,
        limit: usize,
        index: usize,
        group: usize,
    ) -> MemoryLimit {
        let Self { slots, total, .. } = self;
        let used = match total {
            Some(total) => {
                let used = total.settle(slots);
                if let Some(entry) = slots.get_mut(index) {
                    entry.slot.expect_change(group);
                    total.expect_change(index);
                }
                used
            }
            None => slots.iter().map(|entry| entry.slot.bytes()).sum(),
        };
        MemoryLimit { limit, used }
    }

    /// Notes that any table may change.
    fn expect_any_change(&mut self) {
        if let Some(total) = &mut self.total {
            total.expect_any_change();
        }
    }

    /// Forgets what changed before the oldest checkpoint that a later one may build on.
    fn forget_changes(&mut self) {
        if let Some(base) = self.strategy.needs_changes_since() {
            let slots = self.slots.iter_mut();
            slots.for_each(|entry| entry.slot.confirm(base.0));
        }
    }

    /// Keeps the changes before snapshots that nothing will be based on with later ones: those of savepoints, and of one that
    /// failed.
    fn join_changes(&mut self, failed: Option<u64>) {
        for id in self.savepoints.drain(..).chain(failed) {
            let slots = self.slots.iter_mut();
            slots.for_each(|entry| entry.slot.discard(id));
        }
    }

    pub(crate) fn timers(&mut self, index: usize) -> Result<&mut LiveTimers> {
        if let Some(total) = &mut self.total {
            total.expect_change(index);
        }
        self.get_mut(index).ok_or_else(wrong_type)
    }
}
