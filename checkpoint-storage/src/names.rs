use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use state_api::Attempt;
use uuid::Uuid;

use crate::sealed::SEALED_ENDING;

/// Makes object names that are never used twice: the attempt's number and a random UUID.
#[derive(Clone)]
pub struct ObjectNames {
    attempt: Attempt,
    source: UuidSource,
}

/// Hands out the random part of object names.
#[derive(Clone)]
pub struct UuidSource(Arc<dyn Fn() -> Uuid + Send + Sync>);

impl UuidSource {
    /// Creates a source over the machine's randomness.
    #[must_use]
    pub fn machine() -> Self {
        Self(Arc::new(Uuid::new_v4))
    }

    /// Creates a source that gives the same sequence for the same seed, for simulations and tests.
    ///
    /// Two sources over one store need different seeds.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        let counter = AtomicU64::new(0);
        Self(Arc::new(move || {
            let n = counter.fetch_add(1, Ordering::Relaxed);
            let high = mix(seed ^ mix(n));
            let low = mix(high ^ n.rotate_left(32));
            uuid::Builder::from_random_bytes(
                ((u128::from(high) << 64) | u128::from(low)).to_be_bytes(),
            )
            .into_uuid()
        }))
    }

    /// Creates a source out of a function.
    #[must_use]
    pub fn from_fn(next: impl Fn() -> Uuid + Send + Sync + 'static) -> Self {
        Self(Arc::new(next))
    }

    /// Returns the next UUID.
    #[must_use]
    pub fn next(&self) -> Uuid {
        (self.0)()
    }
}

impl fmt::Debug for UuidSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UuidSource")
    }
}

/// SplitMix64's finalizer (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl ObjectNames {
    /// Creates the names of one attempt.
    #[must_use]
    pub fn new(attempt: Attempt, source: UuidSource) -> Self {
        Self { attempt, source }
    }

    /// Returns a new name, such as `7-67e55044-10b1-426f-9247-bb680e5fe0c8`.
    #[must_use]
    pub fn next(&self) -> String {
        format!("{}-{}", self.attempt, self.source.next())
    }

    /// Returns the random part of a name, for other uses.
    pub(crate) fn random(&self) -> [u8; 16] {
        self.source.next().into_bytes()
    }

    /// Returns the attempt whose names these are.
    #[must_use]
    pub fn attempt(&self) -> Attempt {
        self.attempt
    }
}

impl fmt::Debug for ObjectNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectNames")
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}

/// Returns the attempt that an object's name carries.
#[must_use]
pub fn attempt_of_name(name: &str) -> Option<Attempt> {
    let name = name.strip_suffix(SEALED_ENDING).unwrap_or(name);
    let (attempt, uuid) = name.split_once('-')?;
    let uuid = Uuid::try_parse(uuid).ok()?;
    let attempt: u64 = attempt.parse().ok()?;
    // Other spellings of the same were written by somebody else.
    (format!("{attempt}-{uuid}") == name).then_some(Attempt(attempt))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_names_and_no_name_twice() {
        let names = |seed| {
            let names = ObjectNames::new(Attempt(7), UuidSource::seeded(seed));
            (0..1000).map(move |_| names.next()).collect::<Vec<_>>()
        };
        let first = names(1);
        assert_eq!(first, names(1));
        let mut all = [first, names(2)].concat();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 2000);
    }

    #[test]
    fn a_name_tells_its_attempt() {
        let name = ObjectNames::new(Attempt(12), UuidSource::machine()).next();
        assert_eq!(attempt_of_name(&name), Some(Attempt(12)));
        assert_eq!(
            attempt_of_name(&format!("{name}.sealed")),
            Some(Attempt(12))
        );
        for other in [
            "",
            "x",
            "_metadata",
            "12-",
            "12-zz",
            "+12-67e55044-10b1-426f-9247-bb680e5fe0c8",
            "012-67e55044-10b1-426f-9247-bb680e5fe0c8",
            "12-67E55044-10B1-426F-9247-BB680E5FE0C8",
            "12-67e5504410b1426f9247bb680e5fe0c8",
            "-67e55044-10b1-426f-9247-bb680e5fe0c8",
        ] {
            assert_eq!(attempt_of_name(other), None, "{other}");
        }
    }
}
