use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

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
    clock: Arc<dyn Clock>,
    /// Values between two looks at the clock.
    clock_every: u64,
}

impl Expiry {
    pub(crate) fn new(clock: Arc<dyn Clock>, clock_every: u64) -> Self {
        Self {
            slots: Arc::default(),
            clock,
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
            clock: Arc::clone(&self.clock),
            clock_every: self.clock_every,
        }
    }
}

pub(crate) struct ExpiryFactory {
    slot: Slot,
    clock: Arc<dyn Clock>,
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
            clock: Arc::clone(&self.clock),
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
    clock: Arc<dyn Clock>,
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
            self.now_ms = self.clock.now_ms();
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
