//! Single operations on keyed values against bare tables, alternated in one run.
use hashbrown::DefaultHashBuilder;
use state_api::Result;

use crate::stopwatch::{Spread, ns_per_op};
use crate::subject::{Bare, Batched, Facade, OurHash, Subject};
use crate::table::Table;
use crate::workload::{INSERT_SEED, Longs, PROBE_SEED, Shape, Structs, Words, keys};

const OPERATIONS: [&str; 4] = ["add", "get", "update", "read-modify-write"];

/// Nanoseconds per operation of the four subjects, round by round.
#[derive(Default)]
struct Rounds {
    facade: Vec<f64>,
    batched: Vec<f64>,
    ours: Vec<f64>,
    default: Vec<f64>,
}

fn ratio(ours: &[f64], other: &[f64]) -> Spread {
    Spread::of(ours.iter().zip(other).map(|(a, b)| a / b).collect())
}

/// Returns the table of every shape: medians, and medians of the ratios of each round with their extremes.
///
/// Shapes whose tables would take more than 4 GB are left out.
///
/// # Errors
/// Those of the states.
pub fn table(n: usize, rounds: usize) -> Result<Table> {
    let mut table = Table::new(
        format!("Live values, {n} keys, 128 key groups, ns per operation, {rounds} alternations"),
        &[
            "operation",
            "facade",
            "in batches",
            "bare, our hash",
            "bare, its hash",
            "facade ÷ our hash",
            "÷ its hash",
            "in batches ÷ our hash",
            "÷ its hash",
        ],
    );
    shape::<Longs>(n, rounds, &mut table)?;
    shape::<Words>(n, rounds, &mut table)?;
    shape::<Structs>(n, rounds, &mut table)?;
    Ok(table)
}

fn shape<S: Shape>(n: usize, rounds: usize, table: &mut Table) -> Result<()> {
    let entry = size_of::<S::Key>() + size_of::<S::Value>();
    if n * entry * 2 > 4 << 30 {
        return Ok(());
    }
    let (inserts, probes) = (keys::<S>(n, INSERT_SEED), keys::<S>(n, PROBE_SEED));
    let mut all: [Rounds; 4] = Default::default();
    for round in 0..=rounds {
        let [added, read, updated, changed] = &mut all;
        let mut facade = Facade::<S>::empty()?;
        let mut batched = Batched::<S>::empty()?;
        let mut ours: Bare<S, OurHash> = Subject::<S>::empty()?;
        let mut default: Bare<S, DefaultHashBuilder> = Subject::<S>::empty()?;
        // Every round begins with another one of the four.
        let alternate = |into: &mut Rounds, run: &mut dyn FnMut(usize) -> f64| -> Result<()> {
            for turn in 0..4 {
                let which = (round + turn) % 4;
                let ns = run(which);
                // The first round warms up.
                if round > 0 {
                    match which {
                        0 => into.facade.push(ns),
                        1 => into.batched.push(ns),
                        2 => into.ours.push(ns),
                        _ => into.default.push(ns),
                    }
                }
            }
            Ok(())
        };
        let mut failure = None;
        let mut keep = |result: Result<u64>| match result {
            Ok(sum) => sum,
            Err(error) => {
                failure = Some(error);
                0
            }
        };
        macro_rules! run {
            ($into:ident, $operation:ident, $keys:ident) => {
                alternate($into, &mut |which| {
                    ns_per_op(n, || {
                        keep(match which {
                            0 => Subject::<S>::$operation(&mut facade, &$keys),
                            1 => Subject::<S>::$operation(&mut batched, &$keys),
                            2 => Subject::<S>::$operation(&mut ours, &$keys),
                            _ => Subject::<S>::$operation(&mut default, &$keys),
                        })
                    })
                })?
            };
        }
        run!(added, add, inserts);
        run!(read, get, probes);
        run!(updated, update, probes);
        run!(changed, read_modify_write, probes);
        if let Some(error) = failure {
            return Err(error);
        }
    }
    for (operation, rounds) in OPERATIONS.iter().zip(&all) {
        let ns = |all: &[f64]| format!("{:.1}", Spread::of(all.to_vec()).median);
        table.row([
            format!("{}: {operation}", S::NAME),
            ns(&rounds.facade),
            ns(&rounds.batched),
            ns(&rounds.ours),
            ns(&rounds.default),
            format!("{:.2}", ratio(&rounds.facade, &rounds.ours)),
            format!("{:.2}", ratio(&rounds.facade, &rounds.default)),
            format!("{:.2}", ratio(&rounds.batched, &rounds.ours)),
            format!("{:.2}", ratio(&rounds.batched, &rounds.default)),
        ]);
    }
    Ok(())
}
