use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::LocalBoxFuture;
use managed_state::operator::OperatorStates;
use state_api::{CheckpointId, Clock, Result, SnapshotRequest};

use super::declared::Declared;
use super::environment::Environment;
use super::gate::Gate;
use super::key_selector::{Keyed, KeyedPort};
use super::keyed_core::KeyedCore;
use super::link::{Control, Head, Link, Turn, at_operator, first_error};
use super::port::{Polled, Port};
use super::valve::{Advance, Valve};
use crate::channel::Barrier;
use crate::operator::{BroadcastOperator, BroadcastSide, Out};
use crate::record::NO_TIMESTAMP;
use crate::task::SubtaskSnapshot;

/// Which input, as numbered in the valve.
const KEYED: usize = 0;
const BROADCAST: usize = 1;

/// An operator over keyed state with a broadcast input, at the start of a chain.
pub(crate) struct BroadcastHead<O: BroadcastOperator> {
    gate: Gate,
    keyed: KeyedPort<O::Key, O::In>,
    broadcast: Port<O::Broadcast>,
    /// Event time of both inputs together.
    valve: Valve,
    operator: O,
    core: KeyedCore<O::Key>,
    states: OperatorStates,
    next: Box<dyn Link<O::Out>>,
    congested: Rc<Cell<bool>>,
    clock: Arc<dyn Clock>,
}

impl<O: BroadcastOperator> BroadcastHead<O> {
    pub(crate) fn new(
        gate: Gate,
        keyed: KeyedPort<O::Key, O::In>,
        broadcast: Port<O::Broadcast>,
        operator: O,
        core: KeyedCore<O::Key>,
        next: Box<dyn Link<O::Out>>,
        env: &Environment,
    ) -> Self {
        Self {
            gate,
            keyed,
            broadcast,
            valve: Valve::new(2),
            operator,
            core,
            states: OperatorStates::of_subtask(env.subtask.index),
            next,
            congested: Rc::clone(&env.congested),
            clock: Arc::clone(&env.clock),
        }
    }

    /// Returns whether there is room for output and nothing wants to be heard first.
    #[inline]
    fn may_go_on(&self) -> bool {
        !self.congested.get() && !self.gate.is_called()
    }

    /// Processes records of the current batches; returns how many.
    fn process_records(&mut self, budget: usize) -> Result<usize> {
        let watermark = self.core.watermark;
        let mut processed = 0;
        while processed < budget && self.may_go_on() {
            let Some(record) = self.broadcast.next_record() else {
                break;
            };
            let mut out = Out::new(self.next.as_mut(), record.time, watermark);
            let mut side = BroadcastSide {
                broadcast: &mut self.states,
                keyed: self.core.states()?,
            };
            self.operator
                .process_broadcast(record.value, &mut side, &mut out)?;
            processed += 1;
        }
        while processed < budget && self.may_go_on() {
            self.core.fetch(&self.keyed);
            let Some(record) = self.keyed.records.next_record() else {
                break;
            };
            let Keyed { key, hash, value } = record.value;
            let key = self.keyed.key.of(key, &value);
            let (mut at, watermark) = self.core.at_record(key, hash)?;
            let mut out = Out::new(self.next.as_mut(), record.time, watermark);
            self.operator
                .process(value, &mut at, &self.states, &mut out)?;
            processed += 1;
        }
        Ok(processed)
    }

    /// Fires timers that a watermark made due; returns whether all have fired, and passes the watermark on then.
    fn fire_event_timers(&mut self, up_to: i64) -> Result<bool> {
        let is_new = self.core.advance(up_to);
        while self.may_go_on() {
            let Some(due) = self.core.pop_event(up_to)? else {
                self.core.firing = None;
                if self.core.told.watermark(up_to) && is_new {
                    let mut out = Out::new(self.next.as_mut(), NO_TIMESTAMP, up_to);
                    let states = &mut self.states;
                    self.operator.on_watermark(up_to, states, &mut out)?;
                }
                self.next.watermark(up_to)?;
                return Ok(true);
            };
            let (mut at, watermark) = self.core.at_timer(&due.key)?;
            let mut out = Out::new(self.next.as_mut(), due.time, watermark);
            self.operator
                .on_timer(&due, &mut at, &self.states, &mut out)?;
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
            self.operator
                .on_timer(&due, &mut at, &self.states, &mut out)?;
            fired += 1;
        }
        Ok(fired)
    }

    fn advance(&mut self, advance: Advance) -> Result<()> {
        match advance {
            Advance::Nothing => Ok(()),
            Advance::Watermark(time) => {
                self.core.firing = Some(time);
                Ok(())
            }
            Advance::Idle => {
                self.next.flush()?;
                self.next.idle()
            }
        }
    }

    fn run(&mut self, budget: usize) -> Result<Turn> {
        // What is broadcast can't be dealt out anew, so barriers stay in line here.
        if let Some(cut) = self.gate.attend(&mut []) {
            return Ok(Turn::Cut(cut));
        }
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
                if self.has_ended() {
                    return Ok(Turn::InputEnded);
                }
            }
            done += self.process_records(budget.saturating_sub(done))?;
            if !self.may_go_on() {
                continue;
            }
            if done >= budget || self.keyed.records.has_records() || self.broadcast.has_records() {
                return Ok(Turn::Worked);
            }
            // What was broadcast is of use to the records that come after it, so it goes first.
            let (input, polled) = match self.broadcast.poll(&mut self.gate) {
                Polled::Nothing => (KEYED, self.keyed.records.poll(&mut self.gate)),
                polled => (BROADCAST, polled),
            };
            match polled {
                Polled::Records => {
                    self.core.told.record();
                    self.valve.active(input);
                }
                Polled::Watermark(time) => {
                    let advance = self.valve.watermark(input, time);
                    self.advance(advance)?;
                }
                Polled::Idle => {
                    let advance = self.valve.idle(input);
                    self.advance(advance)?;
                }
                Polled::Cut => return Ok(self.gate.next_cut().map_or(Turn::Worked, Turn::Cut)),
                Polled::Ended if self.has_ended() => return Ok(Turn::InputEnded),
                Polled::Ended => {}
                Polled::Nothing if done > 0 => return Ok(Turn::Worked),
                Polled::Nothing => {
                    return Ok(Turn::Waiting {
                        wake_at_ms: self.core.next_wakeup()?,
                    });
                }
            }
        }
    }

    fn has_ended(&self) -> bool {
        self.core.firing.is_none()
            && [self.keyed.records.has_ended(), self.broadcast.has_ended()] == [true; 2]
            && !self.keyed.records.has_records()
            && !self.broadcast.has_records()
    }

    #[cold]
    fn named(&self, error: state_api::Error) -> state_api::Error {
        at_operator(error, Some(self.core.uid()))
    }
}

impl<O: BroadcastOperator> Head for BroadcastHead<O> {
    fn turn(&mut self, budget: usize) -> Result<Turn> {
        match self.run(budget) {
            Ok(turn) => Ok(turn),
            Err(error) => Err(self.named(error)),
        }
    }

    fn gate(&mut self) -> Option<&mut Gate> {
        Some(&mut self.gate)
    }
}

impl<O: BroadcastOperator> Control for BroadcastHead<O> {
    fn next(&mut self) -> Option<&mut dyn Control> {
        Some(self.next.as_mut())
    }

    fn open<'a>(&'a mut self, env: &'a Environment) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.next.open(env).await?;
            let (operator, broadcast) = (&mut self.operator, &mut self.states);
            let uid = self.core.uid().clone();
            let result = async {
                if let Some((_, snapshot)) = env.restored(&uid) {
                    broadcast
                        .restore(&snapshot.managed_operator, &env.restore_context())
                        .await?;
                }
                if let Some(raw) = self.core.restored_raw(env).await? {
                    operator.restore_raw(raw)?;
                }
                self.core
                    .open(env, |states| operator.open(states, broadcast))
                    .await?;
                self.core.open_time_in(broadcast)
            };
            result.await.map_err(|error| at_operator(error, Some(&uid)))
        })
    }

    fn declare(&mut self, env: &Environment, declared: &mut Declared) {
        self.next.declare(env, declared);
        let operator = &mut self.operator;
        self.core
            .declare(env, declared, &mut self.states, |keyed, broadcast| {
                operator.open(keyed, broadcast)
            });
    }

    fn prepare_barrier(&mut self, barrier: &Barrier) -> Result<()> {
        let mut out = Out::new(self.next.as_mut(), NO_TIMESTAMP, self.core.watermark);
        let states = &mut self.states;
        let result = self.operator.prepare_barrier(barrier.id, states, &mut out);
        result.map_err(|error| self.named(error))?;
        self.next.prepare_barrier(barrier)
    }

    fn snapshot(&mut self, request: &SnapshotRequest, set: &mut SubtaskSnapshot) -> Result<()> {
        self.next.snapshot(request, set)?;
        let (operator, states) = (&mut self.operator, &mut self.states);
        let result = self.core.snapshot_in(request, set, states, |raw| {
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
