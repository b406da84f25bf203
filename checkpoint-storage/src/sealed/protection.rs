use std::sync::Arc;

use super::Sealing;
use crate::metadata::MetadataSigner;
use crate::root::StoreRoot;

/// How what is stored is protected: objects compressed and encrypted, metadata signed. The default is neither.
#[derive(Clone, Debug, Default)]
pub struct Protection {
    /// How new objects are stored, and with which keys existing ones are opened.
    pub sealing: Sealing,
    /// What metadata is signed with, and checked with.
    pub signer: Option<Arc<dyn MetadataSigner>>,
}

impl Protection {
    /// Protects what is stored in a folder, and reads what is protected there.
    #[must_use]
    pub fn of(&self, root: StoreRoot) -> StoreRoot {
        let root = root.with_sealing(self.sealing.clone());
        match &self.signer {
            Some(signer) => root.with_signer(Arc::clone(signer)),
            None => root,
        }
    }
}
