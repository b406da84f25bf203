//! JSON text whose numbers stay as they are written: no digit of a float, of a span of time or of a wide integer is lost.
use std::fmt;

use state_api::{Error, Result};

/// The deepest nesting that is read: a value takes two levels at most for each level of its type.
const MAX_DEPTH: usize = 2 * state_api::Schema::MAX_DEPTH + 8;

/// A piece of JSON.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    /// The characters of a number.
    Number(String),
    Str(String),
    Array(Vec<Json>),
    /// Names, each once, and what they stand for, in the order in which they were written.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Reads text that is one piece of JSON and nothing else.
    ///
    /// # Errors
    /// `InvalidArgument`, saying what is wrong at which byte; an object that has a name twice is wrong too.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut reader = Reader { text, at: 0 };
        let json = reader.json(MAX_DEPTH)?;
        reader.skip_blanks();
        if reader.at < text.len() {
            return Err(reader.wrong("more follows behind the end"));
        }
        Ok(json)
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Self::Str(text) => Some(text),
            _ => None,
        }
    }

    /// Returns what a name of an object stands for.
    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Object(fields) => field(fields, name),
            _ => None,
        }
    }
}

/// Finds a name among those of an object.
pub(crate) fn field<'a>(fields: &'a [(String, Json)], name: &str) -> Option<&'a Json> {
    let found = fields.iter().find(|(known, _)| known == name);
    found.map(|(_, json)| json)
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::Str(text.to_owned())
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(v) => write!(f, "{v}"),
            Self::Number(v) => f.write_str(v),
            Self::Str(v) => f.write_str(&quoted(v)),
            Self::Array(items) => {
                f.write_str("[")?;
                for (i, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if i == 0 { "" } else { "," })?;
                }
                f.write_str("]")
            }
            Self::Object(fields) => {
                f.write_str("{")?;
                for (i, (name, value)) in fields.iter().enumerate() {
                    let comma = if i == 0 { "" } else { "," };
                    write!(f, "{comma}{}:{value}", quoted(name))?;
                }
                f.write_str("}")
            }
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    #[cold]
    fn wrong(&self, what: &str) -> Error {
        Error::invalid(format!("{what} at byte {}", self.at))
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Passes over a byte if it is the next one.
    fn takes(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn json(&mut self, depth: usize) -> Result<Json> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(self.wrong("the text is nested too deeply"));
        };
        self.skip_blanks();
        match self.peek() {
            Some(b'"') => self.string().map(Json::Str),
            Some(b'[') => self.array(depth),
            Some(b'{') => self.object(depth),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => {
                for (word, json) in [
                    ("null", Json::Null),
                    ("true", Json::Bool(true)),
                    ("false", Json::Bool(false)),
                ] {
                    if self.text[self.at..].starts_with(word) {
                        self.at += word.len();
                        return Ok(json);
                    }
                }
                Err(self.wrong(match self.at < self.text.len() {
                    true => "there is no JSON",
                    false => "the text ends too early",
                }))
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Json> {
        self.at += 1;
        let mut items = Vec::new();
        self.skip_blanks();
        if self.takes(b']') {
            return Ok(Json::Array(items));
        }
        loop {
            items.push(self.json(depth)?);
            self.skip_blanks();
            if self.takes(b']') {
                return Ok(Json::Array(items));
            }
            if !self.takes(b',') {
                return Err(self.wrong("a list goes on without a comma"));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json> {
        self.at += 1;
        let mut fields = Vec::new();
        self.skip_blanks();
        if self.takes(b'}') {
            return Ok(Json::Object(fields));
        }
        loop {
            self.skip_blanks();
            if self.peek() != Some(b'"') {
                return Err(self.wrong("an object lacks a name"));
            }
            let name = self.string()?;
            self.skip_blanks();
            if !self.takes(b':') {
                return Err(self.wrong("a name of an object lacks its colon"));
            }
            fields.push((name, self.json(depth)?));
            self.skip_blanks();
            if self.takes(b'}') {
                break;
            }
            if !self.takes(b',') {
                return Err(self.wrong("an object goes on without a comma"));
            }
        }
        let mut names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(self.wrong(&format!("an object has {:?} twice", pair[0])));
        }
        Ok(Json::Object(fields))
    }

    fn number(&mut self) -> Result<Json> {
        let start = self.at;
        self.takes(b'-');
        let leads_with_zero = self.peek() == Some(b'0');
        let whole = self.digits()?;
        if leads_with_zero && whole > 1 {
            return Err(self.wrong("a number begins with 0"));
        }
        if self.takes(b'.') {
            self.digits()?;
        }
        if self.takes(b'e') || self.takes(b'E') {
            let _ = self.takes(b'+') || self.takes(b'-');
            self.digits()?;
        }
        Ok(Json::Number(self.text[start..self.at].to_owned()))
    }

    fn digits(&mut self) -> Result<usize> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        match self.at - start {
            0 => Err(self.wrong("a number lacks a digit")),
            count => Ok(count),
        }
    }

    fn string(&mut self) -> Result<String> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let plain = self.at;
            while !matches!(self.peek(), None | Some(b'"' | b'\\' | 0..=0x1f)) {
                self.at += 1;
            }
            // What ends the run is a byte of its own, so that the run ends between characters.
            out.push_str(&self.text[plain..self.at]);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => {
                    self.at += 1;
                    out.push(self.escaped()?);
                }
                Some(_) => return Err(self.wrong("a string has a control character")),
                None => return Err(self.wrong("a string has no end")),
            }
        }
    }

    fn escaped(&mut self) -> Result<char> {
        let escape = self.peek();
        self.at += usize::from(escape.is_some_and(|byte| byte.is_ascii()));
        Ok(match escape {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.code_point(),
            _ => return Err(self.wrong("a string has an unknown escape")),
        })
    }

    fn code_point(&mut self) -> Result<char> {
        let first = self.code_unit()?;
        let code = if (0xd800..0xdc00).contains(&first) {
            if !(self.takes(b'\\') && self.takes(b'u')) {
                return Err(self.wrong("a string has half a character"));
            }
            let second = self.code_unit()?;
            if !(0xdc00..0xe000).contains(&second) {
                return Err(self.wrong("a string has half a character"));
            }
            0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)
        } else {
            first
        };
        char::from_u32(code).ok_or_else(|| self.wrong("a string has half a character"))
    }

    fn code_unit(&mut self) -> Result<u32> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4);
        let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let unit = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let unit = unit.ok_or_else(|| self.wrong("a \\u lacks its four digits"))?;
        self.at += 4;
        Ok(unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_characters_and_objects_their_order() {
        let text = r#" {"b":[1e400,-0.0,1700000000.123456789,340282366920938463463374607431768211455],"a":{"x":null}} "#;
        let json = Json::parse(text).unwrap();
        assert_eq!(json.to_string(), text.trim());
        assert_eq!(
            json.get("a").and_then(|a| a.get("x")),
            Some(&Json::Null),
            "{json:?}"
        );
    }

    #[test]
    fn strings_are_read_as_another_reader_reads_them() {
        for text in [
            r#""a\"b\\c\/\b\f\n\r\t\u00e9\ud83d\ude00ü""#,
            r#""""#,
            r#""\u0000""#,
        ] {
            let other: String = serde_json::from_str(text).unwrap();
            assert_eq!(Json::parse(text).unwrap(), Json::Str(other), "{text}");
        }
    }

    #[test]
    fn what_is_no_json_is_refused_wherever_it_ends() {
        for text in [
            "",
            "nul",
            "01",
            "-",
            "1.",
            "1e",
            "[1",
            "[1 2]",
            "[,]",
            "{\"a\"}",
            "{\"a\":1,}",
            "{a:1}",
            "\"a",
            "\"\\x\"",
            "\"\\ud800\"",
            "\"\\ud800\\u0041\"",
            "\"\\u12\"",
            "\"a\nb\"",
            "1 2",
            "{\"a\":1,\"a\":1}",
            "\"\\é\"",
            "é",
            "+1",
            ".5",
        ] {
            let error = Json::parse(text).unwrap_err();
            assert_eq!(
                error.kind(),
                state_api::ErrorKind::InvalidArgument,
                "{text}"
            );
        }
        assert!(Json::parse(&"[".repeat(100_000)).is_err());
        let whole = r#"{"a":[1.5e3,"é\u00e9",{"b":true}],"c":null}"#;
        for cut in (0..whole.len()).filter(|cut| whole.is_char_boundary(*cut)) {
            assert!(Json::parse(&whole[..cut]).is_err(), "{cut}");
        }
    }
}
