//! What the operators of a subtask froze, on its way to the store: all kinds of state of one operator together.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use checkpoint_storage::MemoryCheckpointStorage;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, pending};
use runtime_core::task::{OperatorParts, SubtaskSnapshot};
use state_api::{
    CancelToken, CheckpointId, ErrorKind, Executor, KeyGroupOffsets, KeyGroupRange,
    KeyGroupsHandle, KeyedHandle, OperatorStateHandle, OperatorUid, PersistContext, Result,
    Snapshot, StateHandle,
};

struct Inline;

impl Executor for Inline {
    fn spawn_io(&self, _: BoxFuture<'static, ()>) {
        panic!("no part asks for it");
    }

    fn spawn_cpu(&self, work: Box<dyn FnOnce() + Send>) {
        work();
    }
}

/// A part that gives a handle at once, or never; counts those that exist.
struct Part<H> {
    handle: Option<H>,
    alive: Arc<AtomicUsize>,
}

impl<H> Part<H> {
    fn new(handle: Option<H>, alive: &Arc<AtomicUsize>) -> Box<Self> {
        alive.fetch_add(1, Ordering::Relaxed);
        Box::new(Self {
            handle,
            alive: Arc::clone(alive),
        })
    }
}

impl<H> Drop for Part<H> {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<H: Send + 'static> Snapshot<H> for Part<H> {
    fn persist(mut self: Box<Self>, _: PersistContext) -> BoxFuture<'static, Result<H>> {
        Box::pin(async move {
            match self.handle.take() {
                Some(handle) => Ok(handle),
                None => pending().await,
            }
        })
    }
}

fn bytes(text: &'static str) -> StateHandle {
    StateHandle::Inline(Bytes::from_static(text.as_bytes()))
}

fn groups(text: &'static str) -> KeyGroupsHandle {
    KeyGroupsHandle {
        format: "test".into(),
        offsets: KeyGroupOffsets::new(KeyGroupRange::EMPTY),
        bytes: bytes(text),
        states: vec![],
    }
}

fn list(text: &'static str) -> OperatorStateHandle {
    OperatorStateHandle {
        states: vec![],
        bytes: bytes(text),
    }
}

/// One operator with all four kinds of state; the third one may hang.
fn snapshot(hangs: bool, alive: &Arc<AtomicUsize>) -> SubtaskSnapshot {
    let managed = (!hangs).then(|| Some(list("operator")));
    let mut set = SubtaskSnapshot::new();
    let parts = OperatorParts {
        keyed: Some(Part::new(
            Some(vec![KeyedHandle::KeyGroups(groups("keyed"))]),
            alive,
        )),
        raw_keyed: Some(Part::new(Some(groups("raw keyed")), alive)),
        operator: Some(Part::new(managed, alive)),
        raw_operator: Some(Part::new(Some(list("raw operator")), alive)),
        ..OperatorParts::default()
    };
    set.add(OperatorUid::new("all").unwrap(), parts);
    set
}

fn context(cancel: &CancelToken) -> PersistContext {
    PersistContext {
        checkpoint: CheckpointId(1),
        storage: Arc::new(MemoryCheckpointStorage::new(1 << 20)),
        cancel: cancel.clone(),
        executor: Arc::new(Inline),
        spill_dir: None,
    }
}

#[test]
fn k_620_the_four_kinds_of_an_operators_state_are_written_together() {
    let alive = Arc::default();
    let written = snapshot(false, &alive)
        .persist(context(&CancelToken::new()))
        .now_or_never()
        .unwrap()
        .unwrap();
    assert_eq!(written.len(), 1);
    let (uid, state) = &written[0];
    assert_eq!(uid.as_str(), "all");
    assert_eq!(
        state.managed_keyed,
        [KeyedHandle::KeyGroups(groups("keyed"))]
    );
    assert_eq!(state.raw_keyed, [groups("raw keyed")]);
    assert_eq!(state.managed_operator, [list("operator")]);
    assert_eq!(state.raw_operator, [list("raw operator")]);
    assert_eq!(alive.load(Ordering::Relaxed), 0);
}

#[test]
fn k_620_the_four_kinds_are_cancelled_together_and_what_was_written_is_named() {
    let (alive, cancel) = (Arc::default(), CancelToken::new());
    let mut writing = Box::pin(snapshot(true, &alive).persist(context(&cancel)));
    assert!(
        (&mut writing).now_or_never().is_none(),
        "the third one hangs"
    );
    assert!(alive.load(Ordering::Relaxed) > 0);
    cancel.cancel();
    let failed = writing.now_or_never().unwrap().unwrap_err();
    assert_eq!(failed.error.kind(), ErrorKind::Cancelled);
    assert_eq!(failed.error.context("operator"), Some("all"));
    assert_eq!(alive.load(Ordering::Relaxed), 0, "none goes on");
    let [(_, orphans)] = &failed.orphans[..] else {
        panic!("{:?}", failed.orphans);
    };
    assert_eq!(orphans.managed_keyed.len() + orphans.raw_keyed.len(), 2);
    assert!(orphans.managed_operator.is_empty() && orphans.raw_operator.is_empty());
}

#[test]
fn k_620_a_snapshot_that_is_thrown_away_or_cancelled_before_it_is_written_lets_go_of_all_kinds() {
    let (alive, cancel) = (Arc::default(), CancelToken::new());
    drop(snapshot(true, &alive));
    assert_eq!(alive.load(Ordering::Relaxed), 0);
    cancel.cancel();
    let failed = snapshot(false, &alive)
        .persist(context(&cancel))
        .now_or_never()
        .unwrap()
        .unwrap_err();
    assert_eq!(failed.error.kind(), ErrorKind::Cancelled);
    assert!(failed.orphans.is_empty());
    assert_eq!(alive.load(Ordering::Relaxed), 0);
}
