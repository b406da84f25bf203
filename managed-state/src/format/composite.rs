use state_api::{Error, KeyGroup, Result, Schema, StateKey, Value};

/// How key, namespace and map key of a state stand in one string of bytes.
///
/// `key ‖ namespace ‖ map key`, each in its compact encoding. If both key and namespace vary in length, each of the two is
/// followed by its length in bytes, low byte first, in as few bytes as it takes: no two pairs give the same bytes.
/// (Flink's `CompositeKeySerializationUtils`.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompositeLayout {
    marks_lengths: bool,
}

impl CompositeLayout {
    /// Returns the layout for a key and a namespace type.
    #[must_use]
    pub const fn of<K: StateKey, N: StateKey>() -> Self {
        Self::for_sizes(K::FIXED_SIZE, N::FIXED_SIZE)
    }

    /// Returns the layout for the fixed encoded sizes of key and namespace; `None` where the size varies.
    #[must_use]
    pub const fn for_sizes(key: Option<usize>, namespace: Option<usize>) -> Self {
        Self {
            marks_lengths: key.is_none() && namespace.is_none(),
        }
    }

    /// Says whether key and namespace are followed by their lengths.
    #[must_use]
    pub const fn marks_lengths(self) -> bool {
        self.marks_lengths
    }

    /// Appends key and namespace.
    #[inline]
    pub fn put<K: StateKey, N: StateKey>(self, key: &K, namespace: &N, out: &mut Vec<u8>) {
        let start = out.len();
        key.encode(out);
        self.put_mark(out.len() - start, out);
        self.put_namespace(namespace, out);
    }

    /// Appends a key that is encoded already, and a namespace.
    #[inline]
    pub fn put_encoded_key<N: StateKey>(self, key: &[u8], namespace: &N, out: &mut Vec<u8>) {
        out.extend_from_slice(key);
        self.put_mark(key.len(), out);
        self.put_namespace(namespace, out);
    }

    #[inline]
    fn put_namespace<N: StateKey>(self, namespace: &N, out: &mut Vec<u8>) {
        let start = out.len();
        namespace.encode(out);
        self.put_mark(out.len() - start, out);
    }

    #[inline]
    fn put_mark(self, mut len: usize, out: &mut Vec<u8>) {
        if self.marks_lengths {
            loop {
                out.push(len as u8);
                len >>= 8;
                if len == 0 {
                    break;
                }
            }
        }
    }

    /// Reads key and namespace and advances the input to the map key, or to the end.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are not what [`put`](Self::put) wrote.
    #[inline]
    pub fn take<K: StateKey, N: StateKey>(self, input: &mut &[u8]) -> Result<(K, N)> {
        Ok((self.take_part(input)?, self.take_part(input)?))
    }

    /// Reads a key or a namespace with its length mark, if it has one.
    #[inline]
    pub(crate) fn take_part<T: StateKey>(self, input: &mut &[u8]) -> Result<T> {
        let before = input.len();
        let part = T::decode(input)?;
        if self.marks_lengths {
            take_mark(before - input.len(), input)?;
        }
        Ok(part)
    }

    /// Reads a key or a namespace of which only the schema is known: its value, and its encoding without the length mark.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are not what [`put`](Self::put) wrote.
    pub fn take_value<'a>(
        self,
        schema: &Schema,
        input: &mut &'a [u8],
    ) -> Result<(Value, &'a [u8])> {
        let before = *input;
        let value = schema.decode_compact(input)?;
        let len = before.len() - input.len();
        if self.marks_lengths {
            take_mark(len, input)?;
        }
        Ok((value, &before[..len]))
    }

    /// Appends a key and a namespace that are encoded already.
    pub fn put_encoded(self, key: &[u8], namespace: &[u8], out: &mut Vec<u8>) {
        for part in [key, namespace] {
            out.extend_from_slice(part);
            self.put_mark(part.len(), out);
        }
    }

    /// Skips a key or a namespace of which only the schema is known.
    pub(crate) fn skip_part(self, schema: &Schema, input: &mut &[u8]) -> Result<()> {
        let before = input.len();
        schema.decode_compact(input)?;
        if self.marks_lengths {
            take_mark(before - input.len(), input)?;
        }
        Ok(())
    }
}

/// Skips the mark of a length that is known.
fn take_mark(mut len: usize, input: &mut &[u8]) -> Result<()> {
    loop {
        match input.split_first() {
            Some((byte, rest)) if *byte == len as u8 => *input = rest,
            _ => {
                return Err(Error::corrupt(
                    "the length mark of a composite key is wrong",
                ));
            }
        }
        len >>= 8;
        if len == 0 {
            return Ok(());
        }
    }
}

/// Appends the big-endian prefix of a key group, 1 or 2 bytes ([`MaxParallelism::prefix_len`](state_api::MaxParallelism::prefix_len)).
#[inline]
pub fn put_group_prefix(group: KeyGroup, prefix_len: usize, out: &mut Vec<u8>) {
    let [high, low] = group.0.to_be_bytes();
    if prefix_len > 1 {
        out.push(high);
    }
    out.push(low);
}

/// Reads the key group at the start of a stored key; `None` if the key is shorter than the prefix.
#[inline]
#[must_use]
pub fn group_of_prefix(key: &[u8], prefix_len: usize) -> Option<KeyGroup> {
    match (prefix_len, key) {
        (1, [low, ..]) => Some(KeyGroup(u16::from(*low))),
        (2, [high, low, ..]) => Some(KeyGroup(u16::from_be_bytes([*high, *low]))),
        _ => None,
    }
}

/// Returns the first possible stored key after those of a key group; `None` if there is none.
#[must_use]
pub fn group_end(group: KeyGroup, prefix_len: usize) -> Option<Vec<u8>> {
    let mut prefix = Vec::with_capacity(prefix_len);
    put_group_prefix(group, prefix_len, &mut prefix);
    state_api::prefix_end(&prefix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use state_api::ErrorKind;

    fn composite<K: StateKey, N: StateKey>(key: &K, namespace: &N) -> Vec<u8> {
        let mut out = Vec::new();
        CompositeLayout::of::<K, N>().put(key, namespace, &mut out);
        out
    }

    #[test]
    fn k_027_k_028_a_group_prefix_is_big_endian_and_a_short_key_has_none() {
        let mut out = Vec::new();
        put_group_prefix(KeyGroup(0x0102), 2, &mut out);
        assert_eq!(out, [1, 2]);
        assert_eq!(group_of_prefix(&out, 2), Some(KeyGroup(258)));
        assert_eq!(group_of_prefix(&out[..1], 2), None);
        assert_eq!(group_of_prefix(&[], 1), None);
        out.clear();
        put_group_prefix(KeyGroup(127), 1, &mut out);
        assert_eq!(out, [127]);
        assert_eq!(group_of_prefix(&out, 1), Some(KeyGroup(127)));
        assert_eq!(group_end(KeyGroup(0x01FF), 2), Some(vec![2]));
        assert_eq!(group_end(KeyGroup(7), 1), Some(vec![8]));
    }

    #[test]
    fn k_029_two_variable_parts_are_marked_and_both_decode() {
        let one = composite(&"ab".to_owned(), &"c".to_owned());
        let other = composite(&"a".to_owned(), &"bc".to_owned());
        assert_ne!(one, other);
        for (bytes, key, namespace) in [(one, "ab", "c"), (other, "a", "bc")] {
            let mut input = &bytes[..];
            let layout = CompositeLayout::of::<String, String>();
            let (k, n) = layout.take::<String, String>(&mut input).unwrap();
            assert_eq!((k.as_str(), n.as_str(), input), (key, namespace, &[][..]));
        }
    }

    #[test]
    fn k_030_one_fixed_part_needs_no_mark() {
        assert_eq!(
            composite(&7u32, &"ns".to_owned()),
            [7, 0, 0, 0, 2, b'n', b's']
        );
        assert_eq!(composite(&"k".to_owned(), &7u16), [1, b'k', 7, 0]);
        assert_eq!(composite(&"k".to_owned(), &()), [1, b'k']);
        assert!(!CompositeLayout::of::<String, ()>().marks_lengths());
    }

    #[test]
    fn k_031_a_mark_is_the_length_low_byte_first() {
        // The string's own length takes two bytes, so that the encoding has 300.
        let key = "x".repeat(298);
        let bytes = composite(&key, &String::new());
        assert_eq!(&bytes[300..302], [0x2C, 0x01]);
        let mut input = &bytes[..];
        let layout = CompositeLayout::of::<String, String>();
        assert_eq!(
            layout.take::<String, String>(&mut input).unwrap(),
            (key, String::new())
        );
        let mut torn = bytes.clone();
        torn[301] = 2;
        let error = layout.take::<String, String>(&mut &torn[..]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn parts_are_read_and_written_by_schema_as_by_type() {
        let (schema, layout) = (Schema::String, CompositeLayout::of::<String, String>());
        let bytes = composite(&"carrier".to_owned(), &"day".to_owned());
        let mut input = &bytes[..];
        let (key, encoded_key) = layout.take_value(&schema, &mut input).unwrap();
        let (namespace, encoded_namespace) = layout.take_value(&schema, &mut input).unwrap();
        assert_eq!(key, Value::Str("carrier".into()));
        assert_eq!((namespace, input), (Value::Str("day".into()), &[][..]));
        let mut out = Vec::new();
        layout.put_encoded(encoded_key, encoded_namespace, &mut out);
        assert_eq!(out, bytes);
    }

    #[test]
    fn an_encoded_key_gives_the_same_bytes() {
        let (key, namespace) = ("carrier".to_owned(), "day".to_owned());
        let mut encoded = Vec::new();
        state_api::StateType::encode(&key, &mut encoded);
        let mut out = Vec::new();
        CompositeLayout::of::<String, String>().put_encoded_key(&encoded, &namespace, &mut out);
        assert_eq!(out, composite(&key, &namespace));
    }
}
