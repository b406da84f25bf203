//! Days and times of the proleptic Gregorian calendar, in UTC.

/// Milliseconds of a day.
pub(crate) const DAY_MS: i64 = 86_400_000;

/// Returns the number of days from 1970-01-01 to a date; `None` when there is no such date.
pub(crate) fn days_of(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(0..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Years that begin in March, so that the leap day is the last: H. Hinnant, "chrono-compatible low-level date algorithms".
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    // A 30th of February would come back as a day of March.
    (date_of(days) == (year + i64::from(month <= 2), month, day)).then_some(days)
}

/// Returns year, month and day of a number of days from 1970-01-01.
pub(crate) fn date_of(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

/// Writes the date of a time in milliseconds: `2013-01-31`.
pub(crate) fn date_text(time_ms: i64) -> String {
    let (year, month, day) = date_of(time_ms.div_euclid(DAY_MS));
    format!("{year:04}-{month:02}-{day:02}")
}

/// Writes a time in milliseconds: `2013-01-31 23:59:59 UTC`.
pub(crate) fn time_text(time_ms: i64) -> String {
    let seconds = time_ms.rem_euclid(DAY_MS) / 1000;
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    format!(
        "{} {hours:02}:{minutes:02}:{:02} UTC",
        date_text(time_ms),
        seconds % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_days_are_inverses_over_eight_hundred_years() {
        for days in -146_097..146_097 {
            let (year, month, day) = date_of(days);
            assert_eq!(days_of(year, month, day), Some(days));
        }
        assert_eq!(days_of(1970, 1, 1), Some(0));
        assert_eq!(days_of(2013, 1, 1), Some(15_706));
        assert_eq!(days_of(2000, 2, 29), Some(11_016));
    }

    #[test]
    fn there_is_no_thirtieth_of_february() {
        assert_eq!(days_of(2012, 2, 30), None);
        assert_eq!(days_of(2013, 2, 29), None);
        assert_eq!(days_of(2013, 13, 1), None);
        assert_eq!(days_of(2013, 0, 1), None);
    }

    #[test]
    fn times_are_written_in_utc_also_before_the_epoch() {
        assert_eq!(time_text(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(time_text(-1000), "1969-12-31 23:59:59 UTC");
        assert_eq!(date_text(15_706 * DAY_MS), "2013-01-01");
    }
}
