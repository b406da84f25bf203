//! Operations on live state: criterion's estimates one by one, then ratios to bare tables, alternated.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a table is what it ends with"
)]
use std::hint::black_box;
use std::time::Duration;

use benches::stopwatch::now;
use benches::subject::{Bare, Facade, OurHash, Subject};
use benches::workload::{INSERT_SEED, Longs, PROBE_SEED, Shape, Structs, Words, keys};
use benches::{operations, ratios, settings};
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, measurement::WallTime};
use state_api::Result;

type Operation<S, T> = (
    &'static str,
    fn(&mut T, &[<S as Shape>::Key]) -> Result<u64>,
);

/// Probes go on where the last sample stopped, so that none finds its keys in the cache.
fn operations_of<S: Shape, T: Subject<S>>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    subject: &mut T,
    probes: &[S::Key],
) {
    let operations: [Operation<S, T>; 3] = [
        ("get", T::get),
        ("update", T::update),
        ("read-modify-write", T::read_modify_write),
    ];
    let mut at = 0;
    for (name, operation) in operations {
        group.bench_function(format!("{name}/{}", T::NAME), |bencher| {
            bencher.iter_custom(|iterations| {
                let mut left = usize::try_from(iterations).unwrap_or(usize::MAX);
                let start = now();
                while left > 0 {
                    let end = (at + left).min(probes.len());
                    black_box(operation(subject, &probes[at..end]).expect("the states work"));
                    left -= end - at;
                    at = if end == probes.len() { 0 } else { end };
                }
                start.elapsed()
            });
        });
    }
}

fn shape<S: Shape>(criterion: &mut Criterion) {
    let n = settings::keys();
    let mut group = criterion.benchmark_group(S::NAME);
    group.throughput(Throughput::Elements(1));
    let (inserts, probes) = (keys::<S>(n, INSERT_SEED), keys::<S>(n, PROBE_SEED));
    let mut facade = Facade::<S>::empty().expect("the states work");
    let mut ours: Bare<S, OurHash> = Subject::<S>::empty().expect("it is a table");
    let mut default: Bare<S, hashbrown::DefaultHashBuilder> =
        Subject::<S>::empty().expect("it is a table");
    facade.add(&inserts).expect("the states work");
    Subject::<S>::add(&mut ours, &inserts).expect("it is a table");
    Subject::<S>::add(&mut default, &inserts).expect("it is a table");
    operations_of::<S, _>(&mut group, &mut facade, &probes);
    operations_of::<S, _>(&mut group, &mut ours, &probes);
    operations_of::<S, _>(&mut group, &mut default, &probes);
    group.finish();
}

fn live(criterion: &mut Criterion) {
    shape::<Longs>(criterion);
    shape::<Words>(criterion);
    shape::<Structs>(criterion);
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = live
}

fn main() {
    benches();
    Criterion::default().configure_from_args().final_summary();
    let (n, rounds) = (settings::keys(), settings::rounds());
    for table in [ratios::table(n, rounds), operations::table(n, rounds)] {
        match table {
            Ok(table) => println!("{table}"),
            Err(error) => {
                eprintln!("{error}");
                std::process::exit(1);
            }
        }
    }
}
