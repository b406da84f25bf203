//! Whole jobs into the model broker, through deaths, frozen processes, rescaling, a failing store and a failing broker.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use state_api::{CheckpointId, Result};

use super::kafka_protocol::{KafkaTransaction, Protocol};
use super::kafka_protocol_tests::{Cluster, Fate, Model, record};
use crate::coordinator::CoordinatorConfig;
use crate::random::Random;
use crate::sink::{CommitOutcome, PreCommitted, SinkContext, TwoPhaseSink, TwoPhaseWriter};
use crate::sources::Generator;
use crate::testing::{Simulation, Trouble};
use crate::{ExecutionSettings, Job};

#[derive(Clone)]
struct ModelSink {
    cluster: Arc<Mutex<Cluster>>,
    seed: u64,
    requests: Arc<AtomicU64>,
}

struct ModelWriter(Protocol<Model>);

impl TwoPhaseSink for ModelSink {
    type In = u64;
    type Transaction = KafkaTransaction;
    type Writer = ModelWriter;

    fn writer(&self, cx: &SinkContext) -> Result<ModelWriter> {
        let (seed, requests) = (self.seed, Arc::clone(&self.requests));
        let model = Model::new(&self.cluster, move || {
            let request = requests.fetch_add(1, Ordering::Relaxed);
            match Random::new((seed << 32) | request).below(500) {
                0 => Fate::Lost,
                1 => Fate::Unanswered,
                _ => Fate::Answered,
            }
        });
        let name = format!("{}.{}.{}", cx.attempt.0, cx.run, cx.subtask.index);
        Ok(ModelWriter(Protocol::new(model, name, 1 << 20)))
    }
}

impl TwoPhaseWriter for ModelWriter {
    type In = u64;
    type Transaction = KafkaTransaction;

    fn write(&mut self, n: u64, _: Option<i64>) -> Result<()> {
        self.0.add(&record(n))
    }

    fn pre_commit(&mut self, id: CheckpointId) -> Result<Option<PreCommitted<KafkaTransaction>>> {
        Ok(self.0.end(id).map(|transaction| PreCommitted {
            transaction,
            harden: None,
        }))
    }

    fn commit(&mut self, transaction: &KafkaTransaction) -> Result<CommitOutcome> {
        self.0.commit(transaction)
    }

    fn recover_and_abort(&mut self, _: &KafkaTransaction) -> Result<()> {
        Ok(())
    }
}

#[test]
fn k_717_k_727_whole_jobs_into_kafka_have_each_record_once_whatever_dies() {
    let mut settings = ExecutionSettings::new("numbers").unwrap();
    settings.checkpointing.interval = Some(Duration::from_millis(10));
    settings.checkpointing.tolerable_failures = CoordinatorConfig::UNLIMITED;
    let (mut deaths, mut requests) = (0, 0);
    for seed in 0..40 {
        let sink = ModelSink {
            cluster: Arc::default(),
            seed,
            requests: Arc::default(),
        };
        let backend = Arc::new(backend_hashmap::HashMapBackend);
        let report = Simulation::new(seed, backend, settings.clone())
            .trouble(Trouble {
                steps: 700,
                ..Trouble::some()
            })
            .run(|parallelism| {
                let job = Job::new("numbers").parallelism(parallelism);
                let numbers = Generator::new(|n| n).take(300).splits(3);
                job.source("numbers", numbers.per_second(4000.0))
                    .sink_exactly_once("out", sink.clone());
                job
            });
        let report = report.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let seen = sink.cluster.lock().unwrap().seen();
        assert!(
            seen.iter().copied().eq(0..300),
            "seed {seed}: {report:?}: {seen:?}"
        );
        deaths += report.deaths;
        requests += sink.requests.load(Ordering::Relaxed);
    }
    assert!(
        deaths > 30 && requests > 1000,
        "{deaths} deaths, {requests} requests"
    );
}
