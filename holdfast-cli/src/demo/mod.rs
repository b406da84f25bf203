//! `holdfast demo`: a job that is killed twice ends like one that was never killed.
//!
//! The job runs in a process of its own (this program, as `run --events`), which tells what happens line by line. Nothing
//! here waits for a time to pass: a kill follows upon a checkpoint that was told as complete and records that were told as read after it.
mod comparison;
mod screen;
mod worker;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use crate::args::DemoArgs;
use crate::failure::{Exit, Failure};
use crate::run::WorkerEvent;
use crate::terminal::{bytes, counted, grouped};
use comparison::Comparison;
use screen::Screen;
use worker::{Message, Worker};

/// The flights of January 2013, and the carriers.
const FLIGHTS: &[u8] = include_bytes!("../../../examples/data/flights-2013-01.csv");
const AIRLINES: &[u8] = include_bytes!("../../../examples/data/airlines.csv");

/// Name of the input in the demo's folder.
const INPUT: &str = "flights-2013-01.csv";

const KILLS: usize = 2;

/// A kill whose checkpoint happened to hold all that was read shows nothing; then there is another one, up to so many in all.
const MOST_KILLS: usize = 6;

/// Runs the demo.
///
/// # Errors
/// When the rows differ, or the demo could not run.
pub(crate) fn run(args: &DemoArgs) -> Result<(), Failure> {
    crate::run::backends()?.get(&args.backend)?;
    let folder = tempfile::Builder::new()
        .prefix("holdfast-demo-")
        .tempdir()
        .map_err(|error| Failure::failed(format!("no folder for temporary files: {error}")))?;
    let (messages, inbox) = channel();
    worker::report_interrupts(messages.clone())?;
    let result = Demo::new(args, folder.path(), messages, inbox)?.play();
    if args.keep {
        let kept = folder.keep();
        crate::terminal::say(&format!("kept: {}", kept.display()));
    } else if let Err(error) = folder.close() {
        crate::terminal::say(&format!("warning: the demo's folder is left: {error}"));
    }
    result
}

struct Demo<'a> {
    args: &'a DemoArgs,
    folder: &'a Path,
    messages: Sender<Message>,
    inbox: Receiver<Message>,
    screen: Screen,
    records: u64,
}

/// A kill, and what the next process made of it.
struct Kill {
    /// Records that were still to be read when the process died, as it told.
    left: u64,
    /// Records that were read again after it, once that is known.
    replayed: Option<u64>,
}

/// Returns the number of kills after which records were read again.
fn telling(kills: &[Kill]) -> usize {
    kills
        .iter()
        .filter(|kill| kill.replayed.is_some_and(|records| records > 0))
        .count()
}

/// How a process ended.
enum End {
    Finished,
    Killed { left: u64 },
}

impl<'a> Demo<'a> {
    fn new(
        args: &'a DemoArgs,
        folder: &'a Path,
        messages: Sender<Message>,
        inbox: Receiver<Message>,
    ) -> Result<Self, Failure> {
        let unwritable = |error: std::io::Error| {
            Failure::failed(format!("the demo's folder can't be written: {error}"))
        };
        fs::write(folder.join(INPUT), FLIGHTS).map_err(unwritable)?;
        fs::write(folder.join("airlines.csv"), AIRLINES).map_err(unwritable)?;
        let lines = FLIGHTS
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .count();
        let records = lines as u64 - 1;
        Ok(Self {
            args,
            folder,
            messages,
            inbox,
            screen: Screen::new(records),
            records,
        })
    }

    fn play(mut self) -> Result<(), Failure> {
        let (records, rate) = (grouped(self.records), grouped(u64::from(self.args.rate)));
        self.screen.line(&format!(
            "{records} flights that left New York in January 2013, counted by carrier and day, {rate} a second,"
        ))?;
        self.screen.line(&format!(
            "on the state backend {} with {}, in a process that is killed twice",
            self.args.backend,
            counted(u64::from(self.args.parallelism), "subtask"),
        ))?;

        let expected = self.folder.join("expected");
        let worker = self.start(&expected, &["--parallelism", "1"])?;
        match self.watch(worker, None)? {
            End::Finished => {}
            End::Killed { .. } => {
                return Err(Failure::failed(
                    "the run that was to be left alone was killed",
                ));
            }
        }
        let expected = comparison::rows(&expected)?;
        self.screen.line(&format!(
            "a run that nobody kills: {}",
            counted(expected.len() as u64, "row")
        ))?;
        self.screen.line("")?;

        let output = self.folder.join("output");
        let kills = self.run_with_kills(&output)?;
        self.screen.end();
        let comparison = Comparison::of(&expected, &comparison::rows(&output)?);
        self.conclude(&comparison, &kills)
    }

    fn run_with_kills(&mut self, output: &Path) -> Result<Vec<Kill>, Failure> {
        let checkpoints = self.folder.join("checkpoints");
        let interval = self.interval();
        let mut arguments = vec![
            "--checkpoints".to_owned(),
            checkpoints.display().to_string(),
            "--interval".into(),
            format!("{}ms", interval.as_millis()),
            "--rate".into(),
            self.args.rate.to_string(),
            "--parallelism".into(),
            self.args.parallelism.to_string(),
        ];
        let mut kills: Vec<Kill> = Vec::new();
        loop {
            let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let worker = self.start(output, &words)?;
            match self.watch(worker, Some(&mut kills))? {
                End::Killed { left } => kills.push(Kill {
                    left,
                    replayed: None,
                }),
                End::Finished if telling(&kills) < KILLS => {
                    return Err(Failure::failed(
                        "the job ended before it could be killed twice: choose a lower --rate",
                    ));
                }
                End::Finished => return Ok(kills),
            }
            if kills.len() == 1 {
                arguments.extend(["--from".into(), "latest".into()]);
                for strike in &self.args.failpoint {
                    arguments.extend(["--failpoint".into(), strike.to_string()]);
                }
            }
        }
    }

    /// A checkpoint a second, or a dozen over the whole run if that is shorter.
    fn interval(&self) -> Duration {
        let whole = Duration::from_millis(self.records * 1000 / u64::from(self.args.rate));
        (whole / 12).clamp(Duration::from_millis(10), Duration::from_secs(1))
    }

    fn start(&self, output: &Path, arguments: &[&str]) -> Result<Worker, Failure> {
        let input = self.folder.join(INPUT);
        Worker::start(
            &input,
            output,
            &self.args.backend,
            arguments,
            self.messages.clone(),
        )
    }

    /// Follows a process to its end; where kills are counted, it is killed once it has a checkpoint behind it and has come far enough.
    fn watch(
        &mut self,
        mut worker: Worker,
        mut kills: Option<&mut Vec<Kill>>,
    ) -> Result<End, Failure> {
        let shown = kills.is_some();
        // What was still to be read when the last checkpoint of this process was complete.
        let mut checkpointed: Option<u64> = None;
        let mut under_way = false;
        let mut finished = false;
        let mut killed = false;
        let mut last_left = self.records;
        loop {
            let message = self
                .inbox
                .recv()
                .map_err(|_| Failure::failed("nobody tells what happens"))?;
            let event = match message {
                Message::Event(event) => event,
                Message::Interrupted => return Err(Failure::silent(Exit::Interrupted)),
                Message::Ended => {
                    let error = worker.wait();
                    return match (finished, killed) {
                        (_, true) => Ok(End::Killed { left: last_left }),
                        (true, false) => Ok(End::Finished),
                        (false, false) => Err(Failure::failed(format!(
                            "the job's process failed: {error}"
                        ))),
                    };
                }
            };
            match event {
                WorkerEvent::Running {
                    restored,
                    positions,
                    left,
                    ..
                } => {
                    last_left = left;
                    let last = kills.as_mut().and_then(|kills| kills.last_mut());
                    if let Some(kill) = last.filter(|kill| kill.replayed.is_none()) {
                        let replayed = left.saturating_sub(kill.left);
                        kill.replayed = Some(replayed);
                        let (from, replayed) = (
                            self.restored_text(restored, &positions, left),
                            counted(replayed, "record"),
                        );
                        self.screen
                            .line(&format!("restored: {from}; {replayed} replayed"))?;
                    }
                }
                WorkerEvent::Completed {
                    checkpoint,
                    duration_ms,
                    bytes: size,
                    left,
                } if shown => {
                    checkpointed = Some(left);
                    under_way = false;
                    last_left = last_left.min(left);
                    let size = bytes(size);
                    let read = grouped(self.records.saturating_sub(left));
                    self.screen.line(&format!("checkpoint {checkpoint:>2}: about {read} records read, {size}, {duration_ms} ms"))?;
                }
                WorkerEvent::Progress { left } if shown => {
                    last_left = last_left.min(left);
                    let read = self.records.saturating_sub(left);
                    self.screen.progress(read);
                    let behind = checkpointed.map_or(0, |then| then.saturating_sub(left));
                    let due = kills
                        .as_deref()
                        .is_some_and(|kills| self.is_due(kills, left, behind, under_way));
                    if due && !killed {
                        worker.kill();
                        killed = true;
                        self.screen.line(&format!(
                            "SIGKILL:  process {} after {} records",
                            worker.id(),
                            grouped(read)
                        ))?;
                    }
                }
                WorkerEvent::Aborted { checkpoint, reason } => {
                    under_way = false;
                    self.screen
                        .line(&format!("checkpoint {checkpoint} was given up: {reason}"))?;
                }
                WorkerEvent::Restarting { reason } => self
                    .screen
                    .line(&format!("the run is restarted: {reason}"))?,
                WorkerEvent::Finished { .. } => {
                    finished = true;
                    if shown {
                        self.screen.progress(self.records);
                    }
                }
                WorkerEvent::Triggered { .. } => under_way = true,
                WorkerEvent::Completed { .. } | WorkerEvent::Progress { .. } => {}
            }
        }
    }

    /// Tells whether the next kill is due: each comes at its share of the input, in the middle between two checkpoints, so
    /// that there is one to come back to and something to replay (`behind` records at least).
    fn is_due(&self, kills: &[Kill], left: u64, behind: u64, under_way: bool) -> bool {
        let telling = telling(kills);
        let (read, share) = (
            self.records.saturating_sub(left),
            self.records / (KILLS as u64 + 1),
        );
        let target = share * (telling as u64 + 1);
        if telling >= KILLS
            || kills.len() >= MOST_KILLS
            || left == 0
            || read < target
            || behind == 0
        {
            return false;
        }
        let between = u64::from(self.args.rate)
            * u64::try_from(self.interval().as_millis()).unwrap_or(1000)
            / 1000;
        let in_the_middle = (between / 4..=between * 3 / 4).contains(&behind) && !under_way;
        // On a machine that is busy elsewhere the middle may never be seen.
        in_the_middle || read > target + share / 3
    }

    fn restored_text(&self, restored: Option<u64>, positions: &[String], left: u64) -> String {
        let Some(id) = restored else {
            return "no checkpoint, the job begins again".into();
        };
        let read = grouped(self.records.saturating_sub(left));
        let at = if positions.is_empty() {
            "the end of the input".to_owned()
        } else {
            let places: Vec<String> = positions
                .iter()
                .map(|position| in_short(position))
                .collect();
            places.join(" and ")
        };
        format!("checkpoint {id}, taken after {read} records, at {at}")
    }

    fn conclude(self, comparison: &Comparison, kills: &[Kill]) -> Result<(), Failure> {
        self.screen.line("")?;
        let program = std::env::args().next().unwrap_or_else(|| "holdfast".into());
        self.screen.line(&if self.args.keep {
            let checkpoints: PathBuf = self.folder.join("checkpoints");
            format!("what is in the last checkpoint: {program} show {}", checkpoints.join("flights").display())
        } else {
            format!("to look at a checkpoint: {program} demo --keep, then {program} show DIR/checkpoints/flights")
        })?;
        comparison
            .examples()
            .try_for_each(|example| self.screen.line(&example))?;
        let replayed: u64 = kills.iter().filter_map(|kill| kill.replayed).sum();
        let told = format!(
            "{}, {}; {} kills, {} replayed",
            counted(comparison.actual, "row"),
            comparison.summary(),
            kills.len(),
            counted(replayed, "record"),
        );
        if comparison.is_identical() {
            self.screen.line(&format!("identical: {told}"))
        } else {
            self.screen.line(&format!("different: {told}"))?;
            Err(Failure::silent(Exit::Different))
        }
    }
}

/// Writes a position within the demo's file without the file's name and length: `offset 395527 in 0..1240829`.
fn in_short(position: &str) -> String {
    let place = position
        .strip_prefix(INPUT)
        .unwrap_or(position)
        .trim_start();
    let place = place.rsplit_once('/').map_or(place, |(place, _)| place);
    format!("offset {place}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_shown_without_what_is_the_same_for_all() {
        assert_eq!(
            in_short("flights-2013-01.csv 395527 in 0..1240829/2481495"),
            "offset 395527 in 0..1240829"
        );
        assert_eq!(
            in_short("flights-2013-01.csv 802016/2481495"),
            "offset 802016"
        );
    }

    #[test]
    fn only_a_kill_with_replayed_records_tells_something() {
        let kill = |replayed| Kill { left: 0, replayed };
        assert_eq!(telling(&[kill(Some(3)), kill(Some(0)), kill(None)]), 1);
    }
}
