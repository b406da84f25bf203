use bytes::Bytes;
use futures_util::future::BoxFuture;
use state_api::{
    BatchEntry, ByteStore, CheckpointStorage, Column, EntryCount, Error, KeyGroup, KeyGroupRange,
    KeyedHandle, ObjectHandle, PersistContext, Result, Snapshot, StateMeta, StateSummary,
    WriteBatch,
};
use std::sync::Arc;

use super::composite::put_group_prefix;
use super::group_reader::GroupReader;
use super::group_writer::GroupWriter;
use super::persist::persist_source;
use super::restore::{key_groups, open_columns, restore_groups};
use super::source::{CHUNK_SIZE, GroupSource, Sink};

/// The word under which dirty entries of an object cache stand in handles, beside a store's own snapshot.
pub const WRITE_BACK: &str = "write-back";

/// Stands before a value that follows, and in place of one that was removed.
const REMOVED: u8 = 0;
const PRESENT: u8 = 1;

/// A batch is written to a byte store when it has so many bytes.
const BATCH_BYTES: usize = 1 << 20;

/// A changed entry: its key without group prefix, and the stored value, or `None` if the entry is removed.
pub(crate) type DirtyEntry = (Vec<u8>, Option<Vec<u8>>);

/// The entries of one state that are newer than what the store holds, at the moment of a cut.
pub(crate) trait DirtyColumn: Send {
    fn column(&self) -> Column;

    /// Appends the dirty entries of one key group, by its position in the range, in no order, and lets go of them.
    fn take_group(&mut self, group: usize, out: &mut Vec<DirtyEntry>) -> Result<()>;
}

/// Puts the dirty entries of a cache beside a store's own snapshot, as an object of their own.
///
/// They are written first: what is already there when the other part fails is known, and thrown away.
///
/// `states` are all that the store holds, by column, those without dirty entries included.
pub(crate) fn with_write_back(
    native: Box<dyn Snapshot<Vec<KeyedHandle>>>,
    mut dirty: Vec<Box<dyn DirtyColumn>>,
    states: Vec<(Column, StateMeta)>,
    range: KeyGroupRange,
) -> Box<dyn Snapshot<Vec<KeyedHandle>>> {
    if dirty.is_empty() {
        return native;
    }
    let mut take = |column| {
        let found = dirty.iter().position(|dirty| dirty.column() == column)?;
        Some(dirty.swap_remove(found))
    };
    let with_dirty = |(column, meta)| DirtyState {
        dirty: take(column),
        meta,
        count: 0,
    };
    let states = states.into_iter().map(with_dirty).collect();
    Box::new(WithWriteBack {
        native,
        source: DirtySource { states, range },
    })
}

struct WithWriteBack {
    native: Box<dyn Snapshot<Vec<KeyedHandle>>>,
    source: DirtySource,
}

impl Snapshot<Vec<KeyedHandle>> for WithWriteBack {
    fn persist(
        self: Box<Self>,
        cx: PersistContext,
    ) -> BoxFuture<'static, Result<Vec<KeyedHandle>>> {
        Box::pin(async move {
            let Self { native, source } = *self;
            let mut written = Written {
                storage: Arc::clone(&cx.storage),
                handles: Vec::new(),
            };
            written.handles = persist_source(Box::new(source), WRITE_BACK, cx.clone()).await?;
            let mut handles = native.persist(cx).await?;
            handles.iter_mut().for_each(estimate_counts);
            handles.append(&mut written.handles);
            Ok(handles)
        })
    }
}

/// What the store counted is not all there is, and some of it is removed or set anew.
fn estimate_counts(handle: &mut KeyedHandle) {
    let states = match handle {
        KeyedHandle::KeyGroups(groups) => &mut groups.states,
        KeyedHandle::Incremental(files) => &mut files.states,
    };
    for state in states {
        if let EntryCount::Exact(count) = state.entries {
            state.entries = EntryCount::Estimate(count);
        }
    }
}

/// Objects that are thrown away unless they are taken.
struct Written {
    storage: Arc<dyn CheckpointStorage>,
    handles: Vec<KeyedHandle>,
}

impl Drop for Written {
    fn drop(&mut self) {
        let objects = self.handles.iter().flat_map(KeyedHandle::parts);
        let objects: Vec<&ObjectHandle> = objects.filter_map(|part| part.object()).collect();
        for object in objects {
            self.storage.discard(object);
        }
    }
}

struct DirtySource {
    states: Vec<DirtyState>,
    range: KeyGroupRange,
}

/// One state, and what is dirty of it.
struct DirtyState {
    dirty: Option<Box<dyn DirtyColumn>>,
    meta: StateMeta,
    count: u64,
}

impl GroupSource for DirtySource {
    fn range(&self) -> KeyGroupRange {
        self.range
    }

    fn encode_group(&mut self, group: KeyGroup, sink: &mut Sink<'_>) -> Result<u64> {
        let position = self.range.index_of(group).unwrap_or_default();
        let mut block = std::mem::take(&mut sink.buffer);
        let mut writer = GroupWriter::begin(group, &mut block);
        let mut entries = Vec::new();
        for (number, state) in self.states.iter_mut().enumerate() {
            let Some(dirty) = &mut state.dirty else {
                continue;
            };
            let number = u32::try_from(number)
                .map_err(|_| Error::invalid("more states than can be numbered"))?;
            writer.section(number);
            entries.clear();
            dirty.take_group(position, &mut entries)?;
            state.count += entries.len() as u64;
            for (key, value) in &entries {
                writer.entry_with(
                    |out| out.extend_from_slice(key),
                    |out| match value {
                        Some(value) => {
                            out.push(PRESENT);
                            out.extend_from_slice(value);
                        }
                        None => out.push(REMOVED),
                    },
                );
                if writer.buffered() >= CHUNK_SIZE {
                    sink.send(writer.drain())?;
                }
            }
        }
        let len = writer.finish();
        sink.buffer = block;
        Ok(len)
    }

    fn states(&self) -> Vec<StateSummary> {
        let summary = |state: &DirtyState| StateSummary {
            meta: state.meta.clone(),
            // Some of them are changes of entries that the store's own snapshot counts too.
            entries: EntryCount::Estimate(state.count),
        };
        self.states.iter().map(summary).collect()
    }
}

/// Applies dirty entries of a cache to a store that holds what they are newer than; returns their states by column.
///
/// Stored keys start with the key group in `prefix_len` bytes.
///
/// # Errors
/// `Corrupt` when the bytes make no sense, and those of storage and store.
pub(crate) async fn restore_write_back(
    handles: &[KeyedHandle],
    range: KeyGroupRange,
    prefix_len: usize,
    store: &mut dyn ByteStore,
    storage: &dyn CheckpointStorage,
    restored: &mut Vec<(Column, StateMeta)>,
) -> Result<()> {
    for handle in handles {
        let groups = key_groups(handle, WRITE_BACK)?;
        let columns = open_columns(&groups.states, store, restored)?;
        let load = &mut |group, block: Bytes| apply(group, &block, &columns, prefix_len, store);
        restore_groups(groups, range, storage, load).await?;
    }
    Ok(())
}

/// Applies the block of one key group.
pub(crate) fn apply(
    group: KeyGroup,
    block: &[u8],
    columns: &[Column],
    prefix_len: usize,
    store: &mut dyn ByteStore,
) -> Result<()> {
    let mut reader = GroupReader::open(group, columns.len(), block)?;
    let (mut batch, mut bytes) = (WriteBatch::default(), 0);
    while let Some(section) = reader.next()? {
        // Checked by the reader against the number of columns.
        let Some(&column) = columns.get(section.column as usize) else {
            continue;
        };
        let mut entries = section.entries();
        while let Some((key, value)) = entries.next()? {
            let mut stored = Vec::with_capacity(prefix_len + key.len());
            put_group_prefix(group, prefix_len, &mut stored);
            stored.extend_from_slice(key);
            bytes += stored.len() + value.len();
            batch.entries.push(match value.split_first() {
                Some((&PRESENT, value)) => BatchEntry::Put(column, stored, value.to_vec()),
                Some((&REMOVED, [])) => BatchEntry::Delete(column, stored),
                _ => {
                    return Err(Error::corrupt(
                        "an entry says neither that it is set nor that it is removed",
                    )
                    .with("key group", group));
                }
            });
            if bytes >= BATCH_BYTES {
                store.write(std::mem::take(&mut batch))?;
                bytes = 0;
            }
        }
    }
    if batch.entries.is_empty() {
        Ok(())
    } else {
        store.write(batch)
    }
}
