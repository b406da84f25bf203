//! How do I keep state in an ordered store of my own? Here it is a plain `BTreeMap`.
use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use state_api::{BatchEntry, ByteStore, ByteView, Column, Page, Result, WriteBatch, unknown_column};

/// Columns by number, shared with views; the first write after a view copies what it touches.
#[derive(Clone, Default)]
struct Tree(Vec<(String, Arc<Pairs>)>);
type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

impl Tree {
    fn map(&mut self, column: Column) -> Result<&mut Pairs> {
        let found = self.0.get_mut(column.0 as usize).ok_or_else(|| unknown_column(column))?;
        Ok(Arc::make_mut(&mut found.1))
    }
}

impl ByteView for Tree {
    fn scan(&self, c: Column, start: &[u8], end: Option<&[u8]>, limit: usize, page: &mut Page) -> Result<()> {
        let map = &self.0.get(c.0 as usize).ok_or_else(|| unknown_column(c))?.1;
        let pairs = map.range::<[u8], _>((Bound::Included(start), Bound::Unbounded));
        let pairs = pairs.take_while(|(key, _)| end.is_none_or(|end| key.as_slice() < end)).take(limit);
        page.entries = pairs.map(|(key, value)| (key.clone(), value.clone())).collect();
        Ok(())
    }
}

impl ByteStore for Tree {
    fn open_column(&mut self, name: &str) -> Result<Column> {
        let known = self.0.iter().position(|(known, _)| known == name);
        let at = known.unwrap_or_else(|| {
            self.0.push((name.to_owned(), Arc::default()));
            self.0.len() - 1
        });
        Ok(Column(at as u32))
    }
    fn column_names(&self) -> Vec<String> {
        self.0.iter().map(|(name, _)| name.clone()).collect()
    }
    fn write(&mut self, batch: WriteBatch) -> Result<()> {
        batch.entries.iter().try_for_each(|entry| self.map(entry.column()).map(drop))?;
        batch.entries.into_iter().try_for_each(|entry| match entry {
            BatchEntry::Put(c, key, value) => self.map(c).map(|map| drop(map.insert(key, value))),
            BatchEntry::Merge(c, key, more) => self.map(c).map(|map| map.entry(key).or_default().extend(more)),
            BatchEntry::Delete(c, key) => self.map(c).map(|map| drop(map.remove(&key))),
        })
    }
    fn scan(&self, c: Column, start: &[u8], end: Option<&[u8]>, limit: usize, page: &mut Page) -> Result<()> {
        ByteView::scan(self, c, start, end, limit, page)
    }
    fn view(&mut self) -> Result<Box<dyn ByteView>> {
        Ok(Box::new(self.clone()))
    }
}

fn main() {
    let tree = backend_testkit::ByteBackend::new("tree", |_| Ok(Box::new(Tree::default())));
    backend_testkit::Suite::run(&(Arc::new(tree) as _));
}
