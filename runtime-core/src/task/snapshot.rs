use std::pin::pin;
use std::sync::Arc;

use checkpoint_storage::InputEnd;
use futures_util::future::{Either, select};
use managed_state::raw::RawStreams;
use state_api::{
    Error, KeyGroupsHandle, KeyedHandle, OperatorSnapshot, OperatorStateHandle, OperatorUid,
    PersistContext, Result, Snapshot,
};

use super::{Hardening, SnapshotWork};
use crate::alignment::AlignmentReport;
use crate::chain::in_flight::RecordsInFlight;

/// What one operator froze at a cut.
#[derive(Default)]
pub struct OperatorParts {
    /// Keyed state and timers.
    pub keyed: Option<Box<dyn Snapshot<Vec<KeyedHandle>>>>,
    /// Bytes per key group.
    pub raw_keyed: Option<Box<dyn Snapshot<KeyGroupsHandle>>>,
    /// Operator state.
    pub operator: Option<Box<dyn Snapshot<Option<OperatorStateHandle>>>>,
    /// Bytes in partitions.
    pub raw_operator: Option<Box<dyn Snapshot<OperatorStateHandle>>>,
    /// What is left to do until the transactions of a sink survive a crash.
    pub harden: Vec<Arc<Hardening>>,
    /// What an operator handed over that must succeed as well before the checkpoint may complete.
    pub work: Vec<SnapshotWork>,
    /// What it had been told of the end of its input.
    pub input_end: InputEnd,
}

impl OperatorParts {
    /// Adds the raw streams that an operator's hook wrote.
    pub(crate) fn add_raw(&mut self, raw: RawStreams) -> Result<()> {
        let raw = raw.finish()?;
        self.raw_keyed = raw.keyed;
        self.raw_operator = raw.operator;
        Ok(())
    }

    /// Writes everything, in the order keyed, raw keyed, operator, raw operator; `done` keeps what is durable if a later part fails.
    async fn persist(self, cx: &PersistContext, done: &mut OperatorSnapshot) -> Result<()> {
        for due in self.harden {
            due.run(cx.clone()).await?;
        }
        for work in self.work {
            work.run(cx.clone()).await?;
        }
        if let Some(keyed) = self.keyed {
            done.managed_keyed = keyed.persist(cx.clone()).await?;
        }
        if let Some(raw) = self.raw_keyed {
            done.raw_keyed.push(raw.persist(cx.clone()).await?);
        }
        if let Some(operator) = self.operator {
            done.managed_operator
                .extend(operator.persist(cx.clone()).await?);
        }
        if let Some(raw) = self.raw_operator {
            done.raw_operator.push(raw.persist(cx.clone()).await?);
        }
        Ok(())
    }
}

/// What the operators of one subtask froze at a cut.
///
/// Dropping it releases what is frozen.
#[derive(Default)]
pub struct SubtaskSnapshot {
    operators: Vec<(OperatorUid, OperatorParts)>,
    in_flight: Option<RecordsInFlight>,
}

/// A snapshot that did not become durable as a whole.
#[derive(Debug)]
pub struct FailedSnapshot {
    /// What went wrong.
    pub error: Error,
    /// What was durable already: somebody must delete it.
    pub orphans: Vec<(OperatorUid, OperatorSnapshot)>,
}

impl FailedSnapshot {
    pub(crate) fn without_orphans(error: Error) -> Self {
        Self {
            error,
            orphans: Vec::new(),
        }
    }
}

impl SubtaskSnapshot {
    /// Creates an empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the parts of an operator.
    pub fn add(&mut self, uid: OperatorUid, parts: OperatorParts) {
        self.operators.push((uid, parts));
    }

    /// Adds the records that an unaligned checkpoint overtook; they are complete once its last barrier is in.
    pub(crate) fn add_in_flight(&mut self, records: RecordsInFlight) {
        self.in_flight = Some(records);
    }

    /// Takes them out again, to be written after the operators' state.
    pub(crate) fn take_in_flight(&mut self) -> Option<RecordsInFlight> {
        self.in_flight.take()
    }

    /// Returns the operators that had been told something of the end of their input.
    #[must_use]
    pub fn input_ends(&self) -> Vec<(OperatorUid, InputEnd)> {
        let told = self
            .operators
            .iter()
            .map(|(uid, parts)| (uid, parts.input_end));
        let told = told.filter(|(_, told)| *told != InputEnd::Ahead);
        told.map(|(uid, told)| (uid.clone(), told)).collect()
    }

    /// Takes out what must be made durable beside state.
    pub(crate) fn take_harden(&mut self) -> Vec<Arc<Hardening>> {
        self.operators
            .iter_mut()
            .flat_map(|(_, parts)| std::mem::take(&mut parts.harden))
            .collect()
    }

    /// Writes everything and returns the handles by operator.
    ///
    /// # Errors
    /// Those of the parts, `Cancelled` after the context's token is set; with what was durable by then.
    pub async fn persist(
        self,
        cx: PersistContext,
    ) -> std::result::Result<Vec<(OperatorUid, OperatorSnapshot)>, FailedSnapshot> {
        let mut done = Vec::with_capacity(self.operators.len());
        for (uid, parts) in self.operators {
            let mut snapshot = OperatorSnapshot::default();
            let result = unless_cancelled(&cx, parts.persist(&cx, &mut snapshot)).await;
            let named = uid.clone();
            done.push((uid, snapshot));
            if let Err(error) = result {
                done.retain(|(_, snapshot)| !snapshot.is_empty());
                return Err(FailedSnapshot {
                    error: error.with("operator", named),
                    orphans: done,
                });
            }
        }
        Ok(done)
    }
}

/// Writes what a subtask froze, then the records that its checkpoint overtook; returns also what the alignment cost in the end.
///
/// # Errors
/// As [`SubtaskSnapshot::persist`].
pub(crate) async fn persist_all(
    mut set: SubtaskSnapshot,
    cx: PersistContext,
) -> std::result::Result<
    (
        Vec<(OperatorUid, OperatorSnapshot)>,
        Option<AlignmentReport>,
    ),
    FailedSnapshot,
> {
    let in_flight = set.take_in_flight();
    let mut done = set.persist(cx.clone()).await?;
    let Some(records) = in_flight else {
        return Ok((done, None));
    };
    let uid = records.uid().clone();
    let mut written = OperatorSnapshot::default();
    let result = unless_cancelled(&cx, records.persist(&cx, &mut written)).await;
    match done.iter_mut().find(|(known, _)| *known == uid) {
        Some((_, snapshot)) => {
            snapshot.in_flight_keyed = written.in_flight_keyed;
            snapshot.in_flight = written.in_flight;
        }
        None => done.push((uid.clone(), written)),
    }
    match result {
        Ok(report) => Ok((done, Some(report))),
        Err(error) => {
            done.retain(|(_, snapshot)| !snapshot.is_empty());
            Err(FailedSnapshot {
                error: error.with("operator", uid),
                orphans: done,
            })
        }
    }
}

async fn unless_cancelled<T>(
    cx: &PersistContext,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    cx.cancel.check()?;
    match select(pin!(work), cx.cancel.cancelled()).await {
        Either::Left((result, _)) => result,
        // Dropped where it stood: streams remove what they wrote.
        Either::Right(_) => Err(Error::cancelled("the snapshot was aborted")),
    }
}
