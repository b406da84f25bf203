use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use state_api::access::Aggregator;
use state_api::{
    ByteStore, CodecKind, Column, Error, KeyGroup, KeyGroupRange, KeyHash, KeyedHandle, OrderedKey,
    RestoreContext, Result, Snapshot, SnapshotKind, SnapshotRequest, StateKey, StateKind,
    StateMeta, StateType, TtlConfig, TypeMeta,
};

use super::bound::OfStore;
use super::context::KeyedContext;
use super::decoder::Origin;
use super::kind::{AggregatingExtra, ReducingExtra, ValueExtra};
use super::live_timers::Popped;
use super::states::wrong_type;
use crate::bytes::{
    self, ByteAggregating, ByteKey, ByteList, ByteMap, ByteReducing, ByteSortedMap, ByteState,
    ByteTimers, ByteValue,
};
use crate::format::{CanonicalColumn, canonical_snapshot, restore_into_store};

/// What a kind of state needs beside its column, its type hidden.
pub(crate) type ByteExtra = Box<dyn Any + Send>;

/// One registered state of a byte store.
pub(crate) struct ByteSlot {
    state: ByteState,
    meta: StateMeta,
    ttl: Option<TtlConfig>,
    extra: ByteExtra,
    timers: Option<ByteTimers>,
}

/// The states of a subtask in a byte store.
pub(crate) struct ByteSlots {
    pub(crate) store: Box<dyn ByteStore>,
    slots: Vec<ByteSlot>,
    /// Restored states that are not registered.
    unregistered: BTreeMap<Arc<str>, (Column, StateMeta)>,
    key: ByteKey,
    range: KeyGroupRange,
    prefix_len: usize,
    cx: KeyedContext,
}

/// Rewrites the values of a restored column for the type that is registered now.
pub(crate) type MigrateColumn =
    fn(&mut dyn ByteStore, Column, &StateMeta, &StateMeta, i64) -> Result<()>;

impl ByteSlots {
    pub(crate) fn new(store: Box<dyn ByteStore>, cx: &KeyedContext) -> Self {
        let prefix_len = cx.max_parallelism.prefix_len();
        Self {
            store,
            slots: Vec::new(),
            unregistered: BTreeMap::new(),
            key: ByteKey::new(prefix_len),
            range: cx.range,
            prefix_len,
            cx: cx.clone(),
        }
    }

    /// Encodes the key of a record, once for all states.
    #[inline]
    pub(crate) fn bind<K: StateKey>(&mut self, key: &K, group: KeyGroup) {
        self.key.bind(key, group);
    }

    /// Tells the store which keys are read next, for states with one entry for each key.
    pub(crate) fn prefetch<'k, K: StateKey>(
        &mut self,
        keys: impl Iterator<Item = (&'k K, KeyHash)>,
    ) {
        let keys: Vec<ByteKey> = keys
            .map(|(key, hash)| {
                let mut stored = ByteKey::new(self.prefix_len);
                stored.bind(key, hash.group());
                stored
            })
            .collect();
        let keys: Vec<&[u8]> = keys.iter().map(ByteKey::stored).collect();
        let no_namespace = TypeMeta::of::<()>(CodecKind::Compact);
        for slot in &self.slots {
            let single = matches!(
                slot.meta.kind,
                StateKind::Value | StateKind::List | StateKind::Reducing | StateKind::Aggregating
            );
            if single && slot.meta.namespace == no_namespace {
                self.store.prefetch(slot.state.column(), &keys);
            }
        }
    }

    pub(crate) async fn restore(
        &mut self,
        handles: &[KeyedHandle],
        cx: &RestoreContext,
    ) -> Result<()> {
        let format = self.store.native().map(|native| native.format().to_owned());
        let is_native = |handle: &KeyedHandle| Some(handle.format()) == format.as_deref();
        let columns = if handles.iter().any(is_native) {
            if !handles.iter().all(is_native) {
                return Err(Error::incompatible(
                    "parts of the snapshot are in different formats",
                ));
            }
            let native = self
                .store
                .native()
                .ok_or_else(|| Error::bug("a format without native snapshots"))?;
            native.restore(handles, self.range, cx).await?
        } else {
            restore_into_store(
                handles,
                self.range,
                self.prefix_len,
                self.store.as_mut(),
                &*cx.storage,
            )
            .await?
        };
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
        let registered = self
            .slots
            .iter()
            .map(|slot| (slot.state.column(), &slot.meta, slot.ttl));
        let carried = self
            .unregistered
            .values()
            .map(|(column, meta)| (*column, meta, None));
        let columns: Vec<_> = registered.chain(carried).collect();
        if request.kind != SnapshotKind::CanonicalSavepoint
            && let Some(native) = self.store.native()
        {
            let states: Vec<_> = columns
                .iter()
                .map(|(column, meta, _)| (*column, (*meta).clone()))
                .collect();
            return native.snapshot(request, &states);
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
        Ok(canonical_snapshot(
            self.store.view()?,
            columns,
            self.range,
            self.prefix_len,
        ))
    }

    pub(crate) fn entries(&self, index: u32) -> Result<u64> {
        let slot = self.slots.get(index as usize).ok_or_else(wrong_type)?;
        let (store, column) = (self.store.as_ref(), slot.state.column());
        match slot.meta.kind {
            StateKind::Map | StateKind::SortedMap => {
                bytes::count_pairs(store, column, self.prefix_len, &slot.meta)
            }
            _ => bytes::count_entries(store, column),
        }
    }

    pub(crate) fn register(
        &mut self,
        meta: StateMeta,
        ttl: Option<TtlConfig>,
        extra: ByteExtra,
        migrate: MigrateColumn,
    ) -> Result<usize> {
        let now_ms = self.cx.clock.now_ms();
        if let Some((column, old)) = self.unregistered.get(&meta.name) {
            let origin = Origin::resolve(old, &meta, now_ms)?;
            if !origin.is_unchanged(&meta) {
                migrate(self.store.as_mut(), *column, old, &meta, now_ms)
                    .map_err(|e| e.with("state", &meta.name))?;
            }
            self.unregistered.remove(&meta.name);
        }
        let column = self.store.open_column(&meta.name)?;
        let state = ByteState::new(column, &meta, ttl, Arc::clone(&self.cx.clock));
        let timers = (meta.kind == StateKind::Timer)
            .then(|| ByteTimers::new(column, &meta, self.range, self.prefix_len));
        self.slots.push(ByteSlot {
            state,
            meta,
            ttl,
            extra,
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
        let extra = extra::<ReducingExtra<T>>(&slot.extra)?;
        bytes::merge_reducing(&mut slot.state, store, key, target, sources, &*extra.reduce)
    }

    pub(crate) fn merge_aggregating<A: Aggregator, N: StateKey>(
        &mut self,
        index: usize,
        target: &N,
        sources: &[N],
    ) -> Result<()> {
        let (store, slot, key) = self.slot(index)?;
        let extra = extra::<AggregatingExtra<A>>(&slot.extra)?;
        bytes::merge_aggregating(
            &mut slot.state,
            store,
            key,
            target,
            sources,
            &extra.aggregator,
        )
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

fn extra<X: 'static>(extra: &ByteExtra) -> Result<&X> {
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
                let $extra = extra::<$type>(&slot.extra)?;
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
