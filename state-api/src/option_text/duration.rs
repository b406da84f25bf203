use std::time::Duration;

const UNITS: &[(&[&str], u64)] = &[
    (&["d", "day", "days"], 86_400_000_000_000),
    (&["h", "hour", "hours"], 3_600_000_000_000),
    (&["m", "min", "minute", "minutes"], 60_000_000_000),
    (&["s", "sec", "secs", "second", "seconds"], 1_000_000_000),
    (
        &["ms", "milli", "millis", "millisecond", "milliseconds"],
        1_000_000,
    ),
    (
        &[
            "us",
            "µs",
            "μs",
            "micro",
            "micros",
            "microsecond",
            "microseconds",
        ],
        1_000,
    ),
    (&["ns", "nano", "nanos", "nanosecond", "nanoseconds"], 1),
];

/// Reads `10 min`, `500ms`, `PT1M30S`, or a bare number of milliseconds, as Flink's `TimeUtils` does.
///
/// # Errors
/// Says in words what is wrong.
pub fn parse(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if text.starts_with(['P', 'p']) {
        return iso(text)
            .ok_or_else(|| "it is not an ISO 8601 duration such as PT1M30S".to_owned());
    }
    let digits = text.chars().take_while(char::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(
            "a duration starts with a number that is not negative, such as 10 s".to_owned(),
        );
    }
    let number: u64 = number
        .parse()
        .map_err(|_| "the number is too large".to_owned())?;
    let unit = unit.trim().to_lowercase();
    let nanos = if unit.is_empty() {
        1_000_000
    } else {
        UNITS
            .iter()
            .find(|(names, _)| names.contains(&unit.as_str()))
            .map(|(_, nanos)| *nanos)
            .ok_or_else(|| format!("{unit:?} is no unit of time; use d, h, min, s, ms, us or ns"))?
    };
    span(number, nanos).ok_or_else(|| "the duration is too long".to_owned())
}

fn span(number: u64, nanos: u64) -> Option<Duration> {
    let total = u128::from(number) * u128::from(nanos);
    let seconds = u64::try_from(total / 1_000_000_000).ok()?;
    let rest = u32::try_from(total % 1_000_000_000).ok()?;
    Some(Duration::new(seconds, rest))
}

/// Reads `P[nD][T[nH][nM][n[.n]S]]`.
fn iso(text: &str) -> Option<Duration> {
    let upper = text.to_ascii_uppercase();
    let body = upper.strip_prefix('P')?;
    let (date, time) = match body.split_once('T') {
        Some((date, time)) if !time.is_empty() => (date, time),
        Some(_) => return None,
        None => (body, ""),
    };
    let mut total = Duration::ZERO;
    let mut seen = false;
    for (part, units) in [
        (date, &[('D', 86_400u64)][..]),
        (time, &[('H', 3600), ('M', 60), ('S', 1)]),
    ] {
        let mut rest = part;
        for (letter, seconds) in units {
            let Some((number, after)) = rest.split_once(*letter) else {
                continue;
            };
            rest = after;
            seen = true;
            let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
            if !fraction.is_empty() && *letter != 'S' {
                return None;
            }
            if whole.is_empty()
                || !whole
                    .bytes()
                    .chain(fraction.bytes())
                    .all(|b| b.is_ascii_digit())
            {
                return None;
            }
            let whole = whole.parse::<u64>().ok()?.checked_mul(*seconds)?;
            let nanos: u32 = format!("{:0<9}", fraction).get(..9)?.parse().ok()?;
            total = total.checked_add(Duration::new(whole, nanos))?;
        }
        if !rest.is_empty() {
            return None;
        }
    }
    seen.then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_in_every_unit_with_and_without_space() {
        for (text, nanos) in [
            ("10 min", 600_000_000_000u64),
            ("10min", 600_000_000_000),
            ("3 m", 180_000_000_000),
            ("500ms", 500_000_000),
            ("1s", 1_000_000_000),
            ("2 hours", 7_200_000_000_000),
            ("1 D", 86_400_000_000_000),
            ("7 µs", 7_000),
            ("9 ns", 9),
            ("250", 250_000_000),
            ("PT10M", 600_000_000_000),
            ("pt1h2m3.5s", 3_723_500_000_000),
            ("P1DT1S", 86_401_000_000_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_in_words() {
        for text in [
            "",
            "-1 s",
            "ten s",
            "1.5 s",
            "5 fortnights",
            "P",
            "PT",
            "PT1X",
            "P1H",
            "PT1.5M",
            "PTS",
            "99999999999999999999 s",
            "18446744073709551615 d",
        ] {
            assert!(parse(text).is_err(), "{text:?} was taken");
        }
        assert_eq!(
            parse("5 fortnights").unwrap_err(),
            "\"fortnights\" is no unit of time; use d, h, min, s, ms, us or ns"
        );
    }
}
