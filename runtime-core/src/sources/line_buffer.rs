use std::io::{self, Read};

/// Bytes that are asked for at a time.
const CHUNK: usize = 128 * 1024;

/// What [`LineBuffer::next_line`] found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A line, in the buffer at these places; the number of bytes it takes with its end.
    Line(std::ops::Range<usize>, usize),
    /// No whole line: call [`LineBuffer::fill`].
    Nothing,
    /// A line longer than the limit.
    TooLong,
}

/// Cuts a stream of bytes into lines, holding at most a chunk and one line.
pub(super) struct LineBuffer {
    bytes: Vec<u8>,
    /// First byte that is not taken yet.
    low: usize,
    /// Behind the last byte that was read.
    high: usize,
    /// Bytes before this place hold no end of line.
    searched: usize,
    longest: usize,
}

impl LineBuffer {
    /// Creates a buffer that takes lines of at most `longest` bytes.
    pub(super) fn new(longest: usize) -> Self {
        Self {
            bytes: Vec::new(),
            low: 0,
            high: 0,
            searched: 0,
            longest,
        }
    }

    /// Returns the bytes of a line that was found.
    pub(super) fn line(&self, place: std::ops::Range<usize>) -> &[u8] {
        self.bytes.get(place).unwrap_or_default()
    }

    /// Takes the next line; at the end of the stream also one without an end.
    #[inline]
    pub(super) fn next_line(&mut self, at_end: bool) -> Found {
        let unread = self.bytes.get(self.searched..self.high).unwrap_or_default();
        let (content, next) = match memchr::memchr(b'\n', unread) {
            Some(end) => (self.searched + end, self.searched + end + 1),
            None if at_end && self.low < self.high => (self.high, self.high),
            None => {
                self.searched = self.high;
                return if self.high - self.low > self.longest {
                    Found::TooLong
                } else {
                    Found::Nothing
                };
            }
        };
        if content - self.low > self.longest {
            return Found::TooLong;
        }
        let mut end = content;
        if end > self.low && self.bytes.get(end - 1) == Some(&b'\r') {
            end -= 1;
        }
        let taken = next - self.low;
        let place = self.low..end;
        self.low = next;
        self.searched = next;
        Found::Line(place, taken)
    }

    /// Reads once, at most `limit` bytes; returns how many came, 0 at the end.
    pub(super) fn fill(&mut self, from: &mut impl Read, limit: u64) -> io::Result<usize> {
        if self.low > 0 {
            self.bytes.copy_within(self.low..self.high, 0);
            self.high -= self.low;
            self.searched -= self.low;
            self.low = 0;
        }
        let room = usize::try_from(limit).unwrap_or(CHUNK).min(CHUNK);
        if self.bytes.len() < self.high + room {
            self.bytes.resize(self.high + room, 0);
        }
        let target = self
            .bytes
            .get_mut(self.high..self.high + room)
            .unwrap_or_default();
        loop {
            match from.read(target) {
                Ok(read) => {
                    self.high += read;
                    return Ok(read);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands out a few bytes at a time, to put ends of lines on both sides of every seam.
    struct Trickle<'a>(&'a [u8], usize);

    impl Read for Trickle<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let take = self.1.min(self.0.len()).min(into.len());
            into[..take].copy_from_slice(&self.0[..take]);
            self.0 = &self.0[take..];
            Ok(take)
        }
    }

    fn lines(text: &[u8], step: usize) -> Vec<(Vec<u8>, usize)> {
        let mut from = Trickle(text, step);
        let mut buffer = LineBuffer::new(100);
        let mut lines = Vec::new();
        let mut at_end = false;
        loop {
            match buffer.next_line(at_end) {
                Found::Line(place, taken) => lines.push((buffer.line(place).to_vec(), taken)),
                Found::Nothing if at_end => return lines,
                Found::Nothing => at_end = buffer.fill(&mut from, u64::MAX).unwrap() == 0,
                Found::TooLong => panic!("no line is that long"),
            }
        }
    }

    #[test]
    fn lines_come_out_the_same_however_the_bytes_come_in() {
        let text = b"one\r\n\ntwo\n\rthree\r\rx\r\nlast\r";
        let expected = [
            (b"one".to_vec(), 5),
            (Vec::new(), 1),
            (b"two".to_vec(), 4),
            (b"\rthree\r\rx".to_vec(), 11),
            (b"last".to_vec(), 5),
        ];
        for step in 1..=text.len() {
            assert_eq!(lines(text, step), expected, "step {step}");
        }
    }

    #[test]
    fn a_line_past_the_limit_is_found_with_and_without_its_end() {
        for (text, at_end) in [
            (&b"abcde\n"[..], false),
            (b"abcde", false),
            (b"abcde", true),
        ] {
            let mut buffer = LineBuffer::new(4);
            buffer.fill(&mut &text[..], 100).unwrap();
            assert_eq!(buffer.next_line(at_end), Found::TooLong);
        }
        let mut buffer = LineBuffer::new(5);
        buffer.fill(&mut &b"abcde\n"[..], 100).unwrap();
        assert_eq!(buffer.next_line(false), Found::Line(0..5, 6));
    }
}
