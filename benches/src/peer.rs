//! The peer harness: found, run, read. It is a program that prints JSON lines, one a measurement.
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use state_api::{Error, Result};

/// The environment variable that names the harness's folder.
pub const VARIABLE: &str = "PEER_FLINK";

/// Returns the folder of the harness: the one named, or that of the environment variable; `None` if there is none.
#[must_use]
pub fn find(named: Option<&Path>) -> Option<PathBuf> {
    let folder = named
        .map(Path::to_path_buf)
        .or_else(|| std::env::var_os(VARIABLE).map(PathBuf::from))?;
    folder.join("run.sh").is_file().then_some(folder)
}

/// Runs a program with environment variables and returns the JSON lines that it printed; what it says goes to our standard error.
///
/// # Errors
/// `Config` when it can't be started, `Retryable` when it fails.
pub fn lines(program: &Path, args: &[&str], variables: &[(&str, String)]) -> Result<Vec<Value>> {
    let output = Command::new(program)
        .args(args)
        .envs(variables.iter().map(|(name, value)| (*name, value)))
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| {
            Error::config("can't run the program")
                .with("program", program.display())
                .caused_by(error)
        })?;
    if !output.status.success() {
        return Err(Error::retryable("the program failed")
            .with("program", program.display())
            .with("status", output.status));
    }
    Ok(parse(&String::from_utf8_lossy(&output.stdout)))
}

/// Reads JSON lines; others are skipped.
#[must_use]
pub fn parse(text: &str) -> Vec<Value> {
    let lines = text.lines().map(serde_json::from_str);
    lines.filter_map(std::result::Result::ok).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_harness_that_is_not_there_is_not_found() {
        assert_eq!(find(Some(Path::new("/no/such/folder"))), None);
    }

    #[test]
    fn lines_that_are_not_json_are_skipped() {
        let lines = parse("{\"bench\":\"value_get\",\"ns_per_op\":210.5}\nnoise\n");
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0]["ns_per_op"], 210.5);
    }
}
