use std::sync::Arc;

use state_api::{
    ByteStore, Clock, CodecKind, Column, Error, Page, Result, StateKey, StateMeta, StateType,
    TtlConfig, prefix_end,
};

use super::key::ByteKey;
use super::packer::Limits;
use super::value::take_up;
use crate::format::{CompositeLayout, split_timestamp};

/// What one state keeps from record to record: its column, how its values are stored, and buffers.
#[derive(Debug)]
pub struct ByteState {
    column: Column,
    layout: CompositeLayout,
    codec: CodecKind,
    name: Arc<str>,
    ttl: Option<TtlConfig>,
    clock: Arc<dyn Clock>,
    /// The stored key of the access at hand.
    pub(super) key: Vec<u8>,
    /// The stored value of the access at hand.
    pub(super) value: Vec<u8>,
    pub(super) page: Page,
    /// A chunk of the list of the access at hand.
    pub(super) chunk: Vec<u8>,
    /// Whether a list of the state may stand in chunks.
    pub(super) has_chunks: bool,
    limits: Limits,
}

/// Bytes of elements in a chunk of a list.
const LIST_CHUNK: usize = 4 << 10;

impl ByteState {
    /// Creates the state of a column; layout, codec and name are taken from its description.
    #[must_use]
    pub fn new(
        column: Column,
        meta: &StateMeta,
        ttl: Option<TtlConfig>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let layout = CompositeLayout::for_sizes(
            meta.key.schema.fixed_size(),
            meta.namespace.schema.fixed_size(),
        );
        Self {
            column,
            layout,
            codec: meta.value.codec,
            name: Arc::clone(&meta.name),
            ttl,
            clock,
            key: Vec::new(),
            value: Vec::new(),
            page: Page::default(),
            chunk: Vec::new(),
            has_chunks: true,
            limits: Limits::of_chunk(LIST_CHUNK),
        }
    }

    /// Cuts lists into chunks of so many bytes; 4 KiB is the default.
    #[must_use]
    pub fn with_list_chunks(mut self, bytes: usize) -> Self {
        self.limits = Limits::of_chunk(bytes);
        self
    }

    /// Says that nothing was stored before, so that lists need not be read to be removed until one of them is cut.
    #[must_use]
    pub fn starting_empty(mut self) -> Self {
        self.has_chunks = false;
        self
    }

    /// Returns the column.
    #[must_use]
    pub fn column(&self) -> Column {
        self.column
    }

    /// Returns the layout of stored keys.
    #[must_use]
    pub fn layout(&self) -> CompositeLayout {
        self.layout
    }

    /// Returns the name of the state.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns the time-to-live.
    #[must_use]
    pub fn ttl(&self) -> Option<TtlConfig> {
        self.ttl
    }

    /// Returns the time in milliseconds.
    pub(crate) fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    /// Binds the state to a key and a namespace.
    #[inline]
    pub fn at<'a, N: StateKey>(
        &'a mut self,
        store: &'a mut dyn ByteStore,
        key: &ByteKey,
        namespace: &N,
    ) -> Located<'a> {
        self.key.clear();
        self.key.extend_from_slice(key.prefix());
        self.layout
            .put_encoded_key(key.encoded(), namespace, &mut self.key);
        Located {
            composite_len: self.key.len(),
            store,
            state: self,
        }
    }
}

/// A state bound to one key and namespace.
pub struct Located<'a> {
    pub(super) store: &'a mut dyn ByteStore,
    pub(super) state: &'a mut ByteState,
    /// Length of group prefix, key and namespace; behind it stands the map key.
    composite_len: usize,
}

/// What was found under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    Live,
    /// Expired, but still there.
    Expired,
}

impl Located<'_> {
    pub(super) fn codec(&self) -> CodecKind {
        self.state.codec
    }

    pub(super) fn ttl(&self) -> Option<TtlConfig> {
        self.state.ttl
    }

    pub(super) fn limits(&self) -> Limits {
        self.state.limits
    }

    pub(super) fn column(&self) -> Column {
        self.state.column
    }

    /// Returns the time for a new timestamp; `None` without time-to-live.
    #[inline]
    pub(super) fn stamp(&self) -> Option<i64> {
        self.state.ttl.is_some().then(|| self.state.clock.now_ms())
    }

    #[inline]
    pub(super) fn renews_on_read(&self) -> bool {
        self.state.ttl.is_some_and(|ttl| ttl.renews_on_read())
    }

    pub(super) fn returns_expired(&self) -> bool {
        self.state.ttl.is_some_and(|ttl| ttl.returns_expired())
    }

    /// Names the state in an error about stored bytes.
    #[cold]
    pub(super) fn naming(&self, error: Error) -> Error {
        error.with("state", &self.state.name)
    }

    /// Goes back from a map key to key and namespace.
    #[inline]
    pub(super) fn truncate(&mut self) {
        self.state.key.truncate(self.composite_len);
    }

    /// Returns group prefix, key and namespace.
    pub(super) fn composite(&self) -> &[u8] {
        self.state.key.get(..self.composite_len).unwrap_or_default()
    }

    pub(super) fn composite_len(&self) -> usize {
        self.composite_len
    }

    /// Goes on to a map key, which the function appends.
    pub(crate) fn push(&mut self, map_key: impl FnOnce(&mut Vec<u8>)) {
        self.truncate();
        map_key(&mut self.state.key);
    }

    /// Reads a value and its timestamp, expired or not; 0 stands for no timestamp.
    pub(crate) fn load<T: StateType>(&mut self) -> Result<Option<(T, i64)>> {
        if !self.read_raw()? {
            return Ok(None);
        }
        let stamp = match self.state.ttl {
            Some(_) => {
                let split = split_timestamp(&self.state.value);
                split.map_err(|e| self.naming(e))?.0
            }
            None => 0,
        };
        Ok(Some((self.decode()?, stamp)))
    }

    /// Reads a value to change it: an expired one is none. The flag says whether something is stored.
    pub(crate) fn take_up<T: StateType>(&mut self) -> Result<(Option<T>, bool)> {
        take_up(self)
    }

    /// Reads the stored value into the buffer.
    #[inline]
    pub(super) fn read_raw(&mut self) -> Result<bool> {
        let ByteState {
            column, key, value, ..
        } = &mut *self.state;
        self.store.get(*column, key, value)
    }

    /// Reads a stored value that is one value, and looks at its timestamp.
    #[inline]
    pub(super) fn read(&mut self) -> Result<Found> {
        if !self.read_raw()? {
            return Ok(Found::Nothing);
        }
        let Some(ttl) = self.state.ttl else {
            return Ok(Found::Live);
        };
        let (stamp, _) = split_timestamp(&self.state.value).map_err(|e| self.naming(e))?;
        let expired = ttl.is_expired(stamp, self.state.clock.now_ms());
        Ok(if expired { Found::Expired } else { Found::Live })
    }

    /// Decodes what was read.
    #[inline]
    pub(super) fn decode<T: StateType>(&self) -> Result<T> {
        let body = if self.state.ttl.is_some() {
            self.state.value.get(8..)
        } else {
            Some(&self.state.value[..])
        };
        self.state
            .codec
            .decode_all(body.unwrap_or_default())
            .map_err(|e| self.naming(e))
    }

    /// Renews the timestamp of what was read.
    pub(super) fn renew(&mut self) -> Result<()> {
        let now = self.state.clock.now_ms();
        if let Some(stamp) = self.state.value.first_chunk_mut() {
            *stamp = now.to_le_bytes();
        }
        self.put()
    }

    /// Stores a value with the time of now.
    #[inline]
    pub(crate) fn write<T: StateType>(&mut self, value: &T) -> Result<()> {
        let stamp = self.stamp();
        self.state.value.clear();
        put_stamped(self.state.codec, stamp, value, &mut self.state.value);
        self.put()
    }

    /// Stores the buffer.
    #[inline]
    pub(super) fn put(&mut self) -> Result<()> {
        let ByteState {
            column, key, value, ..
        } = &mut *self.state;
        self.store.put(*column, key, value)
    }

    pub(crate) fn delete(&mut self) -> Result<()> {
        self.store.delete(self.state.column, &self.state.key)
    }

    /// Removes everything under key and namespace, whatever the map key.
    pub(super) fn delete_all(&mut self) -> Result<()> {
        let end = prefix_end(self.composite());
        self.store.delete_range(
            self.state.column,
            &self.state.key[..self.composite_len],
            end.as_deref(),
        )
    }
}

/// Appends `[timestamp] ‖ value`.
#[inline]
pub(crate) fn put_stamped<T: StateType>(
    codec: CodecKind,
    stamp: Option<i64>,
    value: &T,
    out: &mut Vec<u8>,
) {
    if let Some(ms) = stamp {
        out.extend_from_slice(&ms.to_le_bytes());
    }
    codec.encode(value, out);
}
