use managed_state::keyed::{At, DueTimer, Timers, ValueState};
use state_api::access::ValueAccess;
use state_api::{Error, Result};

use super::sessions::{Joined, OpenSession};
use super::{Contents, TimeWindow, Windowing, Windows};
use crate::operator::{KeyedOperator, Out, States};

/// Gathers the records of each key and window, and fires windows.
///
/// Per window there is one timer at a time: when it is to fire, and once that has fired, when its state is to be removed.
/// Which sessions of a key are open is state too, so they survive a restore and a change of the parallelism.
#[derive(Clone)]
pub(crate) struct WindowOperator<C: Contents> {
    windowing: Windowing<C::In>,
    contents: C,
    timers: Timers<TimeWindow>,
    sessions: ValueState<Vec<OpenSession>>,
}

impl<C: Contents> WindowOperator<C> {
    pub(crate) fn new(windowing: Windowing<C::In>, contents: C) -> Self {
        Self {
            windowing,
            contents,
            timers: Timers::default(),
            sessions: ValueState::default(),
        }
    }

    fn has_sessions(&self) -> bool {
        matches!(self.windowing.windows, Windows::Session(_))
    }

    fn fire(
        &mut self,
        window: TimeWindow,
        place: &TimeWindow,
        at: &mut At<'_, C::Key>,
        out: &mut Out<'_, C::Out>,
    ) -> Result<()> {
        let mut out = out.at_time(window.last_ms());
        self.contents.fire(window, place, at, &mut out)
    }

    /// Adds a record to a window that is not over.
    fn add(
        &mut self,
        window: TimeWindow,
        place: &TimeWindow,
        record: C::In,
        at: &mut At<'_, C::Key>,
        out: &mut Out<'_, C::Out>,
    ) -> Result<()> {
        self.contents.add(place, record, at)?;
        let mut timer = self.windowing.fires_at(window);
        if !self.windowing.by_clock && timer <= out.watermark() {
            self.fire(window, place, at, out)?;
            timer = self.windowing.over_at(window);
        }
        at.timers_in(self.timers, &window).set(timer).map(drop)
    }

    fn add_to_session(
        &mut self,
        alone: TimeWindow,
        record: C::In,
        at: &mut At<'_, C::Key>,
        out: &mut Out<'_, C::Out>,
    ) -> Result<()> {
        let mut open = at.value(self.sessions).get()?.unwrap_or_default();
        let joined = Joined::of(&open, alone);
        let OpenSession { window, place } = joined.session;
        if self.windowing.is_over(window, out.watermark()) {
            return self.late(record, out);
        }
        if joined.is_change() {
            for OpenSession { window: before, .. } in &joined.merged {
                let mut timers = at.timers_in(self.timers, before);
                timers.remove(self.windowing.fires_at(*before))?;
                timers.remove(self.windowing.over_at(*before))?;
            }
            let others = joined.places_to_move();
            if !others.is_empty() {
                self.contents.merge(&place, &others, at)?;
            }
            joined.apply(&mut open);
            at.value(self.sessions).set(open)?;
        }
        self.add(window, &place, record, at, out)
    }

    /// Hands a record on that came after everything it could have been part of.
    #[cold]
    fn late(&mut self, record: C::In, out: &mut Out<'_, C::Out>) -> Result<()> {
        if let Some(late_output) = self.windowing.late_output {
            return out.emit_side(late_output, record);
        }
        metrics::counter!("holdfast_late_records_total").increment(1);
        Ok(())
    }

    /// Removes a session from those that are open.
    fn close_session(&mut self, window: TimeWindow, at: &mut At<'_, C::Key>) -> Result<()> {
        let mut open = at.value(self.sessions).get()?.unwrap_or_default();
        open.retain(|session| session.window != window);
        if open.is_empty() {
            at.value(self.sessions).clear()
        } else {
            at.value(self.sessions).set(open)
        }
    }
}

impl<C: Contents> KeyedOperator for WindowOperator<C> {
    type Key = C::Key;
    type In = C::In;
    type Out = C::Out;

    fn open(&mut self, states: &mut States<'_, C::Key>) -> Result<()> {
        self.contents.open(states)?;
        self.timers = if self.windowing.by_clock {
            states.processing_timers("window-end")?
        } else {
            states.event_timers("window-end")?
        };
        if self.has_sessions() {
            self.sessions = states.value("sessions")?;
        }
        Ok(())
    }

    fn process(
        &mut self,
        record: C::In,
        at: &mut At<'_, C::Key>,
        out: &mut Out<'_, C::Out>,
    ) -> Result<()> {
        let event_time = if self.windowing.by_clock {
            Some(at.now_ms())
        } else {
            out.time()
        };
        let Some(time) = event_time else {
            return Err(Error::invalid(
                "a window in event time needs records with one: assign watermarks before it",
            ));
        };
        let windowing = self.windowing;
        let watermark = out.watermark();
        if self.has_sessions() {
            let alone = windowing.windows.of(time).next();
            return alone.map_or(Ok(()), |alone| self.add_to_session(alone, record, at, out));
        }
        let in_time = |window: &TimeWindow| !windowing.is_over(*window, watermark);
        let mut windows = windowing.windows.of(time).filter(in_time).peekable();
        while let Some(window) = windows.next() {
            if windows.peek().is_none() {
                return self.add(window, &window, record, at, out);
            }
            self.add(window, &window, record.clone(), at, out)?;
        }
        // One that lies between two windows is in none, and not late.
        if windowing.is_late(time, watermark) {
            return self.late(record, out);
        }
        Ok(())
    }

    fn on_timer(
        &mut self,
        due: &DueTimer<C::Key>,
        at: &mut At<'_, C::Key>,
        out: &mut Out<'_, C::Out>,
    ) -> Result<()> {
        let window: TimeWindow = due.namespace()?;
        let mut place = window;
        if self.has_sessions() {
            let open = at.value(self.sessions).get()?.unwrap_or_default();
            match open.iter().find(|session| session.window == window) {
                Some(session) => place = session.place,
                None => return Ok(()),
            }
        }
        if due.time == self.windowing.fires_at(window) {
            self.fire(window, &place, at, out)?;
        }
        // Compared, not equal: the allowed lateness may be another one than when the timer was set.
        let over_at = self.windowing.over_at(window);
        if due.time < over_at {
            return at.timers_in(self.timers, &window).set(over_at).map(drop);
        }
        self.contents.clear(window, &place, at)?;
        if self.has_sessions() {
            self.close_session(window, at)?;
        }
        Ok(())
    }
}
