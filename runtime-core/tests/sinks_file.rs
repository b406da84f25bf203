//! The file sink's two-phase commit: what is visible when, over checkpoints, crashes, rescaling and old processes that wake up.

mod sinks_support;

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use runtime_core::sink::{TwoPhaseSink, TwoPhaseWriter};
use runtime_core::sinks::{FileSink, FileTransaction};
use sinks_support::{Saved, Task, context, hidden, kill, records, restore, visible};
use state_api::{CheckpointId, Error, ErrorKind};
use tempfile::TempDir;

type Numbers = FileSink<u64>;

fn output() -> (TempDir, Numbers) {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let sink = FileSink::lines(folder.path());
    (folder, sink)
}

fn start(sink: &Numbers) -> Task<Numbers> {
    Task::fresh(sink, &context(1, 0, 0, 1, None)).expect("the folder is there")
}

#[track_caller]
fn refused<T>(result: Result<T, Error>, kind: ErrorKind, needle: &str) -> Error {
    let error = result.map(|_| ()).expect_err("it was taken");
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(needle), "{error}");
    error
}

#[test]
fn k_715_records_are_visible_once_their_checkpoint_is_complete() {
    let (folder, sink) = output();
    let mut task = start(&sink);
    task.write([1, 2]).unwrap();
    task.writer.flush().unwrap();
    assert_eq!(visible(folder.path()), [""; 0]);
    assert!(hidden(folder.path())[0].ends_with(".inprogress"));
    task.snapshot(1).unwrap();
    task.write([3]).unwrap();
    assert_eq!(visible(folder.path()), [""; 0]);
    task.complete(1).unwrap();
    assert_eq!(records(folder.path()), [1, 2]);
    task.snapshot(2).unwrap();
    task.complete(2).unwrap();
    assert_eq!(records(folder.path()), [1, 2, 3]);
    assert_eq!(hidden(folder.path()), [""; 0]);
}

#[test]
fn k_716_a_later_notification_commits_all_and_an_earlier_one_then_does_nothing() {
    let (folder, sink) = output();
    let mut task = start(&sink);
    for (id, record) in [(0, 42), (1, 43), (2, 44)] {
        task.write([record]).unwrap();
        task.snapshot(id).unwrap();
    }
    task.write([45]).unwrap();
    task.writer.flush().unwrap();
    task.complete(2).unwrap();
    assert_eq!(records(folder.path()), [42, 43, 44]);
    task.complete(1).unwrap();
    assert_eq!(records(folder.path()), [42, 43, 44]);
    assert_eq!(hidden(folder.path()).len(), 1);
}

#[test]
fn k_717_a_crash_before_the_notification_commits_at_the_restore_and_drops_what_was_open() {
    let (folder, sink) = output();
    let mut task = start(&sink);
    task.write([1]).unwrap();
    let saved = task.snapshot(1).unwrap();
    task.write([2]).unwrap();
    task.writer.flush().unwrap();
    kill(task, folder.path());
    assert_eq!(hidden(folder.path()).len(), 2);
    assert_eq!(visible(folder.path()), [""; 0]);
    let tasks = restore(&sink, &[saved], 2, 0, 1).unwrap();
    assert_eq!(records(folder.path()), [1]);
    assert_eq!(hidden(folder.path()), [""; 0]);
    drop(tasks);
}

#[test]
fn a_checkpoint_behind_the_last_record_opens_no_new_part() {
    let (folder, sink) = output();
    let mut task = start(&sink);
    task.write([1]).unwrap();
    task.writer.flush().unwrap();
    task.snapshot(1).unwrap();
    assert!(task.writer.open_transaction().is_none());
    assert!(task.writer.pre_commit(CheckpointId(2)).unwrap().is_none());
    task.complete(2).unwrap();
    assert_eq!(records(folder.path()), [1]);
    assert_eq!(visible(folder.path()).len(), 1);
}

#[test]
fn k_722_one_commit_that_fails_does_not_keep_the_others() {
    let (folder, sink) = output();
    let mut task = start(&sink);
    for (id, record) in [(1, 10), (2, 20), (3, 30)] {
        task.write([record]).unwrap();
        task.snapshot(id).unwrap();
    }
    let second = hidden(folder.path())
        .into_iter()
        .find(|name| name.contains("-c2."))
        .unwrap();
    fs::rename(folder.path().join(&second), folder.path().join("away")).unwrap();
    refused(
        task.complete(3),
        ErrorKind::Corrupt,
        "neither pending nor published",
    );
    assert_eq!(records(folder.path()), [10, 30]);
    fs::rename(folder.path().join("away"), folder.path().join(&second)).unwrap();
    task.complete(3).unwrap();
    assert_eq!(records(folder.path()), [10, 20, 30]);
}

#[test]
fn k_723_a_pre_commit_that_fails_leaves_the_part_open_and_loses_nothing() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("out");
    let sink: Numbers = FileSink::lines(&folder);
    let mut task = start(&sink);
    task.write([1, 2]).unwrap();
    fs::rename(&folder, home.path().join("away")).unwrap();
    refused(task.snapshot(1), ErrorKind::Retryable, "can't be renamed");
    assert_eq!(task.pending, []);
    assert!(task.writer.open_transaction().is_some());
    fs::rename(home.path().join("away"), &folder).unwrap();
    task.write([3]).unwrap();
    task.snapshot(2).unwrap();
    task.complete(2).unwrap();
    assert_eq!(records(&folder), [1, 2, 3]);
}

#[test]
fn k_724_the_part_of_an_aborted_checkpoint_is_committed_with_the_next_one() {
    let (folder, sink) = output();
    let mut task = start(&sink);
    task.write([1]).unwrap();
    task.snapshot(1).unwrap();
    task.write([2]).unwrap();
    let saved = task.snapshot(2).unwrap();
    // A restore from the second knows the first one's part too.
    kill(task, folder.path());
    restore(&sink, &[saved], 2, 0, 1).unwrap();
    assert_eq!(records(folder.path()), [1, 2]);
}

#[test]
fn k_727_a_restore_at_another_parallelism_commits_all_and_leaves_nothing_open() {
    for after in [1, 2, 3, 7] {
        let (folder, sink) = output();
        let mut saved = Vec::new();
        let mut tasks = Vec::new();
        for index in 0..4 {
            let mut task = Task::fresh(&sink, &context(1, 0, index, 4, None)).unwrap();
            task.write([u64::from(index)]).unwrap();
            saved.push(task.snapshot(5).unwrap());
            task.write([99]).unwrap();
            task.writer.flush().unwrap();
            tasks.push(task);
        }
        kill(tasks, folder.path());
        let tasks = restore(&sink, &saved, 1, 1, after).unwrap();
        assert_eq!(records(folder.path()), [0, 1, 2, 3]);
        assert_eq!(hidden(folder.path()), [""; 0], "parallelism {after}");
        drop(tasks);
    }
}

#[test]
fn k_728_a_commit_is_repeatable_in_this_run_and_in_later_ones() {
    let (folder, sink) = output();
    let mut tasks: Vec<_> = (0..4)
        .map(|n| Task::fresh(&sink, &context(1, 0, n, 4, None)).unwrap())
        .collect();
    let mut saved = Vec::new();
    for (task, record) in tasks.iter_mut().zip(0..) {
        task.write([record]).unwrap();
        saved.push(task.snapshot(1).unwrap());
    }
    // The crash comes when two of four have committed.
    for task in &mut tasks[..2] {
        let transactions: Vec<_> = task.pending.clone();
        task.complete(1).unwrap();
        task.writer.commit(&transactions[0].1).unwrap();
    }
    kill(tasks, folder.path());
    for run in 1..4 {
        kill(restore(&sink, &saved, 1, run, 4).unwrap(), folder.path());
        assert_eq!(records(folder.path()), [0, 1, 2, 3]);
    }
}

#[test]
fn a_part_that_is_gone_fails_the_restore_unless_it_is_accepted_for_that_checkpoint() {
    let (folder, sink) = output();
    let mut task = start(&sink);
    task.write([1]).unwrap();
    let saved = task.snapshot(7).unwrap();
    drop(task);
    for name in hidden(folder.path()) {
        fs::remove_file(folder.path().join(name)).unwrap();
    }
    let error = refused(
        restore(&sink, std::slice::from_ref(&saved), 2, 0, 1),
        ErrorKind::Corrupt,
        "is gone",
    );
    assert_eq!(error.context("sink"), Some("output"));
    assert_eq!(error.context("checkpoint"), Some("7"));
    let other = sink.clone().accept_gone(CheckpointId(6));
    refused(
        restore(&other, std::slice::from_ref(&saved), 2, 0, 1),
        ErrorKind::Corrupt,
        "is gone",
    );
    let accepting = sink.accept_gone(CheckpointId(7));
    let mut tasks = restore(&accepting, &[saved], 2, 0, 1).unwrap();
    tasks[0].write([2]).unwrap();
    tasks[0].snapshot(8).unwrap();
    tasks[0].complete(8).unwrap();
    assert_eq!(records(folder.path()), [2]);
}

#[test]
fn nothing_of_a_checkpoint_that_another_subtask_declines_is_visible() {
    let (folder, sink) = output();
    let mut first = Task::fresh(&sink, &context(1, 0, 0, 2, None)).unwrap();
    let mut second = Task::fresh(&sink, &context(1, 0, 1, 2, None)).unwrap();
    first.write([1]).unwrap();
    second.write([2]).unwrap();
    first.snapshot(1).unwrap();
    // The second one declines; the first hears of the next checkpoint only.
    assert_eq!(visible(folder.path()), [""; 0]);
    first.snapshot(2).unwrap();
    second.snapshot(2).unwrap();
    first.complete(2).unwrap();
    second.complete(2).unwrap();
    let mut all = records(folder.path());
    all.sort_unstable();
    assert_eq!(all, [1, 2]);
}

#[test]
fn a_damaged_pending_file_is_not_published() {
    let (folder, sink) = output();
    let mut task = start(&sink);
    task.write([1, 2, 3]).unwrap();
    let saved = task.snapshot(1).unwrap();
    drop(task);
    let pending = folder.path().join(&hidden(folder.path())[0]);
    fs::write(&pending, "1\n").unwrap();
    let error = refused(
        restore(&sink, &[saved], 2, 0, 1),
        ErrorKind::Corrupt,
        "damaged",
    );
    assert_eq!(error.context("length then"), Some("6"));
    assert_eq!(visible(folder.path()), [""; 0]);
    assert!(pending.exists());
}

#[test]
fn a_foreign_file_is_never_replaced_or_removed() {
    let (folder, sink) = output();
    let foreign = [
        "part-1",
        ".hidden",
        ".part-x.inprogress",
        ".part-0123456789abcdef-s0-a0-r0-0-00000000000a.inprogress",
        "notes.txt",
    ];
    for name in foreign {
        fs::write(folder.path().join(name), "mine").unwrap();
    }
    let mut task = start(&sink);
    task.write([1]).unwrap();
    let saved = task.snapshot(1).unwrap();
    // Somebody takes the very name of the file to be published.
    let transaction = task.pending[0].1.clone();
    fs::write(folder.path().join(&transaction.visible), "mine").unwrap();
    refused(
        task.complete(1),
        ErrorKind::AlreadyExists,
        "another file has the name",
    );
    fs::remove_file(folder.path().join(&transaction.visible)).unwrap();
    kill(task, folder.path());
    restore(&sink, &[saved], 9, 0, 1).unwrap();
    assert_eq!(
        fs::read_to_string(folder.path().join(&transaction.visible)).unwrap(),
        "1\n"
    );
    for name in foreign {
        assert_eq!(
            fs::read_to_string(folder.path().join(name)).unwrap(),
            "mine",
            "{name}"
        );
    }
}

#[test]
fn leftovers_of_other_sinks_and_jobs_stay() {
    let (folder, sink) = output();
    let mut other = context(1, 0, 0, 1, None);
    other.uid = state_api::OperatorUid::new("another").unwrap();
    let mut task = Task::fresh(&sink, &other).unwrap();
    task.write([1]).unwrap();
    task.writer.flush().unwrap();
    kill(task, folder.path());
    restore(&sink, &[], 2, 0, 1).unwrap();
    assert_eq!(hidden(folder.path()).len(), 1);
}

#[test]
fn an_old_process_that_wakes_up_publishes_and_removes_nothing_of_its_successor() {
    let (folder, sink) = output();
    let mut old = start(&sink);
    old.write([1]).unwrap();
    let saved = old.snapshot(1).unwrap();
    old.write([2]).unwrap();
    old.writer.flush().unwrap();
    // Frozen here: checkpoint 1 is complete, the notification has not arrived.
    let again = saved.clone();
    let mut new = restore(&sink.clone(), &[saved], 2, 0, 1).unwrap();
    assert_eq!(records(folder.path()), [1]);
    new[0].write([2, 3]).unwrap();
    new[0].writer.flush().unwrap();
    new[0].snapshot(2).unwrap();
    new[0].write([4]).unwrap();
    new[0].writer.flush().unwrap();
    // Thawed: it hears the notification, ends its part for a checkpoint that is never published, and recovers once more.
    old.complete(1).unwrap();
    assert_eq!(records(folder.path()), [1]);
    old.snapshot(2).unwrap();
    drop(old);
    let older = restore(&sink, &[again], 1, 1, 1).unwrap();
    assert_eq!(records(folder.path()), [1]);
    drop(older);
    new[0].complete(2).unwrap();
    new[0].snapshot(3).unwrap();
    new[0].complete(3).unwrap();
    assert_eq!(records(folder.path()), [1, 2, 3, 4]);
}

#[test]
fn a_process_that_lives_keeps_its_files_even_from_a_higher_attempt() {
    let (folder, sink) = output();
    // Attempts are counted per checkpoint folder: the other job of that name may well have a higher one.
    let mut living = start(&sink);
    living.write([1]).unwrap();
    living.writer.flush().unwrap();
    living.snapshot(1).unwrap();
    living.write([2]).unwrap();
    living.writer.flush().unwrap();
    let elsewhere = restore(&sink.clone(), &[], 5, 0, 1).unwrap();
    assert_eq!(hidden(folder.path()).len(), 2);
    living.snapshot(2).unwrap();
    living.complete(2).unwrap();
    assert_eq!(records(folder.path()), [1, 2]);
    drop(elsewhere);
}

#[test]
fn a_pending_file_of_a_newer_checkpoint_stays_until_the_job_has_gone_past_it() {
    let (folder, sink) = output();
    let mut task = start(&sink);
    task.write([1]).unwrap();
    let first = task.snapshot(1).unwrap();
    task.complete(1).unwrap();
    task.write([2]).unwrap();
    let second = task.snapshot(2).unwrap();
    kill(task, folder.path());
    // Back to the first; the second checkpoint may be complete all the same.
    let mut tasks = restore(&sink, std::slice::from_ref(&first), 2, 0, 1).unwrap();
    assert_eq!(hidden(folder.path()).len(), 1);
    tasks[0].write([2]).unwrap();
    tasks[0].snapshot(3).unwrap();
    assert_eq!(hidden(folder.path()).len(), 2);
    tasks[0].complete(3).unwrap();
    assert_eq!(hidden(folder.path()), [""; 0]);
    assert_eq!(records(folder.path()), [1, 2]);
    drop(tasks);
    refused(
        restore(&sink, &[second], 3, 0, 1),
        ErrorKind::Corrupt,
        "is gone",
    );
}

#[test]
fn a_transaction_out_of_a_damaged_checkpoint_reaches_no_other_file() {
    let home = tempfile::tempdir().unwrap();
    let sink: Numbers = FileSink::lines(home.path().join("out"));
    fs::write(home.path().join("precious"), "keep").unwrap();
    let mut task = start(&sink);
    task.write([1]).unwrap();
    task.snapshot(1).unwrap();
    let good = task.pending[0].1.clone();
    let writer = &mut task.writer;
    for transaction in [
        FileTransaction {
            stem: "../precious".to_owned(),
            ..good.clone()
        },
        FileTransaction {
            stem: format!("../{}", good.stem),
            ..good.clone()
        },
        FileTransaction {
            visible: "../precious".to_owned(),
            ..good.clone()
        },
        FileTransaction {
            visible: "/etc/passwd".to_owned(),
            ..good.clone()
        },
        FileTransaction {
            visible: ".hidden".to_owned(),
            ..good.clone()
        },
        FileTransaction {
            visible: String::new(),
            ..good.clone()
        },
        FileTransaction {
            checkpoint: None,
            ..good.clone()
        },
    ] {
        refused(
            writer.recover_and_commit(&transaction),
            ErrorKind::Corrupt,
            "names no part",
        );
    }
    for stem in ["../precious", "", "part-1"] {
        let transaction = FileTransaction {
            stem: stem.to_owned(),
            ..good.clone()
        };
        refused(
            writer.recover_and_abort(&transaction),
            ErrorKind::Corrupt,
            "names no part",
        );
    }
    assert_eq!(
        fs::read_to_string(home.path().join("precious")).unwrap(),
        "keep"
    );
}

#[test]
fn an_output_that_moved_as_a_whole_is_committed_where_it_is() {
    let home = tempfile::tempdir().unwrap();
    let (a, b) = (home.path().join("a"), home.path().join("b"));
    let sink: Numbers = FileSink::lines(&a);
    let mut task = start(&sink);
    task.write([1]).unwrap();
    let saved = task.snapshot(1).unwrap();
    kill(task, &a);
    fs::rename(&a, &b).unwrap();
    restore(&FileSink::<u64>::lines(&b), &[saved], 2, 0, 1).unwrap();
    assert_eq!(records(&b), [1]);
}

#[test]
fn what_can_not_be_an_output_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("file");
    fs::write(&file, "").unwrap();
    let writer = |path: &Path| FileSink::<u64>::lines(path).writer(&context(1, 0, 0, 1, None));
    refused(writer(&file), ErrorKind::Config, "not a folder");
    refused(writer(&file.join("deeper")), ErrorKind::Config, "can't be");
    assert!(writer(&home.path().join("made/on/the/way")).is_ok());
    let cx = context(1, 0, 0, 1, None);
    for prefix in ["", ".x", "a/b", "ä"] {
        refused(
            FileSink::<u64>::lines(home.path())
                .prefix(prefix)
                .writer(&cx),
            ErrorKind::Config,
            "prefix",
        );
    }
    refused(
        FileSink::<u64>::lines(home.path()).suffix("/x").writer(&cx),
        ErrorKind::Config,
        "suffix",
    );
}

#[test]
fn records_are_formatted_by_the_function_and_its_error_leaves_no_half_line() {
    let folder = tempfile::tempdir().unwrap();
    let sink = FileSink::new(folder.path(), |n: &u64, line: &mut Vec<u8>| {
        line.extend_from_slice(b"half");
        if *n == 13 {
            return Err(Error::user("unlucky"));
        }
        line.extend_from_slice(format!(" {n}\n").as_bytes());
        Ok(())
    })
    .prefix("lucky")
    .suffix(".txt");
    let mut task = Task::fresh(&sink, &context(1, 0, 0, 1, None)).unwrap();
    task.write([1]).unwrap();
    refused(task.write([13]), ErrorKind::User, "unlucky");
    task.write([2]).unwrap();
    task.snapshot(1).unwrap();
    let visible = task.pending[0].1.visible.clone();
    task.complete(1).unwrap();
    assert!(
        visible.starts_with("lucky-00000001-000-a1r0-") && visible.ends_with(".txt"),
        "{visible}"
    );
    assert_eq!(
        fs::read_to_string(folder.path().join(visible)).unwrap(),
        "half 1\nhalf 2\n"
    );
}

#[test]
fn no_record_makes_no_file_and_a_part_is_named_once_even_if_chance_repeats_itself() {
    let folder = tempfile::tempdir().unwrap();
    let sink: Numbers = FileSink::lines(folder.path()).random(|| 7);
    let mut task = start(&sink);
    task.snapshot(1).unwrap();
    task.complete(1).unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    let mut twin = start(&sink);
    for id in 2..5 {
        task.write([id]).unwrap();
        twin.write([id * 10]).unwrap();
        task.snapshot(id).unwrap();
        task.complete(id).unwrap();
    }
    twin.snapshot(9).unwrap();
    twin.complete(9).unwrap();
    assert_eq!(records(folder.path()), [2, 3, 4, 20, 30, 40]);
}

#[test]
fn a_writer_that_ends_in_order_takes_its_open_part_with_it() {
    let (folder, sink) = output();
    let mut task = start(&sink);
    task.write([1]).unwrap();
    task.writer.flush().unwrap();
    drop(task);
    assert_eq!(hidden(folder.path()), [""; 0]);
}

/// One step of a job that counts upwards.
#[derive(Clone, Debug)]
enum Step {
    Write(u8),
    Checkpoint { complete: bool, notify: bool },
    Notify,
    Crash { parallelism: u32, new_process: bool },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1u8..5).prop_map(Step::Write),
        3 => (prop::bool::weighted(0.7), any::<bool>()).prop_map(|(complete, notify)| Step::Checkpoint { complete, notify }),
        1 => Just(Step::Notify),
        2 => (1u32..4, any::<bool>()).prop_map(|(parallelism, new_process)| Step::Crash { parallelism, new_process }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// However a job is checkpointed, crashed and rescaled, it ends with each number once and nothing hidden.
    #[test]
    fn any_history_ends_with_every_record_once(steps in proptest::collection::vec(step(), 1..40)) {
        let folder = tempfile::tempdir().unwrap();
        let sink: Numbers = FileSink::lines(folder.path());
        let (mut attempt, mut run) = (1, 0);
        let mut tasks = vec![start(&sink)];
        let mut next = 0u64;
        let mut checkpoint = 0;
        // The last complete checkpoint: what the sinks saved, and where the source was.
        let mut last: (Vec<Saved>, u64) = (Vec::new(), 0);
        for step in steps {
            match step {
                Step::Write(count) => {
                    for _ in 0..count {
                        let at = next as usize % tasks.len();
                        tasks[at].write([next]).unwrap();
                        next += 1;
                    }
                }
                Step::Checkpoint { complete, notify } => {
                    checkpoint += 1;
                    let saved: Vec<Saved> = tasks.iter_mut().map(|task| task.snapshot(checkpoint).unwrap()).collect();
                    if complete {
                        last = (saved, next);
                        if notify {
                            tasks.iter_mut().for_each(|task| task.complete(checkpoint).unwrap());
                        }
                    }
                }
                // Late, for some subtasks only, and of the last complete one.
                Step::Notify => {
                    if let (Some(saved), Some(task)) = (last.0.first(), tasks.first_mut()) {
                        task.complete(saved.id).unwrap();
                    }
                }
                Step::Crash { parallelism, new_process } => {
                    kill(std::mem::take(&mut tasks), folder.path());
                    if new_process {
                        (attempt, run) = (attempt + 1, 0);
                    } else {
                        run += 1;
                    }
                    tasks = restore(&sink, &last.0, attempt, run, parallelism).unwrap();
                    next = last.1;
                }
            }
            let mut seen = records(folder.path());
            seen.sort_unstable();
            prop_assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "twice: {seen:?}");
            prop_assert!(seen.iter().all(|record| *record < last.1), "too early: {seen:?}");
        }
        checkpoint += 1;
        tasks.iter_mut().for_each(|task| { task.snapshot(checkpoint).unwrap(); });
        tasks.iter_mut().for_each(|task| task.complete(checkpoint).unwrap());
        let mut seen = records(folder.path());
        seen.sort_unstable();
        prop_assert_eq!(seen, (0..next).collect::<Vec<u64>>());
    }
}
