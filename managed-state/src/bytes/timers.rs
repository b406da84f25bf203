use std::collections::{BTreeMap, BTreeSet};

use state_api::wire::take_array;
use state_api::{
    ByteStore, Column, Error, KeyGroup, KeyGroupRange, Page, Result, StateKey, StateMeta,
};

use super::key::ByteKey;
use crate::format::{CompositeLayout, group_end, group_of_prefix, put_group_prefix};

/// The earliest timers of a key group that are kept in memory.
const CACHE: usize = 128;

/// Timers kept in memory over all key groups of a subtask, about.
const CACHE_OF_ALL: usize = 1 << 16;

/// The timers of one state over a byte store: a set, ordered by time.
///
/// A stored key is the key group, the time in order-preserving bytes, key and namespace; the value is empty. The earliest
/// timers of each key group are cached, so that asking for the next one reads nothing. (Flink's `RocksDBCachingPriorityQueueSet`.)
#[derive(Debug)]
pub struct ByteTimers {
    column: Column,
    layout: CompositeLayout,
    prefix_len: usize,
    capacity: usize,
    groups: BTreeMap<u16, Cached>,
    /// The earliest timer of each group that has one.
    heads: BTreeSet<Head>,
    /// Whether the heads of all key groups were read.
    loaded: bool,
    buffer: Vec<u8>,
    page: Page,
}

/// The earliest timers of one key group, without the group prefix.
#[derive(Debug, Default)]
struct Cached {
    timers: BTreeSet<Box<[u8]>>,
    /// Whether the store holds timers past the cached ones.
    more: bool,
}

/// The earliest timer of a key group; ordered by time, then group, as timers in live tables are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Head {
    time: i64,
    group: u16,
    timer: Box<[u8]>,
}

impl Head {
    /// `timer` was checked when it came out of the store.
    fn new(group: u16, timer: Box<[u8]>) -> Self {
        Self {
            time: take_time(&mut &timer[..]).unwrap_or(i64::MIN),
            group,
            timer,
        }
    }
}

/// A timer out of a store: when, and the composite of key and namespace that it was set under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTimer {
    /// When it is to fire, in the milliseconds of its clock.
    pub time: i64,
    /// Key group of its key.
    pub group: KeyGroup,
    /// Key ‖ namespace.
    pub composite: Box<[u8]>,
}

impl StoredTimer {
    /// Returns key and namespace.
    ///
    /// # Errors
    /// `Corrupt` when the types are not those that the timer was set with.
    pub fn decode<K: StateKey, N: StateKey>(&self) -> Result<(K, N)> {
        let mut rest = &self.composite[..];
        let pair = CompositeLayout::of::<K, N>().take(&mut rest)?;
        state_api::wire::expect_end(rest)?;
        Ok(pair)
    }

    fn parse(group: u16, bytes: &[u8]) -> Result<Self> {
        let mut rest = bytes;
        let time = take_time(&mut rest)?;
        Ok(Self {
            time,
            group: KeyGroup(group),
            composite: rest.into(),
        })
    }
}

fn ordered_time(time: i64) -> [u8; 8] {
    (time.cast_unsigned() ^ (1 << 63)).to_be_bytes()
}

fn take_time(input: &mut &[u8]) -> Result<i64> {
    Ok((u64::from_be_bytes(take_array(input)?) ^ (1 << 63)).cast_signed())
}

impl ByteTimers {
    /// Creates the timers of a column, restored ones included. Nothing is read before the first use.
    #[must_use]
    pub fn new(column: Column, meta: &StateMeta, range: KeyGroupRange, prefix_len: usize) -> Self {
        let layout = CompositeLayout::for_sizes(
            meta.key.schema.fixed_size(),
            meta.namespace.schema.fixed_size(),
        );
        Self {
            column,
            layout,
            prefix_len,
            capacity: (CACHE_OF_ALL / range.len().max(1)).clamp(4, CACHE),
            groups: BTreeMap::new(),
            heads: BTreeSet::new(),
            loaded: false,
            buffer: Vec::new(),
            page: Page::default(),
        }
    }

    /// Reads the earliest timers of each key group that has some.
    fn load(&mut self, store: &dyn ByteStore) -> Result<()> {
        if self.loaded {
            return Ok(());
        }
        self.groups.clear();
        self.heads.clear();
        let mut next = Some(Vec::new());
        while let Some(start) = next {
            store.scan(self.column, &start, None, 1, &mut self.page)?;
            let Some((stored, _)) = self.page.entries.pop() else {
                break;
            };
            let group = group_of_prefix(&stored, self.prefix_len)
                .ok_or_else(|| Error::corrupt("a stored timer is shorter than its key group"))?;
            self.refill(store, group.0, None)?;
            self.note_head(group.0, None);
            next = group_end(group, self.prefix_len);
        }
        self.loaded = true;
        Ok(())
    }

    /// Reads the earliest timers of a group, of which none is cached: those behind a stored timer, if it is known that none is
    /// before it.
    fn refill(&mut self, store: &dyn ByteStore, group: u16, behind: Option<&[u8]>) -> Result<()> {
        let mut start = Vec::with_capacity(self.prefix_len);
        match behind {
            Some(timer) => {
                start.extend_from_slice(timer);
                start.push(0);
            }
            None => put_group_prefix(KeyGroup(group), self.prefix_len, &mut start),
        }
        let end = group_end(KeyGroup(group), self.prefix_len);
        store.scan(
            self.column,
            &start,
            end.as_deref(),
            self.capacity,
            &mut self.page,
        )?;
        let cached = self.groups.entry(group).or_default();
        cached.more = self.page.entries.len() == self.capacity;
        for (stored, _) in self.page.entries.drain(..) {
            let timer = stored.get(self.prefix_len..).unwrap_or_default();
            StoredTimer::parse(group, timer)?;
            cached.timers.insert(timer.into());
        }
        Ok(())
    }

    /// Brings `heads` in line with a group whose head was `before`.
    fn note_head(&mut self, group: u16, before: Option<Box<[u8]>>) {
        let now = self
            .groups
            .get(&group)
            .and_then(|cached| cached.timers.first());
        if now == before.as_ref() {
            return;
        }
        let now = now.cloned();
        if let Some(before) = before {
            self.heads.remove(&Head::new(group, before));
        }
        match now {
            Some(now) => {
                self.heads.insert(Head::new(group, now));
            }
            None => {
                self.groups.remove(&group);
            }
        }
    }

    fn head_of(&self, group: u16) -> Option<Box<[u8]>> {
        self.groups
            .get(&group)
            .and_then(|cached| cached.timers.first())
            .cloned()
    }

    /// Puts the stored key of a timer into the buffer.
    fn locate<N: StateKey>(&mut self, key: &ByteKey, namespace: &N, time: i64) {
        self.buffer.clear();
        self.buffer.extend_from_slice(key.prefix());
        self.buffer.extend_from_slice(&ordered_time(time));
        self.layout
            .put_encoded_key(key.encoded(), namespace, &mut self.buffer);
    }

    /// Sets a timer; returns whether it is earlier than all others. Setting it again changes nothing.
    ///
    /// # Errors
    /// Those of the store.
    pub fn add<N: StateKey>(
        &mut self,
        store: &mut dyn ByteStore,
        key: &ByteKey,
        namespace: &N,
        time: i64,
    ) -> Result<bool> {
        self.load(store)?;
        self.locate(key, namespace, time);
        let group = key.group().0;
        let timer = self.buffer.get(self.prefix_len..).unwrap_or_default();
        let cached = self.groups.entry(group).or_default();
        if cached.timers.contains(timer) {
            return Ok(false);
        }
        store.put(self.column, &self.buffer, &[])?;
        let past_cache = cached.more && cached.timers.last().is_some_and(|last| &last[..] < timer);
        if past_cache {
            return Ok(false);
        }
        let before = cached.timers.first().cloned();
        cached.timers.insert(timer.into());
        if cached.timers.len() > self.capacity {
            cached.timers.pop_last();
            cached.more = true;
        }
        let earliest = self.heads.first().is_none_or(|head| time < head.time);
        self.note_head(group, before);
        Ok(earliest)
    }

    /// Removes a timer; returns whether it was the earliest of all.
    ///
    /// # Errors
    /// Those of the store.
    pub fn remove<N: StateKey>(
        &mut self,
        store: &mut dyn ByteStore,
        key: &ByteKey,
        namespace: &N,
        time: i64,
    ) -> Result<bool> {
        self.load(store)?;
        self.locate(key, namespace, time);
        let group = key.group().0;
        let timer = self.buffer.get(self.prefix_len..).unwrap_or_default();
        let was_head = self
            .heads
            .first()
            .is_some_and(|head| head.group == group && &head.timer[..] == timer);
        self.remove_located(store, group)?;
        Ok(was_head)
    }

    fn remove_located(&mut self, store: &mut dyn ByteStore, group: u16) -> Result<()> {
        store.delete(self.column, &self.buffer)?;
        let before = self.head_of(group);
        let timer = self.buffer.get(self.prefix_len..).unwrap_or_default();
        if let Some(cached) = self.groups.get_mut(&group) {
            cached.timers.remove(timer);
            if cached.timers.is_empty() && cached.more {
                // This was the last one that was cached, and whatever is not cached is behind the last one that is. From the start
                // of the group the store would have to pass all that has fired and is not compacted away yet.
                let removed = std::mem::take(&mut self.buffer);
                let refilled = self.refill(store, group, Some(&removed));
                self.buffer = removed;
                if refilled.is_err() {
                    // Nothing is known of the group now.
                    self.loaded = false;
                }
                refilled?;
            }
        }
        self.note_head(group, before);
        Ok(())
    }

    /// Returns the time of the earliest timer.
    ///
    /// # Errors
    /// `Corrupt` when a stored timer makes no sense; those of the store.
    pub fn next_time(&mut self, store: &dyn ByteStore) -> Result<Option<i64>> {
        self.load(store)?;
        Ok(self.heads.first().map(|head| head.time))
    }

    /// Takes the earliest timer out if it is due at `up_to` (included).
    ///
    /// # Errors
    /// As [`next_time`](Self::next_time).
    pub fn pop_due(
        &mut self,
        store: &mut dyn ByteStore,
        up_to: i64,
    ) -> Result<Option<StoredTimer>> {
        self.load(store)?;
        let Some(head) = self.heads.first().filter(|head| head.time <= up_to) else {
            return Ok(None);
        };
        let group = head.group;
        let timer = StoredTimer::parse(group, &head.timer)?;
        self.buffer.clear();
        put_group_prefix(KeyGroup(group), self.prefix_len, &mut self.buffer);
        self.buffer.extend_from_slice(&head.timer);
        self.remove_located(store, group)?;
        Ok(Some(timer))
    }

    /// Returns all timers of a key group in order.
    ///
    /// # Errors
    /// `Corrupt` when a stored timer makes no sense; those of the store.
    pub fn of_group(&self, store: &dyn ByteStore, group: KeyGroup) -> Result<Vec<StoredTimer>> {
        let mut start = Vec::new();
        put_group_prefix(group, self.prefix_len, &mut start);
        let end = group_end(group, self.prefix_len);
        let (mut timers, mut page) = (Vec::new(), Page::default());
        loop {
            store.scan(self.column, &start, end.as_deref(), CACHE, &mut page)?;
            for (stored, _) in &page.entries {
                timers.push(StoredTimer::parse(
                    group.0,
                    stored.get(self.prefix_len..).unwrap_or_default(),
                )?);
            }
            match page.entries.pop() {
                Some((last, _)) if page.entries.len() + 1 == CACHE => {
                    start = last;
                    start.push(0);
                }
                _ => return Ok(timers),
            }
        }
    }

    /// Counts the timers.
    ///
    /// # Errors
    /// Those of the store.
    pub fn count(&self, store: &dyn ByteStore) -> Result<u64> {
        super::scan::count_entries(store, self.column)
    }
}
