use state_api::wire::{get_bytes, put_bytes, put_varint, take_array};
use state_api::{CodecKind, Result, StateType};

/// Appends a list element: its length, a timestamp if the state has a time-to-live, its bytes.
#[inline]
pub fn put_element<T: StateType>(
    codec: CodecKind,
    timestamp_ms: Option<i64>,
    element: &T,
    out: &mut Vec<u8>,
) {
    // The length is written before the element is: one byte is right unless the element turns out longer.
    let at = out.len();
    out.push(0);
    if let Some(ms) = timestamp_ms {
        out.extend_from_slice(&ms.to_le_bytes());
    }
    codec.encode(element, out);
    patch_length(out, at, 1);
}

/// Appends a list element that is encoded already, without its timestamp.
#[inline]
pub fn put_encoded_element(timestamp_ms: Option<i64>, element: &[u8], out: &mut Vec<u8>) {
    match timestamp_ms {
        None => put_bytes(out, element),
        Some(ms) => {
            put_varint(out, element.len() as u64 + 8);
            out.extend_from_slice(&ms.to_le_bytes());
            out.extend_from_slice(element);
        }
    }
}

/// Puts the length of what follows `reserved` bytes at `at` into them, moving what follows if it takes more or fewer.
/// Returns how many it takes: a good guess for the next one.
#[inline]
pub(super) fn patch_length(out: &mut Vec<u8>, at: usize, reserved: usize) -> usize {
    let len = out.len() - at - reserved;
    if reserved == 1 && len < 0x80 {
        out[at] = len as u8;
        return 1;
    }
    if reserved == 2 && (0x80..0x4000).contains(&len) {
        out[at] = len as u8 | 0x80;
        out[at + 1] = (len >> 7) as u8;
        return 2;
    }
    resize_length(out, at, reserved, len)
}

#[inline(never)]
fn resize_length(out: &mut Vec<u8>, at: usize, reserved: usize, len: usize) -> usize {
    let mut varint = Vec::with_capacity(10);
    put_varint(&mut varint, len as u64);
    let start = at + reserved;
    if varint.len() > reserved {
        out.resize(out.len() + varint.len() - reserved, 0);
    }
    out.copy_within(start..start + len, at + varint.len());
    out.truncate(at + varint.len() + len);
    out[at..at + varint.len()].copy_from_slice(&varint);
    varint.len()
}

/// Splits the timestamp from a stored value of a state with time-to-live.
///
/// # Errors
/// `Corrupt` when the value is shorter than a timestamp.
#[inline]
pub fn split_timestamp(mut stored: &[u8]) -> Result<(i64, &[u8])> {
    let ms = i64::from_le_bytes(take_array(&mut stored)?);
    Ok((ms, stored))
}

/// The elements of a stored list, each with its timestamp if it has one.
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    rest: &'a [u8],
    timestamped: bool,
}

impl<'a> Elements<'a> {
    /// Reads a stored list; `timestamped` if its state has a time-to-live.
    #[must_use]
    pub fn new(stored: &'a [u8], timestamped: bool) -> Self {
        Self {
            rest: stored,
            timestamped,
        }
    }

    /// Returns the bytes behind the elements read so far.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns the next element's timestamp (0 if it has none) and bytes.
    ///
    /// # Errors
    /// `Corrupt` when the list ends early.
    #[inline]
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator of results would have to end after an error"
    )]
    pub fn next(&mut self) -> Result<Option<(i64, &'a [u8])>> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let element = get_bytes(&mut self.rest)?;
        if self.timestamped {
            return split_timestamp(element).map(Some);
        }
        Ok(Some((0, element)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k_057_elements_of_any_length_and_content_come_back() {
        let texts: Vec<String> = [0usize, 1, 118, 119, 127, 128, 300, 20_000]
            .map(|n| ",".repeat(n))
            .into();
        for timestamp in [None, Some(-5)] {
            let mut stored = Vec::new();
            let mut encoded_too = Vec::new();
            for text in &texts {
                put_element(CodecKind::Compact, timestamp, text, &mut stored);
                let mut encoded = Vec::new();
                text.encode(&mut encoded);
                put_encoded_element(timestamp, &encoded, &mut encoded_too);
            }
            assert_eq!(stored, encoded_too);
            let mut elements = Elements::new(&stored, timestamp.is_some());
            for text in &texts {
                let (ms, mut bytes) = elements.next().unwrap().unwrap();
                assert_eq!(ms, timestamp.unwrap_or(0));
                assert_eq!(&String::decode(&mut bytes).unwrap(), text);
            }
            assert_eq!(elements.next().unwrap(), None);
        }
    }

    #[test]
    fn a_torn_list_is_an_error() {
        let mut stored = Vec::new();
        put_encoded_element(Some(1), b"abc", &mut stored);
        for cut in 1..stored.len() {
            assert!(Elements::new(&stored[..cut], true).next().is_err());
        }
        assert!(Elements::new(&[3, 1, 2, 3], true).next().is_err());
    }
}
