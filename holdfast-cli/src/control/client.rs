use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::geteuid;
use serde::de::DeserializeOwned;
use tokio::io::BufReader;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::folder::check_length;
use super::lines::{Line, read_line, write_line};
use super::protocol::{Fault, LONGEST_REPLY, Reply, Request};
use crate::failure::{Exit, Failure};

/// A job that lives says something every second: one that is silent for so long is frozen, or is no job.
const SILENCE: Duration = Duration::from_secs(10);

/// How a job is reached that runs in another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reachable {
    /// Its name, for people.
    pub(crate) name: String,
    /// Its socket.
    pub(crate) socket: PathBuf,
}

/// Tells whether somebody listens at a path.
pub(super) async fn is_listening(socket: &Path) -> io::Result<bool> {
    match timeout(SILENCE, UnixStream::connect(socket)).await {
        // A queue of connections that is full is that of a process that is frozen.
        Ok(Ok(_)) | Err(_) => Ok(true),
        Ok(Err(error)) => match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Ok(false),
            _ => Err(error),
        },
    }
}

/// Asks a job, passes on what it says meanwhile, and returns what it answers.
///
/// # Errors
/// What the job says; that it is gone, frozen or somebody else's; that it took longer than `within`.
pub(crate) async fn ask<T: DeserializeOwned>(
    job: &Reachable,
    request: &Request,
    within: Option<Duration>,
    told: impl FnMut(&str),
) -> Result<T, Failure> {
    let asked = ask_for_value(job, request, told);
    let value = match within {
        None => asked.await,
        Some(within) => timeout(within, asked)
            .await
            .unwrap_or_else(|_| Err(too_late(job, request, within))),
    }?;
    serde_json::from_value(value).map_err(|error| no_answer(job, &error.to_string()))
}

async fn ask_for_value(
    job: &Reachable,
    request: &Request,
    mut told: impl FnMut(&str),
) -> Result<serde_json::Value, Failure> {
    check_length(&job.socket)?;
    let stream = match timeout(SILENCE, UnixStream::connect(&job.socket)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Err(unreachable(job, &error)),
        Err(_) => return Err(silent(job)),
    };
    let (peer, own) = (
        stream.peer_cred().map(|peer| peer.uid()),
        geteuid().as_raw(),
    );
    match peer {
        // Root may ask anybody, and root's answers are trusted.
        Ok(peer) if peer == own || peer == 0 || own == 0 => {}
        Ok(peer) => {
            return Err(Failure::failed(format!(
                "user {peer} listens at {}, not you",
                job.socket.display()
            )));
        }
        Err(error) => return Err(unreachable(job, &error)),
    }
    let (reader, mut writer) = stream.into_split();
    // A job that turns a client away may close before it has read everything: what it said counts.
    drop(write_line(&mut writer, &request.to_line(), SILENCE).await);
    let mut reader = BufReader::new(reader);
    loop {
        let line = match timeout(SILENCE, read_line(&mut reader, LONGEST_REPLY)).await {
            Ok(line) => line,
            Err(_) => return Err(silent(job)),
        };
        let text = match line {
            Ok(Line::Text { text, whole: true }) => text,
            Ok(Line::Text { whole: false, .. } | Line::End) | Err(_) => {
                return Err(Failure::new(
                    Exit::NotRunning,
                    format!("job {} ended before it answered", job.name),
                ));
            }
            Ok(Line::TooLong) => return Err(no_answer(job, "a line is too long")),
            Ok(Line::NotText) => return Err(no_answer(job, "it is not text")),
        };
        match Reply::of_line(&text).map_err(|complaint| no_answer(job, &complaint))? {
            Reply::Progress { text } => told(&text),
            Reply::Done { result } => return Ok(result),
            Reply::Failed { fault, message } => {
                let exit = match fault {
                    Fault::Request => Exit::Usage,
                    Fault::Ended => Exit::NotRunning,
                    Fault::Forbidden | Fault::Busy | Fault::Failed => Exit::Failed,
                };
                return Err(Failure::new(exit, message));
            }
        }
    }
}

fn unreachable(job: &Reachable, error: &io::Error) -> Failure {
    let socket = job.socket.display();
    match error.kind() {
        io::ErrorKind::NotFound => Failure::new(
            Exit::NotRunning,
            format!(
                "job {} is not running: there is no socket {socket}",
                job.name
            ),
        ),
        io::ErrorKind::ConnectionRefused => Failure::new(
            Exit::NotRunning,
            format!(
                "job {} is not running: its process has died, and nobody listens at {socket}",
                job.name
            ),
        ),
        _ => Failure::failed(format!(
            "job {} can't be reached at {socket}: {error}",
            job.name
        )),
    }
}

fn silent(job: &Reachable) -> Failure {
    Failure::new(
        Exit::NoAnswer,
        format!(
            "job {} says nothing for {} s: its process may be frozen (SIGSTOP) or starved",
            job.name,
            SILENCE.as_secs()
        ),
    )
}

fn too_late(job: &Reachable, request: &Request, within: Duration) -> Failure {
    let goes_on = match request {
        Request::Status => "",
        _ => "; what was begun goes on in the job, and `holdfast status` shows it",
    };
    Failure::new(
        Exit::NoAnswer,
        format!(
            "job {} has not answered {:?} within {within:?}{goes_on}",
            job.name,
            request.name()
        ),
    )
}

fn no_answer(job: &Reachable, complaint: &str) -> Failure {
    Failure::failed(format!(
        "{} does not answer as a job does: {complaint}",
        job.socket.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader as StdReader, Write};
    use std::os::unix::net::UnixListener;

    /// Asks somebody who answers each request with these bytes.
    fn answered(bytes: &'static [u8]) -> (Result<serde_json::Value, Failure>, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("j.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let other = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            StdReader::new(&stream).read_line(&mut line).unwrap();
            drop(stream.write_all(bytes));
            line
        });
        let job = Reachable {
            name: "j".into(),
            socket,
        };
        let io = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let mut told = Vec::new();
        let answer = io.block_on(ask(&job, &Request::Status, None, |text| {
            told.push(text.to_owned())
        }));
        assert_eq!(other.join().unwrap(), Request::Status.to_line());
        (answer, told)
    }

    #[test]
    fn the_last_line_is_the_answer_and_those_before_it_are_passed_on() {
        let (answer, told) = answered(
            b"{\"holdfast\":1,\"reply\":\"progress\",\"text\":\"soon\"}\n{\"holdfast\":1,\"reply\":\"done\",\"result\":7}\n",
        );
        assert_eq!(
            (answer.unwrap(), told),
            (serde_json::json!(7), vec!["soon".to_owned()])
        );
    }

    #[test]
    fn whoever_answers_otherwise_is_no_job() {
        for (bytes, exit, told) in [
            (&b""[..], Exit::NotRunning, "ended before it answered"),
            (b"{\"holdfast\":1,\"reply\":\"done\",\"result\":7}", Exit::NotRunning, "ended before it answered"),
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", Exit::Failed, "does not answer as a job does"),
            (b"\xff\xff\n", Exit::Failed, "not text"),
            (b"{\"holdfast\":2,\"reply\":\"done\",\"result\":7}\n", Exit::Failed, "version 2"),
            (
                b"{\"holdfast\":1,\"reply\":\"failed\",\"fault\":\"request\",\"message\":\"no such thing\"}\n",
                Exit::Usage,
                "no such thing",
            ),
        ] {
            let failure = answered(bytes).0.unwrap_err();
            assert_eq!(failure.exit(), exit, "{}", failure.line());
            assert!(failure.line().contains(told), "{}", failure.line());
        }
    }

    #[test]
    fn nobody_there_is_not_running() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("j.sock");
        let io = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let job = Reachable {
            name: "j".into(),
            socket: socket.clone(),
        };
        let ask = || {
            io.block_on(ask::<serde_json::Value>(
                &job,
                &Request::Status,
                None,
                |_| {},
            ))
            .unwrap_err()
        };
        assert!(ask().line().contains("there is no socket"));
        drop(UnixListener::bind(&socket).unwrap());
        let died = ask();
        assert_eq!(died.exit(), Exit::NotRunning);
        assert!(died.line().contains("has died"), "{}", died.line());
        assert!(!io.block_on(is_listening(&socket)).unwrap());
    }
}
