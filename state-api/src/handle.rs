use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::{CheckpointId, Error, KeyGroupOffsets, KeyGroupRange, Result, StateMeta};

/// A BLAKE3-256 digest of an object's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; 32]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A path below a root: `/`-separated, no empty, `.` or `..` segment, not absolute.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelPath(Arc<str>);

impl RelPath {
    /// Checks a path.
    ///
    /// # Errors
    /// `InvalidArgument` when the path could leave its root or is not in normal form.
    pub fn new(path: &str) -> Result<Self> {
        let bad_segment = |s: &str| s.is_empty() || s == "." || s == "..";
        if path.len() > 4096
            || path.split('/').any(bad_segment)
            || path.chars().any(|c| c.is_control() || c == '\\')
        {
            return Err(Error::invalid(format!(
                "object path {path:?} is not a plain relative path"
            )));
        }
        Ok(Self(path.into()))
    }

    /// Returns the path.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The folder that an object's path starts from: the job folder that holds the checkpoint, or another one by URL.
///
/// An object under [`Root::Own`] moves along when the checkpoint's folder is moved.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Root {
    /// The job folder in which the metadata that names the object lies.
    Own,
    /// Another folder, by URL; opened only if configuration or a recorded claim names it.
    Url(Arc<str>),
}

/// Points at one immutable object in a store; its name is never used again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectHandle {
    /// Where the path starts.
    pub root: Root,
    /// Path below the root.
    pub path: RelPath,
    /// Length in bytes.
    pub len: u64,
    /// Digest of all bytes.
    pub digest: Digest,
}

impl fmt::Display for ObjectHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.root {
            Root::Own => write!(f, "{}", self.path),
            Root::Url(url) => write!(f, "{}/{}", url.trim_end_matches('/'), self.path),
        }
    }
}

/// Points at snapshot bytes: in the metadata itself, or in an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateHandle {
    /// The bytes travel with the acknowledgement and end up in the metadata.
    Inline(Bytes),
    /// The bytes are an object in the store.
    Object(ObjectHandle),
}

impl StateHandle {
    /// Returns the number of bytes pointed at.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.len() as u64,
            Self::Object(object) => object.len,
        }
    }

    /// Returns whether no bytes are pointed at.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the object, unless the bytes are inline.
    #[must_use]
    pub fn object(&self) -> Option<&ObjectHandle> {
        match self {
            Self::Inline(_) => None,
            Self::Object(object) => Some(object),
        }
    }
}

/// A number of entries, and whether it was counted or guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryCount {
    /// Counted.
    Exact(u64),
    /// Estimated by the store.
    Estimate(u64),
}

/// What a snapshot holds of one state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateSummary {
    /// Name, kind, types and time-to-live.
    pub meta: StateMeta,
    /// Entries: (key, namespace) pairs; for maps the map entries, for lists the lists.
    pub entries: EntryCount,
}

/// Keyed state as one stream of bytes, ordered by key group, with the place of each group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyGroupsHandle {
    /// What the bytes are: `canonical`, `raw`, or a backend's own word.
    pub format: Arc<str>,
    /// Where each key group's bytes start and how many there are.
    pub offsets: KeyGroupOffsets,
    /// The bytes.
    pub bytes: StateHandle,
    /// The states in it, by column number (the position in this list).
    pub states: Vec<StateSummary>,
}

/// A file of an incremental snapshot under the name it has in the backend's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedHandle {
    /// Name in the backend's local folder.
    pub name: Arc<str>,
    /// The bytes.
    pub bytes: StateHandle,
}

/// Keyed state as a set of files, some of them shared with earlier checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncrementalHandle {
    /// The backend's word for its format.
    pub format: Arc<str>,
    /// Identity of the backend instance that the files belong to.
    pub backend_id: Arc<str>,
    /// The checkpoint that this handle was made for.
    pub checkpoint: CheckpointId,
    /// Key groups covered.
    pub range: KeyGroupRange,
    /// Files used by this checkpoint only.
    pub private: Vec<NamedHandle>,
    /// Files that other checkpoints may use as well.
    pub shared: Vec<NamedHandle>,
    /// Bytes written for this checkpoint; the rest was there already.
    pub new_bytes: u64,
    /// The states in it.
    pub states: Vec<StateSummary>,
}

/// Keyed state of one subtask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyedHandle {
    /// A stream ordered by key group.
    KeyGroups(KeyGroupsHandle),
    /// A set of files.
    Incremental(IncrementalHandle),
}

impl KeyedHandle {
    /// Returns the key groups covered.
    #[must_use]
    pub fn range(&self) -> KeyGroupRange {
        match self {
            Self::KeyGroups(h) => h.offsets.range(),
            Self::Incremental(h) => h.range,
        }
    }

    /// Returns the backend's word for the format.
    #[must_use]
    pub fn format(&self) -> &str {
        match self {
            Self::KeyGroups(h) => &h.format,
            Self::Incremental(h) => &h.format,
        }
    }

    /// Returns what is in it, state by state.
    #[must_use]
    pub fn states(&self) -> &[StateSummary] {
        match self {
            Self::KeyGroups(h) => &h.states,
            Self::Incremental(h) => &h.states,
        }
    }

    /// Returns every pointer to bytes in it.
    pub fn parts(&self) -> Box<dyn Iterator<Item = &StateHandle> + '_> {
        match self {
            Self::KeyGroups(h) => Box::new(std::iter::once(&h.bytes)),
            Self::Incremental(h) => {
                Box::new(h.private.iter().chain(&h.shared).map(|file| &file.bytes))
            }
        }
    }
}

/// How an operator state is dealt out again on restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperatorStateMode {
    /// Elements are split evenly.
    Split,
    /// Every subtask gets all elements.
    Union,
    /// A map, the same in every subtask.
    Broadcast,
}

/// One named operator state within a stream of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorStatePart {
    /// Name, kind and types.
    pub meta: StateMeta,
    /// How it is dealt out.
    pub mode: OperatorStateMode,
    /// Offset and length of each element; for broadcast one pair for the whole map.
    pub elements: Vec<(u64, u64)>,
}

/// Operator state of one subtask: elements in one stream of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorStateHandle {
    /// The states in it.
    pub states: Vec<OperatorStatePart>,
    /// The bytes.
    pub bytes: StateHandle,
}

/// Everything that one operator of one subtask put into a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperatorSnapshot {
    /// Keyed state and timers.
    pub managed_keyed: Vec<KeyedHandle>,
    /// Bytes that the operator wrote per key group.
    pub raw_keyed: Vec<KeyGroupsHandle>,
    /// List, union and broadcast state.
    pub managed_operator: Vec<OperatorStateHandle>,
    /// Bytes that the operator wrote in partitions.
    pub raw_operator: Vec<OperatorStateHandle>,
    /// Keyed records that were on their way to the operator when an unaligned checkpoint overtook them, per key group.
    pub in_flight_keyed: Vec<KeyGroupsHandle>,
    /// Records without a key that were on their way to the operator, in partitions.
    pub in_flight: Vec<OperatorStateHandle>,
}

impl OperatorSnapshot {
    /// Returns whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts().next().is_none()
    }

    /// Returns every pointer to bytes in it.
    pub fn parts(&self) -> impl Iterator<Item = &StateHandle> + '_ {
        let keyed = self.managed_keyed.iter().flat_map(KeyedHandle::parts);
        let raw_keyed = self
            .raw_keyed
            .iter()
            .chain(&self.in_flight_keyed)
            .map(|h| &h.bytes);
        let operator = self
            .managed_operator
            .iter()
            .chain(&self.raw_operator)
            .chain(&self.in_flight)
            .map(|h| &h.bytes);
        keyed.chain(raw_keyed).chain(operator)
    }

    /// Returns all bytes pointed at, new and reused.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.parts().map(StateHandle::len).sum()
    }

    /// Returns the bytes written for this checkpoint.
    #[must_use]
    pub fn new_bytes(&self) -> u64 {
        let reused: u64 = self
            .managed_keyed
            .iter()
            .map(|handle| match handle {
                KeyedHandle::KeyGroups(_) => 0,
                KeyedHandle::Incremental(h) => handle
                    .parts()
                    .map(StateHandle::len)
                    .sum::<u64>()
                    .saturating_sub(h.new_bytes),
            })
            .sum();
        self.total_bytes().saturating_sub(reused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_could_leave_its_root_is_refused() {
        assert_eq!(RelPath::new("chk-1/op-0").unwrap().as_str(), "chk-1/op-0");
        for bad in [
            "", "/etc", "a//b", "../x", "a/../b", "./a", "a/", "a\\b", "a\0b",
        ] {
            assert!(RelPath::new(bad).is_err(), "{bad:?}");
        }
    }
}
