use std::collections::{BTreeSet, HashMap};
use std::ops::Bound::{Included, Unbounded};
use std::sync::Arc;

use bytes::Bytes;
use state_api::{Error, KeyGroup, Result};

use super::change::{EntryChange, ListEdit, apply_edits};
use crate::format::{GroupReader, GroupWriter, Section, naming};

/// The block of a key group in one object, and which states its columns are of.
#[derive(Clone, Debug)]
pub struct Part {
    /// The block.
    pub block: Bytes,
    /// The position of each column's state among the states of the handle.
    pub columns: Arc<[u32]>,
    /// The name of the object, for errors.
    pub object: Arc<str>,
}

/// What there is of a key group.
#[derive(Clone, Debug)]
pub struct GroupParts {
    /// The key group.
    pub group: KeyGroup,
    /// Its block in the base, in the canonical layout.
    pub base: Option<Part>,
    /// Its blocks in the streams of changes, oldest first.
    pub changes: Vec<Part>,
}

/// Appends the canonical block of a key group: what is in the base, with the changes. Columns are those of the handle.
///
/// # Errors
/// `Corrupt` when a block is damaged, or when changes are not those of what they are applied to. What was appended until then
/// is to be thrown away.
pub fn merge_group(parts: &GroupParts, states: usize, out: &mut Vec<u8>) -> Result<()> {
    let mut overlays: Vec<Overlay<'_>> = Vec::new();
    overlays.resize_with(states, Overlay::default);
    // Newest first: what is known of a key is never changed by an older stream.
    for part in parts.changes.iter().rev() {
        let mut cleared: Vec<(usize, &[u8])> = Vec::new();
        for_each_section(parts.group, part, |state, section| {
            let overlay = overlays.get_mut(state).ok_or_else(no_state)?;
            let mut entries = section.entries();
            while let Some((key, value)) = entries.next()? {
                match EntryChange::read(value)? {
                    EntryChange::Cleared => cleared.push((state, key)),
                    change => overlay.take(key, change)?,
                }
            }
            Ok(())
        })?;
        for (state, composite) in cleared {
            if let Some(overlay) = overlays.get_mut(state) {
                overlay.cleared.insert(composite);
            }
        }
    }
    let mut writer = GroupWriter::begin(parts.group, out);
    if let Some(base) = &parts.base {
        for_each_section(parts.group, base, |state, section| {
            let column = u32::try_from(state).map_err(|_| no_state())?;
            let overlay = overlays.get_mut(state).ok_or_else(no_state)?;
            if overlay.is_empty() {
                writer.carry_section(column, section.entries, section.bytes);
                return Ok(());
            }
            writer.section(column);
            let mut entries = section.entries();
            while let Some((key, value)) = entries.next()? {
                if overlay.hides(key) {
                    continue;
                }
                match overlay.entries.get_mut(key) {
                    None => writer.entry(key, value),
                    Some(Overlaid::Edited(edits)) => {
                        let list = apply_edits(value, edits.iter().rev())?;
                        writer.entry(key, &list);
                        overlay.entries.insert(key, Overlaid::Gone);
                    }
                    Some(Overlaid::Is(_) | Overlaid::Becomes(_) | Overlaid::Gone) => {}
                }
            }
            Ok(())
        })?;
    }
    for (column, overlay) in (0..).zip(&overlays) {
        writer.section(column);
        for (key, entry) in &overlay.entries {
            match entry {
                Overlaid::Is(value) => writer.entry(key, value),
                Overlaid::Becomes(value) => writer.entry(key, value),
                Overlaid::Gone => {}
                Overlaid::Edited(_) => {
                    return Err(Error::corrupt(
                        "a change is of a list that is not there before it",
                    )
                    .with("key group", parts.group));
                }
            }
        }
    }
    writer.finish();
    Ok(())
}

#[cold]
fn no_state() -> Error {
    Error::corrupt("a section is of a state that the handle does not list")
}

fn for_each_section<'p>(
    group: KeyGroup,
    part: &'p Part,
    mut visit: impl FnMut(usize, Section<'p>) -> Result<()>,
) -> Result<()> {
    let mut visit_all = || {
        let mut reader = GroupReader::open(group, part.columns.len(), &part.block)?;
        while let Some(section) = reader.next()? {
            let state = part.columns.get(section.column as usize);
            let state = *state.ok_or_else(no_state)? as usize;
            visit(state, section).map_err(|e| e.with("key group", group))?;
        }
        Ok(())
    };
    visit_all().map_err(|e| naming(e, &part.object))
}

/// What the changes say of one state.
#[derive(Default)]
struct Overlay<'a> {
    entries: HashMap<&'a [u8], Overlaid<'a>>,
    /// What the keys of cleared maps begin with. None begins with another: key and namespace say where they end.
    cleared: BTreeSet<&'a [u8]>,
}

enum Overlaid<'a> {
    Is(&'a [u8]),
    Becomes(Vec<u8>),
    Gone,
    /// Changes of what an older stream or the base has, newest first.
    Edited(Vec<ListEdit<'a>>),
}

impl<'a> Overlay<'a> {
    fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.cleared.is_empty()
    }

    /// Says whether a newer stream cleared the map that an entry is in.
    fn hides(&self, key: &[u8]) -> bool {
        let mut before = self.cleared.range::<[u8], _>((Unbounded, Included(key)));
        before
            .next_back()
            .is_some_and(|cleared| key.starts_with(cleared))
    }

    /// Learns what a stream says of a key; newer ones came before.
    fn take(&mut self, key: &'a [u8], change: EntryChange<'a>) -> Result<()> {
        if self.hides(key) {
            return Ok(());
        }
        match (self.entries.get_mut(key), change) {
            (None, EntryChange::Put(value)) => {
                self.entries.insert(key, Overlaid::Is(value));
            }
            (None, EntryChange::ListEdit(edit)) => {
                self.entries.insert(key, Overlaid::Edited(vec![edit]));
            }
            (None, EntryChange::Removed | EntryChange::Cleared) => {
                self.entries.insert(key, Overlaid::Gone);
            }
            (Some(Overlaid::Edited(edits)), EntryChange::ListEdit(edit)) => edits.push(edit),
            (Some(known @ Overlaid::Edited(_)), EntryChange::Put(value)) => {
                let Overlaid::Edited(edits) = std::mem::replace(known, Overlaid::Gone) else {
                    return Ok(());
                };
                *known = Overlaid::Becomes(apply_edits(value, edits.iter().rev())?);
            }
            (Some(Overlaid::Edited(_)), EntryChange::Removed | EntryChange::Cleared) => {
                return Err(Error::corrupt("a change is of a list that was removed"));
            }
            (Some(Overlaid::Is(_) | Overlaid::Becomes(_) | Overlaid::Gone), _) => {}
        }
        Ok(())
    }
}
