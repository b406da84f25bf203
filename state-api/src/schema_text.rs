//! The text form of a schema; its grammar stands at [`Schema`].
use std::collections::HashSet;
use std::fmt;

use crate::schema::{EnumSchema, Field, Fields, IntType, StructSchema, VariantSchema};
use crate::{Error, Result, Schema};

pub(crate) fn print(schema: &Schema, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match schema {
        Schema::Unit => f.write_str("unit"),
        Schema::Bool => f.write_str("bool"),
        Schema::Int(int) => f.write_str(int.as_str()),
        Schema::F32 => f.write_str("f32"),
        Schema::F64 => f.write_str("f64"),
        Schema::Char => f.write_str("char"),
        Schema::String => f.write_str("string"),
        Schema::Bytes => f.write_str("bytes"),
        Schema::Duration => f.write_str("duration"),
        Schema::Option(inner) => write!(f, "option<{inner}>"),
        Schema::List(item) => write!(f, "list<{item}>"),
        Schema::Set(item) => write!(f, "set<{item}>"),
        Schema::Map(key, value) => write!(f, "map<{key},{value}>"),
        Schema::Array(item, len) => write!(f, "array<{item},{len}>"),
        Schema::Tuple(parts) => {
            f.write_str("tuple(")?;
            separated(f, parts, |f, part| print(part, f))?;
            f.write_str(")")
        }
        Schema::Struct(it) => {
            f.write_str("struct ")?;
            print_name(&it.name, f)?;
            print_fields(&it.fields, f)
        }
        Schema::Enum(it) => {
            f.write_str("enum ")?;
            print_name(&it.name, f)?;
            f.write_str("{")?;
            separated(f, &it.variants, |f, variant| {
                print_name(&variant.name, f)?;
                print_fields(&variant.fields, f)
            })?;
            f.write_str("}")
        }
        Schema::Opaque { codec, version } => {
            f.write_str("opaque(")?;
            print_quoted(codec, f)?;
            write!(f, ",{version})")
        }
    }
}

fn separated<T>(
    f: &mut fmt::Formatter<'_>,
    items: &[T],
    mut each: impl FnMut(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            f.write_str(",")?;
        }
        each(f, item)?;
    }
    Ok(())
}

fn print_fields(fields: &Fields, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match fields {
        Fields::Unit => Ok(()),
        Fields::Named(fields) => {
            f.write_str("{")?;
            separated(f, fields, |f, field| {
                print_name(&field.name, f)?;
                write!(f, ":{}", field.schema)
            })?;
            f.write_str("}")
        }
        Fields::Positional(fields) => {
            f.write_str("(")?;
            separated(f, fields, |f, field| print(&field.schema, f))?;
            f.write_str(")")
        }
    }
}

fn starts_name(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

fn continues_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn print_name(name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if name.starts_with(starts_name) && name.chars().all(continues_name) {
        f.write_str(name)
    } else {
        print_quoted(name, f)
    }
}

fn print_quoted(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("\"")?;
    for c in text.chars() {
        if matches!(c, '"' | '\\') {
            f.write_str("\\")?;
        }
        write!(f, "{c}")?;
    }
    f.write_str("\"")
}

pub(crate) fn parse(text: &str) -> Result<Schema> {
    if text.len() > Schema::MAX_TEXT {
        return Err(Error::corrupt(format!(
            "schema text of {} bytes is longer than {}",
            text.len(),
            Schema::MAX_TEXT
        )));
    }
    let mut parser = Parser {
        text,
        rest: text,
        depth: 0,
    };
    let schema = parser.schema()?;
    parser.skip_blanks();
    if !parser.rest.is_empty() {
        return Err(parser.error("the end of the schema"));
    }
    Ok(schema)
}

struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
    depth: usize,
}

impl<'a> Parser<'a> {
    #[cold]
    fn error(&self, expected: &str) -> Error {
        let offset = self.text.len() - self.rest.len();
        let found: String = self.rest.chars().take(20).collect();
        Error::corrupt(format!(
            "schema text: {expected} expected at byte {offset}, found {found:?}"
        ))
    }

    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn eat(&mut self, token: char) -> bool {
        self.skip_blanks();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: char) -> Result<()> {
        if self.eat(token) {
            Ok(())
        } else {
            Err(self.error(&format!("{token:?}")))
        }
    }

    fn word(&mut self) -> Result<&'a str> {
        self.skip_blanks();
        let end = self
            .rest
            .find(|c| !continues_name(c))
            .unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        if !word.starts_with(starts_name) {
            return Err(self.error("a name"));
        }
        self.rest = rest;
        Ok(word)
    }

    fn quoted(&mut self) -> Result<String> {
        self.expect('"')?;
        let mut text = String::new();
        let mut chars = self.rest.chars();
        loop {
            match chars.next() {
                Some('"') => {
                    self.rest = chars.as_str();
                    return Ok(text);
                }
                Some('\\') => match chars.next() {
                    Some(c @ ('"' | '\\')) => text.push(c),
                    _ => {
                        return Err(
                            self.error("a quoted name with \\\" and \\\\ as its only escapes")
                        );
                    }
                },
                Some(c) => text.push(c),
                None => return Err(self.error("a closing quote")),
            }
        }
    }

    fn name(&mut self) -> Result<String> {
        self.skip_blanks();
        if !self.rest.starts_with('"') {
            return self.word().map(str::to_owned);
        }
        if self.rest.starts_with("\"\"") {
            return Err(self.error("a name that is not empty"));
        }
        self.quoted()
    }

    fn number(&mut self) -> Result<u32> {
        self.skip_blanks();
        let end = self
            .rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        let number = digits
            .parse()
            .map_err(|_| self.error("a number below 2^32"))?;
        self.rest = rest;
        Ok(number)
    }

    /// Parses items between an opening token, already read, and a closing one.
    fn items<T>(
        &mut self,
        close: char,
        mut item: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut items = Vec::new();
        if self.eat(close) {
            return Ok(items);
        }
        loop {
            items.push(item(self)?);
            if self.eat(close) {
                return Ok(items);
            }
            self.expect(',')?;
        }
    }

    fn inner(&mut self) -> Result<Box<Schema>> {
        self.expect('<')?;
        let inner = self.schema()?;
        self.expect('>')?;
        Ok(Box::new(inner))
    }

    fn schema(&mut self) -> Result<Schema> {
        self.depth += 1;
        if self.depth > Schema::MAX_DEPTH {
            return Err(Error::corrupt(format!(
                "schema text nests deeper than {} levels",
                Schema::MAX_DEPTH
            )));
        }
        let before = self.rest;
        let schema = match self.word()? {
            "unit" => Schema::Unit,
            "bool" => Schema::Bool,
            "f32" => Schema::F32,
            "f64" => Schema::F64,
            "char" => Schema::Char,
            "string" => Schema::String,
            "bytes" => Schema::Bytes,
            "duration" => Schema::Duration,
            "option" => Schema::Option(self.inner()?),
            "list" => Schema::List(self.inner()?),
            "set" => Schema::Set(self.inner()?),
            "map" => {
                self.expect('<')?;
                let key = self.schema()?;
                self.expect(',')?;
                let value = self.schema()?;
                self.expect('>')?;
                Schema::Map(Box::new(key), Box::new(value))
            }
            "array" => {
                self.expect('<')?;
                let item = self.schema()?;
                self.expect(',')?;
                let len = self.number()?;
                self.expect('>')?;
                Schema::Array(Box::new(item), len)
            }
            "tuple" => {
                self.expect('(')?;
                Schema::Tuple(self.items(')', Self::schema)?)
            }
            "struct" => Schema::Struct(StructSchema {
                name: self.name()?,
                fields: self.fields()?,
            }),
            "enum" => Schema::Enum(self.variants()?),
            "opaque" => {
                self.expect('(')?;
                let codec = self.quoted()?;
                self.expect(',')?;
                let version = self.number()?;
                self.expect(')')?;
                Schema::Opaque { codec, version }
            }
            word => match IntType::ALL.into_iter().find(|int| int.as_str() == word) {
                Some(int) => Schema::Int(int),
                None => {
                    self.rest = before;
                    return Err(self.error("a type"));
                }
            },
        };
        self.depth -= 1;
        Ok(schema)
    }

    fn variants(&mut self) -> Result<EnumSchema> {
        let name = self.name()?;
        self.expect('{')?;
        let variants = self.items('}', |parser| {
            Ok(VariantSchema {
                name: parser.name()?,
                fields: parser.fields()?,
            })
        })?;
        self.distinct(variants.iter().map(|v| v.name.as_str()))?;
        Ok(EnumSchema { name, variants })
    }

    fn fields(&mut self) -> Result<Fields> {
        if self.eat('{') {
            let fields = self.items('}', |parser| {
                let name = parser.name()?;
                parser.expect(':')?;
                Ok(Field::new(name, parser.schema()?))
            })?;
            self.distinct(fields.iter().map(|f| f.name.as_str()))?;
            return Ok(Fields::Named(fields));
        }
        if self.eat('(') {
            let parts = self.items(')', Self::schema)?;
            let fields = parts.into_iter().enumerate();
            let fields = fields.map(|(i, schema)| Field::new(i.to_string(), schema));
            return Ok(Fields::Positional(fields.collect()));
        }
        Ok(Fields::Unit)
    }

    fn distinct<'n>(&self, names: impl Iterator<Item = &'n str>) -> Result<()> {
        let mut seen = HashSet::new();
        for name in names {
            if !seen.insert(name) {
                return Err(self.error(&format!("a name other than {name:?}, which is taken,")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "schema_text_tests.rs"]
mod tests;
