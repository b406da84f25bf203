use state_api::Result;

use super::encode::{DIGEST_LEN, HEADER_LEN, MAGIC};
use super::handles::HandleWriter;
use super::section::{Pieces, SubtaskBody};
use super::{CheckpointMetadata, FORMAT_VERSION};
use crate::digest::DigestBuilder;
use crate::publish::Content;

/// Bytes of a part on its way to the store: few enough to stay in the cache of a core.
const PART: usize = 256 << 10;

/// Gives out the bytes of metadata part by part, the digest last.
pub(crate) struct MetadataEncoder<'a> {
    len: u64,
    subtasks: std::vec::IntoIter<(Vec<u8>, SubtaskBody<'a>)>,
    /// What follows the subtasks, the digest excepted; gone when that was given out.
    rest: Option<Vec<u8>>,
    /// By position among the operators.
    handles: Vec<HandleWriter<'a>>,
    digest: DigestBuilder,
}

impl<'a> MetadataEncoder<'a> {
    /// Checks the metadata and finds out how long each part is.
    ///
    /// # Errors
    /// As [`CheckpointMetadata::encode`].
    pub(crate) fn new(metadata: &'a CheckpointMetadata) -> Result<Self> {
        metadata.check()?;
        let (sections, handles) = metadata.sections()?;
        let writer = metadata.writer.as_bytes();
        let len = (HEADER_LEN + 1 + writer.len() + sections.len() + DIGEST_LEN) as u64;
        let mut pieces = Pieces::default();
        pieces.rest.extend_from_slice(&MAGIC);
        pieces.rest.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        pieces.rest.extend_from_slice(&len.to_le_bytes());
        // At most 255 bytes: checked.
        pieces.rest.push(writer.len() as u8);
        pieces.rest.extend_from_slice(writer);
        sections.put(&mut pieces);
        Ok(Self {
            len,
            subtasks: pieces.subtasks.into_iter(),
            rest: Some(pieces.rest),
            handles,
            digest: DigestBuilder::new(),
        })
    }

    /// Appends the next bytes, no fewer than asked for unless they are the last; returns whether there were any.
    ///
    /// # Errors
    /// None that [`MetadataEncoder::new`] does not find.
    pub(crate) fn put_next(&mut self, out: &mut Vec<u8>, at_least: usize) -> Result<bool> {
        let start = out.len();
        while out.len() - start < at_least {
            let Some((before, body)) = self.subtasks.next() else {
                let Some(rest) = self.rest.take() else {
                    break;
                };
                out.extend_from_slice(&rest);
                self.digest.update(&out[start..]);
                out.extend_from_slice(&self.digest.digest().0);
                return Ok(true);
            };
            out.extend_from_slice(&before);
            let sections = body.subtask.sections(&mut self.handles[body.operator])?;
            let mut pieces = Pieces {
                rest: std::mem::take(out),
                ..Pieces::default()
            };
            sections.put(&mut pieces);
            *out = pieces.rest;
        }
        self.digest.update(&out[start..]);
        Ok(out.len() > start)
    }
}

impl Content for MetadataEncoder<'_> {
    fn len(&self) -> u64 {
        self.len
    }

    fn next_part(&mut self, buffer: &mut Vec<u8>) -> Result<()> {
        self.put_next(buffer, PART).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use state_api::{
        Attempt, CheckpointId, HashId, JobId, MaxParallelism, OperatorSnapshot,
        OperatorStateHandle, OperatorUid, SnapshotKind, StateHandle,
    };

    use super::*;
    use crate::metadata::{OperatorMetadata, RawSection, SubtaskMetadata};

    fn metadata() -> CheckpointMetadata {
        let job = JobId::new("job").unwrap();
        let kind = SnapshotKind::Checkpoint;
        let mut metadata = CheckpointMetadata::new(CheckpointId(1), job, Attempt(1), kind, 0);
        for uid in ["b", "a"] {
            let uid = OperatorUid::new(uid).unwrap();
            let key_groups = MaxParallelism::new(8).unwrap();
            let mut operator = OperatorMetadata::new(uid, 3, key_groups, HashId::default());
            for index in 0..3 {
                let handle = OperatorStateHandle {
                    states: Vec::new(),
                    bytes: StateHandle::Inline(vec![index as u8; 300].into()),
                };
                let snapshot = OperatorSnapshot {
                    managed_operator: vec![handle],
                    ..OperatorSnapshot::default()
                };
                let subtask = SubtaskMetadata::new(index, snapshot);
                operator.subtasks.push(subtask);
            }
            operator.unknown.push(RawSection {
                tag: 1_000_000,
                bytes: Bytes::from_static(b"behind the subtasks"),
            });
            metadata.operators.push(operator);
        }
        metadata
    }

    #[test]
    fn parts_of_any_length_are_together_what_is_encoded_at_once() {
        let metadata = metadata();
        let whole = metadata.encode().unwrap();
        assert_eq!(
            CheckpointMetadata::decode(&whole).unwrap().operators.len(),
            2
        );
        for at_least in [1, 100, 301, 1000, usize::MAX] {
            let mut encoder = MetadataEncoder::new(&metadata).unwrap();
            assert_eq!(encoder.len(), whole.len() as u64);
            let (mut all, mut parts, mut buffer) = (Vec::new(), 0, Vec::new());
            while encoder.put_next(&mut buffer, at_least).unwrap() {
                parts += 1;
                all.append(&mut buffer);
            }
            assert_eq!(all, whole, "{at_least}");
            let expected = match at_least {
                1..=301 => 7,
                1000 => 2,
                _ => 1,
            };
            assert_eq!(parts, expected, "{at_least}");
        }
    }
}
