//! State that goes into a new checkpoint as it is.
use std::collections::HashMap;

use checkpoint_storage::{OperatorMetadata, SubtaskMetadata};
use state_api::{
    IncrementalHandle, KeyGroupsHandle, KeyedHandle, NamedHandle, ObjectHandle, OperatorSnapshot,
    OperatorStateHandle, Result, Scope, StateHandle,
};

use crate::source::CheckpointSource;
use crate::target::NewCheckpoint;

/// Copies bytes from one checkpoint to another, each object once.
pub(crate) struct Copier<'a> {
    source: &'a CheckpointSource,
    target: &'a NewCheckpoint,
    /// Objects that several handles point at, and where they are now.
    done: HashMap<ObjectHandle, StateHandle>,
}

impl<'a> Copier<'a> {
    pub(crate) fn new(source: &'a CheckpointSource, target: &'a NewCheckpoint) -> Self {
        Self {
            source,
            target,
            done: HashMap::new(),
        }
    }

    /// Copies bytes, their digest checked.
    pub(crate) async fn bytes(&mut self, handle: &StateHandle) -> Result<StateHandle> {
        let StateHandle::Object(object) = handle else {
            return Ok(handle.clone());
        };
        if let Some(copy) = self.done.get(object) {
            return Ok(copy.clone());
        }
        let storage = self.source.storage();
        let id = self.source.metadata().checkpoint;
        let mut stream = self.target.storage().create(id, Scope::Exclusive);
        let mut reader = storage.open(object).await?;
        while let Some(bytes) = reader.next().await? {
            stream.write(bytes).await?;
        }
        let copy = stream.finish().await?;
        let copy = copy.unwrap_or_else(|| StateHandle::Inline(bytes::Bytes::new()));
        self.done.insert(object.clone(), copy.clone());
        Ok(copy)
    }

    pub(crate) async fn keyed(&mut self, handle: &KeyedHandle) -> Result<KeyedHandle> {
        Ok(match handle {
            KeyedHandle::KeyGroups(groups) => KeyedHandle::KeyGroups(self.groups(groups).await?),
            KeyedHandle::Incremental(files) => {
                let (mut private, mut new_bytes) = (Vec::new(), 0);
                // Nothing is shared with other checkpoints any more; the order of the files is kept.
                for file in files.private.iter().chain(&files.shared) {
                    let bytes = self.bytes(&file.bytes).await?;
                    new_bytes += bytes.len();
                    private.push(NamedHandle {
                        name: file.name.clone(),
                        bytes,
                    });
                }
                KeyedHandle::Incremental(IncrementalHandle {
                    private,
                    shared: Vec::new(),
                    new_bytes,
                    ..files.clone()
                })
            }
        })
    }

    async fn groups(&mut self, handle: &KeyGroupsHandle) -> Result<KeyGroupsHandle> {
        let bytes = self.bytes(&handle.bytes).await?;
        Ok(KeyGroupsHandle {
            bytes,
            ..handle.clone()
        })
    }

    async fn operator(&mut self, handle: &OperatorStateHandle) -> Result<OperatorStateHandle> {
        let bytes = self.bytes(&handle.bytes).await?;
        Ok(OperatorStateHandle {
            bytes,
            ..handle.clone()
        })
    }

    /// Copies everything of a subtask but its managed keyed state, for which there is something else.
    pub(crate) async fn around(
        &mut self,
        snapshot: &OperatorSnapshot,
        managed_keyed: Vec<KeyedHandle>,
    ) -> Result<OperatorSnapshot> {
        let mut copy = OperatorSnapshot {
            managed_keyed,
            ..OperatorSnapshot::default()
        };
        for handle in &snapshot.raw_keyed {
            copy.raw_keyed.push(self.groups(handle).await?);
        }
        for handle in &snapshot.managed_operator {
            copy.managed_operator.push(self.operator(handle).await?);
        }
        for handle in &snapshot.raw_operator {
            copy.raw_operator.push(self.operator(handle).await?);
        }
        for handle in &snapshot.in_flight_keyed {
            copy.in_flight_keyed.push(self.groups(handle).await?);
        }
        for handle in &snapshot.in_flight {
            copy.in_flight.push(self.operator(handle).await?);
        }
        Ok(copy)
    }

    /// Copies a subtask as it is, native formats included.
    pub(crate) async fn subtask(&mut self, subtask: &SubtaskMetadata) -> Result<SubtaskMetadata> {
        let mut keyed = Vec::new();
        for handle in &subtask.snapshot.managed_keyed {
            keyed.push(self.keyed(handle).await?);
        }
        let snapshot = self.around(&subtask.snapshot, keyed).await?;
        Ok(SubtaskMetadata {
            snapshot: snapshot.into(),
            ..subtask.clone()
        })
    }

    /// Copies what the coordinator of an operator saved.
    pub(crate) async fn coordinator(
        &mut self,
        operator: &OperatorMetadata,
    ) -> Result<Option<StateHandle>> {
        match &operator.coordinator {
            None => Ok(None),
            Some(bytes) => self.bytes(bytes).await.map(Some),
        }
    }
}
