use std::marker::PhantomData;
use std::sync::Arc;

use managed_state::keyed::{AggregatingState, At, ListState, ReducingState};
use state_api::access::{Aggregator, ListAccess, MergeAccess};
use state_api::{Result, StateKey, StateType};

use super::{TimeWindow, WindowFunction, Windowed};
use crate::operator::{Out, States};
use crate::record::Record;

/// The state that what is in a window lies in.
const STATE: &str = "window";

/// What a window keeps of its records, and what it makes of that when it fires.
///
/// The content lies in the namespace `place`: the window itself, or one of the windows that a session grew from.
pub(crate) trait Contents: Clone + Send + Sync + 'static {
    type Key: StateKey;
    type In: Record;
    type Out: Record;

    fn open(&mut self, states: &mut States<'_, Self::Key>) -> Result<()>;

    fn add(
        &mut self,
        place: &TimeWindow,
        record: Self::In,
        at: &mut At<'_, Self::Key>,
    ) -> Result<()>;

    fn merge(
        &mut self,
        place: &TimeWindow,
        others: &[TimeWindow],
        at: &mut At<'_, Self::Key>,
    ) -> Result<()>;

    fn fire(
        &mut self,
        window: TimeWindow,
        place: &TimeWindow,
        at: &mut At<'_, Self::Key>,
        out: &mut Out<'_, Self::Out>,
    ) -> Result<()>;

    fn clear(
        &mut self,
        window: TimeWindow,
        place: &TimeWindow,
        at: &mut At<'_, Self::Key>,
    ) -> Result<()>;
}

/// Emits what a window was folded into, if it has any records.
fn emit<K: StateKey, V: Record>(
    value: Option<V>,
    window: TimeWindow,
    key: &K,
    out: &mut Out<'_, Windowed<K, V>>,
) -> Result<()> {
    value.map_or(Ok(()), |value| {
        out.emit(Windowed::new(key.clone(), window, value))
    })
}

/// An accumulator.
#[derive(Clone)]
pub(crate) struct Aggregated<K, A: Aggregator> {
    aggregator: A,
    state: AggregatingState<A, TimeWindow>,
    key: PhantomData<fn(K)>,
}

impl<K, A: Aggregator> Aggregated<K, A> {
    pub(crate) fn new(aggregator: A) -> Self {
        Self {
            aggregator,
            state: AggregatingState::default(),
            key: PhantomData,
        }
    }
}

impl<K, A> Contents for Aggregated<K, A>
where
    K: StateKey,
    A: Aggregator,
    A::In: Record,
    A::Out: Record,
{
    type Key = K;
    type In = A::In;
    type Out = Windowed<K, A::Out>;

    fn open(&mut self, states: &mut States<'_, K>) -> Result<()> {
        self.state = states.aggregating(STATE, self.aggregator.clone())?;
        Ok(())
    }

    #[inline]
    fn add(&mut self, place: &TimeWindow, record: A::In, at: &mut At<'_, K>) -> Result<()> {
        at.aggregating_in(self.state, place).add(record)
    }

    fn merge(
        &mut self,
        place: &TimeWindow,
        others: &[TimeWindow],
        at: &mut At<'_, K>,
    ) -> Result<()> {
        at.merge_aggregating(self.state, place, others)
    }

    fn fire(
        &mut self,
        window: TimeWindow,
        place: &TimeWindow,
        at: &mut At<'_, K>,
        out: &mut Out<'_, Self::Out>,
    ) -> Result<()> {
        let value = at.aggregating_in(self.state, place).get()?;
        emit(value, window, at.key(), out)
    }

    fn clear(&mut self, _: TimeWindow, place: &TimeWindow, at: &mut At<'_, K>) -> Result<()> {
        at.aggregating_in(self.state, place).clear()
    }
}

/// Reduces two records to one.
pub(crate) type Reduce<T> = Arc<dyn Fn(&T, T) -> Result<T> + Send + Sync>;

/// All records reduced to one.
pub(crate) struct Reduced<K, T> {
    reduce: Reduce<T>,
    state: ReducingState<T, TimeWindow>,
    key: PhantomData<fn(K)>,
}

impl<K, T> Reduced<K, T> {
    pub(crate) fn new(reduce: Reduce<T>) -> Self {
        Self {
            reduce,
            state: ReducingState::default(),
            key: PhantomData,
        }
    }
}

impl<K, T> Clone for Reduced<K, T> {
    fn clone(&self) -> Self {
        Self {
            reduce: Arc::clone(&self.reduce),
            ..*self
        }
    }
}

impl<K: StateKey, T: Record + StateType> Contents for Reduced<K, T> {
    type Key = K;
    type In = T;
    type Out = Windowed<K, T>;

    fn open(&mut self, states: &mut States<'_, K>) -> Result<()> {
        let reduce = Arc::clone(&self.reduce);
        self.state = states.reducing(STATE, move |a, b| reduce(a, b))?;
        Ok(())
    }

    #[inline]
    fn add(&mut self, place: &TimeWindow, record: T, at: &mut At<'_, K>) -> Result<()> {
        at.reducing_in(self.state, place).add(record)
    }

    fn merge(
        &mut self,
        place: &TimeWindow,
        others: &[TimeWindow],
        at: &mut At<'_, K>,
    ) -> Result<()> {
        at.merge_reducing(self.state, place, others)
    }

    fn fire(
        &mut self,
        window: TimeWindow,
        place: &TimeWindow,
        at: &mut At<'_, K>,
        out: &mut Out<'_, Self::Out>,
    ) -> Result<()> {
        let value = at.reducing_in(self.state, place).get()?;
        emit(value, window, at.key(), out)
    }

    fn clear(&mut self, _: TimeWindow, place: &TimeWindow, at: &mut At<'_, K>) -> Result<()> {
        at.reducing_in(self.state, place).clear()
    }
}

/// All records as they came.
#[derive(Clone)]
pub(crate) struct Listed<F: WindowFunction> {
    function: F,
    state: ListState<F::In, TimeWindow>,
}

impl<F: WindowFunction> Listed<F> {
    pub(crate) fn new(function: F) -> Self {
        Self {
            function,
            state: ListState::default(),
        }
    }
}

impl<F: WindowFunction> Contents for Listed<F> {
    type Key = F::Key;
    type In = F::In;
    type Out = F::Out;

    fn open(&mut self, states: &mut States<'_, F::Key>) -> Result<()> {
        self.state = states.list(STATE)?;
        self.function.open(states)
    }

    #[inline]
    fn add(&mut self, place: &TimeWindow, record: F::In, at: &mut At<'_, F::Key>) -> Result<()> {
        at.list_in(self.state, place).push(record)
    }

    fn merge(
        &mut self,
        place: &TimeWindow,
        others: &[TimeWindow],
        at: &mut At<'_, F::Key>,
    ) -> Result<()> {
        at.merge_lists(self.state, place, others)
    }

    fn fire(
        &mut self,
        window: TimeWindow,
        place: &TimeWindow,
        at: &mut At<'_, F::Key>,
        out: &mut Out<'_, F::Out>,
    ) -> Result<()> {
        let records = at.list_in(self.state, place).get()?;
        if records.is_empty() {
            return Ok(());
        }
        self.function.process(window, records, at, out)
    }

    fn clear(
        &mut self,
        window: TimeWindow,
        place: &TimeWindow,
        at: &mut At<'_, F::Key>,
    ) -> Result<()> {
        at.list_in(self.state, place).clear()?;
        self.function.clear(window, at)
    }
}
