//! Hours of checkpoints on a virtual clock: every fault that a store can have, deaths between any two of its calls, runs that
//! are held up while others take over, restarts, savepoints, claims and clean-ups at any moment. In the end every checkpoint
//! that looks complete is whole, and nothing lies in the store that nobody needs and `gc` does not list.
//!
//! `HOLDFAST_SIM_HOURS` sets the virtual hours of a run, `HOLDFAST_SEED` the one seed to run.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
mod common;
#[path = "day/process.rs"]
mod process;
#[path = "day/store.rs"]
mod store;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use checkpoint_storage::{
    CheckpointState, ClaimRecord, Fate, GcOptions, GcReport, StoreRoot, StoredCheckpoint,
    VerifyOptions, collect_garbage, left_beside, list_checkpoints, survey, verify_checkpoints,
};
use common::{names, now};
use process::Process;
use state_api::{ErrorKind, Result, Root};
use store::{Life, World};

const ROOT: &str = "memory://sim";

/// What happened, to see that a run was worth it.
#[derive(Debug, Default)]
struct Tally {
    checkpoints: usize,
    declined: usize,
    savepoints: usize,
    deaths: usize,
    fenced: usize,
    claims: usize,
    collections: usize,
    collected: usize,
    listed_only: usize,
}

struct Day {
    seed: u64,
    world: Arc<World>,
    running: [Option<(Process, Life)>; 2],
    tally: Tally,
    jobs: Arc<Jobs>,
}

/// Two jobs, each of which is now and then over for good: another one, in a folder of its own, claims its last checkpoint.
#[derive(Default)]
struct Jobs {
    names: AtomicU64,
    generation: [AtomicU64; 2],
}

impl Jobs {
    fn next_names(&self) -> u64 {
        self.names.fetch_add(1, Ordering::Relaxed)
    }

    /// The folders of a job and those before it, its own last.
    fn folders(&self, index: usize) -> Vec<String> {
        let last = self.generation[index].load(Ordering::Relaxed);
        (0..=last)
            .map(|n| format!("{}{n}", ["a", "b"][index]))
            .collect()
    }

    fn folder(&self, index: usize) -> String {
        self.folders(index).pop().unwrap()
    }

    fn all(&self) -> Vec<String> {
        [self.folders(0), self.folders(1)].concat()
    }
}

/// Returns the complete checkpoints of a job, the newest first.
fn complete(job: &StoreRoot) -> Vec<StoredCheckpoint> {
    let listed = now(list_checkpoints(job)).unwrap().into_iter();
    listed
        .filter_map(|listed| match listed.state {
            CheckpointState::Complete(found) => Some(*found),
            _ => None,
        })
        .collect()
}

/// Cleans up in the folder of a job.
fn collect(root: &StoreRoot, job: &str, seed: u64, dry: bool, take_over: bool) -> Result<GcReport> {
    let opener =
        |url: &str| Ok(root.folder(url.strip_prefix(ROOT).unwrap().trim_start_matches('/')));
    let options = GcOptions {
        dry_run: dry,
        take_over,
        opener: &opener,
        names: names(seed),
        ..GcOptions::default()
    };
    now(collect_garbage(&root.folder(job), &options))
}

/// Somebody comes along between two calls of another process, whose store has no faults: a run, or a clean-up.
fn visit(world: &Arc<World>, jobs: &Jobs) {
    let folders = jobs.folders(world.below(2) as usize);
    let job = folders.last().unwrap();
    let root = world.bare();
    if world.chance(500) {
        let job = &folders[world.below(folders.len() as u64) as usize];
        let report = collect(&root, job, jobs.next_names(), false, world.chance(700)).unwrap();
        for unreferenced in &report.unreferenced {
            assert!(!matches!(unreferenced.fate, Fate::Failed(_)));
        }
        return;
    }
    let started = Process::start(root.folder(job), job, names(jobs.next_names()), None, world);
    let mut process = now(started).unwrap();
    for _ in 0..1 + world.below(3) {
        now(process.checkpoint(world)).unwrap();
    }
}

impl Day {
    fn new(seed: u64) -> Self {
        let world = World::new(seed);
        let jobs = Arc::new(Jobs::default());
        jobs.names.store(seed << 32, Ordering::Relaxed);
        let (visited, visitors) = (Arc::downgrade(&world), Arc::clone(&jobs));
        world.on_interlude(move || {
            if let Some(world) = visited.upgrade() {
                visit(&world, &visitors);
            }
        });
        Self {
            seed,
            world,
            running: [None, None],
            tally: Tally::default(),
            jobs,
        }
    }

    fn next_names(&self) -> u64 {
        self.jobs.next_names()
    }

    /// The folder of a job without faults.
    fn bare(&self, index: usize) -> StoreRoot {
        self.world.bare().folder(&self.jobs.folder(index))
    }

    /// Starts a job as a new process, from its newest checkpoint or from that of its predecessor, which it claims.
    fn start(&mut self, index: usize) {
        let (root, life) = self.world.process();
        let mut folders = self.jobs.folders(index);
        let job = folders.pop().unwrap();
        let newest = |job: &String| complete(&self.world.bare().folder(job)).into_iter().next();
        let before = folders.pop().filter(|_| newest(&job).is_none());
        let claim = before.and_then(|before| {
            let newest = newest(&before)?;
            let name = newest.folder.url().rsplit('/').next().unwrap();
            now(StoredCheckpoint::read(&root.folder(&before), name)).ok()
        });
        let claims = claim.is_some();
        match now(Process::start(
            root.folder(&job),
            &job,
            names(self.next_names()),
            claim,
            &self.world,
        )) {
            Ok(process) => {
                self.tally.claims += usize::from(claims);
                for name in process.retained() {
                    if let Ok(found) = now(StoredCheckpoint::read(&self.bare(index), &name)) {
                        self.check_newest(index, &found);
                    }
                }
                self.running[index] = Some((process, life));
            }
            Err(_) => self.tally.deaths += 1,
        }
    }

    /// Checks a checkpoint that a job may start from.
    fn check_newest(&self, index: usize, found: &StoredCheckpoint) {
        let newest = complete(&self.bare(index));
        if newest[0].folder.url() == found.folder.url() {
            self.check_whole(found, "newest");
        }
    }

    fn check_whole(&self, found: &StoredCheckpoint, what: &str) {
        let all = self.jobs.all();
        let roots: Vec<_> = all
            .iter()
            .map(|job| self.world.bare().folder(job))
            .collect();
        let options = VerifyOptions {
            roots: &roots,
            ..VerifyOptions::default()
        };
        let report = now(verify_checkpoints(&[found], options));
        let (seed, url) = (self.seed, found.folder.url());
        assert!(
            report.is_whole(),
            "seed {seed}: {what} {url}: {:#?}",
            report.damaged
        );
    }

    fn step(&mut self) {
        let index = self.world.below(2) as usize;
        let Some((mut process, life)) = self.running[index].take() else {
            return self.start(index);
        };
        if self.world.chance(30) {
            life.die_within(self.world.below(40));
        }
        let savepoint = self.world.chance(40);
        let outcome = match savepoint {
            true => {
                now(process.savepoint(&self.world.process().0.folder("savepoints"), &self.world))
            }
            false => now(process.checkpoint(&self.world)),
        };
        match outcome {
            Ok(true) if savepoint => self.tally.savepoints += 1,
            Ok(true) => self.tally.checkpoints += 1,
            Ok(false) => self.tally.declined += 1,
            Err(e) if e.kind() == ErrorKind::Fenced => {
                self.tally.fenced += 1;
                return;
            }
            Err(_) => {
                self.tally.deaths += 1;
                return;
            }
        }
        if life.is_dead() {
            self.tally.deaths += 1;
            return;
        }
        match self.world.below(1000) {
            // It ends in order.
            0..10 => drop(now(process.end())),
            // It is over for good; another job goes on from its last checkpoint.
            10..15 => drop(self.jobs.generation[index].fetch_add(1, Ordering::Relaxed)),
            _ => self.running[index] = Some((process, life)),
        }
        if self.world.chance(100) {
            self.clean_up(index);
        }
    }

    /// Somebody cleans up over a store with faults, and may die of it.
    fn clean_up(&mut self, index: usize) {
        let (root, life) = self.world.process();
        if self.world.chance(300) {
            life.die_within(self.world.below(200));
        }
        // Whoever takes over has made sure that the process is gone, or is wrong about it.
        let take_over = self.world.chance(300);
        if take_over && self.world.chance(700) {
            self.running[index] = None;
        }
        let mut folders = self.jobs.folders(index);
        let job = match self.world.chance(700) {
            true => folders.pop().unwrap(),
            false => folders.swap_remove(self.world.below(folders.len() as u64) as usize),
        };
        if let Ok(report) = collect(&root, &job, self.next_names(), false, take_over) {
            let gone = |u: &&checkpoint_storage::Unreferenced| matches!(u.fate, Fate::Deleted);
            self.tally.collected += report.unreferenced.iter().filter(gone).count();
            match report.attempt {
                Some(_) => self.tally.collections += 1,
                None => self.tally.listed_only += 1,
            }
        }
    }

    /// Checks everything that looks complete: of the jobs that are not over, and what others have claimed.
    ///
    /// Of a job that is over, a checkpoint beside the claimed one may name objects that the claimer has deleted.
    fn check_complete(&self, what: &str) {
        let root = self.world.bare();
        for index in 0..2 {
            let current = self.jobs.folder(index);
            for job in self.jobs.folders(index) {
                let folder = root.folder(&job);
                for found in complete(&folder) {
                    let record = now(ClaimRecord::read(&found.folder)).unwrap();
                    let claimed = record.is_some_and(|record| record.folder != folder.url());
                    if (job == current || claimed) && self.world.was_reported(found.folder.url()) {
                        self.check_whole(&found, what);
                    }
                }
            }
        }
    }

    /// Every process dies, and the store is looked at as it is.
    fn end(mut self) -> Tally {
        let seed = self.seed;
        for index in 0..2 {
            let retained = self.running[index]
                .take()
                .map(|(process, _)| process.retained());
            for name in retained.into_iter().flatten() {
                // Whoever came along may have taken the job over, and subsumed it.
                if let Ok(found) = now(StoredCheckpoint::read(&self.bare(index), &name)) {
                    self.check_whole(&found, "retained");
                }
            }
            if let Some(newest) = complete(&self.bare(index)).first() {
                self.check_whole(newest, "newest");
            }
        }
        self.check_complete("complete");
        let root = self.world.bare();
        for folder in now(survey(&root.folder("savepoints"))).unwrap().folders {
            for listed in folder.checkpoints {
                match listed.state {
                    CheckpointState::Complete(found) => self.check_whole(&found, "savepoint"),
                    other => panic!("seed {seed}: {} is {other:?}", listed.name),
                }
            }
        }
        let beside = || -> BTreeSet<String> {
            let left = now(left_beside(&root.folder("savepoints"))).unwrap();
            let paths = left.iter().flat_map(|left| {
                let folder = left.folder.strip_prefix(&format!("{ROOT}/")).unwrap();
                left.objects
                    .iter()
                    .map(move |object| format!("{folder}/{object}"))
            });
            paths.collect()
        };
        let mut listed = beside();
        for job in &self.jobs.all() {
            let report = collect(&root, job, self.next_names(), true, true).unwrap();
            listed.extend(
                report
                    .unreferenced
                    .iter()
                    .map(|u| format!("{job}/{}", u.path)),
            );
        }
        let missed: Vec<_> = self.unneeded().difference(&listed).cloned().collect();
        assert!(missed.is_empty(), "seed {seed}: not listed: {missed:#?}");
        // And what is listed goes, but for what a person has to judge; a job that has claimed something must be over first.
        for job in self.jobs.all().iter().rev().chain(&self.jobs.all()) {
            collect(&root, job, self.next_names(), false, true).unwrap();
        }
        let left: Vec<_> = self.unneeded().difference(&beside()).cloned().collect();
        assert!(left.is_empty(), "seed {seed}: left: {left:#?}");
        for index in 0..2 {
            if let Some(newest) = complete(&self.bare(index)).first() {
                self.check_whole(newest, "newest after the clean-up");
            }
        }
        self.check_complete("complete after the clean-up");
        self.tally
    }

    /// Paths that no checkpoint, savepoint, claim or attempt needs, found without the help of what is tested.
    fn unneeded(&self) -> BTreeSet<String> {
        let store = &self.world.store;
        let paths = store.paths();
        let mut needed: BTreeSet<String> = BTreeSet::new();
        let mut refer = |found: &StoredCheckpoint| {
            for used in found.metadata.objects() {
                let root = match &used.object.root {
                    Root::Own => found.own.url(),
                    Root::Url(url) => url,
                };
                let folder = root.strip_prefix(&format!("{ROOT}/")).unwrap();
                needed.insert(format!("{folder}/{}", used.object.path));
            }
        };
        let savepoints = now(survey(&self.world.bare().folder("savepoints"))).unwrap();
        for listed in savepoints
            .folders
            .iter()
            .flat_map(|folder| &folder.checkpoints)
        {
            if let CheckpointState::Complete(found) = &listed.state {
                refer(found);
            }
        }
        for job in &self.jobs.all() {
            complete(&self.world.bare().folder(job))
                .iter()
                .for_each(&mut refer);
        }
        for path in &paths {
            let (folder, name) = path.rsplit_once('/').unwrap();
            let is_metadata = store
                .get(&format!("{folder}/_metadata"))
                .is_some_and(|bytes| !bytes.starts_with(b"holdfast: never completed"));
            let something_is = needed
                .iter()
                .any(|needed| needed.starts_with(&format!("{folder}/")));
            let speaks = match name {
                "_metadata" => true,
                "_announced" => is_metadata,
                "_claimed" => is_metadata || something_is,
                _ => false,
            };
            if speaks {
                needed.insert(path.clone());
            }
        }
        for job in self.jobs.all() {
            let number = |path: &&String| -> Option<u64> {
                let name = path.strip_prefix(&format!("{job}/attempts/"))?;
                name.trim_end_matches("-ended").parse().ok()
            };
            let last = paths.iter().filter_map(|path| number(&path)).max();
            let of_last = paths
                .iter()
                .filter(|path| number(path).is_some() && number(path) == last);
            needed.extend(of_last.cloned());
        }
        paths
            .into_iter()
            .filter(|path| !needed.contains(path))
            .collect()
    }
}

fn hours() -> u64 {
    std::env::var("HOLDFAST_SIM_HOURS").map_or(2, |hours| hours.parse().unwrap())
}

#[test]
fn after_hours_of_faults_and_deaths_every_retained_checkpoint_is_whole_and_gc_lists_the_rest() {
    let seeds: Vec<u64> = match std::env::var("HOLDFAST_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (1..=3).collect(),
    };
    for seed in seeds {
        println!("seed {seed}");
        let mut day = Day::new(seed);
        while day.world.now_ms() < hours() * 3_600_000 {
            day.step();
        }
        let (faults, store) = (day.world.faults(), day.world.store.clone());
        let tally = day.end();
        println!(
            "seed {seed}: {tally:?}, {faults} faults, {} objects left",
            store.paths().len()
        );
        assert!(
            tally.checkpoints > 50 && faults > 30,
            "seed {seed}: {tally:?}"
        );
        assert!(
            tally.deaths > 5 && tally.collections > 0,
            "seed {seed}: {tally:?}"
        );
    }
}
