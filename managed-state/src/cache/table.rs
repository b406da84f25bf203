use std::any::Any;
use std::sync::Arc;

use state_api::{
    BatchEntry, ByteStore, Column, HashId, KeyGroup, KeyGroupRange, KeyHash, MaxParallelism,
    Result, StateKey, StateType, StoredKey, WriteBatch,
};

use super::frozen::FrozenKept;
use super::kept::{Encoding, Kept, Tally};
use super::share::CacheShare;
use crate::format::{CompositeLayout, DirtyColumn, put_group_prefix};
use crate::keyed::{Address, table_hash};
use crate::live::{EntryHasher, LiveTable, OverlayLimit, SweepCursor};

/// Dirty entries that are written to the store at once.
const BATCH: usize = 512;

/// The cache of one state, its types hidden.
pub(crate) trait CachedState: Any {
    fn tally(&self) -> Tally;

    /// Returns the bytes that tables and overlays have allocated; what nested maps own is estimated.
    fn allocated(&self) -> usize;

    /// Returns the bytes that the tables have allocated beyond what their entries are charged with: they shrink late.
    fn slack(&mut self) -> usize;

    /// Looks at some entries from the clock's hand on and gives up those that were not used since it last came past.
    ///
    /// Dirty ones are written to the store. Nothing is done while a snapshot reads the table: it would free no memory.
    fn evict(
        &mut self,
        store: &mut dyn ByteStore,
        share: &mut CacheShare,
        looks: usize,
    ) -> Result<()>;

    /// Looks at some entries and writes those to the store that are dirty; they stay, clean.
    fn write_back(&mut self, store: &mut dyn ByteStore, looks: usize) -> Result<()>;

    /// Writes all that is dirty to the store.
    fn flush(&mut self, store: &mut dyn ByteStore) -> Result<()>;

    /// Freezes the table for a snapshot; `None` if nothing is dirty.
    fn freeze(&mut self, id: u64, name: &Arc<str>) -> Result<Option<Box<dyn DirtyColumn>>>;

    /// Merges layers of snapshots that are gone; returns whether more is left.
    fn merge(&mut self, budget: usize) -> bool;

    /// Says whether a snapshot reads the table.
    fn is_held(&self) -> bool;

    /// Returns by how many the pairs in the store become more or fewer when all that is dirty is stored.
    fn difference(&self, store: &dyn ByteStore) -> Result<i64>;

    /// Says whether the value of a key without namespace is here.
    fn holds(&self, key: &dyn Any, hash: KeyHash) -> bool;
}

/// What a cache learns about its place.
#[derive(Clone, Debug)]
pub(crate) struct CachePlace {
    pub(crate) range: KeyGroupRange,
    pub(crate) max_parallelism: MaxParallelism,
    pub(crate) hash: HashId,
    pub(crate) seed: u64,
    pub(crate) column: Column,
    pub(crate) how: Encoding,
}

/// The cache of one state: live objects by key and namespace, and `X`, what the kind of state needs beside them.
pub(crate) struct CachedTable<K: StateKey, N, H, X> {
    pub(super) table: LiveTable<K::Stored, N, H>,
    pub(super) extra: X,
    pub(super) tally: Tally,
    pub(super) place: CachePlace,
    layout: CompositeLayout,
    clock: SweepCursor,
    writer: SweepCursor,
    /// Bytes of the table when it is empty, and of its slack when it was last looked at.
    empty: usize,
    slack: usize,
    /// Shared with every frozen table that is still read.
    hold: Arc<()>,
}

impl<K: StateKey, N: StateKey, H: Kept, X: 'static> CachedTable<K, N, H, X> {
    /// Bytes that an entry is charged with, without what it owns elsewhere.
    ///
    /// Twice its size: tables are between seven eighths and less than half full, and doubled as they grow.
    pub(super) const FIXED: usize = 2 * (size_of::<(K::Stored, N, H)>() + 1);

    pub(crate) fn new(place: CachePlace, extra: X) -> Self {
        let hasher = EntryHasher::new(place.seed, |key: &K::Stored, namespace: &N, seed| {
            table_hash(key.stable_hash(), namespace, seed)
        });
        let mut table = LiveTable::new(place.range.start().0, place.range.len(), hasher);
        // What a snapshot costs is bounded by the budget: nothing is added but copies of what is here.
        table.set_overlay_limit(OverlayLimit {
            fraction: f64::MAX,
            floor: usize::MAX,
        });
        Self {
            empty: table.bytes(),
            slack: 0,
            table,
            extra,
            tally: Tally::default(),
            place,
            layout: CompositeLayout::of::<K::Stored, N>(),
            clock: SweepCursor::default(),
            writer: SweepCursor::default(),
            hold: Arc::new(()),
        }
    }

    pub(super) fn holds_back(&self) -> bool {
        Arc::strong_count(&self.hold) > 1
    }

    /// Writes group prefix, key and namespace.
    fn put_key(
        place: &CachePlace,
        layout: CompositeLayout,
        key: &K::Stored,
        namespace: &N,
        out: &mut Vec<u8>,
    ) {
        let group = KeyHash::of(key, place.hash, place.max_parallelism).group();
        out.clear();
        put_group_prefix(group, place.max_parallelism.prefix_len(), out);
        layout.put(key, namespace, out);
    }

    /// Returns where an entry of the table is.
    fn find(&self, key: &K::Stored, namespace: &N) -> (usize, u64) {
        let hash = KeyHash::of(key, self.place.hash, self.place.max_parallelism);
        let group = hash.group().index() - self.place.range.start().index();
        (group, table_hash(hash.stable(), namespace, self.place.seed))
    }

    /// Returns the bytes that an entry of a key and namespace is charged with, without what its value owns.
    pub(super) fn charge(at: &Address<'_, K, N>) -> usize {
        // What the table keeps of a key may own nothing where the key itself does.
        let key = match K::HAS_HEAP {
            true => K::Stored::of(at.key).heap_size(),
            false => 0,
        };
        let namespace = if N::HAS_HEAP {
            at.namespace.heap_size()
        } else {
            0
        };
        Self::FIXED + key + namespace
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn get(&self, at: &Address<'_, K, N>) -> Option<&H> {
        self.table.get(at.group, at.hash, at.key, at.namespace)
    }

    /// Adds what was not there and is charged for already.
    pub(super) fn insert(&mut self, at: &Address<'_, K, N>, kept: H) {
        self.tally.add(kept.tally());
        self.table
            .insert(at.group, at.hash, at.key, at.namespace, kept);
    }

    /// Removes what is there for a key and namespace, dirty or not.
    pub(super) fn forget(&mut self, at: &Address<'_, K, N>, share: &mut CacheShare) {
        if let Some(kept) = self.table.take(at.group, at.hash, at.key, at.namespace) {
            let tally = kept.tally();
            self.tally.subtract(tally);
            share.release(tally.bytes);
        }
    }

    /// Writes what is dirty for a key and namespace to the store.
    pub(super) fn flush_at(
        &mut self,
        at: &Address<'_, K, N>,
        store: &mut dyn ByteStore,
    ) -> Result<()> {
        let Some(kept) = self.get(at).filter(|kept| kept.tally().dirty > 0) else {
            return Ok(());
        };
        let mut batch = Batch::new(self.place.column);
        let (stored, mut key) = (K::Stored::of(at.key), Vec::new());
        Self::put_key(&self.place, self.layout, &stored, at.namespace, &mut key);
        kept.each_dirty(self.place.how, &mut key, &mut |key, value| {
            batch.add(key, value)
        });
        batch.write(store)?;
        self.mark_clean(vec![(stored, at.namespace.clone())]);
        Ok(())
    }

    /// Notes that some entries are stored as they are. While a snapshot reads the table they stay dirty, for marking them
    /// would copy them; storing them again does no harm.
    fn mark_clean(&mut self, stored: Vec<(K::Stored, N)>) {
        if self.holds_back() {
            return;
        }
        for (key, namespace) in &stored {
            let (group, hash) = self.find(key, namespace);
            let kept = self.table.get_mut::<K::Stored>(group, hash, key, namespace);
            if let Some(kept) = kept {
                self.tally.dirty = self.tally.dirty.saturating_sub(kept.tally().dirty);
                kept.mark_clean();
            }
        }
    }
}

/// Changes on their way to the store.
struct Batch {
    column: Column,
    batch: WriteBatch,
}

impl Batch {
    fn new(column: Column) -> Self {
        Self {
            column,
            batch: WriteBatch::default(),
        }
    }

    fn add(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.batch.entries.push(match value {
            Some(value) => BatchEntry::Put(self.column, key.to_vec(), value.to_vec()),
            None => BatchEntry::Delete(self.column, key.to_vec()),
        });
    }

    fn write(self, store: &mut dyn ByteStore) -> Result<()> {
        if self.batch.entries.is_empty() {
            return Ok(());
        }
        store.write(self.batch)
    }
}

impl<K: StateKey, N: StateKey, H: Kept, X: 'static> CachedState for CachedTable<K, N, H, X> {
    fn tally(&self) -> Tally {
        self.tally
    }

    fn allocated(&self) -> usize {
        let fixed = self.table.len() * Self::FIXED;
        self.table.bytes() + self.tally.bytes.saturating_sub(fixed)
    }

    fn slack(&mut self) -> usize {
        // What a snapshot costs goes by itself; giving entries up for it would bring nothing.
        if self.table.overlay_bytes() == 0 {
            let charged = self.table.len() * Self::FIXED;
            self.slack = (self.table.bytes() - self.empty).saturating_sub(charged);
        }
        self.slack
    }

    fn evict(
        &mut self,
        store: &mut dyn ByteStore,
        share: &mut CacheShare,
        looks: usize,
    ) -> Result<()> {
        if self.holds_back() {
            return Ok(());
        }
        let Self {
            table,
            place,
            layout,
            clock,
            tally,
            ..
        } = self;
        let mut batch = Batch::new(place.column);
        let (mut key, mut freed, mut large) = (Vec::new(), Tally::default(), Vec::new());
        table.sweep(clock, looks, |k, namespace, kept| {
            if kept.take_used() {
                return false;
            }
            if kept.is_large() {
                large.push((k.clone(), namespace.clone()));
                return false;
            }
            let tally = kept.tally();
            if tally.dirty > 0 {
                Self::put_key(place, *layout, k, namespace, &mut key);
                kept.each_dirty(place.how, &mut key, &mut |key, value| batch.add(key, value));
            }
            freed.add(tally);
            true
        });
        tally.subtract(freed);
        for (k, namespace) in &large {
            let (group, hash) = self.find(k, namespace);
            let kept = self.table.get_mut::<K::Stored>(group, hash, k, namespace);
            let Some(kept) = kept else {
                continue;
            };
            Self::put_key(&self.place, self.layout, k, namespace, &mut key);
            let trimmed = kept.trim(self.place.how, &mut key, &mut |key, value| {
                batch.add(key, value);
            });
            self.tally.subtract(trimmed);
            freed.add(trimmed);
        }
        share.release(freed.bytes);
        batch.write(store)
    }

    fn write_back(&mut self, store: &mut dyn ByteStore, looks: usize) -> Result<()> {
        if self.holds_back() || self.tally.dirty == 0 {
            return Ok(());
        }
        let mut batch = Batch::new(self.place.column);
        let (mut key, mut stored) = (Vec::new(), Vec::new());
        let (place, layout) = (&self.place, self.layout);
        self.table
            .sweep(&mut self.writer, looks, |k, namespace, kept| {
                if kept.tally().dirty > 0 {
                    Self::put_key(place, layout, k, namespace, &mut key);
                    kept.each_dirty(place.how, &mut key, &mut |key, value| batch.add(key, value));
                    stored.push((k.clone(), namespace.clone()));
                }
                false
            });
        batch.write(store)?;
        self.mark_clean(stored);
        Ok(())
    }

    fn flush(&mut self, store: &mut dyn ByteStore) -> Result<()> {
        if self.tally.dirty == 0 {
            return Ok(());
        }
        let mut key = Vec::new();
        for group in 0..self.table.groups() {
            let mut batch = Batch::new(self.place.column);
            let mut stored = Vec::new();
            for (k, namespace, kept) in self.table.iter(group) {
                if kept.tally().dirty == 0 {
                    continue;
                }
                Self::put_key(&self.place, self.layout, k, namespace, &mut key);
                kept.each_dirty(self.place.how, &mut key, &mut |key, value| {
                    batch.add(key, value);
                });
                stored.push((k.clone(), namespace.clone()));
                if batch.batch.entries.len() >= BATCH {
                    std::mem::replace(&mut batch, Batch::new(self.place.column)).write(store)?;
                }
            }
            batch.write(store)?;
            self.mark_clean(stored);
        }
        Ok(())
    }

    fn freeze(&mut self, id: u64, name: &Arc<str>) -> Result<Option<Box<dyn DirtyColumn>>> {
        if self.tally.dirty == 0 {
            return Ok(None);
        }
        let table = self.table.freeze(id).map_err(|e| e.with("state", name))?;
        Ok(Some(Box::new(FrozenKept::new(
            table,
            self.place.column,
            self.place.how,
            self.layout,
            Arc::clone(name),
            Arc::clone(&self.hold),
        ))))
    }

    fn merge(&mut self, budget: usize) -> bool {
        self.table.maintain(budget)
    }

    fn is_held(&self) -> bool {
        self.holds_back()
    }

    fn difference(&self, store: &dyn ByteStore) -> Result<i64> {
        if self.tally.dirty == 0 {
            return Ok(0);
        }
        let (mut sum, mut key) = (0, Vec::new());
        for group in 0..self.table.groups() {
            for (k, namespace, kept) in self.table.iter(group) {
                if kept.tally().dirty > 0 {
                    Self::put_key(&self.place, self.layout, k, namespace, &mut key);
                    sum += kept.difference(&mut key, store, self.place.column)?;
                }
            }
        }
        Ok(sum)
    }

    fn holds(&self, key: &dyn Any, hash: KeyHash) -> bool {
        let none: &dyn Any = &();
        let (Some(key), Some(none)) = (key.downcast_ref::<K>(), none.downcast_ref::<N>()) else {
            return false;
        };
        let group = hash.group();
        let Some(group) = self.place.range.index_of(group) else {
            return false;
        };
        let hash = table_hash(hash.stable(), none, self.place.seed);
        self.table.contains(group, hash, key, none)
    }
}

/// Returns the key group at a position of a range.
pub(super) fn group_at(range: KeyGroupRange, position: usize) -> KeyGroup {
    KeyGroup(range.start().0 + position as u16)
}
