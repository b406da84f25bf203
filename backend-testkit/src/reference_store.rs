use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use imbl::OrdMap;
use state_api::{
    BackendContext, BackendFactory, BatchEntry, ByteStore, ByteView, Column, Error, KeyedBackend,
    ObjectCacheBudget, Page, Result, WriteBatch, unknown_column,
};

/// The byte store that others are compared with: sorted maps in memory that share structure with their views.
///
/// Simple on purpose, and the template for a store of one's own: what `state-api` asks of a [`ByteStore`] is here in the
/// fewest words. It has no snapshots of its own, so its state goes to the store in the canonical format.
#[derive(Clone, Debug, Default)]
pub struct ReferenceStore {
    /// Names of the columns; the position is the number of the column.
    names: Vec<String>,
    columns: Vec<Pairs>,
    object_cache: Option<Arc<ObjectCacheBudget>>,
}

type Pairs = OrdMap<Bytes, Bytes>;

impl ReferenceStore {
    /// Creates an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for a cache of live objects in front of the store, out of this budget.
    #[must_use]
    pub fn with_object_cache(mut self, budget: Arc<ObjectCacheBudget>) -> Self {
        self.object_cache = Some(budget);
        self
    }

    fn column(&self, column: Column) -> Result<&Pairs> {
        self.columns
            .get(column.0 as usize)
            .ok_or_else(|| unknown_column(column))
    }

    fn column_mut(&mut self, column: Column) -> Result<&mut Pairs> {
        self.columns
            .get_mut(column.0 as usize)
            .ok_or_else(|| unknown_column(column))
    }

    /// Returns the pairs of a range in ascending order.
    fn range<'a>(
        &'a self,
        column: Column,
        start: &'a [u8],
        end: Option<&'a [u8]>,
    ) -> Result<impl DoubleEndedIterator<Item = (&'a Bytes, &'a Bytes)>> {
        let pairs = self.column(column)?;
        // A range that ends before it starts is empty; the map would panic.
        let end = end.map(|end| end.max(start));
        let bounds = (
            Bound::Included(start),
            end.map_or(Bound::Unbounded, Bound::Excluded),
        );
        Ok(pairs.range::<_, [u8]>(bounds))
    }
}

fn fill<'a>(page: &mut Page, pairs: impl Iterator<Item = (&'a Bytes, &'a Bytes)>) {
    page.entries.clear();
    page.entries
        .extend(pairs.map(|(key, value)| (key.to_vec(), value.to_vec())));
}

impl ByteStore for ReferenceStore {
    fn open_column(&mut self, name: &str) -> Result<Column> {
        let known = self.names.iter().position(|known| known == name);
        let position = known.unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.columns.push(Pairs::new());
            self.names.len() - 1
        });
        u32::try_from(position)
            .map(Column)
            .map_err(|_| Error::limit("a store has too many columns"))
    }

    fn column_names(&self) -> Vec<String> {
        self.names.clone()
    }

    fn get(&self, column: Column, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let found = self.column(column)?.get(key);
        value.extend_from_slice(found.map_or(&[], AsRef::as_ref));
        Ok(found.is_some())
    }

    fn put(&mut self, column: Column, key: &[u8], value: &[u8]) -> Result<()> {
        self.column_mut(column)?
            .insert(Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
        Ok(())
    }

    fn delete(&mut self, column: Column, key: &[u8]) -> Result<()> {
        self.column_mut(column)?.remove(key);
        Ok(())
    }

    fn delete_range(&mut self, column: Column, start: &[u8], end: Option<&[u8]>) -> Result<()> {
        let doomed: Vec<Bytes> = self
            .range(column, start, end)?
            .map(|(key, _)| key.clone())
            .collect();
        let pairs = self.column_mut(column)?;
        for key in doomed {
            pairs.remove(&key);
        }
        Ok(())
    }

    fn write(&mut self, batch: WriteBatch) -> Result<()> {
        // Nothing but an unknown column can fail, so all or none means looking at the columns first.
        for entry in &batch.entries {
            let (BatchEntry::Put(column, ..)
            | BatchEntry::Merge(column, ..)
            | BatchEntry::Delete(column, _)) = entry;
            self.column(*column)?;
        }
        for entry in batch.entries {
            match entry {
                BatchEntry::Put(column, key, value) => {
                    self.column_mut(column)?.insert(key.into(), value.into());
                }
                BatchEntry::Merge(column, key, operand) => self.merge(column, &key, &operand)?,
                BatchEntry::Delete(column, key) => self.delete(column, &key)?,
            }
        }
        Ok(())
    }

    fn scan(
        &self,
        column: Column,
        start: &[u8],
        end: Option<&[u8]>,
        limit: usize,
        page: &mut Page,
    ) -> Result<()> {
        fill(page, self.range(column, start, end)?.take(limit));
        Ok(())
    }

    fn scan_last(
        &self,
        column: Column,
        start: &[u8],
        end: Option<&[u8]>,
        page: &mut Page,
    ) -> Result<()> {
        fill(
            page,
            self.range(column, start, end)?.next_back().into_iter(),
        );
        Ok(())
    }

    fn view(&mut self) -> Result<Box<dyn ByteView>> {
        // Shares all nodes; a later write copies the few that it touches.
        Ok(Box::new(self.clone()))
    }

    fn object_cache(&self) -> Option<Arc<ObjectCacheBudget>> {
        self.object_cache.clone()
    }
}

impl ByteView for ReferenceStore {
    fn scan(
        &self,
        column: Column,
        start: &[u8],
        end: Option<&[u8]>,
        limit: usize,
        page: &mut Page,
    ) -> Result<()> {
        ByteStore::scan(self, column, start, end, limit, page)
    }
}

/// Makes [`ReferenceStore`]s; known to configurations as `reference`.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReferenceBackend;

impl BackendFactory for ReferenceBackend {
    fn name(&self) -> &str {
        "reference"
    }

    fn create(&self, cx: &BackendContext) -> Result<KeyedBackend> {
        if let Some(option) = cx.options.keys().next() {
            return Err(
                Error::config("the reference backend has no options").with("option", option)
            );
        }
        Ok(KeyedBackend::Bytes(Box::new(ReferenceStore::new())))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use state_api::ErrorKind;

    use super::*;

    fn scan(
        store: &ReferenceStore,
        column: Column,
        start: &[u8],
        end: Option<&[u8]>,
        limit: usize,
    ) -> Vec<Vec<u8>> {
        let mut page = Page::default();
        ByteStore::scan(store, column, start, end, limit, &mut page).unwrap();
        page.entries.into_iter().map(|(key, _)| key).collect()
    }

    #[test]
    fn columns_are_apart_and_known_by_name() {
        let mut store = ReferenceStore::new();
        let (a, b) = (
            store.open_column("a").unwrap(),
            store.open_column("b").unwrap(),
        );
        assert_eq!(store.open_column("a").unwrap(), a);
        assert_eq!(store.column_names(), ["a", "b"]);
        store.put(a, b"k", b"1").unwrap();
        let mut value = vec![9];
        assert!(!store.get(b, b"k", &mut value).unwrap());
        assert_eq!(value, []);
        assert!(store.get(a, b"k", &mut value).unwrap());
        assert_eq!(value, b"1");
        assert_eq!(
            store.put(Column(2), b"k", b"v").unwrap_err().kind(),
            ErrorKind::InvalidArgument
        );
    }

    #[test]
    fn ranges_include_their_start_and_exclude_their_end() {
        let mut store = ReferenceStore::new();
        let a = store.open_column("a").unwrap();
        for key in [&b"a"[..], b"ab", b"b", b"c"] {
            store.put(a, key, b"").unwrap();
        }
        assert_eq!(scan(&store, a, b"ab", Some(b"c"), 9), [&b"ab"[..], b"b"]);
        assert_eq!(scan(&store, a, b"", None, 2), [&b"a"[..], b"ab"]);
        assert_eq!(scan(&store, a, b"c", Some(b"a"), 9), Vec::<Vec<u8>>::new());
        let mut page = Page::default();
        store.scan_last(a, b"a", Some(b"b"), &mut page).unwrap();
        assert_eq!(page.entries, [(b"ab".to_vec(), vec![])]);
        store.scan_last(a, b"d", None, &mut page).unwrap();
        assert_eq!(page.entries, []);
        store.delete_range(a, b"c", Some(b"a")).unwrap();
        store.delete_range(a, b"ab", Some(b"c")).unwrap();
        assert_eq!(scan(&store, a, b"", None, 9), [&b"a"[..], b"c"]);
    }

    #[test]
    fn a_batch_is_applied_in_order_and_not_at_all_if_part_of_it_is_wrong() {
        let mut store = ReferenceStore::new();
        let a = store.open_column("a").unwrap();
        let put = |value: &[u8]| BatchEntry::Put(a, b"k".to_vec(), value.to_vec());
        let wrong = BatchEntry::Delete(Column(7), b"k".to_vec());
        store
            .write(WriteBatch {
                entries: vec![put(b"1"), wrong],
            })
            .unwrap_err();
        assert_eq!(scan(&store, a, b"", None, 9).len(), 0);
        let merge = BatchEntry::Merge(a, b"k".to_vec(), b"+".to_vec());
        let delete = BatchEntry::Delete(a, b"k".to_vec());
        store
            .write(WriteBatch {
                entries: vec![put(b"1"), delete, merge.clone(), put(b"2"), merge],
            })
            .unwrap();
        let mut value = Vec::new();
        store.get(a, b"k", &mut value).unwrap();
        assert_eq!(value, b"2+");
    }

    proptest! {
        #[test]
        fn a_view_never_sees_a_later_write(
            before in proptest::collection::btree_map(proptest::collection::vec(0u8..4, 0..5), any::<u8>(), 0..200),
            after in proptest::collection::vec((proptest::collection::vec(0u8..4, 0..5), proptest::option::of(any::<u8>())), 0..200),
        ) {
            let mut store = ReferenceStore::new();
            let a = store.open_column("a").unwrap();
            for (key, value) in &before {
                store.put(a, key, &[*value]).unwrap();
            }
            let view = store.view().unwrap();
            let mut model: BTreeMap<Vec<u8>, u8> = before.clone();
            for (key, value) in after {
                match value {
                    Some(value) => {
                        store.put(a, &key, &[value]).unwrap();
                        model.insert(key, value);
                    }
                    None => {
                        store.delete(a, &key).unwrap();
                        model.remove(&key);
                    }
                }
            }
            let pairs = |map: &BTreeMap<Vec<u8>, u8>| map.iter().map(|(k, v)| (k.clone(), vec![*v])).collect::<Vec<_>>();
            let mut page = Page::default();
            view.scan(a, &[], None, usize::MAX, &mut page).unwrap();
            prop_assert_eq!(&page.entries, &pairs(&before));
            ByteStore::scan(&store, a, &[], None, usize::MAX, &mut page).unwrap();
            prop_assert_eq!(&page.entries, &pairs(&model));
        }
    }
}
