use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use state_api::{
    CheckpointId, CheckpointStorage, CheckpointStream, Error, ErrorKind, ObjectHandle,
    ObjectReader, Result, Scope, StateHandle,
};

/// The calls of a storage that can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Call {
    /// Bytes are appended to a stream.
    Write,
    /// A stream is flushed.
    Flush,
    /// A stream is finished.
    Finish,
    /// A part of an object is read.
    ReadRange,
    /// An object is opened.
    Open,
    /// The next bytes of an object are read.
    Next,
}

/// What goes wrong at a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call fails with an error of this kind and does nothing.
    Fail(ErrorKind),
    /// The call does its work, but its answer is lost: the caller sees a retryable error.
    LoseAnswer,
    /// The call does not go on before [`FaultyStorage::release`].
    Hang,
    /// The second half of the bytes is lost and nobody is told. Calls without bytes are as usual.
    Truncate,
    /// The bytes arrive twice. Calls without bytes are as usual.
    Duplicate,
    /// One bit in the middle of the bytes is the wrong one. Calls without bytes are as usual.
    FlipBit,
}

impl Fault {
    /// One of each.
    pub const ALL: [Self; 6] = [
        Self::Fail(ErrorKind::Retryable),
        Self::LoseAnswer,
        Self::Hang,
        Self::Truncate,
        Self::Duplicate,
        Self::FlipBit,
    ];

    fn damage(self, bytes: Bytes) -> Bytes {
        let middle = bytes.len() / 2;
        match self {
            Self::Truncate => bytes.slice(..middle),
            Self::Duplicate => [&bytes[..], &bytes[..]].concat().into(),
            Self::FlipBit => {
                let mut bytes = bytes.to_vec();
                if let Some(byte) = bytes.get_mut(middle) {
                    *byte ^= 0x10;
                }
                bytes.into()
            }
            Self::Fail(_) | Self::LoseAnswer | Self::Hang => bytes,
        }
    }
}

#[derive(Debug, Default)]
struct Plan {
    calls: u64,
    calls_of: BTreeMap<Call, u64>,
    at: BTreeMap<u64, Fault>,
    at_call: BTreeMap<(Call, u64), Fault>,
    /// Applied to every call of a kind.
    always: BTreeMap<Call, Fault>,
    hit: u64,
    shut: bool,
    hanging: usize,
    wakers: Vec<Waker>,
}

/// A storage that goes wrong where a test wants it to, over one that works. Clones share the plan.
///
/// Calls are numbered from 1 in the order in which they are made, over all streams and readers. `create`, `position` and
/// `abort` can't fail and are not counted.
#[derive(Clone)]
pub struct FaultyStorage {
    inner: Arc<dyn CheckpointStorage>,
    plan: Arc<Mutex<Plan>>,
}

impl FaultyStorage {
    /// Wraps a storage; nothing goes wrong yet.
    #[must_use]
    pub fn new(inner: Arc<dyn CheckpointStorage>) -> Self {
        Self {
            inner,
            plan: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the `n`-th call from now on go wrong, of whatever kind it is; the next one is the first.
    pub fn fail_nth(&self, n: u64, fault: Fault) {
        let mut plan = self.lock();
        let number = plan.calls + n;
        plan.shut |= fault == Fault::Hang;
        plan.at.insert(number, fault);
    }

    /// Lets the `n`-th call of a kind from now on go wrong.
    pub fn fail_nth_of(&self, call: Call, n: u64, fault: Fault) {
        let mut plan = self.lock();
        let number = plan.calls_of.get(&call).copied().unwrap_or(0) + n;
        plan.shut |= fault == Fault::Hang;
        plan.at_call.insert((call, number), fault);
    }

    /// Lets every call of a kind go wrong until [`heal`](Self::heal).
    pub fn fail_all(&self, call: Call, fault: Fault) {
        let mut plan = self.lock();
        plan.shut |= fault == Fault::Hang;
        plan.always.insert(call, fault);
    }

    /// Forgets all faults that have not happened, and lets calls that hang go on.
    pub fn heal(&self) {
        let mut plan = self.lock();
        plan.at.clear();
        plan.at_call.clear();
        plan.always.clear();
        drop(plan);
        self.release();
    }

    /// Lets calls that hang go on.
    pub fn release(&self) {
        let mut plan = self.lock();
        plan.shut = false;
        let wakers = std::mem::take(&mut plan.wakers);
        drop(plan);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Returns the number of calls so far.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.lock().calls
    }

    /// Returns the number of faults that have happened.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.lock().hit
    }

    /// Returns the number of calls that hang now.
    #[must_use]
    pub fn hanging(&self) -> usize {
        self.lock().hanging
    }

    /// Counts a call and finds what goes wrong with it.
    fn count(&self, call: Call) -> Option<Fault> {
        let mut plan = self.lock();
        plan.calls += 1;
        let number = plan.calls;
        let of_kind = plan.calls_of.entry(call).or_default();
        *of_kind += 1;
        let of_kind = *of_kind;
        let fault = plan.at.remove(&number);
        let fault = fault.or_else(|| plan.at_call.remove(&(call, of_kind)));
        let fault = fault.or_else(|| plan.always.get(&call).copied());
        plan.hit += u64::from(fault.is_some());
        fault
    }

    /// Does what comes before the call proper: failing and hanging.
    async fn before(&self, fault: Option<Fault>) -> Result<()> {
        match fault {
            Some(Fault::Fail(kind)) => Err(Error::new(kind, "the storage was told to fail")),
            Some(Fault::Hang) => {
                let _hanging = Hanging::new(self);
                std::future::poll_fn(|cx| {
                    let mut plan = self.lock();
                    if !plan.shut {
                        return Poll::Ready(());
                    }
                    plan.wakers.push(cx.waker().clone());
                    Poll::Pending
                })
                .await;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Counts a call as hanging while it lives, also when it is cancelled.
struct Hanging<'a>(&'a FaultyStorage);

impl<'a> Hanging<'a> {
    fn new(storage: &'a FaultyStorage) -> Self {
        storage.lock().hanging += 1;
        Self(storage)
    }
}

impl Drop for Hanging<'_> {
    fn drop(&mut self) {
        self.0.lock().hanging -= 1;
    }
}

fn answer<T>(fault: Option<Fault>, value: T) -> Result<T> {
    match fault {
        Some(Fault::LoseAnswer) => Err(Error::retryable("the storage's answer was lost")),
        _ => Ok(value),
    }
}

fn damaged(fault: Option<Fault>, bytes: Bytes) -> Bytes {
    match fault {
        Some(fault) => fault.damage(bytes),
        None => bytes,
    }
}

impl CheckpointStorage for FaultyStorage {
    fn create(&self, checkpoint: CheckpointId, scope: Scope) -> Box<dyn CheckpointStream> {
        Box::new(FaultyStream {
            inner: self.inner.create(checkpoint, scope),
            storage: self.clone(),
        })
    }

    fn read_range<'a>(
        &'a self,
        object: &'a ObjectHandle,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Bytes>> {
        let fault = self.count(Call::ReadRange);
        Box::pin(async move {
            self.before(fault).await?;
            let bytes = self.inner.read_range(object, range).await?;
            answer(fault, damaged(fault, bytes))
        })
    }

    fn open<'a>(
        &'a self,
        object: &'a ObjectHandle,
    ) -> BoxFuture<'a, Result<Box<dyn ObjectReader>>> {
        let fault = self.count(Call::Open);
        Box::pin(async move {
            self.before(fault).await?;
            let inner = self.inner.open(object).await?;
            answer(
                fault,
                Box::new(FaultyReader {
                    inner,
                    storage: self.clone(),
                }) as Box<dyn ObjectReader>,
            )
        })
    }

    fn discard(&self, object: &ObjectHandle) {
        self.inner.discard(object);
    }
}

struct FaultyReader {
    inner: Box<dyn ObjectReader>,
    storage: FaultyStorage,
}

impl ObjectReader for FaultyReader {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>>> {
        let fault = self.storage.count(Call::Next);
        Box::pin(async move {
            self.storage.before(fault).await?;
            let chunk = self.inner.next().await?;
            answer(fault, chunk.map(|chunk| damaged(fault, chunk)))
        })
    }
}

struct FaultyStream {
    inner: Box<dyn CheckpointStream>,
    storage: FaultyStorage,
}

impl CheckpointStream for FaultyStream {
    fn inline_at_most(&mut self, bytes: u64) {
        self.inner.inline_at_most(bytes);
    }

    fn for_later(&mut self) {
        self.inner.for_later();
    }

    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        let fault = self.storage.count(Call::Write);
        Box::pin(async move {
            self.storage.before(fault).await?;
            self.inner.write(damaged(fault, bytes)).await?;
            answer(fault, ())
        })
    }

    fn position(&self) -> u64 {
        self.inner.position()
    }

    fn flush(&mut self) -> BoxFuture<'_, Result<()>> {
        let fault = self.storage.count(Call::Flush);
        Box::pin(async move {
            self.storage.before(fault).await?;
            self.inner.flush().await?;
            answer(fault, ())
        })
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Option<StateHandle>>> {
        let fault = self.storage.count(Call::Finish);
        let Self { inner, storage } = *self;
        Box::pin(async move {
            storage.before(fault).await?;
            let handle = inner.finish().await?;
            answer(fault, handle)
        })
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, ()> {
        self.inner.abort()
    }
}
