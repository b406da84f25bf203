use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use checkpoint_storage::{
    CheckpointMetadata, MemoryCheckpointStorage, OperatorMetadata, RestoringStorage,
};
use futures_util::future::BoxFuture;
use managed_state::{keyed, operator};
use state_api::option_text::nearest;
use state_api::{
    Attempt, CheckpointStorage, Compatibility, Executor, HashId, ManualClock, OperatorSnapshot,
    OperatorStateMode, OperatorUid, Result, StateKind, StateMeta, Subtask,
};

use super::report::{CompatReport, OperatorCompat, StateCompat, StateFate};
use crate::assign::restored_max_parallelism;
use crate::chain::declared::{Declared, DeclaredStates, NothingKept};
use crate::chain::environment::{Environment, RestoredState};
use crate::channel::Signal;
use crate::execution::{
    ExecutionSettings, Failpoints, OperatorFate, Places, RestoreSources, other_hash, pair,
    unread_in_flight,
};
use crate::job::{Job, RunPlan, Vertex};

/// Says state by state whether a job can start from a checkpoint, without starting it.
///
/// The operators' `open` is called on clones of them, as at a start, on the first subtask of each; nothing else of them is. It
/// must not be called while the job runs.
///
/// ```
/// use checkpoint_storage::CheckpointMetadata;
/// use runtime_core::compat::check_compat;
/// use runtime_core::{Job, sinks::CollectSink, sources::Generator};
/// # use state_api::{Attempt, CheckpointId, JobId, SnapshotKind};
/// # fn savepoint() -> state_api::Result<Vec<u8>> {
/// #     let kind = SnapshotKind::CanonicalSavepoint;
/// #     let written = CheckpointMetadata::new(CheckpointId(7), JobId::new("numbers")?, Attempt(1), kind, 0);
/// #     Ok(written.encode()?.to_vec())
/// # }
///
/// # fn main() -> state_api::Result<()> {
/// let job = Job::new("numbers");
/// job.source("numbers", Generator::new(|i| i).take(10)).sink("out", CollectSink::<u64>::new());
///
/// // In a test of one's own: include_bytes!("savepoint-7/_metadata").
/// let metadata = CheckpointMetadata::decode(&savepoint()?)?;
/// let report = check_compat(&metadata, &job)?;
/// assert!(report.is_compatible(), "{report}");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// `InvalidArgument` for a job that [`Job::check`] refuses. What does not fit is no error: the report says it.
pub fn check_compat(metadata: &CheckpointMetadata, job: &Job) -> Result<CompatReport> {
    let settings = ExecutionSettings::new(metadata.job.as_str())?;
    check_compat_with(metadata, job, &settings)
}

/// As [`check_compat`], for a start with operators renamed, reset or dropped.
///
/// # Errors
/// As [`check_compat`]; `Config` when a name in the settings fits nothing, with the nearest one that does.
pub fn check_compat_with(
    metadata: &CheckpointMetadata,
    job: &Job,
    settings: &ExecutionSettings,
) -> Result<CompatReport> {
    job.check()?;
    let vertices = job.vertices();
    let (sources, dropped) = pair(&vertices, settings, metadata)?;
    let misfits = RefCell::new(BTreeMap::new());
    let plan = job.plan(|uid, shape| {
        let Some(operator) = sources.of(metadata, uid) else {
            return Ok(None);
        };
        match restored_max_parallelism(shape, operator.max_parallelism) {
            Ok(key_groups) => Ok(Some(key_groups)),
            Err(error) => {
                let reason = error.message().to_owned();
                misfits.borrow_mut().insert(uid.clone(), reason);
                Ok(shape.max_parallelism)
            }
        }
    })?;
    let misfits = misfits.into_inner();
    let unread = unread_in_flight(&vertices, settings, metadata, &sources);
    let unread = |uid: &OperatorUid| unread.get(uid).map(|reason| (*reason).to_owned());
    let mut declared = Declared::default();
    for (index, vertex) in vertices.iter().enumerate() {
        let env = environment(metadata, settings, &sources, vertex, &plan, index);
        (vertex.head)(&env).declare(&env, &mut declared);
    }
    let mut operators: Vec<OperatorCompat> = Vec::new();
    for uid in vertices.iter().flat_map(|vertex| &vertex.uids) {
        let states = declared.0.remove(uid).unwrap_or_default();
        let mut of_operator = match sources.of(metadata, uid) {
            Some(stored) => restored(uid, stored, states),
            None => empty(uid, metadata, states),
        };
        of_operator.problems.extend(misfits.get(uid).cloned());
        let stored = sources.of(metadata, uid).map_or(uid, |stored| &stored.uid);
        of_operator.problems.extend(unread(stored));
        operators.push(of_operator);
    }
    let unmatched = operators.iter();
    let unmatched: Vec<OperatorUid> = unmatched
        .filter(|operator| operator.fate == OperatorFate::StartsEmpty)
        .map(|operator| operator.uid.clone())
        .collect();
    for operator in dropped {
        let may_drop = settings.allow_non_restored_state;
        let mut of_operator = left_over(operator, &unmatched, may_drop);
        of_operator.problems.extend(unread(&operator.uid));
        operators.push(of_operator);
    }
    Ok(CompatReport {
        checkpoint: metadata.checkpoint,
        job: metadata.job.clone(),
        kind: metadata.kind,
        operators,
    })
}

fn restored(uid: &OperatorUid, stored: &OperatorMetadata, now: DeclaredStates) -> OperatorCompat {
    let mut problems = Vec::new();
    if now.keyed.is_some() && stored.hash != HashId::default() {
        problems.push(other_hash(stored.hash));
    }
    let failed = now.failed.as_ref();
    problems.extend(failed.map(|error| format!("the operator can't be opened: {error}")));
    let mut was = StoredStates::of(stored);
    let mut states = Vec::new();
    let has_keys = now.keyed.is_some();
    for meta in now.keyed.iter().flatten() {
        let fate = match was.keyed.remove(&meta.name) {
            Some(old) => StateFate::from(keyed::compatibility(&old, meta)),
            None => StateFate::StartsEmpty,
        };
        states.push(StateCompat::new(meta, fate));
    }
    for (meta, mode) in &now.operator {
        let fate = match was.operator.remove(&meta.name) {
            Some((old, old_mode)) => {
                operator::compatibility((&old, old_mode), (meta, *mode)).into()
            }
            None => StateFate::StartsEmpty,
        };
        states.push(StateCompat::new(meta, fate));
    }
    let new: Vec<(Arc<str>, StateKind)> = states
        .iter()
        .filter(|state| state.fate == StateFate::StartsEmpty)
        .map(|state| (Arc::clone(&state.name), state.kind))
        .collect();
    let carried = |meta: &StateMeta| {
        let alike = new.iter().filter(|(_, kind)| *kind == meta.kind);
        let near = nearest(&meta.name, alike.map(|(name, _)| &**name));
        let nearest = near.map(Arc::from);
        StateCompat::new(meta, StateFate::Carried { nearest })
    };
    for meta in was.keyed.values() {
        states.push(if has_keys {
            carried(meta)
        } else {
            StateCompat::new(meta, StateFate::Dropped)
        });
    }
    states.extend(was.operator.values().map(|(meta, _)| carried(meta)));
    OperatorCompat {
        uid: uid.clone(),
        fate: OperatorFate::Restored {
            renamed_from: (stored.uid != *uid).then(|| stored.uid.clone()),
        },
        nearest: None,
        problems,
        remarks: remarks(stored),
        states,
    }
}

fn empty(uid: &OperatorUid, metadata: &CheckpointMetadata, now: DeclaredStates) -> OperatorCompat {
    let is_known = metadata.operator(uid.as_str()).is_some();
    let keyed = now.keyed.iter().flatten();
    let states = keyed.chain(now.operator.iter().map(|(meta, _)| meta));
    let failed = now.failed.as_ref();
    OperatorCompat {
        uid: uid.clone(),
        fate: if is_known {
            OperatorFate::Reset
        } else {
            OperatorFate::StartsEmpty
        },
        nearest: None,
        problems: failed
            .map(|error| format!("the operator can't be opened: {error}"))
            .into_iter()
            .collect(),
        remarks: Vec::new(),
        states: states
            .map(|meta| StateCompat::new(meta, StateFate::StartsEmpty))
            .collect(),
    }
}

/// Describes an operator that the job does not have.
fn left_over(stored: &OperatorMetadata, empty: &[OperatorUid], may_drop: bool) -> OperatorCompat {
    let was = StoredStates::of(stored);
    let near = nearest(stored.uid.as_str(), empty.iter().map(OperatorUid::as_str));
    let near = near.and_then(|near| empty.iter().find(|uid| uid.as_str() == near));
    let problem = "the job has no such operator: give it its uid back, rename it, or allow its state to be dropped";
    let keyed = was.keyed.values();
    OperatorCompat {
        uid: stored.uid.clone(),
        fate: OperatorFate::Dropped,
        nearest: near.cloned(),
        problems: if may_drop {
            Vec::new()
        } else {
            vec![problem.to_owned()]
        },
        remarks: remarks(stored),
        states: keyed
            .chain(was.operator.values().map(|(meta, _)| meta))
            .map(|meta| StateCompat::new(meta, StateFate::Dropped))
            .collect(),
    }
}

/// Names what only the operator itself can read.
fn remarks(stored: &OperatorMetadata) -> Vec<String> {
    let any = |f: fn(&OperatorSnapshot) -> bool| stored.subtasks.iter().any(|s| f(&s.snapshot));
    let mut remarks = Vec::new();
    if any(|s| !s.raw_keyed.is_empty() || !s.raw_operator.is_empty()) {
        remarks.push("raw state: only the operator can tell whether it can read it".to_owned());
    }
    if any(|s| !s.in_flight_keyed.is_empty() || !s.in_flight.is_empty()) {
        remarks.push("records in flight: their types are not compared".to_owned());
    }
    remarks
}

/// What a checkpoint has of an operator, by name.
#[derive(Default)]
struct StoredStates {
    keyed: BTreeMap<Arc<str>, StateMeta>,
    operator: BTreeMap<Arc<str>, (StateMeta, OperatorStateMode)>,
}

impl StoredStates {
    fn of(stored: &OperatorMetadata) -> Self {
        let mut states = Self::default();
        for subtask in &stored.subtasks {
            let keyed = subtask.snapshot.managed_keyed.iter();
            for state in keyed.flat_map(|handle| handle.states()) {
                let name = Arc::clone(&state.meta.name);
                let known = states.keyed.entry(name);
                known.or_insert_with(|| state.meta.clone());
            }
            let operator = subtask.snapshot.managed_operator.iter();
            for part in operator.flat_map(|handle| &handle.states) {
                let name = Arc::clone(&part.meta.name);
                let known = states.operator.entry(name);
                known.or_insert_with(|| (part.meta.clone(), part.mode));
            }
        }
        states
    }
}

impl StateCompat {
    fn new(meta: &StateMeta, fate: StateFate) -> Self {
        Self {
            name: Arc::clone(&meta.name),
            kind: meta.kind,
            fate,
        }
    }
}

impl From<Compatibility> for StateFate {
    fn from(verdict: Compatibility) -> Self {
        match verdict {
            Compatibility::AsIs => Self::AsIs,
            Compatibility::Migrates { changes } => Self::Migrates { changes },
            Compatibility::Incompatible { reason } => Self::Incompatible { reason },
        }
    }
}

/// Makes the surroundings of the first subtask of a vertex, in which nothing can be read or written.
fn environment(
    metadata: &CheckpointMetadata,
    settings: &ExecutionSettings,
    sources: &RestoreSources,
    vertex: &Vertex,
    plan: &RunPlan,
    index: usize,
) -> Environment {
    let subtask = Subtask {
        index: 0,
        parallelism: plan[index].parallelism,
    };
    let storage: Arc<dyn CheckpointStorage> = Arc::new(MemoryCheckpointStorage::new(0));
    let known = vertex.uids.iter();
    let known = known.filter(|uid| sources.of(metadata, uid).is_some());
    let restoring = RestoringStorage::new(
        Arc::clone(&storage),
        None,
        metadata.checkpoint,
        &vertex.name(),
        subtask,
    );
    Environment {
        job: settings.job_id.clone(),
        attempt: Attempt(0),
        run: 0,
        subtask,
        uids: vertex.uids.as_slice().into(),
        plan: Arc::clone(plan),
        max_parallelism: plan[index].max_parallelism,
        mode: settings.mode,
        clock: Arc::new(ManualClock::at(metadata.created_ms)),
        signal: Signal::new(),
        congested: Rc::new(Cell::new(false)),
        storage,
        places: Arc::new(Places::default()),
        restore_storage: Arc::new(restoring),
        copies: None,
        executor: Arc::new(NoWork),
        backend: Arc::new(NothingKept),
        backend_options: Arc::default(),
        local_dir: settings.local_dir.clone(),
        memory_limit: None,
        object_cache: None,
        seed: 0,
        restored: Some(Arc::new(RestoredState {
            checkpoint: metadata.checkpoint,
            operators: known
                .map(|uid| (uid.clone(), OperatorSnapshot::default()))
                .collect(),
            input_ends: BTreeMap::new(),
        })),
        failpoints: Failpoints::none(),
    }
}

/// Where nothing is to be done.
struct NoWork;

impl Executor for NoWork {
    fn spawn_io(&self, _future: BoxFuture<'static, ()>) {}

    fn spawn_cpu(&self, _work: Box<dyn FnOnce() + Send>) {}
}
