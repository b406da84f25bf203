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
        Self(secrets.mask(&without_queries(&text)))
    }
}

/// Returns a text without the queries of its URLs: services put tokens there.
fn without_queries(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let ends = |c: char| {
            c.is_whitespace() || matches!(c, '"' | '\'' | '`' | ',' | ')' | '}' | ']' | '>')
        };
        let (before, url) = rest.split_at(at);
        let len = url.find(ends).unwrap_or(url.len());
        let (url, after) = url.split_at(len);
        shown.push_str(before);
        match url.split_once('?') {
            Some((place, _)) => {
                shown.push_str(place);
                shown.push('?');
                shown.push_str(MASK);
            }
            None => shown.push_str(url),
        }
        rest = after;
    }
    shown + rest
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
    fn a_token_in_the_query_of_a_url_is_masked_whoever_put_it_there() {
        let error = std::io::Error::other(
            "get { url: https://me.blob/x?sv=1&sig=hidden, uri: \"http://a/b?hidden\" } of http://c/d failed",
        );
        let shown = ForeignError::new(&error, &Secrets::default()).to_string();
        assert_eq!(
            shown,
            "get { url: https://me.blob/x?******, uri: \"http://a/b?******\" } of http://c/d failed"
        );
    }

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
