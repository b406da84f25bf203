use managed_state::keyed::{At, DueTimer, Timers, ValueState};
use managed_state::operator::{BroadcastState, OperatorStates};
use runtime_core::sources::Generator;
use runtime_core::{BroadcastOperator, BroadcastSide, Out, States, Windowed};
use state_api::access::ValueAccess;
use state_api::{Error, Result};

use super::delays::DayTotals;

/// A carrier's code and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Carrier {
    code: String,
    name: String,
}

impl Carrier {
    /// Creates a source of carriers.
    pub(crate) fn source(carriers: Vec<(String, String)>) -> Generator<Self> {
        Generator::collection(carriers.into_iter().map(|(code, name)| Self { code, name }))
    }
}

/// What a carrier did on a day, with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedDay {
    pub(crate) start_ms: i64,
    pub(crate) carrier: String,
    pub(crate) name: String,
    pub(crate) totals: DayTotals,
}

/// Joins the carriers' names, which are broadcast, to what the carriers did.
///
/// A day waits for a timer at its end. It fires when event time has got there on both inputs, and the carriers come without event time: so
/// all of them are there by then. A carrier whose name is not known goes by its code.
#[derive(Clone, Default)]
pub(crate) struct NameCarriers {
    names: BroadcastState<String, String>,
    waiting: ValueState<DayTotals, i64>,
    day_end: Timers<i64>,
}

impl BroadcastOperator for NameCarriers {
    type Key = String;
    type In = Windowed<String, DayTotals>;
    type Broadcast = Carrier;
    type Out = NamedDay;

    fn open(
        &mut self,
        states: &mut States<'_, String>,
        broadcast: &mut OperatorStates,
    ) -> Result<()> {
        self.names = broadcast.broadcast("names")?;
        self.waiting = states.value("waiting")?;
        self.day_end = states.event_timers("day-end")?;
        Ok(())
    }

    fn process(
        &mut self,
        day: Self::In,
        at: &mut At<'_, String>,
        _: &OperatorStates,
        _: &mut Out<'_, NamedDay>,
    ) -> Result<()> {
        at.value_in(self.waiting, &day.start_ms).set(day.value)?;
        at.timers_in(self.day_end, &day.start_ms)
            .set(day.end_ms - 1)?;
        Ok(())
    }

    fn process_broadcast(
        &mut self,
        carrier: Carrier,
        side: &mut BroadcastSide<'_, String>,
        _: &mut Out<'_, NamedDay>,
    ) -> Result<()> {
        side.broadcast
            .entries_mut(self.names)?
            .insert(carrier.code, carrier.name);
        Ok(())
    }

    fn on_timer(
        &mut self,
        due: &DueTimer<String>,
        at: &mut At<'_, String>,
        broadcast: &OperatorStates,
        out: &mut Out<'_, NamedDay>,
    ) -> Result<()> {
        let start_ms: i64 = due.namespace()?;
        let mut waiting = at.value_in(self.waiting, &start_ms);
        let totals = waiting
            .get()?
            .ok_or_else(|| Error::bug("a day's timer fires without the day"))?;
        waiting.clear()?;
        let name = broadcast
            .entries(self.names)?
            .get(&due.key)
            .unwrap_or(&due.key);
        out.emit(NamedDay {
            start_ms,
            carrier: due.key.clone(),
            name: name.clone(),
            totals,
        })
    }
}
