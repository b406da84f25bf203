//! How a sink is exactly once over a broker whose prepared transactions can't be resumed; `docs/decisions/kafka.md` says why.
use std::collections::BTreeMap;

use bytes::Bytes;
use state_api::{CheckpointId, Error, ErrorKind, Result, StateType};

use super::kafka_records::{KafkaRecord, Records};
use crate::sink::CommitOutcome;

/// The records of one subtask for one checkpoint, as checkpoints hold them.
#[derive(Clone, Debug, PartialEq, Eq, StateType)]
pub struct KafkaTransaction {
    /// Transactional id under which it is written, whoever does it, and name of the consumer group whose offset says what was written.
    pub lineage: String,
    /// The checkpoint that ended it: grows within a lineage.
    pub sequence: u64,
    /// Number of records.
    pub count: u64,
    /// The records, encoded.
    pub records: Bytes,
}

/// What the protocol needs of a cluster.
pub(super) trait Broker {
    /// The right to write under a lineage.
    type Session: Session;

    /// Takes a lineage over: on return nobody who had it before can commit any more, what they left open is aborted, and
    /// what they committed shows in the mark.
    fn take_over(&self, lineage: &str) -> Result<Self::Session>;
}

/// Writes under one lineage. After an error the session is of no use; `Fenced` says that somebody took the lineage over.
pub(super) trait Session {
    /// Returns the greatest sequence that was committed.
    fn mark(&mut self) -> Result<Option<u64>>;

    /// Begins a transaction.
    fn begin(&mut self) -> Result<()>;

    /// Adds a record to the transaction.
    fn produce(&mut self, record: KafkaRecord) -> Result<()>;

    /// Adds the mark to the transaction.
    fn set_mark(&mut self, sequence: u64) -> Result<()>;

    /// Makes records and mark visible at once. After an error they may be visible.
    fn commit(&mut self) -> Result<()>;
}

/// Keeps the records of a subtask until their checkpoint is complete, and writes them then.
pub(super) struct Protocol<B: Broker> {
    broker: B,
    /// Names this writer, unlike any other start of any other: lineages are this and a slot.
    name: String,
    limit: u64,
    open: Vec<u8>,
    records: u64,
    /// Transactions that are not known to be committed, by slot.
    ended: BTreeMap<u32, Ended>,
    sessions: BTreeMap<u32, B::Session>,
}

struct Ended {
    sequence: u64,
    bytes: u64,
}

impl<B: Broker> Protocol<B> {
    pub(super) fn new(broker: B, name: String, limit: u64) -> Self {
        Self {
            broker,
            name,
            limit,
            open: Vec::new(),
            records: 0,
            ended: BTreeMap::new(),
            sessions: BTreeMap::new(),
        }
    }

    /// Adds a record to the open transaction.
    ///
    /// # Errors
    /// `LimitExceeded` when what waits for a checkpoint would be larger than allowed.
    pub(super) fn add(&mut self, record: &KafkaRecord) -> Result<()> {
        let before = self.open.len();
        record.encode(&mut self.open)?;
        let waiting = self.ended.values().map(|ended| ended.bytes).sum::<u64>();
        let bytes = waiting + self.open.len() as u64;
        if bytes > self.limit {
            self.open.truncate(before);
            return Err(Error::new(
                ErrorKind::LimitExceeded,
                "the records that wait for a checkpoint need more memory than the Kafka sink may use: checkpoint more often or raise its buffer",
            )
            .with("bytes", bytes)
            .with("limit", self.limit));
        }
        self.records += 1;
        Ok(())
    }

    /// Ends the open transaction, if it has records.
    pub(super) fn end(&mut self, checkpoint: CheckpointId) -> Option<KafkaTransaction> {
        if self.records == 0 {
            return None;
        }
        let records = Bytes::from(std::mem::take(&mut self.open));
        let count = std::mem::take(&mut self.records);
        // A slot holds one transaction at a time: the mark of its lineage is then about this one or an earlier, committed one.
        let slot = (0..).find(|slot| !self.ended.contains_key(slot))?;
        // As large as an offset can be: a job without checkpoints ends with the greatest id.
        let sequence = checkpoint.0.min(i64::MAX as u64);
        let ended = Ended {
            sequence,
            bytes: records.len() as u64,
        };
        self.ended.insert(slot, ended);
        Some(KafkaTransaction {
            lineage: self.lineage(slot),
            sequence,
            count,
            records,
        })
    }

    /// Makes a transaction visible, of this writer or of any other.
    ///
    /// # Errors
    /// What can't be helped by trying again.
    pub(super) fn commit(&mut self, transaction: &KafkaTransaction) -> Result<CommitOutcome> {
        let slot = self.slot(transaction);
        match self.write(slot, transaction) {
            Ok(outcome) => {
                if let Some(slot) = slot {
                    self.ended.remove(&slot);
                }
                Ok(outcome)
            }
            // Whether it is visible is seen at the next try, which takes the lineage over.
            Err(error) if matches!(error.kind(), ErrorKind::Retryable | ErrorKind::Fenced) => {
                Ok(CommitOutcome::RetryLater(named(error, transaction)))
            }
            Err(error) => Err(named(error, transaction)),
        }
    }

    fn write(
        &mut self,
        slot: Option<u32>,
        transaction: &KafkaTransaction,
    ) -> Result<CommitOutcome> {
        // Gone from the map until all went well: a session that failed is never used again.
        let kept = slot.and_then(|slot| self.sessions.remove(&slot));
        let mut session = match kept {
            // Nobody else wrote since: they would have fenced this session.
            Some(session) => session,
            None => {
                let mut session = self.broker.take_over(&transaction.lineage)?;
                if session
                    .mark()?
                    .is_some_and(|mark| mark >= transaction.sequence)
                {
                    self.keep(slot, session);
                    return Ok(CommitOutcome::AlreadyCommitted);
                }
                session
            }
        };
        session.begin()?;
        let mut count = 0;
        for record in Records::new(&transaction.records) {
            session.produce(record?)?;
            count += 1;
        }
        if count != transaction.count {
            return Err(Error::corrupt(
                "a transaction of a Kafka sink has another number of records than it says",
            ));
        }
        session.set_mark(transaction.sequence)?;
        session.commit()?;
        self.keep(slot, session);
        Ok(CommitOutcome::Committed)
    }

    fn keep(&mut self, slot: Option<u32>, session: B::Session) {
        if let Some(slot) = slot {
            self.sessions.insert(slot, session);
        }
    }

    fn lineage(&self, slot: u32) -> String {
        format!("{}.{slot}", self.name)
    }

    /// Returns the slot of a transaction that this writer ended and has not committed.
    fn slot(&self, transaction: &KafkaTransaction) -> Option<u32> {
        self.ended
            .iter()
            .find(|(slot, ended)| {
                ended.sequence == transaction.sequence
                    && self.lineage(**slot) == transaction.lineage
            })
            .map(|(slot, _)| *slot)
    }
}

fn named(error: Error, transaction: &KafkaTransaction) -> Error {
    error
        .with("transaction", &transaction.lineage)
        .with("ended by checkpoint", transaction.sequence)
        .with("records", transaction.count)
}
