use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers the side outputs of a process.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Tells side outputs apart, whatever their types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SideOutputId(u64);

/// Names a second output of an operator, with a type of its own.
///
/// Made when the job is built and kept by the operator, which writes to it by [`Out::emit_side`](super::Out::emit_side).
/// [`Stream::side_output`](crate::Stream::side_output) of the stream that the operator makes is the stream of what it wrote;
/// without such a call it is dropped. Copies name the same output.
pub struct SideOutput<T> {
    id: SideOutputId,
    types: PhantomData<fn(T)>,
}

impl<T> SideOutput<T> {
    /// Creates an output that is different from all others.
    #[must_use]
    pub fn new() -> Self {
        Self {
            id: SideOutputId(NEXT.fetch_add(1, Ordering::Relaxed)),
            types: PhantomData,
        }
    }

    /// Returns what tells it apart from others.
    #[must_use]
    pub fn id(self) -> SideOutputId {
        self.id
    }
}

impl<T> Default for SideOutput<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Clone for SideOutput<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for SideOutput<T> {}

impl<T> fmt::Debug for SideOutput<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SideOutput").field(&self.id.0).finish()
    }
}

/// A record on its way to a side output, its type hidden.
pub struct SideRecord<'a> {
    id: SideOutputId,
    /// An `Option` of the record.
    record: &'a mut dyn Any,
    boxed: fn(&mut dyn Any) -> Option<Box<dyn Any>>,
}

impl<'a> SideRecord<'a> {
    pub(crate) fn new<T: 'static>(side: SideOutput<T>, record: &'a mut Option<T>) -> Self {
        Self {
            id: side.id(),
            record,
            boxed: |record| {
                let record = record.downcast_mut::<Option<T>>()?.take()?;
                Some(Box::new(record))
            },
        }
    }

    /// Returns which output it is for.
    #[must_use]
    pub fn id(&self) -> SideOutputId {
        self.id
    }

    /// Returns the record if it is of type `T`.
    #[must_use]
    pub fn into<T: 'static>(self) -> Option<T> {
        self.record.downcast_mut::<Option<T>>()?.take()
    }

    /// Returns the record, whatever its type.
    #[must_use]
    pub fn into_any(self) -> Option<Box<dyn Any>> {
        (self.boxed)(self.record)
    }
}

impl fmt::Debug for SideRecord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SideRecord").field(&self.id.0).finish()
    }
}
