use state_api::{Error, Result, StateKey};

use super::at::At;
use super::states::{KeyedStates, Slots};
use crate::bytes::KeyPages;
use crate::live::PageCursor;

/// A position in the (key, namespace) pairs of a state.
enum Walk<K, N> {
    Live { group: usize, cursor: PageCursor },
    Bytes(KeyPages<K, N>),
}

impl<K: StateKey> KeyedStates<K> {
    /// Returns each key once that has something in a state and namespace; none for a name that is not registered.
    ///
    /// # Errors
    /// `InvalidArgument` when the state has namespaces of another type; those of the backend.
    pub fn keys<N: StateKey>(&mut self, state: &str, namespace: &N) -> Result<Vec<K>> {
        let pairs = self.keys_and_namespaces::<N>(state)?;
        Ok(pairs
            .into_iter()
            .filter(|(_, found)| found == namespace)
            .map(|(key, _)| key)
            .collect())
    }

    /// Returns each pair of key and namespace once that has something in a state; none for a name that is not registered.
    ///
    /// # Errors
    /// As [`keys`](Self::keys).
    pub fn keys_and_namespaces<N: StateKey>(&mut self, state: &str) -> Result<Vec<(K, N)>> {
        let mut all = Vec::new();
        let Some((index, mut walk)) = self.walk::<N>(state)? else {
            return Ok(all);
        };
        while self.next_page(index, &mut walk, &mut all)? {}
        Ok(all)
    }

    /// Calls `f` with the states bound to each key that has something in a state and namespace.
    ///
    /// `f` may change or clear this state and any other. Keys that come while it runs may be left out. Keys are read in
    /// pages, so the state need not fit into memory twice.
    ///
    /// # Errors
    /// Those of `f`; as [`keys`](Self::keys).
    pub fn for_each_key<N: StateKey>(
        &mut self,
        state: &str,
        namespace: &N,
        mut f: impl FnMut(&mut At<'_, K>) -> Result<()>,
    ) -> Result<()> {
        let Some((index, mut walk)) = self.walk::<N>(state)? else {
            return Ok(());
        };
        let mut page: Vec<(K, N)> = Vec::new();
        loop {
            page.clear();
            let more = self.next_page(index, &mut walk, &mut page)?;
            for (key, _) in page.iter().filter(|(_, found)| found == namespace) {
                f(&mut self.at(key))?;
            }
            if !more {
                return Ok(());
            }
        }
    }

    fn walk<N: StateKey>(&mut self, state: &str) -> Result<Option<(usize, Walk<K, N>)>> {
        let Some(index) = self.names.get(state).map(|index| *index as usize) else {
            return Ok(None);
        };
        let namespace = match &self.slots {
            Slots::Live(live) => live.slots[index].slot.meta().namespace.clone(),
            Slots::Bytes(bytes) => bytes.meta(index)?.namespace.clone(),
        };
        if namespace.schema != N::schema() {
            return Err(Error::invalid("the state has namespaces of another type")
                .with("state", state)
                .with("namespace", namespace));
        }
        Ok(Some(match &mut self.slots {
            Slots::Live(_) => (
                index,
                Walk::Live {
                    group: 0,
                    cursor: PageCursor::default(),
                },
            ),
            Slots::Bytes(bytes) => {
                // What changes from here on belongs to keys that were handed out.
                bytes.flush(index)?;
                (
                    index,
                    Walk::Bytes(KeyPages::new(bytes.column(index)?, bytes.prefix_len())),
                )
            }
        }))
    }

    /// Appends the next page of pairs; returns false if there is none after it.
    fn next_page<N: StateKey>(
        &self,
        index: usize,
        walk: &mut Walk<K, N>,
        pairs: &mut Vec<(K, N)>,
    ) -> Result<bool> {
        match (walk, &self.slots) {
            (Walk::Live { group, cursor }, Slots::Live(live)) => {
                if *group >= self.cx.range.len() {
                    return Ok(false);
                }
                if !live.slots[index].slot.pairs_page(*group, cursor, pairs)? {
                    *group += 1;
                    *cursor = PageCursor::default();
                }
                Ok(*group < self.cx.range.len())
            }
            (Walk::Bytes(pages), Slots::Bytes(bytes)) => {
                pages.next_page(bytes.store.as_ref(), pairs)
            }
            _ => Err(Error::bug("a walk over the other representation")),
        }
    }
}
