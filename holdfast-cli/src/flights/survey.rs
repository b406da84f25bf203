use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use state_api::{Error, Result};

use super::columns::Columns;

/// What a look through the input found before the job starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Survey {
    /// Where the columns are, in every file.
    pub(crate) columns: Columns,
    /// Days by which a flight stands behind one of a later day within its file.
    pub(crate) days_out_of_order: i64,
}

impl Survey {
    /// Looks through files: windows may close only when nothing older can come, and how far the lines are out of order
    /// differs (the year 2013 as published goes from January to October, and has February behind December).
    ///
    /// Lines that are no flights are left to the job, which says where they are.
    ///
    /// # Errors
    /// `Config` when a file can't be read, or has no header or another one than the first file.
    pub(crate) fn of(folder: &Path, files: &[String]) -> Result<Self> {
        let mut survey: Option<Self> = None;
        for name in files {
            let path = folder.join(name);
            let found = of_file(&path).map_err(|error| error.with("file", path.display()))?;
            survey = Some(match survey {
                None => found,
                Some(before) if before.columns == found.columns => Self {
                    days_out_of_order: before.days_out_of_order.max(found.days_out_of_order),
                    ..before
                },
                Some(_) => {
                    return Err(
                        Error::config("the columns differ from those of the first file")
                            .with("file", path.display()),
                    );
                }
            });
        }
        survey.ok_or_else(|| Error::config("the input holds no files"))
    }
}

fn of_file(path: &Path) -> Result<Survey> {
    let unreadable =
        |cause: std::io::Error| Error::config("the input can't be read").caused_by(cause);
    let mut reader = BufReader::with_capacity(1 << 20, File::open(path).map_err(unreadable)?);
    let mut line = Vec::new();
    reader.read_until(b'\n', &mut line).map_err(unreadable)?;
    let header = String::from_utf8_lossy(&line);
    let columns = Columns::of_header(header.trim_end_matches(['\r', '\n']))?;
    let (mut latest, mut days_out_of_order) = (i64::MIN, 0);
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line).map_err(unreadable)? == 0 {
            return Ok(Survey {
                columns,
                days_out_of_order,
            });
        }
        let text = std::str::from_utf8(&line).unwrap_or_default();
        if let Some(day) = columns.day(text.trim_end_matches(['\r', '\n'])) {
            latest = latest.max(day);
            days_out_of_order = days_out_of_order.max(latest - day);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "year,month,day,dep_time,dep_delay,carrier\n";

    fn survey(files: &[&str]) -> Result<Survey> {
        let folder = tempfile::tempdir().unwrap();
        let names: Vec<String> = (0..files.len()).map(|n| format!("{n}.csv")).collect();
        for (name, text) in names.iter().zip(files) {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        Survey::of(folder.path(), &names)
    }

    #[test]
    fn the_greatest_step_back_within_a_file_counts() {
        let first =
            format!("{HEADER}2013,1,10,1,1,UA\n2013,1,8,1,1,UA\nbroken\n2013,1,9,1,1,UA\r\n");
        let second = format!("{HEADER}2013,1,1,1,1,UA\n2013,1,2,1,1,UA");
        assert_eq!(survey(&[&first, &second]).unwrap().days_out_of_order, 2);
        assert_eq!(survey(&[&second]).unwrap().days_out_of_order, 0);
    }

    #[test]
    fn files_with_different_columns_and_files_without_header_are_refused() {
        let other = "carrier,dep_delay,dep_time,day,month,year\n";
        assert!(
            survey(&[HEADER, other])
                .unwrap_err()
                .to_string()
                .contains("1.csv")
        );
        assert!(
            survey(&["2013,1,1,1,1,UA\n"])
                .unwrap_err()
                .to_string()
                .contains("missing: year")
        );
        assert!(survey(&[""]).is_err());
        assert!(survey(&[]).is_err());
    }
}
