use state_api::{Error, Result};

use crate::json_text::Json;
use crate::rows::{NAMES, Row, unknown_name};

/// The parts of a row that may be structs with a column for each field.
const PARTS: [&str; 4] = ["key", "namespace", "map_key", "value"];

/// The head of a table: what is in which column of its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableHead {
    /// Names of parts, each with the field that the column holds of it, if it does not hold all of it.
    columns: Vec<(String, Option<String>)>,
}

impl TableHead {
    /// Reads the names of columns; `value.delay` is the field `delay` of a struct.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that a row does not have, with the nearest one, for one that is there twice, and for a part
    /// that has a column of its own beside those of its fields.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        let mut columns: Vec<(String, Option<String>)> = Vec::new();
        for name in names {
            let (part, field) = match name.split_once('.') {
                Some((part, field)) => (part, Some(field.to_owned())),
                None => (name, None),
            };
            if !NAMES.contains(&part) || field.is_some() && !PARTS.contains(&part) {
                return Err(unknown_name("a table has no column", name));
            }
            for (other, other_field) in columns.iter().filter(|(other, _)| other == part) {
                if *other_field == field {
                    return Err(Error::invalid(format!(
                        "the table has column {name:?} twice"
                    )));
                }
                if other_field.is_none() || field.is_none() {
                    return Err(Error::invalid(format!(
                        "the table has a column {other:?} and columns of its fields: which holds?"
                    )));
                }
            }
            columns.push((part.to_owned(), field));
        }
        Ok(Self { columns })
    }

    /// Makes a row of a record. An empty cell is nothing where nothing may be, else an empty string.
    ///
    /// # Errors
    /// `InvalidArgument` when the record has another number of cells, or one that can't be.
    pub fn row<'a>(&self, record: impl IntoIterator<Item = &'a str>) -> Result<Row> {
        let mut fields: Vec<(String, Json)> = Vec::new();
        let mut cells = record.into_iter();
        for (part, field) in &self.columns {
            let cell = cells.next();
            let cell = cell.ok_or_else(|| Error::invalid("a record has too few cells"))?;
            match field {
                None if cell.is_empty() && !PARTS.contains(&part.as_str()) => {}
                None => fields.push((part.clone(), cell.into())),
                Some(field) => {
                    let place = fields.iter().position(|(known, _)| known == part);
                    let place = place.unwrap_or_else(|| {
                        fields.push((part.clone(), Json::Object(Vec::new())));
                        fields.len() - 1
                    });
                    if let Json::Object(of) = &mut fields[place].1 {
                        of.push((field.clone(), cell.into()));
                    }
                }
            }
        }
        match cells.next() {
            None => Row::of_cells(fields),
            Some(_) => Err(Error::invalid("a record has more cells than the head")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_that_nobody_could_read_is_refused_before_the_first_record() {
        for (head, told) in [
            (vec!["key", "valeu"], "did you mean \"value\""),
            (vec!["key", "key", "value"], "\"key\" twice"),
            (vec!["key", "value.a", "value.a"], "\"value.a\" twice"),
            (vec!["key", "value.a", "value"], "which holds?"),
            (vec!["key", "value", "value.a"], "which holds?"),
            (vec!["key", "index.a"], "no column \"index.a\""),
            (vec!["key", ""], "no column \"\""),
        ] {
            let error = TableHead::new(head).unwrap_err();
            assert_eq!(error.kind(), state_api::ErrorKind::InvalidArgument);
            assert!(error.to_string().contains(told), "{error}");
        }
        let head = TableHead::new(["key", "value"]).unwrap();
        assert!(head.row(["1"]).is_err() && head.row(["1", "2", "3"]).is_err());
    }
}
