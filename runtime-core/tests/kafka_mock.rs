//! The Kafka source and sink over librdkafka's mock cluster: protocol, errors, whole jobs. The mock shows aborted records as if they
//! were committed and forgets offsets that are part of a transaction, so what consumers see after a crash is tested on a model broker, beside the protocol.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
mod sinks_support;
mod sources_support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc;
use std::task::{Wake, Waker};
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use runtime_core::kafka::KafkaCluster;
use runtime_core::sink::CommitOutcome;
use runtime_core::sinks::{KafkaRecord, KafkaSink};
use runtime_core::source::{Source, SourceContext, SourceOutput, SourceReader, SourceStatus};
use runtime_core::sources::{KafkaMessage, KafkaReader, KafkaSource, KafkaSplit, KafkaStart};
use runtime_core::{ExecutionSettings, Job, JobParts, LocalExecution, MemoryCheckpoints};
use sources_support::{context, deal};
use state_api::{CheckpointId, Error, ErrorKind, Result, SystemClock};

type Mock = MockCluster<'static, DefaultProducerContext>;

fn mock(partitions: i32) -> (Mock, KafkaCluster) {
    let mock = MockCluster::new(1).unwrap();
    for topic in ["in", "out"] {
        mock.create_topic(topic, partitions, 1).unwrap();
    }
    let cluster = KafkaCluster::new(mock.bootstrap_servers()).timeout(Duration::from_secs(20));
    (mock, cluster)
}

/// Writes numbers, each to the partition that it names; `None` is a tombstone.
fn write(mock: &Mock, records: impl IntoIterator<Item = (i32, Option<u32>)>) {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", mock.bootstrap_servers())
        .create()
        .unwrap();
    for (partition, number) in records {
        let payload = number.map(|number| number.to_string());
        let mut record = BaseRecord::<(), str>::to("in")
            .partition(partition)
            .timestamp(1000);
        if let Some(payload) = &payload {
            record = record.payload(payload);
        }
        producer.send(record).map_err(|(e, _)| e).unwrap();
    }
    producer.flush(Duration::from_secs(20)).unwrap();
}

fn number(message: &KafkaMessage<'_>) -> Result<Option<u32>> {
    let Some(payload) = message.payload else {
        return Ok(None);
    };
    let text = std::str::from_utf8(payload).map_err(|e| Error::user("no text").caused_by(e))?;
    text.parse()
        .map(Some)
        .map_err(|e| Error::user("no number").caused_by(e))
}

fn source(cluster: &KafkaCluster, topic: &str) -> KafkaSource<u32> {
    KafkaSource::new(cluster.clone(), topic, number)
}

struct Bell(mpsc::Sender<()>);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        let _ = self.0.send(());
    }
}

/// A reader with what wakes it.
struct Reading {
    reader: KafkaReader<u32>,
    bell: mpsc::Receiver<()>,
}

impl Reading {
    fn new(source: &KafkaSource<u32>, restored: bool, splits: Vec<KafkaSplit>) -> Self {
        let (sender, bell) = mpsc::channel();
        let cx = SourceContext {
            waker: Waker::from(Arc::new(Bell(sender))),
            restored: restored.then_some(CheckpointId(1)),
            ..context(0, 1)
        };
        let reader = source.reader(&cx, splits).unwrap();
        Self { reader, bell }
    }

    /// Reads until there are so many records or the input has ended.
    fn read(&mut self, records: usize) -> Result<Vec<u32>> {
        let mut all: Vec<u32> = Vec::new();
        let mut rings = 0;
        while all.len() < records {
            let budget = records - all.len();
            match self.reader.poll(&mut SourceOutput::new(&mut all, budget))? {
                SourceStatus::More => {}
                SourceStatus::Finished => break,
                SourceStatus::Waiting { .. } => {
                    rings += 1;
                    assert!(rings < 300, "nothing more came after {all:?}");
                    let _ = self.bell.recv_timeout(Duration::from_millis(200));
                }
            }
        }
        Ok(all)
    }
}

fn sorted(mut numbers: Vec<u32>) -> Vec<u32> {
    numbers.sort_unstable();
    numbers
}

fn at(splits: &[KafkaSplit]) -> Vec<(i32, i64)> {
    let mut at: Vec<_> = splits.iter().map(|s| (s.partition, s.next)).collect();
    at.sort_unstable();
    at
}

#[test]
fn k_740_a_restore_goes_on_at_the_offsets_at_any_parallelism() {
    let (mock, cluster) = mock(3);
    write(&mock, (0..30).map(|n| (n % 3, Some(n as u32))));
    let source = source(&cluster, "in").bounded();
    let splits = source.enumerate(1).unwrap();
    assert_eq!(at(&splits), [(0, 0), (1, 0), (2, 0)]);
    // What comes after the start is not part of a bounded input.
    write(&mock, [(0, Some(99))]);
    let mut first = Reading::new(&source, false, splits);
    let mut seen = first.read(13).unwrap();
    let saved = first.reader.snapshot().unwrap();
    drop(first);
    for hand in deal(saved, 2) {
        let mut second = Reading::new(&source, true, hand);
        seen.extend(second.read(usize::MAX).unwrap());
        assert_eq!(second.reader.snapshot().unwrap(), []);
    }
    assert_eq!(sorted(seen), (0..30).collect::<Vec<_>>());
}

#[test]
fn k_730_a_partition_that_was_added_is_read_after_the_restore_and_once() {
    let (mock, cluster) = mock(3);
    write(&mock, (0..6).map(|n| (n % 3, Some(n as u32))));
    let source = source(&cluster, "in");
    let mut splits = source.enumerate(2).unwrap();
    // As if the topic had two partitions when the job started.
    splits.truncate(2);
    splits[0].partitions = 2;
    splits[1].partitions = 2;
    let with_first = Reading::new(&source, true, splits[..1].to_vec())
        .reader
        .snapshot()
        .unwrap();
    assert_eq!(at(&with_first), [(0, 0), (2, 0)]);
    assert_eq!(with_first[0].partitions, 3);
    let without = Reading::new(&source, true, splits[1..].to_vec())
        .reader
        .snapshot()
        .unwrap();
    assert_eq!(at(&without), [(1, 0)]);
    let mut again = Reading::new(&source, true, [with_first, without].concat());
    assert_eq!(sorted(again.read(6).unwrap()), [0, 1, 2, 3, 4, 5]);
    assert_eq!(again.reader.snapshot().unwrap().len(), 3);
}

#[test]
fn k_741_offsets_are_committed_once_their_checkpoint_is_complete() {
    let (mock, cluster) = mock(1);
    write(&mock, (0..9).map(|n| (0, Some(n))));
    let source = source(&cluster, "in")
        .group("readers")
        .start(KafkaStart::Committed);
    let mut reading = Reading::new(&source, false, source.enumerate(1).unwrap());
    for (records, checkpoint) in [(2, 1), (3, 2), (1, 3)] {
        reading.read(records).unwrap();
        reading
            .reader
            .snapshot_for(CheckpointId(checkpoint))
            .unwrap();
    }
    // 1 was aborted, 3 is not complete yet.
    assert_eq!(at(&source.enumerate(1).unwrap()), [(0, 0)]);
    reading
        .reader
        .checkpoint_completed(CheckpointId(2))
        .unwrap();
    reading
        .reader
        .checkpoint_completed(CheckpointId(1))
        .unwrap();
    // Committing waits for nobody: look until it has arrived.
    let committed = (0..400).find_map(|_| {
        let splits = source.enumerate(1).unwrap();
        (splits[0].next != 0).then(|| at(&splits))
    });
    assert_eq!(committed.unwrap(), [(0, 5)]);
}

#[test]
fn a_fresh_start_begins_where_it_is_told() {
    let (mock, cluster) = mock(1);
    write(&mock, (0..4).map(|n| (0, Some(n))));
    let first = |start| at(&source(&cluster, "in").start(start).enumerate(1).unwrap())[0].1;
    assert_eq!(first(KafkaStart::Earliest), 0);
    assert_eq!(first(KafkaStart::Latest), 4);
    // The group has committed nothing.
    assert_eq!(first(KafkaStart::Committed), 0);
    let latest = source(&cluster, "in").start(KafkaStart::Latest);
    let mut reading = Reading::new(&latest, false, latest.enumerate(1).unwrap());
    write(&mock, [(0, Some(7))]);
    assert_eq!(reading.read(1).unwrap(), [7]);
}

#[test]
fn what_the_user_leaves_out_is_passed_over_and_what_he_refuses_is_named() {
    let (mock, cluster) = mock(1);
    write(&mock, [(0, Some(1)), (0, None), (0, Some(2))]);
    let source = source(&cluster, "in").bounded();
    let mut reading = Reading::new(&source, false, source.enumerate(1).unwrap());
    assert_eq!(reading.read(usize::MAX).unwrap(), [1, 2]);
    let strict = KafkaSource::new(cluster, "in", |message: &KafkaMessage<'_>| {
        number(message)?
            .map(Some)
            .ok_or_else(|| Error::user("a tombstone"))
    });
    let mut reading = Reading::new(&strict, false, strict.enumerate(1).unwrap());
    let error = reading.read(3).unwrap_err();
    assert_eq!(
        (error.kind(), error.context("offset")),
        (ErrorKind::User, Some("1"))
    );
    // Nothing is lost: the position is that of the record refused.
    assert_eq!(at(&reading.reader.snapshot().unwrap()), [(0, 1)]);
}

#[test]
fn a_subtask_without_partitions_is_idle_and_offsets_of_another_topic_are_refused() {
    let (_mock, cluster) = mock(1);
    let open = source(&cluster, "in");
    let mut reading = Reading::new(&open, false, Vec::new());
    let mut records: Vec<u32> = Vec::new();
    let status = reading
        .reader
        .poll(&mut SourceOutput::new(&mut records, 9))
        .unwrap();
    assert!(matches!(status, SourceStatus::Waiting { idle: true, .. }));
    let bounded = source(&cluster, "in").bounded();
    let mut reading = Reading::new(&bounded, false, Vec::new());
    assert_eq!(reading.read(9).unwrap(), [0_u32; 0]);
    let other = [KafkaSplit {
        topic: "other".into(),
        partition: 0,
        next: 0,
        end: None,
        partitions: 1,
    }];
    let error = open
        .reader(&context(0, 1), other.to_vec())
        .map(drop)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
}

fn sink(cluster: &KafkaCluster) -> KafkaSink<u32> {
    KafkaSink::new(cluster.clone(), "out", |n: &u32| {
        Ok(KafkaRecord::new(n.to_string()).key("k").partition_of(*n))
    })
}

trait Spread {
    fn partition_of(self, n: u32) -> Self;
}

impl Spread for KafkaRecord {
    fn partition_of(mut self, n: u32) -> Self {
        self.partition = Some((n % 2) as i32);
        self
    }
}

fn written(cluster: &KafkaCluster) -> Vec<u32> {
    let out = source(cluster, "out").bounded();
    let mut reading = Reading::new(&out, false, out.enumerate(1).unwrap());
    sorted(reading.read(usize::MAX).unwrap())
}

/// Sets a mark by hand: the mock takes the offsets of a transaction and forgets them.
fn mark(mock: &Mock, lineage: &str, sequence: i64) {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", mock.bootstrap_servers())
        .set("group.id", lineage)
        .create()
        .unwrap();
    let mut list = TopicPartitionList::new();
    list.add_partition_offset("out", 0, Offset::Offset(sequence))
        .unwrap();
    consumer.commit(&list, CommitMode::Sync).unwrap();
}

#[test]
fn k_715_k_728_records_are_written_once_when_their_checkpoint_is_complete() {
    let (mock, cluster) = mock(2);
    let sink = sink(&cluster);
    let mut task =
        sinks_support::Task::fresh(&sink, &sinks_support::context(1, 0, 0, 1, None)).unwrap();
    task.write([1, 2, 3]).unwrap();
    let saved = task.snapshot(1).unwrap();
    let lineage = task.pending[0].1.lineage.clone();
    assert_eq!(written(&cluster), [0_u32; 0]);
    task.complete(1).unwrap();
    assert_eq!(written(&cluster), [1, 2, 3]);
    mark(&mock, &lineage, 1);
    // A crash before the next checkpoint: the transaction is in the one restored, by whoever.
    let mut tasks = sinks_support::restore(&sink, &[saved], 2, 0, 2).unwrap();
    assert_eq!(written(&cluster), [1, 2, 3]);
    tasks[1].write([4]).unwrap();
    tasks[1].snapshot(2).unwrap();
    tasks[1].complete(2).unwrap();
    assert_eq!(written(&cluster), [1, 2, 3, 4]);
}

#[test]
fn k_725_errors_of_the_cluster_are_tried_again_and_those_of_the_user_are_not() {
    use runtime_core::sink::{TwoPhaseSink, TwoPhaseWriter};
    let (mock, cluster) = mock(2);
    let sink = sink(&cluster);
    let mut writer = sink
        .writer(&sinks_support::context(1, 0, 0, 1, None))
        .unwrap();
    for (key, error) in [
        (
            RDKafkaApiKey::InitProducerId,
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
        (
            RDKafkaApiKey::EndTxn,
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_PRODUCER_FENCED,
        ),
        (
            RDKafkaApiKey::TxnOffsetCommit,
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE,
        ),
    ] {
        writer.write(5, None).unwrap();
        let transaction = writer
            .pre_commit(CheckpointId(1))
            .unwrap()
            .unwrap()
            .transaction;
        mock.request_errors(key, &[error]);
        let first = writer.commit(&transaction);
        let expected = match key {
            RDKafkaApiKey::InitProducerId => {
                matches!(&first, Err(e) if e.kind() == ErrorKind::Config)
            }
            RDKafkaApiKey::EndTxn => {
                matches!(&first, Ok(CommitOutcome::RetryLater(e)) if e.kind() == ErrorKind::Fenced)
            }
            // The client tries again by itself.
            _ => matches!(&first, Ok(CommitOutcome::Committed)),
        };
        assert!(expected, "{key:?}: {first:?}");
        mock.clear_request_errors(key);
        if !matches!(first, Ok(CommitOutcome::Committed)) {
            let second = writer.commit(&transaction);
            assert!(
                matches!(second, Ok(CommitOutcome::Committed)),
                "{key:?}: {second:?}"
            );
        }
    }
}

#[test]
fn what_kafka_would_refuse_is_refused_before_it_is_in_a_checkpoint() {
    use runtime_core::sink::{TwoPhaseSink, TwoPhaseWriter};
    let (_mock, cluster) = mock(2);
    let sink = KafkaSink::new(cluster, "out", |n: &u32| {
        let mut record = KafkaRecord::new(vec![0; *n as usize]);
        record.partition = (*n == 7).then_some(7);
        Ok(record)
    });
    let mut writer = sink
        .writer(&sinks_support::context(1, 0, 0, 1, None))
        .unwrap();
    assert_eq!(
        writer.write(1_000_000, None).unwrap_err().kind(),
        ErrorKind::LimitExceeded
    );
    let error = writer.write(7, None).unwrap_err();
    assert_eq!(
        (error.kind(), error.context("partitions")),
        (ErrorKind::User, Some("2"))
    );
    writer.write(8, None).unwrap();
    let ended = writer.pre_commit(CheckpointId(1)).unwrap().unwrap();
    assert_eq!(ended.transaction.count, 1);
}

#[test]
fn a_job_from_a_topic_to_a_topic_has_each_record_once() {
    let (mock, cluster) = mock(2);
    write(&mock, (0..200).map(|n| (n % 2, Some(n as u32))));
    let job = Job::new("copy").parallelism(2);
    job.source("numbers", source(&cluster, "in").group("copy").bounded())
        .map(|n| n + 1000)
        .sink_exactly_once("out", sink(&cluster));
    let parts = JobParts::new(
        Arc::new(backend_hashmap::HashMapBackend),
        Arc::new(SystemClock),
    )
    .checkpoints(Arc::new(MemoryCheckpoints::new()));
    let io = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap();
    let mut settings = ExecutionSettings::new("copy").unwrap();
    settings.checkpointing.interval = Some(Duration::from_millis(20));
    LocalExecution::start(job, settings, parts, io.handle())
        .unwrap()
        .wait()
        .unwrap();
    let out = written(&cluster);
    assert_eq!(out, (1000..1200).collect::<Vec<_>>());
    assert_eq!(out.iter().collect::<BTreeSet<_>>().len(), 200);
}
