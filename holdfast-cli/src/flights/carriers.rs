use std::path::{Path, PathBuf};

use state_api::{Error, Result};

use super::columns::fields;

/// The carriers that are built in, as `carrier,name` lines with a header.
const BUILT_IN: &str = include_str!("../../../examples/data/airlines.csv");

/// Name of the file of carriers that is looked for beside the flights.
pub(crate) const FILE: &str = "airlines.csv";

/// Where the carriers' names come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Carriers {
    /// A file of `carrier,name` lines with a header.
    File(PathBuf),
    /// The names that this program brings along.
    BuiltIn,
}

impl Carriers {
    /// Takes the file that is named, or one beside the input, or else the built-in names.
    pub(crate) fn find(named: Option<&Path>, input: &Path) -> Self {
        if let Some(file) = named {
            return Self::File(file.to_owned());
        }
        // In a folder of flights such a file would be taken for flights; there it must be named.
        let beside = input.parent().map(|folder| folder.join(FILE));
        match beside {
            Some(file) if file.is_file() && !input.is_dir() => Self::File(file),
            _ => Self::BuiltIn,
        }
    }

    /// Reads all names.
    ///
    /// # Errors
    /// `Config` when the file can't be read, or a line is no `carrier,name`.
    pub(crate) fn read(&self) -> Result<Vec<(String, String)>> {
        match self {
            Self::BuiltIn => parse(BUILT_IN),
            Self::File(path) => std::fs::read_to_string(path)
                .map_err(|cause| {
                    Error::config("the file of carriers can't be read").caused_by(cause)
                })
                .and_then(|text| parse(&text))
                .map_err(|error| error.with("file", path.display())),
        }
    }
}

fn parse(text: &str) -> Result<Vec<(String, String)>> {
    let mut lines = text.trim_start_matches('\u{feff}').lines().zip(1..);
    let header: Vec<_> = lines
        .next()
        .map(|(line, _)| fields(line).collect())
        .unwrap_or_default();
    let column = |name: &str| {
        let found = header
            .iter()
            .position(|field: &std::borrow::Cow<'_, str>| field.trim() == name);
        found.ok_or_else(|| Error::config(format!("the file of carriers has no column {name:?}")))
    };
    let (code, name) = (column("carrier")?, column("name")?);
    let mut carriers = Vec::new();
    for (line, number) in lines.filter(|(line, _)| !line.trim().is_empty()) {
        let found: Vec<_> = fields(line).collect();
        let (Some(code), Some(name)) = (found.get(code), found.get(name)) else {
            return Err(Error::config("a line is no carrier and name").with("line", number));
        };
        carriers.push((code.trim().to_owned(), name.trim().to_owned()));
    }
    Ok(carriers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_carriers_are_sixteen() {
        let carriers = Carriers::BuiltIn.read().unwrap();
        assert_eq!(carriers.len(), 16);
        assert!(carriers.contains(&("UA".into(), "United Air Lines Inc.".into())));
    }

    #[test]
    fn a_file_beside_the_input_is_taken_and_a_named_one_goes_before_it() {
        let folder = tempfile::tempdir().unwrap();
        let flights = folder.path().join("flights.csv");
        assert_eq!(Carriers::find(None, &flights), Carriers::BuiltIn);
        let beside = folder.path().join(FILE);
        std::fs::write(&beside, "carrier,name\nXX,\"X, Inc.\"\n").unwrap();
        let found = Carriers::find(None, &flights);
        assert_eq!(found, Carriers::File(beside));
        assert_eq!(found.read().unwrap(), [("XX".into(), "X, Inc.".into())]);
        let named = Path::new("other.csv");
        assert_eq!(
            Carriers::find(Some(named), &flights),
            Carriers::File(named.into())
        );
        assert!(
            Carriers::File(named.into())
                .read()
                .unwrap_err()
                .to_string()
                .contains("other.csv")
        );
    }

    #[test]
    fn a_bad_file_of_carriers_says_what_is_missing() {
        assert!(
            parse("code,name\n")
                .unwrap_err()
                .to_string()
                .contains("\"carrier\"")
        );
        assert!(
            parse("carrier,name\nUA\n")
                .unwrap_err()
                .to_string()
                .contains("line=2")
        );
    }
}
