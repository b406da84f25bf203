//! `Vec`, `VecDeque`, arrays; the layout of all sequences.
use std::collections::VecDeque;

use crate::hash::{hash_bytes, hash_encoded};
use crate::wire::{get_bytes, get_len, get_u8, put_bytes, put_varint, reserve, take_array};
use crate::{Error, OrderedKey, Result, Schema, StateKey, StateType, Value};

use super::text::{escape_ordered, unescape_ordered};

/// The byte that stands for an element whose encoding is empty, so that no length can exceed the bytes behind it.
pub(crate) const EMPTY_ELEMENT: u8 = 0;

const fn encodes_to_nothing<T: StateType>() -> bool {
    matches!(T::FIXED_SIZE, Some(0))
}

/// Appends an element of a sequence.
#[inline]
pub(super) fn put_element<T: StateType>(element: &T, out: &mut Vec<u8>) {
    if encodes_to_nothing::<T>() {
        out.push(EMPTY_ELEMENT);
    } else {
        element.encode(out);
    }
}

/// Reads an element of a sequence.
#[inline]
pub(super) fn get_element<T: StateType>(input: &mut &[u8]) -> Result<T> {
    if encodes_to_nothing::<T>() {
        expect_empty_element(input)?;
    }
    T::decode(input)
}

/// Reads the byte that stands for an element whose encoding is empty.
pub(crate) fn expect_empty_element(input: &mut &[u8]) -> Result<()> {
    match get_u8(input)? {
        EMPTY_ELEMENT => Ok(()),
        other => Err(Error::corrupt(format!(
            "byte {other} stands where an empty element was expected"
        ))),
    }
}

/// Appends a sequence: the number of elements, then each.
pub(super) fn put_sequence<'a, T: StateType>(
    items: impl ExactSizeIterator<Item = &'a T>,
    out: &mut Vec<u8>,
) {
    put_varint(out, items.len() as u64);
    for item in items {
        put_element(item, out);
    }
}

/// Appends a slice, byte strings in one go.
#[inline]
fn put_slice<T: StateType>(items: &[T], out: &mut Vec<u8>) {
    match T::slice_bytes(items) {
        Some(bytes) => put_bytes(out, bytes),
        None if encodes_to_nothing::<T>() => put_sequence(items.iter(), out),
        None => {
            put_varint(out, items.len() as u64);
            T::encode_slice(items, out);
        }
    }
}

fn get_vec<T: StateType>(input: &mut &[u8]) -> Result<Vec<T>> {
    if T::IS_BYTE {
        let bytes = get_bytes(input)?;
        return T::vec_from_bytes(bytes).ok_or_else(not_a_byte);
    }
    let len = get_len(input)?;
    let mut items = Vec::with_capacity(reserve::<T>(len, input));
    for _ in 0..len {
        items.push(get_element(input)?);
    }
    Ok(items)
}

/// Returns the schema of a list.
fn list_schema<T: StateType>() -> Schema {
    if T::IS_BYTE {
        Schema::Bytes
    } else {
        Schema::List(Box::new(T::schema()))
    }
}

fn slice_to_value<T: StateType>(items: &[T]) -> Value {
    match T::slice_bytes(items) {
        Some(bytes) => Value::Bytes(bytes.to_vec()),
        None => Value::List(items.iter().map(T::to_value).collect()),
    }
}

fn vec_from_value<T: StateType>(value: Value, schema: impl FnOnce() -> Schema) -> Result<Vec<T>> {
    match value {
        Value::List(items) => items.into_iter().map(T::from_value).collect(),
        Value::Bytes(bytes) => match T::vec_from_bytes(&bytes) {
            Some(items) => Ok(items),
            // A list of bytes whose elements have become wider numbers.
            None => bytes
                .into_iter()
                .map(|byte| T::from_value(Value::UInt(byte.into())))
                .collect(),
        },
        other => Err(other.mismatch(&schema())),
    }
}

#[cold]
fn not_a_byte() -> Error {
    Error::bug("a type says that it is a byte and takes no bytes")
}

/// Sums the heap memory of elements.
pub(super) fn heap_of<'a, T: StateType>(items: impl Iterator<Item = &'a T>) -> usize {
    if T::HAS_HEAP {
        items.map(T::heap_size).sum()
    } else {
        0
    }
}

impl<T: StateType> StateType for Vec<T> {
    const FIXED_SIZE: Option<usize> = None;
    const HAS_HEAP: bool = true;

    fn schema() -> Schema {
        list_schema::<T>()
    }

    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        put_slice(self, out);
    }

    #[inline]
    fn decode(input: &mut &[u8]) -> Result<Self> {
        get_vec(input)
    }

    fn to_value(&self) -> Value {
        slice_to_value(self)
    }

    fn from_value(value: Value) -> Result<Self> {
        vec_from_value(value, Self::schema)
    }

    fn heap_size(&self) -> usize {
        self.capacity() * size_of::<T>() + heap_of(self.iter())
    }

    #[inline]
    fn touch(&self) -> u8 {
        self.first().map_or(0, T::touch)
    }
}

impl<T: StateKey> StateKey for Vec<T> {
    type Stored = Self;

    #[inline]
    fn stable_hash(&self) -> u64 {
        match T::slice_bytes(self) {
            Some(bytes) => hash_bytes(bytes),
            None => hash_encoded(self),
        }
    }
}

impl<T: OrderedKey> OrderedKey for Vec<T> {
    fn encode_ordered(&self, out: &mut Vec<u8>) {
        if let Some(bytes) = T::slice_bytes(self) {
            return escape_ordered(bytes, out);
        }
        // A sequence that goes on is greater than one that ends.
        for item in self {
            out.push(1);
            item.encode_ordered(out);
        }
        out.push(0);
    }

    fn decode_ordered(input: &mut &[u8]) -> Result<Self> {
        if T::IS_BYTE {
            return T::vec_from_bytes(&unescape_ordered(input)?).ok_or_else(not_a_byte);
        }
        let mut items = Vec::new();
        while super::scalar::get_flag(input)? {
            items.push(T::decode_ordered(input)?);
        }
        Ok(items)
    }
}

impl<T: StateType> StateType for VecDeque<T> {
    const FIXED_SIZE: Option<usize> = None;
    const HAS_HEAP: bool = true;

    fn schema() -> Schema {
        list_schema::<T>()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_sequence(self.iter(), out);
    }

    fn decode(input: &mut &[u8]) -> Result<Self> {
        Ok(get_vec(input)?.into())
    }

    fn to_value(&self) -> Value {
        if T::IS_BYTE {
            let items: Vec<T> = self.iter().cloned().collect();
            return slice_to_value(&items);
        }
        Value::List(self.iter().map(T::to_value).collect())
    }

    fn from_value(value: Value) -> Result<Self> {
        Ok(vec_from_value(value, Self::schema)?.into())
    }

    fn heap_size(&self) -> usize {
        self.capacity() * size_of::<T>() + heap_of(self.iter())
    }
}

impl<T: StateType, const N: usize> StateType for [T; N] {
    const FIXED_SIZE: Option<usize> = match T::FIXED_SIZE {
        Some(size) => size.checked_mul(N),
        None if N == 0 => Some(0),
        None => None,
    };
    const HAS_HEAP: bool = T::HAS_HEAP;
    const IN_PLACE: bool = T::IN_PLACE;

    #[inline]
    fn put_in_place(&self, place: &mut [u8]) {
        let size = T::FIXED_SIZE.unwrap_or(0).max(1);
        for (item, place) in self.iter().zip(place.chunks_exact_mut(size)) {
            item.put_in_place(place);
        }
    }

    fn schema() -> Schema {
        Schema::Array(Box::new(T::schema()), u32::try_from(N).unwrap_or(u32::MAX))
    }

    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        match T::slice_bytes(self) {
            Some(bytes) => out.extend_from_slice(bytes),
            None => T::encode_slice(self, out),
        }
    }

    #[inline]
    fn decode(input: &mut &[u8]) -> Result<Self> {
        if T::IS_BYTE {
            return T::array_from_bytes(take_array::<N>(input)?).ok_or_else(not_a_byte);
        }
        T::decode_array(input)
    }

    fn to_value(&self) -> Value {
        slice_to_value(self)
    }

    fn from_value(value: Value) -> Result<Self> {
        let items: Vec<T> = vec_from_value(value, Self::schema)?;
        Self::try_from(items).map_err(|items| {
            Error::incompatible(format!(
                "{} elements can't fill an array of {N}",
                items.len()
            ))
        })
    }

    fn heap_size(&self) -> usize {
        heap_of(self.iter())
    }

    #[inline]
    fn touch(&self) -> u8 {
        // One element of each cache line, up to a kilobyte.
        let step = (64 / size_of::<T>().max(1)).max(1);
        let touched = self.iter().step_by(step).take(16);
        touched.fold(0, |bytes, item| bytes ^ item.touch())
    }
}

/// Builds an array of elements that may fail, without a detour over the heap.
pub(crate) fn try_array<T, const N: usize>(mut next: impl FnMut() -> Result<T>) -> Result<[T; N]> {
    let mut failure = None;
    let slots: [Option<T>; N] = std::array::from_fn(|_| {
        if failure.is_some() {
            return None;
        }
        next().map_err(|e| failure = Some(e)).ok()
    });
    match failure {
        Some(error) => Err(error),
        None => Ok(slots.map(|slot| slot.expect("every slot is filled unless one failed"))),
    }
}

impl<T: StateKey, const N: usize> StateKey for [T; N] {
    type Stored = Self;
}

impl<T: OrderedKey, const N: usize> OrderedKey for [T; N] {
    fn encode_ordered(&self, out: &mut Vec<u8>) {
        match T::slice_bytes(self) {
            Some(bytes) => out.extend_from_slice(bytes),
            None => self.iter().for_each(|item| item.encode_ordered(out)),
        }
    }

    fn decode_ordered(input: &mut &[u8]) -> Result<Self> {
        if T::IS_BYTE {
            return T::array_from_bytes(take_array::<N>(input)?).ok_or_else(not_a_byte);
        }
        try_array(|| T::decode_ordered(input))
    }
}
