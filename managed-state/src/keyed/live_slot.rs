use std::any::Any;

use state_api::{EntryCount, Error, KeyGroup, Result, StateKey, StateMeta, StateType, StoredKey};

use super::decoder::Origin;
use super::encode::encode_group;
use super::form::{ExpiredFilter, Form};
use super::stamp::Expiry;
use super::states::wrong_type;
use crate::changes::put_cleared;
use crate::format::{CompositeLayout, GroupWriter, Section};
use crate::live::{
    Change, ChangedKeys, EntryHasher, Epoch, FrozenTable, HeapSize, LiveTable, OverlayLimit,
    PageCursor, SweepCursor,
};

/// Bytes of entries up to which a table is taken to be in the processor's nearer caches.
const NEAR: usize = 512 * 1024;

/// A live table with what its kind of state needs, its types hidden but for the key's.
pub(crate) trait LiveSlot<K>: Any {
    fn meta(&self) -> &StateMeta;

    /// Freezes the table for a snapshot.
    fn freeze(&mut self, id: u64, now_ms: i64) -> Result<Box<dyn FrozenSlot>>;

    /// Adds restored entries of one key group.
    fn load(&mut self, group: usize, section: &Section<'_>, origin: &Origin) -> Result<()>;

    /// Merges layers of snapshots that are gone; returns whether more is left.
    fn maintain(&mut self, budget: usize) -> bool;

    /// Looks for expired entries as each record does; returns whether it did.
    fn sweep_for_record(&mut self) -> bool;

    /// Returns whether all entries are likely to be in the processor's nearer caches, or can't be looked for ahead.
    fn is_near(&self) -> bool;

    /// Looks at the entries of keys that are used next, given by position of the group, hash of the table, and key.
    ///
    /// Returns what was read, which is of no use but to keep the reading from being optimised away.
    fn prefetch(&self, keys: &[(usize, u64, &K)]) -> u8;

    fn entries(&self) -> u64;
    fn bytes(&self) -> usize;

    /// Learns that entries of a key group are about to change.
    fn expect_change(&mut self, group: usize);

    /// Returns the bytes, which it keeps to tell sooner the next time.
    fn settle(&mut self) -> usize;

    /// Adds the bytes up, whatever is kept of them.
    #[cfg(test)]
    fn count_bytes(&self) -> usize;

    fn overlay_bytes(&self) -> usize;
    fn confirm(&mut self, id: u64);

    /// Learns that nothing will be based on a snapshot.
    fn discard(&mut self, id: u64);

    /// Starts to remember what changes, if the strategy wants it: what is there now is what every snapshot so far has, of
    /// which `latest` is the last.
    fn remember_changes(&mut self, latest: u64);

    /// Appends the next page of (key, namespace) pairs to a `Vec<(K, N)>`; returns false after the last page.
    fn pairs_page(
        &self,
        group: usize,
        cursor: &mut PageCursor,
        pairs: &mut dyn Any,
    ) -> Result<bool>;
}

/// A table at the moment of a cut.
pub(crate) trait FrozenSlot: Send + Sync {
    fn meta(&self) -> &StateMeta;

    /// Writes the entries of one key group and lets go of it.
    fn encode(&self, group: usize, out: &mut GroupWriter<'_>) -> Result<()>;

    /// Returns the number of entries.
    fn entries(&self) -> EntryCount;

    /// Says whether all changes since the cut of an earlier snapshot are known.
    fn knows_changes_since(&self, since: u64) -> bool;

    /// Returns how many entries changed; one that changed several times may count as often, those of collections don't count.
    fn changed_since(&self, since: u64) -> u64;

    /// Writes what changed in one key group.
    fn encode_changes(&self, since: u64, group: usize, out: &mut GroupWriter<'_>) -> Result<()>;
}

/// The hash by which a live table finds an entry: the key's stable hash, the namespace and the process's seed.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn table_hash<N: StateKey>(key_hash: u64, namespace: &N, seed: u64) -> u64 {
    let mut hash = key_hash ^ seed;
    if N::FIXED_SIZE != Some(0) {
        hash = hash.rotate_left(23) ^ namespace.stable_hash();
    }
    // Multiply and fold: the table takes its bits from both ends.
    let product = u128::from(hash) * u128::from(0x9E37_79B9_7F4A_7C15_u64);
    (product as u64) ^ ((product >> 64) as u64)
}

/// Returns the only namespace of states that have none: which ones are used next is known of no others.
fn no_namespace<N: StateKey>() -> Option<&'static N> {
    let none: &dyn Any = &();
    none.downcast_ref()
}

/// The live table of one state, its form, and `X`: what else its kind needs.
pub(crate) struct TableSlot<K: StateKey, N, F: Form, X> {
    pub(crate) table: LiveTable<K::Stored, N, F::Cell>,
    pub(crate) form: F,
    pub(crate) extra: X,
    pub(crate) meta: StateMeta,
    pub(crate) expiry: Expiry,
    layout: CompositeLayout,
    pub(crate) seed: u64,
    sweep: SweepCursor,
}

/// What a table slot learns from its operator's states.
pub(crate) struct SlotContext {
    pub(crate) first_group: KeyGroup,
    pub(crate) groups: usize,
    pub(crate) seed: u64,
    pub(crate) overlay_ratio: f64,
    pub(crate) captures_changes: bool,
    /// Whether tables keep a running total of their bytes.
    pub(crate) counts_bytes: bool,
}

impl<K: StateKey, N: StateKey, F: Form, X: 'static> TableSlot<K, N, F, X> {
    pub(crate) fn new(
        cx: &SlotContext,
        meta: StateMeta,
        form: F,
        expiry: Expiry,
        extra: X,
    ) -> Self {
        let hasher = EntryHasher::new(cx.seed, |key: &K::Stored, namespace: &N, seed| {
            table_hash(key.stable_hash(), namespace, seed)
        });
        let mut table = LiveTable::new(cx.first_group.0, cx.groups, hasher);
        if K::Stored::HAS_HEAP || N::HAS_HEAP || F::HAS_HEAP {
            table = table.with_heap_size(HeapSize {
                of_key: |key: &K::Stored, namespace: &N| key.heap_size() + namespace.heap_size(),
                of_value: F::heap_size,
            });
        }
        if cx.captures_changes {
            table = table.with_change_capture();
            // Those that have parts note changes of their own, which are more than that something changed.
            if !F::HAS_PARTS {
                table = table.with_whole_groups();
            }
        }
        if cx.counts_bytes {
            table = table.with_running_total();
        }
        table.set_overlay_limit(OverlayLimit {
            fraction: cx.overlay_ratio,
            ..OverlayLimit::default()
        });
        let layout = CompositeLayout::of::<K::Stored, N>();
        Self {
            table,
            form,
            extra,
            meta,
            expiry,
            layout,
            seed: cx.seed,
            sweep: SweepCursor::default(),
        }
    }

    /// Looks at some entries for expired ones, if the state has such a clean-up.
    fn sweep(&mut self) {
        let Some(ttl) = self.expiry.config().copied() else {
            return;
        };
        let Some(cleanup) = ttl.incremental_cleanup() else {
            return;
        };
        let filter = ExpiredFilter {
            ttl,
            now_ms: self.expiry.clock_now(),
        };
        self.table
            .sweep(&mut self.sweep, cleanup.entries, |_, _, cell| {
                F::is_expired(cell, filter)
            });
    }

    /// Binds the table to one key and namespace.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn cursor<'a>(
        &'a mut self,
        at: Address<'a, K, N>,
    ) -> (Cursor<'a, K, N, F::Cell>, &'a X) {
        if F::TIMED {
            self.sweep();
        }
        (
            Cursor {
                table: &mut self.table,
                at,
                expiry: &self.expiry,
            },
            &self.extra,
        )
    }
}

impl<K: StateKey, N: StateKey, F: Form, X: 'static> LiveSlot<K> for TableSlot<K, N, F, X> {
    fn meta(&self) -> &StateMeta {
        &self.meta
    }

    fn freeze(&mut self, id: u64, now_ms: i64) -> Result<Box<dyn FrozenSlot>> {
        let table = self
            .table
            .freeze(id)
            .map_err(|e| e.with("state", &self.meta.name))?;
        let ttl = self
            .expiry
            .config()
            .filter(|ttl| ttl.cleans_full_snapshots());
        Ok(Box::new(FrozenTableSlot {
            table,
            form: self.form.clone(),
            meta: self.meta.clone(),
            layout: self.layout,
            filter: ttl.map(|ttl| ExpiredFilter { ttl: *ttl, now_ms }),
        }))
    }

    fn load(&mut self, group: usize, section: &Section<'_>, origin: &Origin) -> Result<()> {
        let least = self.form.least_value();
        if let Some(value) = least {
            // The number of entries may be a lie; the bytes are there.
            let (key, namespace) = (K::FIXED_SIZE.unwrap_or(1), N::FIXED_SIZE.unwrap_or(1));
            let most = section.bytes.len() / (2 + key + namespace + value);
            let entries = usize::try_from(section.entries).unwrap_or(most);
            self.table.reserve(group, entries.min(most));
        }
        self.table.expect_any_change();
        let (form, table) = (&self.form, &mut self.table);
        let mut entries = section.entries();
        while let Some((mut composite, value)) = entries.next()? {
            let (key, namespace) = self.layout.take::<K::Stored, N>(&mut composite)?;
            let hash = table_hash(key.stable_hash(), &namespace, self.seed);
            // An entry that is a whole cell has no other entry of its key to join.
            let joined =
                least.is_none()
                    && table.modify::<_, K::Stored>(group, hash, &key, &namespace, |cell| {
                        match cell {
                            None => (Change::Keep, Ok(false)),
                            Some(cell) => {
                                let added = form.decode(origin, composite, value, Some(cell));
                                (Change::Keep, added.map(|_| true))
                            }
                        }
                    })?;
            if joined {
                continue;
            }
            if let Some(cell) = form.decode(origin, composite, value, None)?
                && !table.add(group, hash, key, namespace, cell)
            {
                return Err(Error::corrupt("a key and namespace stands twice"));
            }
        }
        Ok(())
    }

    fn maintain(&mut self, budget: usize) -> bool {
        self.table.maintain(budget)
    }

    fn sweep_for_record(&mut self) -> bool {
        let cleanup = (self.expiry.config()).and_then(|ttl| ttl.incremental_cleanup());
        let sweeps = cleanup.is_some_and(|cleanup| cleanup.per_record);
        if sweeps {
            self.sweep();
        }
        sweeps
    }

    fn is_near(&self) -> bool {
        no_namespace::<N>().is_none() || self.table.len() * size_of::<(K::Stored, F::Cell)>() < NEAR
    }

    fn prefetch(&self, keys: &[(usize, u64, &K)]) -> u8 {
        match no_namespace() {
            Some(none) if !self.is_near() => self.table.prefetch(keys, none, F::touch),
            _ => 0,
        }
    }

    fn entries(&self) -> u64 {
        self.table.len() as u64
    }

    fn bytes(&self) -> usize {
        self.table.bytes()
    }

    fn expect_change(&mut self, group: usize) {
        self.table.expect_change(group);
    }

    fn settle(&mut self) -> usize {
        self.table.settle()
    }

    #[cfg(test)]
    fn count_bytes(&self) -> usize {
        self.table.count_bytes()
    }

    fn overlay_bytes(&self) -> usize {
        self.table.overlay_bytes()
    }

    fn confirm(&mut self, id: u64) {
        self.table.confirm(id);
    }

    fn discard(&mut self, id: u64) {
        self.table.discard(id);
    }

    fn remember_changes(&mut self, latest: u64) {
        self.table.restored_from(0, latest);
    }

    fn pairs_page(
        &self,
        group: usize,
        cursor: &mut PageCursor,
        pairs: &mut dyn Any,
    ) -> Result<bool> {
        let pairs: &mut Vec<(K, N)> = pairs.downcast_mut().ok_or_else(wrong_type)?;
        Ok(self.table.keys_page(group, cursor, |key, namespace| {
            pairs.push((key.to_key(), namespace.clone()));
        }))
    }
}

struct FrozenTableSlot<S, N, F: Form> {
    table: FrozenTable<S, N, F::Cell>,
    form: F,
    meta: StateMeta,
    layout: CompositeLayout,
    filter: Option<ExpiredFilter>,
}

impl<S: StateKey, N: StateKey, F: Form> FrozenSlot for FrozenTableSlot<S, N, F> {
    fn meta(&self) -> &StateMeta {
        &self.meta
    }

    fn encode(&self, group: usize, out: &mut GroupWriter<'_>) -> Result<()> {
        let encoded = encode_group(
            &self.table,
            group,
            (&self.form, self.layout),
            self.filter,
            out,
        );
        encoded.map_err(|e| e.with("state", &self.meta.name))?;
        self.table.release_group(group);
        Ok(())
    }

    fn entries(&self) -> EntryCount {
        let entries = self.table.len() as u64;
        // Cells that hold several, and those that hold none but expired ones.
        if self.form.least_value().is_none() || (F::TIMED && self.filter.is_some()) {
            EntryCount::Estimate(entries)
        } else {
            EntryCount::Exact(entries)
        }
    }

    fn knows_changes_since(&self, since: u64) -> bool {
        self.table.knows_changes_since(since)
    }

    fn changed_since(&self, since: u64) -> u64 {
        match F::HAS_PARTS {
            true => 0,
            false => self.table.changed_since(since),
        }
    }

    fn encode_changes(&self, since: u64, group: usize, out: &mut GroupWriter<'_>) -> Result<()> {
        let put = |key: &S, namespace: &N, cell: Option<&F::Cell>, out: &mut GroupWriter<'_>| {
            let composite = |out: &mut Vec<u8>| self.layout.put(key, namespace, out);
            self.form
                .encode_changes(composite, cell, since, self.filter, out);
            Ok(())
        };
        let visit = |key: &S, namespace: &N, cell: Option<&F::Cell>| put(key, namespace, cell, out);
        let touch = |key: &S, namespace: &N, cell: &F::Cell| {
            key.touch() ^ namespace.touch() ^ F::touch(cell)
        };
        let written = match (self.table).for_each_change_since(since, group, touch, visit) {
            Ok(ChangedKeys::All) => {
                // The key that begins every key.
                put_cleared(out, |_| {});
                self.table
                    .for_each_touched(group, touch, |key, namespace, cell| {
                        let is_left_out = |filter| F::is_expired(cell, filter);
                        match self.filter.is_some_and(is_left_out) {
                            true => Ok(()),
                            false => put(key, namespace, Some(cell), out),
                        }
                    })
                    .map(drop)
            }
            changed => changed.map(drop),
        };
        written.map_err(|e| e.with("state", &self.meta.name))
    }
}

/// Where an entry is: key group, hash, key and namespace; and what limits its growth.
pub(crate) struct Address<'a, K, N> {
    pub(crate) group: usize,
    pub(crate) hash: u64,
    pub(crate) key: &'a K,
    pub(crate) namespace: &'a N,
    pub(crate) limit: Option<MemoryLimit>,
}

impl<K, N> Clone for Address<'_, K, N> {
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, N> Copy for Address<'_, K, N> {}

/// Bytes that all tables of a subtask may take together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryLimit {
    pub(crate) limit: usize,
    pub(crate) used: usize,
}

impl MemoryLimit {
    #[cold]
    fn error(self) -> Error {
        Error::limit(format!(
            "live tables take {} bytes, the limit is {}",
            self.used, self.limit
        ))
    }
}

/// A live table bound to one key and namespace.
pub(crate) struct Cursor<'a, K: StateKey, N, V> {
    table: &'a mut LiveTable<K::Stored, N, V>,
    at: Address<'a, K, N>,
    pub(crate) expiry: &'a Expiry,
}

impl<K: StateKey, N: StateKey, V: Clone + Send + Sync + 'static> Cursor<'_, K, N, V> {
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn get(&self) -> Option<&V> {
        self.table
            .get(self.at.group, self.at.hash, self.at.key, self.at.namespace)
    }

    /// Returns where the table stands between snapshots, if it remembers changes.
    #[inline]
    pub(crate) fn epoch(&self) -> Option<Epoch> {
        self.table.epoch()
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn remove(&mut self) {
        self.table
            .remove(self.at.group, self.at.hash, self.at.key, self.at.namespace);
    }

    pub(crate) fn take(&mut self) -> Option<V> {
        self.table
            .take(self.at.group, self.at.hash, self.at.key, self.at.namespace)
    }

    /// Refuses growth past the memory limit.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn check_limit(&self) -> Result<()> {
        match self.at.limit {
            Some(limit) if limit.used + size_of::<(K::Stored, N, V)>() > limit.limit => {
                Err(limit.error())
            }
            _ => Ok(()),
        }
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn set(&mut self, value: V) -> Result<()> {
        self.check_limit()?;
        self.table.insert(
            self.at.group,
            self.at.hash,
            self.at.key,
            self.at.namespace,
            value,
        );
        Ok(())
    }

    /// Changes the cell if there is one; removes it if `edit` returns false.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn edit(&mut self, edit: impl FnOnce(&mut V) -> bool) {
        self.table.modify(
            self.at.group,
            self.at.hash,
            self.at.key,
            self.at.namespace,
            |cell| match cell.map(edit) {
                Some(false) => (Change::Remove, ()),
                _ => (Change::Keep, ()),
            },
        );
    }

    /// Changes, sets or removes the cell, in one look if it is there; whether it may grow is for the caller to check.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn change<R>(&mut self, change: impl FnOnce(Option<&mut V>) -> (Change<V>, R)) -> R {
        self.table.modify(
            self.at.group,
            self.at.hash,
            self.at.key,
            self.at.namespace,
            change,
        )
    }

    /// Changes the cell, or what `make` makes if there is none.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn edit_or_insert<R>(
        &mut self,
        make: impl FnOnce() -> V,
        edit: impl FnOnce(&mut V) -> R,
    ) -> Result<R> {
        self.check_limit()?;
        Ok(self.change(|cell| match cell {
            Some(cell) => (Change::Keep, edit(cell)),
            None => {
                let mut cell = make();
                let result = edit(&mut cell);
                (Change::Put(cell), result)
            }
        }))
    }
}
