use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::LocalBoxFuture;
use managed_state::operator::OperatorStates;
use state_api::{CheckpointId, Clock, Result, SnapshotRequest};

use super::declared::Declared;
use super::environment::Environment;
use super::gate::{Gate, InputPort};
use super::in_flight::{self, RecordsInFlight};
use super::key_selector::{Keyed, KeyedPort};
use super::keyed_core::KeyedCore;
use super::link::{Control, Head, Link, Turn, at_operator, first_error};
use super::port::Polled;
use crate::channel::Barrier;
use crate::operator::{KeyedOperator, Out};
use crate::record::NO_TIMESTAMP;
use crate::task::SubtaskSnapshot;

/// An operator over keyed state at the start of a chain, behind an exchange by key.
pub(crate) struct KeyedHead<O: KeyedOperator> {
    gate: Gate,
    port: KeyedPort<O::Key, O::In>,
    operator: O,
    core: KeyedCore<O::Key>,
    next: Box<dyn Link<O::Out>>,
    congested: Rc<Cell<bool>>,
    clock: Arc<dyn Clock>,
}

impl<O: KeyedOperator> KeyedHead<O> {
    pub(crate) fn new(
        gate: Gate,
        port: KeyedPort<O::Key, O::In>,
        operator: O,
        core: KeyedCore<O::Key>,
        next: Box<dyn Link<O::Out>>,
        env: &Environment,
    ) -> Self {
        let (congested, clock) = (Rc::clone(&env.congested), Arc::clone(&env.clock));
        Self {
            gate,
            port,
            operator,
            core,
            next,
            congested,
            clock,
        }
    }

    /// Returns whether there is room for output and nothing wants to be heard first.
    #[inline]
    fn may_go_on(&self) -> bool {
        !self.congested.get() && !self.gate.is_called()
    }

    /// Processes records of the current batch; returns how many.
    fn process_records(&mut self, budget: usize) -> Result<usize> {
        let mut processed = 0;
        while processed < budget && self.may_go_on() {
            self.core.fetch(&self.port);
            let Some(record) = self.port.records.next_record() else {
                break;
            };
            let Keyed { key, hash, value } = record.value;
            let key = self.port.key.of(key, &value);
            let (mut at, watermark) = self.core.at_record(key, hash)?;
            let mut out = Out::new(self.next.as_mut(), record.time, watermark);
            self.operator.process(value, &mut at, &mut out)?;
            processed += 1;
        }
        Ok(processed)
    }

    /// Fires timers that a watermark made due; returns whether all have fired, and passes the watermark on then.
    fn fire_event_timers(&mut self, up_to: i64) -> Result<bool> {
        // Timers see the watermark that made them due, as Flink's do.
        let is_new = self.core.advance(up_to);
        while self.may_go_on() {
            let Some(due) = self.core.pop_event(up_to)? else {
                self.core.firing = None;
                if self.core.told.watermark(up_to) && is_new {
                    let mut out = Out::new(self.next.as_mut(), NO_TIMESTAMP, up_to);
                    self.operator.on_watermark(up_to, &mut out)?;
                }
                self.next.watermark(up_to)?;
                return Ok(true);
            };
            let (mut at, watermark) = self.core.at_timer(&due.key)?;
            let mut out = Out::new(self.next.as_mut(), due.time, watermark);
            self.operator.on_timer(&due, &mut at, &mut out)?;
        }
        Ok(false)
    }

    fn fire_processing_timers(&mut self) -> Result<usize> {
        if !self.core.has_processing_timers() {
            return Ok(0);
        }
        let now_ms = self.clock.now_ms();
        let mut fired = 0;
        while self.may_go_on() {
            let Some(due) = self.core.pop_processing(now_ms)? else {
                break;
            };
            let (mut at, watermark) = self.core.at_timer(&due.key)?;
            let mut out = Out::new(self.next.as_mut(), NO_TIMESTAMP, watermark);
            self.operator.on_timer(&due, &mut at, &mut out)?;
            fired += 1;
        }
        Ok(fired)
    }

    fn run(&mut self, budget: usize) -> Result<Turn> {
        if let Some(cut) = self.gate.attend(&mut [&mut self.port.records]) {
            return Ok(Turn::Cut(cut));
        }
        let budget = self.gate.budget(budget);
        let mut done = 0;
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
            if done == 0 {
                done += self.fire_processing_timers()?;
            }
            if let Some(up_to) = self.core.firing {
                if !self.fire_event_timers(up_to)? {
                    continue;
                }
                done += 1;
            }
            done += self.process_records(budget.saturating_sub(done))?;
            if !self.may_go_on() {
                continue;
            }
            if done >= budget || self.port.records.has_records() {
                return Ok(Turn::Worked);
            }
            match self.port.records.poll(&mut self.gate) {
                Polled::Records => self.core.told.record(),
                Polled::Watermark(time) => self.core.firing = Some(time),
                Polled::Idle => {
                    self.next.flush()?;
                    self.next.idle()?;
                }
                Polled::Cut => return Ok(self.gate.next_cut().map_or(Turn::Worked, Turn::Cut)),
                Polled::Ended => return Ok(Turn::InputEnded),
                Polled::Nothing if done > 0 => return Ok(Turn::Worked),
                Polled::Nothing => {
                    return Ok(Turn::Waiting {
                        wake_at_ms: self.core.next_wakeup()?,
                    });
                }
            }
        }
    }

    #[cold]
    fn named(&self, error: state_api::Error) -> state_api::Error {
        at_operator(error, Some(self.core.uid()))
    }
}

impl<O: KeyedOperator> Head for KeyedHead<O> {
    fn turn(&mut self, budget: usize) -> Result<Turn> {
        match self.run(budget) {
            Ok(turn) => Ok(turn),
            Err(error) => Err(self.named(error)),
        }
    }

    fn gate(&mut self) -> Option<&mut Gate> {
        Some(&mut self.gate)
    }

    fn record_in_flight(&mut self, id: CheckpointId) -> Option<RecordsInFlight> {
        self.gate
            .record_in_flight(id, &mut [&mut self.port.records])
    }
}

impl<O: KeyedOperator> Control for KeyedHead<O> {
    fn next(&mut self) -> Option<&mut dyn Control> {
        Some(self.next.as_mut())
    }

    fn open<'a>(&'a mut self, env: &'a Environment) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.next.open(env).await?;
            let operator = &mut self.operator;
            let ports: &mut [&mut dyn InputPort] = &mut [&mut self.port.records];
            self.gate.let_overtake(Some(self.core.uid()), env, ports)?;
            let result = async {
                if let Some(raw) = self.core.restored_raw(env).await? {
                    operator.restore_raw(raw)?;
                }
                self.core.open(env, |states| operator.open(states)).await?;
                self.core.open_time(env).await?;
                in_flight::restore(env, self.core.uid(), &mut [&mut self.port.records]).await
            };
            result.await.map_err(|error| self.named(error))
        })
    }

    fn declare(&mut self, env: &Environment, declared: &mut Declared) {
        self.next.declare(env, declared);
        let operator = &mut self.operator;
        let mut states = OperatorStates::new();
        self.core
            .declare(env, declared, &mut states, |keyed, _| operator.open(keyed));
    }

    fn prepare_barrier(&mut self, barrier: &Barrier) -> Result<()> {
        let mut out = Out::new(self.next.as_mut(), NO_TIMESTAMP, self.core.watermark);
        let result = self.operator.prepare_barrier(barrier.id, &mut out);
        result.map_err(|error| self.named(error))?;
        self.next.prepare_barrier(barrier)
    }

    fn snapshot(&mut self, request: &SnapshotRequest, set: &mut SubtaskSnapshot) -> Result<()> {
        self.next.snapshot(request, set)?;
        let operator = &mut self.operator;
        let result = self.core.snapshot(request, set, |raw| {
            operator.snapshot_raw(raw)?;
            operator.snapshot_work(request.checkpoint)
        });
        result.map_err(|error| self.named(error))
    }

    fn completed(&mut self, id: CheckpointId) -> Result<()> {
        let behind = self.next.completed(id);
        let own = first_error(
            self.operator.checkpoint_completed(id),
            self.core.completed(id),
        );
        first_error(behind, own.map_err(|error| self.named(error)))
    }

    fn aborted(&mut self, id: CheckpointId) -> Result<()> {
        let behind = self.next.aborted(id);
        let own = first_error(self.operator.checkpoint_aborted(id), self.core.aborted(id));
        first_error(behind, own.map_err(|error| self.named(error)))
    }

    fn finish(&mut self) -> Result<()> {
        if self.core.finish() {
            let mut out = Out::new(self.next.as_mut(), NO_TIMESTAMP, self.core.watermark);
            let result = self.operator.finish(&mut out);
            result.map_err(|error| self.named(error))?;
        }
        self.next.finish()
    }

    fn maintain(&mut self) -> bool {
        let own = self.core.maintain();
        self.next.maintain() || own
    }
}
