use std::collections::HashMap;

use bytes::Bytes;
use state_api::wire::{put_bytes, put_varint};
use state_api::{OperatorSnapshot, Result, SnapshotKind};

use super::handles::HandleWriter;
use super::section::{Body, Sequence};
use super::{CheckpointMetadata, FORMAT_VERSION, OperatorMetadata, OwnRoot, SubtaskMetadata, tags};
use crate::digest::digest_of;

/// The first bytes of every metadata file: not text, and damaged by any conversion of line ends.
pub(super) const MAGIC: [u8; 8] = *b"\x89HFCP\r\n\x1a";

/// Magic, version and length; the writer's name follows.
pub(super) const HEADER_LEN: usize = 18;

/// The digest at the end.
pub(super) const DIGEST_LEN: usize = 32;

impl CheckpointMetadata {
    /// Returns the bytes of the metadata; equal metadata gives equal bytes, whatever order operators and subtasks stand in.
    ///
    /// # Errors
    /// `InvalidArgument` as [`check`](Self::check), or when a handle points into a root that is not listed.
    pub fn encode(&self) -> Result<Bytes> {
        self.check()?;
        let roots: HashMap<&str, u64> =
            self.roots.iter().map(|url| url.as_ref()).zip(1..).collect();
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
        for operator in operators {
            let body = operator
                .sections(&roots)
                .map_err(|e| e.with("operator", &operator.uid))?;
            sections.push(Body::of_sections(tags::file::OPERATOR, body));
        }
        let sections = Sequence::new(sections, &self.unknown);

        let header = HEADER_LEN + 1 + self.writer.len();
        let mut out = Vec::with_capacity(header + sections.len() + DIGEST_LEN);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 8]);
        // At most 255 bytes: checked.
        out.push(self.writer.len() as u8);
        out.extend_from_slice(self.writer.as_bytes());
        sections.put(&mut out);
        let len = (out.len() + DIGEST_LEN) as u64;
        out[10..HEADER_LEN].copy_from_slice(&len.to_le_bytes());
        let digest = digest_of(&out);
        out.extend_from_slice(&digest.0);
        Ok(out.into())
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
    fn sections(&self, roots: &HashMap<&str, u64>) -> Result<Sequence<'_>> {
        let mut handles = HandleWriter::new(roots);
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
            let body = subtask.sections(&mut handles)?;
            sections.push(Body::of_sections(tags::operator::SUBTASK, body));
        }
        if handles.state_count() > 0 {
            let mut table = Vec::new();
            put_varint(&mut table, handles.state_count());
            table.append(&mut handles.table);
            sections.push(Body::required(tags::operator::STATES, table));
        }
        Ok(Sequence::new(sections, &self.unknown))
    }
}

impl SubtaskMetadata {
    fn sections(&self, handles: &mut HandleWriter<'_>) -> Result<Sequence<'_>> {
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
        } = &self.snapshot;
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
