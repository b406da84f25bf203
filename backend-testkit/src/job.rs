use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use managed_state::keyed::{AnyTimers, At, KeyedStates};
use state_api::{
    CancelToken, CheckpointId, Clock, KeyedHandle, PersistContext, Result, Snapshot, SnapshotKind,
    SnapshotRequest, StateKey,
};

use crate::executor::block_on;
use crate::setup::{Checkpoint, Mode, Setup, ok};

/// Registers the states of a rule and returns their tokens.
pub type Register<K, S> = Rc<dyn Fn(&mut KeyedStates<K>) -> Result<S>>;

/// The subtasks of one keyed operator, with keys routed to them as a job does.
///
/// `S` is what registration returns: a token, or a tuple of tokens.
pub struct Job<K, S> {
    setup: Setup,
    subtasks: Vec<(KeyedStates<K>, S)>,
    register: Register<K, S>,
    accesses: u64,
}

/// The async parts of a checkpoint that was cut and is not written yet.
pub struct Cut {
    /// The id of the checkpoint.
    pub id: CheckpointId,
    snapshots: Vec<Box<dyn Snapshot<Vec<KeyedHandle>>>>,
}

impl fmt::Debug for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cut")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Cut {
    /// Returns the async parts, by subtask.
    #[must_use]
    pub fn into_snapshots(self) -> Vec<Box<dyn Snapshot<Vec<KeyedHandle>>>> {
        self.snapshots
    }

    /// Writes all of it.
    ///
    /// # Errors
    /// Those of the snapshots; the first one counts.
    pub fn persist(self, setup: &Setup) -> Result<Checkpoint> {
        let cx = |cancel| PersistContext {
            checkpoint: self.id,
            storage: Arc::clone(&setup.storage),
            cancel,
            executor: Arc::clone(&setup.executor),
            spill_dir: Some(setup.local_dir().join("spill")),
        };
        let write =
            |snapshot: Box<dyn Snapshot<_>>| block_on(snapshot.persist(cx(CancelToken::new())));
        let handles = self
            .snapshots
            .into_iter()
            .map(write)
            .collect::<Result<_>>()?;
        Ok(Checkpoint {
            id: self.id,
            handles,
        })
    }
}

impl<K: StateKey, S: Copy> Job<K, S> {
    pub(crate) fn new(
        setup: Setup,
        subtasks: Vec<(KeyedStates<K>, S)>,
        register: Register<K, S>,
    ) -> Self {
        Self {
            setup,
            subtasks,
            register,
            accesses: 0,
        }
    }

    /// Returns the number of subtasks.
    #[must_use]
    pub fn parallelism(&self) -> u32 {
        u32::try_from(self.subtasks.len()).unwrap_or(u32::MAX)
    }

    /// Returns the subtask that owns a key.
    #[must_use]
    pub fn subtask_of(&self, key: &K) -> usize {
        let cx = self.subtasks[0].0.context();
        let group = cx.hash.group(key, cx.max_parallelism);
        cx.max_parallelism.subtask_of(group, self.parallelism()) as usize
    }

    /// Returns states and tokens of a subtask.
    ///
    /// # Panics
    /// When there is no such subtask.
    pub fn subtask(&mut self, index: usize) -> (&mut KeyedStates<K>, S) {
        let (states, tokens) = &mut self.subtasks[index];
        (states, *tokens)
    }

    /// Calls `f` with the states bound to a key, in the subtask that owns it.
    ///
    /// # Panics
    /// When `f` fails.
    #[track_caller]
    pub fn at<R>(&mut self, key: &K, f: impl FnOnce(&mut At<'_, K>, S) -> Result<R>) -> R {
        ok(self.try_at(key, f))
    }

    /// Calls `f` with the states bound to a key, in the subtask that owns it.
    ///
    /// # Errors
    /// Those of `f`.
    pub fn try_at<R>(
        &mut self,
        key: &K,
        f: impl FnOnce(&mut At<'_, K>, S) -> Result<R>,
    ) -> Result<R> {
        let index = self.subtask_of(key);
        let (states, tokens) = &mut self.subtasks[index];
        let result = f(&mut states.at(key), *tokens);
        self.accesses += 1;
        if self.setup.mode == Mode::Incremental && self.accesses.is_multiple_of(3) {
            self.checkpoint_on_the_way()?;
        }
        result
    }

    /// Takes a checkpoint as a running job does: mostly completed, sometimes aborted after or before it was written.
    fn checkpoint_on_the_way(&mut self) -> Result<()> {
        let cut = self.cut(SnapshotKind::Checkpoint)?;
        let id = cut.id;
        match self.accesses / 3 % 4 {
            2 => {
                drop(cut);
                self.aborted(id)
            }
            3 => {
                cut.persist(&self.setup)?;
                self.aborted(id)
            }
            _ => {
                cut.persist(&self.setup)?;
                self.completed(id)
            }
        }
    }

    /// Freezes the state of all subtasks.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn cut(&mut self, kind: SnapshotKind) -> Result<Cut> {
        let id = CheckpointId(self.setup.next_number());
        let request = SnapshotRequest {
            checkpoint: id,
            kind,
            now_ms: self.setup.clock.now_ms(),
        };
        let snapshots = self
            .subtasks
            .iter_mut()
            .map(|(states, _)| states.snapshot(&request))
            .collect::<Result<_>>()?;
        Ok(Cut { id, snapshots })
    }

    /// Tells all subtasks that a checkpoint is complete.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn completed(&mut self, id: CheckpointId) -> Result<()> {
        self.subtasks
            .iter_mut()
            .try_for_each(|(states, _)| states.checkpoint_completed(id))
    }

    /// Tells all subtasks that a checkpoint will never complete.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn aborted(&mut self, id: CheckpointId) -> Result<()> {
        self.subtasks
            .iter_mut()
            .try_for_each(|(states, _)| states.checkpoint_aborted(id))
    }

    /// Takes, writes and completes a snapshot of the mode's kind.
    ///
    /// # Panics
    /// When that fails.
    #[track_caller]
    pub fn checkpoint(&mut self) -> Checkpoint {
        self.snapshot(self.setup.mode.kind())
    }

    /// Takes and writes a snapshot; a checkpoint is completed.
    ///
    /// # Panics
    /// When that fails.
    #[track_caller]
    pub fn snapshot(&mut self, kind: SnapshotKind) -> Checkpoint {
        let cut = ok(self.cut(kind));
        let checkpoint = ok(cut.persist(&self.setup));
        if !kind.is_savepoint() {
            ok(self.completed(checkpoint.id));
        }
        checkpoint
    }

    /// Does to the state what the mode asks for before it is asserted.
    ///
    /// # Panics
    /// When a snapshot or a restore fails.
    #[track_caller]
    pub fn settle(&mut self) {
        if self.setup.mode == Mode::Direct {
            return;
        }
        let checkpoint = self.checkpoint();
        self.revert_to(&checkpoint, self.other_parallelism());
    }

    /// Returns the parallelism that the mode changes to.
    #[must_use]
    pub fn other_parallelism(&self) -> u32 {
        let (before, after) = (self.setup.mode.written_at(), self.setup.mode.asserted_at());
        if self.parallelism() == before {
            after
        } else {
            before
        }
    }

    /// Puts a job restored from a checkpoint in place of this one.
    ///
    /// # Panics
    /// When the restore fails.
    #[track_caller]
    pub fn revert_to(&mut self, checkpoint: &Checkpoint, parallelism: u32) {
        // As after a crash: the old instances are gone before the new ones start.
        self.subtasks.clear();
        *self = ok(self
            .setup
            .build(Some(checkpoint), parallelism, Rc::clone(&self.register)));
    }

    /// Stops this job with a snapshot and starts it again with states registered in another way.
    ///
    /// # Errors
    /// Those of the restore and of `register`.
    pub fn restart<S2: Copy>(
        mut self,
        register: impl Fn(&mut KeyedStates<K>) -> Result<S2> + 'static,
    ) -> Result<Job<K, S2>> {
        let checkpoint = self.checkpoint();
        let (setup, parallelism) = (self.setup.clone(), self.other_parallelism());
        drop(self);
        setup.restore(&checkpoint, parallelism, register)
    }

    /// Returns the keys that have something in a state and namespace, of all subtasks, as they come.
    ///
    /// # Panics
    /// When a backend fails.
    #[track_caller]
    pub fn keys<N: StateKey>(&mut self, state: &str, namespace: &N) -> Vec<K> {
        self.subtasks
            .iter_mut()
            .flat_map(|(states, _)| ok(states.keys(state, namespace)))
            .collect()
    }

    /// Returns the pairs of key and namespace of a state, of all subtasks, as they come.
    ///
    /// # Panics
    /// When a backend fails.
    #[track_caller]
    pub fn keys_and_namespaces<N: StateKey>(&mut self, state: &str) -> Vec<(K, N)> {
        self.subtasks
            .iter_mut()
            .flat_map(|(states, _)| ok(states.keys_and_namespaces(state)))
            .collect()
    }

    /// Returns the number of entries of a state over all subtasks.
    ///
    /// # Panics
    /// When a backend fails.
    #[track_caller]
    pub fn entries(&self, state: &str) -> u64 {
        self.subtasks
            .iter()
            .map(|(states, _)| ok(states.entries(state)))
            .sum()
    }

    /// Takes all timers out that are due in each subtask; returns times, keys and namespaces by subtask, in order of firing.
    ///
    /// # Panics
    /// When a backend fails, or when a timer has a namespace of another type.
    #[track_caller]
    pub fn fire<N: StateKey>(
        &mut self,
        timers: impl Fn(S) -> AnyTimers,
        up_to: i64,
    ) -> Vec<Vec<(i64, K, N)>> {
        let fire_subtask = |(states, tokens): &mut (KeyedStates<K>, S)| {
            let mut fired = Vec::new();
            while let Some(due) = ok(states.pop_due(timers(*tokens), up_to)) {
                let namespace = ok(due.namespace());
                fired.push((due.time, due.key, namespace));
            }
            fired
        };
        self.subtasks.iter_mut().map(fire_subtask).collect()
    }
}

impl<K, S> fmt::Debug for Job<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("setup", &self.setup)
            .field("subtasks", &self.subtasks.len())
            .finish_non_exhaustive()
    }
}
