use state_api::{
    CancelToken, FrozenTables, GroupExtent, KeyGroup, KeyGroupOffsets, KeyGroupRange, Result,
    StateSummary,
};

use super::header::{HEADER_LEN, KEYED_MAGIC, header};
use super::pipe::ChunkWriter;

/// Encoded bytes are handed on when so many are together.
pub(super) const CHUNK_SIZE: usize = 1 << 20;

/// Frozen keyed state that is encoded group by group.
pub(super) trait GroupSource: Send {
    fn range(&self) -> KeyGroupRange;

    /// Encodes one group; large ones are handed on in parts through `sink`. Returns the length of the block.
    fn encode_group(&mut self, group: KeyGroup, sink: &mut Sink<'_>) -> Result<u64>;

    fn states(&self) -> Vec<StateSummary>;
}

/// Where a source puts its bytes.
pub(super) struct Sink<'a> {
    pub(super) buffer: Vec<u8>,
    pub(super) cancel: &'a CancelToken,
    writer: &'a mut ChunkWriter<Encoded>,
}

impl Sink<'_> {
    /// Hands bytes on.
    pub(super) fn send(&mut self, chunk: Vec<u8>) -> Result<()> {
        self.cancel.check()?;
        self.writer.send(chunk)
    }
}

/// What the encoder reports at its end.
pub(crate) struct Encoded {
    pub(super) offsets: KeyGroupOffsets,
    pub(super) states: Vec<StateSummary>,
}

/// Encodes all groups, header first.
pub(super) fn encode_all(
    source: &mut dyn GroupSource,
    writer: &mut ChunkWriter<Encoded>,
    cancel: &CancelToken,
) -> Result<Encoded> {
    let mut offsets = KeyGroupOffsets::new(source.range());
    let mut position = HEADER_LEN as u64;
    let mut buffer = writer.buffer(HEADER_LEN);
    buffer.extend_from_slice(&header(KEYED_MAGIC));
    let mut sink = Sink {
        buffer,
        cancel,
        writer,
    };
    for group in source.range().iter() {
        cancel.check()?;
        let len = source.encode_group(group, &mut sink)?;
        if len == 0 {
            continue;
        }
        offsets.set(
            group,
            GroupExtent {
                offset: position,
                len,
            },
        )?;
        position += len;
        if sink.buffer.len() >= CHUNK_SIZE {
            let capacity = sink.buffer.len().min(2 * CHUNK_SIZE);
            let next = sink.writer.buffer(capacity);
            let chunk = std::mem::replace(&mut sink.buffer, next);
            sink.send(chunk)?;
        }
    }
    let last = std::mem::take(&mut sink.buffer);
    sink.send(last)?;
    Ok(Encoded {
        offsets,
        states: source.states(),
    })
}

/// Live tables as a source.
pub(super) struct TablesSource(pub(super) Box<dyn FrozenTables>);

impl GroupSource for TablesSource {
    fn range(&self) -> KeyGroupRange {
        self.0.range()
    }

    fn encode_group(&mut self, group: KeyGroup, sink: &mut Sink<'_>) -> Result<u64> {
        let before = sink.buffer.len();
        self.0.encode_group(group, &mut sink.buffer)?;
        Ok((sink.buffer.len() - before) as u64)
    }

    fn states(&self) -> Vec<StateSummary> {
        self.0.states()
    }
}
