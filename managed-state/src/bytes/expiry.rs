use state_api::{Filtered, StateKind, StateMeta, TtlConfig, ValueFilter};

use crate::format::{Elements, put_encoded_element, split_timestamp};

/// Says which stored values of a state with time-to-live are expired: values and map entries whole, lists element by element.
#[derive(Clone, Copy, Debug)]
pub struct ExpiredValues {
    ttl: TtlConfig,
    is_list: bool,
}

impl ExpiredValues {
    /// Creates the filter of a state, if its time-to-live asks for clean-up when values are rewritten. Timers never expire.
    #[must_use]
    pub fn of(meta: &StateMeta, ttl: Option<TtlConfig>) -> Option<Self> {
        let ttl = ttl.filter(TtlConfig::cleans_in_compaction)?;
        (meta.kind != StateKind::Timer).then_some(Self {
            ttl,
            is_list: meta.kind == StateKind::List,
        })
    }

    fn filter_list(&self, stored: &[u8], now_ms: i64) -> Filtered {
        let mut kept = Vec::new();
        let (mut live, mut expired) = (0_usize, 0_usize);
        let mut elements = Elements::new(stored, true);
        loop {
            let before = elements.rest().len();
            match elements.next() {
                Ok(None) => break,
                // Whoever reads it says that it is damaged.
                Err(_) => return Filtered::Keep,
                Ok(Some((stamp, element))) if !self.ttl.is_expired(stamp, now_ms) => {
                    // The first expired element makes a copy of what is before it; most lists have none.
                    if expired > 0 {
                        put_encoded_element(Some(stamp), element, &mut kept);
                    }
                    live += 1;
                }
                Ok(Some(_)) => {
                    if expired == 0 {
                        kept.extend_from_slice(&stored[..stored.len() - before]);
                    }
                    expired += 1;
                }
            }
        }
        match (live, expired) {
            (_, 0) => Filtered::Keep,
            (0, _) => Filtered::Drop,
            _ => Filtered::Replace(kept),
        }
    }
}

impl ValueFilter for ExpiredValues {
    fn filter(&self, value: &[u8], now_ms: i64) -> Filtered {
        if self.is_list {
            return self.filter_list(value, now_ms);
        }
        match split_timestamp(value) {
            Ok((stamp, _)) if self.ttl.is_expired(stamp, now_ms) => Filtered::Drop,
            _ => Filtered::Keep,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn filter(is_list: bool) -> ExpiredValues {
        ExpiredValues {
            ttl: TtlConfig::new(Duration::from_millis(100)).unwrap(),
            is_list,
        }
    }

    fn value(stamp: i64) -> Vec<u8> {
        let mut value = stamp.to_le_bytes().to_vec();
        value.extend_from_slice(b"body");
        value
    }

    fn list(elements: &[(i64, &[u8])]) -> Vec<u8> {
        let mut stored = Vec::new();
        for (stamp, element) in elements {
            put_encoded_element(Some(*stamp), element, &mut stored);
        }
        stored
    }

    #[test]
    fn a_value_goes_when_it_is_expired_and_stays_when_it_cant_be_read() {
        let filter = filter(false);
        assert_eq!(filter.filter(&value(1_000), 1_099), Filtered::Keep);
        assert_eq!(filter.filter(&value(1_000), 1_100), Filtered::Drop);
        assert_eq!(filter.filter(b"short", i64::MAX), Filtered::Keep);
    }

    #[test]
    fn k_198_a_list_keeps_its_live_elements_in_order_and_goes_with_the_last() {
        let filter = filter(true);
        let stored = list(&[
            (1_000, b"a"),
            (900, b"b"),
            (1_050, b""),
            (950, b"d"),
            (1_080, b"e"),
        ]);
        assert_eq!(filter.filter(&stored, 999), Filtered::Keep);
        assert_eq!(
            filter.filter(&stored, 1_050),
            Filtered::Replace(list(&[(1_000, b"a"), (1_050, b""), (1_080, b"e")]))
        );
        assert_eq!(
            filter.filter(&stored, 1_150),
            Filtered::Replace(list(&[(1_080, b"e")]))
        );
        assert_eq!(filter.filter(&stored, 1_180), Filtered::Drop);
        assert_eq!(
            filter.filter(&stored[..stored.len() - 1], 1_150),
            Filtered::Keep
        );
        assert_eq!(filter.filter(b"", 1_150), Filtered::Keep);
    }
}
