use std::collections::BTreeMap;
use std::sync::Arc;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::{Offset, TopicPartitionList};
use state_api::{Error, Result};

use super::kafka_reader::{Deserialise, KafkaMessage, KafkaReader};
use super::kafka_split::KafkaSplit;
use crate::Record;
use crate::kafka::{KafkaCluster, partitions};
use crate::source::{Source, SourceContext};

/// Where a fresh start begins in each partition; a restored one goes on where it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KafkaStart {
    /// With the oldest record.
    #[default]
    Earliest,
    /// With the first record that is written after the start.
    Latest,
    /// With the first record of this time or later, in milliseconds since 1970.
    Time(i64),
    /// Where the consumer group of the source has committed; where it has not, with the oldest record.
    Committed,
}

/// Reads a topic: the partitions are the splits, their offsets are in the checkpoints.
///
/// Partitions are dealt out to the subtasks when a run starts, without a consumer group's rebalancing. Those that were added
/// to the topic are read from their beginning after the next restore. With a [`group`](Self::group) the offsets of a checkpoint are committed to
/// the cluster once it is complete, for those who watch the lag; a restore never looks at them.
///
/// Records of aborted transactions are not read, unless the cluster's option `isolation.level` says `read_uncommitted`.
/// The event time of a record is its timestamp in Kafka. Each partition is a split for watermarks, so one without records
/// holds them back until [`Watermarks::idle_after`](crate::Watermarks::idle_after) says it is idle.
///
/// Each subtask fetches up to 16 MiB ahead unless the cluster's option `queued.max.messages.kbytes` says otherwise.
///
/// ```
/// use runtime_core::kafka::KafkaCluster;
/// use runtime_core::sources::{KafkaMessage, KafkaSource};
///
/// let cluster = KafkaCluster::new("localhost:9092");
/// let lines = KafkaSource::new(cluster, "lines", |message: &KafkaMessage| {
///     // Tombstones and what is no text are left out.
///     Ok(message.payload.and_then(|bytes| std::str::from_utf8(bytes).ok()).map(str::to_owned))
/// })
/// .group("wordcount");
/// # let _ = lines;
/// ```
pub struct KafkaSource<T> {
    pub(super) cluster: KafkaCluster,
    pub(super) topic: String,
    pub(super) deserialise: Deserialise<T>,
    pub(super) group: Option<String>,
    start: KafkaStart,
    pub(super) bounded: bool,
}

impl<T: Record> KafkaSource<T> {
    /// Creates a source that emits what a function makes of each record: `None` leaves it out, an error fails the job.
    #[must_use]
    pub fn new(
        cluster: KafkaCluster,
        topic: impl Into<String>,
        deserialise: impl Fn(&KafkaMessage<'_>) -> Result<Option<T>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            cluster,
            topic: topic.into(),
            deserialise: Arc::new(deserialise),
            group: None,
            start: KafkaStart::default(),
            bounded: false,
        }
    }

    /// Sets where a fresh start begins; [`KafkaStart::Earliest`] unless set.
    #[must_use]
    pub fn start(mut self, start: KafkaStart) -> Self {
        self.start = start;
        self
    }

    /// Sets the consumer group for which offsets are committed.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// Ends the input where the partitions end when the job starts.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        self.bounded = true;
        self
    }

    pub(super) fn failed(&self, message: &'static str, error: KafkaError) -> Error {
        self.cluster
            .failed(message, error)
            .with("topic", &self.topic)
    }

    /// Returns options of a consumer. Its group never has members: partitions are assigned, not balanced.
    fn consumer(&self) -> Result<BaseConsumer> {
        self.cluster
            .config(
                &[],
                &[
                    ("group.id", self.group.as_deref().unwrap_or("holdfast")),
                    ("enable.auto.commit", "false"),
                ],
            )?
            .create()
            .map_err(|e| self.failed("a Kafka consumer can't be made", e))
    }

    fn split(&self, partition: i32, next: i64, partitions: i32) -> KafkaSplit {
        KafkaSplit {
            topic: self.topic.clone(),
            partition,
            next,
            end: None,
            partitions,
        }
    }

    /// Lists partitions from one on, at the offsets that the start says.
    fn found(
        &self,
        consumer: &BaseConsumer,
        from: i32,
        start: KafkaStart,
    ) -> Result<Vec<KafkaSplit>> {
        let timeout = self.cluster.request_timeout();
        let unknown = |e| self.failed("the offsets of a Kafka topic can't be read", e);
        let count = partitions(consumer.client(), &self.topic, &self.cluster)?;
        let asked = |offset: Offset| -> Result<TopicPartitionList> {
            let mut list = TopicPartitionList::new();
            for partition in from..count {
                list.add_partition_offset(&self.topic, partition, offset)
                    .map_err(unknown)?;
            }
            Ok(list)
        };
        let answers = match start {
            _ if from >= count => return Ok(Vec::new()),
            KafkaStart::Earliest | KafkaStart::Latest => TopicPartitionList::new(),
            KafkaStart::Time(time) => consumer
                .offsets_for_times(asked(Offset::Offset(time))?, timeout)
                .map_err(unknown)?,
            KafkaStart::Committed => consumer
                .committed_offsets(asked(Offset::Invalid)?, timeout)
                .map_err(unknown)?,
        };
        let mut splits = Vec::new();
        for partition in from..count {
            let (low, high) = consumer
                .fetch_watermarks(&self.topic, partition, timeout)
                .map_err(unknown)?;
            let answer = answers.find_partition(&self.topic, partition);
            if let Some(answer) = &answer {
                answer.error().map_err(unknown)?;
            }
            let next = match (start, answer.map(|answer| answer.offset())) {
                (_, Some(Offset::Offset(offset))) => offset.max(low),
                (KafkaStart::Latest | KafkaStart::Time(_), _) => high,
                _ => low,
            };
            let mut split = self.split(partition, next, count);
            split.end = self.bounded.then_some(high);
            splits.push(split);
        }
        Ok(splits)
    }
}

impl<T: Record> Source for KafkaSource<T> {
    type Out = T;
    type Split = KafkaSplit;
    type Reader = KafkaReader<T>;

    fn enumerate(&self, _: u32) -> Result<Vec<KafkaSplit>> {
        self.found(&self.consumer()?, 0, self.start)
    }

    fn reader(&self, cx: &SourceContext, mut splits: Vec<KafkaSplit>) -> Result<KafkaReader<T>> {
        let mut seen = BTreeMap::new();
        for split in &splits {
            if split.topic != self.topic {
                return Err(Error::incompatible(
                    "the checkpoint's offsets are those of another Kafka topic",
                )
                .with("topic", &self.topic)
                .with("topic then", &split.topic));
            }
            if split.end.is_some() != self.bounded {
                return Err(Error::incompatible(
                    "the checkpoint's input had an end and the source has none, or the other way round",
                )
                .with("split", self.describe(split)));
            }
            if split.partition < 0
                || split.next < 0
                || seen.insert(split.partition, split.next).is_some()
            {
                return Err(
                    Error::corrupt("an offset in the checkpoint is none of a Kafka topic")
                        .with("split", self.describe(split)),
                );
            }
        }
        // One subtask alone has partition 0, so a new partition is found once.
        if cx.restored.is_some()
            && !self.bounded
            && let Some(first) = splits.iter_mut().find(|split| split.partition == 0)
        {
            let added = self.found(&self.consumer()?, first.partitions, KafkaStart::Earliest)?;
            first.partitions = added
                .last()
                .map_or(first.partitions, |last| last.partition + 1);
            splits.extend(added);
        }
        KafkaReader::new(self.clone(), cx, splits)
    }

    fn describe(&self, split: &KafkaSplit) -> String {
        let KafkaSplit {
            topic,
            partition,
            next,
            end,
            ..
        } = split;
        match end {
            Some(end) => format!("{topic}[{partition}] {next}/{end}"),
            None => format!("{topic}[{partition}] {next}"),
        }
    }
}

impl<T> Clone for KafkaSource<T> {
    fn clone(&self) -> Self {
        Self {
            cluster: self.cluster.clone(),
            topic: self.topic.clone(),
            deserialise: Arc::clone(&self.deserialise),
            group: self.group.clone(),
            start: self.start,
            bounded: self.bounded,
        }
    }
}

impl<T> std::fmt::Debug for KafkaSource<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaSource")
            .field("cluster", &self.cluster)
            .field("topic", &self.topic)
            .field("group", &self.group)
            .field("start", &self.start)
            .field("bounded", &self.bounded)
            .finish_non_exhaustive()
    }
}
