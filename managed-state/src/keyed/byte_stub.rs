use std::marker::PhantomData;
use state_api::access::*;
use state_api::*;
pub(crate) enum Never {}
macro_rules! never { ($($name:ident<$($p:ident),*>),* $(,)?) => { $(pub(crate) struct $name<'a, $($p),*>(Never, PhantomData<(&'a (), $($p),*)>);)* } }
never!(ByteValue<T>, ByteList<T>, ByteMap<MK, MV>, ByteSortedMap<MK, MV>, ByteReducing<T>, ByteAggregating<A>);
impl<T> ValueAccess<T> for ByteValue<'_, T> {
    fn with<R>(&mut self, _: impl FnOnce(Option<&T>) -> R) -> Result<R> { match self.0 {} }
    fn set(&mut self, _: T) -> Result<()> { match self.0 {} }
    fn modify<R>(&mut self, _: impl FnOnce(&mut Option<T>) -> R) -> Result<R> { match self.0 {} }
    fn clear(&mut self) -> Result<()> { match self.0 {} }
}
impl<T> ListAccess<T> for ByteList<'_, T> {
    fn push(&mut self, _: T) -> Result<()> { match self.0 {} }
    fn extend(&mut self, _: Vec<T>) -> Result<()> { match self.0 {} }
    fn replace(&mut self, _: Vec<T>) -> Result<()> { match self.0 {} }
    fn for_each(&mut self, _: impl FnMut(&T) -> Result<()>) -> Result<()> { match self.0 {} }
    fn retain(&mut self, _: impl FnMut(&T) -> bool) -> Result<()> { match self.0 {} }
    fn pop_front(&mut self) -> Result<Option<T>> { match self.0 {} }
    fn len(&mut self) -> Result<usize> { match self.0 {} }
    fn clear(&mut self) -> Result<()> { match self.0 {} }
}
macro_rules! m { ($n:ident) => { impl<MK, MV> MapAccess<MK, MV> for $n<'_, MK, MV> {
    fn with<R>(&mut self, _: &MK, _: impl FnOnce(Option<&MV>) -> R) -> Result<R> { match self.0 {} }
    fn put(&mut self, _: MK, _: MV) -> Result<()> { match self.0 {} }
    fn put_all(&mut self, _: Vec<(MK, MV)>) -> Result<()> { match self.0 {} }
    fn modify<R>(&mut self, _: &MK, _: impl FnOnce(&mut Option<MV>) -> R) -> Result<R> { match self.0 {} }
    fn remove(&mut self, _: &MK) -> Result<bool> { match self.0 {} }
    fn for_each(&mut self, _: impl FnMut(&MK, &MV) -> Result<()>) -> Result<()> { match self.0 {} }
    fn retain(&mut self, _: impl FnMut(&MK, &mut MV) -> bool) -> Result<()> { match self.0 {} }
    fn is_empty(&mut self) -> Result<bool> { match self.0 {} }
    fn clear(&mut self) -> Result<()> { match self.0 {} }
} } }
m!(ByteMap); m!(ByteSortedMap);
impl<MK, MV> SortedMapAccess<MK, MV> for ByteSortedMap<'_, MK, MV> {
    fn range(&mut self, _: Option<&MK>, _: Option<&MK>, _: impl FnMut(&MK, &MV) -> Result<()>) -> Result<()> { match self.0 {} }
    fn first(&mut self) -> Result<Option<(MK, MV)>> { match self.0 {} }
    fn last(&mut self) -> Result<Option<(MK, MV)>> { match self.0 {} }
    fn remove_range(&mut self, _: Option<&MK>, _: Option<&MK>) -> Result<()> { match self.0 {} }
}
impl<T> MergeAccess<T, T> for ByteReducing<'_, T> {
    fn add(&mut self, _: T) -> Result<()> { match self.0 {} }
    fn get(&mut self) -> Result<Option<T>> { match self.0 {} }
    fn clear(&mut self) -> Result<()> { match self.0 {} }
}
impl<A: Aggregator> MergeAccess<A::In, A::Out> for ByteAggregating<'_, A> {
    fn add(&mut self, _: A::In) -> Result<()> { match self.0 {} }
    fn get(&mut self) -> Result<Option<A::Out>> { match self.0 {} }
    fn clear(&mut self) -> Result<()> { match self.0 {} }
}
