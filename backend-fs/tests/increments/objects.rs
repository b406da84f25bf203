//! Whose the objects are.
use super::*;

/// A coordinator's side in little: objects are removed once no checkpoint from the last complete one on uses them, and none that
/// is pending may.
#[derive(Default)]
struct Coordinator {
    last_used: BTreeMap<String, u64>,
    completed: u64,
    /// The last complete checkpoint when a pending one began.
    floors: BTreeMap<u64, u64>,
}

impl Coordinator {
    fn began(&mut self, id: u64) {
        self.floors.insert(id, self.completed);
    }

    fn aborted(&mut self, id: u64) {
        self.floors.remove(&id);
    }

    /// Takes note of a checkpoint, of one that comes late too: what is removed by then stays so.
    fn acknowledged(&mut self, checkpoint: &Checkpoint, memory: &MemoryStorage) {
        for name in objects(checkpoint) {
            if memory.object(&name).is_some() {
                let last = self.last_used.entry(name).or_default();
                *last = (*last).max(checkpoint.id.0);
            }
        }
    }

    fn completed(&mut self, id: u64, memory: &MemoryStorage) {
        self.completed = id;
        self.floors.retain(|pending, _| *pending > id);
        let floor = self.floors.values().copied().fold(id, u64::min);
        self.last_used.retain(|name, last| {
            let is_kept = *last >= floor;
            assert!(is_kept || memory.remove(name), "{name} is removed once");
            is_kept
        });
    }
}

type Kinds = (ValueState<u64>, MapState<u32, u64>, ListState<u64>, Timers);

fn kinds(states: &mut KeyedStates<u32>) -> Result<Kinds> {
    Ok((
        states.value("value")?,
        states.map("map")?,
        states.list("list")?,
        states.timers("timers")?,
    ))
}

/// What there is of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct OfKey {
    value: Option<u64>,
    map: BTreeMap<u32, u64>,
    list: Vec<u64>,
    timers: BTreeSet<i64>,
}

type Model = BTreeMap<u32, OfKey>;

const KEYS: u32 = 40;

/// Changes one state of a key, in the job as in the model.
fn change(job: &mut Job<u32, Kinds>, model: &mut Model, random: &mut Random) {
    let key = random.below(KEYS as usize) as u32;
    let of_key = model.entry(key).or_default();
    let (what, small, number) = (
        random.below(12),
        random.below(6) as u32,
        random.number() % 1_000,
    );
    job.at(&key, |at, (value, map, list, timers)| match what {
        0 | 1 => {
            of_key.value = Some(number);
            at.value(value).set(number)
        }
        2 => {
            of_key.value = None;
            at.value(value).clear()
        }
        3 | 4 => {
            of_key.map.insert(small, number);
            at.map(map).put(small, number)
        }
        5 => {
            of_key.map.remove(&small);
            at.map(map).remove(&small).map(drop)
        }
        6 if number < 300 => {
            of_key.map.clear();
            at.map(map).clear()
        }
        6 | 7 => {
            of_key.list.extend([number, number + 1]);
            at.list(list).extend(vec![number, number + 1])
        }
        8 => {
            if !of_key.list.is_empty() {
                of_key.list.remove(0);
            }
            at.list(list).pop_front().map(drop)
        }
        9 if number < 300 => {
            of_key.list.clear();
            at.list(list).clear()
        }
        9 => {
            of_key.list.retain(|element| element % 2 == 0);
            at.list(list).retain(|element| element % 2 == 0)
        }
        10 => {
            of_key.timers.insert(i64::from(small));
            at.timers(timers).set(i64::from(small)).map(drop)
        }
        _ => {
            of_key.timers.remove(&i64::from(small));
            at.timers(timers).remove(i64::from(small)).map(drop)
        }
    });
}

/// Takes all that there is out of a job.
fn drained(job: &mut Job<u32, Kinds>) -> Model {
    let mut found = Model::new();
    for key in 0..KEYS {
        let of_key = job.at(&key, |at, (value, map, list, _)| {
            Ok(OfKey {
                value: at.value(value).get()?,
                map: at.map(map).entries()?.into_iter().collect(),
                list: at.list(list).get()?,
                timers: BTreeSet::new(),
            })
        });
        found.insert(key, of_key);
    }
    for (time, key, ()) in job
        .fire(|(.., timers)| timers.erase::<u32>(), i64::MAX)
        .concat()
    {
        assert!(found.entry(key).or_default().timers.insert(time));
    }
    found.retain(|_, of_key| *of_key != OfKey::default());
    found
}

/// Whatever completes, is given up, is written late or not at all: each complete checkpoint restores what was there, no object
/// is removed that one needs, and at the end there is none that the last one does not need.
#[test]
fn k_243_k_244_no_object_is_missing_and_none_is_left_over_whatever_becomes_of_checkpoints() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let setup = if seed % 2 == 0 { eager() } else { setup() };
        let mut job = setup.start_at(2, kinds).unwrap();
        let (mut coordinator, mut model) = (Coordinator::default(), Model::new());
        let mut unwritten: Vec<(Cut, Model)> = Vec::new();
        // Those that nobody waits for any more, and are written still.
        let mut late: Vec<Cut> = Vec::new();
        let mut pending: Vec<(Checkpoint, Model)> = Vec::new();
        let mut complete: Option<(Checkpoint, Model)> = None;
        for _ in 0..120 {
            for _ in 0..random.below(40) {
                change(&mut job, &mut model, &mut random);
            }
            match random.below(12) {
                0..4 => {
                    let kind = match random.below(6) {
                        0 => SnapshotKind::FullCheckpoint,
                        _ => SnapshotKind::Checkpoint,
                    };
                    if let Ok(cut) = job.cut(kind) {
                        coordinator.began(cut.id.0);
                        unwritten.push((cut, model.clone()));
                    }
                }
                4..7 if !unwritten.is_empty() => {
                    let (cut, then) = unwritten.remove(random.below(unwritten.len()));
                    let id = cut.id;
                    match cut.persist(&setup) {
                        Ok(checkpoint) => {
                            coordinator.acknowledged(&checkpoint, &setup.memory);
                            pending.push((checkpoint, then));
                            pending.sort_by_key(|(checkpoint, _)| checkpoint.id);
                        }
                        Err(_) => {
                            coordinator.aborted(id.0);
                            job.aborted(id).unwrap();
                        }
                    }
                }
                7 | 8 if !pending.is_empty() => {
                    // Those before it are subsumed: nobody tells of them.
                    let at = random.below(pending.len());
                    let done = pending.drain(..=at).next_back().unwrap();
                    let is_older = |(cut, _): &mut (Cut, Model)| cut.id < done.0.id;
                    late.extend(unwritten.extract_if(.., is_older).map(|(cut, _)| cut));
                    job.completed(done.0.id).unwrap();
                    coordinator.completed(done.0.id.0, &setup.memory);
                    complete = Some(done);
                }
                9 if !pending.is_empty() => {
                    let (given_up, _) = pending.remove(random.below(pending.len()));
                    coordinator.aborted(given_up.id.0);
                    job.aborted(given_up.id).unwrap();
                }
                9 if !unwritten.is_empty() => {
                    let (given_up, _) = unwritten.remove(random.below(unwritten.len()));
                    coordinator.aborted(given_up.id.0);
                    job.aborted(given_up.id).unwrap();
                    late.push(given_up);
                }
                10 if !late.is_empty() => {
                    let cut = late.remove(random.below(late.len()));
                    if random.below(2) == 0
                        && let Ok(checkpoint) = cut.persist(&setup)
                    {
                        coordinator.acknowledged(&checkpoint, &setup.memory);
                    }
                }
                11 => {
                    let Some((checkpoint, then)) = &complete else {
                        continue;
                    };
                    let mut other = setup.restore(checkpoint, 3, kinds).unwrap();
                    let mut expected = then.clone();
                    expected.retain(|_, of_key| *of_key != OfKey::default());
                    assert_eq!(drained(&mut other), expected, "seed {seed}");
                    if random.below(3) == 0 {
                        for (given_up, _) in pending.drain(..) {
                            job.aborted(given_up.id).unwrap();
                        }
                        late.extend(unwritten.drain(..).map(|(cut, _)| cut));
                        coordinator.floors.clear();
                        job.revert_to(checkpoint, 2);
                        model.clone_from(then);
                    }
                }
                _ => {}
            }
        }
        drop((unwritten, late));
        coordinator.floors.clear();
        let last = job.snapshot(SnapshotKind::Checkpoint);
        coordinator.acknowledged(&last, &setup.memory);
        coordinator.completed(last.id.0, &setup.memory);
        drop(job);
        let left: BTreeSet<String> = setup.memory.names().into_iter().collect();
        assert_eq!(left, objects(&last), "seed {seed}");
    }
}
