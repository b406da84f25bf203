use std::collections::BTreeMap;

use managed_state::format::{GroupReader, restore_groups};
use state_api::{CheckpointStorage, Error, KeyGroup, KeyedHandle, Result, StateKind};

use crate::executor::block_on;
use crate::setup::Checkpoint;

/// What a canonical savepoint holds of one state: kind and encoded entries by key group and key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpedState {
    /// Kind.
    pub kind: StateKind,
    /// Values by key group and what follows it in a stored key.
    pub entries: BTreeMap<(KeyGroup, Vec<u8>), Vec<u8>>,
}

/// What a canonical savepoint holds, by state name: equal contents give equal dumps, whichever backend wrote them.
pub type Dump = BTreeMap<String, DumpedState>;

/// Reads a canonical savepoint whole.
///
/// # Errors
/// `Incompatible` for a handle in another format, `Corrupt` for damaged bytes or an entry that is there twice; those of the storage.
pub fn dump(checkpoint: &Checkpoint, storage: &dyn CheckpointStorage) -> Result<Dump> {
    let mut dump = Dump::new();
    for handle in checkpoint.all() {
        let KeyedHandle::KeyGroups(groups) = handle else {
            return Err(Error::incompatible(
                "a savepoint holds a handle that is not canonical",
            ));
        };
        for state in &groups.states {
            let new = || DumpedState {
                kind: state.meta.kind,
                entries: BTreeMap::new(),
            };
            dump.entry(state.meta.name.to_string()).or_insert_with(new);
        }
        let mut load = |group: KeyGroup, block: bytes::Bytes| {
            let mut reader = GroupReader::open(group, groups.states.len(), &block)?;
            while let Some(section) = reader.next()? {
                let state = groups
                    .states
                    .get(section.column as usize)
                    .and_then(|state| dump.get_mut(&*state.meta.name))
                    .ok_or_else(|| Error::corrupt("a section names no state"))?;
                let mut entries = section.entries();
                while let Some((key, value)) = entries.next()? {
                    if state
                        .entries
                        .insert((group, key.to_vec()), value.to_vec())
                        .is_some()
                    {
                        return Err(
                            Error::corrupt("an entry is there twice").with("key group", group)
                        );
                    }
                }
            }
            Ok(())
        };
        block_on(restore_groups(groups, handle.range(), storage, &mut load))?;
    }
    Ok(dump)
}
