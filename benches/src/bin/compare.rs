//! Prints one table of ratios: the operations of the peer harness, here and there, in turns.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a table is what it is for"
)]
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use benches::operations::{Extent, suite};
use benches::peer;
use benches::process::OtherCores;
#[cfg(feature = "rocksdb")]
use benches::rocksdb_snapshots;
use benches::stopwatch::Spread;
use benches::subject::Home;
use benches::table::Table;
use benches::workload::{Longs, Words};
use benches::{job, meter, settings, snapshots};
use serde_json::{Value, json};
use state_api::{Error, Result};

#[global_allocator]
static ALLOCATOR: meter::Metered = meter::Metered;

const USAGE: &str = "compare [--peer FOLDER] [--backend hashmap|rocksdb] [--suites value,list,map,agg,ttl] [--profiles g1,tuned] [PART]...

parts   state     single operations
        snapshot  snapshots, restore, and what they cost writers
        job       a whole job

With the backend rocksdb (feature rocksdb) there are the parts state and snapshot, and the profile g1.
The peer harness is looked for in FOLDER, or where PEER_FLINK says; without it our figures are printed alone.
Its profile `tuned` has huge pages, so it is compared with a run of ours that has them (MIMALLOC_ALLOW_THP); the others are compared without.
BENCH_KEYS (1000000) is the number of keys, BENCH_ROUNDS (3) that of alternations, BENCH_RECORDS (5000000) that of the job's records.
BENCH_LINES names a file that every line measured is added to; lines in it from an earlier call count as measured.";

const SUITES: &str = "value,list,map,agg,ttl";
/// Says whether the allocator asks for huge pages.
const HUGE_PAGES: &str = "MIMALLOC_ALLOW_THP";

struct Options {
    peer: Option<PathBuf>,
    backend: String,
    suites: Vec<String>,
    profiles: Vec<String>,
    parts: Vec<String>,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["ours", "state", suite, key, backend] => ours_state(suite, key, backend),
        ["ours", "snapshot", key, backend] => ours_snapshot(key, backend),
        ["ours", "job"] => ours_job(),
        _ => match options(&args) {
            Ok(options) => compare(&options),
            Err(message) => {
                eprintln!("{message}\n\n{USAGE}");
                return ExitCode::from(2);
            }
        },
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn options(args: &[String]) -> std::result::Result<Options, String> {
    let list = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
    let mut options = Options {
        peer: None,
        backend: "hashmap".to_owned(),
        suites: list(SUITES),
        profiles: list("g1,tuned"),
        parts: Vec::new(),
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--peer" => options.peer = Some(PathBuf::from(value()?)),
            "--backend" => options.backend = value()?.clone(),
            "--suites" => options.suites = list(value()?),
            "--profiles" => options.profiles = list(value()?),
            "state" | "snapshot" | "job" => options.parts.push(arg.clone()),
            _ => return Err(format!("unknown argument {arg:?}")),
        }
    }
    if options.parts.is_empty() {
        options.parts = list("state,snapshot,job");
    }
    match home(&options.backend)? {
        Home::Live => {}
        #[cfg(feature = "rocksdb")]
        Home::RocksDb => {
            options.parts.retain(|part| part != "job");
            if options.parts.is_empty() {
                return Err("the part job is there for the backend hashmap alone".to_owned());
            }
            options.profiles = list("g1");
        }
    }
    Ok(options)
}

fn home(backend: &str) -> std::result::Result<Home, String> {
    match backend {
        "hashmap" => Ok(Home::Live),
        #[cfg(feature = "rocksdb")]
        "rocksdb" => Ok(Home::RocksDb),
        #[cfg(not(feature = "rocksdb"))]
        "rocksdb" => Err("this program was built without the feature rocksdb".to_owned()),
        _ => Err(format!("unknown backend {backend:?}")),
    }
}

fn print(line: &Value) {
    println!("{line}");
}

/// The child's side: measures one suite of ours and prints JSON lines.
fn ours_state(name: &str, key: &str, backend: &str) -> Result<()> {
    let home = home(backend).map_err(Error::config)?;
    let lines = suite(name, key == "string", Extent::of(settings::keys(), home))?;
    lines.iter().for_each(|line| print(&line.json()));
    Ok(())
}

fn ours_snapshot(key: &str, backend: &str) -> Result<()> {
    let n = settings::keys();
    let lines = match (home(backend).map_err(Error::config)?, key) {
        (Home::Live, "string") => snapshots::peer_lines::<Words>(n, 5)?,
        (Home::Live, _) => snapshots::peer_lines::<Longs>(n, 5)?,
        #[cfg(feature = "rocksdb")]
        (Home::RocksDb, "string") => rocksdb_snapshots::peer_lines::<Words>(n, 5)?,
        #[cfg(feature = "rocksdb")]
        (Home::RocksDb, _) => rocksdb_snapshots::peer_lines::<Longs>(n, 5)?,
    };
    lines.iter().for_each(|line| print(&line.json()));
    Ok(())
}

fn ours_job() -> Result<()> {
    let (n, records) = (
        settings::keys(),
        settings::number("BENCH_RECORDS", 5_000_000) as u64,
    );
    let every = Duration::from_secs(1);
    job::run(n, records / 4, Some(every))?;
    for interval in [Some(every), None] {
        let run = job::run(n, records, interval)?;
        print(&json!({
            "bench": "job_wordcount", "key": "string", "backend": "hashmap", "object_reuse": true,
            "checkpoint_interval_ms": interval.map_or(0, |i| i.as_millis() as u64),
            "records_per_s": run.records_per_second, "checkpoints": run.checkpoints,
            "checkpoint_ms": run.checkpoint_ms, "sync_ms": run.sync_ms, "async_ms": run.async_ms,
            "bytes": run.bytes,
        }));
    }
    Ok(())
}

/// Who did what: `ours` or `peer`, the profile, the row's name, the field.
type Cell = (&'static str, String, String, &'static str);

/// The fields that are compared, and whether less is better.
const FIELDS: [(&str, bool); 8] = [
    ("ns_per_op", true),
    // What the calling thread itself took: less than the above where it waited for a core, or for a collector.
    ("cpu_ns", true),
    ("bytes_per_key", true),
    ("sync_ms", true),
    ("async_ms", true),
    ("bytes", true),
    ("ms", true),
    ("records_per_s", false),
];

#[derive(Default)]
struct Gathered(BTreeMap<Cell, Vec<f64>>);

impl Gathered {
    fn add(&mut self, side: &'static str, profile: &str, line: &Value) {
        let Some(bench) = line["bench"].as_str() else {
            return;
        };
        let mut row = bench.to_owned();
        if bench == "job_wordcount" {
            let reuse = if line["object_reuse"] == true {
                ""
            } else {
                ", objects copied"
            };
            let every = match line["checkpoint_interval_ms"].as_u64() {
                Some(0) => "no checkpoints".to_owned(),
                Some(ms) => format!("checkpoint every {ms} ms"),
                None => String::new(),
            };
            row = format!("{bench}, {every}{reuse}");
        } else if let Some(key) = line["key"].as_str() {
            row = format!("{bench}, {key}");
        }
        for (field, _) in FIELDS {
            // A job without checkpoints says 0 of what it did not do.
            if let Some(number) = line[field].as_f64().filter(|number| *number > 0.0) {
                let cell = (side, profile.to_owned(), row.clone(), field);
                self.0.entry(cell).or_default().push(number);
            }
        }
    }

    fn median(
        &self,
        side: &'static str,
        profile: &str,
        row: &str,
        field: &'static str,
    ) -> Option<f64> {
        let cell = (side, profile.to_owned(), row.to_owned(), field);
        self.0.get(&cell).map(|all| Spread::of(all.clone()).median)
    }
}

fn compare(options: &Options) -> Result<()> {
    let found = peer::find(options.peer.as_deref());
    if found.is_none() {
        println!(
            "The peer harness was not found (argument --peer, environment {}): our figures alone.\n",
            peer::VARIABLE
        );
    }
    let mut gathered = Gathered::default();
    let log = std::env::var_os("BENCH_LINES").map(PathBuf::from);
    if let Some(text) = log
        .as_deref()
        .and_then(|log| std::fs::read_to_string(log).ok())
    {
        for line in peer::parse(&text) {
            let side = if line["side"] == "peer" {
                "peer"
            } else {
                "ours"
            };
            let profile = line["profile"].as_str().unwrap_or_default().to_owned();
            gathered.add(side, &profile, &line);
        }
    }
    let rounds = settings::number("BENCH_ROUNDS", 3);
    let others = OtherCores::start();
    for round in 1..=rounds {
        for (ours, theirs, variables) in turns(options) {
            for profile in &options.profiles {
                eprintln!("round {round} of {rounds}: {profile}: {}", ours.join(" "));
                let mut keep = |side: &'static str, lines: Vec<Value>| -> Result<()> {
                    for mut line in lines {
                        gathered.add(side, profile, &line);
                        line["side"] = side.into();
                        line["profile"] = profile.as_str().into();
                        append(log.as_deref(), &line)?;
                    }
                    Ok(())
                };
                keep("ours", run_ours(&ours, profile)?)?;
                if let Some(folder) = &found {
                    let mut variables = variables.clone();
                    variables.push(("PROFILES", profile.clone()));
                    // One failure of the peer leaves the rest of the table worth printing.
                    match peer::lines(&folder.join("run.sh"), &[theirs], &variables) {
                        Ok(lines) => keep("peer", lines)?,
                        Err(error) => eprintln!("the peer is left out: {error}"),
                    }
                }
            }
        }
    }
    println!("{}", table(&gathered, options, rounds));
    print_means(&gathered, options);
    if let Some(cores) = others.cores() {
        println!("All processes together, these measurements included, took {cores:.2} cores.");
    }
    Ok(())
}

/// What is run in turns: our arguments, the peer's part, and its environment.
#[expect(
    clippy::type_complexity,
    reason = "suites, key and settings of one turn"
)]
fn turns(options: &Options) -> Vec<(Vec<String>, &'static str, Vec<(&'static str, String)>)> {
    let mut turns = Vec::new();
    let base = [
        ("BACKENDS", options.backend.clone()),
        ("N", settings::keys().to_string()),
    ];
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    for part in &options.parts {
        let mut variables = base.to_vec();
        match part.as_str() {
            "state" => {
                for suite in &options.suites {
                    let keys: &[&str] = if suite == "value" {
                        &["long", "string"]
                    } else {
                        &["long"]
                    };
                    for key in keys {
                        let mut variables = variables.clone();
                        variables.push(("SUITES", suite.clone()));
                        variables.push(("KEYS", (*key).to_owned()));
                        turns.push((
                            words(&format!("ours state {suite} {key} {}", options.backend)),
                            "state",
                            variables,
                        ));
                    }
                }
            }
            "snapshot" => {
                for key in ["long", "string"] {
                    let mut variables = variables.clone();
                    variables.push(("KEYS", key.to_owned()));
                    turns.push((
                        words(&format!("ours snapshot {key} {}", options.backend)),
                        "snapshot",
                        variables,
                    ));
                }
            }
            _ => {
                let records = settings::number("BENCH_RECORDS", 5_000_000);
                variables.push(("RECORDS_HASHMAP", records.to_string()));
                turns.push((words("ours job"), "job", variables));
            }
        }
    }
    turns
}

fn run_ours(args: &[String], profile: &str) -> Result<Vec<Value>> {
    let program = std::env::current_exe()
        .map_err(|error| Error::config("this program can't be found").caused_by(error))?;
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let variables = [(HUGE_PAGES, u8::from(profile == "tuned").to_string())];
    peer::lines(&program, &args, &variables)
}

fn append(log: Option<&Path>, line: &Value) -> Result<()> {
    use std::io::Write;
    let Some(path) = log else {
        return Ok(());
    };
    let opened = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path);
    opened
        .and_then(|mut file| writeln!(file, "{line}"))
        .map_err(|error| Error::config("can't write the lines").caused_by(error))
}

fn ratio(
    gathered: &Gathered,
    profile: &str,
    row: &str,
    field: &'static str,
    less: bool,
) -> Option<f64> {
    let ours = gathered.median("ours", profile, row, field)?;
    let peer = gathered.median("peer", profile, row, field)?;
    Some(if less { peer / ours } else { ours / peer })
}

fn table(gathered: &Gathered, options: &Options, rounds: usize) -> Table {
    let mut header = vec!["what".to_owned()];
    for profile in &options.profiles {
        header.extend([
            format!("ours ({profile})"),
            format!("peer ({profile})"),
            "times better".to_owned(),
        ]);
    }
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let title = format!(
        "{} keys, medians of {rounds} alternations",
        settings::keys()
    );
    let mut table = Table::new(title, &header);
    for (field, less) in FIELDS {
        let ours = gathered
            .0
            .keys()
            .filter(|cell| cell.0 == "ours" && cell.3 == field);
        let mut rows: Vec<&String> = ours.map(|cell| &cell.2).collect();
        rows.sort();
        rows.dedup();
        for row in rows {
            let mut cells = vec![format!("{row}: {field}")];
            for profile in &options.profiles {
                let show = |number: Option<f64>| match number {
                    None => String::new(),
                    Some(n) if n >= 1000.0 => format!("{n:.0}"),
                    Some(n) if n >= 1.0 => format!("{n:.1}"),
                    Some(n) => format!("{n:.3}"),
                };
                cells.push(show(gathered.median("ours", profile, row, field)));
                cells.push(show(gathered.median("peer", profile, row, field)));
                let times = ratio(gathered, profile, row, field, less);
                cells.push(times.map_or_else(String::new, |times| format!("{times:.1}")));
            }
            table.row(cells);
        }
    }
    table
}

/// The geometric mean and the least of the single operations, by the wall clock and by what the calling thread took.
fn print_means(gathered: &Gathered, options: &Options) {
    for profile in &options.profiles {
        for field in ["ns_per_op", "cpu_ns"] {
            print_mean(gathered, profile, field);
        }
    }
}

fn print_mean(gathered: &Gathered, profile: &str, field: &'static str) {
    // Writers around snapshots are measured by the same field, but are another matter.
    let single = |row: &str| {
        let around = ["_idle,", "_held,", "_async,"];
        !around.iter().any(|part| row.contains(part))
    };
    let ours = gathered.0.keys().filter(|(side, of, row, measured)| {
        *side == "ours" && of == profile && *measured == field && single(row)
    });
    let ratios = ours.filter_map(|cell| {
        let times = ratio(gathered, profile, &cell.2, field, true)?;
        Some((times, &cell.2))
    });
    let ratios: Vec<(f64, &String)> = ratios.collect();
    let least = ratios.iter().min_by(|a, b| a.0.total_cmp(&b.0));
    if let Some((times, row)) = least {
        let logs: f64 = ratios.iter().map(|(times, _)| times.ln()).sum();
        let mean = (logs / ratios.len() as f64).exp();
        println!(
            "{profile}, {field}: {} single operations, geometric mean {mean:.1} times faster, least {times:.1} ({row})",
            ratios.len()
        );
    }
}
