//! What a task remembers about checkpoints: the pure part of area Z, and of two-phase commit.
use runtime_core::sink::{COMMIT_TRIES, CommitOutcome};
use runtime_core::task::{Begin, PendingCommits, TaskCore};
use state_api::{CheckpointId, Error, ErrorKind};

fn id(n: u64) -> CheckpointId {
    CheckpointId(n)
}

#[test]
fn k_605_a_barrier_of_an_old_checkpoint_is_ignored() {
    let mut core = TaskCore::new();
    assert_eq!(
        [3, 3, 2, 4].map(|n| core.begin(id(n))),
        [Begin::Go, Begin::Ignore, Begin::Ignore, Begin::Go]
    );
}

#[test]
fn k_599_an_abort_that_overtakes_the_barrier_turns_it_into_a_marker() {
    let mut core = TaskCore::new();
    core.abort(id(2));
    assert_eq!(
        [1, 2, 3].map(|n| core.begin(id(n))),
        [Begin::Go, Begin::Cancelled, Begin::Go]
    );
    assert_eq!(core.remembered(), 0);
}

#[test]
fn aborts_are_remembered_up_to_a_bound_and_forgotten_when_passed() {
    let mut core = TaskCore::new();
    (1..=1000).for_each(|n| core.abort(id(n)));
    assert_eq!(core.remembered(), 256);
    assert_eq!(core.begin(id(900)), Begin::Cancelled);
    assert_eq!(core.remembered(), 100);
}

#[test]
fn k_600_an_abort_cancels_the_upload_in_flight_and_no_other() {
    let mut core = TaskCore::new();
    let tokens = [1, 2].map(|n| {
        assert_eq!(core.begin(id(n)), Begin::Go);
        core.upload_started(id(n))
    });
    core.abort(id(1));
    assert_eq!(
        tokens.each_ref().map(|token| token.is_cancelled()),
        [true, false]
    );
    assert_eq!(core.uploads(), 1);
    // K-602: what comes later is not affected.
    assert_eq!(core.begin(id(3)), Begin::Go);
    drop(core);
    assert!(tokens[1].is_cancelled());
}

#[test]
fn a_savepoint_that_still_uploads_when_a_later_checkpoint_completes_can_be_cancelled() {
    for aborted in [true, false] {
        let mut core = TaskCore::new();
        let tokens = [1, 2].map(|n| {
            assert_eq!(core.begin(id(n)), Begin::Go);
            core.upload_started(id(n))
        });
        let [savepoint, checkpoint] = tokens;
        drop(checkpoint);
        assert!(core.complete(id(2)));
        assert_eq!(core.uploads(), 1);
        if aborted {
            core.abort(id(1));
        } else {
            core.close();
        }
        assert!(savepoint.is_cancelled());
        assert_eq!(core.uploads(), 0);
    }
}

#[test]
fn k_615_a_completion_is_news_once_and_an_older_one_never() {
    let mut core = TaskCore::new();
    assert_eq!(
        [2, 2, 1, 3].map(|n| core.complete(id(n))),
        [true, false, false, true]
    );
}

#[test]
fn k_716_everything_up_to_the_checkpoint_is_committed_once_in_order() {
    let mut pending = PendingCommits::new();
    for (checkpoint, transaction) in [(0, 42), (1, 43), (2, 44), (3, 45)] {
        pending.add(id(checkpoint), transaction);
    }
    let mut committed = Vec::new();
    let mut commit = |t: &i32| {
        committed.push(*t);
        Ok(CommitOutcome::Committed)
    };
    assert_eq!(pending.commit_up_to(id(2), &mut commit).unwrap(), 3);
    assert_eq!(pending.commit_up_to(id(1), &mut commit).unwrap(), 0);
    assert_eq!(committed, [42, 43, 44]);
    assert_eq!(pending.iter().copied().collect::<Vec<_>>(), [45]);
}

#[test]
fn k_722_after_a_failed_commit_the_others_are_tried_and_the_first_error_is_returned() {
    let mut pending = PendingCommits::new();
    (1..=4).for_each(|n| pending.add(id(n), n));
    let mut tried = Vec::new();
    let error = pending
        .commit_up_to(id(9), |n| {
            tried.push(*n);
            if n % 2 == 0 {
                Err(Error::retryable(format!("number {n}")))
            } else {
                Ok(CommitOutcome::Committed)
            }
        })
        .unwrap_err();
    assert_eq!(tried, [1, 2, 3, 4]);
    assert_eq!(
        (
            error.kind(),
            error.message(),
            error.context("more failures")
        ),
        (ErrorKind::Retryable, "number 2", Some("1"))
    );
    assert_eq!(pending.iter().copied().collect::<Vec<_>>(), [2, 4]);
}

#[test]
fn k_724_a_transaction_of_an_aborted_checkpoint_is_committed_with_the_next() {
    let mut pending = PendingCommits::new();
    pending.add(id(1), "of the aborted");
    pending.add(id(2), "of the completed");
    let commit = |_: &&str| Ok(CommitOutcome::Committed);
    assert_eq!(pending.commit_up_to(id(2), commit).unwrap(), 2);
    assert!(pending.is_empty());
}

fn later() -> Result<CommitOutcome, Error> {
    Ok(CommitOutcome::RetryLater(Error::retryable(
        "the broker is busy",
    )))
}

#[test]
fn k_725_what_is_to_be_retried_stays_for_the_next_checkpoint_and_keeps_nobody() {
    let mut pending = PendingCommits::new();
    (1..=3).for_each(|n| pending.add(id(n), n));
    let first = pending.commit_up_to(id(3), |n| match n {
        2 => later(),
        _ => Ok(CommitOutcome::Committed),
    });
    assert_eq!(first.unwrap(), 2);
    assert_eq!(pending.iter().copied().collect::<Vec<_>>(), [2]);
    assert!(pending.any_up_to(id(2)) && !pending.any_up_to(id(1)));
    let second = pending.commit_up_to(id(4), |_| Ok(CommitOutcome::AlreadyCommitted));
    assert_eq!(second.unwrap(), 1);
    assert!(pending.is_empty());
}

#[test]
fn k_725_retries_end_with_the_reason_and_the_transaction_stays_in_the_checkpoints() {
    let mut pending = PendingCommits::new();
    pending.add(id(1), "stuck");
    for _ in 1..COMMIT_TRIES {
        assert_eq!(pending.commit_up_to(id(9), |_| later()).unwrap(), 0);
    }
    let error = pending.commit_up_to(id(9), |_| later()).unwrap_err();
    assert_eq!(
        (error.kind(), error.message(), error.context("tries")),
        (ErrorKind::Retryable, "the broker is busy", Some("10"))
    );
    assert_eq!(pending.len(), 1);
}

#[test]
fn k_725_what_is_gone_is_forgotten_and_the_others_go_on() {
    let mut pending = PendingCommits::new();
    (1..=2).for_each(|n| pending.add(id(n), n));
    let done = pending.commit_up_to(id(2), |n| match n {
        1 => Ok(CommitOutcome::Gone(Error::corrupt("expired"))),
        _ => Ok(CommitOutcome::Committed),
    });
    assert_eq!(done.unwrap(), 2);
    assert!(pending.is_empty());
}
