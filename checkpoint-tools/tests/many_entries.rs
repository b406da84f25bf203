//! Memory does not grow with the state: millions of entries are built, dumped, rescaled and compared.
//!
//! Takes minutes: `HOLDFAST_ENTRIES=10000000 cargo test -p checkpoint-tools --release --test many_entries -- --ignored --nocapture`.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use checkpoint_storage::{StoreRoot, StoredCheckpoint};
use checkpoint_tools::{
    Bootstrap, CheckpointSource, DiffOptions, NewCheckpoint, NewOperator, Row, Selection, Toolbox,
    diff, item_json, rescale,
};
use state_api::{
    Attempt, CodecKind, HashId, JobId, MaxParallelism, OperatorUid, Schema, StateKind, StateMeta,
    TypeMeta,
};

/// Peak resident memory of this process in mebibytes.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mut lines = status.lines();
    let peak = lines.find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

fn compact(schema: &str) -> TypeMeta {
    TypeMeta {
        codec: CodecKind::Compact,
        schema: Schema::parse(schema).unwrap(),
    }
}

#[test]
#[ignore = "takes minutes"]
fn memory_does_not_grow_with_the_state() {
    let entries: u64 = std::env::var("HOLDFAST_ENTRIES").map_or(1_000_000, |n| n.parse().unwrap());
    let io = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let dir = tempfile::tempdir().unwrap();
    let toolbox = Toolbox::new(io.handle().clone(), dir.path().join("scratch"));
    let begin = |name: &str| {
        let root = StoreRoot::local(dir.path().join(name), io.handle().clone()).unwrap();
        io.block_on(NewCheckpoint::begin(root, Attempt(1))).unwrap()
    };
    let open = |name: &str| {
        let path = dir.path().join(name);
        let found = StoredCheckpoint::find(path.to_str().unwrap(), io.handle());
        CheckpointSource::new(io.block_on(found).unwrap(), [], toolbox.clone())
    };
    let meta = StateMeta {
        name: Arc::from("totals"),
        kind: StateKind::Value,
        key: compact("string"),
        namespace: compact("unit"),
        map_key: None,
        value: compact("struct Total{flights:u64,delay:f64}"),
        ttl_ms: None,
    };
    let operator = NewOperator {
        uid: OperatorUid::new("delays").unwrap(),
        parallelism: 2,
        max_parallelism: MaxParallelism::new(128).unwrap(),
        hash: HashId::default(),
        keyed: vec![meta],
        operator: Vec::new(),
    };
    let before = peak_mib();
    let job = JobId::new("flights").unwrap();
    let mut build = Bootstrap::new(&toolbox, job, vec![operator]).unwrap();
    for number in 0..entries {
        let row = format!(
            r#"{{"key":"flight-{number:010}","value":{{"flights":{number},"delay":0.5}}}}"#
        );
        build.row(&Row::from_json(&row).unwrap()).unwrap();
    }
    io.block_on(build.finish(begin("built"))).unwrap();
    println!(
        "{entries} entries built: peak {} MiB, {before} before",
        peak_mib()
    );

    let built = open("built");
    let (mut count, mut bytes) = (0, 0);
    let take = &mut |item| {
        count += 1;
        bytes += item_json(&item).len();
        Ok(ControlFlow::Continue(()))
    };
    io.block_on(built.entries(&Selection::all(), take)).unwrap();
    assert_eq!(count, entries);
    println!("{bytes} bytes dumped: peak {} MiB", peak_mib());

    let max = MaxParallelism::new(300).unwrap();
    io.block_on(rescale(&built, begin("rescaled"), max))
        .unwrap();
    println!("rescaled: peak {} MiB", peak_mib());

    let rescaled = open("rescaled");
    let nothing = &mut |_| Ok(());
    let options = DiffOptions::default();
    let states = io
        .block_on(diff(&built, &rescaled, options, nothing))
        .unwrap();
    assert_eq!(states[0].same, entries);
    let peak = peak_mib();
    let state = size_mib(&dir.path().join("built"));
    println!("compared: peak {peak} MiB; the state has {state} MiB");
    assert!(peak < before + 200, "{peak} MiB");
}

fn size_mib(folder: &Path) -> u64 {
    let files = std::fs::read_dir(folder).unwrap();
    let bytes: u64 = files.map(|f| f.unwrap().metadata().unwrap().len()).sum();
    bytes >> 20
}
