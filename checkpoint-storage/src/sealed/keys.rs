use std::fmt;

use state_api::{Error, Result};

/// Most bytes of a text with keys.
const LONGEST: usize = 64 << 10;

/// Secret keys of 32 bytes by name: the first is for what is new, and what the others made is still read.
///
/// Its text has a key a line, `name 64-hexadecimal-digits`; empty lines and what follows a `#` at the start of a line don't
/// count. To change the key, put a new line at the top, and take old ones away when no checkpoint needs them.
///
/// ```
/// use checkpoint_storage::KeyRing;
///
/// let (new, old) = ("00".repeat(32), "11".repeat(32));
/// let keys = KeyRing::parse(&format!("# since May\nkey-2 {new}\nkey-1 {old}\n"))?;
/// assert_eq!(keys.names().collect::<Vec<_>>(), ["key-2", "key-1"]);
/// # Ok::<(), state_api::Error>(())
/// ```
#[derive(Clone)]
pub struct KeyRing {
    /// At least one.
    keys: Vec<(String, [u8; 32])>,
}

impl KeyRing {
    /// Creates a ring of one key.
    ///
    /// # Errors
    /// `Config` when the name is not 1 to 255 visible ASCII characters, or begins with `#`.
    pub fn of_one(name: &str, key: [u8; 32]) -> Result<Self> {
        check_name(name)?;
        Ok(Self {
            keys: vec![(name.to_owned(), key)],
        })
    }

    /// Reads keys from their text.
    ///
    /// # Errors
    /// `Config`, naming the line and nothing that stands in it: it may be a secret.
    pub fn parse(text: &str) -> Result<Self> {
        if text.len() > LONGEST {
            return Err(Error::config("a text with keys has 64 KiB at most"));
        }
        let mut keys: Vec<(String, [u8; 32])> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let named = |e: Error| e.with("line", number);
            let mut words = line.split_whitespace();
            let (Some(name), Some(key), None) = (words.next(), words.next(), words.next()) else {
                return Err(named(Error::config(
                    "a line with a key reads: name, a space, 64 hexadecimal digits",
                )));
            };
            check_name(name).map_err(named)?;
            let key = key_of(key).map_err(named)?;
            if keys.iter().any(|(known, _)| known == name) {
                return Err(named(Error::config("two keys have the same name")));
            }
            keys.push((name.to_owned(), key));
        }
        match keys.is_empty() {
            true => Err(Error::config(
                "there is no key: a line reads name, a space, 64 hexadecimal digits",
            )),
            false => Ok(Self { keys }),
        }
    }

    /// Returns the names of the keys, that for what is new first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the name of the key for what is new.
    #[must_use]
    pub fn newest(&self) -> &str {
        self.keys.first().map_or("", |(name, _)| name)
    }

    /// Returns the key of a name.
    ///
    /// # Errors
    /// `Config`, naming the keys that are there.
    pub(crate) fn get(&self, name: &str) -> Result<&[u8; 32]> {
        let found = self.keys.iter().find(|(known, _)| known == name);
        found.map(|(_, key)| key).ok_or_else(|| {
            let known: Vec<_> = self.names().collect();
            Error::config(format!(
                "key {name:?} is not here; there are: {}",
                known.join(", ")
            ))
        })
    }
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyRing")
            .field(&self.names().collect::<Vec<_>>())
            .finish()
    }
}

fn check_name(name: &str) -> Result<()> {
    let visible = name.bytes().all(|byte| byte.is_ascii_graphic());
    if !(1..=255).contains(&name.len()) || !visible || name.starts_with('#') {
        return Err(Error::config(
            "the name of a key has 1 to 255 visible ASCII characters, the first of them no #",
        ));
    }
    if name.len() == 64 && key_of(name).is_ok() {
        return Err(Error::config(
            "the name of a key comes before the key, which is what stands in its place",
        ));
    }
    Ok(())
}

fn key_of(text: &str) -> Result<[u8; 32]> {
    let wrong = || Error::config("a key is 64 hexadecimal digits: 32 random bytes");
    let mut key = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return Err(wrong());
    }
    for (byte, digits) in key.iter_mut().zip(text.as_bytes().as_chunks::<2>().0) {
        let digit = |at: u8| char::from(at).to_digit(16).ok_or_else(wrong);
        // Two digits of four bits.
        *byte = (digit(digits[0])? << 4 | digit(digits[1])?) as u8;
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use state_api::ErrorKind;

    use super::*;

    #[test]
    fn the_first_key_is_for_what_is_new_and_the_others_are_there() {
        let text = format!(
            "\n# a comment\n  new   {}\nold {}\n",
            "aB".repeat(32),
            "00".repeat(32)
        );
        let keys = KeyRing::parse(&text).unwrap();
        assert_eq!(keys.newest(), "new");
        assert_eq!(keys.get("new").unwrap(), &[0xab; 32]);
        assert_eq!(keys.get("old").unwrap(), &[0; 32]);
        let error = keys.get("gone").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("there are: new, old"), "{error}");
        assert_eq!(format!("{keys:?}"), r#"KeyRing(["new", "old"])"#);
    }

    #[test]
    fn what_is_no_key_is_refused_by_its_line_and_never_repeated() {
        let good = "c0ffee11".repeat(8);
        for text in [
            String::new(),
            "# nothing\n".into(),
            good.clone(),
            format!("{good} name"),
            format!("name {}", &good[1..]),
            format!("name {}g", &good[1..]),
            format!("name {good} {good}"),
            format!("name {good}\nname {good}"),
            format!("na\u{e4}me {good}"),
            format!("{} {good}", "n".repeat(256)),
            format!("name {good}\n{}", "#".repeat(LONGEST)),
        ] {
            let error = KeyRing::parse(&text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{text}");
            assert!(!format!("{error:?}").contains("c0ffee"), "{error:?}");
        }
    }
}
