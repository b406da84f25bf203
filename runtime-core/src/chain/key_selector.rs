use std::sync::Arc;

use state_api::{KeyHash, StateKey};

use super::port::Port;
use crate::operator::Side;

/// Makes the key of a record.
pub(crate) type MakeKey<K, T> = dyn Fn(&T) -> K + Send + Sync;

/// Finds the key within a record.
pub(crate) type FindKey<K, T> = dyn Fn(&T) -> &K + Send + Sync;

/// How the records of a stream come by their key.
pub(crate) enum KeySelector<K, T> {
    /// Made once, in front of the exchange; travels beside the record.
    Made(Arc<MakeKey<K, T>>),
    /// Part of the record: found on either side of the exchange, travels with it.
    Held(Arc<FindKey<K, T>>),
}

impl<K, T> Clone for KeySelector<K, T> {
    fn clone(&self) -> Self {
        match self {
            Self::Made(make) => Self::Made(Arc::clone(make)),
            Self::Held(find) => Self::Held(Arc::clone(find)),
        }
    }
}

impl<K: StateKey, A: 'static, B: 'static> KeySelector<K, Side<A, B>> {
    /// Selects the keys of two streams that come in as one.
    pub(crate) fn of_sides(first: KeySelector<K, A>, second: KeySelector<K, B>) -> Self {
        match (first, second) {
            (KeySelector::Held(first), KeySelector::Held(second)) => {
                Self::Held(find(move |record| match record {
                    Side::First(record) => first(record),
                    Side::Second(record) => second(record),
                }))
            }
            (first, second) => Self::Made(Arc::new(move |record| match record {
                Side::First(record) => first.key_of(record),
                Side::Second(record) => second.key_of(record),
            })),
        }
    }
}

impl<K: StateKey, T> KeySelector<K, T> {
    fn key_of(&self, record: &T) -> K {
        match self {
            Self::Made(make) => make(record),
            Self::Held(find) => find(record).clone(),
        }
    }
}

/// Helps the compiler to see that the key lives as long as the record.
fn find<K, T>(f: impl Fn(&T) -> &K + Send + Sync + 'static) -> Arc<FindKey<K, T>> {
    Arc::new(f)
}

/// A record with what its key is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keyed<K, T> {
    /// The key, unless it is part of the record.
    pub(crate) key: Option<K>,
    /// The hash of the key: computed once, to choose the channel and to reach the key's state.
    pub(crate) hash: KeyHash,
    pub(crate) value: T,
}

/// The key of the record that is processed.
///
/// An operator is given the record by value and the key by reference, so a key that is part of the record is copied: into
/// the same place each time, which for a string needs no allocation.
pub(crate) struct CurrentKey<K, T> {
    selector: KeySelector<K, T>,
    copy: Option<K>,
}

impl<K: StateKey, T> CurrentKey<K, T> {
    pub(crate) fn new(selector: KeySelector<K, T>) -> Self {
        Self {
            selector,
            copy: None,
        }
    }

    /// Returns the key of a record that is processed later.
    #[inline]
    pub(crate) fn ahead<'a>(&'a self, record: &'a Keyed<K, T>) -> Option<&'a K> {
        match (&record.key, &self.selector) {
            (None, KeySelector::Held(find)) => Some(find(&record.value)),
            (key, _) => key.as_ref(),
        }
    }

    /// Returns the key of a record.
    #[inline]
    pub(crate) fn of<'a>(&'a mut self, carried: Option<K>, value: &T) -> &'a K {
        let key = match (carried, &self.selector) {
            (Some(key), _) => return self.copy.insert(key),
            (None, KeySelector::Held(find)) => find(value),
            // The exchange carries keys that are made; this one was not, so it is made now.
            (None, KeySelector::Made(make)) => return self.copy.insert(make(value)),
        };
        match &mut self.copy {
            Some(copy) => {
                copy.clone_from(key);
                copy
            }
            empty => empty.insert(key.clone()),
        }
    }
}

/// The input channels of a keyed edge, and the way to the keys of what comes in.
pub(crate) struct KeyedPort<K, T> {
    pub(crate) records: Port<Keyed<K, T>>,
    pub(crate) key: CurrentKey<K, T>,
}

impl<K: StateKey, T> KeyedPort<K, T> {
    pub(crate) fn new(records: Port<Keyed<K, T>>, selector: KeySelector<K, T>) -> Self {
        let key = CurrentKey::new(selector);
        Self { records, key }
    }

    /// Iterates over keys of the records of the batch that are not taken yet, with their hashes.
    pub(crate) fn ahead(&self) -> impl Iterator<Item = (&K, KeyHash)> {
        let records = self.records.ahead();
        records.filter_map(|record| Some((self.key.ahead(record)?, record.hash)))
    }
}

#[cfg(test)]
mod tests {
    use state_api::{HashId, MaxParallelism};

    use super::*;

    fn keyed(key: Option<&str>, value: &str) -> Keyed<String, String> {
        let max = MaxParallelism::new(128).unwrap();
        Keyed {
            key: key.map(str::to_owned),
            hash: KeyHash::of(&value.to_owned(), HashId::default(), max),
            value: value.to_owned(),
        }
    }

    #[test]
    fn a_key_within_the_record_is_copied_into_the_same_memory_each_time() {
        let find: Arc<FindKey<String, String>> = Arc::new(|word| word);
        let mut current = CurrentKey::new(KeySelector::Held(find));
        let record = keyed(None, "a longer word");
        assert_eq!(current.ahead(&record), Some(&record.value));
        let first = current.of(record.key, &record.value);
        assert_eq!(first, "a longer word");
        let place = first.as_ptr();
        let second = current.of(None, &"word".to_owned());
        assert_eq!((second.as_str(), second.as_ptr()), ("word", place));
    }

    #[test]
    fn a_key_that_was_made_is_the_one_that_travels() {
        let make: Arc<MakeKey<String, String>> = Arc::new(|word| word.to_uppercase());
        let mut current = CurrentKey::new(KeySelector::Made(make));
        let record = keyed(Some("carried"), "word");
        assert_eq!(current.ahead(&record).unwrap(), "carried");
        assert_eq!(current.of(record.key, &record.value), "carried");
        assert_eq!(current.of(None, &record.value), "WORD");
    }
}
