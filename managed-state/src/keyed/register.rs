use std::sync::Arc;

use state_api::access::Aggregator;
use state_api::{
    CodecKind, Error, ErrorKind, KeyGroup, OrderedKey, Result, StateKey, StateKind, StateMeta,
    StateOptions, StateType, TypeMeta,
};

use super::byte_slot::{ByteExtra, MigrateColumn};
use super::decoder::Origin;
use super::form::Form;
use super::kind::{
    Aggregating, AggregatingExtra, Cached, Kind, List, Map, Reducing, ReducingExtra, SortedMap,
    Value, ValueExtra,
};
use super::live_slot::{LiveSlot, SlotContext, TableSlot};
use super::live_timers::LiveTimers;
use super::stamp::Expiry;
use super::states::{KeyedStates, LiveEntry, Slots};
use super::token::{
    AggregatingState, ListState, MapState, ReducingState, Slot, SortedMapState, Timers, ValueState,
};
use crate::bytes::migrate_column;
use crate::cache::CachePlace;

impl<K: StateKey> KeyedStates<K> {
    /// Registers a value state.
    ///
    /// # Errors
    /// `AlreadyExists` when the name is taken, `Incompatible` when a restored state of that name can't become this one.
    pub fn value<T: StateType, N: StateKey>(
        &mut self,
        options: impl Into<StateOptions>,
    ) -> Result<ValueState<T, N>> {
        let extra = ValueExtra { default: None };
        self.register_kind::<Value<T>, N>(options, extra)
            .map(ValueState::new)
    }

    /// Registers a value state that reads as a default where nothing is stored.
    ///
    /// # Errors
    /// As [`value`](Self::value).
    pub fn value_with_default<T: StateType, N: StateKey>(
        &mut self,
        options: impl Into<StateOptions>,
        default: T,
    ) -> Result<ValueState<T, N>> {
        let default = Some(default);
        self.register_kind::<Value<T>, N>(options, ValueExtra { default })
            .map(ValueState::new)
    }

    /// Registers a list state.
    ///
    /// # Errors
    /// As [`value`](Self::value).
    pub fn list<T: StateType, N: StateKey>(
        &mut self,
        options: impl Into<StateOptions>,
    ) -> Result<ListState<T, N>> {
        self.register_kind::<List<T>, N>(options, ())
            .map(ListState::new)
    }

    /// Registers a map state.
    ///
    /// # Errors
    /// As [`value`](Self::value).
    pub fn map<MK: StateKey, MV: StateType, N: StateKey>(
        &mut self,
        options: impl Into<StateOptions>,
    ) -> Result<MapState<MK, MV, N>> {
        self.register_kind::<Map<MK, MV>, N>(options, ())
            .map(MapState::new)
    }

    /// Registers a map state that is ordered by map key.
    ///
    /// # Errors
    /// As [`value`](Self::value).
    pub fn sorted_map<MK: OrderedKey, MV: StateType, N: StateKey>(
        &mut self,
        options: impl Into<StateOptions>,
    ) -> Result<SortedMapState<MK, MV, N>> {
        self.register_kind::<SortedMap<MK, MV>, N>(options, ())
            .map(SortedMapState::new)
    }

    /// Registers a state that reduces what is added by a function of (value so far, input).
    ///
    /// # Errors
    /// As [`value`](Self::value).
    pub fn reducing<T: StateType, N: StateKey>(
        &mut self,
        options: impl Into<StateOptions>,
        reduce: impl Fn(&T, T) -> Result<T> + Send + Sync + 'static,
    ) -> Result<ReducingState<T, N>> {
        let reduce = Arc::new(reduce);
        self.register_kind::<Reducing<T>, N>(options, ReducingExtra { reduce })
            .map(ReducingState::new)
    }

    /// Registers a state that folds inputs into an accumulator.
    ///
    /// # Errors
    /// As [`value`](Self::value).
    pub fn aggregating<A: Aggregator, N: StateKey>(
        &mut self,
        options: impl Into<StateOptions>,
        aggregator: A,
    ) -> Result<AggregatingState<A, N>> {
        self.register_kind::<Aggregating<A>, N>(options, AggregatingExtra { aggregator })
            .map(AggregatingState::new)
    }

    /// Registers a set of timers.
    ///
    /// # Errors
    /// As [`value`](Self::value).
    pub fn timers<N: StateKey>(&mut self, name: impl Into<Arc<str>>) -> Result<Timers<N>> {
        let options = StateOptions::new(name);
        let meta = self.meta::<N>(
            &options,
            StateKind::Timer,
            None,
            TypeMeta::of::<()>(CodecKind::Compact),
        );
        let first_group = self.cx.range.start();
        self.register(
            options,
            meta,
            (),
            migrate_column::<()>,
            move |cx, meta, _, (), _| {
                let timers = LiveTimers::new::<K, N>(meta, first_group, cx.captures_changes);
                Box::new(timers) as Box<dyn LiveSlot<K>>
            },
            |_, ()| Err(()),
        )
        .map(Timers::new)
    }

    fn register_kind<Q: Kind, N: StateKey>(
        &mut self,
        options: impl Into<StateOptions>,
        extra: Q::Extra,
    ) -> Result<Slot> {
        let options = options.into();
        let codec = options.codec;
        let value = TypeMeta::of::<Q::Value>(codec);
        let meta = self.meta::<N>(&options, Q::KIND, Q::map_key(), value);
        self.register(
            options,
            meta,
            extra,
            migrate_column::<Q::Value>,
            |cx, meta, expiry, extra, timed| {
                if timed {
                    slot::<K, N, _, _>(cx, meta, Q::timed(codec), expiry, extra)
                } else {
                    slot::<K, N, _, _>(cx, meta, Q::plain(codec), expiry, extra)
                }
            },
            Q::cache::<K, N>,
        )
    }

    fn meta<N: StateKey>(
        &self,
        options: &StateOptions,
        kind: StateKind,
        map_key: Option<TypeMeta>,
        value: TypeMeta,
    ) -> StateMeta {
        StateMeta {
            name: Arc::clone(&options.name),
            kind,
            key: TypeMeta::of::<K>(CodecKind::Compact),
            namespace: TypeMeta::of::<N>(CodecKind::Compact),
            map_key,
            value,
            ttl_ms: options.ttl.map(|ttl| ttl.ttl_ms()),
        }
    }

    /// Makes the slot of a state on the representation at hand and fills it with what was restored under its name.
    fn register<X: Send + 'static>(
        &mut self,
        options: StateOptions,
        meta: StateMeta,
        extra: X,
        migrate: MigrateColumn,
        live: impl FnOnce(&SlotContext, StateMeta, Expiry, X, bool) -> Box<dyn LiveSlot<K>>,
        cache: impl FnOnce(CachePlace, X) -> Cached<X>,
    ) -> Result<Slot> {
        if options.name.is_empty() {
            return Err(Error::invalid("a state needs a name"));
        }
        if self.names.contains_key(&options.name) {
            return Err(Error::new(
                ErrorKind::AlreadyExists,
                "a state of this name is registered already",
            )
            .with("state", &options.name));
        }
        let now_ms = self.cx.clock.now_ms();
        let expiry = Expiry::new(options.ttl, Arc::clone(&self.cx.clock));
        let index = match &mut self.slots {
            Slots::Live(slots) => {
                let cx = SlotContext {
                    first_group: self.cx.range.start(),
                    groups: self.cx.range.len(),
                    seed: self.cx.seed,
                    overlay_ratio: self.cx.overlay_ratio,
                    captures_changes: slots.strategy.captures_changes(),
                    counts_bytes: slots.total.is_some(),
                };
                let mut slot = live(&cx, meta.clone(), expiry, extra, options.ttl.is_some());
                if let Some(restored) = slots.unregistered.get(&options.name) {
                    let origin = Origin::resolve(&restored.meta, &meta, now_ms)?;
                    let restored = slots.unregistered.remove(&options.name);
                    // Each part is let go as soon as it is decoded.
                    for part in restored.into_iter().flat_map(|state| state.groups) {
                        let group = part.group.index() - self.cx.range.start().index();
                        let loaded = slot.load(group, &part.section(), &origin);
                        loaded.map_err(|e| at_restore(e, &options.name, part.group))?;
                    }
                }
                // Before there is a checkpoint, nothing is a change of one.
                if self.restored || slots.latest.is_some() {
                    slot.remember_changes(slots.latest.unwrap_or(0));
                }
                slots.slots.push(LiveEntry {
                    timed: options.ttl.is_some(),
                    slot,
                });
                let index = slots.slots.len() - 1;
                if let Some(total) = &mut slots.total {
                    total.expect_change(index);
                }
                index
            }
            Slots::Bytes(bytes) => {
                let make = |place: Option<CachePlace>| {
                    let made = match place {
                        Some(place) => cache(place, extra),
                        None => Err(extra),
                    };
                    made.map_err(|extra| Box::new(extra) as ByteExtra)
                };
                bytes.register(meta, options.ttl, make, migrate)?
            }
        };
        let index =
            u32::try_from(index).map_err(|_| Error::limit("an operator has too many states"))?;
        self.names.insert(options.name, index);
        Ok(Slot {
            owner: self.owner,
            index,
        })
    }
}

fn at_restore(error: Error, state: &str, group: KeyGroup) -> Error {
    error.with("state", state).with("key group", group)
}

fn slot<K: StateKey, N: StateKey, F: Form, X: 'static>(
    cx: &SlotContext,
    meta: StateMeta,
    form: F,
    expiry: Expiry,
    extra: X,
) -> Box<dyn LiveSlot<K>> {
    Box::new(TableSlot::<K, N, F, X>::new(cx, meta, form, expiry, extra))
}
