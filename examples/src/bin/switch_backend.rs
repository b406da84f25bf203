//! How do I switch the backend? By name: no line of the job changes.
use std::{collections::BTreeSet, sync::Arc};

use managed_state::keyed::{At, ValueState};
use runtime_core::sinks::TransactionalCollect;
use runtime_core::sources::Generator;
use runtime_core::{ExecutionSettings, Job, JobParts, KeyedOperator, LocalExecution, Out, States};
use state_api::access::ValueAccess;
use state_api::{BackendRegistry, Result, SystemClock};

#[derive(Clone, Default)]
struct Sum(ValueState<u64>);

impl KeyedOperator for Sum {
    type Key = u64;
    type In = u64;
    type Out = (u64, u64);

    fn open(&mut self, states: &mut States<'_, u64>) -> Result<()> {
        self.0 = states.value("sum")?;
        Ok(())
    }

    fn process(&mut self, n: u64, at: &mut At<'_, u64>, out: &mut Out<'_, Self::Out>) -> Result<()> {
        let sum = at.value(self.0).update(|sum| {
            *sum += n;
            *sum
        })?;
        out.emit((*at.key(), sum))
    }
}

fn run(backends: &BackendRegistry, backend: &str) -> Result<BTreeSet<(u64, u64)>> {
    let sums = TransactionalCollect::new();
    let job = Job::new("sums").parallelism(2);
    job.source("numbers", Generator::new(|i| i).take(10_000))
        .key_by(|n| n % 10)
        .process("sum", Sum::default())
        .sink_exactly_once("collect", sums.clone());
    let io = tokio::runtime::Runtime::new().expect("a runtime");
    let parts = JobParts::new(backends.get(backend)?, Arc::new(SystemClock));
    LocalExecution::start(job, ExecutionSettings::new("sums")?, parts, io.handle())?.wait()?;
    Ok(sums.records().into_iter().collect())
}

fn main() -> Result<()> {
    let mut backends = BackendRegistry::new();
    backend_hashmap::register(&mut backends)?;
    backends.register(backend_testkit::ReferenceBackend)?;
    // What features bring: with `--features rocksdb`, state larger than memory.
    runtime_core::register_backends(&mut backends)?;
    let live = run(&backends, "hashmap")?;
    for backend in backends.names() {
        assert_eq!(live, run(&backends, backend)?, "{backend}");
    }
    println!("{} agree on {} results", backends.names().join(", "), live.len());
    println!("{}", run(&backends, "rocks").expect_err("nobody registered it"));
    Ok(())
}
