use std::any::Any;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::OrdSet;
use state_api::wire::take_array;
use state_api::{Error, KeyGroup, Result, StateKey, StateMeta};

use super::decoder::Origin;
use super::live_slot::{FrozenSlot, LiveSlot};
use crate::format::{CompositeLayout, GroupWriter, Section};
use crate::live::PageCursor;

/// One timer: when, in which key group, and the composite of key and namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Timer {
    time: i64,
    group: u16,
    composite: Arc<[u8]>,
}

/// The timers of one state, ordered by time; freezing shares the whole set.
pub(crate) struct LiveTimers {
    timers: OrdSet<Timer>,
    meta: StateMeta,
    first_group: KeyGroup,
    layout: CompositeLayout,
    bytes: usize,
}

/// A timer taken out of the set: time and composite of key and namespace.
pub(crate) struct Popped {
    pub(crate) time: i64,
    pub(crate) composite: Arc<[u8]>,
}

/// What a timer takes in memory beside its composite, nodes of the set included.
const TIMER_BYTES: usize = 2 * size_of::<Timer>() + 16;

impl LiveTimers {
    pub(crate) fn new<K: StateKey, N: StateKey>(meta: StateMeta, first_group: KeyGroup) -> Self {
        Self {
            timers: OrdSet::new(),
            meta,
            first_group,
            layout: CompositeLayout::of::<K, N>(),
            bytes: 0,
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
        if self.timers.insert(timer).is_some() {
            return false;
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

    fn freeze(&mut self, _id: u64, _now_ms: i64) -> Result<Box<dyn FrozenSlot>> {
        Ok(Box::new(FrozenTimers {
            timers: self.timers.clone(),
            by_group: OnceCell::new(),
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

    fn sweep_for_record(&mut self) {}

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
        self.bytes
    }

    fn overlay_bytes(&self) -> usize {
        0
    }

    fn confirm(&mut self, _id: u64) {}

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
    by_group: OnceCell<BTreeMap<usize, Vec<Timer>>>,
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
            out.entry_with(
                |out| {
                    out.extend_from_slice(&ordered_time(timer.time));
                    out.extend_from_slice(&timer.composite);
                },
                |_| {},
            );
        }
        Ok(())
    }
}
