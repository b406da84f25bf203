use std::fmt;
use std::sync::Arc;

/// What stands in place of a secret.
const MASK: &str = "******";

/// Shorter values are not looked for: they would turn up in any text.
const SHORTEST: usize = 4;

/// Values that must not be shown, wherever they turn up.
#[derive(Clone, Default)]
pub(crate) struct Secrets(Arc<[String]>);

impl Secrets {
    pub(crate) fn new(values: impl IntoIterator<Item = String>) -> Self {
        let mut values: Vec<_> = values.into_iter().filter(|v| v.len() >= SHORTEST).collect();
        // Longest first: one secret may be part of another.
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        Self(values.into())
    }

    /// Returns a text without secrets.
    pub(crate) fn mask(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in self.0.iter() {
            if text.contains(secret.as_str()) {
                text = text.replace(secret.as_str(), MASK);
            }
        }
        text
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} secrets", self.0.len())
    }
}

/// An error of a library, as text without secrets.
#[derive(Debug)]
pub(crate) struct ForeignError(String);

impl ForeignError {
    pub(crate) fn new(error: &dyn std::error::Error, secrets: &Secrets) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(source) = cause {
            let more = source.to_string();
            if !text.contains(&more) {
                text = format!("{text}: {more}");
            }
            cause = source.source();
        }
        Self(secrets.mask(&text))
    }
}

impl fmt::Display for ForeignError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ForeignError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_masked_and_a_short_value_is_none() {
        let secrets = Secrets::new(["wJalr".into(), "wJalrXUtn".into(), "eu".into()]);
        assert_eq!(
            secrets.mask("key wJalrXUtn, part wJalr in eu"),
            "key ******, part ****** in eu"
        );
        assert_eq!(format!("{secrets:?}"), "2 secrets");
    }
}
