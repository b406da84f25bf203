use std::sync::Arc;

use state_api::{CheckpointId, Error, ErrorKind, Result};

use super::kafka_broker::TopicBroker;
use super::kafka_protocol::Protocol;
use super::{KafkaRecord, KafkaTransaction};
use crate::Record;
use crate::kafka::KafkaCluster;
use crate::sink::{CommitOutcome, PreCommitted, SinkContext, TwoPhaseSink, TwoPhaseWriter};

/// What Kafka adds to a record, at most: a size that is checked here is never refused there.
const OVERHEAD: usize = 512;

type Serialise<T> = Arc<dyn Fn(&T) -> Result<KafkaRecord> + Send + Sync>;

/// Writes records to a topic, each once for consumers with `isolation.level=read_committed`.
///
/// The records of a checkpoint wait in memory and in the checkpoint; when it is complete one Kafka transaction writes them, together
/// with a note that they were written. So a record is visible a checkpoint interval later, and what comes between two
/// checkpoints must fit into [`buffer`](Self::buffer) and is part of the checkpoint's size.
///
/// A job without checkpoints writes everything at its end. The topic must exist.
///
/// The note is an offset of a consumer group that is made for each start of the sink. Brokers forget groups after
/// `offsets.retention.minutes` (7 days unless set): a checkpoint that is older than that is not to be restored with this
/// sink, since what its transactions wrote would be written again.
///
/// Batches are compressed with lz4 unless the cluster's option `compression.type` says otherwise.
///
/// ```
/// use runtime_core::kafka::KafkaCluster;
/// use runtime_core::sinks::{KafkaRecord, KafkaSink};
///
/// let cluster = KafkaCluster::new("localhost:9092");
/// let counts = KafkaSink::new(cluster, "counts", |(word, n): &(String, u64)| {
///     Ok(KafkaRecord::new(n.to_string()).key(word.as_str()))
/// });
/// # let _ = counts;
/// ```
pub struct KafkaSink<T> {
    broker: TopicBroker,
    serialise: Serialise<T>,
    buffer: u64,
    random: Arc<dyn Fn() -> u64 + Send + Sync>,
}

impl<T: Record> KafkaSink<T> {
    /// Creates a sink that writes what a function makes of each record.
    #[must_use]
    pub fn new(
        cluster: KafkaCluster,
        topic: impl Into<String>,
        serialise: impl Fn(&T) -> Result<KafkaRecord> + Send + Sync + 'static,
    ) -> Self {
        Self {
            broker: TopicBroker {
                cluster,
                topic: topic.into(),
            },
            serialise: Arc::new(serialise),
            buffer: 64 << 20,
            random: Arc::new(|| uuid::Uuid::new_v4().as_u64_pair().0),
        }
    }

    /// Sets how many bytes of records may wait in a subtask; 64 MiB unless set. The job fails at the record that is past it.
    #[must_use]
    pub fn buffer(mut self, bytes: u64) -> Self {
        self.buffer = bytes;
        self
    }

    /// Sets where the random part of transactional ids comes from.
    #[must_use]
    pub fn random(mut self, random: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        self.random = Arc::new(random);
        self
    }

    fn max_record(&self) -> Result<usize> {
        let bytes = match self.broker.cluster.get("message.max.bytes") {
            None => 1_000_000,
            Some(text) => text.parse().map_err(|_| {
                Error::config("`message.max.bytes` is not a number").with("value", text)
            })?,
        };
        Ok(usize::saturating_sub(bytes, OVERHEAD))
    }
}

impl<T> Clone for KafkaSink<T> {
    fn clone(&self) -> Self {
        Self {
            broker: self.broker.clone(),
            serialise: Arc::clone(&self.serialise),
            buffer: self.buffer,
            random: Arc::clone(&self.random),
        }
    }
}

impl<T> std::fmt::Debug for KafkaSink<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaSink")
            .field("broker", &self.broker)
            .field("buffer", &self.buffer)
            .finish_non_exhaustive()
    }
}

impl<T: Record> TwoPhaseSink for KafkaSink<T> {
    type In = T;
    type Transaction = KafkaTransaction;
    type Writer = KafkaSinkWriter<T>;

    fn writer(&self, cx: &SinkContext) -> Result<KafkaSinkWriter<T>> {
        // Options are checked before the first record, not at the first commit.
        self.broker.cluster.config(&[], &[])?;
        let name = format!(
            "holdfast.{}.{}.{}.{}.{}.{:012x}",
            cx.job,
            cx.uid,
            cx.attempt.0,
            cx.run,
            cx.subtask.index,
            (self.random)() & 0xffff_ffff_ffff
        );
        Ok(KafkaSinkWriter {
            broker: self.broker.clone(),
            partitions: None,
            protocol: Protocol::new(self.broker.clone(), name, self.buffer),
            serialise: Arc::clone(&self.serialise),
            max_record: self.max_record()?,
        })
    }
}

/// Writes the records of one subtask of a [`KafkaSink`].
pub struct KafkaSinkWriter<T> {
    protocol: Protocol<TopicBroker>,
    broker: TopicBroker,
    /// Number of partitions of the topic, once a record named one.
    partitions: Option<i32>,
    serialise: Serialise<T>,
    max_record: usize,
}

impl<T> KafkaSinkWriter<T> {
    /// Refuses what the cluster would refuse: later it would be part of a checkpoint that can't be committed.
    fn check(&mut self, record: &KafkaRecord) -> Result<()> {
        let of_header =
            |(name, value): &(String, Option<Vec<u8>>)| name.len() + size(value.as_ref());
        let headers: usize = record.headers.iter().map(of_header).sum();
        let bytes = size(record.key.as_ref()) + size(record.payload.as_ref()) + headers;
        if bytes > self.max_record {
            return Err(Error::new(
                ErrorKind::LimitExceeded,
                "a record is larger than a message to Kafka may be: raise `message.max.bytes` here and at the topic",
            )
            .with("bytes", bytes)
            .with("limit", self.max_record));
        }
        let Some(partition) = record.partition else {
            return Ok(());
        };
        let partitions = match self.partitions {
            Some(partitions) => partitions,
            None => *self.partitions.insert(self.broker.partitions()?),
        };
        if !(0..partitions).contains(&partition) {
            return Err(
                Error::user("a record is for a partition that the topic does not have")
                    .with("topic", &self.broker.topic)
                    .with("partition", partition)
                    .with("partitions", partitions),
            );
        }
        Ok(())
    }
}

impl<T: 'static> TwoPhaseWriter for KafkaSinkWriter<T> {
    type In = T;
    type Transaction = KafkaTransaction;

    fn write(&mut self, record: T, time_ms: Option<i64>) -> Result<()> {
        let record = (self.serialise)(&record)?;
        self.check(&record)?;
        self.protocol.add(&record.stamped(time_ms))
    }

    fn pre_commit(
        &mut self,
        checkpoint: CheckpointId,
    ) -> Result<Option<PreCommitted<KafkaTransaction>>> {
        Ok(self
            .protocol
            .end(checkpoint)
            .map(|transaction| PreCommitted {
                transaction,
                harden: None,
            }))
    }

    fn commit(&mut self, transaction: &KafkaTransaction) -> Result<CommitOutcome> {
        self.protocol.commit(transaction)
    }

    fn recover_and_abort(&mut self, _: &KafkaTransaction) -> Result<()> {
        // Nothing is written before its checkpoint is complete.
        Ok(())
    }
}

fn size(bytes: Option<&Vec<u8>>) -> usize {
    bytes.map_or(0, Vec::len)
}

impl<T> std::fmt::Debug for KafkaSinkWriter<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaSinkWriter")
            .field("max_record", &self.max_record)
            .finish_non_exhaustive()
    }
}
