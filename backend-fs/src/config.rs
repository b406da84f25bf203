use std::collections::BTreeMap;
use std::time::Duration;

use state_api::option_text::{nearest, parse_duration};
use state_api::{Error, Result};

use crate::NAME;

/// When a base is written anew.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FsConfig {
    /// Bytes of changes on top of a base, as a fraction of its bytes, past which it is.
    pub change_ratio: f64,
    /// Time after which it is if anything changed at all; `None` for never.
    pub interval: Option<Duration>,
    /// Change streams on top of a base, past which it is: a restore reads all of them.
    pub max_streams: usize,
}

impl Default for FsConfig {
    /// Once there are as many bytes of changes as of the base, after 10 minutes, after 128 streams.
    fn default() -> Self {
        Self {
            change_ratio: 1.0,
            interval: Some(Duration::from_secs(600)),
            max_streams: 128,
        }
    }
}

const RATIO: &str = "materialize.change-ratio";
const MAX_STREAMS: &str = "materialize.max-streams";
const ENABLED: &str = "periodic-materialize.enabled";
const INTERVAL: &str = "periodic-materialize.interval";

impl FsConfig {
    /// Reads options given as text: `materialize.change-ratio`, `materialize.max-streams`, `periodic-materialize.enabled`,
    /// `periodic-materialize.interval`.
    ///
    /// # Errors
    /// `Config` for an unknown option, naming the nearest one, or a value that is none.
    pub fn parse(options: &BTreeMap<String, String>) -> Result<Self> {
        let mut config = Self::default();
        let mut periodic = true;
        for (key, text) in options {
            let bad = |what: &str| {
                Error::config(format!("{text:?} is {what}"))
                    .with("option", format!("state.backend.{NAME}.{key}"))
            };
            let text = text.trim();
            match key.as_str() {
                RATIO => {
                    let ratio = text.parse().ok().filter(|r: &f64| *r > 0.0 && *r <= 1e6);
                    config.change_ratio =
                        ratio.ok_or_else(|| bad("not a number above 0, up to a million"))?;
                }
                MAX_STREAMS => {
                    let streams = text.parse().ok().filter(|n| (1..=10_000).contains(n));
                    config.max_streams =
                        streams.ok_or_else(|| bad("not a number from 1 to 10000"))?;
                }
                ENABLED => {
                    periodic = text
                        .to_ascii_lowercase()
                        .parse()
                        .map_err(|_| bad("neither true nor false"))?;
                }
                INTERVAL => {
                    let interval = parse_duration(text).map_err(|why| bad(&why))?;
                    if interval.is_zero() {
                        return Err(bad("no time at all"));
                    }
                    config.interval = Some(interval);
                }
                _ => {
                    let known = [RATIO, MAX_STREAMS, ENABLED, INTERVAL];
                    let hint = nearest(key, known.into_iter())
                        .map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
                    return Err(Error::config(format!(
                        "the state backend {NAME} has no option {key:?}{hint}"
                    )));
                }
            }
        }
        config.interval = config.interval.filter(|_| periodic);
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use state_api::ErrorKind;

    fn parse(options: &[(&str, &str)]) -> Result<FsConfig> {
        let owned = |(key, text): &(&str, &str)| ((*key).to_owned(), (*text).to_owned());
        FsConfig::parse(&options.iter().map(owned).collect())
    }

    #[test]
    fn options_are_read_and_have_defaults() {
        assert_eq!(parse(&[]).unwrap(), FsConfig::default());
        let all = [
            (RATIO, "0.25"),
            (MAX_STREAMS, "7"),
            (INTERVAL, "3 min"),
            (ENABLED, "TRUE"),
        ];
        let expected = FsConfig {
            change_ratio: 0.25,
            interval: Some(Duration::from_secs(180)),
            max_streams: 7,
        };
        assert_eq!(parse(&all).unwrap(), expected);
        let off = parse(&[(INTERVAL, "3 min"), (ENABLED, "false")]).unwrap();
        assert_eq!(off.interval, None);
    }

    #[test]
    fn wrong_options_and_values_are_refused_by_name() {
        let error = parse(&[("materialise.change-ratio", "1")]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.message().contains("did you mean"), "{error}");
        for (key, text) in [
            (RATIO, "0"),
            (RATIO, "NaN"),
            (RATIO, "much"),
            (MAX_STREAMS, "0"),
            (MAX_STREAMS, "-1"),
            (ENABLED, "yes"),
            (INTERVAL, "soon"),
            (INTERVAL, "0 s"),
        ] {
            let error = parse(&[(key, text)]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{key}={text}");
            assert!(error.to_string().contains(key), "{error}");
        }
    }
}
