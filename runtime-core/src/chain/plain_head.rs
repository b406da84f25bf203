use std::cell::Cell;
use std::rc::Rc;

use futures_util::future::LocalBoxFuture;
use state_api::{CheckpointId, Result};

use super::environment::Environment;
use super::gate::Gate;
use super::in_flight::{self, RecordsInFlight};
use super::link::{Control, Head, Link, Turn};
use super::port::{Polled, Port};
use crate::record::Record;

/// The start of a chain behind an exchange without keys: passes on what comes in.
pub(crate) struct PlainHead<T> {
    gate: Gate,
    port: Port<T>,
    next: Box<dyn Link<T>>,
    congested: Rc<Cell<bool>>,
}

impl<T> PlainHead<T> {
    pub(crate) fn new(
        gate: Gate,
        port: Port<T>,
        next: Box<dyn Link<T>>,
        congested: Rc<Cell<bool>>,
    ) -> Self {
        Self {
            gate,
            port,
            next,
            congested,
        }
    }
}

impl<T: Record> Head for PlainHead<T> {
    fn turn(&mut self, budget: usize) -> Result<Turn> {
        if let Some(cut) = self.gate.attend(&mut [&mut self.port]) {
            return Ok(Turn::Cut(cut));
        }
        let budget = self.gate.budget(budget);
        let mut left = budget;
        loop {
            if self.congested.get() {
                if !self.next.pump() {
                    return Ok(Turn::Congested);
                }
                self.congested.set(false);
            }
            if self.gate.is_called() {
                return Ok(Turn::Worked);
            }
            while left > 0 && !self.congested.get() && !self.gate.is_called() {
                let Some(record) = self.port.next_record() else {
                    break;
                };
                self.next.emit(record.value, record.time)?;
                left -= 1;
            }
            if left == 0 || self.port.has_records() || self.gate.is_called() {
                return Ok(Turn::Worked);
            }
            match self.port.poll(&mut self.gate) {
                Polled::Records => {}
                Polled::Watermark(time) => self.next.watermark(time)?,
                Polled::Idle => {
                    self.next.flush()?;
                    self.next.idle()?;
                }
                Polled::Cut => return Ok(self.gate.next_cut().map_or(Turn::Worked, Turn::Cut)),
                Polled::Ended => return Ok(Turn::InputEnded),
                Polled::Nothing if left < budget => return Ok(Turn::Worked),
                Polled::Nothing => return Ok(Turn::Waiting { wake_at_ms: None }),
            }
        }
    }

    fn gate(&mut self) -> Option<&mut Gate> {
        Some(&mut self.gate)
    }

    fn record_in_flight(&mut self, id: CheckpointId) -> Option<RecordsInFlight> {
        self.gate.record_in_flight(id, &mut [&mut self.port])
    }
}

impl<T: Record> Control for PlainHead<T> {
    fn next(&mut self) -> Option<&mut dyn Control> {
        Some(self.next.as_mut())
    }

    fn open<'a>(&'a mut self, env: &'a Environment) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.next.open(env).await?;
            // Without an operator that a checkpoint knows, nobody owns the records in flight.
            let uid = env.uids.first();
            self.gate.let_overtake(uid, env, &mut [&mut self.port])?;
            // Of the checkpoint they were the first one's, too; those in front of it are new.
            match env.uids.iter().find(|uid| env.restored(uid).is_some()) {
                Some(uid) => in_flight::restore(env, uid, &mut [&mut self.port]).await,
                None => Ok(()),
            }
        })
    }
}
