use std::io::Read;
use std::path::Path;

use state_api::{Error, Result};

use super::{toml_text, yaml};

/// Largest file that is read as a configuration, in bytes.
const LARGEST: u64 = 1 << 20;

/// Longest name of an option, with all sections around it, in bytes.
const LONGEST_KEY: usize = 256;

/// One option as it stands in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub key: String,
    /// Empty when the file names the option without a value.
    pub text: String,
    pub line: Option<usize>,
}

/// How the text of a configuration is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// YAML 1.2, nested or dotted keys, one document, no aliases.
    Yaml,
    /// TOML 1, tables or dotted keys.
    Toml,
}

impl Syntax {
    /// Tells the syntax from the ending of a file's name.
    ///
    /// # Errors
    /// `Config` when the name ends neither in `.yaml`, `.yml` nor `.toml`.
    pub fn of(path: &Path) -> Result<Self> {
        let ending = path
            .extension()
            .and_then(|ending| ending.to_str())
            .unwrap_or_default();
        match ending.to_ascii_lowercase().as_str() {
            "yaml" | "yml" => Ok(Self::Yaml),
            "toml" => Ok(Self::Toml),
            _ => Err(Error::config(
                "the name of a configuration file ends in .yaml, .yml or .toml",
            )
            .with("file", path.display())),
        }
    }

    pub(super) fn entries(self, text: &str, name: &str) -> Result<Vec<Entry>> {
        let parsed = match self {
            Self::Yaml => yaml::parse(text),
            Self::Toml => toml_text::parse(text),
        };
        parsed.map_err(|(line, why)| {
            let error = Error::config(format!(
                "the configuration can't be read: {}",
                one_line(&why)
            ));
            match line {
                Some(line) => error.with("file", format_args!("{name}:{line}")),
                None => error.with("file", name),
            }
        })
    }
}

/// Reads a configuration file whole.
pub(super) fn read(path: &Path) -> Result<String> {
    let fail = |why: &str| Error::config(why.to_owned()).with("file", path.display());
    let metadata = std::fs::metadata(path)
        .map_err(|e| fail("the configuration file can't be opened").caused_by(e))?;
    if !metadata.is_file() {
        return Err(fail("the configuration file is not a regular file"));
    }
    let file = std::fs::File::open(path)
        .map_err(|e| fail("the configuration file can't be opened").caused_by(e))?;
    let mut bytes = Vec::new();
    file.take(LARGEST + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| fail("the configuration file can't be read").caused_by(e))?;
    if bytes.len() as u64 > LARGEST {
        return Err(fail("the configuration file is larger than 1 MiB"));
    }
    let text = String::from_utf8(bytes)
        .map_err(|e| fail("the configuration file is not UTF-8 text").caused_by(e))?;
    Ok(text
        .strip_prefix('\u{feff}')
        .map_or(text.clone(), str::to_owned))
}

/// Joins a path of keys and a further key by a dot.
///
/// The name of a section is repeated for each option in it, so it is kept short: else a file would take its length squared.
///
/// # Errors
/// What is wrong, when the joined name is longer than any option's.
pub(super) fn join_key(path: &str, key: &str) -> std::result::Result<String, String> {
    if path.len() + 1 + key.len() > LONGEST_KEY {
        return Err(format!(
            "the name of an option takes more than {LONGEST_KEY} bytes"
        ));
    }
    if path.is_empty() {
        Ok(key.to_owned())
    } else {
        Ok(format!("{path}.{key}"))
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
