//! What the object cache in front of a byte store promises beyond the contract of a backend: a frozen dirty set is out of
//! reach, a restore gives the moment of the cut, the budget is held, hits don't touch the store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use backend_testkit::{
    ByteBackend, Checkpoint, Job, Mode, NativeStore, ReferenceStore, Settings, Setup, ok,
};
use managed_state::format::WRITE_BACK;
use managed_state::keyed::{KeyedStates, MapState, ReducingState, ValueState};
use state_api::access::{MapAccess, MergeAccess, ValueAccess};
use state_api::{
    BackendFactory, BatchEntry, ByteStore, ByteView, Column, EntryCount, ErrorKind,
    ObjectCacheBudget, Page, Result, SnapshotKind, WriteBatch,
};

/// A seeded generator (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// Counts what reaches the store.
#[derive(Default)]
struct Calls {
    gets: AtomicUsize,
    puts: AtomicUsize,
    deletes: AtomicUsize,
    scans: AtomicUsize,
}

impl Calls {
    fn take(&self) -> [usize; 4] {
        [&self.gets, &self.puts, &self.deletes, &self.scans]
            .map(|count| count.swap(0, Ordering::SeqCst))
    }
}

struct Counting {
    inner: Box<dyn ByteStore>,
    calls: Arc<Calls>,
}

impl ByteStore for Counting {
    fn open_column(&mut self, name: &str) -> Result<Column> {
        self.inner.open_column(name)
    }

    fn column_names(&self) -> Vec<String> {
        self.inner.column_names()
    }

    fn get(&self, column: Column, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.calls.gets.fetch_add(1, Ordering::SeqCst);
        self.inner.get(column, key, value)
    }

    fn write(&mut self, batch: WriteBatch) -> Result<()> {
        for entry in &batch.entries {
            match entry {
                BatchEntry::Delete(..) => self.calls.deletes.fetch_add(1, Ordering::SeqCst),
                _ => self.calls.puts.fetch_add(1, Ordering::SeqCst),
            };
        }
        self.inner.write(batch)
    }

    fn scan(
        &self,
        column: Column,
        start: &[u8],
        end: Option<&[u8]>,
        limit: usize,
        page: &mut Page,
    ) -> Result<()> {
        self.calls.scans.fetch_add(1, Ordering::SeqCst);
        self.inner.scan(column, start, end, limit, page)
    }

    fn view(&mut self) -> Result<Box<dyn ByteView>> {
        self.inner.view()
    }

    fn object_cache(&self) -> Option<Arc<ObjectCacheBudget>> {
        self.inner.object_cache()
    }
}

fn counted(bytes: usize) -> (Arc<dyn BackendFactory>, Arc<Calls>, Arc<ObjectCacheBudget>) {
    let (budget, calls) = (ObjectCacheBudget::new(bytes), Arc::<Calls>::default());
    let (drawn, counted) = (Arc::clone(&budget), Arc::clone(&calls));
    let factory = ByteBackend::new("counted", move |_| {
        Ok(Box::new(Counting {
            inner: Box::new(ReferenceStore::new().with_object_cache(Arc::clone(&drawn))),
            calls: Arc::clone(&counted),
        }) as Box<dyn ByteStore>)
    });
    (Arc::new(factory), calls, budget)
}

fn cached(bytes: usize, native: bool) -> (Arc<dyn BackendFactory>, Arc<ObjectCacheBudget>) {
    let budget = ObjectCacheBudget::new(bytes);
    let drawn = Arc::clone(&budget);
    let factory = ByteBackend::new("cached", move |cx| {
        let budget = Arc::clone(&drawn);
        Ok(match native {
            true => Box::new(NativeStore::new(cx, Some(budget))) as Box<dyn ByteStore>,
            false => Box::new(ReferenceStore::new().with_object_cache(budget)),
        })
    });
    (Arc::new(factory), budget)
}

fn setup(factory: &Arc<dyn BackendFactory>) -> Setup {
    ok(Setup::new(Arc::clone(factory), Mode::Direct))
}

type Tokens = (
    ValueState<u64>,
    MapState<u16, String>,
    ReducingState<u64, u8>,
);

fn register(states: &mut KeyedStates<String>) -> Result<Tokens> {
    Ok((
        states.value("value")?,
        states.map("map")?,
        states.reducing("sum", |sum, input| Ok(sum + input))?,
    ))
}

/// What the states hold, by key.
#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    values: BTreeMap<String, u64>,
    maps: BTreeMap<(String, u16), String>,
    sums: BTreeMap<(String, u8), u64>,
}

impl Model {
    /// Does something at random to the states and to the model, and compares what is read.
    fn step(&mut self, random: &mut Random, keys: u64, job: &mut Job<String, Tokens>) {
        let key = format!("key {}", random.below(keys));
        let (map_key, namespace) = (random.below(12) as u16, random.below(3) as u8);
        let number = random.below(1_000);
        match random.below(12) {
            0..3 => {
                let found = job.at(&key, |at, (value, _, _)| at.value(value).get());
                assert_eq!(found, self.values.get(&key).copied(), "{key}");
            }
            3 => {
                job.at(&key, |at, (value, _, _)| at.value(value).set(number));
                self.values.insert(key, number);
            }
            4 => {
                job.at(&key, |at, (value, _, _)| {
                    at.value(value).update(|n| *n += number)
                });
                *self.values.entry(key).or_default() += number;
            }
            5 => {
                job.at(&key, |at, (value, _, _)| at.value(value).clear());
                self.values.remove(&key);
            }
            6 => {
                let text = "x".repeat(number as usize % 60);
                job.at(&key, |at, (_, map, _)| {
                    at.map(map).put(map_key, text.clone())
                });
                self.maps.insert((key, map_key), text);
            }
            7 => {
                let found = job.at(&key, |at, (_, map, _)| at.map(map).get(&map_key));
                assert_eq!(found.as_ref(), self.maps.get(&(key, map_key)));
            }
            8 => {
                let found = job.at(&key, |at, (_, map, _)| at.map(map).remove(&map_key));
                assert_eq!(found, self.maps.remove(&(key, map_key)).is_some());
            }
            9 => {
                let mut entries = job.at(&key, |at, (_, map, _)| at.map(map).entries());
                entries.sort();
                let range = (key.clone(), 0)..=(key, u16::MAX);
                let expected = self.maps.range(range);
                let expected: Vec<_> = expected
                    .map(|((_, mk), text)| (*mk, text.clone()))
                    .collect();
                assert_eq!(entries, expected);
            }
            10 => {
                job.at(&key, |at, (_, _, sum)| {
                    at.reducing_in(sum, &namespace).add(number)
                });
                *self.sums.entry((key, namespace)).or_default() += number;
            }
            _ => {
                job.at(&key, |at, (_, _, sum)| at.merge_reducing(sum, &0, &[1, 2]));
                let mut merged = None;
                for namespace in 0..3 {
                    if let Some(sum) = self.sums.remove(&(key.clone(), namespace)) {
                        merged = Some(merged.unwrap_or(0) + sum);
                    }
                }
                if let Some(merged) = merged {
                    self.sums.insert((key, 0), merged);
                }
            }
        }
    }

    fn check(&self, keys: u64, job: &mut Job<String, Tokens>) {
        assert_eq!(job.entries("value"), self.values.len() as u64);
        assert_eq!(job.entries("sum"), self.sums.len() as u64);
        let mut with_map: Vec<_> = self.maps.keys().map(|(key, _)| key.clone()).collect();
        with_map.dedup();
        assert_eq!(job.entries("map"), with_map.len() as u64);
        let mut found = Self::default();
        for number in 0..keys {
            let key = format!("key {number}");
            let value = job.at(&key, |at, (value, _, _)| at.value(value).get());
            found.values.extend(value.map(|value| (key.clone(), value)));
            let entries = job.at(&key, |at, (_, map, _)| at.map(map).entries());
            let entries = entries
                .into_iter()
                .map(|(mk, text)| ((key.clone(), mk), text));
            found.maps.extend(entries);
            for namespace in 0..3 {
                let sum = job.at(&key, |at, (_, _, sum)| {
                    at.reducing_in(sum, &namespace).get()
                });
                found
                    .sums
                    .extend(sum.map(|sum| ((key.clone(), namespace), sum)));
            }
        }
        assert_eq!(found, *self);
        let mut named = job.keys("value", &());
        named.sort();
        assert!(named.iter().eq(self.values.keys()));
    }
}

fn is_written_back(checkpoint: &Checkpoint) -> bool {
    checkpoint.all().any(|handle| handle.format() == WRITE_BACK)
}

/// A frozen dirty set is never reached by what is written, written back or given up after the cut.
#[test]
fn a_frozen_dirty_set_is_never_reached_by_later_writes_or_evictions() {
    const KEYS: u64 = 300;
    for (bytes, native) in [
        (8 << 10, false),
        (8 << 10, true),
        (64 << 20, false),
        (64 << 20, true),
    ] {
        let (factory, _) = cached(bytes, native);
        let setup = setup(&factory);
        let mut job = ok(setup.start_at(2, register));
        let (mut model, mut random) = (Model::default(), Random(7));
        for _ in 0..4_000 {
            model.step(&mut random, KEYS, &mut job);
        }
        let mut cuts = Vec::new();
        for kind in [SnapshotKind::Checkpoint, SnapshotKind::CanonicalSavepoint] {
            cuts.push((ok(job.cut(kind)), model.clone()));
            for step in 0..3_000 {
                model.step(&mut random, KEYS, &mut job);
                if step % 100 == 0 {
                    job.subtask(0).0.maintain(1_000);
                }
            }
        }
        for (cut, expected) in cuts {
            let checkpoint = ok(cut.persist(&setup));
            let canonical = checkpoint
                .all()
                .all(|handle| handle.format() == "canonical");
            assert_eq!(is_written_back(&checkpoint), !canonical, "{bytes} {native}");
            let mut restored = ok(setup.restore(&checkpoint, 2, register));
            expected.check(KEYS, &mut restored);
        }
        model.check(KEYS, &mut job);
    }
}

/// A restore gives the moment of the cut, at another parallelism too, whichever way dirty entries went into the checkpoint.
#[test]
fn a_restore_equals_the_moment_of_the_cut_at_any_parallelism() {
    const KEYS: u64 = 200;
    let Settings { seed, .. } = Settings::from_env();
    println!("seed {seed}");
    for (bytes, native) in [
        (6 << 10, true),
        (6 << 10, false),
        (1 << 20, true),
        (1 << 20, false),
    ] {
        let (factory, _) = cached(bytes, native);
        let setup = setup(&factory);
        let mut job = ok(setup.start_at(2, register));
        let (mut model, mut random) = (Model::default(), Random(seed));
        for (round, parallelism) in [3, 2, 2, 3, 1, 2].into_iter().enumerate() {
            for _ in 0..1_500 {
                model.step(&mut random, KEYS, &mut job);
            }
            let cut = ok(job.cut(SnapshotKind::Checkpoint));
            let expected = model.clone();
            // The job goes on, and crashes.
            for _ in 0..500 {
                model.step(&mut random, KEYS, &mut job);
            }
            let checkpoint = ok(cut.persist(&setup));
            assert!(!native || is_written_back(&checkpoint), "round {round}");
            drop(job);
            job = ok(setup.restore(&checkpoint, parallelism, register));
            model = expected;
            if round % 2 == 1 {
                model.check(KEYS, &mut job);
            }
        }
        model.check(KEYS, &mut job);
    }
}

/// The budget of all subtasks together is held, whatever is read and written, and what is seen is what a store without a
/// cache shows.
#[test]
fn the_budget_is_held_under_random_access() {
    const KEYS: u64 = 5_000;
    const BUDGET: usize = 128 << 10;
    let (factory, budget) = cached(BUDGET, false);
    let setup = setup(&factory);
    let mut job = ok(setup.start_at(3, register));
    let (mut model, mut random) = (Model::default(), Random(11));
    let mut most = 0;
    for step in 0..60_000 {
        model.step(&mut random, KEYS, &mut job);
        if step % 64 == 0 {
            assert!(
                budget.drawn() <= BUDGET,
                "{} bytes are drawn",
                budget.drawn()
            );
            let taken: usize = (0..3).map(|n| job.subtask(n).0.memory().total).sum();
            most = most.max(taken);
        }
        if step % 1_000 == 0 {
            (0..3).for_each(|n| {
                job.subtask(n).0.maintain(1_000);
            });
        }
    }
    assert!(budget.drawn() >= BUDGET * 3 / 4, "the cache is not used");
    // Beside the entries there are the empty tables: three subtasks, three states, 16 key groups.
    assert!(
        most <= BUDGET + BUDGET / 4 + 3 * 3 * 16 * 256,
        "{most} bytes are taken"
    );
    model.check(KEYS, &mut job);
    drop(job);
    assert_eq!(budget.drawn(), 0);
}

/// Hits touch the store neither for reading nor for writing; each miss reads it once, what is known to be absent is not read again.
#[test]
fn hits_do_not_touch_the_store() {
    let (factory, calls, _) = counted(1 << 20);
    let setup = setup(&factory);
    let mut job = ok(setup.start_at(1, register));
    calls.take();
    for _ in 0..10 {
        for n in 0..100 {
            let key = n.to_string();
            job.at(&key, |at, (value, _, sum)| {
                assert_eq!(at.value(value).get()?.unwrap_or(n), n);
                at.value(value).update(|old| *old = n)?;
                at.reducing_in(sum, &1).add(1)
            });
        }
    }
    assert_eq!(calls.take(), [200, 0, 0, 0]);
    // Written without being read.
    for n in 0..100 {
        job.at(&format!("new {n}"), |at, (value, map, _)| {
            at.value(value).set(n)?;
            at.map(map).put(3, "three".to_owned())?;
            assert_eq!(at.map(map).get(&3)?.as_deref(), Some("three"));
            at.value(value).clear()
        });
    }
    assert_eq!(calls.take(), [0, 0, 0, 0]);
    // A scan of a map writes what is dirty of this map alone.
    let entries = job.at(&"new 5".to_owned(), |at, (_, map, _)| at.map(map).entries());
    assert_eq!(entries, [(3, "three".to_owned())]);
    assert_eq!(calls.take(), [0, 1, 0, 1]);
    job.at(&"new 5".to_owned(), |at, (_, map, _)| at.map(map).entries());
    assert_eq!(calls.take(), [0, 0, 0, 1]);
}

/// A snapshot that is dropped, aborted or fails lets go of all that it froze.
#[test]
fn a_snapshot_that_comes_to_nothing_releases_everything() {
    const BUDGET: usize = 64 << 10;
    for native in [false, true] {
        let (factory, budget) = cached(BUDGET, native);
        let setup = setup(&factory);
        let mut job = ok(setup.start_at(1, register));
        let (mut model, mut random) = (Model::default(), Random(3));
        let mut taken = Vec::new();
        for round in 0..30 {
            for _ in 0..1_000 {
                model.step(&mut random, 2_000, &mut job);
            }
            let cut = ok(job.cut(SnapshotKind::Checkpoint));
            let id = cut.id;
            let before = setup.memory.names();
            for _ in 0..200 {
                model.step(&mut random, 2_000, &mut job);
            }
            match round % 3 {
                0 => drop(cut),
                1 => {
                    for snapshot in cut.into_snapshots() {
                        let cx = state_api::PersistContext::new(
                            id,
                            Arc::clone(&setup.storage),
                            Arc::clone(&setup.executor),
                        );
                        cx.cancel.cancel();
                        let failed = backend_testkit::block_on(snapshot.persist(cx));
                        assert_eq!(failed.unwrap_err().kind(), ErrorKind::Cancelled);
                    }
                }
                _ => {
                    let checkpoint = ok(cut.persist(&setup));
                    for handle in checkpoint
                        .all()
                        .filter(|handle| handle.format() == WRITE_BACK)
                    {
                        let counts = handle.states().iter().map(|state| state.entries);
                        assert!(
                            counts
                                .into_iter()
                                .all(|count| matches!(count, EntryCount::Estimate(_)))
                        );
                    }
                }
            }
            if round % 3 < 2 {
                ok(job.aborted(id));
                assert_eq!(setup.memory.names(), before);
            } else {
                ok(job.completed(id));
            }
            while job.subtask(0).0.maintain(10_000) {}
            taken.push(job.subtask(0).0.memory().total);
            assert!(budget.drawn() <= BUDGET);
        }
        let (early, late) = (taken[5..10].iter().max(), taken[25..].iter().max());
        assert!(late.unwrap() * 4 <= early.unwrap() * 5, "{taken:?}");
        model.check(2_000, &mut job);
    }
}

/// What is dirty is bounded: beyond half of a subtask's part it is written back in the background, and stays cached.
#[test]
fn dirty_entries_are_written_back_in_the_background() {
    const BUDGET: usize = 256 << 10;
    let (factory, calls, budget) = counted(BUDGET);
    let setup = setup(&factory);
    let mut job = ok(setup.start_at(1, register));
    let mut written = 0;
    while budget.drawn() < BUDGET * 9 / 10 {
        job.at(&written.to_string(), |at, (value, _, _)| {
            at.value(value).set(1)
        });
        written += 1;
    }
    assert_eq!(calls.take(), [0, 0, 0, 0]);
    while job.subtask(0).0.maintain(200) {}
    let [_, puts, ..] = calls.take();
    assert!(
        puts * 5 >= written as usize * 2 && puts < written as usize,
        "{puts} of {written}"
    );
    for key in 0..written {
        let found = job.at(&key.to_string(), |at, (value, _, _)| at.value(value).get());
        assert_eq!(found, Some(1));
    }
    assert_eq!(calls.take(), [0, 0, 0, 0]);
}
