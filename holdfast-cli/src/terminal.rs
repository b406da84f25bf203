//! Writing to the standard streams without ever panicking.
use std::io::{ErrorKind, Write};

use crate::failure::{Exit, Failure};

/// Writes a line to the standard error; when that is closed, there is nobody left to tell.
pub(crate) fn say(line: &str) {
    let mut stderr = std::io::stderr().lock();
    drop(stderr.write_all(format!("{line}\n").as_bytes()));
}

/// Writes text to the standard output.
///
/// # Errors
/// A failure without words when the reader has gone, as in `holdfast list | head`.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    let written = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
    written.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Failure::silent(Exit::Failed),
        _ => Failure::failed(format!("can't write to the standard output: {error}")),
    })
}

/// Writes a number with a comma between groups of three digits.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Writes a number of bytes with a fitting unit.
pub(crate) fn bytes(number: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if number < 1024 {
        return format!("{number} B");
    }
    let mut value = number as f64 / 1024.0;
    let mut unit = UNITS[0];
    for next in &UNITS[1..] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    format!("{value:.1} {unit}")
}

/// Writes a count with the noun that it counts.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", grouped(number))
}

/// Writes a span of milliseconds with the two units that tell the most.
pub(crate) fn span(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..60 => format!("{seconds}.{} s", ms % 1000 / 100),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", grouped(seconds / 86_400), seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_bytes_are_written_for_people() {
        assert_eq!(
            ["0", "999", "1,000", "27,004", "1,234,567"].map(str::to_owned),
            [0, 999, 1000, 27_004, 1_234_567].map(grouped)
        );
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(5 << 30), "5.0 GiB");
        let spans = [0, 59_999, 123_000, 7_260_000, 90_000_000].map(span);
        assert_eq!(
            spans,
            ["0.0 s", "59.9 s", "2 min 3 s", "2 h 1 min", "1 d 1 h"].map(str::to_owned)
        );
        assert_eq!(counted(1, "record"), "1 record");
        assert_eq!(counted(1200, "record"), "1,200 records");
    }
}
