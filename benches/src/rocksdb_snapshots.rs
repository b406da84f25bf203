//! Snapshots, restores and rescales of states over RocksDB, as the peer harness takes them.
use std::sync::Arc;

use backend_rocksdb::{RocksDbBackend, SharedMemory};
use managed_state::keyed::{KeyedContext, KeyedStates, ValueState};
use state_api::access::ValueAccess;
use state_api::{
    CheckpointId, Error, KeyGroup, KeyGroupRange, KeyedBackend, KeyedHandle, MaxParallelism,
    Result, SystemClock,
};

use crate::disk::{Disk, request};
use crate::operations::{Line, PeerShape};
use crate::rocksdb::{PEER_MEMORY, context};
use crate::rocksdb_checkpoints::new_bytes;
use crate::settings;
use crate::stopwatch::{Spread, seconds};
use crate::workload::{INSERT_SEED, KEY_GROUPS, PROBE_SEED, mix64, order, value};

/// Restores of each kind, after one that is not counted.
const RESTORES: usize = 3;

/// One backend under test with its state.
struct Subject<P: PeerShape> {
    states: KeyedStates<P::Key>,
    state: ValueState<u64>,
}

impl<P: PeerShape> Subject<P> {
    /// Opens a database for a range of key groups out of handles, until its state can be used.
    fn open(
        disk: &Disk,
        incremental: bool,
        range: KeyGroupRange,
        handles: &[KeyedHandle],
    ) -> Result<Self> {
        let backend = RocksDbBackend::new().with_memory(SharedMemory::new(PEER_MEMORY, 0.5));
        let mut backend_cx = context(&std::env::temp_dir())?;
        backend_cx.range = range;
        backend_cx.options = settings::options("BENCH_ROCKSDB").into_iter().collect();
        let text = incremental.to_string();
        backend_cx.options.insert("incremental".to_owned(), text);
        let store = backend.open(&backend_cx)?;
        let groups = MaxParallelism::new(KEY_GROUPS)?;
        let cx = KeyedContext::new(groups, range, Arc::new(SystemClock), 0);
        let mut states = KeyedStates::new(KeyedBackend::Bytes(Box::new(store)), cx)?;
        if !handles.is_empty() {
            let cx = disk.restore_context();
            disk.runtime().block_on(states.restore(handles, &cx))?;
        }
        let state = states.value("value")?;
        Ok(Self { states, state })
    }

    /// Puts a value under each key of the range.
    fn fill(&mut self, n: usize, range: KeyGroupRange) -> Result<()> {
        for (index, id) in order(n, INSERT_SEED).into_iter().enumerate() {
            let key = P::key(id);
            if range.contains(self.states.hash(&key).group()) {
                let value = value(index as u64);
                self.states.at(&key).value(self.state).set(value)?;
            }
        }
        Ok(())
    }

    /// Reads every eighth key of the range, each of which must be there.
    fn checksum(&mut self, n: usize, range: KeyGroupRange) -> Result<u64> {
        let mut sum = 0_u64;
        for id in order(n, INSERT_SEED).into_iter().step_by(8) {
            let key = P::key(id);
            if !range.contains(self.states.hash(&key).group()) {
                continue;
            }
            let read = self
                .states
                .at(&key)
                .value(self.state)
                .with(|value| value.copied())?;
            let value = read.ok_or_else(|| Error::corrupt("a restored key is gone"))?;
            sum = sum.wrapping_add(mix64(value));
        }
        Ok(sum)
    }
}

/// A checkpoint: the seconds of its sync and async parts, its handles, and the bytes that it wrote.
struct Shot {
    sync: f64,
    asynchronous: f64,
    handles: Vec<KeyedHandle>,
    written: u64,
}

struct PeerRun<P> {
    disk: Disk,
    n: usize,
    probes: Vec<u64>,
    /// The next position of the probe order.
    at: usize,
    /// The next checkpoint.
    next: u64,
    lines: Vec<Line>,
    shape: std::marker::PhantomData<P>,
}

/// The snapshot operations of the peer harness on our side, over RocksDB.
///
/// # Errors
/// Those of the states and of the disk.
pub fn peer_lines<P: PeerShape>(n: usize, rounds: usize) -> Result<Vec<Line>> {
    let mut run = PeerRun::<P> {
        disk: Disk::new()?,
        n,
        probes: order(n, PROBE_SEED),
        at: 0,
        next: 1,
        lines: Vec::new(),
        shape: std::marker::PhantomData,
    };
    run.snapshots(false, rounds, "snapshot_full", "restore_full")?;
    run.snapshots(
        true,
        rounds,
        "snapshot_incremental_1pct",
        "restore_incremental",
    )?;
    run.rescale()?;
    Ok(run.lines)
}

impl<P: PeerShape> PeerRun<P> {
    fn line(&mut self, bench: &str, field: &'static str, all: Vec<f64>) {
        self.lines.push(Line {
            bench: bench.to_owned(),
            key: P::KEY,
            field,
            spread: Spread::of(all),
        });
    }

    /// Writes new values to the next 1 % of the keys, in probe order.
    fn change(&mut self, subject: &mut Subject<P>) -> Result<()> {
        for _ in 0..self.n / 100 {
            let key = P::key(self.probes[self.at]);
            let value = value(self.at as u64).wrapping_add(self.next);
            subject.states.at(&key).value(subject.state).set(value)?;
            self.at = (self.at + 1) % self.probes.len();
        }
        Ok(())
    }

    fn shot(&mut self, subject: &mut Subject<P>) -> Result<Shot> {
        let id = self.next;
        self.next += 1;
        let (cut, sync) = seconds(|| subject.states.snapshot(&request(id)));
        let cut = cut?;
        let (handles, asynchronous) = seconds(|| self.disk.persist(id, cut));
        let handles = handles?;
        subject.states.checkpoint_completed(CheckpointId(id))?;
        Ok(Shot {
            sync,
            asynchronous,
            written: handles.iter().map(new_bytes).sum(),
            handles,
        })
    }

    /// Checkpoints with 1 % of the keys changed before each, and restores of the last one.
    fn snapshots(
        &mut self,
        incremental: bool,
        rounds: usize,
        bench: &str,
        restore: &str,
    ) -> Result<()> {
        let all = MaxParallelism::new(KEY_GROUPS)?.all_groups();
        let mut subject = Subject::<P>::open(&self.disk, incremental, all, &[])?;
        subject.fill(self.n, all)?;
        self.shot(&mut subject)?;
        let (mut shots, mut last) = (Vec::new(), Vec::new());
        for round in 0..=rounds {
            self.change(&mut subject)?;
            let shot = self.shot(&mut subject)?;
            last.clone_from(&shot.handles);
            if round > 0 {
                shots.push(shot);
            }
        }
        let of = |each: fn(&Shot) -> f64| shots.iter().map(each).collect();
        let (sync, asynchronous) = (
            of(|shot| shot.sync * 1e3),
            of(|shot| shot.asynchronous * 1e3),
        );
        let written = of(|shot| shot.written as f64);
        self.line(bench, "sync_ms", sync);
        self.line(bench, "async_ms", asynchronous);
        self.line(bench, "bytes", written);
        let want = subject.checksum(self.n, all)?;
        drop(subject);
        self.restores(restore, incremental, all, &last, Some(want))
    }

    /// Opens a range out of handles again and again; the one that is not counted is checked.
    fn restores(
        &mut self,
        bench: &str,
        incremental: bool,
        range: KeyGroupRange,
        handles: &[KeyedHandle],
        want: Option<u64>,
    ) -> Result<()> {
        let own: Vec<_> = handles
            .iter()
            .filter(|handle| !handle.range().intersect(range).is_empty())
            .cloned()
            .collect();
        let mut took = Vec::new();
        for round in 0..=RESTORES {
            let open = || Subject::<P>::open(&self.disk, incremental, range, &own);
            let (subject, time) = seconds(open);
            let mut subject = subject?;
            if round > 0 {
                took.push(time * 1e3);
            } else {
                let sum = subject.checksum(self.n, range)?;
                if want.is_some_and(|want| want != sum) {
                    return Err(Error::corrupt(format!(
                        "{bench}: the restored state differs"
                    )));
                }
            }
        }
        self.line(bench, "ms", took);
        Ok(())
    }

    /// Two halves of the key groups become one whole, and the middle third.
    fn rescale(&mut self) -> Result<()> {
        let half = (KEY_GROUPS / 2) as u16;
        let last = (KEY_GROUPS - 1) as u16;
        let range = |start, end| KeyGroupRange::new(KeyGroup(start), KeyGroup(end));
        let (mut handles, mut want) = (Vec::new(), 0_u64);
        for own in [range(0, half - 1), range(half, last)] {
            let mut subject = Subject::<P>::open(&self.disk, true, own, &[])?;
            subject.fill(self.n, own)?;
            want = want.wrapping_add(subject.checksum(self.n, own)?);
            handles.extend(self.shot(&mut subject)?.handles);
        }
        let all = range(0, last);
        self.restores("rescale_2_to_1", true, all, &handles, Some(want))?;
        let third = range(43, 85);
        self.restores("rescale_2_to_middle_third", true, third, &handles, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Longs;

    #[test]
    fn every_operation_of_the_peer_is_measured_and_what_is_restored_is_whole() {
        let lines = peer_lines::<Longs>(2_000, 1).unwrap();
        let named: Vec<_> = lines
            .iter()
            .map(|line| (line.bench.as_str(), line.field))
            .collect();
        for bench in ["snapshot_full", "snapshot_incremental_1pct"] {
            for field in ["sync_ms", "async_ms", "bytes"] {
                assert!(named.contains(&(bench, field)), "{named:?}");
            }
        }
        for bench in [
            "restore_full",
            "restore_incremental",
            "rescale_2_to_1",
            "rescale_2_to_middle_third",
        ] {
            assert!(named.contains(&(bench, "ms")), "{named:?}");
        }
        let bytes = |bench: &str| {
            let line = lines
                .iter()
                .find(|line| line.bench == bench && line.field == "bytes");
            line.unwrap().spread.median
        };
        let (full, changed) = (bytes("snapshot_full"), bytes("snapshot_incremental_1pct"));
        assert!(changed > 0.0 && changed < full / 2.0, "{changed} of {full}");
    }
}
