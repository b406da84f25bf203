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
                overlay.clear(composite);
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
    /// All was cleared.
    is_cleared: bool,
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
        self.entries.is_empty() && self.cleared.is_empty() && !self.is_cleared
    }

    /// Learns that a stream cleared what begins with a key.
    fn clear(&mut self, composite: &'a [u8]) {
        if composite.is_empty() {
            self.is_cleared = true;
        } else {
            self.cleared.insert(composite);
        }
    }

    /// Says whether a newer stream cleared the map that an entry is in, or all there was.
    fn hides(&self, key: &[u8]) -> bool {
        if self.is_cleared {
            return true;
        }
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

#[cfg(test)]
mod tests {
    use super::super::change::{put_cleared, put_removed, put_upsert};
    use super::*;

    const GROUP: KeyGroup = KeyGroup(3);

    fn part(write: impl FnOnce(&mut GroupWriter<'_>)) -> Part {
        let mut block = Vec::new();
        let mut writer = GroupWriter::begin(GROUP, &mut block);
        writer.section(0);
        write(&mut writer);
        writer.finish();
        Part {
            block: block.into(),
            columns: [0].into(),
            object: "test".into(),
        }
    }

    /// Merges a base of the keys `a`, `ab`, `b` with streams, oldest first.
    fn merged(streams: &[&dyn Fn(&mut GroupWriter<'_>)]) -> Vec<(String, String)> {
        let base = part(|out| {
            for key in [b"a".as_slice(), b"ab", b"b"] {
                out.entry(key, b"base");
            }
        });
        let parts = GroupParts {
            group: GROUP,
            base: Some(base),
            changes: streams.iter().map(|stream| part(stream)).collect(),
        };
        let mut block = Vec::new();
        merge_group(&parts, 1, &mut block).unwrap();
        if block.is_empty() {
            return Vec::new();
        }
        let mut reader = GroupReader::open(GROUP, 1, &block).unwrap();
        let mut found = Vec::new();
        while let Some(section) = reader.next().unwrap() {
            let mut entries = section.entries();
            while let Some((key, value)) = entries.next().unwrap() {
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                found.push((text(key), text(value)));
            }
        }
        found.sort();
        found
    }

    fn put(out: &mut GroupWriter<'_>, key: &[u8], value: &[u8]) {
        let append = |bytes: &[u8], out: &mut Vec<u8>| out.extend_from_slice(bytes);
        put_upsert(out, |out| append(key, out), |out| append(value, out));
    }

    fn clear(out: &mut GroupWriter<'_>, key: &[u8]) {
        put_cleared(out, |out| out.extend_from_slice(key));
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn clearing_hides_what_older_objects_have_of_what_begins_with_the_key() {
        let older = |out: &mut GroupWriter<'_>| {
            put(out, b"ac", b"older");
            put(out, b"c", b"older");
        };
        let map = |out: &mut GroupWriter<'_>| {
            clear(out, b"a");
            put(out, b"ad", b"newer");
        };
        assert_eq!(
            merged(&[&older, &map]),
            pairs(&[("ad", "newer"), ("b", "base"), ("c", "older")])
        );
        // The empty key begins all keys, whatever else is cleared, before and after it.
        let all = |out: &mut GroupWriter<'_>| {
            clear(out, b"");
            put(out, b"b", b"newer");
            put(out, b"e", b"newer");
        };
        let newest = |out: &mut GroupWriter<'_>| {
            clear(out, b"a");
            put(out, b"ae", b"newest");
            put_removed(out, |out| out.extend_from_slice(b"e"));
        };
        let expected = pairs(&[("b", "newer"), ("e", "newer")]);
        assert_eq!(merged(&[&older, &all]), expected);
        assert_eq!(merged(&[&map, &older, &all]), expected);
        assert_eq!(
            merged(&[&all, &newest]),
            pairs(&[("ae", "newest"), ("b", "newer")])
        );
        assert_eq!(merged(&[&|out| clear(out, b"")]), []);
    }
}
