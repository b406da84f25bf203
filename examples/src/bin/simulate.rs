//! Does my operator survive crashes, stops, failures of its own, rescaling and a store that fails, in 200 orders that seeds repeat?
use std::sync::Arc;
use std::time::Duration;

use managed_state::keyed::{At, ValueState};
use runtime_core::coordinator::CoordinatorConfig;
use runtime_core::sinks::TransactionalCollect;
use runtime_core::sources::Generator;
use runtime_core::testing::{Simulation, Trouble};
use runtime_core::{ExecutionSettings, Job, KeyedOperator, Out, States};
use state_api::{Result, access::ValueAccess};

/// The operator under test: numbers what it sees of each key.
#[derive(Clone, Default)]
struct Numbered {
    next: ValueState<u64>,
}

impl KeyedOperator for Numbered {
    type Key = u64;
    type In = u64;
    type Out = (u64, u64);

    fn open(&mut self, states: &mut States<'_, u64>) -> Result<()> {
        self.next = states.value("next")?;
        Ok(())
    }
    fn process(&mut self, _: u64, at: &mut At<'_, u64>, out: &mut Out<'_, (u64, u64)>) -> Result<()> {
        let number = at.value(self.next).update(|n| std::mem::replace(n, *n + 1))?;
        out.emit((*at.key(), number))
    }
}

fn main() -> Result<()> {
    let mut settings = ExecutionSettings::new("numbered")?;
    settings.checkpointing.interval = Some(Duration::from_millis(10));
    settings.checkpointing.tolerable_failures = CoordinatorConfig::UNLIMITED;
    settings.checkpointing.unaligned = true;
    for seed in 0..200 {
        let output = TransactionalCollect::new();
        let simulation = Simulation::new(seed, Arc::new(backend_hashmap::HashMapBackend), settings.clone());
        let report = simulation.trouble(Trouble::some()).run(|parallelism| {
            let job = Job::new("numbered").parallelism(parallelism);
            let records = job.source("records", Generator::new(|n| n).take(400).splits(2));
            records
                .persist_in_flight()
                .key_by(|n| n % 7)
                .process("numbered", Numbered::default())
                .sink_exactly_once("out", output.clone());
            job
        })?;
        let mut numbers = output.records();
        numbers.sort_unstable();
        let expected = (0..7).flat_map(|key| (0..(406 - key) / 7).map(move |n| (key, n)));
        assert!(numbers.into_iter().eq(expected), "seed {seed}: {report:?}");
    }
    println!("200 seeds, every answer right");
    Ok(())
}
