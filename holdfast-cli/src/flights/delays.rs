use state_api::access::Aggregator;
use state_api::{Result, StateType};

use super::Flight;

/// What one carrier's flights of one day add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, StateType)]
pub(crate) struct DayTotals {
    /// Flights, those that were cancelled included.
    pub(crate) flights: u64,
    /// Flights that were cancelled.
    pub(crate) cancelled: u64,
    /// Minutes of departure delay of all that departed; early departures count below zero.
    pub(crate) delay_minutes: i64,
}

impl DayTotals {
    /// Writes the mean departure delay in minutes with two decimals, or `NA` when nothing departed.
    ///
    /// It comes from integers alone, so it is the same in whatever order the flights came.
    pub(crate) fn mean_delay(&self) -> String {
        let departed = i128::from(self.flights.saturating_sub(self.cancelled));
        if departed == 0 {
            return "NA".into();
        }
        let hundredths = i128::from(self.delay_minutes) * 100;
        let half = departed / 2 * hundredths.signum();
        let rounded = (hundredths + half) / departed;
        let sign = if rounded < 0 { "-" } else { "" };
        format!("{sign}{}.{:02}", rounded.abs() / 100, rounded.abs() % 100)
    }
}

/// Adds flights up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AddUp;

impl Aggregator for AddUp {
    type In = Flight;
    type Acc = DayTotals;
    type Out = DayTotals;

    fn create(&self) -> DayTotals {
        DayTotals::default()
    }

    fn add(&self, totals: &mut DayTotals, flight: Flight) -> Result<()> {
        totals.flights += 1;
        match flight.delay {
            Some(minutes) => totals.delay_minutes = totals.delay_minutes.saturating_add(minutes),
            None => totals.cancelled += 1,
        }
        Ok(())
    }

    fn merge(&self, totals: &mut DayTotals, other: DayTotals) -> Result<()> {
        totals.flights += other.flights;
        totals.cancelled += other.cancelled;
        totals.delay_minutes = totals.delay_minutes.saturating_add(other.delay_minutes);
        Ok(())
    }

    fn result(&self, totals: &DayTotals) -> DayTotals {
        *totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(flights: u64, cancelled: u64, delay_minutes: i64) -> String {
        DayTotals {
            flights,
            cancelled,
            delay_minutes,
        }
        .mean_delay()
    }

    #[test]
    fn the_mean_leaves_cancelled_flights_out_and_is_rounded_away_from_zero() {
        assert_eq!(mean(4, 1, 10), "3.33");
        assert_eq!(mean(3, 0, 5), "1.67");
        assert_eq!(mean(3, 0, -5), "-1.67");
        assert_eq!(mean(8, 0, 1), "0.13");
        assert_eq!(mean(8, 0, -1), "-0.13");
        assert_eq!(mean(1000, 0, -1), "0.00");
        assert_eq!(mean(2, 2, 0), "NA");
        assert_eq!(mean(0, 0, 0), "NA");
        assert_eq!(mean(1, 0, i64::MAX), format!("{}.00", i64::MAX));
    }

    #[test]
    fn adding_up_is_the_same_in_any_order_and_grouping() {
        let flights = [Some(5), None, Some(-2), Some(100), None].map(|delay| Flight {
            carrier: "UA".into(),
            day: 0,
            delay,
        });
        let sum = |flights: &[Flight]| {
            let mut totals = AddUp.create();
            flights
                .iter()
                .for_each(|f| AddUp.add(&mut totals, f.clone()).unwrap());
            totals
        };
        let whole = sum(&flights);
        assert_eq!(
            whole,
            DayTotals {
                flights: 5,
                cancelled: 2,
                delay_minutes: 103
            }
        );
        let mut parts = sum(&flights[3..]);
        AddUp.merge(&mut parts, sum(&flights[..3])).unwrap();
        assert_eq!(parts, whole);
    }
}
