//! Sizes, from the environment.

/// Returns a number from an environment variable, or a default where it is unset or no number.
#[must_use]
pub fn number(name: &str, default: usize) -> usize {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.replace('_', "").parse().ok())
        .unwrap_or(default)
}

/// Returns the number of keys: `BENCH_KEYS`, 1,000,000 by default.
#[must_use]
pub fn keys() -> usize {
    number("BENCH_KEYS", 1_000_000).max(1000)
}

/// Returns the number of alternations: `BENCH_ROUNDS`, 5 by default.
#[must_use]
pub fn rounds() -> usize {
    number("BENCH_ROUNDS", 5).max(1)
}

/// Returns options from an environment variable: `name=value`, separated by spaces.
#[must_use]
pub fn options(name: &str) -> Vec<(String, String)> {
    let given = std::env::var(name).unwrap_or_default();
    given
        .split_whitespace()
        .filter_map(|option| option.split_once('='))
        .map(|(name, text)| (name.to_owned(), text.to_owned()))
        .collect()
}
