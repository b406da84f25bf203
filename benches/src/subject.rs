//! What is measured: keyed state through its whole facade, and bare tables, behind one trait.
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use backend_hashmap::HashMapSnapshots;
use managed_state::keyed::{At, KeyedContext, KeyedStates, ValueState};
use state_api::access::ValueAccess;
use state_api::{KeyedBackend, LiveSnapshots, Result, StateKey, SystemClock};

use crate::workload::{KEY_GROUPS, Shape};

/// A keyed value: what one operation of each kind does to it.
pub trait Subject<S: Shape> {
    /// How tables name it.
    const NAME: &'static str;

    /// Creates an empty one.
    ///
    /// # Errors
    /// Those of the states.
    fn empty() -> Result<Self>
    where
        Self: Sized;

    /// Adds keys that are not there.
    ///
    /// # Errors
    /// Those of the states.
    fn add(&mut self, keys: &[S::Key]) -> Result<u64>;

    /// Reads the value of each key and returns a checksum.
    ///
    /// # Errors
    /// Those of the states.
    fn get(&mut self, keys: &[S::Key]) -> Result<u64>;

    /// Replaces the value of each key, which is there, without reading it.
    ///
    /// # Errors
    /// Those of the states.
    fn update(&mut self, keys: &[S::Key]) -> Result<u64>;

    /// Reads, changes and writes the value of each key.
    ///
    /// # Errors
    /// Those of the states.
    fn read_modify_write(&mut self, keys: &[S::Key]) -> Result<u64>;
}

/// Where keyed states are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// On live tables.
    Live,
    /// In RocksDB, with the memory that the peer harness gives it.
    #[cfg(feature = "rocksdb")]
    RocksDb,
}

impl Home {
    /// Creates empty states of one subtask.
    ///
    /// # Errors
    /// Those of the states.
    pub fn states<K: StateKey>(self) -> Result<KeyedStates<K>> {
        match self {
            Self::Live => live_states(),
            #[cfg(feature = "rocksdb")]
            Self::RocksDb => crate::rocksdb::peer_states(),
        }
    }

    /// Brings what is in memory only into files.
    ///
    /// # Errors
    /// Those of the states.
    pub fn settle(self) -> Result<()> {
        match self {
            Self::Live => Ok(()),
            #[cfg(feature = "rocksdb")]
            Self::RocksDb => crate::rocksdb::settle(),
        }
    }
}

/// Keyed state on live tables, through the whole facade.
pub struct Facade<S: Shape> {
    /// The states of the subtask.
    pub states: KeyedStates<S::Key>,
    /// The one state.
    pub state: ValueState<S::Value>,
}

/// Creates empty states of one subtask that owns all of 128 key groups, under the strategy of the backend `hashmap`.
///
/// # Errors
/// Those of the states.
pub fn live_states<K: StateKey>() -> Result<KeyedStates<K>> {
    states_with(Box::new(HashMapSnapshots), KEY_GROUPS, 0.25)
}

/// Creates empty states with a strategy, a number of key groups, and the part of a table that overlays may take.
///
/// # Errors
/// Those of the states.
pub fn states_with<K: StateKey>(
    strategy: Box<dyn LiveSnapshots>,
    key_groups: u32,
    overlay_ratio: f64,
) -> Result<KeyedStates<K>> {
    let mut cx = KeyedContext::single(key_groups, Arc::new(SystemClock))?;
    cx.overlay_ratio = overlay_ratio;
    KeyedStates::new(KeyedBackend::Live(strategy), cx)
}

impl<S: Shape> Facade<S> {
    /// Creates an empty state over other states than the default ones.
    ///
    /// # Errors
    /// Those of the states.
    pub fn over(mut states: KeyedStates<S::Key>) -> Result<Self> {
        let state = states.value("value")?;
        Ok(Self { states, state })
    }
}

impl<S: Shape> Subject<S> for Facade<S> {
    const NAME: &'static str = "facade";

    fn empty() -> Result<Self> {
        Self::over(live_states()?)
    }

    fn add(&mut self, keys: &[S::Key]) -> Result<u64> {
        self.update(keys)
    }

    fn get(&mut self, keys: &[S::Key]) -> Result<u64> {
        let mut sum = 0u64;
        for key in keys {
            let mut at = self.states.at(key);
            let read = at
                .value(self.state)
                .with(|value| value.map_or(0, S::read))?;
            sum = sum.wrapping_add(read);
        }
        Ok(sum)
    }

    fn update(&mut self, keys: &[S::Key]) -> Result<u64> {
        for (index, key) in keys.iter().enumerate() {
            let value = S::value(index as u64);
            self.states.at(key).value(self.state).set(value)?;
        }
        Ok(0)
    }

    fn read_modify_write(&mut self, keys: &[S::Key]) -> Result<u64> {
        for key in keys {
            self.states.at(key).value(self.state).update(S::bump)?;
        }
        Ok(0)
    }
}

/// Keyed state used as the runtime uses it: the hash comes with the key, and the keys of a batch are asked for ahead.
pub struct Batched<S: Shape>(pub Facade<S>);

/// Keys in a batch.
const BATCH: usize = 64;

impl<S: Shape> Batched<S> {
    /// Hashes the keys of each batch, asks for them ahead, and calls `f` with each of them bound.
    fn each(
        &mut self,
        keys: &[S::Key],
        mut f: impl FnMut(usize, &mut At<'_, S::Key>, ValueState<S::Value>) -> Result<()>,
    ) -> Result<()> {
        let Facade { states, state } = &mut self.0;
        let mut hashes = Vec::with_capacity(BATCH);
        for (batch, keys) in keys.chunks(BATCH).enumerate() {
            hashes.clear();
            hashes.extend(keys.iter().map(|key| states.hash(key)));
            states.prefetch(keys.iter().zip(hashes.iter().copied()));
            for (i, (key, hash)) in keys.iter().zip(&hashes).enumerate() {
                f(batch * BATCH + i, &mut states.at_hashed(key, *hash), *state)?;
            }
        }
        Ok(())
    }
}

impl<S: Shape> Subject<S> for Batched<S> {
    const NAME: &'static str = "facade, in batches";

    fn empty() -> Result<Self> {
        Facade::empty().map(Self)
    }

    fn add(&mut self, keys: &[S::Key]) -> Result<u64> {
        self.update(keys)
    }

    fn get(&mut self, keys: &[S::Key]) -> Result<u64> {
        let mut sum = 0u64;
        self.each(keys, |_, at, state| {
            let read = at.value(state).with(|value| value.map_or(0, S::read))?;
            sum = sum.wrapping_add(read);
            Ok(())
        })?;
        Ok(sum)
    }

    fn update(&mut self, keys: &[S::Key]) -> Result<u64> {
        self.each(keys, |index, at, state| {
            at.value(state).set(S::value(index as u64))
        })?;
        Ok(0)
    }

    fn read_modify_write(&mut self, keys: &[S::Key]) -> Result<u64> {
        self.each(keys, |_, at, state| at.value(state).update(S::bump))?;
        Ok(0)
    }
}

/// `hashbrown::HashMap` with the hash of live tables: stable hash, multiplied and folded.
#[derive(Clone, Copy, Debug, Default)]
pub struct OurHash;

/// Hashes one key.
#[derive(Clone, Copy, Debug, Default)]
pub struct OurHasher(u64);

impl BuildHasher for OurHash {
    type Hasher = OurHasher;

    #[inline]
    fn build_hasher(&self) -> OurHasher {
        OurHasher(0)
    }
}

impl Hasher for OurHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        self.0 = state_api::hash::hash_bytes(bytes);
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.0 = number.stable_hash();
    }

    /// Strings end with such a byte in std's scheme; the stable hash is of the content alone.
    #[inline]
    fn write_u8(&mut self, _: u8) {}

    #[inline]
    fn finish(&self) -> u64 {
        let product = u128::from(self.0) * u128::from(0x9E37_79B9_7F4A_7C15_u64);
        (product as u64) ^ ((product >> 64) as u64)
    }
}

/// A bare table.
pub type Bare<S, H> = hashbrown::HashMap<<S as Shape>::Key, <S as Shape>::Value, H>;

/// A name for each hasher.
pub trait NamedHasher: BuildHasher + Default {
    /// How tables name it.
    const NAME: &'static str;
}

impl NamedHasher for OurHash {
    const NAME: &'static str = "hashbrown, our hash";
}

impl NamedHasher for hashbrown::DefaultHashBuilder {
    const NAME: &'static str = "hashbrown, its hash";
}

impl<S: Shape, H: NamedHasher> Subject<S> for Bare<S, H> {
    const NAME: &'static str = H::NAME;

    fn empty() -> Result<Self> {
        Ok(Self::default())
    }

    fn add(&mut self, keys: &[S::Key]) -> Result<u64> {
        for (index, key) in keys.iter().enumerate() {
            self.insert(key.clone(), S::value(index as u64));
        }
        Ok(0)
    }

    fn get(&mut self, keys: &[S::Key]) -> Result<u64> {
        let mut sum = 0u64;
        for key in keys {
            sum = sum.wrapping_add(hashbrown::HashMap::get(self, key).map_or(0, S::read));
        }
        Ok(sum)
    }

    fn update(&mut self, keys: &[S::Key]) -> Result<u64> {
        for (index, key) in keys.iter().enumerate() {
            if let Some(value) = self.get_mut(key) {
                *value = S::value(index as u64);
            }
        }
        Ok(0)
    }

    fn read_modify_write(&mut self, keys: &[S::Key]) -> Result<u64> {
        for key in keys {
            if let Some(value) = self.get_mut(key) {
                S::bump(value);
            }
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{INSERT_SEED, Longs, PROBE_SEED, Words, keys};

    fn checksums<S: Shape, T: Subject<S>>() -> [u64; 3] {
        let mut subject = T::empty().unwrap();
        let probes = keys::<S>(1000, PROBE_SEED);
        subject.add(&keys::<S>(1000, INSERT_SEED)).unwrap();
        let added = subject.get(&probes).unwrap();
        subject.update(&probes[..500]).unwrap();
        let updated = subject.get(&probes).unwrap();
        subject.read_modify_write(&probes).unwrap();
        [added, updated, subject.get(&probes).unwrap()]
    }

    #[test]
    fn all_subjects_do_the_same_work() {
        let facade = checksums::<Longs, Facade<Longs>>();
        assert_eq!(facade[0], 499_500);
        assert_eq!(facade[2], facade[1] + 1000);
        assert_eq!(facade, checksums::<Longs, Batched<Longs>>());
        assert_eq!(facade, checksums::<Longs, Bare<Longs, OurHash>>());
        assert_eq!(
            facade,
            checksums::<Longs, Bare<Longs, hashbrown::DefaultHashBuilder>>()
        );
        assert_eq!(
            checksums::<Words, Facade<Words>>(),
            checksums::<Words, Bare<Words, OurHash>>()
        );
    }
}
