//! Bytes per key: as accounted, as asked of the allocator, as resident.
use hashbrown::DefaultHashBuilder;
use state_api::Result;

use crate::meter::held_by;
use crate::process::resident_bytes;
use crate::subject::{Bare, Facade, Subject};
use crate::table::Table;
use crate::workload::{INSERT_SEED, Longs, Shape, Structs, Words, keys};

/// Returns the table of every shape. The global allocator must be [`Metered`](crate::meter::Metered).
///
/// # Errors
/// Those of the states.
pub fn table(n: usize) -> Result<Table> {
    let mut table = Table::new(
        format!("Bytes per key, {n} keys"),
        &[
            "shape",
            "accounted",
            "allocated",
            "accounted ÷ allocated",
            "resident",
            "bare hashbrown, allocated",
            "key and value alone",
        ],
    );
    shape::<Longs>(n, &mut table)?;
    shape::<Words>(n, &mut table)?;
    shape::<Structs>(n, &mut table)?;
    Ok(table)
}

fn shape<S: Shape>(n: usize, table: &mut Table) -> Result<()> {
    let all = keys::<S>(n, INSERT_SEED);
    let heap: usize = all.iter().map(state_api::StateType::heap_size).sum();
    let per_key = |bytes: usize| bytes as f64 / n as f64;

    let before = resident_bytes();
    let (facade, allocated) = held_by(|| {
        let mut facade = Facade::<S>::empty()?;
        facade.add(&all)?;
        Ok::<_, state_api::Error>(facade)
    });
    let after = resident_bytes();
    let accounted = facade?.states.memory().total;
    let (bare, bare_allocated) = held_by(|| {
        let mut bare: Bare<S, DefaultHashBuilder> = Subject::<S>::empty()?;
        Subject::<S>::add(&mut bare, &all)?;
        Ok::<_, state_api::Error>(bare)
    });
    drop(bare?);
    let resident = before.zip(after).map(|(a, b)| b.saturating_sub(a));
    let one = size_of::<S::Key>() + size_of::<S::Value>();
    table.row([
        S::NAME.to_owned(),
        format!("{:.1}", per_key(accounted)),
        format!("{:.1}", per_key(allocated)),
        format!("{:.3}", accounted as f64 / allocated.max(1) as f64),
        resident.map_or_else(String::new, |r| format!("{:.1}", r as f64 / n as f64)),
        format!("{:.1}", per_key(bare_allocated)),
        format!("{:.1}", one as f64 + per_key(heap)),
    ]);
    Ok(())
}
