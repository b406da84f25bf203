//! The operations of the peer harness on our side: same keys, same values, same rounds; beside bare tables if wanted.
use std::hint::black_box;
use std::sync::Arc;

use managed_state::keyed::{
    AggregatingState, KeyedStates, ListState, MapState, ReducingState, ValueState,
};
use state_api::access::{Aggregator, ListAccess, MapAccess, MergeAccess, ValueAccess};
use state_api::{Clock, Error, Result, StateOptions, SystemClock, TtlConfig};

use crate::stopwatch::{Spread, core_seconds, seconds};
use crate::subject::{Home, OurHash};
use crate::table::Table;
use crate::workload::{INSERT_SEED, Longs, PROBE_SEED, Shape, Words, mix64, order, value};

/// Elements of a list, entries of a map.
const LEN: usize = 10;
/// Ready lists, and map keys to ask for.
const POOL: usize = 1024;

/// A shape that the peer harness has too.
pub trait PeerShape: Shape<Value = u64> {
    /// Its name there.
    const KEY: &'static str;
}

impl PeerShape for Longs {
    const KEY: &'static str = "long";
}

impl PeerShape for Words {
    const KEY: &'static str = "string";
}

/// One measurement, as the peer harness names it.
#[derive(Clone, Debug)]
pub struct Line {
    /// Operation.
    pub bench: String,
    /// `long` or `string`.
    pub key: &'static str,
    /// What was measured: `ns_per_op` (by the wall clock), `cpu_ns` and `bare_cpu_ns` (on a core), `bytes_per_key`, `ms`, ….
    pub field: &'static str,
    /// The rounds.
    pub spread: Spread,
}

impl Line {
    /// Returns the line as JSON.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "bench": self.bench, "key": self.key,
            self.field: self.spread.median, "min": self.spread.min, "max": self.spread.max,
        })
    }
}

type BareMap<V> = hashbrown::HashMap<u64, V, OurHash>;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Keys.
    pub n: usize,
    /// Rounds that count, and those before them that don't.
    pub rounds: usize,
    /// Rounds before them that don't.
    pub warm: usize,
    /// Whether the same is done with a bare table in turns.
    pub bare: bool,
    /// Where states are kept.
    pub home: Home,
}

impl Extent {
    /// The extent of the peer harness.
    #[must_use]
    pub fn of(n: usize, home: Home) -> Self {
        Self {
            n,
            rounds: 5,
            warm: match home {
                Home::Live => 2,
                #[cfg(feature = "rocksdb")]
                Home::RocksDb => 1,
            },
            bare: false,
            home,
        }
    }

    /// Returns the operations of a round on so many keys: those of the peer harness.
    fn ops(&self, n: usize, part: usize) -> usize {
        let part = match self.home {
            Home::Live => part,
            #[cfg(feature = "rocksdb")]
            Home::RocksDb => 10,
        };
        (n / part).max(1)
    }
}

struct Runner<P: Shape> {
    extent: Extent,
    /// Ids in the order in which keys are probed.
    probes: Vec<u64>,
    start: usize,
    lines: Vec<Line>,
    shape: std::marker::PhantomData<P>,
}

impl<P: PeerShape> Runner<P> {
    fn new(extent: Extent, n: usize) -> Self {
        Self {
            extent: Extent { n, ..extent },
            probes: order(n, PROBE_SEED),
            start: 0,
            lines: Vec::new(),
            shape: std::marker::PhantomData,
        }
    }

    fn half(&self) -> usize {
        self.extent.ops(self.extent.n, 2)
    }

    fn push(&mut self, bench: &str, field: &'static str, all: Vec<f64>) {
        self.lines.push(Line {
            bench: bench.to_owned(),
            key: P::KEY,
            field,
            spread: Spread::of(all),
        });
    }

    /// Times rounds of `ops` operations on the next keys of the probe order, which are made anew off the clock.
    ///
    /// `ours` and `bare` get the position of the first key and the keys.
    fn measure(
        &mut self,
        bench: &str,
        ops: usize,
        mut ours: impl FnMut(usize, &[P::Key]) -> Result<u64>,
        mut bare: impl FnMut(usize, &[P::Key]) -> u64,
    ) -> Result<()> {
        self.measure_and(bench, ops, &mut ours, &mut bare, |_, _| Ok(()))
    }

    /// As [`measure`](Self::measure); `after` puts things right off the clock.
    #[expect(
        clippy::type_complexity,
        reason = "a call that is timed, named nowhere else"
    )]
    fn measure_and(
        &mut self,
        bench: &str,
        ops: usize,
        ours: &mut dyn FnMut(usize, &[P::Key]) -> Result<u64>,
        bare: &mut dyn FnMut(usize, &[P::Key]) -> u64,
        mut after: impl FnMut(usize, &[P::Key]) -> Result<()>,
    ) -> Result<()> {
        let (mut all, mut all_core, mut all_bare) = (Vec::new(), Vec::new(), Vec::new());
        self.start = 0;
        for round in 0..self.extent.warm + self.extent.rounds {
            if self.start + ops > self.extent.n {
                self.start = 0;
            }
            let at = self.start;
            self.start += ops;
            let keys = |ids: &[u64]| ids.iter().map(|id| P::key(*id)).collect::<Vec<_>>();
            let window = keys(&self.probes[at..at + ops]);
            let ((sum, core), wall) = seconds(|| core_seconds(|| ours(at, &window)));
            black_box(sum?);
            let counts = round >= self.extent.warm;
            if counts {
                all.push(wall * 1e9 / ops as f64);
                all_core.push(core * 1e9 / ops as f64);
            }
            if self.extent.bare {
                let window = keys(&self.probes[at..at + ops]);
                let (sum, took) = core_seconds(|| bare(at, &window));
                black_box(sum);
                if counts {
                    all_bare.push(took * 1e9 / ops as f64);
                }
            }
            after(at, &window)?;
        }
        self.push(bench, "ns_per_op", all);
        self.push(bench, "cpu_ns", all_core);
        if self.extent.bare {
            self.push(bench, "bare_cpu_ns", all_bare);
        }
        Ok(())
    }
}

/// Runs one suite: `value`, `list`, `map`, `agg` or `ttl`; only `value` has words as keys.
///
/// # Errors
/// `InvalidArgument` for another name; those of the states.
pub fn suite(name: &str, words: bool, extent: Extent) -> Result<Vec<Line>> {
    match (name, words) {
        ("value", false) => values::<Longs>(extent),
        ("value", true) => values::<Words>(extent),
        ("list", false) => lists(extent),
        ("map", false) => maps(extent),
        ("agg", false) => merging(extent),
        ("ttl", false) => ttl(extent),
        (_, true) => Ok(Vec::new()),
        _ => Err(Error::invalid("no such suite: value, list, map, agg, ttl").with("suite", name)),
    }
}

/// Returns the table of all suites beside bare tables.
///
/// # Errors
/// Those of the states.
pub fn table(n: usize, rounds: usize) -> Result<Table> {
    let extent = Extent {
        n,
        rounds,
        warm: 1,
        bare: true,
        home: Home::Live,
    };
    let mut table = Table::new(
        format!(
            "Every kind of state, {n} keys (maps: {}), ns per operation, beside hashbrown with our hash and std's collections in it",
            n / 5
        ),
        &["operation", "key", "facade", "bare", "ratio"],
    );
    for (name, words) in [
        ("value", false),
        ("value", true),
        ("list", false),
        ("map", false),
        ("agg", false),
        ("ttl", false),
    ] {
        let lines = suite(name, words, extent)?;
        for line in lines.iter().filter(|line| line.field == "cpu_ns") {
            let bare = lines
                .iter()
                .find(|other| other.bench == line.bench && other.field == "bare_cpu_ns");
            let bare = bare.map(|bare| bare.spread.median);
            table.row([
                line.bench.clone(),
                line.key.to_owned(),
                format!("{:.1}", line.spread),
                bare.map_or_else(String::new, |bare| format!("{bare:.1}")),
                bare.map_or_else(String::new, |bare| {
                    format!("{:.2}", line.spread.median / bare)
                }),
            ]);
        }
    }
    Ok(table)
}

fn values<P: PeerShape>(extent: Extent) -> Result<Vec<Line>> {
    let n = extent.n;
    let mut run = Runner::<P>::new(extent, n);
    let inserts = order(n, INSERT_SEED);
    let (mut added, mut added_core, mut added_bare) = (Vec::new(), Vec::new(), Vec::new());
    let mut kept = None;
    for round in 0..5 {
        let keys: Vec<P::Key> = inserts.iter().map(|id| P::key(*id)).collect();
        let mut states: KeyedStates<P::Key> = extent.home.states()?;
        let state: ValueState<u64> = states.value("value")?;
        let add = || -> Result<()> {
            for (i, key) in keys.iter().enumerate() {
                states.at(key).value(state).set(value(i as u64))?;
            }
            Ok(())
        };
        let ((done, core), wall) = seconds(|| core_seconds(add));
        done?;
        let mut bare: hashbrown::HashMap<P::Key, u64, OurHash> = hashbrown::HashMap::default();
        if extent.bare {
            let ((), core) = core_seconds(|| {
                for (i, key) in keys.iter().enumerate() {
                    bare.insert(key.clone(), value(i as u64));
                }
            });
            added_bare.push(core * 1e9 / n as f64);
        }
        if round >= 2 {
            added.push(wall * 1e9 / n as f64);
            added_core.push(core * 1e9 / n as f64);
        }
        kept = Some((states, state, bare));
    }
    run.push("value_add", "ns_per_op", added);
    run.push("value_add", "cpu_ns", added_core);
    if extent.bare {
        run.push("value_add", "bare_cpu_ns", added_bare.split_off(2));
    }
    let Some((mut states, state, mut bare)) = kept else {
        return Ok(run.lines);
    };
    if matches!(extent.home, Home::Live) {
        let bytes = states.memory().total as f64 / n as f64;
        run.push("value_memory", "bytes_per_key", vec![bytes]);
    }
    extent.home.settle()?;
    let ops = run.half();
    run.measure(
        "value_get",
        ops,
        |_, keys| {
            let mut sum = 0u64;
            for key in keys {
                let read = states.at(key).value(state).with(|v| v.copied())?;
                sum = sum.wrapping_add(read.unwrap_or_default());
            }
            Ok(sum)
        },
        |_, keys| {
            let read = keys
                .iter()
                .map(|key| bare.get(key).copied().unwrap_or_default());
            read.fold(0, u64::wrapping_add)
        },
    )?;
    run.measure(
        "value_update",
        ops,
        |at, keys| {
            for (i, key) in keys.iter().enumerate() {
                states.at(key).value(state).set(value((at + i) as u64))?;
            }
            Ok(0)
        },
        |at, keys| {
            for (i, key) in keys.iter().enumerate() {
                if let Some(v) = bare.get_mut(key) {
                    *v = value((at + i) as u64);
                }
            }
            0
        },
    )?;
    run.measure(
        "value_rmw",
        ops,
        |_, keys| {
            for key in keys {
                let mut at = states.at(key);
                at.value(state).update(|n| *n = n.wrapping_add(1))?;
            }
            Ok(0)
        },
        |_, keys| {
            for key in keys {
                if let Some(n) = bare.get_mut(key) {
                    *n = n.wrapping_add(1);
                }
            }
            0
        },
    )?;
    Ok(run.lines)
}

fn ttl(extent: Extent) -> Result<Vec<Line>> {
    let n = extent.n;
    let mut run = Runner::<Longs>::new(extent, n);
    let few = extent.ops(n, 4);
    let hour = TtlConfig::new(std::time::Duration::from_secs(3600))?;
    let all = [
        ("", hour),
        ("_nocleanup", hour.without_background_cleanup()),
    ];
    // The peer harness has the second on the heap only.
    let wanted = match extent.home {
        Home::Live => 2,
        #[cfg(feature = "rocksdb")]
        Home::RocksDb => 1,
    };
    for (tail, config) in all.into_iter().take(wanted) {
        let mut states: KeyedStates<u64> = extent.home.states()?;
        let state: ValueState<u64> = states.value(StateOptions::new("ttl").ttl(config))?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let mut bare: BareMap<(i64, u64)> = BareMap::default();
        for (i, id) in order(n, INSERT_SEED).into_iter().enumerate() {
            let key = mix64(id);
            states.at(&key).value(state).set(value(i as u64))?;
            if extent.bare {
                bare.insert(key, (clock.now_ms(), value(i as u64)));
            }
        }
        extent.home.settle()?;
        let ms = config.ttl_ms();
        run.measure(
            &format!("ttl_value_get{tail}"),
            few,
            |_, keys| {
                let mut sum = 0u64;
                for key in keys {
                    let read = states.at(key).value(state).with(|v| v.copied())?;
                    sum = sum.wrapping_add(read.unwrap_or_default());
                }
                Ok(sum)
            },
            |_, keys| {
                let alive = |key| {
                    let found: Option<&(i64, u64)> = bare.get(key);
                    found.filter(|(at, _)| at + ms > clock.now_ms())
                };
                let read = keys.iter().map(|key| alive(key).map_or(0, |(_, v)| *v));
                read.fold(0, u64::wrapping_add)
            },
        )?;
        run.measure(
            &format!("ttl_value_update{tail}"),
            few,
            |at, keys| {
                for (i, key) in keys.iter().enumerate() {
                    states.at(key).value(state).set(value((at + i) as u64))?;
                }
                Ok(0)
            },
            |at, keys| {
                for (i, key) in keys.iter().enumerate() {
                    if let Some(v) = bare.get_mut(key) {
                        *v = (clock.now_ms(), value((at + i) as u64));
                    }
                }
                0
            },
        )?;
    }
    Ok(run.lines)
}

fn lists(extent: Extent) -> Result<Vec<Line>> {
    let n = extent.n;
    let mut run = Runner::<Longs>::new(extent, n);
    let list_of =
        |from: usize| -> Vec<u64> { (from..from + LEN).map(|i| value(i as u64)).collect() };
    let pool: Vec<Vec<u64>> = (0..POOL).map(|p| list_of(p * LEN)).collect();
    let ready = |i: usize| pool[i & (POOL - 1)].clone();
    let inserts = order(n, INSERT_SEED);
    let ops = run.half();

    let mut states: KeyedStates<u64> = extent.home.states()?;
    let list: ListState<u64> = states.list("list")?;
    let mut bare: BareMap<Vec<u64>> = BareMap::default();
    for (i, id) in inserts.iter().enumerate() {
        let key = mix64(*id);
        states.at(&key).list(list).replace(list_of(i * LEN))?;
        if extent.bare {
            bare.insert(key, list_of(i * LEN));
        }
    }
    extent.home.settle()?;
    run.measure(
        "list_get_iter",
        ops,
        |_, keys| {
            let mut sum = 0u64;
            for key in keys {
                states.at(key).list(list).for_each(|v| {
                    sum = sum.wrapping_add(*v);
                    Ok(())
                })?;
            }
            Ok(sum)
        },
        |_, keys| {
            let found = keys.iter().filter_map(|key| bare.get(key)).flatten();
            found.copied().fold(0, u64::wrapping_add)
        },
    )?;
    run.measure(
        "list_update",
        ops,
        |at, keys| {
            for (i, key) in keys.iter().enumerate() {
                states.at(key).list(list).replace(ready(at + i))?;
            }
            Ok(0)
        },
        |at, keys| {
            for (i, key) in keys.iter().enumerate() {
                bare.insert(*key, ready(at + i));
            }
            0
        },
    )?;

    let mut states: KeyedStates<u64> = extent.home.states()?;
    let list: ListState<u64> = states.list("list")?;
    let mut bare: BareMap<Vec<u64>> = BareMap::default();
    for (i, id) in inserts.iter().enumerate() {
        let key = mix64(*id);
        states.at(&key).list(list).push(value(i as u64))?;
        if extent.bare {
            bare.insert(key, vec![value(i as u64)]);
        }
    }
    extent.home.settle()?;
    run.measure(
        "list_add",
        ops,
        |at, keys| {
            for (i, key) in keys.iter().enumerate() {
                states.at(key).list(list).push(value((at + i) as u64))?;
            }
            Ok(0)
        },
        |at, keys| {
            for (i, key) in keys.iter().enumerate() {
                bare.entry(*key).or_default().push(value((at + i) as u64));
            }
            0
        },
    )?;
    run.measure(
        "list_add_all",
        (n / 10).max(1),
        |at, keys| {
            for (i, key) in keys.iter().enumerate() {
                states.at(key).list(list).extend(ready(at + i))?;
            }
            Ok(0)
        },
        |at, keys| {
            for (i, key) in keys.iter().enumerate() {
                bare.entry(*key).or_default().extend(ready(at + i));
            }
            0
        },
    )?;
    Ok(run.lines)
}

fn maps(extent: Extent) -> Result<Vec<Line>> {
    let n = (extent.n / 5).max(1);
    let mut run = Runner::<Longs>::new(extent, n);
    let asked = |below: u64| -> Vec<u64> {
        let draw = |i| mix64(mix64(i) % below);
        (0..POOL as u64).map(draw).collect()
    };
    let (hit, half) = (asked(LEN as u64), asked(2 * LEN as u64));
    let mut states: KeyedStates<u64> = extent.home.states()?;
    let map: MapState<u64, u64> = states.map("map")?;
    let mut bare: BareMap<BareMap<u64>> = BareMap::default();
    for (i, id) in order(n, INSERT_SEED).into_iter().enumerate() {
        let key = mix64(id);
        for j in 0..LEN as u64 {
            let v = value(i as u64 + j);
            states.at(&key).map(map).put(mix64(j), v)?;
            if extent.bare {
                bare.entry(key).or_default().insert(mix64(j), v);
            }
        }
    }
    let ops = run.half();
    extent.home.settle()?;
    run.measure(
        "map_get",
        ops,
        |at, keys| {
            let mut sum = 0u64;
            for (i, key) in keys.iter().enumerate() {
                let entry = &hit[(at + i) & (POOL - 1)];
                let read = states.at(key).map(map).with(entry, |v| v.copied())?;
                sum = sum.wrapping_add(read.unwrap_or_default());
            }
            Ok(sum)
        },
        |at, keys| {
            let mut sum = 0u64;
            for (i, key) in keys.iter().enumerate() {
                let found = bare
                    .get(key)
                    .and_then(|m| m.get(&hit[(at + i) & (POOL - 1)]));
                sum = sum.wrapping_add(found.copied().unwrap_or_default());
            }
            sum
        },
    )?;
    run.measure(
        "map_contains",
        ops,
        |at, keys| {
            let mut sum = 0;
            for (i, key) in keys.iter().enumerate() {
                let entry = &half[(at + i) & (POOL - 1)];
                sum += u64::from(states.at(key).map(map).contains(entry)?);
            }
            Ok(sum)
        },
        |at, keys| {
            let mut sum = 0;
            for (i, key) in keys.iter().enumerate() {
                let entry = &half[(at + i) & (POOL - 1)];
                sum += u64::from(bare.get(key).is_some_and(|m| m.contains_key(entry)));
            }
            sum
        },
    )?;
    run.measure(
        "map_iter",
        (ops / 4).max(1),
        |_, keys| {
            let mut sum = 0u64;
            for key in keys {
                states.at(key).map(map).for_each(|k, v| {
                    sum = sum.wrapping_add(k ^ v);
                    Ok(())
                })?;
            }
            Ok(sum)
        },
        |_, keys| {
            let found = keys.iter().filter_map(|key| bare.get(key)).flatten();
            found.map(|(k, v)| k ^ v).fold(0, u64::wrapping_add)
        },
    )?;
    run.measure(
        "map_put",
        ops,
        |at, keys| {
            for (i, key) in keys.iter().enumerate() {
                let entry = hit[(at + i) & (POOL - 1)];
                states.at(key).map(map).put(entry, value((at + i) as u64))?;
            }
            Ok(0)
        },
        |at, keys| {
            for (i, key) in keys.iter().enumerate() {
                let entry = hit[(at + i) & (POOL - 1)];
                bare.entry(*key)
                    .or_default()
                    .insert(entry, value((at + i) as u64));
            }
            0
        },
    )?;
    // Both closures below need the states: what was removed is put back off the clock.
    let states = std::cell::RefCell::new(states);
    let bare = std::cell::RefCell::new(bare);
    run.measure_and(
        "map_remove",
        ops,
        &mut |at, keys| {
            let mut states = states.borrow_mut();
            for (i, key) in keys.iter().enumerate() {
                states
                    .at(key)
                    .map(map)
                    .remove(&hit[(at + i) & (POOL - 1)])?;
            }
            Ok(0)
        },
        &mut |at, keys| {
            let mut bare = bare.borrow_mut();
            for (i, key) in keys.iter().enumerate() {
                if let Some(m) = bare.get_mut(key) {
                    m.remove(&hit[(at + i) & (POOL - 1)]);
                }
            }
            0
        },
        |at, keys| {
            let (mut states, mut bare) = (states.borrow_mut(), bare.borrow_mut());
            for (i, key) in keys.iter().enumerate() {
                let (entry, v) = (hit[(at + i) & (POOL - 1)], value((at + i) as u64));
                states.at(key).map(map).put(entry, v)?;
                if let Some(m) = bare.get_mut(key) {
                    m.insert(entry, v);
                }
            }
            Ok(())
        },
    )?;
    Ok(run.lines)
}

/// Mean, with the sum and the count as accumulator.
#[derive(Clone, Copy, Debug)]
struct Mean;

impl Aggregator for Mean {
    type In = u64;
    type Acc = (u64, u64);
    type Out = f64;

    fn create(&self) -> (u64, u64) {
        (0, 0)
    }

    fn add(&self, acc: &mut (u64, u64), input: u64) -> Result<()> {
        *acc = (acc.0.wrapping_add(input), acc.1 + 1);
        Ok(())
    }

    fn merge(&self, acc: &mut (u64, u64), other: (u64, u64)) -> Result<()> {
        *acc = (acc.0.wrapping_add(other.0), acc.1 + other.1);
        Ok(())
    }

    fn result(&self, acc: &(u64, u64)) -> f64 {
        acc.0 as f64 / acc.1 as f64
    }
}

fn merging(extent: Extent) -> Result<Vec<Line>> {
    let n = extent.n;
    let mut run = Runner::<Longs>::new(extent, n);
    let inserts = order(n, INSERT_SEED);
    let ops = run.half();

    let mut states: KeyedStates<u64> = extent.home.states()?;
    let sum: ReducingState<u64> =
        states.reducing("reducing", |a: &u64, b| Ok(a.wrapping_add(b)))?;
    let mut bare: BareMap<u64> = BareMap::default();
    for (i, id) in inserts.iter().enumerate() {
        let key = mix64(*id);
        states.at(&key).reducing(sum).add(value(i as u64))?;
        if extent.bare {
            bare.insert(key, value(i as u64));
        }
    }
    extent.home.settle()?;
    run.measure(
        "reducing_add",
        ops,
        |at, keys| {
            for (i, key) in keys.iter().enumerate() {
                states.at(key).reducing(sum).add(value((at + i) as u64))?;
            }
            Ok(0)
        },
        |at, keys| {
            for (i, key) in keys.iter().enumerate() {
                let sum = bare.entry(*key).or_default();
                *sum = sum.wrapping_add(value((at + i) as u64));
            }
            0
        },
    )?;

    let mut states: KeyedStates<u64> = extent.home.states()?;
    let mean: AggregatingState<Mean> = states.aggregating("aggregating", Mean)?;
    let mut bare: BareMap<(u64, u64)> = BareMap::default();
    for (i, id) in inserts.iter().enumerate() {
        let key = mix64(*id);
        states.at(&key).aggregating(mean).add(value(i as u64))?;
        if extent.bare {
            bare.insert(key, (value(i as u64), 1));
        }
    }
    extent.home.settle()?;
    run.measure(
        "aggregating_add",
        ops,
        |at, keys| {
            for (i, key) in keys.iter().enumerate() {
                let mut states = states.at(key);
                states.aggregating(mean).add(value((at + i) as u64))?;
            }
            Ok(0)
        },
        |at, keys| {
            for (i, key) in keys.iter().enumerate() {
                let acc = bare.entry(*key).or_default();
                *acc = (acc.0.wrapping_add(value((at + i) as u64)), acc.1 + 1);
            }
            0
        },
    )?;
    Ok(run.lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suite_runs_small() {
        let extent = Extent {
            n: 2000,
            rounds: 1,
            warm: 0,
            bare: true,
            home: Home::Live,
        };
        let mut benches = Vec::new();
        for name in ["value", "list", "map", "agg", "ttl"] {
            let lines = suite(name, false, extent).unwrap();
            benches.extend(
                lines
                    .into_iter()
                    .filter(|line| line.field == "ns_per_op")
                    .map(|line| line.bench),
            );
        }
        assert_eq!(benches.len(), 19);
        assert_eq!(
            suite("values", false, extent).unwrap_err().kind(),
            state_api::ErrorKind::InvalidArgument
        );
    }
}
