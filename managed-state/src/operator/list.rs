use std::fmt;

use bytes::Bytes;
use state_api::{OperatorStateMode, Result, StateMeta, StateType};

use super::part::{ElementWriter, FrozenPart, OperatorSlot, Reader};
use crate::live::LiveList;

/// The elements of a list state of one subtask, in order.
#[derive(Clone)]
pub struct OperatorList<T: StateType> {
    elements: LiveList<T>,
}

impl<T: StateType> Default for OperatorList<T> {
    fn default() -> Self {
        Self {
            elements: LiveList::new(),
        }
    }
}

impl<T: StateType> fmt::Debug for OperatorList<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperatorList")
            .field("len", &self.len())
            .finish()
    }
}

impl<T: StateType> OperatorList<T> {
    /// Appends an element.
    pub fn push(&mut self, element: T) {
        self.elements.push(element);
    }

    /// Appends elements.
    pub fn extend(&mut self, elements: impl IntoIterator<Item = T>) {
        self.elements.extend(elements);
    }

    /// Puts elements in place of all that are there.
    pub fn replace(&mut self, elements: impl IntoIterator<Item = T>) {
        self.elements.replace(elements);
    }

    /// Keeps the elements for which `keep` returns true.
    pub fn retain(&mut self, keep: impl FnMut(&T) -> bool) {
        self.elements.retain(keep);
    }

    /// Removes all elements.
    pub fn clear(&mut self) {
        self.elements.clear();
    }

    /// Iterates over the elements in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.elements.iter()
    }

    /// Returns a copy of the elements.
    #[must_use]
    pub fn to_vec(&self) -> Vec<T> {
        self.iter().cloned().collect()
    }

    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.elements.len()
    }

    /// Returns whether there is no element.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.elements.is_empty()
    }
}

pub(super) struct ListSlot<T: StateType> {
    pub(super) meta: StateMeta,
    pub(super) mode: OperatorStateMode,
    pub(super) list: OperatorList<T>,
}

impl<T: StateType> OperatorSlot for ListSlot<T> {
    fn meta(&self) -> &StateMeta {
        &self.meta
    }

    fn mode(&self) -> OperatorStateMode {
        self.mode
    }

    fn load(&mut self, old: &StateMeta, elements: &[Bytes]) -> Result<()> {
        let reader = Reader::new(&self.meta.name, "value", &old.value, &self.meta.value)?;
        for element in elements {
            self.list.push(reader.read(element)?);
        }
        Ok(())
    }

    fn freeze(&self) -> Box<dyn FrozenPart> {
        Box::new(FrozenList {
            meta: self.meta.clone(),
            mode: self.mode,
            list: self.list.clone(),
        })
    }
}

struct FrozenList<T: StateType> {
    meta: StateMeta,
    mode: OperatorStateMode,
    list: OperatorList<T>,
}

impl<T: StateType> FrozenPart for FrozenList<T> {
    fn meta(&self) -> &StateMeta {
        &self.meta
    }

    fn mode(&self) -> OperatorStateMode {
        self.mode
    }

    fn encode(&self, out: &mut ElementWriter<'_>) -> Result<()> {
        for element in self.list.iter() {
            let start = out.position();
            self.meta.value.codec.encode(element, &mut out.buffer);
            out.end_element(start)?;
        }
        Ok(())
    }
}
