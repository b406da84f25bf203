//! Checkpoints, restores and rescales of the state backend over RocksDB, by file.
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use backend_rocksdb::rocksdb::{DB, IngestExternalFileOptions, Options, SstFileWriter};
use backend_rocksdb::{RestoreStats, RocksDbBackend, RocksDbStore};
use checkpoint_storage::{LocalCopies, LocalCopyOptions, RestoringStorage, UuidSource};
use state_api::{
    BackendContext, BatchEntry, ByteStore, CheckpointId, CodecKind, Column, Error, JobId,
    KeyGroupRange, KeyedHandle, MaxParallelism, NamedHandle, OperatorUid, Page, Result,
    SnapshotKind, SnapshotRequest, StateHandle, StateKind, StateMeta, Subtask, SystemClock,
    TypeMeta, WriteBatch,
};

use crate::disk::{Disk, bytes_of, request};
use crate::process;
use crate::stopwatch::{Spread, seconds};
use crate::table::Table;

const GROUPS: u32 = 128;
const VALUE: usize = 200;
const BATCH: u64 = 500;
/// Checkpoints of each kind of change.
const CHECKPOINTS: u64 = 20;

/// Key number `n` of `total`, as it is stored: in ascending order, evenly over the key groups.
fn key(n: u64, total: u64) -> Vec<u8> {
    let group = n * u64::from(GROUPS) / total;
    let mut key = vec![group as u8];
    key.extend(n.to_be_bytes());
    key
}

/// Bytes that compress to about half.
fn value(n: u64, round: u64) -> [u8; VALUE] {
    let mut value = [7; VALUE];
    let mut state = n ^ round << 48;
    for part in value[..VALUE / 2].chunks_mut(8) {
        state = state
            .wrapping_mul(0x5851_F42D_4C95_7F2D)
            .wrapping_add(0x1405_7B7E_F767_814F);
        part.copy_from_slice(&(state ^ state >> 29).to_le_bytes()[..part.len()]);
    }
    value
}

struct Bench {
    backend: RocksDbBackend,
    options: BTreeMap<String, String>,
    disk: Disk,
    dir: tempfile::TempDir,
    keys: u64,
    next: u64,
}

struct Operator {
    stores: Vec<RocksDbStore>,
}

impl Operator {
    /// Waits for what goes on after a restore, and returns the bytes of files that were written anew.
    fn rewritten(&mut self) -> u64 {
        let of = |store: &mut RocksDbStore| {
            store.wait_for_rewriting();
            store.restored().map_or(0, |stats| stats.rewritten_bytes)
        };
        self.stores.iter_mut().map(of).sum()
    }
}

impl Bench {
    fn open(&self, index: u32, parallelism: u32) -> Result<RocksDbStore> {
        let subtask = Subtask { index, parallelism };
        let max_parallelism = MaxParallelism::new(GROUPS)?;
        self.backend.open(&BackendContext {
            job: JobId::new("bench")?,
            operator: OperatorUid::new("bench")?,
            subtask,
            max_parallelism,
            range: max_parallelism.range_of(subtask)?,
            local_dir: self.dir.path().to_owned(),
            clock: Arc::new(SystemClock),
            options: self.options.clone(),
        })
    }

    fn ranges(parallelism: u32) -> Result<Vec<KeyGroupRange>> {
        let groups = MaxParallelism::new(GROUPS)?;
        (0..parallelism)
            .map(|index| groups.range_of(Subtask { index, parallelism }))
            .collect()
    }

    /// Returns the numbers of the keys of a subtask.
    fn numbers(&self, range: KeyGroupRange) -> std::ops::Range<u64> {
        let first = |group: u64| (group * self.keys).div_ceil(u64::from(GROUPS));
        first(u64::from(range.start().0))..first(u64::from(range.end().0) + 1)
    }

    fn write(
        &self,
        store: &mut RocksDbStore,
        numbers: impl Iterator<Item = u64>,
        round: u64,
    ) -> Result<()> {
        let column = store.open_column("state")?;
        let mut batch = WriteBatch::default();
        for n in numbers {
            let put = BatchEntry::Put(column, key(n, self.keys), value(n, round).to_vec());
            batch.entries.push(put);
            if batch.entries.len() as u64 >= BATCH {
                store.write(std::mem::take(&mut batch))?;
            }
        }
        store.write(batch)
    }

    fn filled(&self, parallelism: u32) -> Result<Operator> {
        let mut stores = Vec::new();
        for (index, range) in (0..).zip(Self::ranges(parallelism)?) {
            let mut store = self.open(index, parallelism)?;
            // Not in order: what comes out of that is a tree of several levels.
            let numbers = self.numbers(range);
            let (start, len) = (numbers.start, numbers.end - numbers.start);
            const STRIDE: u64 = 64;
            for offset in 0..STRIDE {
                let strided = (offset..len).step_by(STRIDE as usize).map(|i| start + i);
                self.write(&mut store, strided, 0)?;
            }
            stores.push(store);
        }
        Ok(Operator { stores })
    }

    /// Takes a checkpoint; returns its handles, and the seconds of the sync parts and of all the rest.
    fn checkpoint(
        &mut self,
        operator: &mut Operator,
        kind: SnapshotKind,
        complete: bool,
    ) -> Result<(Vec<KeyedHandle>, Vec<f64>, f64)> {
        let id = self.next;
        self.next += 1;
        let request = SnapshotRequest {
            kind,
            ..request(id)
        };
        let (mut cuts, mut sync) = (Vec::new(), Vec::new());
        for store in &mut operator.stores {
            let states = [(store.open_column("state")?, meta())];
            let native = store
                .native()
                .ok_or_else(|| Error::bug("no native snapshots"))?;
            let (cut, time) = seconds(|| native.snapshot(&request, &states));
            cuts.push(cut?);
            sync.push(time);
        }
        let (handles, rest) = seconds(|| -> Result<Vec<KeyedHandle>> {
            let mut handles = Vec::new();
            for cut in cuts {
                handles.extend(self.disk.persist(id, cut)?);
            }
            Ok(handles)
        });
        if complete {
            for store in &mut operator.stores {
                if let Some(native) = store.native() {
                    native.checkpoint_completed(request.checkpoint)?;
                }
            }
        }
        Ok((handles?, sync, rest))
    }

    /// Takes a full checkpoint with second copies of all of its objects on local disk.
    fn checkpoint_with_copies(
        &mut self,
        operator: &mut Operator,
    ) -> Result<(Vec<KeyedHandle>, LocalCopies)> {
        let id = self.next;
        self.next += 1;
        let request = SnapshotRequest {
            kind: SnapshotKind::FullCheckpoint,
            ..request(id)
        };
        let options = LocalCopyOptions {
            keep: true,
            restore: true,
            roots: vec![self.dir.path().to_owned()],
        };
        let executor = self.disk.persist_context(id).executor;
        let failed: Arc<Mutex<Option<Error>>> = Arc::default();
        let told = Arc::clone(&failed);
        let copies = LocalCopies::open(
            options,
            &JobId::new("bench")?,
            &UuidSource::machine(),
            executor,
            move |error| *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(error),
        );
        let (mut handles, parallelism) = (Vec::new(), operator.stores.len() as u32);
        for (index, store) in (0..).zip(&mut operator.stores) {
            let states = [(store.open_column("state")?, meta())];
            let native = store
                .native()
                .ok_or_else(|| Error::bug("no native snapshots"))?;
            let cut = native.snapshot(&request, &states)?;
            let mut cx = self.disk.persist_context(id);
            cx.storage = copies.keeping(cx.storage, "bench", Subtask { index, parallelism });
            handles.extend(self.disk.runtime().block_on(cut.persist(cx))?);
        }
        let parts = handles.iter().flat_map(KeyedHandle::parts);
        copies.acked(request.checkpoint, parts.filter_map(StateHandle::object));
        copies.confirm(request.checkpoint);
        match failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error),
            None => Ok((handles, copies)),
        }
    }

    fn restore(
        &self,
        handles: &[KeyedHandle],
        parallelism: u32,
        copies: Option<&LocalCopies>,
    ) -> Result<(Operator, RestoreStats, [f64; 2])> {
        let mut stores = Vec::new();
        let mut all = RestoreStats::default();
        let mut cx = self.disk.restore_context();
        if let Some(copies) = copies {
            let (all, subtask) = (
                CheckpointId(self.next - 1),
                Subtask {
                    index: 0,
                    parallelism,
                },
            );
            let copies = Some(copies.clone());
            let storage = RestoringStorage::new(cx.storage, copies, all, "bench", subtask);
            cx.storage = Arc::new(storage);
        }
        let (done, time) = seconds(|| -> Result<()> {
            for (index, range) in (0..).zip(Self::ranges(parallelism)?) {
                let mut store = self.open(index, parallelism)?;
                let own: Vec<_> = handles
                    .iter()
                    .filter(|handle| !handle.range().intersect(range).is_empty())
                    .cloned()
                    .collect();
                if let Some(native) = store.native() {
                    let restored = native.restore(&own, range, &cx);
                    self.disk.runtime().block_on(restored)?;
                }
                let stats = store.restored().unwrap_or_default();
                all.fetched_bytes += stats.fetched_bytes;
                all.skipped_bytes += stats.skipped_bytes;
                stores.push(store);
            }
            Ok(())
        });
        done?;
        let mut operator = Operator { stores };
        let (rewritten, rewriting) = seconds(|| operator.rewritten());
        all.rewritten_bytes = rewritten;
        Ok((operator, all, [time, rewriting]))
    }

    /// Reads all pairs of a range out of stores.
    fn pairs(
        operator: &Operator,
        range: KeyGroupRange,
        mut take: impl FnMut(Vec<(Vec<u8>, Vec<u8>)>) -> Result<()>,
    ) -> Result<()> {
        let end = [range.end().0 as u8 + 1];
        for store in &operator.stores {
            let mut next = vec![range.start().0 as u8];
            let mut page = Page::default();
            loop {
                store.scan(Column(0), &next, Some(&end), BATCH as usize, &mut page)?;
                let full = page.entries.len() as u64 == BATCH;
                if let Some((last, _)) = page.entries.last() {
                    next.clone_from(last);
                    next.push(0);
                }
                take(std::mem::take(&mut page.entries))?;
                if !full {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Rescales by reading every pair of open databases and writing it again.
    fn reinsert(&self, operator: &Operator, parallelism: u32) -> Result<f64> {
        let (done, time) = seconds(|| -> Result<()> {
            for (index, range) in (0..).zip(Self::ranges(parallelism)?) {
                let mut store = self.open(index, parallelism)?;
                let column = store.open_column("state")?;
                Self::pairs(operator, range, |pairs| {
                    let put = |(key, value)| BatchEntry::Put(column, key, value);
                    let entries = pairs.into_iter().map(put).collect();
                    store.write(WriteBatch { entries })
                })?;
            }
            Ok(())
        });
        done.map(|()| time)
    }

    /// Rescales by reading every pair of open databases, writing sorted files, and ingesting those.
    fn ingest(&self, operator: &Operator, parallelism: u32) -> Result<f64> {
        let failed = |error| Error::retryable("bulk ingestion failed").caused_by(error);
        let (done, time) = seconds(|| -> Result<()> {
            for range in Self::ranges(parallelism)? {
                let dir = tempfile::tempdir_in(self.dir.path())
                    .map_err(|e| Error::retryable("no folder").caused_by(e))?;
                let mut options = Options::default();
                options.create_if_missing(true);
                let db = DB::open(&options, dir.path().join("db")).map_err(failed)?;
                let (mut files, mut bytes) = (Vec::new(), u64::MAX);
                let mut writer: Option<SstFileWriter<'_>> = None;
                Self::pairs(operator, range, |pairs| {
                    for (key, value) in pairs {
                        if bytes > 64 << 20 {
                            if let Some(mut writer) = writer.take() {
                                writer.finish().map_err(failed)?;
                            }
                            let path = dir.path().join(format!("{}.sst", files.len()));
                            let mut new = SstFileWriter::create(&options);
                            new.open(&path).map_err(failed)?;
                            files.push(path);
                            (writer, bytes) = (Some(new), 0);
                        }
                        bytes += (key.len() + value.len()) as u64;
                        if let Some(writer) = &mut writer {
                            writer.put(key, value).map_err(failed)?;
                        }
                    }
                    Ok(())
                })?;
                if let Some(mut writer) = writer {
                    writer.finish().map_err(failed)?;
                }
                let mut ingest = IngestExternalFileOptions::default();
                ingest.set_move_files(true);
                db.ingest_external_file_opts(&ingest, files)
                    .map_err(failed)?;
            }
            Ok(())
        });
        done.map(|()| time)
    }
}

fn meta() -> StateMeta {
    StateMeta {
        name: "state".into(),
        kind: StateKind::Value,
        key: TypeMeta::of::<u64>(CodecKind::Compact),
        namespace: TypeMeta::of::<()>(CodecKind::Compact),
        map_key: None,
        value: TypeMeta::of::<u64>(CodecKind::Compact),
        ttl_ms: None,
    }
}

/// Measures checkpoints of so many gigabytes of state, with the options of a backend beside those of its own.
///
/// # Errors
/// Those of backend and storage.
pub fn table(gigabytes: f64, more: &[(&str, &str)], place: &Path) -> Result<Table> {
    let pair = |(key, text): &(&str, &str)| ((*key).to_owned(), (*text).to_owned());
    let mut options: BTreeMap<String, String> = more.iter().map(pair).collect();
    options.insert("incremental".to_owned(), "true".to_owned());
    options.insert("memory.fixed-per-tm".to_owned(), "256mb".to_owned());
    let mut bench = Bench {
        backend: RocksDbBackend::new(),
        options,
        disk: Disk::new()?,
        dir: tempfile::tempdir_in(place).map_err(|e| Error::config("no folder").caused_by(e))?,
        keys: (gigabytes * 1e9 / (9 + VALUE) as f64) as u64,
        next: 1,
    };
    let mut table = Table::new(
        format!(
            "RocksDB by file: {gigabytes} GB of state ({} keys) in 2 subtasks, memory budget 256 MiB",
            bench.keys
        ),
        &["what", "seconds", "MB", "note"],
    )
    .with_progress();
    let mb = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
    process::reset_peak();
    let (operator, time) = seconds(|| bench.filled(2));
    let mut operator = operator?;
    let (settled, more) = seconds(|| {
        let wait = RocksDbStore::wait_for_compactions;
        operator.stores.iter_mut().try_for_each(wait)
    });
    settled?;
    table.row([
        "fill".to_owned(),
        format!("{time:.1}"),
        String::new(),
        format!("{more:.1} s more until all compactions were done"),
    ]);
    let (mut handles, _, time) = bench.checkpoint(&mut operator, SnapshotKind::Checkpoint, true)?;
    let full = bytes_of(&handles);
    table.row([
        "first checkpoint, all of it".to_owned(),
        format!("{time:.1}"),
        mb(full),
        String::new(),
    ]);
    for (what, uniform) in [
        ("1 % of the keys in 1 % of the key range", false),
        ("1 % of the keys, uniform", true),
    ] {
        let (mut shares, mut sync, mut rest, mut new) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for round in 1..=CHECKPOINTS {
            for (store, range) in operator.stores.iter_mut().zip(Bench::ranges(2)?) {
                let numbers = bench.numbers(range);
                let len = numbers.end - numbers.start;
                let changed = len / 100;
                if uniform {
                    let mut state = round;
                    let some = (0..changed).map(|_| {
                        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(3);
                        numbers.start + (state >> 20) % len
                    });
                    bench.write(store, some, round)?;
                } else {
                    let start = numbers.start + (round * 37 % 100) * changed;
                    bench.write(store, start..start + changed, round)?;
                }
            }
            let (now, syncs, time) =
                bench.checkpoint(&mut operator, SnapshotKind::Checkpoint, true)?;
            let written: u64 = now.iter().map(new_bytes).sum();
            shares.push(100.0 * written as f64 / bytes_of(&now) as f64);
            new += written;
            sync.extend(syncs);
            rest.push(time);
            bench.disk.remove(&retired(&handles, &now));
            handles = now;
        }
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        table.row([
            format!("checkpoint: {what}"),
            format!("{:.3}", Spread::of(rest).median),
            mb(new / CHECKPOINTS),
            format!("{mean:.1} % of all bytes; sync {}", spread(sync)),
        ]);
    }
    let mut sync = Vec::new();
    for round in 100..100 + CHECKPOINTS {
        // 32 MB into each of two write buffers.
        for (store, range) in operator.stores.iter_mut().zip(Bench::ranges(2)?) {
            let numbers = bench.numbers(range);
            let (len, some) = (numbers.end - numbers.start, (64 << 20) / 2 / 209);
            let spread = (0..some).map(|i| numbers.start + i * 7_919 % len);
            bench.write(store, spread, round)?;
        }
        let (now, syncs, _) = bench.checkpoint(&mut operator, SnapshotKind::Checkpoint, true)?;
        sync.extend(syncs);
        bench.disk.remove(&retired(&handles, &now));
        handles = now;
    }
    table.row([
        "sync part, up to 32 MB in the write buffer".to_owned(),
        spread(sync),
        String::new(),
        String::new(),
    ]);
    let peak = process::peak_resident_bytes().unwrap_or(0);
    table.row([
        "peak resident memory so far".to_owned(),
        String::new(),
        mb(peak),
        String::new(),
    ]);
    drop(operator);
    let note = |stats: RestoreStats, [_, rewriting]: [f64; 2]| {
        format!(
            "fetched {} MB, not fetched {}; then {} MB rewritten in the background, {rewriting:.1} s",
            mb(stats.fetched_bytes),
            mb(stats.skipped_bytes),
            mb(stats.rewritten_bytes)
        )
    };
    let (mut two, stats, times) = bench.restore(&handles, 2, None)?;
    table.row([
        "restore, 2 subtasks one after the other".to_owned(),
        format!("{:.1}", times[0]),
        mb(stats.fetched_bytes),
        note(stats, times),
    ]);
    let (full, copies) = bench.checkpoint_with_copies(&mut two)?;
    let (again, stats, times) = bench.restore(&full, 2, None)?;
    table.row([
        "restore of a full checkpoint out of the store".to_owned(),
        format!("{:.1}", times[0]),
        mb(stats.fetched_bytes),
        note(stats, times),
    ]);
    drop(again);
    let (again, stats, times) = bench.restore(&full, 2, Some(&copies))?;
    table.row([
        "the same out of local copies".to_owned(),
        format!("{:.1}", times[0]),
        mb(stats.fetched_bytes),
        note(stats, times),
    ]);
    drop(again);
    copies.dispose();
    bench.disk.remove(&full);
    let (three, stats, times) = bench.restore(&handles, 3, None)?;
    table.row([
        "2→3 by file".to_owned(),
        format!("{:.1}", times[0]),
        mb(stats.fetched_bytes),
        note(stats, times),
    ]);
    drop(three);
    let time = bench.reinsert(&two, 3)?;
    table.row([
        "2→3 by insertion, out of open databases".to_owned(),
        format!("{time:.1}"),
        String::new(),
        String::new(),
    ]);
    let time = bench.ingest(&two, 3)?;
    table.row([
        "2→3 by bulk ingestion, out of open databases".to_owned(),
        format!("{time:.1}"),
        String::new(),
        String::new(),
    ]);
    let (handles, _, _) = bench.checkpoint(&mut two, SnapshotKind::Checkpoint, true)?;
    drop(two);
    let (mut three, ..) = bench.restore(&handles, 3, None)?;
    let (handles, _, time) = bench.checkpoint(&mut three, SnapshotKind::Checkpoint, true)?;
    let new: u64 = handles.iter().map(new_bytes).sum();
    table.row([
        "first checkpoint after 2→3".to_owned(),
        format!("{time:.1}"),
        mb(new),
        String::new(),
    ]);
    let (back, stats, times) = bench.restore(&handles, 2, None)?;
    table.row([
        "3→2 by file".to_owned(),
        format!("{:.1}", times[0]),
        mb(stats.fetched_bytes),
        note(stats, times),
    ]);
    drop(back);
    let time = bench.reinsert(&three, 2)?;
    table.row([
        "3→2 by insertion, out of open databases".to_owned(),
        format!("{time:.1}"),
        String::new(),
        String::new(),
    ]);
    let time = bench.ingest(&three, 2)?;
    table.row([
        "3→2 by bulk ingestion, out of open databases".to_owned(),
        format!("{time:.1}"),
        String::new(),
        String::new(),
    ]);
    let peak = process::peak_resident_bytes().unwrap_or(0);
    table.row([
        "peak resident memory".to_owned(),
        String::new(),
        mb(peak),
        String::new(),
    ]);
    Ok(table)
}

/// Returns what older handles have and newer ones do not.
fn retired(old: &[KeyedHandle], new: &[KeyedHandle]) -> Vec<KeyedHandle> {
    let kept: BTreeSet<_> = new
        .iter()
        .flat_map(KeyedHandle::parts)
        .filter_map(StateHandle::object)
        .map(|object| object.path.clone())
        .collect();
    let is_retired = |file: &NamedHandle| {
        let object = file.bytes.object();
        object.is_some_and(|object| !kept.contains(&object.path))
    };
    let of = |handle: &KeyedHandle| match handle {
        KeyedHandle::Incremental(handle) => {
            let mut handle = handle.clone();
            handle.shared.retain(is_retired);
            handle.private.retain(is_retired);
            KeyedHandle::Incremental(handle)
        }
        KeyedHandle::KeyGroups(_) => handle.clone(),
    };
    old.iter().map(of).collect()
}

pub(crate) fn new_bytes(handle: &KeyedHandle) -> u64 {
    match handle {
        KeyedHandle::Incremental(handle) => handle.new_bytes,
        KeyedHandle::KeyGroups(handle) => handle.bytes.len(),
    }
}

/// Median and greatest of seconds, in milliseconds.
fn spread(mut seconds: Vec<f64>) -> String {
    seconds.sort_by(f64::total_cmp);
    let at = |part: f64| {
        let index = ((seconds.len() - 1) as f64 * part).round() as usize;
        seconds.get(index).copied().unwrap_or(0.0) * 1e3
    };
    format!("p50 {:.0} ms, p99 {:.0} ms", at(0.5), at(0.99))
}
