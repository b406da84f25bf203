use std::any::Any;

use state_api::Result;

use crate::operator::{SideOutput, SideOutputId, SideRecord};
use crate::record::{Emit, Record, Timed};

/// Keeps what an operator emits, side outputs included.
pub(super) struct Collected<T> {
    pub(super) records: Vec<Timed<T>>,
    sides: Vec<(SideOutputId, Timed<Box<dyn Any>>)>,
}

impl<T> Default for Collected<T> {
    fn default() -> Self {
        Self {
            records: Vec::new(),
            sides: Vec::new(),
        }
    }
}

impl<T> Emit<T> for Collected<T> {
    fn emit(&mut self, value: T, time: i64) -> Result<()> {
        self.records.emit(value, time)
    }

    fn emit_side(&mut self, record: SideRecord<'_>, time: i64) -> Result<()> {
        let id = record.id();
        let kept = record.into_any().map(|value| (id, Timed { value, time }));
        self.sides.extend(kept);
        Ok(())
    }
}

impl<T> Collected<T> {
    /// Takes out what is of one side output.
    pub(super) fn take_side<S: Record>(&mut self, side: SideOutput<S>) -> Vec<Timed<S>> {
        let (taken, kept) = std::mem::take(&mut self.sides)
            .into_iter()
            .partition(|(id, _)| *id == side.id());
        self.sides = kept;
        let typed = |(_, Timed { value, time }): (_, Timed<Box<dyn Any>>)| {
            let value = *value.downcast::<S>().ok()?;
            Some(Timed { value, time })
        };
        let taken: Vec<_> = taken;
        taken.into_iter().filter_map(typed).collect()
    }
}
