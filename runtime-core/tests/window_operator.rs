//! Windows by the rules of Flink's window operator, against a model that keeps whole lists, on both representations.
#![allow(clippy::unwrap_used, reason = "steps of the model are functions")]
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use backend_hashmap::HashMapBackend;
use backend_testkit::ReferenceBackend;
use backend_testkit::fuzz::Random;
use managed_state::keyed::{At, ValueState};
use runtime_core::operator::Windows;
use runtime_core::testing::KeyedHarness;
use runtime_core::{
    KeyedOperator, Out, Session, SideOutput, Sliding, States, TimeWindow, Tumbling, WindowFunction,
    Windowed, Windowing,
};
use state_api::access::{Aggregator, ValueAccess};
use state_api::{BackendFactory, Result};

/// A record: its number. Results are sorted lists of numbers, so that nothing is confused.
type Numbers = Vec<u64>;

#[derive(Clone)]
struct Gather;

impl Aggregator for Gather {
    type In = u64;
    type Acc = Numbers;
    type Out = Numbers;

    fn create(&self) -> Numbers {
        Vec::new()
    }

    fn add(&self, acc: &mut Numbers, input: u64) -> Result<()> {
        acc.push(input);
        Ok(())
    }

    fn merge(&self, acc: &mut Numbers, mut other: Numbers) -> Result<()> {
        acc.append(&mut other);
        Ok(())
    }

    fn result(&self, acc: &Numbers) -> Numbers {
        let mut sorted = acc.clone();
        sorted.sort_unstable();
        sorted
    }
}

/// The same by a function over all records; counts what it was called for in a state per window.
#[derive(Clone, Default)]
struct All {
    fired: ValueState<u64, TimeWindow>,
}

impl WindowFunction for All {
    type Key = u32;
    type In = u64;
    type Out = Windowed<u32, Numbers>;

    fn open(&mut self, states: &mut States<'_, u32>) -> Result<()> {
        self.fired = states.value("fired")?;
        Ok(())
    }

    fn process(
        &mut self,
        window: TimeWindow,
        mut records: Numbers,
        at: &mut At<'_, u32>,
        out: &mut Out<'_, Self::Out>,
    ) -> Result<()> {
        at.value_in(self.fired, &window).update(|n| *n += 1)?;
        records.sort_unstable();
        assert_eq!(out.time(), Some(window.last_ms()));
        out.emit(Windowed {
            key: *at.key(),
            start_ms: window.start_ms,
            end_ms: window.end_ms,
            value: records,
        })
    }

    fn clear(&mut self, window: TimeWindow, at: &mut At<'_, u32>) -> Result<()> {
        at.value_in(self.fired, &window).clear()
    }
}

/// What a window did: key, window, records in it.
type Fired = (u32, TimeWindow, Numbers);

/// The rules, over plain lists.
struct Model {
    windows: Windows,
    gap: Option<i64>,
    lateness: i64,
    watermark: i64,
    /// By key, the windows that are not over.
    live: BTreeMap<u32, Vec<(TimeWindow, Numbers)>>,
    fired: Vec<Fired>,
    late: BTreeSet<u64>,
}

impl Model {
    fn new(windows: Windows, gap: Option<i64>, lateness: i64) -> Self {
        Self {
            windows,
            gap,
            lateness,
            watermark: i64::MIN,
            live: BTreeMap::new(),
            fired: Vec::new(),
            late: BTreeSet::new(),
        }
    }

    fn is_over(&self, window: TimeWindow) -> bool {
        window.last_ms().saturating_add(self.lateness) <= self.watermark
    }

    fn record(&mut self, key: u32, number: u64, time: i64) {
        let mut taken = false;
        let mut in_none = true;
        let windows: Vec<TimeWindow> = match self.gap {
            Some(gap) => vec![TimeWindow::new(time, time + gap)],
            None => (time - 40..=time)
                .map(|start| TimeWindow::new(start, start))
                .filter_map(|at| {
                    self.windows
                        .of(at.start_ms)
                        .find(|w| w.start_ms == at.start_ms)
                })
                .filter(|window| (window.start_ms..window.end_ms).contains(&time))
                .collect(),
        };
        for mut window in windows {
            in_none = false;
            let mut numbers = vec![number];
            let live = self.live.entry(key).or_default();
            let joins: Vec<usize> = (0..live.len())
                .filter(|i| match self.gap {
                    Some(_) => {
                        live[*i].0.start_ms <= window.end_ms && window.start_ms <= live[*i].0.end_ms
                    }
                    None => live[*i].0 == window,
                })
                .collect();
            let grown = joins.iter().fold(window, |w, i| w.cover(live[*i].0));
            if grown.last_ms().saturating_add(self.lateness) <= self.watermark {
                continue;
            }
            window = grown;
            for i in joins.into_iter().rev() {
                numbers.extend(live.remove(i).1);
            }
            numbers.sort_unstable();
            taken = true;
            if window.last_ms() <= self.watermark {
                self.fired.push((key, window, numbers.clone()));
            }
            live.push((window, numbers));
        }
        if !taken && (!in_none || time + self.lateness <= self.watermark) {
            self.late.insert(number);
        }
    }

    fn advance(&mut self, watermark: i64) {
        let before = std::mem::replace(&mut self.watermark, watermark);
        for (key, live) in &self.live {
            for (window, numbers) in live {
                if before < window.last_ms() && window.last_ms() <= watermark {
                    self.fired.push((*key, *window, numbers.clone()));
                }
            }
        }
        let mut live = std::mem::take(&mut self.live);
        for windows in live.values_mut() {
            windows.retain(|(window, _)| !self.is_over(*window));
        }
        live.retain(|_, windows| !windows.is_empty());
        self.live = live;
    }
}

/// The subtasks of an operator at some parallelism.
struct Subtasks<O: KeyedOperator<Key = u32, In = u64, Out = Windowed<u32, Numbers>>> {
    operator: O,
    backend: Arc<dyn BackendFactory>,
    all: Vec<KeyedHarness<O>>,
    late: SideOutput<u64>,
    fired: Vec<Fired>,
    seen_late: BTreeSet<u64>,
}

impl<O: KeyedOperator<Key = u32, In = u64, Out = Windowed<u32, Numbers>>> Subtasks<O> {
    fn collect(&mut self) {
        for subtask in &mut self.all {
            for out in subtask.take_outputs() {
                let Windowed {
                    key,
                    start_ms,
                    end_ms,
                    value,
                } = out.value;
                assert_eq!(out.time, end_ms - 1);
                self.fired
                    .push((key, TimeWindow::new(start_ms, end_ms), value));
            }
            let late = subtask.take_side(self.late);
            self.seen_late
                .extend(late.into_iter().map(|late| late.value));
        }
    }

    fn rescale(&mut self, parallelism: u32) {
        self.collect();
        let snapshots: Vec<_> = self.all.iter_mut().map(|s| s.snapshot().unwrap()).collect();
        let (operator, backend) = (self.operator.clone(), Arc::clone(&self.backend));
        self.all = KeyedHarness::restore(operator, backend, &snapshots, parallelism).unwrap();
    }

    fn entries(&mut self, state: &str) -> u64 {
        let of = |s: &mut KeyedHarness<O>| s.states().entries(state).unwrap();
        self.all.iter_mut().map(of).sum()
    }
}

fn compare<O>(
    (seed, backend): (u64, Arc<dyn BackendFactory>),
    mut model: Model,
    late: SideOutput<u64>,
    operator: O,
) where
    O: KeyedOperator<Key = u32, In = u64, Out = Windowed<u32, Numbers>>,
{
    let mut random = Random::new(seed);
    let first = KeyedHarness::start(operator.clone(), Arc::clone(&backend)).unwrap();
    let mut subtasks = Subtasks {
        operator,
        backend,
        all: vec![first],
        late,
        fired: Vec::new(),
        seen_late: BTreeSet::new(),
    };
    for number in 0..400 {
        let now = (number / 2) as i64;
        match random.below(20) {
            0..=2 => {
                let watermark = model.watermark.max(now - random.below(20) as i64 - 5);
                subtasks
                    .all
                    .iter_mut()
                    .for_each(|s| s.advance_watermark(watermark).unwrap());
                model.advance(watermark);
                subtasks.collect();
                let live: usize = model.live.values().map(Vec::len).sum();
                assert_eq!(subtasks.entries("window"), live as u64, "seed {seed}");
                assert_eq!(subtasks.entries("window-end"), live as u64, "seed {seed}");
            }
            3 if random.below(4) == 0 => subtasks.rescale(1 + random.below(4) as u32),
            _ => {
                let (key, time) = (random.below(6) as u32, now - random.below(60) as i64);
                let owner = subtasks.all.iter_mut().find(|s| s.owns(&key)).unwrap();
                owner.process_at(key, number, time).unwrap();
                model.record(key, number, time);
            }
        }
    }
    subtasks
        .all
        .iter_mut()
        .for_each(|s| s.advance_watermark(i64::MAX).unwrap());
    model.advance(i64::MAX);
    subtasks.collect();
    subtasks.fired.sort();
    model.fired.sort();
    assert_eq!(subtasks.fired, model.fired, "seed {seed}");
    assert_eq!(subtasks.seen_late, model.late, "seed {seed}");
    for state in ["window", "window-end"] {
        assert_eq!(subtasks.entries(state), 0, "seed {seed}: {state}");
    }
    if model.gap.is_some() {
        assert_eq!(subtasks.entries("sessions"), 0, "seed {seed}");
    }
}

fn backends() -> [Arc<dyn BackendFactory>; 2] {
    [Arc::new(HashMapBackend), Arc::new(ReferenceBackend)]
}

fn compare_all(windows: impl Into<Windows> + Copy, gap: Option<i64>) {
    for seed in 0..8 {
        for backend in backends() {
            let lateness = [0, 7, 40][seed as usize % 3];
            let late = SideOutput::new();
            let model = || Model::new(windows.into(), gap, lateness);
            let windowing = Windowing::new(windows)
                .allowed_lateness(lateness)
                .late_output(late);
            let run = || (seed, Arc::clone(&backend));
            compare(run(), model(), late, windowing.aggregate::<u32, _>(Gather));
            compare(run(), model(), late, windowing.process(All::default()));
        }
    }
}

#[test]
fn tumbling_windows_agree_with_the_rules_through_restores_at_other_parallelisms() {
    compare_all(Tumbling::of(10).offset(3), None);
}

#[test]
fn sliding_windows_agree_with_the_rules_through_restores_at_other_parallelisms() {
    compare_all(Sliding::of(20, 5), None);
    compare_all(Sliding::of(10, 4).offset(1), None);
    // With room between the windows.
    compare_all(Sliding::of(5, 12), None);
}

#[test]
fn session_windows_agree_with_the_rules_through_restores_at_other_parallelisms() {
    compare_all(Session::gap(8), Some(8));
    compare_all(Session::gap(1), Some(1));
}
