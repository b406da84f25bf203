use rocksdb::{DBRawIteratorWithThreadMode, ReadOptions};
use state_api::Page;

use crate::database::Db;

/// An iterator over a column.
pub(crate) type RawIter<'a> = DBRawIteratorWithThreadMode<'a, Db>;

/// Vectors in a page that hold more than this are given back, not filled again.
const KEPT_CAPACITY: usize = 4 << 10;

/// Returns whether a range holds no key at all.
pub(crate) fn is_empty_range(start: &[u8], end: Option<&[u8]>) -> bool {
    end.is_some_and(|end| end <= start)
}

/// Returns read options for a range, which RocksDB then never looks past.
pub(crate) fn bounded(start: &[u8], end: Option<&[u8]>) -> ReadOptions {
    let mut options = ending(end);
    options.set_iterate_lower_bound(start);
    options
}

/// Returns read options for a range that is read forwards from where it is sought, and never past its end.
pub(crate) fn ending(end: Option<&[u8]>) -> ReadOptions {
    let mut options = ReadOptions::default();
    // Also where write buffers have no order.
    options.set_total_order_seek(true);
    if let Some(end) = end {
        options.set_iterate_upper_bound(end);
    }
    options
}

/// Returns read options for a range of keys that start alike, in write buffers that find them by what they start with.
pub(crate) fn together(end: Option<&[u8]>) -> ReadOptions {
    let mut options = ending(end);
    options.set_total_order_seek(false);
    options.set_prefix_same_as_start(true);
    options
}

/// Fills a page with up to `limit` pairs from where an iterator is up to a key, and leaves it at the first pair that is not taken.
/// The page's vectors are filled again.
pub(crate) fn fill(
    iter: &mut RawIter<'_>,
    end: Option<&[u8]>,
    limit: usize,
    page: &mut Page,
) -> Result<(), rocksdb::Error> {
    let mut taken = 0;
    while taken < limit {
        let Some((key, value)) = iter.item() else {
            break;
        };
        if end.is_some_and(|end| key >= end) {
            break;
        }
        match page.entries.get_mut(taken) {
            Some((old_key, old_value)) => {
                refill(old_key, key);
                refill(old_value, value);
            }
            None => page.entries.push((key.to_vec(), value.to_vec())),
        }
        taken += 1;
        iter.next();
    }
    page.entries.truncate(taken);
    // An iterator that failed looks like one at its end.
    if iter.valid() { Ok(()) } else { iter.status() }
}

fn refill(old: &mut Vec<u8>, new: &[u8]) {
    if old.capacity() > KEPT_CAPACITY && old.capacity() / 2 > new.len() {
        *old = new.to_vec();
    } else {
        old.clear();
        old.extend_from_slice(new);
    }
}
