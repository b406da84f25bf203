use std::sync::Arc;

use checkpoint_storage::{CheckpointMetadata, OperatorMetadata, SubtaskMetadata};
use managed_state::operator::{StoredOperatorState, broadcast_element, write_operator_states};
use state_api::{
    Attempt, CheckpointId, Error, HashId, JobId, KeyedHandle, MaxParallelism, OperatorSnapshot,
    OperatorStateMode, OperatorUid, Result, Scope, SnapshotKind, StateKind, StateMeta,
};

use crate::repartition::{Repartition, check_positions};
use crate::rows::Row;
use crate::source::{CheckpointSource, Toolbox};
use crate::target::NewCheckpoint;

/// An operator of a checkpoint that is built out of rows.
#[derive(Clone, Debug)]
pub struct NewOperator {
    /// The uid under which the job finds its state.
    pub uid: OperatorUid,
    /// Number of subtasks.
    pub parallelism: u32,
    /// Number of key groups; a job must have the same.
    pub max_parallelism: MaxParallelism,
    /// The function from key to key group.
    pub hash: HashId,
    /// Keyed states.
    pub keyed: Vec<StateMeta>,
    /// Operator states, and how they are dealt out.
    pub operator: Vec<(StateMeta, OperatorStateMode)>,
}

impl NewOperator {
    /// Describes the operators of a checkpoint: what is built has states of the same names and types.
    ///
    /// # Errors
    /// `Incompatible` when parts of the checkpoint disagree about a state.
    pub fn like(source: &CheckpointSource) -> Result<Vec<Self>> {
        let of = |operator: &OperatorMetadata| {
            let states = crate::find::states_of(operator);
            let own = states
                .iter()
                .filter_map(|s| Some((s.meta.clone(), s.mode?)));
            Ok(Self {
                uid: operator.uid.clone(),
                parallelism: operator.parallelism,
                max_parallelism: operator.max_parallelism,
                hash: operator.hash,
                keyed: crate::rescale::keyed_states(operator)?,
                operator: own.collect(),
            })
        };
        source.metadata().operators.iter().map(of).collect()
    }
}

/// Builds a checkpoint out of rows, in any order: what a job that has run elsewhere starts from.
#[derive(Debug)]
pub struct Bootstrap {
    toolbox: Toolbox,
    job: JobId,
    operators: Vec<Building>,
    rows: u64,
    /// Operator and state of rows that name none.
    usual: (Option<String>, Option<String>),
}

struct Building {
    operator: NewOperator,
    keyed: Repartition,
    /// Elements of lists, entries of maps, by the operator states.
    own: Vec<Own>,
}

/// What an operator state has been given.
#[derive(Clone, Default)]
struct Own {
    /// Keys and values of a map.
    entries: Vec<(Vec<u8>, Vec<u8>)>,
    /// Elements of a list, with the subtask and the position that they had.
    elements: Vec<(u64, Option<u64>, Vec<u8>)>,
}

impl std::fmt::Debug for Building {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Building")
            .field("operator", &self.operator)
            .finish_non_exhaustive()
    }
}

impl Bootstrap {
    /// Begins a checkpoint of a job with these operators and no entries.
    ///
    /// # Errors
    /// `InvalidArgument` when an operator has more subtasks than key groups; `Retryable` without room for local files.
    pub fn new(toolbox: &Toolbox, job: JobId, operators: Vec<NewOperator>) -> Result<Self> {
        let building = |operator: NewOperator| {
            if operator.parallelism > operator.max_parallelism.get() && !operator.keyed.is_empty() {
                return Err(Error::invalid("there are more subtasks than key groups")
                    .with("operator", &operator.uid));
            }
            let scratch = toolbox.scratch()?;
            let (states, max) = (operator.keyed.clone(), operator.max_parallelism);
            Ok(Building {
                own: vec![Own::default(); operator.operator.len()],
                keyed: Repartition::new(states, max, scratch),
                operator,
            })
        };
        Ok(Self {
            toolbox: toolbox.clone(),
            job,
            operators: operators.into_iter().map(building).collect::<Result<_>>()?,
            rows: 0,
            usual: (None, None),
        })
    }

    /// Says of which operator and state rows are that name none.
    #[must_use]
    pub fn rows_are_of(mut self, operator: Option<String>, state: Option<String>) -> Self {
        self.usual = (operator, state);
        self
    }

    /// Returns the number of rows so far.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Adds a row. Operator and state may be left out where there is one only.
    ///
    /// Elements of a list stand in it by their `index`, or as they came where none has one.
    ///
    /// # Errors
    /// `NotFound` for an unknown operator or state, naming the nearest; `InvalidArgument` when the row is no entry of the state,
    /// or deletes one.
    pub fn row(&mut self, row: &Row) -> Result<()> {
        if row.is_deletion() {
            return Err(Error::invalid(
                "a row deletes an entry: there is none in a new checkpoint",
            ));
        }
        let now_ms = self.toolbox.clock.now_ms();
        let (usual_operator, usual_state) = self.usual.clone();
        let building = self.building(row.operator().or(usual_operator.as_deref()))?;
        let operator = &building.operator;
        let keyed = operator.keyed.iter();
        let own = operator.operator.iter().map(|(meta, _)| meta);
        let names: Vec<&str> = keyed.chain(own).map(|meta| &*meta.name).collect();
        let name = match (row.state().or(usual_state.as_deref()), &names[..]) {
            (Some(name), _) => name,
            (None, [one]) => one,
            _ => return Err(Error::invalid("a row lacks the name of its state, state")),
        };
        if let Some(column) = building.keyed.column(name) {
            let meta = &building.operator.keyed[column];
            let encoded = row.encode(meta, now_ms)?;
            let group = operator.hash.group_of_encoded(
                &meta.key.schema,
                &encoded.key,
                operator.max_parallelism,
            )?;
            let position = row.index()?;
            let (stored, value) = (encoded.stored, encoded.value);
            // Without elements there is no list.
            if !(meta.kind == StateKind::List && value.is_empty()) {
                building
                    .keyed
                    .push_element(group, column, &stored, position, &value)?;
            }
        } else {
            let found = operator.operator.iter().position(|(m, _)| &*m.name == name);
            let place = found.ok_or_else(|| {
                crate::find::not_found("state", name, names.iter().copied())
                    .with("operator", &operator.uid)
            })?;
            let (meta, mode) = &operator.operator[place];
            let own = &mut building.own[place];
            let named = |e: Error| e.with("state", &meta.name);
            match mode {
                OperatorStateMode::Broadcast => {
                    own.entries.push(row.encode_broadcast(meta).map_err(named)?);
                }
                _ => own.elements.push((
                    row.subtask()?.unwrap_or(0),
                    row.index()?,
                    row.encode_element(meta).map_err(named)?,
                )),
            }
        }
        self.rows += 1;
        Ok(())
    }

    fn building(&mut self, operator: Option<&str>) -> Result<&mut Building> {
        let uids: Vec<String> = self
            .operators
            .iter()
            .map(|b| b.operator.uid.to_string())
            .collect();
        let place = match operator {
            Some(uid) => uids.iter().position(|known| known == uid).ok_or_else(|| {
                crate::find::not_found("operator", uid, uids.iter().map(String::as_str))
            })?,
            None if uids.len() == 1 => 0,
            None => {
                return Err(Error::invalid(
                    "a row lacks the uid of its operator, operator",
                ));
            }
        };
        Ok(&mut self.operators[place])
    }

    /// Writes the checkpoint.
    ///
    /// # Errors
    /// `InvalidArgument` when a state has an entry twice, naming state and key; those of the stores.
    pub async fn finish(self, target: NewCheckpoint) -> Result<CheckpointMetadata> {
        let id = CheckpointId(1);
        let now_ms = self.toolbox.clock.now_ms();
        let kind = SnapshotKind::CanonicalSavepoint;
        let mut metadata = CheckpointMetadata::new(id, self.job, Attempt(1), kind, now_ms);
        for building in self.operators {
            let operator = building.operator;
            let named = |e: Error| e.with("operator", &operator.uid);
            let done = building
                .keyed
                .finish(operator.parallelism, id, &target.storage())
                .await
                .map_err(named)?;
            let mut written = OperatorMetadata::new(
                operator.uid.clone(),
                operator.parallelism,
                operator.max_parallelism,
                operator.hash,
            );
            let mut own = building.own;
            for (index, keyed) in (0..).zip(done.handles) {
                let mut snapshot = OperatorSnapshot {
                    managed_keyed: keyed.map(KeyedHandle::KeyGroups).into_iter().collect(),
                    ..OperatorSnapshot::default()
                };
                let states = own_states(&operator.operator, &mut own, index).map_err(named)?;
                let stream = target.storage().create(id, Scope::Exclusive);
                let handle = write_operator_states(states, stream).await.map_err(named)?;
                snapshot.managed_operator.extend(handle);
                if !snapshot.is_empty() {
                    written
                        .subtasks
                        .push(SubtaskMetadata::new(index, Arc::new(snapshot)));
                }
            }
            metadata.operators.push(written);
        }
        metadata.operators.sort_by(|a, b| a.uid.cmp(&b.uid));
        target.complete(&mut metadata).await?;
        Ok(metadata)
    }
}

/// Makes what a subtask has of the operator states: maps each of them, all elements of lists the first.
fn own_states(
    states: &[(StateMeta, OperatorStateMode)],
    given: &mut [Own],
    index: u32,
) -> Result<Vec<StoredOperatorState>> {
    let mut stored = Vec::new();
    for ((meta, mode), given) in states.iter().zip(given) {
        let named = |e: Error| e.with("state", &meta.name);
        let elements = match mode {
            OperatorStateMode::Broadcast => {
                let element = broadcast_element(given.entries.clone());
                vec![element.map_err(named)?]
            }
            _ if index == 0 => {
                let mut elements = std::mem::take(&mut given.elements);
                // Stable: what has no position stays as it came.
                elements.sort_by_key(|(subtask, position, _)| (*subtask, *position));
                for list in elements.chunk_by(|a, b| a.0 == b.0) {
                    check_positions(list.iter().map(|(_, position, _)| *position))
                        .map_err(|e| named(e).with("subtask", list[0].0))?;
                }
                let elements = elements.into_iter();
                elements.map(|(_, _, element)| element.into()).collect()
            }
            _ => continue,
        };
        stored.push(StoredOperatorState {
            meta: meta.clone(),
            mode: *mode,
            elements,
        });
    }
    Ok(stored)
}
