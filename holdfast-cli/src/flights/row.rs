use super::delays::DayTotals;
use crate::date::date_text;

/// The names of the output's columns; files don't repeat them.
pub(crate) const HEADER: &str = "day,carrier,name,flights,cancelled,mean_dep_delay_minutes";

/// Writes a row of the output.
pub(crate) fn row(day_ms: i64, carrier: &str, name: &str, totals: &DayTotals) -> String {
    format!(
        "{},{},{},{},{},{}",
        date_text(day_ms),
        field(carrier),
        field(name),
        totals.flights,
        totals.cancelled,
        totals.mean_delay()
    )
}

/// Puts a field into quotation marks where CSV needs them.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_csv_also_when_a_name_has_a_comma() {
        let totals = DayTotals {
            flights: 3,
            cancelled: 1,
            delay_minutes: 7,
        };
        assert_eq!(
            row(15_706 * 86_400_000, "UA", "United, \"Inc.\"", &totals),
            "2013-01-01,UA,\"United, \"\"Inc.\"\"\",3,1,3.50"
        );
    }
}
