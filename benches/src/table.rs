//! Tables for people.
use std::fmt;

/// A table, shown as Markdown.
#[derive(Clone, Debug, Default)]
pub struct Table {
    title: String,
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    progress: bool,
}

impl Table {
    /// Creates a table with a title and the names of its columns.
    #[must_use]
    pub fn new(title: impl Into<String>, header: &[&str]) -> Self {
        Self {
            title: title.into(),
            header: header.iter().map(|&name| name.to_owned()).collect(),
            rows: Vec::new(),
            progress: false,
        }
    }

    /// Shows each row on standard error as it comes, too: for tables that take long.
    #[must_use]
    pub fn with_progress(mut self) -> Self {
        self.progress = true;
        self
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().collect();
        if self.progress {
            #[expect(
                clippy::print_stderr,
                reason = "whoever waits wants to see how far it is"
            )]
            {
                eprintln!("{}", cells.join(" | "));
            }
        }
        self.rows.push(cells);
    }

    /// Returns whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            let header = self.header.get(column);
            cells.chain(header).map(|cell| cell.chars().count()).max()
        };
        let widths: Vec<usize> = (0..self.header.len()).filter_map(width).collect();
        let line = |f: &mut fmt::Formatter<'_>, cells: &[String]| {
            for (column, (cell, width)) in cells.iter().zip(&widths).enumerate() {
                // Names to the left, numbers to the right.
                match column {
                    0 => write!(f, "| {cell:<width$} ")?,
                    _ => write!(f, "| {cell:>width$} ")?,
                }
            }
            writeln!(f, "|")
        };
        writeln!(f, "{}\n", self.title)?;
        line(f, &self.header)?;
        for (column, width) in widths.iter().enumerate() {
            match column {
                0 => write!(f, "| {:-<width$} ", "")?,
                _ => write!(f, "| {:->1$}: ", "", width.saturating_sub(1))?,
            }
        }
        writeln!(f, "|")?;
        self.rows.iter().try_for_each(|row| line(f, row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new("Title", &["what", "ns"]);
        table.row(["get".to_owned(), "12.5".to_owned()]);
        assert_eq!(
            table.to_string(),
            "Title\n\n| what |   ns |\n| ---- | ---: |\n| get  | 12.5 |\n"
        );
    }
}
