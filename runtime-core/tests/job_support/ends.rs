//! Operators that emit something at the end of their input, each of which must be there once.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use runtime_core::{BroadcastOperator, BroadcastSide};

/// A word and its count; the marks that operators emit at the end have none.
pub type Counted = (String, u64);

/// What an operator learns at the end of its input, in this order.
const ENDS: [&str; 2] = ["time", "input"];

fn is_end(watermark: i64) -> bool {
    watermark == runtime_core::END_OF_TIME
}

/// Passes records on, and emits marks at the end of its input.
#[derive(Clone)]
pub struct Ends<T> {
    pub mark: fn(&str) -> T,
    /// When set, the next word that a checkpoint is complete fails the job.
    pub fails: Arc<AtomicBool>,
}

impl<T> Ends<T> {
    pub fn new(mark: fn(&str) -> T) -> Self {
        Self {
            mark,
            fails: Arc::default(),
        }
    }
}

impl<T: Record + Sync> Operator for Ends<T> {
    type In = T;
    type Out = T;

    fn process(&mut self, record: T, _: &mut OperatorStates, out: &mut Out<'_, T>) -> Result<()> {
        out.emit(record)
    }

    fn on_watermark(
        &mut self,
        watermark: i64,
        _: &mut OperatorStates,
        out: &mut Out<'_, T>,
    ) -> Result<()> {
        match is_end(watermark) {
            true => out.emit((self.mark)(ENDS[0])),
            false => Ok(()),
        }
    }

    fn finish(&mut self, _: &mut OperatorStates, out: &mut Out<'_, T>) -> Result<()> {
        out.emit((self.mark)(ENDS[1]))
    }

    fn checkpoint_completed(&mut self, _: CheckpointId) -> Result<()> {
        match self.fails.swap(false, Ordering::Relaxed) {
            true => Err(Error::user("on purpose")),
            false => Ok(()),
        }
    }
}

/// Counts, and emits marks at the end of its input.
#[derive(Clone, Default)]
pub struct CountEnds(Count);

impl KeyedOperator for CountEnds {
    type Key = String;
    type In = String;
    type Out = Counted;

    fn open(&mut self, states: &mut States<'_, String>) -> Result<()> {
        self.0.open(states)
    }

    fn process(
        &mut self,
        word: String,
        at: &mut At<'_, String>,
        out: &mut Out<'_, Counted>,
    ) -> Result<()> {
        self.0.process(word, at, out)
    }

    fn on_watermark(&mut self, watermark: i64, out: &mut Out<'_, Counted>) -> Result<()> {
        match is_end(watermark) {
            true => out.emit((format!("count {}", ENDS[0]), 0)),
            false => Ok(()),
        }
    }

    fn finish(&mut self, out: &mut Out<'_, Counted>) -> Result<()> {
        out.emit((format!("count {}", ENDS[1]), 0))
    }
}

/// Passes records on beside a broadcast input, and emits marks at the end of both.
#[derive(Clone)]
pub struct CastEnds;

impl BroadcastOperator for CastEnds {
    type Key = String;
    type In = Counted;
    type Broadcast = u64;
    type Out = Counted;

    fn open(&mut self, _: &mut States<'_, String>, _: &mut OperatorStates) -> Result<()> {
        Ok(())
    }

    fn process(
        &mut self,
        record: Counted,
        _: &mut At<'_, String>,
        _: &OperatorStates,
        out: &mut Out<'_, Counted>,
    ) -> Result<()> {
        out.emit(record)
    }

    fn process_broadcast(
        &mut self,
        _: u64,
        _: &mut BroadcastSide<'_, String>,
        _: &mut Out<'_, Counted>,
    ) -> Result<()> {
        Ok(())
    }

    fn on_watermark(
        &mut self,
        watermark: i64,
        _: &mut OperatorStates,
        out: &mut Out<'_, Counted>,
    ) -> Result<()> {
        match is_end(watermark) {
            true => out.emit((format!("cast {}", ENDS[0]), 0)),
            false => Ok(()),
        }
    }

    fn finish(&mut self, out: &mut Out<'_, Counted>) -> Result<()> {
        out.emit((format!("cast {}", ENDS[1]), 0))
    }
}

/// Counts words; an operator in each kind of chain emits marks at the end.
pub fn ending(
    job: &Job,
    name: &str,
    (lines, splits): (&[String], u64),
    tail: Ends<Counted>,
    ledger: &Ledger<Counted>,
) {
    let uid = |of: &str| format!("{name} {of}");
    let numbers = job.source(&uid("numbers"), Items::new(vec![1, 2, 3], 1));
    job.source(&uid("lines"), Items::new(lines.to_vec(), splits))
        .flat_map(words)
        .operator(&uid("head"), Ends::new(|end| format!("head {end}")))
        .persist_in_flight()
        .key_by_ref(|word: &String| word)
        .process(&uid("count"), CountEnds::default())
        .key_by(|(word, _): &Counted| word.clone())
        .connect_broadcast(&numbers, &uid("cast"), CastEnds)
        .persist_in_flight()
        .rebalance()
        .operator(&uid("tail"), tail)
        .sink_exactly_once(&uid("out"), ledger.clone());
}

/// Makes the marks of the operator that is the last.
pub fn tail(end: &str) -> Counted {
    (format!("tail {end}"), 0)
}

/// Says what is wrong with an output; nothing if every word is counted once, and `times` subtasks have left each mark once.
pub fn check(records: &[Counted], lines: &[String], times: u64) -> std::result::Result<(), String> {
    let (marks, counts): (Vec<_>, Vec<_>) = records.iter().cloned().partition(|(_, n)| *n == 0);
    let mut expected = expected(lines);
    for end in ENDS {
        // It is counted like a word.
        expected.insert(format!("head {end}"), times);
    }
    let mut seen: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (word, count) in counts {
        seen.entry(word).or_default().push(count);
    }
    for (word, total) in &expected {
        let mut counts = seen.remove(word).unwrap_or_default();
        counts.sort_unstable();
        if counts != (1..=*total).collect::<Vec<_>>() {
            return Err(format!(
                "{word} has the counts {counts:?} instead of 1 to {total}"
            ));
        }
    }
    if !seen.is_empty() {
        return Err(format!("nobody wrote {seen:?}"));
    }
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    for (mark, _) in marks {
        *seen.entry(mark).or_default() += 1;
    }
    let of = |operator| ENDS.map(|end| (format!("{operator} {end}"), times));
    let expected: BTreeMap<String, u64> =
        ["count", "cast", "tail"].into_iter().flat_map(of).collect();
    match seen == expected {
        true => Ok(()),
        false => Err(format!("the marks are {seen:?}")),
    }
}
