use std::sync::Arc;

use state_api::{Error, Result, StateType};

use super::RateLimited;
use crate::source::{Source, SourceContext, SourceOutput, SourceReader, SourceStatus};
use crate::{NO_TIMESTAMP, Record, Timed};

/// Records that are made in a row before they are emitted: work that waits for memory overlaps then.
const RUN: usize = 16;

/// Every `step`-th index of a generated input from `next` on.
#[derive(Clone, Debug, PartialEq, Eq, StateType)]
pub struct IndexSplit {
    /// The first index that is not emitted yet.
    pub next: u64,
    /// Distance from one index of the split to the next; at least 1.
    pub step: u64,
    /// Number of records of the whole input; `None` without end.
    pub count: Option<u64>,
}

impl IndexSplit {
    #[inline]
    fn is_finished(&self) -> bool {
        self.count.is_some_and(|count| self.next >= count)
    }
}

/// Makes records by a function of their index: 0, 1, 2, …
///
/// The function must give the same record for the same index each time; then the source is replayable. Subtasks take turns: of two, one
/// has the even indexes and the other one the odd ones.
///
/// ```
/// use runtime_core::sources::Generator;
///
/// let numbers = Generator::new(|index| index * 2).take(1_000).per_second(100.0);
/// # let _ = numbers;
/// ```
pub struct Generator<T> {
    make: Arc<dyn Fn(u64) -> Timed<T> + Send + Sync>,
    count: Option<u64>,
    splits: Option<u32>,
}

impl<T: Record> Generator<T> {
    /// Creates an input without end whose records have no event time.
    #[must_use]
    pub fn new(make: impl Fn(u64) -> T + Send + Sync + 'static) -> Self {
        Self::timed(move |index| Timed {
            value: make(index),
            time: NO_TIMESTAMP,
        })
    }

    /// Creates an input without end whose records have event times in milliseconds.
    #[must_use]
    pub fn timed(make: impl Fn(u64) -> Timed<T> + Send + Sync + 'static) -> Self {
        Self {
            make: Arc::new(make),
            count: None,
            splits: None,
        }
    }

    /// Creates an input of the elements of a collection, without event time.
    #[must_use]
    pub fn collection(items: impl IntoIterator<Item = T>) -> Self
    where
        T: Sync,
    {
        let untimed = |value| Timed {
            value,
            time: NO_TIMESTAMP,
        };
        Self::timed_collection(items.into_iter().map(untimed))
    }

    /// Creates an input of the elements of a collection with their event times.
    #[must_use]
    pub fn timed_collection(items: impl IntoIterator<Item = Timed<T>>) -> Self
    where
        T: Sync,
    {
        let items: Vec<Timed<T>> = items.into_iter().collect();
        let count = items.len() as u64;
        // The index is below the count: a split of another collection is refused.
        let make = move |index: u64| items[index as usize].clone();
        Self {
            make: Arc::new(make),
            count: Some(count),
            splits: None,
        }
    }

    /// Ends the input after a number of records.
    #[must_use]
    pub fn take(mut self, count: u64) -> Self {
        self.count = Some(self.count.map_or(count, |before| before.min(count)));
        self
    }

    /// Sets the number of splits, for inputs that are to be restored at a higher parallelism; the parallelism unless set.
    #[must_use]
    pub fn splits(mut self, splits: u32) -> Self {
        self.splits = Some(splits);
        self
    }

    /// Limits the records per second of all subtasks together.
    #[must_use]
    pub fn per_second(self, records: f64) -> RateLimited<Self> {
        RateLimited::new(self, records)
    }
}

impl<T: Record> Source for Generator<T> {
    type Out = T;
    type Split = IndexSplit;
    type Reader = GeneratorReader<T>;

    fn enumerate(&self, parallelism: u32) -> Result<Vec<IndexSplit>> {
        let splits = u64::from(self.splits.unwrap_or(parallelism).max(1));
        let split = |next| IndexSplit {
            next,
            step: splits,
            count: self.count,
        };
        Ok((0..splits)
            .map(split)
            .filter(|split| !split.is_finished())
            .collect())
    }

    fn reader(&self, _: &SourceContext, splits: Vec<IndexSplit>) -> Result<GeneratorReader<T>> {
        for split in &splits {
            if split.step == 0 {
                return Err(Error::corrupt("a split of a generated input stands still"));
            }
            if split.count != self.count {
                let shown = |count: Option<u64>| {
                    count.map_or_else(|| "no end".to_owned(), |n| n.to_string())
                };
                return Err(Error::incompatible(
                    "the generated input has another number of records than its splits say",
                )
                .with("records", shown(self.count))
                .with("records then", shown(split.count)));
            }
        }
        Ok(GeneratorReader {
            make: Arc::clone(&self.make),
            splits,
            made: Vec::with_capacity(RUN),
        })
    }

    fn describe(&self, split: &IndexSplit) -> String {
        match split.count {
            Some(count) => format!("index {} of {count}, by {}", split.next, split.step),
            None => format!("index {}, by {}", split.next, split.step),
        }
    }
}

impl<T> Clone for Generator<T> {
    fn clone(&self) -> Self {
        Self {
            make: Arc::clone(&self.make),
            count: self.count,
            splits: self.splits,
        }
    }
}

impl<T> std::fmt::Debug for Generator<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Generator")
            .field("count", &self.count)
            .field("splits", &self.splits)
            .finish_non_exhaustive()
    }
}

/// Emits the records of the splits of one subtask, in the order of their indexes.
pub struct GeneratorReader<T> {
    make: Arc<dyn Fn(u64) -> Timed<T> + Send + Sync>,
    splits: Vec<IndexSplit>,
    /// Records on their way out; empty between polls.
    made: Vec<Timed<T>>,
}

impl<T> GeneratorReader<T> {
    /// Makes the next records, up to a number.
    #[inline]
    fn make(&mut self, records: usize) {
        for _ in 0..records {
            let unfinished = self.splits.iter_mut().filter(|split| !split.is_finished());
            let Some(split) = unfinished.min_by_key(|split| split.next) else {
                break;
            };
            self.made.push((self.make)(split.next));
            split.next = split.next.saturating_add(split.step);
        }
    }
}

impl<T: 'static> SourceReader for GeneratorReader<T> {
    type Out = T;
    type Split = IndexSplit;

    fn poll(&mut self, out: &mut SourceOutput<'_, T>) -> Result<SourceStatus> {
        while !out.is_full() {
            self.make(out.remaining().min(RUN));
            if self.made.is_empty() {
                return Ok(SourceStatus::Finished);
            }
            for Timed { value, time } in self.made.drain(..) {
                out.emit_at(value, time)?;
            }
        }
        Ok(SourceStatus::More)
    }

    fn snapshot(&mut self) -> Result<Vec<IndexSplit>> {
        Ok(self
            .splits
            .iter()
            .filter(|split| !split.is_finished())
            .cloned()
            .collect())
    }
}

impl<T> std::fmt::Debug for GeneratorReader<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GeneratorReader")
            .field("splits", &self.splits)
            .finish_non_exhaustive()
    }
}
