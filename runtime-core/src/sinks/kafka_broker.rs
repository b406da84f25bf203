use std::time::Duration;

use rdkafka::Offset;
use rdkafka::TopicPartitionList;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerGroupMetadata};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use state_api::{Error, Result};

use super::kafka_protocol::{Broker, Session};
use super::kafka_records::KafkaRecord;
use crate::kafka::{KafkaCluster, partitions};

/// The partition of the output topic that marks are committed for; every topic has it.
const MARKED: i32 = 0;

/// One topic of a cluster, written in transactions.
#[derive(Clone, Debug)]
pub(super) struct TopicBroker {
    pub(super) cluster: KafkaCluster,
    pub(super) topic: String,
}

/// A producer with its transactional id, and the consumer group of the same name that holds the mark.
pub(super) struct TopicSession {
    broker: TopicBroker,
    producer: BaseProducer,
    marks: BaseConsumer,
    group: ConsumerGroupMetadata,
}

impl Broker for TopicBroker {
    type Session = TopicSession;

    fn take_over(&self, lineage: &str) -> Result<TopicSession> {
        let failed = |e| self.failed("a Kafka producer can't be made", e);
        let producer: BaseProducer = self
            .cluster
            .config(
                &[("compression.type", "lz4")],
                &[
                    ("transactional.id", lineage),
                    ("enable.idempotence", "true"),
                ],
            )?
            .remove("isolation.level")
            .create()
            .map_err(failed)?;
        producer
            .init_transactions(self.timeout())
            .map_err(|e| self.failed("a Kafka transactional id can't be taken over", e))?;
        // Marks of transactions that are being committed are waited for, not overlooked.
        let marks: BaseConsumer = self
            .cluster
            .config(
                &[],
                &[
                    ("group.id", lineage),
                    ("enable.auto.commit", "false"),
                    ("isolation.level", "read_committed"),
                ],
            )?
            .create()
            .map_err(failed)?;
        let group = marks
            .group_metadata()
            .ok_or_else(|| Error::bug("a Kafka consumer knows no group"))?;
        Ok(TopicSession {
            broker: self.clone(),
            producer,
            marks,
            group,
        })
    }
}

impl TopicBroker {
    fn timeout(&self) -> Duration {
        self.cluster.request_timeout()
    }

    fn failed(&self, message: &'static str, error: KafkaError) -> Error {
        self.cluster
            .failed(message, error)
            .with("topic", &self.topic)
    }

    /// Returns the number of partitions of the topic.
    pub(super) fn partitions(&self) -> Result<i32> {
        let asked = self
            .cluster
            .config(&[], &[])?
            .remove("isolation.level")
            .create();
        let client: BaseProducer =
            asked.map_err(|e| self.failed("a Kafka producer can't be made", e))?;
        partitions(client.client(), &self.topic, &self.cluster)
    }

    fn mark_at(&self, offset: Offset) -> Result<TopicPartitionList> {
        let mut marked = TopicPartitionList::new();
        marked
            .add_partition_offset(&self.topic, MARKED, offset)
            .map_err(|e| self.failed("a mark can't be named", e))?;
        Ok(marked)
    }
}

impl Session for TopicSession {
    fn mark(&mut self) -> Result<Option<u64>> {
        let unread = |e| {
            self.broker
                .failed("it can't be read what was written to Kafka", e)
        };
        let found = self
            .marks
            .committed_offsets(self.broker.mark_at(Offset::Invalid)?, self.broker.timeout())
            .map_err(unread)?;
        let Some(mark) = found.find_partition(&self.broker.topic, MARKED) else {
            return Ok(None);
        };
        mark.error().map_err(unread)?;
        Ok(match mark.offset() {
            Offset::Offset(offset) => u64::try_from(offset).ok(),
            _ => None,
        })
    }

    fn begin(&mut self) -> Result<()> {
        self.producer
            .begin_transaction()
            .map_err(|e| self.broker.failed("a Kafka transaction can't begin", e))
    }

    fn produce(&mut self, record: KafkaRecord) -> Result<()> {
        let mut base = BaseRecord::<[u8], [u8]>::to(&self.broker.topic);
        if let Some(key) = &record.key {
            base = base.key(key);
        }
        if let Some(payload) = &record.payload {
            base = base.payload(payload);
        }
        if let Some(partition) = record.partition {
            base = base.partition(partition);
        }
        if let Some(timestamp) = record.timestamp_ms {
            base = base.timestamp(timestamp);
        }
        if !record.headers.is_empty() {
            let empty = OwnedHeaders::new_with_capacity(record.headers.len());
            let headers = record.headers.iter().fold(empty, |all, (key, value)| {
                all.insert(Header {
                    key,
                    value: value.as_deref(),
                })
            });
            base = base.headers(headers);
        }
        let mut refused = match self.producer.send(base) {
            Ok(()) => return Ok(()),
            Err(refused) => refused,
        };
        // The client's queue is full: what is in it goes out first, once or twice.
        for _ in 0..2 {
            if refused.0.rdkafka_error_code() != Some(RDKafkaErrorCode::QueueFull) {
                break;
            }
            self.flush()?;
            refused = match self.producer.send(refused.1) {
                Ok(()) => return Ok(()),
                Err(refused) => refused,
            };
        }
        Err(self
            .broker
            .failed("a record can't be written to Kafka", refused.0))
    }

    fn set_mark(&mut self, sequence: u64) -> Result<()> {
        let offset = i64::try_from(sequence)
            .map_err(|_| Error::bug("a checkpoint id is larger than an offset can be"))?;
        let mark = self.broker.mark_at(Offset::Offset(offset))?;
        self.flush()?;
        self.producer
            .send_offsets_to_transaction(&mark, &self.group, self.broker.timeout())
            .map_err(|e| {
                self.broker
                    .failed("the mark can't be added to a Kafka transaction", e)
            })
    }

    fn commit(&mut self) -> Result<()> {
        self.producer
            .commit_transaction(self.broker.timeout())
            .map_err(|e| {
                self.broker
                    .failed("a Kafka transaction can't be committed", e)
            })
    }
}

impl TopicSession {
    fn flush(&self) -> Result<()> {
        self.producer
            .flush(self.broker.timeout())
            .map_err(|e| self.broker.failed("records can't be written to Kafka", e))
    }
}
