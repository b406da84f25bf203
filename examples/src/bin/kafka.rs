//! How do I go from Kafka to Kafka, each record once? `kafka HOST:PORT`; without an address over a broker in this process.
use std::{sync::Arc, time::Duration};

use managed_state::keyed::{At, ValueState};
use rdkafka::mocking::MockCluster;
use runtime_core::kafka::KafkaCluster;
use runtime_core::sinks::{CollectSink, KafkaRecord, KafkaSink};
use runtime_core::sources::{Generator, KafkaMessage, KafkaSource};
use runtime_core::{ExecutionSettings, Job, JobParts, KeyedOperator, LocalExecution, MemoryCheckpoints, Out, States};
use state_api::{Result, SystemClock, access::ValueAccess};

#[derive(Clone, Default)]
struct Count(ValueState<u64>);
impl KeyedOperator for Count {
    type Key = String;
    type In = String;
    type Out = (String, u64);
    fn open(&mut self, states: &mut States<'_, String>) -> Result<()> {
        states.value("count").map(|state| self.0 = state)
    }
    fn process(&mut self, word: String, at: &mut At<'_, String>, out: &mut Out<'_, (String, u64)>) -> Result<()> {
        let count = at.value(self.0).get()?.unwrap_or(0) + 1;
        at.value(self.0).set(count)?;
        out.emit((word, count))
    }
}

fn text(message: &KafkaMessage<'_>) -> Result<Option<String>> {
    Ok(message.payload.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
}

fn run(name: &str, build: impl FnOnce(&Job)) -> Result<()> {
    let (job, mut settings) = (Job::new(name), ExecutionSettings::new(name)?);
    build(&job);
    settings.checkpointing.interval = Some(Duration::from_millis(200));
    let io = tokio::runtime::Runtime::new().expect("a runtime");
    let parts = JobParts::new(Arc::new(backend_hashmap::HashMapBackend), Arc::new(SystemClock));
    let parts = parts.checkpoints(Arc::new(MemoryCheckpoints::new()));
    LocalExecution::start(job, settings, parts, io.handle())?.wait().map(drop)
}

fn main() -> Result<()> {
    let mock = MockCluster::new(1).expect("a broker in this process");
    ["words", "counts"].iter().for_each(|topic| mock.create_topic(topic, 2, 1).expect("a new topic"));
    let cluster = KafkaCluster::new(std::env::args().nth(1).unwrap_or_else(|| mock.bootstrap_servers()));
    let topic = |name| KafkaSource::new(cluster.clone(), name, text).group("example").bounded();
    let words = KafkaSink::new(cluster.clone(), "words", |word: &String| Ok(KafkaRecord::new(word.as_str())));
    let counts = KafkaSink::new(cluster.clone(), "counts", |(word, n): &(String, u64)| {
        Ok(KafkaRecord::new(format!("{word} {n}")).key(word.as_str()))
    });
    let (seen, text) = (CollectSink::new(), "to be or not to be".split(' ').map(str::to_owned));
    run("write", |job| job.source("text", Generator::collection(text)).sink_exactly_once("words", words))?;
    let count =
        |job: &Job| job.source("words", topic("words")).key_by(String::clone).process("count", Count::default());
    run("count", |job| count(job).sink_exactly_once("counts", counts))?;
    run("read", |job| job.source("counts", topic("counts")).sink("seen", seen.clone()))?;
    println!("{:?}", seen.records());
    Ok(())
}
