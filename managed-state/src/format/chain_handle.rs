use state_api::{IncrementalHandle, KeyedHandle, NamedHandle, Scope, StateHandle};

use super::persist::Placement;

/// Bytes that a chain of objects carries in its handle at most: every checkpoint that goes on top repeats them.
pub const MAX_CHAIN_INLINE: u64 = 20 << 10;

/// The handle of a snapshot that is a chain of objects, of which the last is still to be written.
#[derive(Debug)]
pub struct ChainHandle {
    handle: IncrementalHandle,
    scope: Scope,
}

impl ChainHandle {
    /// Starts from the handle with all objects but the last. Those of a checkpoint may be shared, those of a savepoint are its own.
    #[must_use]
    pub fn new(handle: IncrementalHandle, is_savepoint: bool) -> Self {
        let scope = match is_savepoint {
            true => Scope::Exclusive,
            false => Scope::Shared,
        };
        Self { handle, scope }
    }

    /// Returns where the last object goes, and how many bytes of it may be left in the handle.
    #[must_use]
    pub fn placement(&self) -> Placement {
        let inline = |file: &NamedHandle| match &file.bytes {
            StateHandle::Inline(bytes) => bytes.len() as u64,
            StateHandle::Object(_) => 0,
        };
        let inline = self.handle.shared.iter().map(inline).sum();
        match self.scope {
            Scope::Shared => Placement {
                inline_at_most: MAX_CHAIN_INLINE.saturating_sub(inline),
                ..Placement::from(self.scope)
            },
            scope => scope.into(),
        }
    }

    /// Adds the last object.
    pub fn push(&mut self, name: String, bytes: StateHandle) {
        self.handle.new_bytes += bytes.len();
        let name = name.into();
        let files = match self.scope {
            Scope::Exclusive => &mut self.handle.private,
            _ => &mut self.handle.shared,
        };
        files.push(NamedHandle { name, bytes });
    }

    /// Returns the handle.
    #[must_use]
    pub fn handle(&self) -> &IncrementalHandle {
        &self.handle
    }

    /// Returns the handle, to be changed.
    pub fn handle_mut(&mut self) -> &mut IncrementalHandle {
        &mut self.handle
    }

    /// Returns what the snapshot consists of: nothing if there are no objects.
    #[must_use]
    pub fn into_handles(self) -> Vec<KeyedHandle> {
        let is_empty = self.handle.private.is_empty() && self.handle.shared.is_empty();
        match is_empty {
            true => Vec::new(),
            false => vec![KeyedHandle::Incremental(self.handle)],
        }
    }
}

/// Returns the bytes of the first object of a chain, which has everything, and those of the others, which have what changed.
#[must_use]
pub fn chain_bytes(files: &[NamedHandle]) -> (u64, u64) {
    let mut lens = files.iter().map(|file| file.bytes.len());
    (lens.next().unwrap_or(0), lens.sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use state_api::{CheckpointId, KeyGroup, KeyGroupRange};

    fn chain(is_savepoint: bool) -> ChainHandle {
        let handle = IncrementalHandle {
            format: "changes".into(),
            backend_id: "op-0".into(),
            checkpoint: CheckpointId(1),
            range: KeyGroupRange::new(KeyGroup(0), KeyGroup(1)),
            private: Vec::new(),
            shared: Vec::new(),
            new_bytes: 0,
            states: Vec::new(),
        };
        ChainHandle::new(handle, is_savepoint)
    }

    #[test]
    fn all_objects_of_a_chain_together_leave_so_much_in_the_handle() {
        let inline = |len| StateHandle::Inline(vec![0; len].into());
        let mut shared = chain(false);
        let placement = |chain: &ChainHandle| {
            let placement = chain.placement();
            (placement.scope, placement.inline_at_most)
        };
        assert_eq!(placement(&shared), (Scope::Shared, 20_480));
        shared.push("base".to_owned(), inline(20_000));
        assert_eq!(placement(&shared), (Scope::Shared, 480));
        shared.push("changes".to_owned(), inline(500));
        assert_eq!(placement(&shared), (Scope::Shared, 0));
        assert_eq!(shared.handle().new_bytes, 20_500);
        assert_eq!(chain_bytes(&shared.handle().shared), (20_000, 500));
        let mut own = chain(true);
        own.push("base".to_owned(), inline(30_000));
        assert_eq!(placement(&own), (Scope::Exclusive, u64::MAX));
        assert_eq!(own.into_handles().len(), 1);
        assert_eq!(chain(false).into_handles().len(), 0);
    }
}
