use super::secrets;
use state_api::option_text::{nearest, parse_duration, parse_memory_size};
use state_api::{Error, Result};
use std::time::Duration;

/// What the text of an option must look like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueKind {
    /// `true` or `false`.
    Bool,
    /// A whole number within bounds, both included.
    Number {
        /// Least value.
        min: i64,
        /// Greatest value.
        max: i64,
        /// Whether `infinite` is a value too.
        infinite: bool,
    },
    /// A number with a fraction within bounds.
    Fraction {
        /// Greatest value that is too small.
        above: f64,
        /// Greatest value.
        max: f64,
    },
    /// A time span such as `500 ms`, `10 min` or `PT10M`.
    Duration {
        /// Shortest one.
        min: Duration,
        /// Longest one.
        max: Duration,
    },
    /// A number of bytes such as `20kb` or `5 mb`, in powers of 1024.
    MemorySize {
        /// Greatest number of bytes.
        max: u64,
    },
    /// One of several words; upper case, `-` and `_` make no difference.
    Choice(&'static [&'static str]),
    /// Any text that is not empty.
    Text,
    /// Texts between semicolons.
    List,
}

/// Whether setting an option has an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// It does what it says.
    Offered,
    /// The name is known, but only the default value is obeyed; any other is refused.
    DefaultOnly,
}

/// An option that a configuration may set.
#[derive(Debug)]
pub struct ConfigOption {
    /// The name it is written with.
    pub key: &'static str,
    /// Older spellings, newest first.
    pub old_keys: &'static [&'static str],
    /// What its text looks like.
    pub kind: ValueKind,
    /// The value that holds when nothing is set.
    pub default: Option<&'static str>,
    /// Whether setting it has an effect.
    pub support: Support,
    /// What it means, in one line.
    pub meaning: &'static str,
}

/// A parsed value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Bool(bool),
    Number(i64),
    Infinite,
    Fraction(f64),
    Duration(Duration),
    MemorySize(u64),
    Choice(&'static str),
    Text(String),
    List(Vec<String>),
}

impl ConfigOption {
    /// Parses a value.
    ///
    /// # Errors
    /// `Config` says what is wrong with it and which values are valid.
    pub(super) fn parse(&self, text: &str) -> Result<Value> {
        let text = text.trim();
        if text.is_empty() {
            return Err(self.refuse(text, "it has no value"));
        }
        match self.kind {
            ValueKind::Bool => match text.to_ascii_lowercase().as_str() {
                "true" => Ok(Value::Bool(true)),
                "false" => Ok(Value::Bool(false)),
                _ => Err(self.refuse(text, "it must be true or false")),
            },
            ValueKind::Number { min, max, infinite } => {
                if infinite && text.eq_ignore_ascii_case("infinite") {
                    return Ok(Value::Infinite);
                }
                match text.parse::<i64>() {
                    Ok(n) if (min..=max).contains(&n) => Ok(Value::Number(n)),
                    _ => Err(self.refuse(text, &format!("it must be {}", self.kind))),
                }
            }
            ValueKind::Fraction { above, max } => match text.parse::<f64>() {
                Ok(n) if n > above && n <= max => Ok(Value::Fraction(n)),
                _ => Err(self.refuse(text, &format!("it must be {}", self.kind))),
            },
            ValueKind::Duration { min, max } => match parse_duration(text) {
                Ok(d) if d >= min && d <= max => Ok(Value::Duration(d)),
                Ok(_) => Err(self.refuse(text, &format!("it must be {}", self.kind))),
                Err(why) => Err(self.refuse(text, &why)),
            },
            ValueKind::MemorySize { max } => match parse_memory_size(text) {
                Ok(n) if n <= max => Ok(Value::MemorySize(n)),
                Ok(_) => Err(self.refuse(text, &format!("it must be {}", self.kind))),
                Err(why) => Err(self.refuse(text, &why)),
            },
            ValueKind::Choice(words) => {
                let wanted = plain_word(text);
                match words.iter().find(|word| plain_word(word) == wanted) {
                    Some(word) => Ok(Value::Choice(word)),
                    None => {
                        let hint = nearest(text, words.iter().copied())
                            .map_or_else(String::new, |word| format!("; did you mean {word:?}?"));
                        Err(self.refuse(text, &format!("it must be {}{hint}", self.kind)))
                    }
                }
            }
            ValueKind::Text => Ok(Value::Text(text.to_owned())),
            ValueKind::List => {
                let parts: Vec<String> =
                    text.split(';').map(|part| part.trim().to_owned()).collect();
                if parts.iter().any(String::is_empty) {
                    return Err(self.refuse(text, "an element of the list is empty"));
                }
                Ok(Value::List(parts))
            }
        }
    }

    /// Parses a value and refuses one that is known but not offered.
    pub(super) fn check(&self, text: &str) -> Result<Value> {
        let value = self.parse(text)?;
        if self.support == Support::DefaultOnly && self.default_value().as_ref() != Some(&value) {
            let instead = match self.default {
                Some(default) => format!("leave it at {default}"),
                None => "leave it out".to_owned(),
            };
            return Err(self.refuse(text, &format!("this version does not offer it: {instead}")));
        }
        Ok(value)
    }

    /// Returns the default, parsed; the table of options is checked by a test, so that it always parses.
    pub(super) fn default_value(&self) -> Option<Value> {
        self.default.and_then(|text| self.parse(text).ok())
    }

    fn refuse(&self, text: &str, why: &str) -> Error {
        let shown = secrets::masked(self.key, text);
        Error::config(format!("{} = {shown:?} is not valid: {why}", self.key))
            .with("option", self.key)
    }
}

impl std::fmt::Display for ValueKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bool => f.write_str("true or false"),
            Self::Number { min, max, infinite } => {
                match max {
                    &i64::MAX => write!(f, "a whole number of at least {min}")?,
                    max => write!(f, "a whole number from {min} to {max}")?,
                }
                f.write_str(if *infinite { " or infinite" } else { "" })
            }
            Self::Fraction { above, max } if *max == f64::MAX => {
                write!(f, "a number above {above}")
            }
            Self::Fraction { above, max } if *above < 0.0 => write!(f, "a number from 0 to {max}"),
            Self::Fraction { above, max } => write!(f, "a number above {above} and at most {max}"),
            Self::Duration { min, max } if *max == Duration::MAX => {
                write!(f, "a duration of at least {min:?}")
            }
            Self::Duration { min, max } => {
                let days = max.as_secs() / 86_400;
                write!(f, "a duration from {min:?} to {days} d")
            }
            Self::MemorySize { max: u64::MAX } => f.write_str("a memory size"),
            Self::MemorySize { max } => write!(f, "a memory size of at most {max} bytes"),
            Self::Choice(words) => write!(f, "one of {}", words.join(", ")),
            Self::Text => f.write_str("text"),
            Self::List => f.write_str("texts between semicolons"),
        }
    }
}

/// Reduces a word so that `EXACTLY_ONCE`, `exactly-once` and `exactlyonce` are one.
fn plain_word(word: &str) -> String {
    word.chars()
        .filter(|c| *c != '-' && *c != '_')
        .flat_map(char::to_lowercase)
        .collect()
}
