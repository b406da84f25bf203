use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use rocksdb::compaction_filter::{CompactionFilter, Decision};
use rocksdb::compaction_filter_factory::{CompactionFilterContext, CompactionFilterFactory};
use state_api::{Clock, Filtered, ValueFilter};

use crate::lent::Lent;

/// The filter of a column, which may be set and changed while the column is open.
type Slot = Arc<RwLock<Option<Arc<dyn ValueFilter>>>>;

/// What compactions leave out of the columns of a database.
///
/// A column gets its compaction filter when it is opened, which may be before anybody knows whether its values expire: the filter
/// looks up what to do when a compaction starts.
#[derive(Clone)]
pub(crate) struct Expiry {
    slots: Arc<Mutex<BTreeMap<String, Slot>>>,
    time: Arc<CompactionTime>,
    /// Values between two looks at the clock.
    clock_every: u64,
}

impl Expiry {
    pub(crate) fn new(clock: Arc<dyn Clock>, clock_every: u64) -> Self {
        Self {
            slots: Arc::default(),
            time: Arc::new(CompactionTime {
                clock,
                held: Mutex::default(),
            }),
            clock_every: clock_every.max(1),
        }
    }

    fn slot(&self, state: &str) -> Slot {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(slots.entry(state.to_owned()).or_default())
    }

    /// Sets the filter of a state's column for compactions that start from now on; returns whether there was one.
    pub(crate) fn set(&self, state: &str, filter: Option<Arc<dyn ValueFilter>>) -> bool {
        let slot = self.slot(state);
        let mut slot = slot.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *slot, filter).is_some()
    }

    /// Makes what RocksDB asks for a filter at the start of each compaction of a column.
    pub(crate) fn factory(&self, state: &str) -> ExpiryFactory {
        ExpiryFactory {
            slot: self.slot(state),
            time: Arc::clone(&self.time),
            clock_every: self.clock_every,
        }
    }

    /// Keeps compactions from dropping what has not expired by now, for as long as what is returned is there: what is frozen now
    /// stays as it is.
    pub(crate) fn hold(&self) -> HeldTime {
        let mut held = self.time.held();
        let now_ms = self.time.clock.now_ms();
        *held.entry(now_ms).or_default() += 1;
        drop(held);
        HeldTime {
            time: Arc::clone(&self.time),
            now_ms,
        }
    }
}

/// The time by which compactions drop values.
struct CompactionTime {
    clock: Arc<dyn Clock>,
    /// At which times it is held up, and how often.
    held: Mutex<BTreeMap<i64, usize>>,
}

impl CompactionTime {
    fn held(&self) -> MutexGuard<'_, BTreeMap<i64, usize>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> i64 {
        // The clock is looked at under the lock: whoever holds time up gets none that a compaction has not passed yet.
        let held = self.held();
        let now_ms = self.clock.now_ms();
        held.first_key_value()
            .map_or(now_ms, |(first, _)| now_ms.min(*first))
    }
}

/// Holds the time of compactions up until it is dropped.
pub(crate) struct HeldTime {
    time: Arc<CompactionTime>,
    now_ms: i64,
}

impl Drop for HeldTime {
    fn drop(&mut self) {
        let mut held = self.time.held();
        if let Some(times) = held.get_mut(&self.now_ms) {
            *times -= 1;
            if *times == 0 {
                held.remove(&self.now_ms);
            }
        }
    }
}

pub(crate) struct ExpiryFactory {
    slot: Slot,
    time: Arc<CompactionTime>,
    clock_every: u64,
}

const NAME: &CStr = c"holdfast.expiry";

impl CompactionFilterFactory for ExpiryFactory {
    type Filter = ExpiryFilter;

    fn create(&mut self, _: CompactionFilterContext) -> ExpiryFilter {
        let filter = self
            .slot
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        ExpiryFilter {
            filter,
            time: Arc::clone(&self.time),
            clock_every: self.clock_every,
            now_ms: 0,
            asked: 0,
            replacement: Lent::default(),
            name: NAME.to_owned(),
        }
    }

    fn name(&self) -> &CStr {
        NAME
    }
}

/// The filter of one compaction, which one thread uses.
pub(crate) struct ExpiryFilter {
    filter: Option<Arc<dyn ValueFilter>>,
    time: Arc<CompactionTime>,
    clock_every: u64,
    now_ms: i64,
    asked: u64,
    replacement: Lent,
    name: CString,
}

impl CompactionFilter for ExpiryFilter {
    fn filter(&mut self, _level: u32, _key: &[u8], value: &[u8]) -> Decision {
        let Some(filter) = &self.filter else {
            return Decision::Keep;
        };
        if self.asked.is_multiple_of(self.clock_every) {
            self.now_ms = self.time.now_ms();
        }
        self.asked += 1;
        match filter.filter(value, self.now_ms) {
            Filtered::Keep => Decision::Keep,
            Filtered::Drop => Decision::Remove,
            Filtered::Replace(value) => Decision::Change(self.replacement.lend(value)),
        }
    }

    fn name(&self) -> &CStr {
        &self.name
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    /// Moves on by 1 ms each time it is looked at.
    #[derive(Debug, Default)]
    struct Counting(AtomicI64);

    impl Clock for Counting {
        fn now_ms(&self) -> i64 {
            self.0.fetch_add(1, Ordering::SeqCst) + 1
        }

        fn monotonic_ns(&self) -> u64 {
            0
        }
    }

    struct Echo;

    impl ValueFilter for Echo {
        fn filter(&self, value: &[u8], now_ms: i64) -> Filtered {
            match value {
                b"drop" => Filtered::Drop,
                b"keep" => Filtered::Keep,
                _ => Filtered::Replace(now_ms.to_string().into_bytes()),
            }
        }
    }

    fn start(expiry: &Expiry) -> ExpiryFilter {
        expiry.factory("state").create(CompactionFilterContext {
            is_full_compaction: true,
            is_manual_compaction: true,
        })
    }

    #[test]
    fn k_199_the_clock_is_looked_at_every_so_many_values() {
        let expiry = Expiry::new(Arc::new(Counting::default()), 3);
        expiry.set("state", Some(Arc::new(Echo)));
        let mut filter = start(&expiry);
        let times: Vec<String> = (0..8)
            .map(|_| match filter.filter(0, b"key", b"time") {
                Decision::Change(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
                _ => panic!("not changed"),
            })
            .collect();
        assert_eq!(times, ["1", "1", "1", "2", "2", "2", "3", "3"]);
    }

    #[test]
    fn k_193_what_is_frozen_is_not_dropped_for_having_expired_since() {
        let expiry = Expiry::new(Arc::new(Counting::default()), 1);
        expiry.set("state", Some(Arc::new(Echo)));
        let mut filter = start(&expiry);
        let mut time = || match filter.filter(0, b"key", b"time") {
            Decision::Change(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
            _ => panic!("not changed"),
        };
        assert_eq!(time(), "1");
        let first = expiry.hold();
        let second = expiry.hold();
        assert_eq!([time(), time()], ["2", "2"]);
        drop(first);
        assert_eq!(time(), "3");
        drop(second);
        assert_eq!(time(), "7");
    }

    #[test]
    fn a_compaction_goes_by_the_filter_that_was_set_when_it_started() {
        let expiry = Expiry::new(Arc::new(Counting::default()), 1);
        let mut before = start(&expiry);
        assert!(!expiry.set("state", Some(Arc::new(Echo))));
        assert!(matches!(before.filter(0, b"key", b"drop"), Decision::Keep));
        let mut with = start(&expiry);
        assert!(expiry.set("state", None));
        assert!(matches!(with.filter(0, b"key", b"drop"), Decision::Remove));
        assert!(matches!(with.filter(0, b"key", b"keep"), Decision::Keep));
        assert!(matches!(
            start(&expiry).filter(0, b"key", b"drop"),
            Decision::Keep
        ));
    }
}
