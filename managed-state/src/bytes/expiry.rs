use state_api::{Filtered, Result, StateKind, StateMeta, TtlConfig, ValueFilter};

use crate::format::{Chunk, Elements, ListHead, StoredList, put_encoded_element, split_timestamp};

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
        let filtered = match StoredList::read(stored, true) {
            Ok(StoredList::Whole(elements)) => self.filter_elements(elements, &[], now_ms),
            Ok(StoredList::Head(head, tail)) => self.filter_head(&head, stored, tail, now_ms),
            Ok(StoredList::Chunk(chunk)) => self.filter_chunk(&chunk, now_ms),
            Err(error) => Err(error),
        };
        // Whoever reads it says that it is damaged.
        filtered.unwrap_or(Filtered::Keep)
    }

    /// Takes expired elements out; what takes the place of the value begins with `front`.
    fn filter_elements(&self, all: &[u8], front: &[u8], now_ms: i64) -> Result<Filtered> {
        let mut kept = Vec::new();
        let (mut live, mut expired) = (0_usize, 0_usize);
        let mut elements = Elements::new(all, true);
        loop {
            let before = elements.rest().len();
            match elements.next()? {
                None => break,
                Some((stamp, element)) if !self.ttl.is_expired(stamp, now_ms) => {
                    // The first expired element makes a copy of what is before it; most lists have none.
                    if expired > 0 {
                        put_encoded_element(Some(stamp), element, &mut kept);
                    }
                    live += 1;
                }
                Some(_) => {
                    if expired == 0 {
                        kept.extend_from_slice(front);
                        kept.extend_from_slice(&all[..all.len() - before]);
                    }
                    expired += 1;
                }
            }
        }
        Ok(match (live, expired) {
            (_, 0) => Filtered::Keep,
            (0, _) if front.is_empty() => Filtered::Drop,
            _ => Filtered::Replace(kept),
        })
    }

    /// A head goes when all of its list is expired: the chunks that it tells of go the same way.
    fn filter_head(
        &self,
        head: &ListHead,
        stored: &[u8],
        tail: &[u8],
        now_ms: i64,
    ) -> Result<Filtered> {
        let front = &stored[..stored.len() - tail.len()];
        let filtered = self.filter_elements(tail, front, now_ms)?;
        let has_tail = match &filtered {
            Filtered::Replace(value) => value.len() > front.len(),
            _ => !tail.is_empty(),
        };
        if !has_tail && self.ttl.is_expired(head.latest_ms, now_ms) {
            return Ok(Filtered::Drop);
        }
        Ok(filtered)
    }

    /// Elements go from the front of a chunk only, and how many bytes did so is written down: the head counts in bytes.
    fn filter_chunk(&self, chunk: &Chunk<'_>, now_ms: i64) -> Result<Filtered> {
        let mut elements = Elements::new(chunk.elements, true);
        let mut rest = chunk.elements;
        while let Some((stamp, _)) = elements.next()? {
            if !self.ttl.is_expired(stamp, now_ms) {
                break;
            }
            rest = elements.rest();
        }
        if rest.len() == chunk.elements.len() {
            return Ok(Filtered::Keep);
        }
        if rest.is_empty() {
            return Ok(Filtered::Drop);
        }
        let mut kept = Vec::with_capacity(rest.len() + 8);
        Chunk::put_front(chunk.place_before(rest.len())?, &mut kept);
        kept.extend_from_slice(rest);
        Ok(Filtered::Replace(kept))
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

    #[test]
    fn a_chunk_goes_from_the_front_and_says_how_far() {
        let filter = filter(true);
        let chunk = |dropped: u64, elements: &[(i64, &[u8])]| {
            let mut stored = Vec::new();
            Chunk::put_front(dropped, &mut stored);
            stored.extend_from_slice(&list(elements));
            stored
        };
        let all = [(1_000, &b"a"[..]), (1_050, b"b"), (950, b"c"), (1_080, b"")];
        let mut stored = chunk(0, &all);
        assert_eq!(filter.filter(&stored, 1_040), Filtered::Keep);
        for (now, dropped, left) in [(1_100, 10, 1), (1_160, 30, 3)] {
            let kept = chunk(dropped, &all[left..]);
            assert_eq!(filter.filter(&stored, now), Filtered::Replace(kept.clone()));
            stored = kept;
        }
        assert_eq!(filter.filter(&stored, 1_180), Filtered::Drop);
        let torn = &stored[..stored.len() - 1];
        assert_eq!(filter.filter(torn, i64::MAX), Filtered::Keep);
        assert_eq!(filter.filter(&stored[..2], i64::MAX), Filtered::Keep);
    }

    #[test]
    fn a_head_stays_while_anything_of_its_list_may_be_alive() {
        let filter = filter(true);
        let head = ListHead {
            first: 1,
            next: 3,
            skipped: 7,
            elements: 0,
            latest_ms: 1_050,
        };
        let stored = |elements: &[(i64, &[u8])]| {
            let mut stored = Vec::new();
            head.put(true, &mut stored);
            stored.extend_from_slice(&list(elements));
            stored
        };
        let all = [(1_000, &b"a"[..]), (1_080, b"b")];
        assert_eq!(filter.filter(&stored(&all), 1_090), Filtered::Keep);
        for now in [1_100, 1_179] {
            let kept = Filtered::Replace(stored(&all[1..]));
            assert_eq!(filter.filter(&stored(&all), now), kept);
        }
        assert_eq!(filter.filter(&stored(&all), 1_180), Filtered::Drop);
        let kept = Filtered::Replace(stored(&[]));
        assert_eq!(filter.filter(&stored(&all[..1]), 1_149), kept);
        assert_eq!(filter.filter(&stored(&all[..1]), 1_150), Filtered::Drop);
        assert_eq!(filter.filter(&stored(&[]), 1_149), Filtered::Keep);
        assert_eq!(filter.filter(&stored(&[]), 1_150), Filtered::Drop);
        assert_eq!(filter.filter(&stored(&all)[..12], i64::MAX), Filtered::Keep);
    }
}
