use state_api::StateKey;

use super::states::LiveEntry;

/// The bytes of all live tables of a subtask, kept up to date while there is a limit for them.
#[derive(Debug, Default)]
pub(crate) struct Total {
    bytes: usize,
    /// The bytes of each table, as they are in the sum.
    known: Vec<usize>,
    /// Tables that may have changed since.
    changing: Vec<usize>,
}

impl Total {
    /// Learns that a table is about to change; the next one that is not known yet is a new one.
    pub(crate) fn expect_change(&mut self, index: usize) {
        if !self.changing.contains(&index) {
            self.changing.push(index);
        }
    }

    /// Learns that any table may change.
    pub(crate) fn expect_any_change(&mut self) {
        (0..self.known.len()).for_each(|index| self.expect_change(index));
    }

    /// Returns the bytes that all tables take.
    pub(crate) fn settle<K: StateKey>(&mut self, tables: &mut [LiveEntry<K>]) -> usize {
        for index in self.changing.drain(..) {
            let Some(entry) = tables.get_mut(index) else {
                continue;
            };
            if self.known.len() <= index {
                self.known.resize(index + 1, 0);
            }
            let now = entry.slot.settle();
            self.bytes = self.bytes - self.known[index] + now;
            self.known[index] = now;
        }
        self.bytes
    }
}
