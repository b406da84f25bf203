//! Bases that are written beside checkpoints.
use super::*;

/// Keeps what runs beside checkpoints until it is told to run it.
#[derive(Default)]
struct Later(Mutex<Vec<BoxFuture<'static, ()>>>);

impl Executor for Later {
    fn spawn_io(&self, future: BoxFuture<'static, ()>) {
        self.0.lock().unwrap().push(future);
    }

    fn spawn_cpu(&self, work: Box<dyn FnOnce() + Send>) {
        work();
    }
}

#[test]
fn a_base_is_written_beside_checkpoints_and_taken_up_by_the_next_one() {
    let setup = eager();
    let mut job = setup.start_at(1, counts).unwrap();
    fill(&mut job, 0..1_000, 1);
    let first = job.snapshot(SnapshotKind::Checkpoint);
    fill(&mut job, 0..10, 2);
    // On top of a base alone nothing outweighs it yet.
    let second = job.snapshot(SnapshotKind::Checkpoint);
    assert_eq!(shared(&second)[0].len(), 2);
    fill(&mut job, 10..20, 3);
    let cut = job.cut(SnapshotKind::Checkpoint).unwrap();
    let (id, later) = (cut.id, Arc::new(Later::default()));
    // The checkpoint is whole before the base begins.
    let third = cut
        .persist(&setup.clone().executor(Arc::<Later>::clone(&later)))
        .unwrap();
    let base = later.0.lock().unwrap().pop().unwrap();
    assert!(objects(&third).is_superset(&objects(&second)));
    job.completed(id).unwrap();
    // More checkpoints meanwhile, complete and not, on top of the old base.
    fill(&mut job, 20..30, 4);
    let fourth = job.snapshot(SnapshotKind::Checkpoint);
    assert!(objects(&fourth).is_superset(&objects(&third)));
    block_on(base);
    fill(&mut job, 30..40, 5);
    let fifth = job.snapshot(SnapshotKind::Checkpoint);
    assert!(objects(&fifth).is_disjoint(&objects(&first)));
    assert_eq!(shared(&fifth)[0].len(), 2, "{:?}", shared(&fifth));
    assert_eq!(shared(&fifth)[0][0], format!("base-{id}"));
    for checkpoint in [&third, &fourth, &fifth] {
        let mut restored = setup.restore(checkpoint, 2, counts).unwrap();
        let values = read(&mut restored, 0..1_000);
        let changed = values.iter().filter(|value| **value != Some(1)).count();
        let expected = 20 + 10 * (checkpoint.id.0 - third.id.0) as usize;
        assert_eq!(changed, expected);
    }
}

#[test]
fn a_base_whose_checkpoint_is_given_up_is_written_again_and_one_that_nobody_has_is_removed() {
    let setup = eager();
    let mut job = setup.start_at(1, counts).unwrap();
    fill(&mut job, 0..1_000, 1);
    let first = job.snapshot(SnapshotKind::Checkpoint);
    for round in 0..2 {
        fill(&mut job, 0..10, 2 + round);
        job.snapshot(SnapshotKind::Checkpoint);
    }
    // The base is there, and a checkpoint that is given up has it.
    fill(&mut job, 10..20, 9);
    let declined = job.cut(SnapshotKind::Checkpoint).unwrap();
    let declined = declined.persist(&setup).unwrap();
    assert!(objects(&declined).is_disjoint(&objects(&first)));
    job.aborted(declined.id).unwrap();
    // It may be gone: the old one is right still, and its changes are all known.
    for name in objects(&declined) {
        assert!(setup.memory.remove(&name));
    }
    let next = job.snapshot(SnapshotKind::Checkpoint);
    assert!(objects(&next).is_superset(&objects(&first)));
    let with_base = setup.memory.names().len();
    // That one brought the next base, which no checkpoint has when the job ends.
    let mut restored = setup.restore(&next, 2, counts).unwrap();
    assert_eq!(read(&mut restored, 9..11), [Some(3), Some(9)]);
    drop(job);
    assert_eq!(setup.memory.names().len(), with_base - 1);
    assert!(
        objects(&next)
            .iter()
            .all(|name| setup.memory.object(name).is_some())
    );
}

/// A job of one subtask whose bases are due once there are changes at all, over a storage that can be told to fail.
fn watched(max_streams: usize) -> (Setup, FaultyStorage, Arc<Mutex<BackgroundBases>>) {
    let bases = Arc::new(Mutex::new(BackgroundBases::default()));
    let made = Arc::clone(&bases);
    let backend = LiveBackend::new("fs", move |cx| {
        let config = FsConfig {
            change_ratio: 1e-6,
            max_streams,
            ..FsConfig::default()
        };
        let strategy = ChangeStreams::new(config, cx);
        *made.lock().unwrap() = strategy.background_bases();
        Ok(Box::new(strategy))
    });
    let setup = Setup::new(Arc::new(backend), Mode::Direct).unwrap();
    let faulty = FaultyStorage::new(Arc::new(setup.memory.clone()));
    let setup = setup.storage(Arc::new(faulty.clone()));
    (setup, faulty, bases)
}

/// Such a job with two checkpoints: the base, which is returned, and one on top of it.
fn watched_job(max_streams: usize) -> (Setup, FaultyStorage, BackgroundBases, Counts, Checkpoint) {
    let (setup, faulty, bases) = watched(max_streams);
    let mut job = setup.start_at(1, counts).unwrap();
    let bases = bases.lock().unwrap().clone();
    fill(&mut job, 0..1_000, 1);
    let first = job.snapshot(SnapshotKind::Checkpoint);
    fill(&mut job, 0..10, 2);
    job.snapshot(SnapshotKind::Checkpoint);
    (setup, faulty, bases, job, first)
}

#[test]
fn a_base_that_fails_harms_no_checkpoint_and_each_failure_is_told() {
    let (setup, faulty, bases, mut job, first) = watched_job(128);
    assert_eq!((bases.failures(), bases.count()), (0, 0));
    let mut checkpoint = first.clone();
    for round in 0..6_u64 {
        fill(&mut job, 0..10, 3 + round);
        // The second stream to be finished is that of the base.
        let fault = match round % 2 {
            0 => Fault::Fail(ErrorKind::Retryable),
            _ => Fault::LoseAnswer,
        };
        faulty.fail_nth_of(Call::Finish, 2, fault);
        checkpoint = job.snapshot(SnapshotKind::Checkpoint);
        assert!(objects(&checkpoint).is_superset(&objects(&first)));
        assert_eq!((bases.failures(), bases.count()), (round + 1, 0));
        let why = bases.last_error().unwrap();
        assert_eq!(why.kind(), ErrorKind::Retryable, "{why}");
        // The more tries have failed, the more checkpoints go by before the next one.
        faulty.heal();
        for _ in 1..1 << round {
            fill(&mut job, 0..10, 3 + round);
            checkpoint = job.snapshot(SnapshotKind::Checkpoint);
        }
        assert_eq!((bases.failures(), bases.count()), (round + 1, 0));
    }
    let mut restored = setup.restore(&checkpoint, 2, counts).unwrap();
    assert_eq!(read(&mut restored, 9..11), [Some(8), Some(1)]);
    drop(restored);
    job.snapshot(SnapshotKind::Checkpoint);
    assert_eq!((bases.failures(), bases.count()), (6, 1));
    assert!(bases.last_error().is_none());
}

#[test]
fn a_base_that_hangs_harms_no_checkpoint_and_is_given_up_once_another_is_complete() {
    let (setup, faulty, bases, mut job, first) = watched_job(2);
    let later = Arc::new(Later::default());
    fill(&mut job, 0..10, 3);
    let cut = job.cut(SnapshotKind::Checkpoint).unwrap();
    let third = cut
        .persist(&setup.clone().executor(Arc::<Later>::clone(&later)))
        .unwrap();
    job.completed(third.id).unwrap();
    let mut base = later.0.lock().unwrap().pop().unwrap();
    faulty.fail_nth_of(Call::Finish, 1, Fault::Hang);
    assert!(poll_once(&mut base).is_none());
    assert_eq!(faulty.hanging(), 1);
    // On top of the old base for as long as that is allowed, then a base by itself.
    let mut files = vec![shared(&third)[0].len()];
    for value in 4..9 {
        fill(&mut job, 0..10, value);
        let checkpoint = job.snapshot(SnapshotKind::Checkpoint);
        files.push(shared(&checkpoint)[0].len());
        let is_base = objects(&checkpoint).is_disjoint(&objects(&first));
        assert_eq!(is_base, value >= 7, "{value}");
        let mut restored = setup.restore(&checkpoint, 2, counts).unwrap();
        assert_eq!(read(&mut restored, 9..11), [Some(value), Some(1)]);
    }
    assert_eq!(files, [3, 4, 5, 6, 1, 2]);
    // It is not waited for any more, and what it wrote is gone.
    assert_eq!(poll_once(&mut base), Some(()));
    assert_eq!((faulty.hanging(), bases.count()), (0, 0));
    faulty.heal();
    let objects_of_first_base = setup.memory.names().len();
    drop(job);
    assert_eq!(setup.memory.names().len(), objects_of_first_base);
}

#[test]
fn a_base_that_fails_for_ever_makes_a_checkpoint_fail_in_the_end() {
    let (setup, faulty, bases) = watched(2);
    let mut job = setup.start_at(1, counts).unwrap();
    let bases = bases.lock().unwrap().clone();
    fill(&mut job, 0..1_000, 1);
    job.snapshot(SnapshotKind::Checkpoint);
    let mut files = Vec::new();
    for value in 2..7 {
        fill(&mut job, 0..10, value);
        faulty.fail_nth_of(Call::Finish, 2, Fault::Fail(ErrorKind::Retryable));
        let checkpoint = job.snapshot(SnapshotKind::Checkpoint);
        files.push(shared(&checkpoint)[0].len());
        faulty.heal();
    }
    assert_eq!((files, bases.failures()), (vec![2, 3, 4, 5, 6], 3));
    faulty.fail_all(Call::Finish, Fault::Fail(ErrorKind::Retryable));
    for _ in 0..3 {
        let cut = job.cut(SnapshotKind::Checkpoint).unwrap();
        let id = cut.id;
        let error = cut.persist(&setup).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Retryable);
        job.aborted(id).unwrap();
    }
    faulty.heal();
    let healed = job.snapshot(SnapshotKind::Checkpoint);
    assert_eq!(shared(&healed), [[format!("base-{}", healed.id)]]);
    let mut restored = setup.restore(&healed, 2, counts).unwrap();
    assert_eq!(read(&mut restored, 9..11), [Some(6), Some(1)]);
}

/// How the owner of a base that a checkpoint in flight goes on top of loses interest in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disowned {
    Full,
    FullAndComplete,
    EndOfTask,
}

#[test]
fn a_base_stays_for_a_checkpoint_in_flight_that_goes_on_top_of_it_and_goes_with_it() {
    for disowned in [
        Disowned::Full,
        Disowned::FullAndComplete,
        Disowned::EndOfTask,
    ] {
        for is_written in [true, false] {
            let setup = eager();
            let mut job = setup.start_at(1, counts).unwrap();
            fill(&mut job, 0..1_000, 1);
            job.snapshot(SnapshotKind::Checkpoint);
            for value in 2..4 {
                fill(&mut job, 0..10, value);
                job.snapshot(SnapshotKind::Checkpoint);
            }
            let before = setup.memory.names().len();
            fill(&mut job, 10..20, 9);
            let in_flight = job.cut(SnapshotKind::Checkpoint).unwrap();
            let mut job = Some(job);
            match disowned {
                Disowned::EndOfTask => job = None,
                Disowned::Full | Disowned::FullAndComplete => {
                    let job = job.as_mut().unwrap();
                    let full = job.cut(SnapshotKind::FullCheckpoint).unwrap();
                    let full = full.persist(&setup).unwrap();
                    if disowned == Disowned::FullAndComplete {
                        job.completed(full.id).unwrap();
                    }
                }
            }
            if !is_written {
                drop(in_flight);
                drop(job);
                let own = usize::from(disowned != Disowned::EndOfTask);
                assert_eq!(setup.memory.names().len(), before - 1 + own, "{disowned:?}");
                continue;
            }
            let in_flight = in_flight.persist(&setup).unwrap();
            assert!(shared(&in_flight)[0][0].starts_with("base-"));
            if let Some(job) = &mut job {
                job.completed(in_flight.id).unwrap();
                fill(job, 20..30, 10);
                let next = job.snapshot(SnapshotKind::Checkpoint);
                let mut restored = setup.restore(&next, 2, counts).unwrap();
                let expected = [Some(3), Some(9), Some(9), Some(10)];
                assert_eq!(read(&mut restored, 9..11), expected[..2], "{disowned:?}");
                assert_eq!(read(&mut restored, 19..21), expected[2..], "{disowned:?}");
            }
            drop(job);
            let mut restored = setup.restore(&in_flight, 2, counts).unwrap();
            assert_eq!(read(&mut restored, 9..11), [Some(3), Some(9)]);
        }
    }
}
