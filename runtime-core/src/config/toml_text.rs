use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::file::{Entry, join_key};

/// Reads TOML with tables or dotted keys into a flat list; an array becomes its elements between semicolons.
///
/// # Errors
/// The line, if known, and what is wrong.
pub(super) fn parse(text: &str) -> Result<Vec<Entry>, (Option<usize>, String)> {
    let lines = Lines::of(text);
    let table = DeTable::parse(text).map_err(|e| {
        (
            e.span().map(|span| lines.at(span.start)),
            e.message().to_owned(),
        )
    })?;
    let mut entries = Vec::new();
    flatten(table.get_ref(), "", &lines, &mut entries)?;
    // The parser sorts by key; errors are better reported in the order of the file.
    entries.sort_by_key(|entry| entry.line);
    Ok(entries)
}

fn flatten(
    table: &DeTable<'_>,
    path: &str,
    lines: &Lines,
    entries: &mut Vec<Entry>,
) -> Result<(), (Option<usize>, String)> {
    for (name, value) in table {
        let line = lines.at(name.span().start);
        let key = join_key(path, name.get_ref()).map_err(|why| (Some(line), why))?;
        match value.get_ref() {
            // The parser bounds how deep tables nest.
            DeValue::Table(inner) => flatten(inner, &key, lines, entries)?,
            DeValue::Array(items) => {
                let texts: Option<Vec<String>> = items.iter().map(scalar).collect();
                let Some(texts) = texts else {
                    return Err((Some(line), "a list holds plain values only".to_owned()));
                };
                entries.push(Entry {
                    key,
                    text: texts.join(";"),
                    line: Some(line),
                });
            }
            _ => {
                let text = scalar(value).unwrap_or_default();
                entries.push(Entry {
                    key,
                    text,
                    line: Some(line),
                });
            }
        }
    }
    Ok(())
}

fn scalar(value: &Spanned<DeValue<'_>>) -> Option<String> {
    match value.get_ref() {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => {
            let digits = number.as_str();
            let parsed = i64::from_str_radix(digits, number.radix()).ok();
            Some(parsed.map_or_else(|| digits.to_owned(), |n| n.to_string()))
        }
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(truth) => Some(truth.to_string()),
        DeValue::Datetime(moment) => Some(moment.to_string()),
        DeValue::Array(_) | DeValue::Table(_) => None,
    }
}

/// Turns byte positions into line numbers.
struct Lines {
    ends: Vec<usize>,
}

impl Lines {
    fn of(text: &str) -> Self {
        Self {
            ends: text
                .bytes()
                .enumerate()
                .filter(|(_, byte)| *byte == b'\n')
                .map(|(at, _)| at)
                .collect(),
        }
    }

    fn at(&self, position: usize) -> usize {
        self.ends.partition_point(|end| *end < position) + 1
    }
}
