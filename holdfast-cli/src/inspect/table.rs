/// Rows of text in aligned columns.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    /// Columns whose text is aligned at its end: numbers.
    right: &'static [usize],
}

impl Table {
    /// Creates a table with a head; the columns of these places are of numbers.
    pub(crate) fn new(head: &[&str], right: &'static [usize]) -> Self {
        Self {
            rows: vec![head.iter().map(|text| (*text).to_owned()).collect()],
            right,
        }
    }

    pub(crate) fn row(&mut self, row: impl IntoIterator<Item = String>) {
        self.rows.push(row.into_iter().collect());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }

    /// Writes the table, each line behind an indentation.
    pub(crate) fn render(&self, indent: usize) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut out = String::new();
        for row in &self.rows {
            let mut line = " ".repeat(indent);
            for ((column, cell), width) in row.iter().enumerate().zip(&widths) {
                let fill = " ".repeat(width - cell.chars().count());
                if column > 0 {
                    line.push_str("  ");
                }
                if self.right.contains(&column) {
                    line.push_str(&fill);
                    line.push_str(cell);
                } else {
                    line.push_str(cell);
                    line.push_str(&fill);
                }
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_numbers_at_their_end() {
        let mut table = Table::new(&["name", "n"], &[1]);
        table.row(["é".into(), "10".into()]);
        table.row(["longer".into(), "5".into()]);
        assert_eq!(
            table.render(2),
            "  name     n\n  é       10\n  longer   5\n"
        );
    }
}
