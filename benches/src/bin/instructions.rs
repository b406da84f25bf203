//! Prints the instructions of single operations, counted by valgrind: the same on a busy machine as on a quiet one.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a table is what it is for"
)]
use std::hint::black_box;
use std::process::{Command, ExitCode};

use benches::subject::{Bare, Batched, Facade, OurHash, Subject};
use benches::table::Table;
use benches::workload::{INSERT_SEED, Longs, PROBE_SEED, Shape, Structs, Words, keys};
use state_api::{Error, Result};

/// Enough that 128 key groups fill; instructions do not depend on caches.
const KEYS: usize = 50_000;
const SHAPES: [&str; 3] = [Longs::NAME, Words::NAME, Structs::NAME];
const OPERATIONS: [&str; 4] = ["add", "get", "update", "read-modify-write"];
const SUBJECTS: [&str; 4] = ["facade", "in batches", "bare, our hash", "bare, its hash"];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => table().map(|table| println!("{table}")),
        ["one", shape, operation, subject] => one(shape, operation, subject),
        _ => Err(Error::invalid("it takes no arguments")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn table() -> Result<Table> {
    let mut table = Table::new(
        "Instructions per operation, counted by callgrind",
        &[
            "operation",
            SUBJECTS[0],
            SUBJECTS[1],
            SUBJECTS[2],
            SUBJECTS[3],
            "÷ our hash",
            "÷ its hash",
        ],
    );
    for shape in SHAPES {
        for operation in OPERATIONS {
            let mut counts = Vec::new();
            for subject in SUBJECTS {
                counts.push(count(shape, operation, subject)?);
            }
            let cells = counts.iter().map(|n| format!("{n:.0}"));
            let ratios = counts[2..].iter().map(|n| format!("{:.2}", counts[0] / n));
            table.row(
                std::iter::once(format!("{shape}: {operation}"))
                    .chain(cells)
                    .chain(ratios),
            );
        }
    }
    Ok(table)
}

/// Runs this program under callgrind and returns the instructions of one operation.
fn count(shape: &str, operation: &str, subject: &str) -> Result<f64> {
    let missing = |error| Error::config("can't run valgrind: is it installed?").caused_by(error);
    let program = std::env::current_exe().map_err(missing)?;
    let output = Command::new("valgrind")
        .args([
            "--tool=callgrind",
            "--callgrind-out-file=/dev/null",
            "--toggle-collect=*measured*",
        ])
        .arg(program)
        .args(["one", shape, operation, subject])
        .output()
        .map_err(missing)?;
    let text = String::from_utf8_lossy(&output.stderr);
    let collected = text
        .lines()
        .find_map(|line| line.split_once("Collected : "));
    let count = collected.and_then(|(_, count)| count.trim().parse::<f64>().ok());
    count
        .map(|count| count / KEYS as f64)
        .ok_or_else(|| Error::bug("valgrind printed no count").with("output", text))
}

fn one(shape: &str, operation: &str, subject: &str) -> Result<()> {
    match shape {
        _ if shape == Longs::NAME => of_shape::<Longs>(operation, subject),
        _ if shape == Words::NAME => of_shape::<Words>(operation, subject),
        _ => of_shape::<Structs>(operation, subject),
    }
}

fn of_shape<S: Shape>(operation: &str, subject: &str) -> Result<()> {
    match subject {
        "facade" => of_subject::<S, Facade<S>>(operation),
        "in batches" => of_subject::<S, Batched<S>>(operation),
        "bare, our hash" => of_subject::<S, Bare<S, OurHash>>(operation),
        _ => of_subject::<S, Bare<S, hashbrown::DefaultHashBuilder>>(operation),
    }
}

fn of_subject<S: Shape, T: Subject<S>>(operation: &str) -> Result<()> {
    let mut subject = T::empty()?;
    let (inserts, probes) = (keys::<S>(KEYS, INSERT_SEED), keys::<S>(KEYS, PROBE_SEED));
    if operation == "add" {
        return measured(|| subject.add(&inserts));
    }
    subject.add(&inserts)?;
    match operation {
        "get" => measured(|| subject.get(&probes)),
        "update" => measured(|| subject.update(&probes)),
        _ => measured(|| subject.read_modify_write(&probes)),
    }
}

/// What callgrind counts.
#[inline(never)]
fn measured(work: impl FnOnce() -> Result<u64>) -> Result<()> {
    black_box(work()?);
    Ok(())
}
