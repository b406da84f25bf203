//! The standard input: one subtask reads it, nobody waits for it.

mod sources_support;

use std::io::{self, Read};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Wake, Waker};
use std::time::Duration;

use runtime_core::source::{Source, SourceContext, SourceReader, SourceStatus};
use runtime_core::sources::{Stdin, StdinReader, StdinSplit};
use sources_support::{context, poll, readers};
use state_api::{Error, ErrorKind};

/// A stream whose bytes a test sends; it ends when the sender goes.
struct Pipe {
    from: Receiver<io::Result<Vec<u8>>>,
    rest: Vec<u8>,
}

fn pipe() -> (Sender<io::Result<Vec<u8>>>, Pipe) {
    let (to, from) = mpsc::channel();
    (
        to,
        Pipe {
            from,
            rest: Vec::new(),
        },
    )
}

impl Read for Pipe {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.rest.is_empty() {
            match self.from.recv() {
                Ok(bytes) => self.rest = bytes?,
                Err(_) => return Ok(0),
            }
        }
        let take = self.rest.len().min(into.len());
        into[..take].copy_from_slice(&self.rest[..take]);
        self.rest.drain(..take);
        Ok(take)
    }
}

/// Counts wake-ups, and lets a test wait for one.
#[derive(Default)]
struct Bell {
    rung: Mutex<u64>,
    changed: Condvar,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        *self.rung.lock().expect("no test panics with the lock") += 1;
        self.changed.notify_all();
    }
}

struct Run {
    reader: StdinReader,
    bell: Arc<Bell>,
}

impl Run {
    fn start(source: &Stdin, splits: Vec<StdinSplit>) -> Self {
        let bell = Arc::new(Bell::default());
        let cx = SourceContext {
            waker: Waker::from(bell.clone()),
            ..context(0, 1)
        };
        let reader = source.reader(&cx, splits).expect("the thread starts");
        Self { reader, bell }
    }

    /// Polls, and waits for the bell between two polls, until there is something else than a wait.
    fn next(&mut self) -> Result<(Vec<String>, SourceStatus), Error> {
        loop {
            let before = *self.bell.rung.lock().expect("no test panics with the lock");
            let (records, status) = poll(&mut self.reader, 100)?;
            if !records.is_empty() || status == SourceStatus::Finished {
                return Ok((records, status));
            }
            assert_eq!(
                status,
                SourceStatus::Waiting {
                    wake_at_ms: None,
                    idle: true
                }
            );
            let rung = self.bell.rung.lock().expect("no test panics with the lock");
            let (_guard, timeout) = self
                .bell
                .changed
                .wait_timeout_while(rung, Duration::from_secs(20), |rung| *rung == before)
                .expect("no test panics with the lock");
            assert!(!timeout.timed_out(), "nobody rang");
        }
    }
}

#[test]
fn lines_come_as_they_are_typed_and_the_last_one_without_end_too() {
    let (to, from) = pipe();
    let source = Stdin::from_reader(from);
    let mut run = Run::start(&source, source.enumerate(4).unwrap());
    to.send(Ok(b"one\r\ntw".to_vec())).unwrap();
    assert_eq!(run.next().unwrap().0, ["one"]);
    to.send(Ok(b"o\nthree".to_vec())).unwrap();
    assert_eq!(run.next().unwrap().0, ["two"]);
    assert_eq!(run.reader.snapshot().unwrap(), [StdinSplit {}]);
    drop(to);
    let (records, status) = run.next().unwrap();
    assert_eq!(records, ["three"]);
    if status != SourceStatus::Finished {
        assert_eq!(run.next().unwrap(), (Vec::new(), SourceStatus::Finished));
    }
    assert_eq!(run.reader.snapshot().unwrap(), []);
}

#[test]
fn one_subtask_reads_and_the_others_are_finished() {
    let source = Stdin::from_reader(io::empty());
    let mut all = readers(&source, source.enumerate(3).unwrap(), 3).unwrap();
    assert_eq!(
        poll(&mut all[1], 10).unwrap(),
        (Vec::new(), SourceStatus::Finished)
    );
    assert_eq!(
        poll(&mut all[2], 10).unwrap(),
        (Vec::new(), SourceStatus::Finished)
    );
}

#[test]
fn a_restart_goes_on_with_the_lines_that_were_not_taken() {
    let (to, from) = pipe();
    let source = Stdin::from_reader(from);
    let mut run = Run::start(&source, source.enumerate(1).unwrap());
    to.send(Ok(b"1\n".to_vec())).unwrap();
    assert_eq!(run.next().unwrap().0, ["1"]);
    let splits = run.reader.snapshot().unwrap();
    drop(run);
    to.send(Ok(b"2\n".to_vec())).unwrap();
    let mut run = Run::start(&source, splits);
    assert_eq!(run.next().unwrap().0, ["2"]);
}

#[test]
fn a_reader_outlives_its_source() {
    let (to, from) = pipe();
    let source = Stdin::from_reader(from);
    let mut run = Run::start(&source, source.enumerate(1).unwrap());
    drop(source);
    to.send(Ok(b"1\n".to_vec())).unwrap();
    assert_eq!(run.next().unwrap().0, ["1"]);
}

#[test]
fn a_fast_stream_is_held_back_and_loses_nothing() {
    let line = "x".repeat(1000);
    let text: String = (0..5_000).map(|n| format!("{n} {line}\n")).collect();
    let source = Stdin::from_reader(io::Cursor::new(text));
    let mut run = Run::start(&source, source.enumerate(1).unwrap());
    let mut seen = 0;
    loop {
        let (records, status) = run.next().unwrap();
        for record in records {
            assert!(record.starts_with(&format!("{seen} ")), "{}", &record[..10]);
            seen += 1;
        }
        if status == SourceStatus::Finished {
            break;
        }
    }
    assert_eq!(seen, 5_000);
}

#[test]
fn a_broken_stream_fails_after_the_lines_before_it() {
    for (bytes, kind) in [
        (Err(io::Error::other("unplugged")), ErrorKind::Retryable),
        (Ok(b"\xff\n".to_vec()), ErrorKind::InvalidArgument),
    ] {
        let (to, from) = pipe();
        let source = Stdin::from_reader(from);
        let mut run = Run::start(&source, source.enumerate(1).unwrap());
        to.send(Ok(b"good\n".to_vec())).unwrap();
        assert_eq!(run.next().unwrap().0, ["good"]);
        to.send(bytes).unwrap();
        let error = run.next().unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
}
