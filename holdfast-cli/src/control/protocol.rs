//! What is said over the socket of a running job: a line of JSON that asks, and lines of JSON that answer.
//!
//! ```text
//! → {"holdfast":1,"request":"savepoint","arguments":{"target":"/backup","format":"canonical"}}
//! ← {"holdfast":1,"reply":"progress","text":"waiting for 1 of 8 subtasks"}
//! ← {"holdfast":1,"reply":"done","result":{"id":12,"path":"/backup/savepoint-…"}}
//! ```
//!
//! A connection serves one request. After `done` or `failed` nothing more comes.
use clap::ValueEnum;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The version of this protocol; a program that speaks another one is told so.
pub(crate) const VERSION: u64 = 1;

/// The longest request, in bytes.
pub(crate) const LONGEST_REQUEST: usize = 64 << 10;

/// The longest line of an answer, in bytes: the status of a job with some ten thousand subtasks.
pub(crate) const LONGEST_REPLY: usize = 64 << 20;

/// The requests by name.
const NAMES: [&str; 5] = ["status", "checkpoint", "savepoint", "stop", "cancel"];

/// How a savepoint is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Format {
    /// Read by every backend
    #[default]
    Canonical,
    /// The backend's own: faster, and read by the same backend only
    Native,
}

/// Where a savepoint goes, and how it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SavepointArguments {
    /// A folder or URL; `None` for the configured one.
    pub(crate) target: Option<String>,
    /// How it is written.
    pub(crate) format: Format,
}

/// What kind of checkpoint is taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CheckpointArguments {
    /// Whether it refers to nothing that an earlier one wrote.
    pub(crate) full: bool,
}

/// How a job is stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct StopArguments {
    /// Whether event time runs to its end first, so that every window and timer fires.
    pub(crate) drain: bool,
    /// Whether a checkpoint of the job's own is enough.
    pub(crate) no_savepoint: bool,
    /// Where the savepoint goes; `None` for the configured place.
    pub(crate) target: Option<String>,
    /// How the savepoint is written.
    pub(crate) format: Format,
}

/// What is asked of a running job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// How the job is.
    Status,
    /// Take a checkpoint now.
    Checkpoint(CheckpointArguments),
    /// Take a savepoint.
    Savepoint(SavepointArguments),
    /// End with a savepoint, or with a last checkpoint.
    Stop(StopArguments),
    /// End at once; the last checkpoint stays.
    Cancel,
}

#[derive(Deserialize)]
struct Envelope {
    holdfast: u64,
    request: String,
    #[serde(default)]
    arguments: Value,
}

/// What is wrong with a request.
pub(crate) type Complaint = String;

impl Request {
    /// Returns the name.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Checkpoint(_) => "checkpoint",
            Self::Savepoint(_) => "savepoint",
            Self::Stop(_) => "stop",
            Self::Cancel => "cancel",
        }
    }

    /// Writes the line that asks.
    pub(crate) fn to_line(&self) -> String {
        let arguments = match self {
            Self::Status | Self::Cancel => Value::Null,
            Self::Checkpoint(arguments) => json!(arguments),
            Self::Savepoint(arguments) => json!(arguments),
            Self::Stop(arguments) => json!(arguments),
        };
        let mut envelope = json!({ "holdfast": VERSION, "request": self.name() });
        if !arguments.is_null() {
            envelope["arguments"] = arguments;
        }
        format!("{envelope}\n")
    }

    /// Reads a line.
    ///
    /// # Errors
    /// One line that says what is wrong, and what is known.
    pub(crate) fn of_line(line: &str) -> Result<Self, Complaint> {
        let value: Value = serde_json::from_str(line)
            .map_err(|error| format!("a request is one line of JSON: {error}"))?;
        check_version(&value)?;
        let envelope: Envelope = serde_json::from_value(value)
            .map_err(|error| format!("this is no request: {error}"))?;
        debug_assert_eq!(envelope.holdfast, VERSION);
        let Envelope {
            request, arguments, ..
        } = envelope;
        Ok(match request.as_str() {
            "status" => none(arguments).map(|()| Self::Status)?,
            "cancel" => none(arguments).map(|()| Self::Cancel)?,
            "checkpoint" => Self::Checkpoint(some(arguments)?),
            "savepoint" => Self::Savepoint(some(arguments)?),
            "stop" => Self::Stop(some(arguments)?),
            other => {
                let other: String = other.chars().take(64).collect();
                return Err(format!(
                    "unknown request {other:?}; known: {}",
                    NAMES.join(", ")
                ));
            }
        })
    }
}

fn none(arguments: Value) -> Result<(), Complaint> {
    let empty = match &arguments {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        _ => false,
    };
    if empty {
        Ok(())
    } else {
        Err("this request takes no arguments".into())
    }
}

fn some<T: DeserializeOwned + Default>(arguments: Value) -> Result<T, Complaint> {
    match arguments {
        Value::Null => Ok(T::default()),
        arguments => {
            serde_json::from_value(arguments).map_err(|error| format!("wrong arguments: {error}"))
        }
    }
}

fn check_version(value: &Value) -> Result<(), Complaint> {
    match value.get("holdfast") {
        Some(version) if version.as_u64() == Some(VERSION) => Ok(()),
        Some(Value::Number(version)) => Err(format!(
            "it speaks version {version} of the protocol, and this program (holdfast {}) version {VERSION}",
            env!("CARGO_PKG_VERSION")
        )),
        _ => Err(format!("\"holdfast\":{VERSION} is missing")),
    }
}

/// Why a request came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Fault {
    /// The request is wrong; asking again is of no use.
    Request,
    /// This user may not ask.
    Forbidden,
    /// Too many ask at once.
    Busy,
    /// The job could not do it.
    Failed,
    /// The job ended before it was done.
    Ended,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub(crate) enum Reply {
    /// What is waited for; may come any number of times.
    Progress {
        /// One line for people.
        text: String,
    },
    /// The last line: it is done.
    Done {
        /// What came of it.
        result: Value,
    },
    /// The last line: it came to nothing.
    Failed {
        /// What kind of failure.
        fault: Fault,
        /// One line for people.
        message: String,
    },
}

impl Reply {
    /// Creates a failure.
    pub(crate) fn failed(fault: Fault, message: impl Into<String>) -> Self {
        Self::Failed {
            fault,
            message: message.into(),
        }
    }

    /// Writes the line.
    pub(crate) fn to_line(&self) -> String {
        let mut line = json!(self);
        line["holdfast"] = json!(VERSION);
        format!("{line}\n")
    }

    /// Reads a line.
    ///
    /// # Errors
    /// One line that says what is wrong.
    pub(crate) fn of_line(line: &str) -> Result<Self, Complaint> {
        let value: Value = serde_json::from_str(line)
            .map_err(|error| format!("an answer is one line of JSON: {error}"))?;
        check_version(&value)?;
        serde_json::from_value(value).map_err(|error| format!("this is no answer: {error}"))
    }
}

/// A checkpoint or savepoint that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Taken {
    /// Its id.
    pub(crate) id: u64,
    /// What it is.
    pub(crate) kind: String,
    /// Where it is, if it outlives the process.
    pub(crate) path: Option<String>,
    /// Milliseconds from the request to the published metadata.
    pub(crate) duration_ms: u64,
    /// Bytes that it refers to.
    pub(crate) total_bytes: u64,
    /// Bytes that were written for it.
    pub(crate) new_bytes: u64,
}

impl Taken {
    /// Tells whether the user owns it.
    pub(crate) fn is_savepoint(&self) -> bool {
        self.kind == "savepoint"
    }
}

/// How a job ended that was asked to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ending {
    /// The savepoint or checkpoint that it was stopped with.
    pub(crate) taken: Option<Taken>,
    /// What it can go on from: that, or the last checkpoint.
    pub(crate) kept: Option<String>,
    /// The command that goes on.
    pub(crate) resume: Option<String>,
    /// The folder that the job ran in, which the command's paths may start from.
    pub(crate) folder: Option<String>,
    /// Whether it had read all of its input before the request had any effect.
    #[serde(default)]
    pub(crate) finished: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_it_was_written() {
        let all = [
            Request::Status,
            Request::Cancel,
            Request::Checkpoint(CheckpointArguments { full: true }),
            Request::Savepoint(SavepointArguments {
                target: Some("/a b".into()),
                format: Format::Native,
            }),
            Request::Stop(StopArguments {
                drain: true,
                ..StopArguments::default()
            }),
        ];
        for request in &all {
            let line = request.to_line();
            assert!(
                line.ends_with('\n') && line.matches('\n').count() == 1,
                "{line:?}"
            );
            assert_eq!(Request::of_line(&line).as_ref(), Ok(request));
        }
        assert_eq!(all.len(), NAMES.len());
        assert_eq!(
            Request::of_line(r#"{"holdfast":1,"request":"savepoint"}"#),
            Ok(Request::Savepoint(SavepointArguments::default()))
        );
    }

    #[test]
    fn a_wrong_request_is_told_what_is_wrong_and_what_is_known() {
        for (line, told) in [
            ("", "one line of JSON"),
            ("GET / HTTP/1.1\r", "one line of JSON"),
            ("[]", "\"holdfast\":1 is missing"),
            ("7", "\"holdfast\":1 is missing"),
            (
                r#"{"holdfast":"1","request":"status"}"#,
                "\"holdfast\":1 is missing",
            ),
            (r#"{"holdfast":2,"request":"status"}"#, "version 2"),
            (r#"{"holdfast":1}"#, "missing field `request`"),
            (
                r#"{"holdfast":1,"request":"statsu"}"#,
                "known: status, checkpoint, savepoint, stop, cancel",
            ),
            (
                r#"{"holdfast":1,"request":"status","arguments":{"x":1}}"#,
                "no arguments",
            ),
            (
                r#"{"holdfast":1,"request":"stop","arguments":{"drian":true}}"#,
                "unknown field `drian`",
            ),
            (
                r#"{"holdfast":1,"request":"checkpoint","arguments":[1,2]}"#,
                "wrong arguments",
            ),
        ] {
            let complaint = Request::of_line(line).unwrap_err();
            assert!(complaint.contains(told), "{line}: {complaint}");
        }
        let deep = "[".repeat(100_000);
        assert!(Request::of_line(&deep).is_err());
    }

    #[test]
    fn an_answer_is_read_as_it_was_written_and_garbage_is_not() {
        for reply in [
            Reply::Progress {
                text: "a\nb".into(),
            },
            Reply::Done {
                result: json!({ "id": 3 }),
            },
            Reply::failed(Fault::Busy, "later"),
        ] {
            let line = reply.to_line();
            assert_eq!(line.matches('\n').count(), 1);
            assert_eq!(Reply::of_line(&line), Ok(reply));
        }
        for line in [
            "",
            "{}",
            r#"{"holdfast":1}"#,
            r#"{"holdfast":1,"reply":"maybe"}"#,
            r#"{"holdfast":9,"reply":"done"}"#,
        ] {
            assert!(Reply::of_line(line).is_err(), "{line}");
        }
    }
}
