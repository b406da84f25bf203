use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use state_api::wire::{put_bytes, put_varint};
use state_api::{OperatorSnapshot, Result, SnapshotKind};

use super::handles::HandleWriter;
use super::section::{Body, Sequence, SubtaskBody};
use super::{
    CheckpointMetadata, InputEnd, MetadataEncoder, OperatorMetadata, OwnRoot, SubtaskMetadata, tags,
};
use crate::publish::Content;

/// The first bytes of every metadata file: not text, and damaged by any conversion of line ends.
pub(super) const MAGIC: [u8; 8] = *b"\x89HFCP\r\n\x1a";

/// Magic, version and length; the writer's name follows.
pub(super) const HEADER_LEN: usize = 18;

/// The digest at the end.
pub(super) const DIGEST_LEN: usize = 32;

/// That event time is at its end, as a subtask says that it was told.
pub(super) const TIME_ENDED: u8 = 1;

/// That the input is.
pub(super) const FINISHED: u8 = 2;

impl CheckpointMetadata {
    /// Returns the bytes of the metadata; equal metadata gives equal bytes, whatever order operators and subtasks stand in.
    ///
    /// # Errors
    /// `InvalidArgument` as [`check`](Self::check), or when a handle points into a root that is not listed.
    pub fn encode(&self) -> Result<Bytes> {
        let mut encoder = MetadataEncoder::new(self)?;
        let mut out = Vec::with_capacity(usize::try_from(encoder.len()).unwrap_or(0));
        while encoder.put_next(&mut out, usize::MAX)? {}
        Ok(out.into())
    }

    /// Returns the sections, with what encodes the handles of each operator.
    pub(super) fn sections(&self) -> Result<(Sequence<'_>, Vec<HandleWriter<'_>>)> {
        let roots = self.roots.iter().map(|url| url.as_ref()).zip(1..);
        let roots: Arc<HashMap<&str, u64>> = Arc::new(roots.collect());
        let mut sections = vec![Body::required(tags::file::CHECKPOINT, self.identity())];
        if !self.roots.is_empty() {
            let mut body = Vec::new();
            put_varint(&mut body, self.roots.len() as u64);
            self.roots
                .iter()
                .for_each(|url| put_bytes(&mut body, url.as_bytes()));
            sections.push(Body::required(tags::file::ROOTS, body));
        }
        if !self.properties.is_empty() {
            let mut body = Vec::new();
            put_varint(&mut body, self.properties.len() as u64);
            for (key, value) in &self.properties {
                put_bytes(&mut body, key.as_bytes());
                put_bytes(&mut body, value.as_bytes());
            }
            sections.push(Body::optional(tags::file::PROPERTIES, body));
        }
        if !self.hooks.is_empty() {
            sections.push(Body::required(tags::file::HOOKS, self.encode_hooks()));
        }
        let mut operators: Vec<_> = self.operators.iter().collect();
        operators.sort_unstable_by_key(|operator| &operator.uid);
        let mut writers = Vec::with_capacity(operators.len());
        for (position, operator) in operators.into_iter().enumerate() {
            let mut handles = HandleWriter::new(Arc::clone(&roots));
            let body = operator
                .sections(position, &mut handles)
                .map_err(|e| e.with("operator", &operator.uid))?;
            sections.push(Body::of_sections(tags::file::OPERATOR, body));
            writers.push(handles);
        }
        Ok((Sequence::new(sections, &self.unknown), writers))
    }

    fn identity(&self) -> Vec<u8> {
        let mut body = Vec::new();
        put_varint(&mut body, self.checkpoint.0);
        put_bytes(&mut body, self.job.as_str().as_bytes());
        put_varint(&mut body, self.attempt.0);
        body.push(match self.kind {
            SnapshotKind::Checkpoint => 0,
            SnapshotKind::FullCheckpoint => 1,
            SnapshotKind::NativeSavepoint => 2,
            SnapshotKind::CanonicalSavepoint => 3,
        });
        body.push(match self.own_root {
            OwnRoot::Folder => 0,
            OwnRoot::Parent => 1,
        });
        body.extend_from_slice(&self.created_ms.to_le_bytes());
        body
    }

    fn encode_hooks(&self) -> Vec<u8> {
        let mut hooks: Vec<_> = self.hooks.iter().collect();
        hooks.sort_unstable_by_key(|hook| &hook.name);
        let mut body = Vec::new();
        put_varint(&mut body, hooks.len() as u64);
        for hook in hooks {
            put_bytes(&mut body, hook.name.as_bytes());
            put_varint(&mut body, u64::from(hook.version));
            put_bytes(&mut body, &hook.bytes);
        }
        body
    }
}

impl OperatorMetadata {
    fn sections(&self, position: usize, handles: &mut HandleWriter<'_>) -> Result<Sequence<'_>> {
        let mut sections = Vec::new();
        let mut identity = Vec::new();
        put_bytes(&mut identity, self.uid.as_str().as_bytes());
        put_bytes(
            &mut identity,
            self.name.as_deref().unwrap_or_default().as_bytes(),
        );
        put_varint(&mut identity, u64::from(self.parallelism));
        put_varint(&mut identity, u64::from(self.max_parallelism.get()));
        put_bytes(&mut identity, self.hash.as_str().as_bytes());
        sections.push(Body::required(tags::operator::IDENTITY, identity));
        if let Some(coordinator) = &self.coordinator {
            let mut body = Vec::new();
            handles.bytes(&mut body, coordinator)?;
            sections.push(Body::required(tags::operator::COORDINATOR, body));
        }
        let mut subtasks: Vec<_> = self.subtasks.iter().collect();
        subtasks.sort_unstable_by_key(|subtask| subtask.index);
        for subtask in subtasks {
            // Encoded here for its length and the states that it refers to, which stand before it.
            let body = SubtaskBody {
                operator: position,
                subtask,
                len: subtask.sections(handles)?.len(),
            };
            sections.push(Body::subtask(tags::operator::SUBTASK, body));
        }
        if handles.state_count() > 0 {
            let mut table = Vec::new();
            put_varint(&mut table, handles.state_count());
            table.extend_from_slice(&handles.table);
            sections.push(Body::required(tags::operator::STATES, table));
        }
        Ok(Sequence::new(sections, &self.unknown))
    }
}

impl SubtaskMetadata {
    pub(super) fn sections(&self, handles: &mut HandleWriter<'_>) -> Result<Sequence<'_>> {
        let mut identity = Vec::new();
        put_varint(&mut identity, u64::from(self.index));
        identity.push(u8::from(self.finished));
        let mut sections = vec![Body::required(tags::subtask::IDENTITY, identity)];
        let OperatorSnapshot {
            managed_keyed,
            raw_keyed,
            managed_operator,
            raw_operator,
            in_flight_keyed,
            in_flight,
        } = &*self.snapshot;
        let mut add = |tag, write: &mut dyn FnMut(&mut Vec<u8>) -> Result<()>| {
            let mut body = Vec::new();
            write(&mut body)?;
            body.shrink_to_fit();
            sections.push(Body::required(tag, body));
            Ok(())
        };
        for handle in managed_keyed {
            add(tags::subtask::MANAGED_KEYED, &mut |body| {
                handles.keyed(body, handle)
            })?;
        }
        for handle in raw_keyed {
            add(tags::subtask::RAW_KEYED, &mut |body| {
                handles.key_groups(body, handle)
            })?;
        }
        for handle in managed_operator {
            add(tags::subtask::MANAGED_OPERATOR, &mut |body| {
                handles.operator_state(body, handle)
            })?;
        }
        for handle in raw_operator {
            add(tags::subtask::RAW_OPERATOR, &mut |body| {
                handles.operator_state(body, handle)
            })?;
        }
        let input_end = match self.input_end {
            InputEnd::Ahead => None,
            InputEnd::TimeEnded => Some(TIME_ENDED),
            InputEnd::Finished => Some(FINISHED),
        };
        if let Some(input_end) = input_end {
            add(tags::subtask::INPUT_END, &mut |body| {
                body.push(input_end);
                Ok(())
            })?;
        }
        for handle in in_flight_keyed {
            add(tags::subtask::IN_FLIGHT_KEYED, &mut |body| {
                handles.key_groups(body, handle)
            })?;
        }
        for handle in in_flight {
            add(tags::subtask::IN_FLIGHT, &mut |body| {
                handles.operator_state(body, handle)
            })?;
        }
        Ok(Sequence::new(sections, &self.unknown))
    }
}
