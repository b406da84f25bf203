//! What the set of states needs from a state of any type.
use std::any::Any;
use std::sync::Arc;

use bytes::Bytes;
use state_api::compat::{check, migrate};
use state_api::{
    Compatibility, Error, OperatorStateMode, OperatorStatePart, Position, Result, StateMeta,
    StateType, TypeMeta,
};

use crate::format::ChunkWriter;

/// Encoded bytes are handed on when so many are together.
const CHUNK_SIZE: usize = 1 << 20;

/// A registered state.
pub(super) trait OperatorSlot: Any + Send {
    fn meta(&self) -> &StateMeta;
    fn mode(&self) -> OperatorStateMode;

    /// Takes up restored elements, written by a state of this description.
    fn load(&mut self, old: &StateMeta, elements: &[Bytes]) -> Result<()>;

    /// Returns the state as it is now, sharing its structure.
    fn freeze(&self) -> Box<dyn FrozenPart>;
}

/// A state at the moment of a cut.
pub(super) trait FrozenPart: Send {
    fn meta(&self) -> &StateMeta;
    fn mode(&self) -> OperatorStateMode;
    fn encode(&self, out: &mut ElementWriter<'_>) -> Result<()>;
}

/// Writes elements and notes where they lie.
pub(super) struct ElementWriter<'a> {
    pub(super) buffer: Vec<u8>,
    /// Bytes handed on before those in the buffer.
    sent: u64,
    extents: Vec<(u64, u64)>,
    writer: &'a mut ChunkWriter<Vec<OperatorStatePart>>,
}

impl<'a> ElementWriter<'a> {
    pub(super) fn new(header: &[u8], writer: &'a mut ChunkWriter<Vec<OperatorStatePart>>) -> Self {
        Self {
            buffer: header.to_vec(),
            sent: 0,
            extents: Vec::new(),
            writer,
        }
    }

    /// Returns the number of bytes written so far.
    pub(super) fn position(&self) -> u64 {
        self.sent + self.buffer.len() as u64
    }

    /// Ends an element that began at a position.
    pub(super) fn end_element(&mut self, start: u64) -> Result<()> {
        self.extents.push((start, self.position() - start));
        self.flush_if_full()
    }

    pub(super) fn flush_if_full(&mut self) -> Result<()> {
        if self.buffer.len() >= CHUNK_SIZE {
            self.flush()
        } else {
            Ok(())
        }
    }

    pub(super) fn flush(&mut self) -> Result<()> {
        self.sent += self.buffer.len() as u64;
        self.writer.send(std::mem::take(&mut self.buffer))
    }

    pub(super) fn take_extents(&mut self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.extents)
    }
}

/// A restored state that the program has not registered: carried on as it is.
#[derive(Clone, Debug)]
pub(super) struct Carried {
    pub(super) meta: StateMeta,
    pub(super) mode: OperatorStateMode,
    pub(super) elements: Vec<Bytes>,
}

impl FrozenPart for Arc<Carried> {
    fn meta(&self) -> &StateMeta {
        &self.meta
    }

    fn mode(&self) -> OperatorStateMode {
        self.mode
    }

    fn encode(&self, out: &mut ElementWriter<'_>) -> Result<()> {
        // A broadcast map is one element; copies out of several handles are the same.
        let take = if self.mode == OperatorStateMode::Broadcast {
            1
        } else {
            self.elements.len()
        };
        for element in self.elements.iter().rev().take(take).rev() {
            let start = out.position();
            out.buffer.extend_from_slice(element);
            out.end_element(start)?;
        }
        Ok(())
    }
}

/// Reads one value that may have been written under an older type.
pub(super) struct Reader<'a> {
    old: &'a TypeMeta,
    new: &'a TypeMeta,
    migrates: bool,
}

impl<'a> Reader<'a> {
    /// Compares the types.
    ///
    /// # Errors
    /// `Incompatible`, with state, old and new schema.
    pub(super) fn new(
        state: &str,
        part: &str,
        old: &'a TypeMeta,
        new: &'a TypeMeta,
    ) -> Result<Self> {
        let migrates = match check(old, new, Position::Value) {
            Compatibility::AsIs => false,
            Compatibility::Migrates { .. } => true,
            Compatibility::Incompatible { reason } => {
                return Err(Error::incompatible(reason)
                    .with("state", state)
                    .with("part", part)
                    .with("old", &old.schema)
                    .with("new", &new.schema));
            }
        };
        Ok(Self { old, new, migrates })
    }

    pub(super) fn read<T: StateType>(&self, bytes: &[u8]) -> Result<T> {
        if self.migrates {
            migrate(self.old, bytes)
        } else {
            self.new.codec.decode_all(bytes)
        }
    }
}
