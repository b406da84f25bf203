use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};

use state_api::{Error, Result, StateType};

use super::line_queue::{LineQueue, Taken};
use crate::source::{Source, SourceContext, SourceOutput, SourceReader, SourceStatus};

/// Lines longer than this fail the job, in bytes.
const LONGEST: usize = 16 << 20;

/// Reads lines of the standard input, at one subtask.
///
/// **Not replayable:** what was read before a failure does not come again. A restart within the process goes on with the next line,
/// so records since the last checkpoint are lost; for exactly-once results put the input into a file first.
#[derive(Clone)]
pub struct Stdin {
    stream: Arc<Mutex<Stream>>,
}

enum Stream {
    Unread(Box<dyn Read + Send>),
    Started(Arc<OwnedQueue>),
    /// The thread could not be started, and took the stream with it.
    Lost,
}

/// The one part of the standard input; it has no position.
#[derive(Clone, Debug, PartialEq, Eq, StateType)]
pub struct StdinSplit {}

impl Stdin {
    /// Creates a source over the process's standard input; nothing is read yet.
    #[must_use]
    pub fn new() -> Self {
        Self::from_reader(std::io::stdin())
    }

    /// Creates a source over any other stream that can be read once, such as a pipe.
    #[must_use]
    pub fn from_reader(stream: impl Read + Send + 'static) -> Self {
        Self {
            stream: Arc::new(Mutex::new(Stream::Unread(Box::new(stream)))),
        }
    }

    /// Returns the queue of lines; the same one after a restart, so that lines that were read but not taken are kept.
    fn queue(&self) -> Result<Arc<OwnedQueue>> {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        if let Stream::Unread(_) = &*stream
            && let Stream::Unread(unread) = std::mem::replace(&mut *stream, Stream::Lost)
        {
            *stream = Stream::Started(Arc::new(OwnedQueue(LineQueue::start(unread, LONGEST)?)));
        }
        match &*stream {
            Stream::Started(queue) => Ok(Arc::clone(queue)),
            _ => Err(Error::poisoned(
                "the input was lost when its thread could not be started",
            )),
        }
    }
}

impl Default for Stdin {
    fn default() -> Self {
        Self::new()
    }
}

impl Source for Stdin {
    type Out = String;
    type Split = StdinSplit;
    type Reader = StdinReader;

    fn enumerate(&self, _: u32) -> Result<Vec<StdinSplit>> {
        Ok(vec![StdinSplit {}])
    }

    fn reader(&self, cx: &SourceContext, splits: Vec<StdinSplit>) -> Result<StdinReader> {
        if splits.is_empty() {
            return Ok(StdinReader { queue: None });
        }
        let queue = self.queue()?;
        queue.0.wake(cx.waker.clone());
        Ok(StdinReader { queue: Some(queue) })
    }

    fn describe(&self, _: &StdinSplit) -> String {
        "standard input (not replayable)".to_owned()
    }
}

impl std::fmt::Debug for Stdin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stdin").finish_non_exhaustive()
    }
}

/// The hold that the source and its readers have on the queue: when the last one goes, nobody wants lines any more.
struct OwnedQueue(Arc<LineQueue>);

impl Drop for OwnedQueue {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// Takes the lines that a thread reads; the other subtasks have nothing to do.
pub struct StdinReader {
    /// `None` at the other subtasks and after the end.
    queue: Option<Arc<OwnedQueue>>,
}

impl SourceReader for StdinReader {
    type Out = String;
    type Split = StdinSplit;

    fn poll(&mut self, out: &mut SourceOutput<'_, String>) -> Result<SourceStatus> {
        while !out.is_full() {
            let Some(queue) = &self.queue else {
                return Ok(SourceStatus::Finished);
            };
            match queue.0.take()? {
                Taken::Line(line) => out.emit(line)?,
                Taken::Nothing => {
                    return Ok(SourceStatus::Waiting {
                        wake_at_ms: None,
                        idle: true,
                    });
                }
                Taken::End => self.queue = None,
            }
        }
        Ok(SourceStatus::More)
    }

    fn snapshot(&mut self) -> Result<Vec<StdinSplit>> {
        Ok(self.queue.iter().map(|_| StdinSplit {}).collect())
    }
}

impl std::fmt::Debug for StdinReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StdinReader")
            .field("reads", &self.queue.is_some())
            .finish()
    }
}
