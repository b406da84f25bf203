use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::{BorrowedMessage, Headers, Message};
use rdkafka::{ClientContext, Offset, TopicPartitionList};
use state_api::{CheckpointId, Clock, Error, Result};

use super::kafka_source::KafkaSource;
use super::kafka_split::KafkaSplit;
use crate::Record;
use crate::record::NO_TIMESTAMP;
use crate::source::{SourceContext, SourceOutput, SourceReader, SourceStatus};

pub(super) type Deserialise<T> = Arc<dyn Fn(&KafkaMessage<'_>) -> Result<Option<T>> + Send + Sync>;

/// The client calls when there is something to read; this is for the case that the call was lost.
const LOOK_AGAIN_MS: i64 = 200;

/// Records and events that one call handles at most, also when none of them is emitted.
const TURN: usize = 4096;

/// A record as it is in a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaMessage<'a> {
    /// The topic.
    pub topic: &'a str,
    /// The partition.
    pub partition: i32,
    /// The offset in the partition.
    pub offset: i64,
    /// Milliseconds since 1970, if the record has a time.
    pub timestamp_ms: Option<i64>,
    /// The key.
    pub key: Option<&'a [u8]>,
    /// The value; `None` is a tombstone.
    pub payload: Option<&'a [u8]>,
    /// Names and values.
    pub headers: Vec<(&'a str, Option<&'a [u8]>)>,
}

impl<'a> KafkaMessage<'a> {
    fn of(message: &'a BorrowedMessage<'_>) -> Self {
        let headers = message.headers().map_or_else(Vec::new, |headers| {
            headers.iter().map(|h| (h.key, h.value)).collect()
        });
        Self {
            topic: message.topic(),
            partition: message.partition(),
            offset: message.offset(),
            timestamp_ms: message.timestamp().to_millis(),
            key: message.key(),
            payload: message.payload(),
            headers,
        }
    }
}

/// Says what came of commits that nobody waited for.
struct Commits;

impl ClientContext for Commits {}

impl ConsumerContext for Commits {
    fn commit_callback(&self, result: KafkaResult<()>, _: &TopicPartitionList) {
        if let Err(error) = result {
            tracing::warn!(%error, "offsets can't be committed to Kafka: the lag shown there is too large");
        }
    }
}

/// Reads the partitions that one subtask was given.
pub struct KafkaReader<T> {
    source: KafkaSource<T>,
    /// Counted so that a record can be looked at while the reader changes.
    consumer: Rc<BaseConsumer<Commits>>,
    clock: Arc<dyn Clock>,
    splits: Vec<KafkaSplit>,
    /// Positions at checkpoints that are not complete yet, for those who commit them.
    taken: VecDeque<(CheckpointId, Vec<(i32, i64)>)>,
    started: bool,
    selected: Option<i32>,
}

impl<T: Record> KafkaReader<T> {
    pub(super) fn new(
        source: KafkaSource<T>,
        cx: &SourceContext,
        splits: Vec<KafkaSplit>,
    ) -> Result<Self> {
        let config = source.cluster.config(
            &[
                ("isolation.level", "read_committed"),
                // What is fetched ahead is memory of each subtask.
                ("queued.max.messages.kbytes", "16384"),
            ],
            &[
                ("group.id", source.group.as_deref().unwrap_or("holdfast")),
                ("enable.auto.commit", "false"),
                ("enable.auto.offset.store", "false"),
                (
                    "enable.partition.eof",
                    if source.bounded { "true" } else { "false" },
                ),
                // Records that are not there any more are an error, not a gap.
                ("auto.offset.reset", "error"),
            ],
        )?;
        let failed = |e| source.failed("a Kafka consumer can't be made", e);
        let mut consumer: BaseConsumer<Commits> =
            config.create_with_context(Commits).map_err(failed)?;
        let waker = cx.waker.clone();
        consumer.set_nonempty_callback(move || waker.wake_by_ref());
        let reader = Self {
            source,
            consumer: Rc::new(consumer),
            clock: Arc::clone(&cx.clock),
            splits,
            taken: VecDeque::new(),
            started: false,
            selected: None,
        };
        reader.assign()?;
        Ok(reader)
    }

    /// Asks for the unfinished splits.
    fn assign(&self) -> Result<()> {
        let failed = |e| self.source.failed("partitions can't be assigned", e);
        let mut list = TopicPartitionList::new();
        for split in self.splits.iter().filter(|split| !split.is_finished()) {
            list.add_partition_offset(&split.topic, split.partition, Offset::Offset(split.next))
                .map_err(failed)?;
        }
        self.consumer.assign(&list).map_err(failed)
    }

    fn start(&mut self, out: &mut SourceOutput<'_, T>) -> Result<()> {
        if !std::mem::replace(&mut self.started, true) {
            for split in self.splits.iter().filter(|split| !split.is_finished()) {
                out.start_split(id(split.partition))?;
            }
            for split in self.splits.iter().filter(|split| split.is_finished()) {
                tracing::debug!(topic = %split.topic, partition = split.partition, "a partition is empty");
            }
        }
        Ok(())
    }

    /// Ends a bounded split, whose last offsets may be no records.
    fn finish(&mut self, at: usize, out: &mut SourceOutput<'_, T>) -> Result<()> {
        let split = &mut self.splits[at];
        split.next = split.next.max(split.end.unwrap_or(split.next));
        let partition = split.partition;
        let mut done = TopicPartitionList::new();
        done.add_partition(&self.source.topic, partition);
        self.consumer
            .incremental_unassign(&done)
            .map_err(|e| self.source.failed("partitions can't be given back", e))?;
        self.selected = self.selected.filter(|selected| *selected != partition);
        out.finish_split(id(partition))
    }

    /// Returns the unfinished split of a partition.
    fn reading(&self, partition: i32) -> Option<usize> {
        self.splits
            .iter()
            .position(|split| split.partition == partition && !split.is_finished())
    }

    fn take(&mut self, message: &KafkaMessage<'_>, out: &mut SourceOutput<'_, T>) -> Result<()> {
        let Some(at) = self.reading(message.partition) else {
            // Fetched before the partition was given back.
            return Ok(());
        };
        if message.offset < self.splits[at].next {
            return Ok(());
        }
        if self.splits[at].end.is_some_and(|end| message.offset >= end) {
            return self.finish(at, out);
        }
        let made = (self.source.deserialise)(message).map_err(|error| {
            error
                .with("topic", message.topic)
                .with("partition", message.partition)
                .with("offset", message.offset)
        })?;
        if let Some(value) = made {
            if self.selected != Some(message.partition) {
                self.selected = Some(message.partition);
                out.select_split(id(message.partition))?;
            }
            out.emit_at(value, message.timestamp_ms.unwrap_or(NO_TIMESTAMP))?;
        }
        self.splits[at].next = message.offset.saturating_add(1);
        if self.splits[at].is_finished() {
            self.finish(at, out)?;
        }
        Ok(())
    }

    fn failed(&self, error: KafkaError) -> Error {
        let failed = self.source.failed("a Kafka topic can't be read", error);
        match failed.kind() {
            state_api::ErrorKind::Corrupt => failed.with(
                "hint",
                "records were deleted before they were read: raise the topic's retention, or start without this checkpoint",
            ),
            _ => failed,
        }
    }
}

fn id(partition: i32) -> u64 {
    u64::from(partition.unsigned_abs())
}

/// Whether the client gets over an error by itself, such as a broker that is away.
fn passes(error: &KafkaError) -> bool {
    use rdkafka::error::RDKafkaErrorCode as Code;
    matches!(error, KafkaError::MessageConsumption(_))
        && matches!(
            error.rdkafka_error_code(),
            Some(
                Code::BrokerTransportFailure
                    | Code::AllBrokersDown
                    | Code::Resolve
                    | Code::OperationTimedOut
                    | Code::NotLeaderForPartition
                    | Code::LeaderNotAvailable
                    | Code::RequestTimedOut
                    | Code::NetworkException
                    | Code::CoordinatorNotAvailable
                    | Code::NotCoordinator
                    | Code::CoordinatorLoadInProgress
            )
        )
}

impl<T: Record> SourceReader for KafkaReader<T> {
    type Out = T;
    type Split = KafkaSplit;

    fn poll(&mut self, out: &mut SourceOutput<'_, T>) -> Result<SourceStatus> {
        self.start(out)?;
        let consumer = Rc::clone(&self.consumer);
        let mut quiet = false;
        for _ in 0..TURN {
            if self.source.bounded && self.splits.iter().all(KafkaSplit::is_finished) {
                return Ok(SourceStatus::Finished);
            }
            if out.is_full() {
                break;
            }
            match consumer.poll(Duration::ZERO) {
                Some(Ok(message)) => self.take(&KafkaMessage::of(&message), out)?,
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    if let Some(at) = self.reading(partition).filter(|_| self.source.bounded) {
                        self.finish(at, out)?;
                    }
                }
                Some(Err(error)) if passes(&error) => {
                    tracing::warn!(topic = %self.source.topic, %error, "Kafka can't be reached for now");
                }
                Some(Err(error)) => return Err(self.failed(error)),
                // Also when the client handled an event of its own: only the second time nothing is there.
                None if quiet => {
                    return Ok(SourceStatus::Waiting {
                        wake_at_ms: Some(self.clock.now_ms() + LOOK_AGAIN_MS),
                        idle: self.splits.is_empty(),
                    });
                }
                None => {
                    quiet = true;
                    continue;
                }
            }
            quiet = false;
        }
        Ok(SourceStatus::More)
    }

    fn snapshot(&mut self) -> Result<Vec<KafkaSplit>> {
        let open = self.splits.iter().filter(|split| !split.is_finished());
        Ok(open.cloned().collect())
    }

    fn snapshot_for(&mut self, checkpoint: CheckpointId) -> Result<Vec<KafkaSplit>> {
        if self.source.group.is_some() {
            let at = |split: &KafkaSplit| (split.partition, split.next);
            self.taken
                .push_back((checkpoint, self.splits.iter().map(at).collect()));
        }
        self.snapshot()
    }

    fn checkpoint_completed(&mut self, checkpoint: CheckpointId) -> Result<()> {
        let mut positions = None;
        while self.taken.front().is_some_and(|(id, _)| *id <= checkpoint) {
            positions = self
                .taken
                .pop_front()
                .filter(|(id, _)| *id == checkpoint)
                .map(|(_, positions)| positions);
        }
        let Some(positions) = positions.filter(|positions| !positions.is_empty()) else {
            return Ok(());
        };
        let mut list = TopicPartitionList::new();
        let committed = positions
            .into_iter()
            .try_for_each(|(partition, next)| {
                list.add_partition_offset(&self.source.topic, partition, Offset::Offset(next))
            })
            .and_then(|()| self.consumer.commit(&list, CommitMode::Async));
        if let Err(error) = committed {
            tracing::warn!(%error, "offsets can't be committed to Kafka: the lag shown there is too large");
        }
        Ok(())
    }
}

impl<T> std::fmt::Debug for KafkaReader<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaReader")
            .field("source", &self.source)
            .field("splits", &self.splits)
            .finish_non_exhaustive()
    }
}
