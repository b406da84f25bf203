use std::path::{Path, PathBuf};
use std::sync::Arc;

use runtime_core::sources::{FileLines, RateLimited};
use runtime_core::{Job, Stream, Tumbling};
use state_api::Result;

use super::delays::AddUp;
use super::names::{Carrier, NameCarriers};
use super::row::row;
use super::survey::Survey;
use super::{Carriers, Flight};
use crate::date::DAY_MS;
use crate::input::{ObservedLines, Reading, files_of};

/// What the job reads.
#[derive(Clone, Debug)]
pub(crate) struct FlightsInput {
    /// A file of flights, or a folder of such files.
    pub(crate) flights: PathBuf,
    /// Where the carriers' names come from.
    pub(crate) carriers: Carriers,
}

impl FlightsInput {
    /// Describes the input of a command line.
    pub(crate) fn new(flights: &Path, airlines: Option<&Path>) -> Self {
        Self {
            flights: flights.to_owned(),
            carriers: Carriers::find(airlines, flights),
        }
    }
}

/// Builds the job, up to the rows; `rate` limits the flights per second.
///
/// # Errors
/// Those of looking through the input.
pub(crate) fn build(
    job: &Job,
    input: &FlightsInput,
    rate: Option<f64>,
    reading: &Arc<Reading>,
) -> Result<Stream<String>> {
    let (folder, files) = files_of(&input.flights)?;
    let Survey {
        columns,
        days_out_of_order,
    } = Survey::of(&folder, &files)?;
    let carriers = input.carriers.read()?;

    let lines = FileLines::new(&input.flights)
        .skip_header()
        .parsed(move |line| columns.flight(line));
    let lines = ObservedLines::new(lines, &folder, reading);
    let flights = match rate {
        Some(rate) => job.source("flights", RateLimited::new(lines, rate)),
        None => job.source("flights", lines),
    };
    let days = flights
        .assign_watermarks(days_out_of_order * DAY_MS, |flight: &Flight| {
            flight.day * DAY_MS
        })
        .persist_in_flight()
        .key_by_ref(|flight| &flight.carrier)
        .window(Tumbling::of(DAY_MS))
        .aggregate("delays", AddUp);

    let names = job
        .source("carriers", Carrier::source(carriers))
        .parallelism(1);
    let named =
        days.key_by_ref(|day| &day.key)
            .connect_broadcast(&names, "names", NameCarriers::default());
    Ok(named.map(|day| row(day.start_ms, &day.carrier, &day.name, &day.totals)))
}
