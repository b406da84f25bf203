use std::sync::Arc;

use state_api::{Column, Result, StateKey};

use super::kept::{Encoding, Kept};
use crate::format::{CompositeLayout, DirtyColumn, DirtyEntry};
use crate::live::FrozenTable;

/// The dirty entries of one state at the moment of a cut.
pub(super) struct FrozenKept<K, N, H> {
    table: FrozenTable<K, N, H>,
    column: Column,
    how: Encoding,
    layout: CompositeLayout,
    name: Arc<str>,
    /// As long as it is there, the cache gives nothing up.
    _hold: Arc<()>,
}

impl<K, N, H> FrozenKept<K, N, H> {
    pub(super) fn new(
        table: FrozenTable<K, N, H>,
        column: Column,
        how: Encoding,
        layout: CompositeLayout,
        name: Arc<str>,
        hold: Arc<()>,
    ) -> Self {
        Self {
            table,
            column,
            how,
            layout,
            name,
            _hold: hold,
        }
    }
}

impl<K: StateKey, N: StateKey, H: Kept> DirtyColumn for FrozenKept<K, N, H> {
    fn column(&self) -> Column {
        self.column
    }

    fn take_group(&mut self, group: usize, out: &mut Vec<DirtyEntry>) -> Result<()> {
        let mut composite = Vec::new();
        self.table
            .for_each(group, |key, namespace, kept| {
                if kept.tally().dirty > 0 {
                    composite.clear();
                    self.layout.put(key, namespace, &mut composite);
                    kept.each_dirty(self.how, &mut composite, &mut |key, value| {
                        out.push((key.to_vec(), value.map(<[u8]>::to_vec)));
                    });
                }
                Ok(())
            })
            .map_err(|e| e.with("state", &self.name))?;
        self.table.release_group(group);
        Ok(())
    }
}
