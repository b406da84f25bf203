use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use checkpoint_storage::{STORE_OPTIONS, StoreOption, StoreOptions};
use state_api::{Error, Result};

use super::file::{self, Syntax};
use super::option::Value;
use super::{ConfigOption, options, secrets};
use state_api::option_text::nearest;

/// Where the value of an option comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A file, and the line if it is known (from 1).
    File {
        /// Name of the file.
        name: String,
        /// Line number.
        line: Option<usize>,
    },
    /// Somewhere else, in words: `the program`, `--interval`.
    Named(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File {
                name,
                line: Some(line),
            } => write!(f, "{name}:{line}"),
            Self::File { name, line: None } => f.write_str(name),
            Self::Named(name) => f.write_str(name),
        }
    }
}

#[derive(Clone, PartialEq)]
struct Setting {
    text: String,
    origin: Origin,
}

/// Options and their values, from files and from the program, each checked when it comes in.
///
/// Names are Flink's; an old spelling is stored under the present name. The typed views
/// ([`CheckpointSettings`](super::CheckpointSettings) and its siblings) read it.
#[derive(Clone, Default, PartialEq)]
pub struct Configuration {
    /// Known options by their present name, and options of backends as they are.
    settings: BTreeMap<String, Setting>,
    warnings: Vec<String>,
}

impl Configuration {
    /// Creates a configuration in which every option has its default.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a file whose name ends in `.yaml`, `.yml` or `.toml`.
    ///
    /// # Errors
    /// `Config` when the file can't be read, names an unknown option, sets one twice or has a bad value; with file and line.
    pub fn load(path: &Path) -> Result<Self> {
        let syntax = Syntax::of(path)?;
        Self::parse(&file::read(path)?, syntax, &path.display().to_string())
    }

    /// Reads the text of a file; `name` stands for it in errors.
    ///
    /// # Errors
    /// `Config`, as [`Configuration::load`].
    pub fn parse(text: &str, syntax: Syntax, name: &str) -> Result<Self> {
        let mut read = Self::new();
        // How each option was spelled in this file, to find one that is set twice.
        let mut spelled: BTreeMap<String, String> = BTreeMap::new();
        for entry in syntax.entries(text, name)? {
            let origin = Origin::File {
                name: name.to_owned(),
                line: entry.line,
            };
            let place = |error: Error| error.with("file", &origin);
            let target = Target::of(&entry.key).map_err(place)?;
            target.check(&entry.text).map_err(place)?;
            let key = target.key().to_owned();
            let setting = Setting {
                text: entry.text,
                origin: origin.clone(),
            };
            let Some(before) = spelled.get(&key) else {
                read.note_spelling(&target, &entry.key, &origin);
                spelled.insert(key.clone(), entry.key);
                read.settings.insert(key, setting);
                continue;
            };
            if *before == entry.key {
                let first = read
                    .settings
                    .get(&key)
                    .map_or_else(String::new, |s| s.origin.to_string());
                return Err(place(
                    Error::config(format!("{} is set twice", entry.key)).with("first", first),
                ));
            }
            read.note_spelling(&target, &entry.key, &origin);
            let newer = target.age_of(&entry.key) < target.age_of(before);
            let winner = if newer { &entry.key } else { before };
            let (other, same) = match read.settings.get(&key) {
                Some(other) => (
                    other.origin.clone(),
                    target.same(&other.text, &setting.text),
                ),
                None => continue,
            };
            if !same {
                read.warnings.push(format!(
                    "{before} ({other}) and {} ({origin}) are spellings of one option and differ: {winner} holds",
                    entry.key
                ));
            }
            if newer {
                spelled.insert(key.clone(), entry.key);
                read.settings.insert(key, setting);
            }
        }
        Ok(read)
    }

    /// Sets an option from the program, replacing what was set before under any of its spellings.
    ///
    /// # Errors
    /// `Config` for an unknown option, naming the nearest one, or a bad value.
    pub fn set(&mut self, key: &str, value: impl fmt::Display) -> Result<&mut Self> {
        self.set_from(key, value, "the program")
    }

    /// Sets an option and says where the value comes from, such as `--interval`.
    ///
    /// # Errors
    /// `Config`, as [`Configuration::set`].
    pub fn set_from(
        &mut self,
        key: &str,
        value: impl fmt::Display,
        origin: &str,
    ) -> Result<&mut Self> {
        let text = value.to_string();
        let origin = Origin::Named(origin.to_owned());
        let place = |error: Error| error.with("set by", &origin);
        let target = Target::of(key).map_err(place)?;
        target.check(&text).map_err(place)?;
        self.note_spelling(&target, key, &origin);
        self.settings
            .insert(target.key().to_owned(), Setting { text, origin });
        Ok(self)
    }

    /// Sets an option, for a chain of calls.
    ///
    /// # Errors
    /// `Config`, as [`Configuration::set`].
    pub fn with(mut self, key: &str, value: impl fmt::Display) -> Result<Self> {
        self.set(key, value)?;
        Ok(self)
    }

    /// Lays another configuration over this one: what it sets, holds.
    #[must_use]
    pub fn overridden_by(mut self, over: Self) -> Self {
        self.settings.extend(over.settings);
        self.warnings.extend(over.warnings);
        self
    }

    /// Returns what a person should know: old spellings, and two spellings that differ.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns the text of an option that is set, by any of its spellings.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&str> {
        let key = present_name(key);
        self.settings.get(key).map(|setting| setting.text.as_str())
    }

    /// Returns where an option was set.
    #[must_use]
    pub fn origin(&self, key: &str) -> Option<&Origin> {
        let key = present_name(key);
        self.settings.get(key).map(|setting| &setting.origin)
    }

    /// Returns the options under `state.backend.<name>.`, without that prefix.
    #[must_use]
    pub fn backend_options(&self, name: &str) -> BTreeMap<String, String> {
        let prefix = format!("{BACKEND_PREFIX}{name}.");
        let under = self.settings.iter().filter_map(|(key, setting)| {
            let rest = key.strip_prefix(&prefix)?;
            Some((rest.to_owned(), setting.text.clone()))
        });
        under.collect()
    }

    /// Returns the options of stores: endpoints, credentials, retries.
    ///
    /// # Errors
    /// `Config`, as [`Configuration::set`]: never, since each was checked when it came in.
    pub fn store_options(&self) -> Result<StoreOptions> {
        let mut options = StoreOptions::new();
        for (key, setting) in &self.settings {
            if StoreOptions::find(key).is_some() {
                options.set(key, &setting.text)?;
            }
        }
        Ok(options)
    }

    /// Returns the names of backends for which options are set, with one of the options each.
    pub(super) fn configured_backends(&self) -> BTreeMap<&str, &str> {
        self.settings
            .keys()
            .filter(|key| options::find(key).is_none())
            .filter_map(|key| {
                Some((
                    key.strip_prefix(BACKEND_PREFIX)?.split_once('.')?.0,
                    key.as_str(),
                ))
            })
            .collect()
    }

    /// Returns the parsed value of an option, or its default.
    pub(super) fn value(&self, option: &ConfigOption) -> Option<Value> {
        match self.settings.get(option.key) {
            // Checked when it came in.
            Some(setting) => option.parse(&setting.text).ok(),
            None => option.default_value(),
        }
    }

    pub(super) fn bool(&self, option: &ConfigOption) -> bool {
        matches!(self.value(option), Some(Value::Bool(true)))
    }

    /// `None` for a number that is unset or infinite.
    pub(super) fn number(&self, option: &ConfigOption) -> Option<i64> {
        match self.value(option) {
            Some(Value::Number(number)) => Some(number),
            _ => None,
        }
    }

    pub(super) fn count(&self, option: &ConfigOption) -> Option<u32> {
        self.number(option)
            .and_then(|number| u32::try_from(number).ok())
    }

    pub(super) fn fraction(&self, option: &ConfigOption) -> f64 {
        match self.value(option) {
            Some(Value::Fraction(number)) => number,
            _ => 0.0,
        }
    }

    pub(super) fn duration(&self, option: &ConfigOption) -> Option<Duration> {
        match self.value(option) {
            Some(Value::Duration(duration)) => Some(duration),
            _ => None,
        }
    }

    pub(super) fn bytes(&self, option: &ConfigOption) -> u64 {
        match self.value(option) {
            Some(Value::MemorySize(bytes)) => bytes,
            _ => 0,
        }
    }

    pub(super) fn choice(&self, option: &ConfigOption) -> Option<&'static str> {
        match self.value(option) {
            Some(Value::Choice(word)) => Some(word),
            _ => None,
        }
    }

    pub(super) fn string(&self, option: &ConfigOption) -> Option<String> {
        match self.value(option) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// Returns the elements of a list; none if it is not set.
    pub(super) fn list(&self, option: &ConfigOption) -> Vec<String> {
        match self.value(option) {
            Some(Value::List(parts)) => parts,
            _ => Vec::new(),
        }
    }

    /// Adds to an error where an option was set.
    pub(super) fn located(&self, error: Error, option: &ConfigOption) -> Error {
        match self.origin(option.key) {
            Some(Origin::Named(name)) => error.with("set by", name),
            Some(file) => error.with("file", file),
            None => error,
        }
    }

    fn note_spelling(&mut self, target: &Target, key: &str, origin: &Origin) {
        if let Target::Known(option, true) = target {
            self.warnings.push(format!(
                "{key} ({origin}) is an old spelling of {}",
                option.key
            ));
        }
    }
}

const BACKEND_PREFIX: &str = "state.backend.";

/// Returns the present name of an option that may be spelled in an older way.
fn present_name(key: &str) -> &str {
    match options::find(key) {
        Some((option, _)) => option.key,
        None => StoreOptions::find(key).map_or(key, |option| option.key),
    }
}

/// What a key names.
enum Target {
    /// An option of ours; the flag says that the spelling is old.
    Known(&'static ConfigOption, bool),
    /// An option of stores.
    Store(&'static StoreOption),
    /// An option of a backend, which its factory checks.
    Backend(String),
}

impl Target {
    fn of(key: &str) -> Result<Self> {
        if let Some((option, old)) = options::find(key) {
            return Ok(Self::Known(option, old));
        }
        if let Some(option) = StoreOptions::find(key) {
            return Ok(Self::Store(option));
        }
        if let Some(why) = options::why_not(key) {
            return Err(
                Error::config(format!("{key:?} is not an option here: {why}")).with("option", key),
            );
        }
        if let Some((name, rest)) = key
            .strip_prefix(BACKEND_PREFIX)
            .and_then(|rest| rest.split_once('.'))
            && !name.is_empty()
            && !rest.split('.').any(str::is_empty)
        {
            return Ok(Self::Backend(key.to_owned()));
        }
        let spellings = options::ALL
            .iter()
            .flat_map(|o| std::iter::once(o.key).chain(o.old_keys.iter().copied()))
            .chain(STORE_OPTIONS.iter().map(|option| option.key));
        let hint = nearest(key, spellings).map_or_else(String::new, |near| {
            format!("; did you mean {:?}?", present_name(near))
        });
        let shown: String = key.chars().take(200).collect();
        Err(Error::config(format!("unknown option {shown:?}{hint}")).with("option", shown))
    }

    fn key(&self) -> &str {
        match self {
            Self::Known(option, _) => option.key,
            Self::Store(option) => option.key,
            Self::Backend(key) => key,
        }
    }

    fn check(&self, text: &str) -> Result<()> {
        match self {
            Self::Known(option, _) => option.check(text).map(drop),
            Self::Store(option) => StoreOptions::new().set(option.key, text).map(drop),
            Self::Backend(key) if text.trim().is_empty() => {
                Err(Error::config(format!("{key} has no value")).with("option", key))
            }
            Self::Backend(_) => Ok(()),
        }
    }

    fn same(&self, a: &str, b: &str) -> bool {
        match self {
            Self::Known(option, _) => option.parse(a).ok() == option.parse(b).ok(),
            Self::Store(_) | Self::Backend(_) => a == b,
        }
    }

    /// 0 for the present spelling, then older and older.
    fn age_of(&self, spelling: &str) -> usize {
        match self {
            Self::Known(option, _) => option
                .old_keys
                .iter()
                .position(|old| *old == spelling)
                .map_or(0, |position| position + 1),
            Self::Store(option) => option
                .other_keys
                .iter()
                .position(|other| *other == spelling)
                .map_or(0, |position| position + 1),
            Self::Backend(_) => 0,
        }
    }
}

impl fmt::Display for Configuration {
    /// Writes one line for each option that is set, in alphabetical order, with secrets masked.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (key, setting) in &self.settings {
            writeln!(
                f,
                "{key}: {}  # {}",
                secrets::masked(key, &setting.text),
                setting.origin
            )?;
        }
        Ok(())
    }
}

impl fmt::Debug for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self
            .settings
            .iter()
            .map(|(key, setting)| (key, secrets::masked(key, &setting.text)));
        f.debug_map().entries(shown).finish()
    }
}
