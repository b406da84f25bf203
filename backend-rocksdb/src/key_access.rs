use rocksdb::{MemtableFactory, Options, SliceTransform};
use state_api::wire::get_varint;
use state_api::{Schema, StateKind, StateMeta};

/// How the keys of a column are read, which says how its write buffers find them.
///
/// A write buffer that is a skip list takes some twenty steps, most of them to memory that is in no cache, where a hash table of
/// what keys start with takes a few; but all of a hash table must be sorted before it is read in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyAccess {
    /// One by one.
    Single,
    /// One by one, or all together that start alike up to the end of key and namespace.
    Together(Prefix),
    /// In order.
    Ordered,
}

/// Where key and namespace end in a stored key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prefix {
    /// Behind so many bytes.
    Fixed(usize),
    /// So many bytes behind a string, which is behind its length, which is behind the key group.
    BehindText { group: usize, namespace: usize },
}

impl KeyAccess {
    /// Returns how the keys of a state are read that start with a key group in `group` bytes.
    pub(crate) fn of(meta: &StateMeta, group: usize) -> Self {
        match meta.kind {
            StateKind::Value | StateKind::Reducing | StateKind::Aggregating => Self::Single,
            StateKind::List | StateKind::Map => {
                Prefix::of(meta, group).map_or(Self::Ordered, Self::Together)
            }
            _ => Self::Ordered,
        }
    }

    /// Returns whether all of a write buffer is sorted before it is read in order.
    pub(crate) fn is_hashed(self) -> bool {
        self != Self::Ordered
    }

    /// Returns whether a range holds nothing but keys that start alike, so that it is read without sorting.
    pub(crate) fn is_together(self, start: &[u8], end: Option<&[u8]>) -> bool {
        let (Self::Together(prefix), Some(end)) = (self, end) else {
            return false;
        };
        prefix
            .take(start)
            .is_some_and(|shared| end.starts_with(shared) || is_right_behind(shared, end))
    }

    /// Has the write buffers of a column find keys by hash, in so many buckets.
    pub(crate) fn hash(self, buckets: usize, options: &mut Options) {
        let transform = match self {
            Self::Ordered => return,
            Self::Single => SliceTransform::create_noop(),
            Self::Together(Prefix::Fixed(len)) => SliceTransform::create_fixed_prefix(len),
            Self::Together(Prefix::BehindText { group, namespace }) => {
                let Some(transform) = behind_text(group, namespace) else {
                    return;
                };
                transform
            }
        };
        options.set_prefix_extractor(transform);
        options.set_memtable_factory(MemtableFactory::HashLinkList {
            bucket_count: buckets,
        });
    }
}

impl Prefix {
    fn of(meta: &StateMeta, group: usize) -> Option<Self> {
        let namespace = meta.namespace.schema.fixed_size()?;
        match (&meta.key.schema, meta.key.schema.fixed_size()) {
            (_, Some(key)) => Some(Self::Fixed(group + key + namespace)),
            (Schema::String | Schema::Bytes, None) => {
                behind_text(group, namespace).map(|_| Self::BehindText { group, namespace })
            }
            _ => None,
        }
    }

    /// Returns what a stored key starts with; `None` for one that ends before that.
    fn take(self, key: &[u8]) -> Option<&[u8]> {
        match self {
            Self::Fixed(len) => key.get(..len),
            Self::BehindText { group, namespace } => text_end(key, group)
                .and_then(|end| end.checked_add(namespace))
                .and_then(|end| key.get(..end)),
        }
    }
}

/// Returns whether `end` is the first key behind all that start with `shared`: what `prefix_end` makes, without making it.
fn is_right_behind(shared: &[u8], end: &[u8]) -> bool {
    let Some(last) = shared.iter().rposition(|&byte| byte != 0xFF) else {
        return false;
    };
    end.len() == last + 1 && end[..last] == shared[..last] && end[last] == shared[last] + 1
}

fn text_end(key: &[u8], group: usize) -> Option<usize> {
    let mut rest = key.get(group..)?;
    let len = get_varint(&mut rest).ok()?;
    (key.len() - rest.len()).checked_add(usize::try_from(len).ok()?)
}

/// RocksDB is given functions, not closures: one for each length of the key group and of the namespaces that there are most.
fn behind_text(group: usize, namespace: usize) -> Option<SliceTransform> {
    let transform = match (group, namespace) {
        (1, 0) => take_behind_text::<1, 0>,
        (1, 8) => take_behind_text::<1, 8>,
        (1, 16) => take_behind_text::<1, 16>,
        (2, 0) => take_behind_text::<2, 0>,
        (2, 8) => take_behind_text::<2, 8>,
        (2, 16) => take_behind_text::<2, 16>,
        _ => return None,
    };
    let name = format!("holdfast.behind-text.{group}.{namespace}");
    Some(SliceTransform::create(name.as_str(), transform, None))
}

/// Takes all of a key that ends too early.
fn take_behind_text<const GROUP: usize, const NAMESPACE: usize>(key: &[u8]) -> &[u8] {
    let prefix = Prefix::BehindText {
        group: GROUP,
        namespace: NAMESPACE,
    };
    prefix.take(key).unwrap_or(key)
}

#[cfg(test)]
#[path = "key_access_tests.rs"]
mod tests;
