use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use imbl::OrdSet;
use state_api::wire::take_array;
use state_api::{EntryCount, Error, KeyGroup, Result, StateKey, StateMeta};

use super::decoder::Origin;
use super::live_slot::{FrozenSlot, LiveSlot};
use super::timer_changes::{KnownTimers, TimerChanges};
use crate::changes::{put_removed, put_upsert};
use crate::format::{CompositeLayout, GroupWriter, Section};
use crate::live::PageCursor;

/// One timer: when, in which key group, and the composite of key and namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Timer {
    pub(crate) time: i64,
    pub(crate) group: u16,
    pub(crate) composite: Arc<[u8]>,
}

impl Timer {
    /// Appends the key of the timer's entry.
    fn put_key(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&ordered_time(self.time));
        out.extend_from_slice(&self.composite);
    }
}

/// The timers of one state, ordered by time; freezing shares the whole set.
pub(crate) struct LiveTimers {
    timers: OrdSet<Timer>,
    meta: StateMeta,
    first_group: KeyGroup,
    layout: CompositeLayout,
    bytes: usize,
    changes: Option<Box<TimerChanges>>,
}

/// A timer taken out of the set: time and composite of key and namespace.
pub(crate) struct Popped {
    pub(crate) time: i64,
    pub(crate) composite: Arc<[u8]>,
}

/// What a timer takes in memory beside its composite, nodes of the set included.
const TIMER_BYTES: usize = 2 * size_of::<Timer>() + 16;

impl LiveTimers {
    pub(crate) fn new<K: StateKey, N: StateKey>(
        meta: StateMeta,
        first_group: KeyGroup,
        captures_changes: bool,
    ) -> Self {
        Self {
            timers: OrdSet::new(),
            meta,
            first_group,
            layout: CompositeLayout::of::<K, N>(),
            bytes: 0,
            changes: captures_changes.then(Box::default),
        }
    }

    #[inline]
    fn note(&mut self, timer: &Timer) {
        if let Some(changes) = &mut self.changes {
            changes.toggle(timer);
        }
    }

    fn timer<K: StateKey, N: StateKey>(
        &self,
        time: i64,
        group: KeyGroup,
        key: &K,
        namespace: &N,
    ) -> Timer {
        let mut composite = Vec::with_capacity(32);
        self.layout.put(key, namespace, &mut composite);
        Timer {
            time,
            group: group.0,
            composite: composite.into(),
        }
    }

    /// Adds a timer; returns whether it became the earliest. One that is there already stays and changes nothing.
    pub(crate) fn add<K: StateKey, N: StateKey>(
        &mut self,
        time: i64,
        group: KeyGroup,
        key: &K,
        namespace: &N,
    ) -> bool {
        let timer = self.timer(time, group, key, namespace);
        let size = TIMER_BYTES + timer.composite.len();
        let is_head = self
            .timers
            .get_min()
            .is_none_or(|head| timer.time < head.time);
        let noted = self.changes.is_some().then(|| timer.clone());
        if self.timers.insert(timer).is_some() {
            return false;
        }
        if let Some(timer) = noted {
            self.note(&timer);
        }
        self.bytes += size;
        is_head
    }

    /// Removes a timer; returns whether the earliest one changed by it.
    pub(crate) fn remove<K: StateKey, N: StateKey>(
        &mut self,
        time: i64,
        group: KeyGroup,
        key: &K,
        namespace: &N,
    ) -> bool {
        let timer = self.timer(time, group, key, namespace);
        let was_head = self.timers.get_min() == Some(&timer);
        if self.timers.remove(&timer).is_none() {
            return false;
        }
        self.note(&timer);
        self.bytes = self
            .bytes
            .saturating_sub(TIMER_BYTES + timer.composite.len());
        was_head
    }

    /// Returns the time of the earliest timer.
    pub(crate) fn peek(&self) -> Option<i64> {
        self.timers.get_min().map(|timer| timer.time)
    }

    /// Takes the earliest timer if it is due.
    pub(crate) fn pop_due(&mut self, up_to: i64) -> Option<Popped> {
        if self.peek()? > up_to {
            return None;
        }
        let timer = self.timers.remove_min()?;
        self.note(&timer);
        self.bytes = self
            .bytes
            .saturating_sub(TIMER_BYTES + timer.composite.len());
        Some(Popped {
            time: timer.time,
            composite: timer.composite,
        })
    }
}

/// Flips the sign bit, so that bytes compare as times do.
pub(crate) fn ordered_time(time: i64) -> [u8; 8] {
    (time.cast_unsigned() ^ (1 << 63)).to_be_bytes()
}

pub(crate) fn take_time(input: &mut &[u8]) -> Result<i64> {
    Ok((u64::from_be_bytes(take_array(input)?) ^ (1 << 63)).cast_signed())
}

impl<K: StateKey> LiveSlot<K> for LiveTimers {
    fn meta(&self) -> &StateMeta {
        &self.meta
    }

    fn freeze(&mut self, id: u64, _now_ms: i64) -> Result<Box<dyn FrozenSlot>> {
        let changes = self.changes.as_mut();
        Ok(Box::new(FrozenTimers {
            timers: self.timers.clone(),
            changes: changes.map_or_else(KnownTimers::default, |changes| changes.seal(id)),
            by_group: OnceLock::new(),
            changed_by_group: OnceLock::new(),
            meta: self.meta.clone(),
            first_group: self.first_group,
        }))
    }

    fn load(&mut self, group: usize, section: &Section<'_>, _origin: &Origin) -> Result<()> {
        let group = u16::try_from(group + self.first_group.index())
            .map_err(|_| Error::bug("a key group is past the last possible one"))?;
        let mut entries = section.entries();
        while let Some((mut key, value)) = entries.next()? {
            let time = take_time(&mut key)?;
            if !value.is_empty() {
                return Err(Error::corrupt("a timer has a value"));
            }
            self.bytes += TIMER_BYTES + key.len();
            self.timers.insert(Timer {
                time,
                group,
                composite: key.into(),
            });
        }
        Ok(())
    }

    fn maintain(&mut self, _budget: usize) -> bool {
        false
    }

    fn sweep_for_record(&mut self) -> bool {
        false
    }

    fn is_near(&self) -> bool {
        true
    }

    fn prefetch(&self, _keys: &[(usize, u64, &K)]) -> u8 {
        0
    }

    fn entries(&self) -> u64 {
        self.timers.len() as u64
    }

    fn bytes(&self) -> usize {
        let remembered = self.changes.as_ref().map_or(0, |changes| changes.len());
        self.bytes + remembered * size_of::<Timer>()
    }

    fn expect_change(&mut self, _group: usize) {}

    fn settle(&mut self) -> usize {
        LiveSlot::<K>::bytes(self)
    }

    #[cfg(test)]
    fn count_bytes(&self) -> usize {
        LiveSlot::<K>::bytes(self)
    }

    fn overlay_bytes(&self) -> usize {
        0
    }

    fn confirm(&mut self, id: u64) {
        if let Some(changes) = &mut self.changes {
            changes.confirm(id);
        }
    }

    fn discard(&mut self, id: u64) {
        if let Some(changes) = &mut self.changes {
            changes.fold(id);
        }
    }

    fn remember_changes(&mut self, _latest: u64) {
        if let Some(changes) = &mut self.changes {
            changes.start();
        }
    }

    fn pairs_page(
        &self,
        _group: usize,
        _cursor: &mut PageCursor,
        _pairs: &mut dyn Any,
    ) -> Result<bool> {
        Err(Error::unsupported("the keys of timers can't be enumerated"))
    }
}

struct FrozenTimers {
    timers: OrdSet<Timer>,
    /// The same by key group, sorted out off the task's thread when the first group is asked for.
    by_group: OnceLock<BTreeMap<usize, Vec<Timer>>>,
    changes: KnownTimers,
    /// What changed, likewise.
    changed_by_group: OnceLock<BTreeMap<usize, BTreeSet<Timer>>>,
    meta: StateMeta,
    first_group: KeyGroup,
}

impl FrozenSlot for FrozenTimers {
    fn meta(&self) -> &StateMeta {
        &self.meta
    }

    fn encode(&self, group: usize, out: &mut GroupWriter<'_>) -> Result<()> {
        let by_group = self.by_group.get_or_init(|| {
            let mut by_group: BTreeMap<usize, Vec<Timer>> = BTreeMap::new();
            for timer in &self.timers {
                by_group
                    .entry(usize::from(timer.group))
                    .or_default()
                    .push(timer.clone());
            }
            by_group
        });
        for timer in by_group
            .get(&(group + self.first_group.index()))
            .into_iter()
            .flatten()
        {
            out.entry_with(|out| timer.put_key(out), |_| {});
        }
        Ok(())
    }

    fn entries(&self) -> EntryCount {
        EntryCount::Exact(self.timers.len() as u64)
    }

    fn knows_changes_since(&self, since: u64) -> bool {
        self.changes.reach_back_to(since)
    }

    fn changed_since(&self, since: u64) -> u64 {
        self.changes.count_since(since)
    }

    fn encode_changes(&self, since: u64, group: usize, out: &mut GroupWriter<'_>) -> Result<()> {
        let changed = self
            .changed_by_group
            .get_or_init(|| self.changes.by_group_since(since));
        let changed = changed.get(&(group + self.first_group.index()));
        for timer in changed.into_iter().flatten() {
            if self.timers.contains(timer) {
                put_upsert(out, |out| timer.put_key(out), |_| {});
            } else {
                put_removed(out, |out| timer.put_key(out));
            }
        }
        Ok(())
    }
}
