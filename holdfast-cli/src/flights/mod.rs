//! The job `flights`: flights, cancellations and the mean departure delay per carrier and day.
//!
//! ```text
//! lines of CSV ─ watermarks ─ by carrier ─ windows of a day ─┐
//!                                                            ├ names ─ rows
//! carriers (broadcast) ──────────────────────────────────────┘
//! ```
mod carriers;
mod columns;
mod delays;
mod job;
mod names;
mod row;
mod survey;

pub(crate) use carriers::Carriers;
pub(crate) use job::{FlightsInput, build};
pub(crate) use row::HEADER;

use state_api::StateType;

/// One flight, as far as the job needs it.
#[derive(Clone, Debug, PartialEq, Eq, StateType)]
pub(crate) struct Flight {
    /// The carrier's code.
    pub(crate) carrier: String,
    /// The day that the flight was planned for, as the number of days from 1970-01-01.
    pub(crate) day: i64,
    /// Minutes between planned and actual departure; `None` when the flight was cancelled.
    pub(crate) delay: Option<i64>,
}
