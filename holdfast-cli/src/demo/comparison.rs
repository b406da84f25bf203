use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::failure::Failure;
use crate::run::visible_files;

/// Rows that an example is shown of, at most.
const EXAMPLES: usize = 5;

/// Rows, and how often each stands there.
pub(crate) type Rows = BTreeMap<String, u64>;

/// Reads the visible rows of an output folder.
///
/// # Errors
/// When a file can't be read.
pub(crate) fn rows(folder: &Path) -> Result<Rows, Failure> {
    let unreadable = |error: std::io::Error| {
        Failure::failed(format!("{} can't be read: {error}", folder.display()))
    };
    let mut rows = Rows::new();
    for file in visible_files(folder).map_err(unreadable)? {
        for row in fs::read_to_string(file).map_err(unreadable)?.lines() {
            *rows.entry(row.to_owned()).or_default() += 1;
        }
    }
    Ok(rows)
}

/// How two sets of rows differ.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Comparison {
    /// Rows of the second set.
    pub(crate) actual: u64,
    /// Rows of the first set that the second has fewer times.
    lost: Vec<String>,
    /// Rows of both sets that the second has more times.
    twice: Vec<String>,
    /// Rows that only the second has.
    unexpected: Vec<String>,
}

impl Comparison {
    pub(crate) fn of(expected: &Rows, actual: &Rows) -> Self {
        let mut found = Self {
            actual: actual.values().sum(),
            ..Self::default()
        };
        for (row, times) in expected {
            let there = actual.get(row).copied().unwrap_or(0);
            if there < *times {
                found.lost.push(row.clone());
            } else if there > *times {
                found.twice.push(row.clone());
            }
        }
        found.unexpected = actual
            .keys()
            .filter(|row| !expected.contains_key(*row))
            .cloned()
            .collect();
        found
    }

    pub(crate) fn is_identical(&self) -> bool {
        self.lost.is_empty() && self.twice.is_empty() && self.unexpected.is_empty()
    }

    /// Says in a few words how the sets differ.
    pub(crate) fn summary(&self) -> String {
        if self.is_identical() {
            return "none lost, none twice".into();
        }
        let (lost, twice, unexpected) = (self.lost.len(), self.twice.len(), self.unexpected.len());
        format!("{lost} lost, {twice} twice, {unexpected} that should not be there")
    }

    /// Returns lines that show some of the differences.
    pub(crate) fn examples(&self) -> impl Iterator<Item = String> + '_ {
        let kinds = [
            ("lost", &self.lost),
            ("twice", &self.twice),
            ("unexpected", &self.unexpected),
        ];
        kinds.into_iter().flat_map(|(kind, rows)| {
            rows.iter()
                .take(EXAMPLES)
                .map(move |row| format!("{kind:>10}: {row}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(rows: &[&str]) -> Rows {
        let mut set = Rows::new();
        rows.iter()
            .for_each(|row| *set.entry((*row).to_owned()).or_default() += 1);
        set
    }

    #[test]
    fn rows_that_are_lost_twice_or_new_make_a_difference() {
        let expected = set(&["a", "b", "c"]);
        assert!(Comparison::of(&expected, &set(&["c", "b", "a"])).is_identical());
        let found = Comparison::of(&expected, &set(&["a", "b", "b", "d"]));
        assert!(!found.is_identical());
        assert_eq!(
            found.summary(),
            "1 lost, 1 twice, 1 that should not be there"
        );
        let examples: Vec<_> = found.examples().collect();
        assert_eq!(
            examples,
            ["      lost: c", "     twice: b", "unexpected: d"]
        );
    }

    #[test]
    fn only_visible_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("part-1.csv"), "a\nb\n").unwrap();
        fs::write(folder.path().join("part-2.csv"), "a\n").unwrap();
        fs::write(folder.path().join(".part-3.pending"), "c\n").unwrap();
        assert_eq!(rows(folder.path()).unwrap(), set(&["a", "a", "b"]));
    }
}
