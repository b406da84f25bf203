use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use state_api::access::Aggregator;
use state_api::{
    ByteStore, CodecKind, Column, Error, KeyGroup, KeyGroupRange, KeyHash, KeyedHandle, OrderedKey,
    RestoreContext, Result, Snapshot, SnapshotRequest, StateKey, StateKind, StateMeta, StateType,
    TtlConfig, TypeMeta,
};

use super::bound::{OfCache, OfStore};
use super::context::KeyedContext;
use super::decoder::Origin;
use super::kind::{AggregatingExtra, ReducingExtra, ValueExtra};
use super::live_slot::Address;
use super::live_timers::Popped;
use super::states::wrong_type;
use super::timed_restore::TimedRestore;
use crate::bytes::{
    self, ByteAggregating, ByteKey, ByteList, ByteMap, ByteReducing, ByteSortedMap, ByteState,
    ByteTimers, ByteValue, CompactKeys, OrderedKeys,
};
use crate::cache::{
    Behind, CachePlace, CacheShare, CachedAggregating, CachedMap, CachedReducing, CachedSortedMap,
    CachedState, CachedTable, CachedValue, Cell, Encoding, MapCell, merge_aggregating,
    merge_reducing,
};
use crate::format::{
    CanonicalColumn, canonical_snapshot, overlaid, restore_stored, restore_write_back,
    stored_and_dirty, with_write_back,
};

/// What a kind of state needs beside its column, its type hidden.
pub(crate) type ByteExtra = Box<dyn Any + Send>;

/// The cache in front of a state, or what a state without one needs beside its column.
pub(crate) type Front = std::result::Result<Box<dyn CachedState>, ByteExtra>;

/// Entries that a round of making room looks at in one cache, and at most in one go.
const LOOKS: usize = 64;
const MOST_LOOKS: usize = 512;

/// One registered state of a byte store.
pub(crate) struct ByteSlot {
    state: ByteState,
    meta: StateMeta,
    ttl: Option<TtlConfig>,
    front: Front,
    timers: Option<ByteTimers>,
}

/// The states of a subtask in a byte store.
pub(crate) struct ByteSlots {
    pub(crate) store: Box<dyn ByteStore>,
    slots: Vec<ByteSlot>,
    /// Restored states that are not registered.
    unregistered: BTreeMap<Arc<str>, (Column, StateMeta)>,
    key: ByteKey,
    /// Whether `key` is the key of the record at hand.
    is_bound: bool,
    range: KeyGroupRange,
    prefix_len: usize,
    cx: KeyedContext,
    /// What the caches of all states share; `None` without caches.
    share: Option<CacheShare>,
    /// The state whose cache gives something up next.
    turn: usize,
    /// What went wrong where nobody could be told.
    failed: Option<Error>,
}

/// Rewrites the values of a restored column for the type that is registered now.
pub(crate) type MigrateColumn =
    fn(&mut dyn ByteStore, Column, &StateMeta, &StateMeta, i64) -> Result<()>;

impl ByteSlots {
    pub(crate) fn new(store: Box<dyn ByteStore>, cx: &KeyedContext) -> Self {
        let prefix_len = cx.max_parallelism.prefix_len();
        let budget = store.object_cache().or_else(|| cx.object_cache.clone());
        Self {
            share: budget.map(CacheShare::new),
            turn: 0,
            failed: None,
            is_bound: false,
            store,
            slots: Vec::new(),
            unregistered: BTreeMap::new(),
            key: ByteKey::new(prefix_len),
            range: cx.range,
            prefix_len,
            cx: cx.clone(),
        }
    }

    /// Another key comes: it is encoded when a state needs it.
    #[inline]
    pub(crate) fn unbind(&mut self) {
        self.is_bound = false;
    }

    /// Encodes the key of a record, once for all states.
    #[inline]
    pub(crate) fn bind<K: StateKey>(&mut self, key: &K, group: KeyGroup) {
        if !self.is_bound {
            self.key.bind(key, group);
            self.is_bound = true;
        }
    }

    /// Tells the store which keys are read next, for states with one entry for each key.
    pub(crate) fn prefetch<'k, K: StateKey>(
        &mut self,
        keys: impl Iterator<Item = (&'k K, KeyHash)>,
    ) {
        let keys: Vec<(&K, KeyHash, ByteKey)> = keys
            .map(|(key, hash)| {
                let mut stored = ByteKey::new(self.prefix_len);
                stored.bind(key, hash.group());
                (key, hash, stored)
            })
            .collect();
        let no_namespace = TypeMeta::of::<()>(CodecKind::Compact);
        for slot in &self.slots {
            let single = matches!(
                slot.meta.kind,
                StateKind::Value | StateKind::List | StateKind::Reducing | StateKind::Aggregating
            );
            if !single || slot.meta.namespace != no_namespace {
                continue;
            }
            let cached = slot.front.as_ref().ok();
            let missing = keys
                .iter()
                .filter(|(key, hash, _)| !cached.is_some_and(|cached| cached.holds(*key, *hash)));
            let missing: Vec<&[u8]> = missing.map(|(_, _, stored)| stored.stored()).collect();
            if !missing.is_empty() {
                self.store.prefetch(slot.state.column(), &missing);
            }
        }
    }

    pub(crate) async fn restore(
        &mut self,
        handles: &[KeyedHandle],
        cx: &RestoreContext,
        timed: &mut TimedRestore,
    ) -> Result<()> {
        let (store, range, prefix_len) = (self.store.as_mut(), self.range, self.prefix_len);
        let (stored, dirty) = stored_and_dirty(handles);
        let mut columns = restore_stored(&stored, range, prefix_len, store, cx).await?;
        if let Some(native) = store.native() {
            timed.told(native.restore_times());
        }
        let storage = &*cx.storage;
        restore_write_back(&dirty, range, prefix_len, store, storage, &mut columns).await?;
        let by_name = columns
            .into_iter()
            .map(|(column, meta)| (Arc::clone(&meta.name), (column, meta)));
        self.unregistered.extend(by_name);
        Ok(())
    }

    pub(crate) fn snapshot(
        &mut self,
        request: &SnapshotRequest,
    ) -> Result<Box<dyn Snapshot<Vec<KeyedHandle>>>> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let mut dirty = Vec::new();
        for slot in &mut self.slots {
            if let Ok(cached) = &mut slot.front {
                dirty.extend(cached.freeze(request.checkpoint.0, &slot.meta.name)?);
            }
        }
        let registered = self
            .slots
            .iter()
            .map(|slot| (slot.state.column(), &slot.meta, slot.ttl));
        let carried = self
            .unregistered
            .values()
            .map(|(column, meta)| (*column, meta, None));
        let columns: Vec<_> = registered.chain(carried).collect();
        if let Some(native) = self.store.native()
            && native.takes(request.kind)
        {
            let states: Vec<_> = columns
                .iter()
                .map(|(column, meta, _)| (*column, (*meta).clone()))
                .collect();
            let native = native.snapshot(request, &states)?;
            return Ok(with_write_back(native, dirty, states, self.range));
        }
        let columns = columns
            .into_iter()
            .map(|(column, meta, ttl)| {
                let column = CanonicalColumn::new(column, meta.clone());
                match ttl {
                    Some(ttl) => column.drop_expired(ttl, request.now_ms),
                    None => column,
                }
            })
            .collect();
        let view = overlaid(self.store.view()?, dirty, self.range, self.prefix_len);
        Ok(canonical_snapshot(
            view,
            columns,
            self.range,
            self.prefix_len,
        ))
    }

    /// Describes the registered states.
    pub(crate) fn descriptions(&self) -> impl Iterator<Item = &StateMeta> {
        self.slots.iter().map(|slot| &slot.meta)
    }

    pub(crate) fn entries(&self, index: u32) -> Result<u64> {
        let slot = self.slots.get(index as usize).ok_or_else(wrong_type)?;
        let (store, column) = (self.store.as_ref(), slot.state.column());
        let stored = match slot.meta.kind {
            StateKind::Map | StateKind::SortedMap => {
                bytes::count_pairs(store, column, self.prefix_len, &slot.meta)?
            }
            StateKind::List => bytes::count_lists(store, column)?,
            _ => bytes::count_entries(store, column)?,
        };
        let more = match &slot.front {
            Ok(cached) => cached.difference(store)?,
            Err(_) => 0,
        };
        Ok(stored.saturating_add_signed(more))
    }

    pub(crate) fn register(
        &mut self,
        meta: StateMeta,
        ttl: Option<TtlConfig>,
        front: impl FnOnce(Option<CachePlace>) -> Front,
        migrate: MigrateColumn,
    ) -> Result<usize> {
        let now_ms = self.cx.clock.now_ms();
        let restored = self.unregistered.get(&meta.name);
        let is_new = restored.is_none();
        if let Some((column, old)) = restored {
            let origin = Origin::resolve(old, &meta, now_ms)?;
            if !origin.is_unchanged(&meta) {
                migrate(self.store.as_mut(), *column, old, &meta, now_ms)
                    .map_err(|e| e.with("state", &meta.name))?;
            }
            self.unregistered.remove(&meta.name);
        }
        let column = self.store.open_state_column(&meta)?;
        let expired = bytes::ExpiredValues::of(&meta, ttl).map(|filter| Arc::new(filter) as _);
        self.store.filter_values(column, expired)?;
        let mut state = ByteState::new(column, &meta, ttl, Arc::clone(&self.cx.clock));
        if is_new {
            state = state.starting_empty();
        }
        let timers = (meta.kind == StateKind::Timer)
            .then(|| ByteTimers::new(column, &meta, self.range, self.prefix_len));
        let place = self.share.as_ref().map(|_| CachePlace {
            range: self.range,
            max_parallelism: self.cx.max_parallelism,
            hash: self.cx.hash,
            seed: self.cx.seed,
            column,
            how: Encoding {
                codec: meta.value.codec,
                timed: ttl.is_some(),
            },
        });
        let front = front(place);
        self.slots.push(ByteSlot {
            state,
            meta,
            ttl,
            front,
            timers,
        });
        Ok(self.slots.len() - 1)
    }

    fn slot(&mut self, index: usize) -> Result<(&mut dyn ByteStore, &mut ByteSlot, &ByteKey)> {
        let slot = self.slots.get_mut(index).ok_or_else(wrong_type)?;
        Ok((self.store.as_mut(), slot, &self.key))
    }

    pub(crate) fn merge_lists<N: StateKey>(
        &mut self,
        index: usize,
        target: &N,
        sources: &[N],
    ) -> Result<()> {
        let (store, slot, key) = self.slot(index)?;
        bytes::merge_lists(&mut slot.state, store, key, target, sources)
    }

    pub(crate) fn merge_reducing<T: StateType, N: StateKey>(
        &mut self,
        index: usize,
        target: &N,
        sources: &[N],
    ) -> Result<()> {
        let (store, slot, key) = self.slot(index)?;
        let extra = extra::<ReducingExtra<T>>(&slot.front)?;
        bytes::merge_reducing(&mut slot.state, store, key, target, sources, &*extra.reduce)
    }

    pub(crate) fn merge_aggregating<A: Aggregator, N: StateKey>(
        &mut self,
        index: usize,
        target: &N,
        sources: &[N],
    ) -> Result<()> {
        let (store, slot, key) = self.slot(index)?;
        let extra = extra::<AggregatingExtra<A>>(&slot.front)?;
        bytes::merge_aggregating(
            &mut slot.state,
            store,
            key,
            target,
            sources,
            &extra.aggregator,
        )
    }

    /// Says whether there is a cache in front of a state.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn caches(&self, index: usize) -> bool {
        self.slots.get(index).is_some_and(|slot| slot.front.is_ok())
    }

    /// Gives entries of the caches up, if they take more memory than they may.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn make_room(&mut self) -> Result<()> {
        match &self.share {
            Some(share) if share.is_pressed() => self.give_up(),
            _ => Ok(()),
        }
    }

    #[cold]
    #[inline(never)]
    fn give_up(&mut self) -> Result<()> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let Some(share) = &mut self.share else {
            return Ok(());
        };
        let caches = self
            .slots
            .iter_mut()
            .filter_map(|slot| slot.front.as_mut().ok());
        share.set_slack(caches.map(|cached| cached.slack()).sum());
        let mut looks = 0;
        while share.is_over() && looks < MOST_LOOKS {
            self.turn = (self.turn + 1) % self.slots.len().max(1);
            looks += LOOKS / 8;
            let Some(slot) = self.slots.get_mut(self.turn) else {
                break;
            };
            if let Ok(cached) = &mut slot.front
                && cached.tally().bytes > 0
            {
                looks += LOOKS;
                cached.evict(self.store.as_mut(), share, LOOKS)?;
            }
        }
        share.relax();
        Ok(())
    }

    /// Writes what is dirty of a state to the store.
    pub(crate) fn flush(&mut self, index: usize) -> Result<()> {
        let (store, slot, _) = self.slot(index)?;
        match &mut slot.front {
            Ok(cached) => cached.flush(store),
            Err(_) => Ok(()),
        }
    }

    /// Does work on the caches that was put off; returns whether more is left.
    pub(crate) fn maintain(&mut self, budget: usize) -> bool {
        if self.share.is_none() {
            return false;
        }
        let (more, done) = self.look_after_caches(budget);
        if let Err(error) = done {
            // It is told to whoever comes next.
            self.failed = Some(error);
            if let Some(share) = &mut self.share {
                share.press();
            }
        }
        more
    }

    fn look_after_caches(&mut self, budget: usize) -> (bool, Result<()>) {
        let mut more = false;
        let (mut dirty, mut held) = (0, false);
        for cached in self
            .slots
            .iter_mut()
            .filter_map(|slot| slot.front.as_mut().ok())
        {
            more |= cached.merge(budget);
            held |= cached.is_held();
            dirty += cached.tally().dirty_bytes();
        }
        let Some(share) = &mut self.share else {
            return (more, Ok(()));
        };
        share.settle();
        if !held && dirty > share.even_part() / 2 {
            more = true;
            let store = self.store.as_mut();
            let looks = budget.clamp(1, LOOKS);
            for slot in &mut self.slots {
                let Ok(cached) = &mut slot.front else {
                    continue;
                };
                if let Err(error) = cached.write_back(store, looks) {
                    return (more, Err(error));
                }
            }
        }
        let done = self.make_room();
        (more, done)
    }

    /// Returns the bytes that the caches have allocated.
    pub(crate) fn cached_bytes(&self) -> usize {
        let caches = self
            .slots
            .iter()
            .filter_map(|slot| slot.front.as_ref().ok());
        caches.map(|cached| cached.allocated()).sum()
    }

    /// Finds the cache of a state, and what is behind it.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn cached<C: 'static>(&mut self, index: usize) -> Result<(&mut C, Behind<'_>)> {
        let Self {
            store,
            slots,
            key,
            share,
            range,
            ..
        } = self;
        let slot = slots.get_mut(index).ok_or_else(wrong_type)?;
        let (Ok(cached), Some(share)) = (&mut slot.front, share) else {
            return Err(wrong_type());
        };
        let cached: &mut dyn Any = cached.as_mut();
        let cached = cached.downcast_mut().ok_or_else(wrong_type)?;
        let behind = Behind {
            store: store.as_mut(),
            state: &mut slot.state,
            key,
            share,
            range: *range,
        };
        Ok((cached, behind))
    }

    pub(crate) fn merge_cached_reducing<K: StateKey, T: StateType, N: StateKey>(
        &mut self,
        index: usize,
        at: Address<'_, K, N>,
        key_hash: u64,
        sources: &[N],
    ) -> Result<()> {
        type Table<K, N, T> = CachedTable<K, N, Cell<T>, ReducingExtra<T>>;
        let (cached, behind) = self.cached::<Table<K, N, T>>(index)?;
        merge_reducing(cached, behind, at, key_hash, sources)
    }

    pub(crate) fn merge_cached_aggregating<K: StateKey, A: Aggregator, N: StateKey>(
        &mut self,
        index: usize,
        at: Address<'_, K, N>,
        key_hash: u64,
        sources: &[N],
    ) -> Result<()> {
        type Table<K, N, A> = CachedTable<K, N, Cell<<A as Aggregator>::Acc>, AggregatingExtra<A>>;
        let (cached, behind) = self.cached::<Table<K, N, A>>(index)?;
        merge_aggregating(cached, behind, at, key_hash, sources)
    }

    pub(crate) fn column(&self, index: usize) -> Result<Column> {
        Ok(self.slots.get(index).ok_or_else(wrong_type)?.state.column())
    }

    pub(crate) fn meta(&self, index: usize) -> Result<&StateMeta> {
        Ok(&self.slots.get(index).ok_or_else(wrong_type)?.meta)
    }

    pub(crate) fn prefix_len(&self) -> usize {
        self.prefix_len
    }

    fn timers(&mut self, index: usize) -> Result<(&mut dyn ByteStore, &mut ByteTimers, &ByteKey)> {
        let (store, slot, key) = self.slot(index)?;
        Ok((store, slot.timers.as_mut().ok_or_else(wrong_type)?, key))
    }

    pub(crate) fn set_timer<N: StateKey>(
        &mut self,
        index: usize,
        time: i64,
        namespace: &N,
    ) -> Result<bool> {
        let (store, timers, key) = self.timers(index)?;
        timers.add(store, key, namespace, time)
    }

    pub(crate) fn remove_timer<N: StateKey>(
        &mut self,
        index: usize,
        time: i64,
        namespace: &N,
    ) -> Result<bool> {
        let (store, timers, key) = self.timers(index)?;
        timers.remove(store, key, namespace, time)
    }

    pub(crate) fn next_timer(&mut self, index: usize) -> Result<Option<i64>> {
        let (store, timers, _) = self.timers(index)?;
        timers.next_time(store)
    }

    pub(crate) fn pop_due(&mut self, index: usize, up_to: i64) -> Result<Option<Popped>> {
        let (store, timers, _) = self.timers(index)?;
        let due = timers.pop_due(store, up_to)?;
        Ok(due.map(|timer| Popped {
            time: timer.time,
            composite: timer.composite.into(),
        }))
    }
}

fn extra<X: 'static>(front: &Front) -> Result<&X> {
    let extra = front.as_ref().err().ok_or_else(wrong_type)?;
    extra.downcast_ref().ok_or_else(wrong_type)
}

macro_rules! of_store {
    ($view:ident < $($param:ident : $bound:ident),+ >, $extra:ident : $type:ty, $at:ident => $new:expr) => {
        impl<'a, $($param: $bound),+> OfStore<'a> for $view<'a, $($param),+> {
            fn of_store<N: StateKey>(
                store: &'a mut ByteSlots,
                index: usize,
                namespace: &N,
            ) -> Result<Self> {
                let (store, slot, key) = store.slot(index)?;
                let $extra = extra::<$type>(&slot.front)?;
                let $at = slot.state.at(store, key, namespace);
                Ok($new)
            }
        }
    };
}

of_store!(ByteValue<T: StateType>, extra: ValueExtra<T>, at => ByteValue::new(at, extra.default.as_ref()));
of_store!(ByteList<T: StateType>, _extra: (), at => ByteList::new(at));
of_store!(ByteMap<MK: StateKey, MV: StateType>, _extra: (), at => ByteMap::new(at));
of_store!(ByteSortedMap<MK: OrderedKey, MV: StateType>, _extra: (), at => ByteSortedMap::new(at));
of_store!(ByteReducing<T: StateType>, extra: ReducingExtra<T>, at => ByteReducing::new(at, &*extra.reduce));
of_store!(ByteAggregating<A: Aggregator>, extra: AggregatingExtra<A>, at => ByteAggregating::new(at, &extra.aggregator));

macro_rules! of_cache {
    ($view:ident < $($param:ident : $bound:ident),+ >, $table:ty, $cached:ident, $behind:ident, $at:ident => $new:expr) => {
        impl<'a, K: StateKey, N: StateKey, $($param: $bound),+> OfCache<'a, K, N> for $view<'a, K, N, $($param),+> {
            #[cfg_attr(not(debug_assertions), inline(always))]
            fn of_cache(store: &'a mut ByteSlots, index: usize, $at: Address<'a, K, N>) -> Result<Self> {
                let ($cached, $behind) = store.cached::<$table>(index)?;
                Ok($new)
            }
        }
    };
}

impl<'a, K: StateKey, N: StateKey, T: StateType> OfCache<'a, K, N>
    for CachedValue<'a, K, N, T, ValueExtra<T>>
{
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn of_cache(store: &'a mut ByteSlots, index: usize, at: Address<'a, K, N>) -> Result<Self> {
        let (cached, behind) = store.cached(index)?;
        Ok(CachedValue::new(cached, behind, at))
    }
}

of_cache!(CachedReducing<T: StateType>, CachedTable<K, N, Cell<T>, ReducingExtra<T>>,
    cached, behind, at => CachedReducing(CachedValue::new(cached, behind, at)));
of_cache!(CachedAggregating<A: Aggregator>, CachedTable<K, N, Cell<A::Acc>, AggregatingExtra<A>>,
    cached, behind, at => CachedAggregating(CachedValue::new(cached, behind, at)));
of_cache!(CachedMap<MK: StateKey, MV: StateType>, CachedTable<K, N, MapCell<MK, MV, CompactKeys>, ()>,
    cached, behind, at => CachedMap::new(cached, behind, at));
of_cache!(CachedSortedMap<MK: OrderedKey, MV: StateType>, CachedTable<K, N, MapCell<MK, MV, OrderedKeys>, ()>,
    cached, behind, at => CachedSortedMap::new(cached, behind, at));

/// Lists have no cache; this is never reached.
impl<'a, K: StateKey, N: StateKey, T: StateType> OfCache<'a, K, N> for ByteList<'a, T> {
    fn of_cache(store: &'a mut ByteSlots, index: usize, at: Address<'a, K, N>) -> Result<Self> {
        Self::of_store(store, index, at.namespace)
    }
}
