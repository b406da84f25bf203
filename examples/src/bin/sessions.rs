//! How do I find sessions of use, and what becomes of late clicks? A session ends when a visitor is silent for 30 s.
use std::sync::Arc;

use runtime_core::sinks::CollectSink;
use runtime_core::sources::Generator;
use runtime_core::{ExecutionSettings, Job, JobParts, LocalExecution, Session, SideOutput};
use state_api::access::Aggregator;
use state_api::{Result, SystemClock};

type Click = (String, i64);

#[derive(Clone)]
struct Clicks;

impl Aggregator for Clicks {
    type In = Click;
    type Acc = u64;
    type Out = u64;

    fn create(&self) -> u64 {
        0
    }
    fn add(&self, clicks: &mut u64, _: Click) -> Result<()> {
        *clicks += 1;
        Ok(())
    }
    fn merge(&self, clicks: &mut u64, others: u64) -> Result<()> {
        *clicks += others;
        Ok(())
    }
    fn result(&self, clicks: &u64) -> u64 {
        *clicks
    }
}

fn main() -> Result<()> {
    let click = |who: &str, second: i64| (who.to_owned(), second * 1000);
    let clicks = [("ann", 0), ("bob", 5), ("ann", 40), ("ann", 20), ("bob", 50), ("bob", 60)];
    let clicks = Generator::collection(clicks.map(|(who, second)| click(who, second)));
    let (sessions, late, job) = (CollectSink::new(), CollectSink::new(), Job::new("sessions"));
    let late_clicks = SideOutput::new();
    let found = job
        .source("clicks", clicks)
        .assign_watermarks(30_000, |click: &Click| click.1)
        .key_by_ref(|click| &click.0)
        .window(Session::gap(30_000))
        .allowed_lateness(60_000)
        .late_output(late_clicks)
        .aggregate("sessions", Clicks);
    found
        .map(|s| format!("{} {}-{} s: {}", s.key, s.start_ms / 1000, s.end_ms / 1000, s.value))
        .sink("out", sessions.clone());
    found.side_output(late_clicks).sink("late", late.clone());
    let io = tokio::runtime::Runtime::new().expect("a runtime");
    let parts = JobParts::new(Arc::new(backend_hashmap::HashMapBackend), Arc::new(SystemClock));
    LocalExecution::start(job, ExecutionSettings::new("sessions")?, parts, io.handle())?.wait()?;
    println!("{:?}, {} late", sessions.records(), late.records().len());
    Ok(())
}
