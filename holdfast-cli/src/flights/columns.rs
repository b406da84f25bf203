use std::borrow::Cow;

use state_api::{Error, Result};

use super::Flight;
use crate::date::days_of;

/// What stands in a field that has no value.
const NOT_AVAILABLE: &str = "NA";

/// Characters of a bad line that an error shows.
const SHOWN: usize = 80;

/// Where the columns are that the job reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Columns {
    year: usize,
    month: usize,
    day: usize,
    departure: usize,
    delay: usize,
    carrier: usize,
    count: usize,
}

impl Columns {
    /// Finds the columns in the first line of a file.
    ///
    /// # Errors
    /// `Config` names the columns that are missing.
    pub(crate) fn of_header(line: &str) -> Result<Self> {
        let header: Vec<Cow<'_, str>> = fields(line.trim_start_matches('\u{feff}')).collect();
        let mut missing = Vec::new();
        let mut find = |name: &'static str| {
            let found = header
                .iter()
                .position(|field| field.trim().eq_ignore_ascii_case(name));
            found.unwrap_or_else(|| {
                missing.push(name);
                0
            })
        };
        let columns = Self {
            year: find("year"),
            month: find("month"),
            day: find("day"),
            departure: find("dep_time"),
            delay: find("dep_delay"),
            carrier: find("carrier"),
            count: header.len(),
        };
        if missing.is_empty() {
            return Ok(columns);
        }
        Err(Error::config(format!(
            "the first line of a file of flights names its columns; missing: {}",
            missing.join(", ")
        ))
        .with("line", shortened(line)))
    }

    /// Reads a line; an empty one is no flight.
    ///
    /// # Errors
    /// `User` says what is wrong with the line, and shows its beginning.
    pub(crate) fn flight(&self, line: &str) -> Result<Option<Flight>> {
        if line.trim().is_empty() {
            return Ok(None);
        }
        self.read(line).map(Some).map_err(|why| {
            Error::user(format!("a line is no flight: {why}"))
                .with("line", format!("{:?}", shortened(line)))
        })
    }

    /// Returns the day of a line that is a flight.
    pub(crate) fn day(&self, line: &str) -> Option<i64> {
        self.read(line).ok().map(|flight| flight.day)
    }

    fn read(&self, line: &str) -> std::result::Result<Flight, String> {
        let mut found: [Option<Cow<'_, str>>; 6] = Default::default();
        let wanted = [
            self.year,
            self.month,
            self.day,
            self.departure,
            self.delay,
            self.carrier,
        ];
        let mut count = 0;
        for (place, field) in fields(line).enumerate() {
            count += 1;
            if let Some(slot) = wanted.iter().position(|column| *column == place) {
                found[slot] = Some(field);
            }
        }
        if count != self.count {
            return Err(format!("it has {count} fields, not {}", self.count));
        }
        let [
            Some(year),
            Some(month),
            Some(day),
            Some(departure),
            Some(delay),
            Some(carrier),
        ] = found
        else {
            return Err("two columns have one name".into());
        };
        let date = || days_of(number(&year)?, number(&month)?, number(&day)?);
        let day = date().ok_or_else(|| format!("there is no day {year:?}-{month:?}-{day:?}"))?;
        let carrier = carrier.trim();
        if carrier.is_empty() || carrier == NOT_AVAILABLE {
            return Err("it names no carrier".into());
        }
        let delay =
            if departure.trim() == NOT_AVAILABLE {
                None
            } else {
                let minutes = number(&delay).filter(|minutes| minutes.abs() < 1_000_000);
                Some(minutes.ok_or_else(|| {
                    format!("dep_delay is {delay:?}, which is no number of minutes")
                })?)
            };
        Ok(Flight {
            carrier: carrier.to_owned(),
            day,
            delay,
        })
    }
}

fn number(field: &str) -> Option<i64> {
    field.trim().parse().ok()
}

fn shortened(line: &str) -> String {
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

/// Splits a line at commas that are not within quotation marks.
pub(crate) fn fields(line: &str) -> impl Iterator<Item = Cow<'_, str>> {
    let mut rest = Some(line);
    std::iter::from_fn(move || {
        let line = rest?;
        let (field, behind) = if line.starts_with('"') {
            quoted(line)
        } else {
            bare(line)
        };
        rest = behind;
        Some(field)
    })
}

fn bare(line: &str) -> (Cow<'_, str>, Option<&str>) {
    match line.split_once(',') {
        Some((field, behind)) => (Cow::Borrowed(field), Some(behind)),
        None => (Cow::Borrowed(line), None),
    }
}

fn quoted(line: &str) -> (Cow<'_, str>, Option<&str>) {
    let mut field = String::new();
    let mut characters = line.char_indices().skip(1).peekable();
    while let Some((_, character)) = characters.next() {
        if character != '"' {
            field.push(character);
        } else if characters.next_if(|(_, next)| *next == '"').is_some() {
            field.push('"');
        } else {
            break;
        }
    }
    // What stands between the closing mark and the comma belongs to the field, as most readers have it.
    let at = characters.peek().map_or(line.len(), |(at, _)| *at);
    let (tail, behind) = bare(&line[at..]);
    field.push_str(&tail);
    (Cow::Owned(field), behind)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "year,month,day,dep_time,sched_dep_time,dep_delay,carrier,flight";

    fn split(line: &str) -> Vec<String> {
        fields(line).map(Cow::into_owned).collect()
    }

    #[test]
    fn fields_are_split_at_commas_outside_of_quotation_marks() {
        assert_eq!(split("a,b,,c"), ["a", "b", "", "c"]);
        assert_eq!(split(""), [""]);
        assert_eq!(split("a,"), ["a", ""]);
        assert_eq!(split("\"a,b\",c"), ["a,b", "c"]);
        assert_eq!(split("\"a \"\"b\"\"\",c"), ["a \"b\"", "c"]);
        assert_eq!(split("\"open,c"), ["open,c"]);
        assert_eq!(split("\"a\"b,c"), ["ab", "c"]);
    }

    #[test]
    fn a_flight_is_read_by_the_names_of_the_columns() {
        let columns = Columns::of_header(HEADER).unwrap();
        let flight = columns
            .flight("2013,1,2,517,515,-2,UA,1545")
            .unwrap()
            .unwrap();
        assert_eq!(
            flight,
            Flight {
                carrier: "UA".into(),
                day: 15_707,
                delay: Some(-2)
            }
        );
        let moved = Columns::of_header("carrier,dep_delay,dep_time,day,month,year").unwrap();
        assert_eq!(moved.flight("UA,-2,517,2,1,2013").unwrap(), Some(flight));
        assert_eq!(columns.flight("").unwrap(), None);
    }

    #[test]
    fn a_flight_without_departure_is_cancelled() {
        let columns = Columns::of_header(HEADER).unwrap();
        let flight = columns
            .flight("2013,1,1,NA,1630,NA,EV,4308")
            .unwrap()
            .unwrap();
        assert_eq!(flight.delay, None);
    }

    #[test]
    fn a_line_that_is_no_flight_says_why_and_is_shown_shortened() {
        let columns = Columns::of_header(HEADER).unwrap();
        for (line, why) in [
            ("2013,1,1,517", "it has 4 fields, not 8"),
            ("2013,2,30,517,515,2,UA,1545", "there is no day"),
            ("x,1,1,517,515,2,UA,1545", "there is no day"),
            ("2013,1,1,517,515,late,UA,1545", "dep_delay is \"late\""),
            ("2013,1,1,517,515,NA,UA,1545", "dep_delay is \"NA\""),
            ("2013,1,1,517,515,2,NA,1545", "names no carrier"),
        ] {
            let error = columns.flight(line).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains(line), "{error}");
        }
        let long = "9".repeat(500);
        assert!(columns.flight(&long).unwrap_err().to_string().len() < 250);
    }

    #[test]
    fn a_header_without_a_column_names_it() {
        let error = Columns::of_header("year,month,day,carrier")
            .unwrap_err()
            .to_string();
        assert!(error.contains("missing: dep_time, dep_delay"), "{error}");
    }
}
