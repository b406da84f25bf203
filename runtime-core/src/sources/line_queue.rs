use std::collections::VecDeque;
use std::io::Read;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;

use state_api::{Error, ErrorKind, Result};

use super::line_buffer::{Found, LineBuffer};

/// Bytes of lines that wait to be taken; one line more may come on top.
const CAPACITY: usize = 1 << 20;

/// Lines between the thread that reads a stream, which may wait for long, and the subtask that takes them, which may not.
pub(super) struct LineQueue {
    state: Mutex<State>,
    /// Signalled when there is room, and when nobody wants lines any more.
    room: Condvar,
}

#[derive(Default)]
struct State {
    lines: VecDeque<String>,
    bytes: usize,
    ended: bool,
    failed: Option<Failure>,
    /// The owner is gone: the thread ends as soon as its read returns.
    abandoned: bool,
    waker: Option<Waker>,
}

/// Why no more lines come, kept to be told again after a restart.
type Failure = (ErrorKind, String);

/// What [`LineQueue::take`] gives.
pub(super) enum Taken {
    Line(String),
    Nothing,
    End,
}

impl LineQueue {
    /// Starts a thread that reads a stream to its end. The thread lives as long as the queue, or until its last read returns.
    pub(super) fn start(from: Box<dyn Read + Send>, longest: usize) -> Result<Arc<Self>> {
        let queue = Arc::new(Self {
            state: Mutex::default(),
            room: Condvar::new(),
        });
        let weak = Arc::downgrade(&queue);
        std::thread::Builder::new()
            .name("lines".to_owned())
            .spawn(move || pump(&weak, from, longest))
            .map_err(|e| {
                Error::retryable("can't start the thread that reads lines").caused_by(e)
            })?;
        Ok(queue)
    }

    /// Says whom to wake when a line or the end comes.
    pub(super) fn wake(&self, waker: Waker) {
        self.lock().waker = Some(waker);
    }

    /// Takes the next line without waiting.
    ///
    /// # Errors
    /// `Retryable` when the stream failed, `InvalidArgument` or `LimitExceeded` when a line can't be taken; after the lines before it.
    pub(super) fn take(&self) -> Result<Taken> {
        let mut state = self.lock();
        if let Some(line) = state.lines.pop_front() {
            state.bytes -= cost(&line);
            if state.bytes < CAPACITY {
                self.room.notify_one();
            }
            return Ok(Taken::Line(line));
        }
        match &state.failed {
            Some((kind, why)) => Err(Error::new(*kind, why.clone())),
            None if state.ended => Ok(Taken::End),
            None => Ok(Taken::Nothing),
        }
    }

    /// Lets the thread end.
    pub(super) fn abandon(&self) {
        self.lock().abandoned = true;
        self.room.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds lines when there is room; false when nobody wants them any more.
    fn push(&self, lines: &mut Vec<String>) -> bool {
        let mut state = self.lock();
        while state.bytes >= CAPACITY && !state.abandoned {
            state = self
                .room
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.bytes += lines.iter().map(cost).sum::<usize>();
        state.lines.extend(lines.drain(..));
        wake(&mut state);
        !state.abandoned
    }

    fn end(&self, failed: Option<Failure>) {
        let mut state = self.lock();
        state.ended = true;
        state.failed = failed;
        wake(&mut state);
    }
}

/// Counts the bytes of a line with those of its place in the queue, so that empty lines fill it too.
#[expect(clippy::ptr_arg, reason = "passed to an iterator of strings")]
fn cost(line: &String) -> usize {
    line.len() + size_of::<String>()
}

fn wake(state: &mut State) {
    if let Some(waker) = &state.waker {
        waker.wake_by_ref();
    }
}

fn pump(queue: &Weak<LineQueue>, mut from: Box<dyn Read + Send>, longest: usize) {
    let mut buffer = LineBuffer::new(longest);
    let mut at_end = false;
    let mut lines = Vec::new();
    let failed = loop {
        match buffer.next_line(at_end) {
            Found::Line(place, _) => match std::str::from_utf8(buffer.line(place)) {
                Ok(text) => lines.push(text.to_owned()),
                Err(e) => {
                    break Some((
                        ErrorKind::InvalidArgument,
                        format!("a line of the input is not UTF-8 text: {e}"),
                    ));
                }
            },
            Found::TooLong => {
                break Some((
                    ErrorKind::LimitExceeded,
                    format!("a line is longer than {longest} bytes"),
                ));
            }
            Found::Nothing if at_end => break None,
            Found::Nothing => {
                let Some(queue) = queue.upgrade() else { return };
                if !queue.push(&mut lines) {
                    return;
                }
                // Not held during the read, which may take for ever.
                drop(queue);
                match buffer.fill(&mut from, u64::MAX) {
                    Ok(read) => at_end = read == 0,
                    Err(e) => {
                        break Some((
                            ErrorKind::Retryable,
                            format!("the input can't be read: {e}"),
                        ));
                    }
                }
            }
        }
    };
    if let Some(queue) = queue.upgrade() {
        queue.push(&mut lines);
        queue.end(failed);
    }
}
