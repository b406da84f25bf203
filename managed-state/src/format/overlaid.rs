use std::cell::RefCell;
use std::iter::Peekable;

use state_api::{ByteView, Column, KeyGroup, KeyGroupRange, Page, Result};

use super::composite::{group_end, group_of_prefix, put_group_prefix};
use super::write_back::{DirtyColumn, DirtyEntry};

/// A frozen byte store with the dirty entries of a cache laid over it.
///
/// It is made for reading each column once, from start to end: the dirty entries of a key group are sorted when the first scan
/// reaches it, and let go when a scan starts behind it.
pub(crate) struct Overlaid {
    view: Box<dyn ByteView>,
    columns: Vec<RefCell<Overlay>>,
    range: KeyGroupRange,
    prefix_len: usize,
}

/// The dirty entries of one column that were sorted so far and are still needed.
struct Overlay {
    dirty: Box<dyn DirtyColumn>,
    /// Ascending stored keys of the groups before `next_group`.
    sorted: Vec<DirtyEntry>,
    /// Position of the first group that is not sorted yet.
    next_group: usize,
}

/// Lays dirty entries over a view.
pub(crate) fn overlaid(
    view: Box<dyn ByteView>,
    dirty: Vec<Box<dyn DirtyColumn>>,
    range: KeyGroupRange,
    prefix_len: usize,
) -> Box<dyn ByteView> {
    if dirty.is_empty() {
        return view;
    }
    let overlay = |dirty| {
        RefCell::new(Overlay {
            dirty,
            sorted: Vec::new(),
            next_group: 0,
        })
    };
    Box::new(Overlaid {
        view,
        columns: dirty.into_iter().map(overlay).collect(),
        range,
        prefix_len,
    })
}

impl Overlay {
    /// Sorts the groups up to this one; all of them if there is none.
    fn reach(
        &mut self,
        group: Option<KeyGroup>,
        range: KeyGroupRange,
        prefix_len: usize,
    ) -> Result<()> {
        let upto = match group {
            Some(group) if group.0 < range.start().0 => 0,
            Some(group) => range.index_of(group).map_or(range.len(), |at| at + 1),
            None => range.len(),
        };
        while self.next_group < upto {
            let mut entries = Vec::new();
            self.dirty.take_group(self.next_group, &mut entries)?;
            let mut prefix = Vec::new();
            let group = range.iter().nth(self.next_group);
            if let Some(group) = group {
                put_group_prefix(group, prefix_len, &mut prefix);
            }
            for (key, _) in &mut entries {
                key.splice(0..0, prefix.iter().copied());
            }
            entries.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
            self.sorted.append(&mut entries);
            self.next_group += 1;
        }
        Ok(())
    }

    /// Lets go of what lies before a key.
    fn pass(&mut self, start: &[u8]) {
        let passed = self.sorted.partition_point(|(key, _)| &key[..] < start);
        // Not at each page: what is left is moved.
        if passed > self.sorted.len() / 2 {
            self.sorted.drain(..passed);
        }
    }
}

impl ByteView for Overlaid {
    fn scan(
        &self,
        column: Column,
        start: &[u8],
        end: Option<&[u8]>,
        limit: usize,
        page: &mut Page,
    ) -> Result<()> {
        let found = self
            .columns
            .iter()
            .find(|overlay| overlay.borrow().dirty.column() == column);
        let Some(overlay) = found else {
            return self.view.scan(column, start, end, limit, page);
        };
        let overlay = &mut *overlay.borrow_mut();
        overlay.pass(start);
        page.entries.clear();
        let (mut from, mut below) = (start.to_vec(), Page::default());
        loop {
            // One key group at a time, so that no more than one or two are sorted.
            let group = group_of_prefix(&from, self.prefix_len);
            let group_end = group.and_then(|group| group_end(group, self.prefix_len));
            let stop = match (end, group_end.as_deref()) {
                (Some(end), Some(group_end)) => Some(end.min(group_end)),
                (end, group_end) => end.or(group_end),
            };
            let wanted = limit - page.entries.len();
            self.view.scan(column, &from, stop, wanted, &mut below)?;
            overlay.reach(group, self.range, self.prefix_len)?;
            // What the page covers: up to its last key if there may be more.
            let full = below.entries.len() == wanted;
            let last = below.entries.last().map(|(key, _)| key.clone());
            let upto = last.filter(|_| full);
            let first = overlay.sorted.partition_point(|(key, _)| *key < from);
            let above = overlay.sorted[first..].iter().take_while(|(key, _)| {
                upto.as_ref().is_none_or(|upto| key <= upto)
                    && stop.is_none_or(|stop| &key[..] < stop)
            });
            merge(&mut above.peekable(), &mut below, limit, page);
            if page.entries.len() == limit {
                return Ok(());
            }
            from = match (upto, stop) {
                (Some(mut upto), _) => {
                    upto.push(0);
                    upto
                }
                (None, Some(stop)) if Some(stop) != end => stop.to_vec(),
                (None, _) => return Ok(()),
            };
        }
    }
}

/// Appends pairs of both to a page until it is full; of two with the same key the one above counts.
fn merge<'a>(
    above: &mut Peekable<impl Iterator<Item = &'a DirtyEntry>>,
    below: &mut Page,
    limit: usize,
    page: &mut Page,
) {
    let mut below = below.entries.drain(..).peekable();
    while page.entries.len() < limit {
        let takes_above = match (above.peek(), below.peek()) {
            (Some((over, _)), Some((under, _))) => over <= under,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => return,
        };
        if !takes_above {
            page.entries.extend(below.next());
            continue;
        }
        if let Some((key, value)) = above.next() {
            below.next_if(|(under, _)| under == key);
            let value = value.as_ref().map(|value| (key.clone(), value.clone()));
            page.entries.extend(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    struct Under(BTreeMap<Vec<u8>, Vec<u8>>);

    impl ByteView for Under {
        fn scan(
            &self,
            _: Column,
            start: &[u8],
            end: Option<&[u8]>,
            limit: usize,
            page: &mut Page,
        ) -> Result<()> {
            let pairs = self.0.range(start.to_vec()..);
            let inside = pairs.take_while(|(key, _)| end.is_none_or(|end| &key[..] < end));
            page.entries = inside
                .take(limit)
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
            Ok(())
        }
    }

    struct Over(Vec<Vec<DirtyEntry>>);

    impl DirtyColumn for Over {
        fn column(&self) -> Column {
            Column(3)
        }

        fn take_group(&mut self, group: usize, out: &mut Vec<DirtyEntry>) -> Result<()> {
            out.append(&mut self.0[group]);
            Ok(())
        }
    }

    proptest! {
        #[test]
        fn scans_see_the_dirty_entries_in_place_of_what_is_under_them(
            under in proptest::collection::btree_map(proptest::collection::vec(2u8..6, 1..4), any::<u8>(), 0..80),
            over in proptest::collection::btree_map(proptest::collection::vec(2u8..6, 1..4), proptest::option::of(any::<u8>()), 0..80),
            limit in 1usize..9,
        ) {
            let mut expected: BTreeMap<Vec<u8>, Vec<u8>> =
                under.iter().map(|(key, value)| (key.clone(), vec![*value])).collect();
            let below = expected.clone();
            let mut groups = vec![Vec::new(); 4];
            for (key, value) in over {
                groups[usize::from(key[0] - 2)].push((key[1..].to_vec(), value.map(|v| vec![v])));
                match value {
                    Some(value) => expected.insert(key, vec![value]),
                    None => expected.remove(&key),
                };
            }
            groups.iter_mut().for_each(|group| group.reverse());
            let range = KeyGroupRange::try_new(2, 5).unwrap();
            let view = overlaid(
                Box::new(Under(below)),
                vec![Box::new(Over(groups))],
                range,
                1,
            );
            let (mut all, mut next, mut page) = (BTreeMap::new(), vec![2], Page::default());
            let end = crate::format::group_end(KeyGroup(5), 1);
            loop {
                view.scan(Column(3), &next, end.as_deref(), limit, &mut page).unwrap();
                let full = page.entries.len() == limit;
                prop_assert!(page.entries.is_sorted());
                if let Some((last, _)) = page.entries.last() {
                    next = last.clone();
                    next.push(0);
                }
                all.extend(page.entries.drain(..));
                if !full {
                    break;
                }
            }
            prop_assert_eq!(all, expected);
        }
    }
}
