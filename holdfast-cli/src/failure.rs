use std::panic::PanicHookInfo;
use std::process::ExitCode;

use state_api::{Error, ErrorKind};

use crate::terminal;

/// How a command ended that did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It failed while it ran.
    Failed = 1,
    /// The command line, the configuration or a row is wrong, or what is asked for can't be done.
    Usage = 2,
    /// A checkpoint is damaged.
    Damaged = 3,
    /// The job that was to be asked does not run, or ended before it answered.
    NotRunning = 4,
    /// The job that was asked gave no answer in time.
    NoAnswer = 5,
    /// Nothing was deleted, since a job runs in the folder, or may run there.
    Running = 6,
    /// What was compared differs.
    Different = 7,
    /// A state holds nothing of the key that was asked for.
    Nothing = 8,
    /// A newer attempt of the job has taken over.
    Fenced = 77,
    /// Ctrl-C, `holdfast cancel`, or SIGTERM when nothing could be kept.
    Interrupted = 130,
}

impl Exit {
    /// Returns how a command ends for an error of a kind.
    pub(crate) fn of(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Config
            | ErrorKind::InvalidArgument
            | ErrorKind::NotFound
            | ErrorKind::AlreadyExists
            | ErrorKind::Incompatible
            | ErrorKind::Unsupported => Self::Usage,
            ErrorKind::Corrupt => Self::Damaged,
            ErrorKind::Fenced => Self::Fenced,
            _ => Self::Failed,
        }
    }
}

/// The exit codes, for `--help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    done; or the job was stopped, by SIGTERM or `holdfast stop`, with all that it had read in a checkpoint
  1    failed while running
  2    wrong arguments, rows or configuration, nothing under that path, or something that can't be done with it, as
       a state or an input that does not fit; a new checkpoint's folder may have been begun, nothing else was
  3    a checkpoint is damaged
  4    the job that was asked does not run, or ended before it answered
  5    the job that was asked did not answer in time
  6    nothing was deleted, since the job runs, or nobody can tell that it does not
  7    what was compared differs (diff, demo)
  8    the state holds nothing of the key (get, edit --delete)
  77   a newer run of the job has taken over
  101  a fault of the program itself: please report it
  130  interrupted by Ctrl-C or `holdfast cancel`, or by SIGTERM or SIGHUP with nothing kept";

/// Why a command did not succeed: one line and an exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    /// Nothing to say when the reader of the output has gone, or everything was said.
    line: Option<String>,
}

impl Failure {
    /// Creates a failure while running.
    pub(crate) fn failed(line: impl Into<String>) -> Self {
        Self::new(Exit::Failed, line)
    }

    /// Creates a failure of the user's arguments.
    pub(crate) fn usage(line: impl Into<String>) -> Self {
        Self::new(Exit::Usage, line)
    }

    /// Creates a failure about which everything was said already.
    pub(crate) fn silent(exit: Exit) -> Self {
        Self { exit, line: None }
    }

    /// As `From`, for commands whose `--allow-root` says what else they may read.
    pub(crate) fn of_roots(error: Error) -> Self {
        let is_unnamed = error.kind() == ErrorKind::Config && error.context("root").is_some();
        let mut failure = Self::from(error);
        if let (true, Some(line)) = (is_unnamed, &mut failure.line) {
            line.push_str("; name it with --allow-root");
        }
        failure
    }

    pub(crate) fn new(exit: Exit, line: impl Into<String>) -> Self {
        Self {
            exit,
            line: Some(line.into()),
        }
    }

    /// Returns what went wrong, in one line.
    pub(crate) fn line(&self) -> &str {
        self.line.as_deref().unwrap_or_default()
    }

    /// Adds what else is known.
    pub(crate) fn and(mut self, more: &str) -> Self {
        if let Some(line) = &mut self.line {
            line.push_str(": ");
            line.push_str(more);
        }
        self
    }

    /// Returns the exit code.
    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// Prints the line and returns the exit code.
    pub(crate) fn report(self) -> ExitCode {
        if let Some(line) = &self.line {
            terminal::say(&format!("error: {}", one_line(line)));
        }
        ExitCode::from(self.exit as u8)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(Exit::of(error.kind()), plain(&error))
    }
}

/// Writes an error without the word for its kind, where the message says as much.
pub(crate) fn plain(error: &Error) -> String {
    let line = error.to_string();
    let telling = matches!(
        error.kind(),
        ErrorKind::Config
            | ErrorKind::InvalidArgument
            | ErrorKind::NotFound
            | ErrorKind::User
            | ErrorKind::Retryable
            | ErrorKind::Fenced
            | ErrorKind::LimitExceeded
    );
    let kind = format!("{}: ", error.kind().as_str());
    match line.strip_prefix(&kind) {
        Some(rest) if telling => rest.to_owned(),
        _ => line,
    }
}

/// Joins the lines of a text with spaces.
pub(crate) fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(" ")
}

/// Makes a panic one line that asks for a report.
pub(crate) fn install_panic_hook() {
    std::panic::set_hook(Box::new(|panic: &PanicHookInfo<'_>| {
        let payload = panic.payload();
        let message = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "no message".to_owned());
        let place = panic
            .location()
            .map(ToString::to_string)
            .unwrap_or_default();
        terminal::say(&format!(
            "internal error: {} at {place}; please report it at {}/issues",
            one_line(&message),
            env!("CARGO_PKG_REPOSITORY")
        ));
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_becomes_one_line_and_the_exit_code_of_its_kind() {
        let error = Error::config("unknown option \"x\"").with("file", "a.yaml:3");
        let failure = Failure::from(error);
        assert_eq!(failure.line(), "unknown option \"x\" [file=a.yaml:3]");
        assert_eq!(failure.exit, Exit::Usage);
        let damaged = Failure::from(Error::corrupt("digest differs").with("object", "chk-1/a"));
        assert_eq!(
            damaged.line(),
            "damaged data: digest differs [object=chk-1/a]"
        );
        assert_eq!(damaged.exit, Exit::Damaged);
        assert_eq!(one_line("a\n\n  b \r\nc"), "a b c");
    }
}
