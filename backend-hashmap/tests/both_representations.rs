//! One operator's code on live objects and on encoded bytes: what state bound to a key has to allow.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
use std::sync::Arc;

use backend_hashmap::HashMapBackend;
use backend_testkit::{Mode, ReferenceBackend, Setup};
use managed_state::keyed::{At, KeyedStates, MapState, Timers, ValueState};
use state_api::access::{MapAccess, ValueAccess};
use state_api::{BackendFactory, Result};

/// Sells what costs no more than it may.
#[derive(Clone, Copy)]
struct Sale {
    limit: u64,
    prices: MapState<String, u64>,
    earned: ValueState<u64>,
    due: Timers<()>,
}

impl Sale {
    fn open(limit: u64, states: &mut KeyedStates<u32>) -> Result<Self> {
        Ok(Self {
            limit,
            prices: states.map("prices")?,
            earned: states.value("earned")?,
            due: states.timers("due")?,
        })
    }

    /// Goes through a map while it emits, removes and replaces entries, writes another state and sets timers.
    fn run(self, at: &mut At<'_, u32>, out: &mut Vec<(u32, String)>) -> Result<()> {
        at.for_each_entry(self.prices, |at, name, price| {
            if *price > self.limit {
                at.timers(self.due).set(i64::try_from(*price).unwrap())?;
                return at.map(self.prices).put(name.clone(), price / 2);
            }
            out.push((*at.key(), name.clone()));
            at.value(self.earned).update(|earned| *earned += price)?;
            at.map(self.prices).remove(name).map(drop)
        })
    }
}

#[test]
fn one_state_is_gone_through_while_it_and_others_are_written_and_records_emitted() {
    let backends: [Arc<dyn BackendFactory>; 2] =
        [Arc::new(HashMapBackend), Arc::new(ReferenceBackend)];
    for backend in backends {
        for mode in [Mode::Direct, Mode::Restored, Mode::ScaledUp] {
            let setup = Setup::new(Arc::clone(&backend), mode).unwrap();
            let limit = 10;
            let mut job = setup.start(move |states| Sale::open(limit, states));
            let prices = [("bolt", 2), ("lamp", 30), ("nut", 10), ("saw", 14)];
            for key in [1, 2] {
                job.at(&key, |at, sale: Sale| {
                    let prices = prices.map(|(name, price)| (name.to_owned(), price));
                    at.map(sale.prices).put_all(prices.to_vec())
                });
            }
            job.settle();
            let mut out = Vec::new();
            job.at(&1, |at, sale| sale.run(at, &mut out));
            job.settle();

            out.sort();
            assert_eq!(out, [(1, "bolt".to_owned()), (1, "nut".to_owned())]);
            // Read without a clone.
            let earned = job.at(&1, |at, sale| {
                at.value(sale.earned).with(|earned| earned.copied())
            });
            assert_eq!(earned, Some(12));
            let mut left = job.at(&1, |at, sale| at.map(sale.prices).entries());
            left.sort();
            assert_eq!(left, [("lamp".to_owned(), 15), ("saw".to_owned(), 7)]);
            let mut fired: Vec<_> = job
                .fire::<()>(|sale| sale.due.erase::<u32>(), i64::MAX)
                .concat();
            fired.sort_unstable();
            assert_eq!(fired, [(14, 1, ()), (30, 1, ())]);
            // The other key is as it was.
            let other = job.at(&2, |at, sale| at.map(sale.prices).entries());
            assert_eq!(other.len(), prices.len());
        }
    }
}
