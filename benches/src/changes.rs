//! Checkpoints that cost what changed: bytes and time beside full ones, and what noting the changes costs.
use backend_fs::{ChangeStreams, FsConfig};
use backend_hashmap::HashMapSnapshots;
use state_api::{
    BackendContext, CheckpointId, JobId, KeyGroupRange, KeyedHandle, LiveSnapshots, MaxParallelism,
    OperatorUid, Result, Subtask, SystemClock,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::disk::{Disk, request};
use crate::stopwatch::{Spread, now, seconds};
use crate::subject::{Batched, Facade, Subject, states_with};
use crate::table::Table;
use crate::workload::{INSERT_SEED, KEY_GROUPS, Longs, PROBE_SEED, Shape, Structs, Words, keys};

/// Checkpoints of few changes, and full ones, for each round: they take a few milliseconds, which vary.
const CHECKPOINTS: usize = 5;

/// Time between two checkpoints of a steady state.
const INTERVAL: Duration = Duration::from_secs(1);

fn change_streams() -> Result<Box<dyn LiveSnapshots>> {
    let max_parallelism = MaxParallelism::new(KEY_GROUPS)?;
    let subtask = Subtask {
        index: 0,
        parallelism: 1,
    };
    let range: KeyGroupRange = max_parallelism.range_of(subtask)?;
    let cx = BackendContext {
        job: JobId::new("bench")?,
        operator: OperatorUid::new("bench")?,
        subtask,
        max_parallelism,
        range,
        local_dir: std::env::temp_dir(),
        clock: Arc::new(SystemClock),
        options: BTreeMap::new(),
    };
    Ok(Box::new(ChangeStreams::new(FsConfig::default(), &cx)))
}

fn fs<S: Shape>() -> Result<Facade<S>> {
    Facade::over(states_with(change_streams()?, KEY_GROUPS, 0.25)?)
}

fn hashmap<S: Shape>() -> Result<Facade<S>> {
    Facade::over(states_with(Box::new(HashMapSnapshots), KEY_GROUPS, 0.25)?)
}

fn new_bytes(handles: &[KeyedHandle]) -> u64 {
    let new = |handle: &KeyedHandle| match handle {
        KeyedHandle::Incremental(handle) => handle.new_bytes,
        KeyedHandle::KeyGroups(handle) => handle.bytes.len(),
    };
    handles.iter().map(new).sum()
}

/// Returns the table: bytes and time of a checkpoint after 1 % of the keys changed, as parts of a full one's, and updates
/// beside `hashmap`'s with a checkpoint each second, every third of them declined.
///
/// # Errors
/// Those of the states and of the disk.
pub fn table(n: usize, rounds: usize) -> Result<Table> {
    let mut table = Table::new(
        format!("Change streams, {n} keys, 1 % of them changed; {rounds} alternations"),
        &[
            "shape",
            "full MB",
            "changes, bytes ÷ full",
            "full ms",
            "changes, time ÷ full",
            "update in batches ns, fs",
            "hashmap",
            "fs ÷ hashmap",
            "alone",
        ],
    );
    shape::<Longs>(n, rounds, &mut table)?;
    shape::<Words>(n, rounds, &mut table)?;
    shape::<Structs>(n, rounds, &mut table)?;
    Ok(table)
}

fn shape<S: Shape>(n: usize, rounds: usize, table: &mut Table) -> Result<()> {
    let disk = Disk::new()?;
    let (inserts, probes) = (keys::<S>(n, INSERT_SEED), keys::<S>(n, PROBE_SEED));
    let (mut ours, mut theirs) = (Batched(fs::<S>()?), Batched(hashmap::<S>()?));
    ours.add(&inserts)?;
    theirs.add(&inserts)?;
    let (mut full_bytes, mut bytes) = (0, Vec::new());
    let (mut full, mut times) = (Vec::new(), Vec::new());
    let mut id = 0;
    let mut checkpoint = |batched: &mut Batched<S>, completes: bool| -> Result<(u64, f64)> {
        let facade = &mut batched.0;
        id += 1;
        let snapshot = facade.states.snapshot(&request(id))?;
        let (handles, wall) = seconds(|| disk.persist(id, snapshot));
        if completes {
            facade.states.checkpoint_completed(CheckpointId(id))?;
        } else {
            facade.states.checkpoint_aborted(CheckpointId(id))?;
        }
        let handles = handles?;
        // Nobody builds on a full one.
        if handles
            .iter()
            .all(|handle| matches!(handle, KeyedHandle::KeyGroups(_)))
        {
            disk.remove(&handles);
        }
        Ok((new_bytes(&handles), wall))
    };
    checkpoint(&mut ours, true)?;
    for round in 0..=rounds * CHECKPOINTS {
        let part = n / 100;
        let from = round * part % (n - part);
        ours.update(&probes[from..from + part])?;
        let (all, wall) = checkpoint(&mut theirs, true)?;
        let (changed, changed_wall) = checkpoint(&mut ours, true)?;
        while ours.0.states.maintain(1 << 16) {}
        while theirs.0.states.maintain(1 << 16) {}
        full_bytes = all;
        bytes.push(changed as f64 / all as f64);
        full.push(wall * 1e3);
        times.push(changed_wall / wall);
    }
    // A steady state: updates all the time, with the checkpoints on the same thread, their time not counted. As the runtime
    // does it, with the keys of a batch asked for ahead, and one after the other.
    let (mut fs_ns, mut hashmap_ns) = (Vec::new(), Vec::new());
    let mut ratios = [const { Vec::new() }; 2];
    for (in_batches, round) in (0..=rounds).flat_map(|round| [(true, round), (false, round)]) {
        let mut turns = [0.0; 2];
        for turn in 0..2 {
            let which = (round + turn) % 2;
            let subject = if which == 0 { &mut ours } else { &mut theirs };
            let (mut spent, mut updates) = (0.0, 0_usize);
            for second in 0..3 {
                checkpoint(subject, second != 2)?;
                let (began, mut at) = (now(), 0);
                while began.elapsed() < INTERVAL {
                    let batch = &probes[at..(at + 4_096).min(n)];
                    let (done, wall) = seconds(|| match in_batches {
                        true => subject.update(batch),
                        false => subject.0.update(batch),
                    });
                    done?;
                    subject.0.states.maintain(64);
                    spent += wall;
                    updates += batch.len();
                    at = if at + 4_096 < n { at + 4_096 } else { 0 };
                }
            }
            turns[which] = spent * 1e9 / updates as f64;
        }
        if round > 0 {
            if in_batches {
                fs_ns.push(turns[0]);
                hashmap_ns.push(turns[1]);
            }
            ratios[usize::from(!in_batches)].push(turns[0] / turns[1]);
        }
    }
    let [batched, alone] = ratios.map(|ratios| Spread::of(ratios).median);
    let percent = |parts: Vec<f64>| format!("{:.1} %", Spread::of(parts).median * 100.0);
    table.row([
        S::NAME.to_owned(),
        format!("{:.1}", full_bytes as f64 / 1e6),
        percent(bytes),
        format!("{:.0}", Spread::of(full).median),
        percent(times),
        format!("{:.1}", Spread::of(fs_ns).median),
        format!("{:.1}", Spread::of(hashmap_ns).median),
        format!("{batched:.2}"),
        format!("{alone:.2}"),
    ]);
    Ok(())
}
