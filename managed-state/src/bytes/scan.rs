use std::marker::PhantomData;

use state_api::{ByteStore, Column, Error, Page, Result, StateKey, StateMeta, prefix_end};

use crate::format::CompositeLayout;

/// Entries read from the store at once.
const PAGE: usize = 128;

/// Goes through the (key, namespace) pairs of a state, each once, in pages.
///
/// The store may be written between pages: a pair that is there from the first page to the last is seen once.
#[derive(Clone, Debug)]
pub struct KeyPages<K, N> {
    column: Column,
    layout: CompositeLayout,
    prefix_len: usize,
    /// Where the next page starts; `None` at the end.
    next: Option<Vec<u8>>,
    page: Page,
    types: PhantomData<fn() -> (K, N)>,
}

impl<K: StateKey, N: StateKey> KeyPages<K, N> {
    /// Starts at the first key of a column whose stored keys have a group prefix of `prefix_len` bytes.
    #[must_use]
    pub fn new(column: Column, prefix_len: usize) -> Self {
        Self {
            column,
            layout: CompositeLayout::of::<K, N>(),
            prefix_len,
            next: Some(Vec::new()),
            page: Page::default(),
            types: PhantomData,
        }
    }

    /// Appends some more pairs; returns false when there are none.
    ///
    /// # Errors
    /// `Corrupt` when a stored key makes no sense; those of the store.
    pub fn next_page(&mut self, store: &dyn ByteStore, pairs: &mut Vec<(K, N)>) -> Result<bool> {
        let Some(start) = self.next.take() else {
            return Ok(false);
        };
        store.scan(self.column, &start, None, PAGE, &mut self.page)?;
        let full = self.page.entries.len() == PAGE;
        // Group prefix, key and namespace of the pair that was seen last.
        let mut seen: &[u8] = &[];
        for (stored, _) in &self.page.entries {
            if !seen.is_empty() && stored.starts_with(seen) {
                continue;
            }
            let mut rest = stored
                .get(self.prefix_len..)
                .ok_or_else(|| Error::corrupt("a stored key is shorter than its key group"))?;
            pairs.push(self.layout.take(&mut rest)?);
            seen = stored.get(..stored.len() - rest.len()).unwrap_or_default();
        }
        // Map entries of the last pair that the page did not hold are skipped.
        let resume = if seen.is_empty() {
            None
        } else {
            prefix_end(seen)
        };
        self.next = resume.filter(|_| full);
        Ok(!self.page.entries.is_empty())
    }
}

/// Counts the entries of a column: (key, namespace) pairs, for maps map entries.
///
/// # Errors
/// Those of the store.
pub fn count_entries(store: &dyn ByteStore, column: Column) -> Result<u64> {
    let (mut page, mut next, mut count) = (Page::default(), Vec::new(), 0);
    loop {
        store.scan(column, &next, None, PAGE, &mut page)?;
        count += page.entries.len() as u64;
        match page.entries.pop() {
            Some((last, _)) if page.entries.len() + 1 == PAGE => {
                next = last;
                next.push(0);
            }
            _ => return Ok(count),
        }
    }
}

/// Counts the lists of a list state, each once however many chunks it has.
///
/// # Errors
/// Those of the store.
pub fn count_lists(store: &dyn ByteStore, column: Column) -> Result<u64> {
    let (mut page, mut next, mut count) = (Page::default(), Some(Vec::new()), 0);
    let mut seen = Vec::new();
    while let Some(start) = next {
        store.scan(column, &start, None, PAGE, &mut page)?;
        for (stored, _) in &page.entries {
            if count == 0 || !stored.starts_with(&seen) {
                seen.clone_from(stored);
                count += 1;
            }
        }
        // The other chunks of the last list are jumped over.
        let is_full = page.entries.len() == PAGE;
        next = prefix_end(&seen).filter(|_| is_full);
    }
    Ok(count)
}

/// Counts the (key, namespace) pairs of a map state, each once however many map entries it has.
///
/// # Errors
/// `Corrupt` when a stored key makes no sense; those of the store.
pub fn count_pairs(
    store: &dyn ByteStore,
    column: Column,
    prefix_len: usize,
    meta: &StateMeta,
) -> Result<u64> {
    let (key, namespace) = (&meta.key.schema, &meta.namespace.schema);
    let layout = CompositeLayout::for_sizes(key.fixed_size(), namespace.fixed_size());
    let (mut page, mut next, mut count) = (Page::default(), Some(Vec::new()), 0);
    while let Some(start) = next {
        store.scan(column, &start, None, 1, &mut page)?;
        let Some((stored, _)) = page.entries.first() else {
            break;
        };
        let mut rest = stored
            .get(prefix_len..)
            .ok_or_else(|| Error::corrupt("a stored key is shorter than its key group"))?;
        layout.skip_part(key, &mut rest)?;
        layout.skip_part(namespace, &mut rest)?;
        count += 1;
        // The other map entries of the pair are jumped over.
        next = prefix_end(&stored[..stored.len() - rest.len()]);
    }
    Ok(count)
}
