use std::io::{self, Write};

/// Bytes that are gathered before they are written.
const BUFFER: usize = 128 * 1024;

/// Gathers bytes for a target and survives failed writes: what was taken once is written once, however often it fails in between.
#[derive(Debug)]
pub(super) struct PartFile<W> {
    target: W,
    buffer: Vec<u8>,
    written: u64,
}

impl<W: Write> PartFile<W> {
    pub(super) fn new(target: W) -> Self {
        Self {
            target,
            buffer: Vec::new(),
            written: 0,
        }
    }

    /// Appends what a function writes; nothing of it if it fails.
    pub(super) fn append<E: From<io::Error>>(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let before = self.buffer.len();
        if let Err(e) = write(&mut self.buffer) {
            self.buffer.truncate(before);
            return Err(e);
        }
        if self.buffer.len() >= BUFFER {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes what is gathered. After an error the rest is still there, to be written by the next call.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let mut done = 0;
        let result = loop {
            let left = self.buffer.get(done..).unwrap_or_default();
            if left.is_empty() {
                break Ok(());
            }
            match self.target.write(left) {
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => done += written,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => break Err(e),
            }
        };
        self.written += done as u64;
        self.buffer.drain(..done);
        result
    }

    /// Returns whether nothing was appended yet.
    pub(super) fn is_empty(&self) -> bool {
        self.written == 0 && self.buffer.is_empty()
    }

    /// Returns the number of bytes written to the target.
    pub(super) fn written(&self) -> u64 {
        self.written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes a few bytes at a time and fails when it is told to.
    #[derive(Default)]
    struct Fickle {
        taken: Vec<u8>,
        room: usize,
    }

    impl Write for Fickle {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.room == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let take = bytes.len().min(3).min(self.room);
            self.room -= take;
            self.taken.extend_from_slice(&bytes[..take]);
            Ok(take)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn put(part: &mut PartFile<Fickle>, bytes: &[u8]) -> io::Result<()> {
        part.append(|buffer| {
            buffer.extend_from_slice(bytes);
            Ok(())
        })
    }

    #[test]
    fn a_full_disk_loses_nothing_and_repeats_nothing() {
        let mut part = PartFile::new(Fickle {
            room: 4,
            ..Fickle::default()
        });
        put(&mut part, b"hello ").unwrap();
        assert_eq!(part.flush().unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(part.written(), 4);
        put(&mut part, b"world").unwrap();
        part.target.room = 100;
        part.flush().unwrap();
        assert_eq!(part.target.taken, b"hello world");
        assert_eq!(part.written(), 11);
    }

    #[test]
    fn a_record_that_can_not_be_formatted_leaves_nothing_behind() {
        let mut part = PartFile::new(Fickle {
            room: 100,
            ..Fickle::default()
        });
        put(&mut part, b"good").unwrap();
        let failed = part.append(|buffer| {
            buffer.extend_from_slice(b"half a rec");
            Err(io::Error::other("no"))
        });
        assert!(failed.is_err());
        part.flush().unwrap();
        assert_eq!(part.target.taken, b"good");
    }

    #[test]
    fn a_full_buffer_is_written_and_its_failure_is_told() {
        let mut part = PartFile::new(Fickle::default());
        let error = put(&mut part, &[b'x'; BUFFER]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        part.target.room = usize::MAX;
        part.flush().unwrap();
        assert_eq!(part.written(), BUFFER as u64);
    }
}
