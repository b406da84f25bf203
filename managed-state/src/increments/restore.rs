use state_api::{
    BatchEntry, ByteStore, Column, Error, KeyGroupRange, KeyedHandle, NamedHandle, RestoreContext,
    Result, StateMeta, WriteBatch, read_pieces,
};

use super::pairs::{PairReader, Record};
use crate::format::{group_of_prefix, open_columns};

/// Fills an empty byte store with the key groups of `range` out of chains of objects; returns the states by column, which is
/// named as its state.
///
/// Stored keys start with the key group in `prefix_len` bytes. Memory does not grow with the objects.
///
/// # Errors
/// `Corrupt`, naming the object, for bytes that are missing or damaged; `Incompatible` for a handle of another kind, or when two
/// handles contradict each other about a state; those of store and storage.
pub async fn restore_pairs(
    handles: &[KeyedHandle],
    range: KeyGroupRange,
    prefix_len: usize,
    store: &mut dyn ByteStore,
    cx: &RestoreContext,
) -> Result<Vec<(Column, StateMeta)>> {
    let mut states = Vec::new();
    for handle in handles {
        let KeyedHandle::Incremental(chain) = handle else {
            return Err(Error::incompatible(
                "a snapshot of pairs is a set of objects, not one stream",
            ));
        };
        open_columns(&chain.states, store, &mut states)?;
        let mut into = Filling {
            store: &mut *store,
            states: &states,
            range: range.intersect(chain.range),
            prefix_len,
            column: None,
        };
        for file in chain.private.iter().chain(&chain.shared) {
            into.file(file, cx)
                .await
                .map_err(|e| e.with("file", &file.name))?;
        }
    }
    Ok(states)
}

struct Filling<'a> {
    store: &'a mut dyn ByteStore,
    states: &'a [(Column, StateMeta)],
    range: KeyGroupRange,
    prefix_len: usize,
    /// The column that the records at hand are of.
    column: Option<Column>,
}

impl Filling<'_> {
    async fn file(&mut self, file: &NamedHandle, cx: &RestoreContext) -> Result<()> {
        self.column = None;
        let mut reader = PairReader::new(file.bytes.len());
        read_pieces(&*cx.storage, &file.bytes, |piece| {
            let mut batch = WriteBatch::default();
            reader.read(&piece, |record| self.take(record, &mut batch))?;
            self.store.write(batch)
        })
        .await?;
        reader.finish()
    }

    fn take(&mut self, record: Record<'_>, batch: &mut WriteBatch) -> Result<()> {
        let key = match record {
            Record::Column(name) => {
                let mut states = self.states.iter();
                let named = states.find(|(_, meta)| meta.name.as_bytes() == name);
                let unknown =
                    || Error::corrupt("the pairs are of a state that the handle does not list");
                self.column = Some(named.ok_or_else(unknown)?.0);
                return Ok(());
            }
            Record::Put(key, _) | Record::Removed(key) => key,
        };
        let column = self
            .column
            .ok_or_else(|| Error::corrupt("a pair is of no state"))?;
        let group = group_of_prefix(key, self.prefix_len)
            .ok_or_else(|| Error::corrupt("a key is shorter than the number of its key group"))?;
        if self.range.contains(group) {
            batch.entries.push(match record {
                Record::Put(key, value) => BatchEntry::Put(column, key.to_vec(), value.to_vec()),
                _ => BatchEntry::Delete(column, key.to_vec()),
            });
        }
        Ok(())
    }
}
