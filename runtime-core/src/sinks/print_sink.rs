use std::fmt::Display;
use std::io::{ErrorKind as IoKind, Write};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use state_api::{Error, Result};

use super::part_file::PartFile;
use crate::Record;
use crate::sink::{Sink, SinkContext, SinkWriter};

/// Writes each record as a line of text to a writer that is passed in, such as the standard output.
///
/// Lines of several subtasks are mixed, but never within a line. After a failure records may be written twice.
pub struct PrintSink<T, W> {
    to: Arc<Mutex<W>>,
    records: PhantomData<fn(T)>,
}

impl<T: Record + Display, W: Write + Send + 'static> PrintSink<T, W> {
    /// Creates a sink over a writer.
    #[must_use]
    pub fn new(to: W) -> Self {
        Self::shared(Arc::new(Mutex::new(to)))
    }

    /// Creates a sink over a writer that the program keeps using.
    #[must_use]
    pub fn shared(to: Arc<Mutex<W>>) -> Self {
        Self {
            to,
            records: PhantomData,
        }
    }
}

impl<T: Record + Display, W: Write + Send + 'static> Sink for PrintSink<T, W> {
    type In = T;
    type Writer = PrintWriter<T, W>;

    fn writer(&self, _: &SinkContext) -> Result<PrintWriter<T, W>> {
        Ok(PrintWriter {
            part: PartFile::new(Locked(Arc::clone(&self.to))),
            records: PhantomData,
        })
    }
}

impl<T, W> Clone for PrintSink<T, W> {
    fn clone(&self) -> Self {
        Self {
            to: Arc::clone(&self.to),
            records: PhantomData,
        }
    }
}

impl<T, W> std::fmt::Debug for PrintSink<T, W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PrintSink").finish_non_exhaustive()
    }
}

/// Takes the lock for whole buffers, which hold whole lines.
struct Locked<W>(Arc<Mutex<W>>);

impl<W: Write> Write for Locked<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut to = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        to.write_all(bytes)?;
        to.flush()?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Writes the records of one subtask.
pub struct PrintWriter<T, W> {
    part: PartFile<Locked<W>>,
    records: PhantomData<fn(T)>,
}

impl<T: Display + 'static, W: Write + 'static> SinkWriter for PrintWriter<T, W> {
    type In = T;

    fn write(&mut self, record: T, _: Option<i64>) -> Result<()> {
        self.part
            .append(|line| writeln!(line, "{record}"))
            .map_err(failed)
    }

    fn flush(&mut self) -> Result<()> {
        self.part.flush().map_err(failed)
    }
}

fn failed(cause: std::io::Error) -> Error {
    let error = match cause.kind() {
        // Whoever read the lines has gone; they won't come back.
        IoKind::BrokenPipe => Error::cancelled("the output is closed"),
        _ => Error::retryable("the output can't be written"),
    };
    error.caused_by(cause)
}

impl<T, W> std::fmt::Debug for PrintWriter<T, W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PrintWriter").finish_non_exhaustive()
    }
}
