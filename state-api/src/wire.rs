//! The primitives of the compact layout: varints, framed strings, checked reads.
//!
//! Every read checks the input first, so damaged bytes give a `Corrupt` error, never a panic, and no allocation
//! exceeds what the bytes that are there can fill.
use crate::{Error, Result};

/// Appends an unsigned LEB128 number: 7 bits a byte, low bits first.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends an unsigned LEB128 number of up to 128 bits.
pub fn put_varint128(out: &mut Vec<u8>, mut value: u128) {
    while value >= 0x80 {
        out.push((value as u8) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads a LEB128 number.
///
/// # Errors
/// `Corrupt` when the input ends early, the number exceeds 64 bits or is longer than it needs to be.
#[inline]
pub fn get_varint(input: &mut &[u8]) -> Result<u64> {
    if let [byte @ 0..=0x7f, rest @ ..] = *input {
        let value = u64::from(*byte);
        *input = rest;
        return Ok(value);
    }
    if let [low @ 0x80..=0xff, high @ 1..=0x7f, rest @ ..] = *input {
        let value = u64::from(*low & 0x7f) | u64::from(*high) << 7;
        *input = rest;
        return Ok(value);
    }
    let value = get_varint128(input)?;
    u64::try_from(value).map_err(|_| Error::corrupt("number exceeds 64 bits"))
}

/// Reads a LEB128 number of up to 128 bits.
///
/// # Errors
/// `Corrupt` when the input ends early, the number exceeds 128 bits or is longer than it needs to be.
pub fn get_varint128(input: &mut &[u8]) -> Result<u128> {
    let mut value = 0u128;
    let mut shift = 0u32;
    loop {
        let byte = get_u8(input)?;
        let bits = u128::from(byte & 0x7f);
        if shift > 126 || (shift == 126 && bits > 3) {
            return Err(Error::corrupt("number exceeds 128 bits"));
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            if byte == 0 && shift > 0 {
                return Err(Error::corrupt("number is longer than it needs to be"));
            }
            return Ok(value);
        }
        shift += 7;
    }
}

/// Reads one byte.
///
/// # Errors
/// `Corrupt` when the input is empty.
#[inline]
pub fn get_u8(input: &mut &[u8]) -> Result<u8> {
    match input.split_first() {
        Some((byte, rest)) => {
            *input = rest;
            Ok(*byte)
        }
        None => Err(ends_early(1, 0)),
    }
}

/// Takes the next `len` bytes.
///
/// # Errors
/// `Corrupt` when fewer are left.
#[inline]
pub fn take<'a>(input: &mut &'a [u8], len: usize) -> Result<&'a [u8]> {
    match input.split_at_checked(len) {
        Some((head, rest)) => {
            *input = rest;
            Ok(head)
        }
        None => Err(ends_early(len, input.len())),
    }
}

/// Takes the next `N` bytes as an array.
///
/// # Errors
/// `Corrupt` when fewer are left.
#[inline]
pub fn take_array<const N: usize>(input: &mut &[u8]) -> Result<[u8; N]> {
    match input.split_first_chunk::<N>() {
        Some((head, rest)) => {
            *input = rest;
            Ok(*head)
        }
        None => Err(ends_early(N, input.len())),
    }
}

/// Reads a length that counts bytes, or elements of at least one byte, that follow.
///
/// # Errors
/// `Corrupt` when it exceeds what is left of the input.
#[inline]
pub fn get_len(input: &mut &[u8]) -> Result<usize> {
    let len = get_varint(input)?;
    match usize::try_from(len) {
        Ok(len) if len <= input.len() => Ok(len),
        _ => Err(too_long(len, input.len())),
    }
}

/// Appends bytes behind their length.
#[inline]
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads bytes behind their length.
///
/// # Errors
/// `Corrupt` when the input ends early.
#[inline]
pub fn get_bytes<'a>(input: &mut &'a [u8]) -> Result<&'a [u8]> {
    let len = get_len(input)?;
    take(input, len)
}

/// Reads text behind its length.
///
/// # Errors
/// `Corrupt` when the input ends early or is not UTF-8.
#[inline]
pub fn get_str<'a>(input: &mut &'a [u8]) -> Result<&'a str> {
    std::str::from_utf8(get_bytes(input)?)
        .map_err(|e| Error::corrupt("text is not UTF-8").caused_by(e))
}

/// Checks that nothing is left after a value.
///
/// # Errors
/// `Corrupt` when bytes are left.
#[inline]
pub fn expect_end(input: &[u8]) -> Result<()> {
    if input.is_empty() {
        Ok(())
    } else {
        Err(Error::corrupt(format!(
            "{} bytes left after the value",
            input.len()
        )))
    }
}

/// Adds two fixed sizes; the sum is fixed when both are.
#[must_use]
pub const fn add_sizes(a: Option<usize>, b: Option<usize>) -> Option<usize> {
    match (a, b) {
        (Some(a), Some(b)) => a.checked_add(b),
        _ => None,
    }
}

/// Returns how many elements to reserve room for, given a length that may be a lie: no more bytes than the input has left.
pub(crate) fn reserve<T>(len: usize, input: &[u8]) -> usize {
    len.min(input.len() / size_of::<T>().max(1))
}

#[cold]
fn too_long(len: u64, left: usize) -> Error {
    Error::corrupt(format!("length {len} exceeds the {left} bytes left"))
}

#[cold]
fn ends_early(wanted: usize, left: usize) -> Error {
    Error::corrupt(format!(
        "input ends early: {wanted} bytes wanted, {left} left"
    ))
}
