const UNITS: &[(&[&str], u32)] = &[
    (&["", "b", "byte", "bytes"], 0),
    (&["k", "kb", "kib", "kibibytes"], 10),
    (&["m", "mb", "mib", "mebibytes"], 20),
    (&["g", "gb", "gib", "gibibytes"], 30),
    (&["t", "tb", "tib", "tebibytes"], 40),
];

/// Reads `20kb`, `5 mb` or a bare number of bytes; every unit is a power of 1024, as in Flink's `MemorySize`.
///
/// # Errors
/// Says in words what is wrong.
pub fn parse(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.chars().take_while(char::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(
            "a memory size starts with a number that is not negative, such as 5 mb".to_owned(),
        );
    }
    let number: u64 = number
        .parse()
        .map_err(|_| "the number is too large".to_owned())?;
    let unit = unit.trim().to_lowercase();
    let (_, shift) = UNITS
        .iter()
        .find(|(names, _)| names.contains(&unit.as_str()))
        .ok_or_else(|| format!("{unit:?} is no unit of memory; use b, kb, mb, gb or tb"))?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| "the memory size is too large".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_sizes_are_read_in_powers_of_1024() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("20kb", 20 << 10),
            ("20 KB", 20 << 10),
            ("5 mb", 5 << 20),
            ("1g", 1 << 30),
            ("2 TiB", 2 << 40),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_memory_size_is_refused_in_words() {
        for text in [
            "",
            "-1",
            "5 mbit",
            "1.5mb",
            "18446744073709551615 kb",
            "99999999999999999999",
        ] {
            assert!(parse(text).is_err(), "{text:?} was taken");
        }
    }
}
