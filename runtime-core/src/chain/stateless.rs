use std::marker::PhantomData;
use std::sync::Arc;

use state_api::Result;

use super::chained::Stage;
use super::link::Link;
use crate::record::Record;

/// Turns each record into one other.
pub(crate) struct MapStage<A, B, F> {
    pub(crate) f: Arc<F>,
    pub(crate) types: PhantomData<fn(A) -> B>,
}

impl<A: Record, B: Record, F: Fn(A) -> Result<B> + Send + Sync + 'static> Stage
    for MapStage<A, B, F>
{
    type In = A;
    type Out = B;

    #[inline]
    fn process(&mut self, value: A, time: i64, next: &mut dyn Link<B>) -> Result<()> {
        next.emit((self.f)(value)?, time)
    }
}

/// Turns each record into any number of others.
pub(crate) struct FlatMapStage<A, B, I, F> {
    pub(crate) f: Arc<F>,
    pub(crate) types: PhantomData<fn(A) -> (I, B)>,
}

impl<A, B, I, F> Stage for FlatMapStage<A, B, I, F>
where
    A: Record,
    B: Record,
    I: IntoIterator<Item = B> + 'static,
    F: Fn(A) -> Result<I> + Send + Sync + 'static,
{
    type In = A;
    type Out = B;

    #[inline]
    fn process(&mut self, value: A, time: i64, next: &mut dyn Link<B>) -> Result<()> {
        (self.f)(value)?
            .into_iter()
            .try_for_each(|item| next.emit(item, time))
    }
}

/// Keeps the records that a predicate accepts.
pub(crate) struct FilterStage<T, F> {
    pub(crate) f: Arc<F>,
    pub(crate) types: PhantomData<fn(T)>,
}

impl<T: Record, F: Fn(&T) -> bool + Send + Sync + 'static> Stage for FilterStage<T, F> {
    type In = T;
    type Out = T;

    #[inline]
    fn process(&mut self, value: T, time: i64, next: &mut dyn Link<T>) -> Result<()> {
        if (self.f)(&value) {
            next.emit(value, time)
        } else {
            Ok(())
        }
    }
}
