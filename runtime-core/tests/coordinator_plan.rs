//! Which tasks a checkpoint is triggered at and waits for, and what tasks that are finished change.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

mod coordinator_support;

use std::collections::BTreeSet;

use coordinator_support::*;
use runtime_core::coordinator::{
    Action, CheckpointKind, Connection, CoordinatorConfig, Fact, FailureReason, Plan, PlanVertex,
    SavepointFormat, TaskId,
};
use state_api::ErrorKind;

use CheckpointKind::{Checkpoint, Final, Savepoint};

#[test]
fn k_362_without_running_tasks_nothing_begins() {
    let mut rig = Rig::idle(defaults());
    let (request, actions) = rig.request(Checkpoint);
    assert_eq!(
        refusal(&actions, request),
        Some(FailureReason::TasksNotRunning)
    );
    assert_eq!(rig.pending_ids(), [0_u64; 0]);
    assert_eq!(rig.machine.next_id(), cp(1), "no id is spent");
}

#[test]
fn k_363_finished_tasks_end_checkpointing_where_that_is_configured() {
    let mut rig = Rig::new(CoordinatorConfig {
        after_tasks_finish: false,
        ..defaults()
    });
    rig.fact(Fact::TaskFinished { task: S0 });
    let (request, actions) = rig.request(Checkpoint);
    assert_eq!(
        refusal(&actions, request),
        Some(FailureReason::TasksNotRunning)
    );
}

#[test]
fn k_364_behind_finished_tasks_the_next_ones_are_triggered_and_the_finished_count_as_acked() {
    let mut rig = Rig::new(defaults());
    rig.fact(Fact::TaskFinished { task: S0 });
    rig.fact(Fact::TaskFinished { task: S1 });
    let (_, actions) = rig.request(Checkpoint);
    let actions = rig.ready(prepared(&actions).unwrap());
    let Some(Action::TriggerTasks { tasks, .. }) = actions.first() else {
        panic!("{actions:?}")
    };
    assert_eq!(tasks.iter().copied().collect::<Vec<_>>(), [SINK]);
    assert_eq!(published_ids(&rig.ack(SINK, cp(1))), [1]);
}

#[test]
fn once_all_tasks_are_finished_the_final_checkpoint_is_published_at_once() {
    let mut rig = Rig::new(defaults());
    for task in TASKS {
        rig.fact(Fact::TaskFinished { task });
    }
    let (request, actions) = rig.request(Final);
    let id = prepared(&actions).unwrap();
    assert_eq!(published_ids(&rig.ready(id)), [1]);
    assert_eq!(reply(&rig.published(id), request), Some(Ok(id)));
}

#[test]
fn k_365_a_triggered_task_that_finishes_unacked_aborts_and_the_next_checkpoint_succeeds() {
    let mut rig = Rig::new(defaults());
    let id = rig.begin(Checkpoint);
    let actions = rig.fact(Fact::TaskFinished { task: S1 });
    assert_eq!(aborted(&actions), [(id.0, FailureReason::TaskFinished)]);
    assert_eq!(failed_job(&actions), None, "it is nobody's failure");
    let next = rig.begin(Checkpoint);
    rig.ack(S0, next);
    assert_eq!(published_ids(&rig.ack(SINK, next)), [2]);
}

#[test]
fn a_task_that_finishes_before_the_trigger_is_sent_is_left_out_of_it() {
    let mut rig = Rig::new(defaults());
    let (_, actions) = rig.request(Checkpoint);
    rig.fact(Fact::TaskFinished { task: S1 });
    let actions = rig.ready(prepared(&actions).unwrap());
    let Some(Action::TriggerTasks { tasks, .. }) = actions.first() else {
        panic!("{actions:?}")
    };
    assert_eq!(tasks.iter().copied().collect::<Vec<_>>(), [S0]);
}

#[test]
fn a_task_further_down_that_finishes_counts_as_acked() {
    let mut rig = Rig::new(defaults());
    let id = rig.begin(Checkpoint);
    rig.ack(S0, id);
    rig.ack(S1, id);
    let actions = rig.fact(Fact::TaskFinished { task: SINK });
    let Some(Action::Publish { finished, .. }) = actions.first() else {
        panic!("{actions:?}")
    };
    assert_eq!(finished.iter().copied().collect::<Vec<_>>(), [SINK]);
}

#[test]
fn k_366_sources_are_triggered_and_all_tasks_waited_for() {
    let mut rig = Rig::new(defaults());
    rig.now = 77;
    let (_, actions) = rig.request(Checkpoint);
    assert_eq!(
        actions,
        [Action::PrepareLocation {
            id: cp(1),
            kind: Checkpoint,
            format: SavepointFormat::Canonical,
            target: None
        }]
    );
    let actions = rig.ready(cp(1));
    let tasks = [S0, S1].into();
    let expected = Action::TriggerTasks {
        id: cp(1),
        kind: Checkpoint,
        format: SavepointFormat::Canonical,
        full: false,
        timestamp_ms: 77,
        tasks,
    };
    assert_eq!(actions, [expected]);
    assert_eq!(rig.machine.pending(77)[0].missing, TASKS);
}

#[test]
fn k_443_k_448_the_trigger_goes_to_every_running_task_that_no_running_task_feeds() {
    use Connection::{AllToAll, OneToOne};
    let task = TaskId::new;
    // source 0 -> map 1 (one to one) -> count 2 (all to all) -> sink 3 (one to one); source 4 -> count 2.
    let mut rig = Rig::idle(defaults());
    let plan = Plan::new([
        PlanVertex::source(0, 2),
        PlanVertex::source(1, 2).fed_by(0, OneToOne),
        PlanVertex::source(2, 2)
            .fed_by(1, AllToAll)
            .fed_by(4, AllToAll),
        PlanVertex::source(3, 2).fed_by(2, OneToOne),
        PlanVertex::source(4, 1),
    ])
    .unwrap();
    assert_eq!(plan.len(), 9);
    let all: BTreeSet<TaskId> = (0..4)
        .flat_map(|vertex| [task(vertex, 0), task(vertex, 1)])
        .chain([task(4, 0)])
        .collect();
    rig.fact(Fact::TasksRunning { plan, random: 0 });
    let mut next = 0;
    let mut triggered = |rig: &mut Rig| {
        next += 1;
        rig.request(Savepoint);
        let actions = rig.ready(cp(next));
        let Some(Action::TriggerTasks { tasks, .. }) = actions.into_iter().next() else {
            panic!()
        };
        let view = &rig.machine.pending(0)[0];
        let waited_for: BTreeSet<TaskId> = view.missing.iter().copied().collect();
        // Each task is waited for, or listed as finished.
        let acks = waited_for.iter().map(|task| rig.ack(*task, cp(next)));
        let last = acks.last().unwrap();
        let Some(Action::Publish { finished, .. }) = last.into_iter().next() else {
            panic!()
        };
        assert_eq!(&waited_for | &finished, all, "each has a place");
        assert!(waited_for.is_disjoint(&finished));
        rig.published(cp(next));
        let triggered = tasks.into_iter().collect::<Vec<_>>();
        (triggered, finished.into_iter().collect::<Vec<_>>())
    };
    let finish = |rig: &mut Rig, tasks: &[TaskId]| {
        for task in tasks {
            rig.fact(Fact::TaskFinished { task: *task });
        }
    };
    let mut gone = vec![];
    let mut after = |rig: &mut Rig, tasks: &[TaskId], expected: &[TaskId], case: &str| {
        finish(rig, tasks);
        gone.extend_from_slice(tasks);
        gone.sort();
        assert_eq!(triggered(rig), (expected.to_vec(), gone.clone()), "{case}");
    };
    let sources = [task(0, 0), task(0, 1), task(4, 0)];
    after(&mut rig, &[], &sources, "all run");
    let now = [task(0, 0), task(1, 1), task(4, 0)];
    after(&mut rig, &[task(0, 1)], &now, "K-445");
    after(&mut rig, &[task(1, 1)], &[task(0, 0), task(4, 0)], "K-446");
    let still_fed = "K-447: the other input still feeds the count";
    after(&mut rig, &[task(4, 0)], &[task(0, 0)], still_fed);
    let all_fed_by_none = [task(2, 0), task(2, 1)];
    let rest = [task(0, 0), task(1, 0)];
    after(&mut rig, &rest, &all_fed_by_none, "K-448");
    let now = [task(2, 0), task(3, 1)];
    after(&mut rig, &[task(2, 1)], &now, "one by one");
}

#[test]
fn k_449_one_failed_task_keeps_checkpoints_from_beginning() {
    let mut rig = Rig::new(defaults());
    rig.fact(Fact::TaskFailed { task: SINK });
    let (request, actions) = rig.request(Checkpoint);
    assert_eq!(
        refusal(&actions, request),
        Some(FailureReason::TasksNotRunning)
    );
}

#[test]
fn a_plan_that_contradicts_itself_is_refused() {
    use Connection::{AllToAll, OneToOne};
    let bad = [
        vec![PlanVertex::source(0, 0)],
        vec![PlanVertex::source(0, 1), PlanVertex::source(0, 1)],
        vec![PlanVertex::source(0, 1).fed_by(1, AllToAll)],
        vec![
            PlanVertex::source(0, 1),
            PlanVertex::source(1, 2).fed_by(0, OneToOne),
        ],
    ];
    for vertices in bad {
        assert_eq!(
            Plan::new(vertices).unwrap_err().kind(),
            ErrorKind::InvalidArgument
        );
    }
}
