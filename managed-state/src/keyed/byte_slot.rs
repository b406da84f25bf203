use std::any::Any;
use state_api::access::Aggregator;
use state_api::*;
use super::byte_stub::*;
use super::context::KeyedContext;
use super::live_timers::Popped;
use super::stamp::Expiry;

pub(crate) type ByteExtra = Box<dyn Any + Send>;
pub(crate) struct ByteSlot;
pub(crate) struct ByteSlots { pub(crate) store: Box<dyn ByteStore>, pub(crate) slots: Vec<ByteSlot> }
fn no<T>() -> Result<T> { Err(Error::unsupported("byte stores")) }
impl ByteSlots {
    pub(crate) fn new(store: Box<dyn ByteStore>, _: &KeyedContext) -> Self { Self { store, slots: Vec::new() } }
    pub(crate) fn bind<K: StateKey>(&mut self, _: &K, _: KeyGroup) {}
    pub(crate) async fn restore(&mut self, _: &[KeyedHandle], _: &RestoreContext) -> Result<()> { no() }
    pub(crate) fn snapshot(&mut self, _: &SnapshotRequest) -> Result<Box<dyn Snapshot<Vec<KeyedHandle>>>> { no() }
    pub(crate) fn entries(&self, _: u32) -> Result<u64> { no() }
    pub(crate) fn register(&mut self, _: StateMeta, _: Expiry, _: ByteExtra, _: i64) -> Result<usize> { no() }
    pub(crate) fn value<T: StateType, N: StateKey>(&mut self, _: usize, _: &N) -> Result<ByteValue<'_, T>> { no() }
    pub(crate) fn list<T: StateType, N: StateKey>(&mut self, _: usize, _: &N) -> Result<ByteList<'_, T>> { no() }
    pub(crate) fn map<MK: StateKey, MV: StateType, N: StateKey>(&mut self, _: usize, _: &N) -> Result<ByteMap<'_, MK, MV>> { no() }
    pub(crate) fn sorted_map<MK: OrderedKey, MV: StateType, N: StateKey>(&mut self, _: usize, _: &N) -> Result<ByteSortedMap<'_, MK, MV>> { no() }
    pub(crate) fn reducing<T: StateType, N: StateKey>(&mut self, _: usize, _: &N) -> Result<ByteReducing<'_, T>> { no() }
    pub(crate) fn aggregating<A: Aggregator, N: StateKey>(&mut self, _: usize, _: &N) -> Result<ByteAggregating<'_, A>> { no() }
    pub(crate) fn set_timer<N: StateKey>(&mut self, _: usize, _: i64, _: &N) -> Result<bool> { no() }
    pub(crate) fn remove_timer<N: StateKey>(&mut self, _: usize, _: i64, _: &N) -> Result<bool> { no() }
    pub(crate) fn next_timer(&mut self, _: usize) -> Result<Option<i64>> { no() }
    pub(crate) fn pop_due(&mut self, _: usize, _: i64) -> Result<Option<Popped>> { no() }
}
