use checkpoint_storage::OperatorMetadata;
use state_api::option_text::nearest;
use state_api::{Error, ErrorKind, KeyedHandle, OperatorStateMode, Result, StateMeta};

use crate::source::CheckpointSource;

/// A state of a checkpoint.
#[derive(Clone, Copy, Debug)]
pub struct FoundState<'a> {
    /// The operator.
    pub operator: &'a OperatorMetadata,
    /// What the checkpoint says about the state.
    pub meta: &'a StateMeta,
    /// How operator state is dealt out; `None` for keyed state.
    pub mode: Option<OperatorStateMode>,
}

/// Creates the error for a name that is not there.
pub(crate) fn not_found<'a>(
    what: &str,
    name: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> Error {
    let known_names: Vec<&str> = known.clone().take(12).collect();
    let hint = match nearest(name, known) {
        Some(near) => format!("; did you mean {near:?}?"),
        None if known_names.is_empty() => String::new(),
        None => format!("; there are {}", known_names.join(", ")),
    };
    Error::new(
        ErrorKind::NotFound,
        format!("the checkpoint has no {what} {name:?}{hint}"),
    )
}

/// Returns the states of an operator, each once, in alphabetical order.
pub(crate) fn states_of(operator: &OperatorMetadata) -> Vec<FoundState<'_>> {
    let mut found: Vec<FoundState<'_>> = Vec::new();
    for subtask in &operator.subtasks {
        let snapshot = &subtask.snapshot;
        let keyed = snapshot.managed_keyed.iter().flat_map(KeyedHandle::states);
        let keyed = keyed.map(|state| (&state.meta, None));
        let parts = snapshot.managed_operator.iter().flat_map(|h| &h.states);
        let parts = parts.map(|part| (&part.meta, Some(part.mode)));
        for (meta, mode) in keyed.chain(parts) {
            let same = |state: &FoundState<'_>| state.meta.name == meta.name && state.mode == mode;
            if !found.iter().any(same) {
                found.push(FoundState {
                    operator,
                    meta,
                    mode,
                });
            }
        }
    }
    found.sort_by(|a, b| a.meta.name.cmp(&b.meta.name));
    found
}

impl CheckpointSource {
    /// Returns every state, operator by operator.
    #[must_use]
    pub fn states(&self) -> Vec<FoundState<'_>> {
        let operators = self.metadata().operators.iter();
        operators.flat_map(states_of).collect()
    }

    /// Finds a state by its name, or by `uid/name` where several operators have one of that name.
    ///
    /// # Errors
    /// `NotFound`, naming the nearest name; `InvalidArgument` when several operators have a state of that name.
    pub fn state(&self, name: &str) -> Result<FoundState<'_>> {
        let all = self.states();
        let named: Vec<&FoundState<'_>> = all
            .iter()
            .filter(|state| &*state.meta.name == name || state.path() == name)
            .collect();
        match named[..] {
            [one] => Ok(*one),
            [] => {
                // Somebody who names the operator wants to know whether it is that.
                if let Some((uid, state)) = name.rsplit_once('/') {
                    let operator = self.operator(uid)?;
                    let states = states_of(operator);
                    let names = states.iter().map(|state| &*state.meta.name);
                    return Err(not_found("state", state, names).with("operator", uid));
                }
                let names = all.iter().map(|state| &*state.meta.name);
                Err(not_found("state", name, names))
            }
            _ => {
                let paths: Vec<String> = named.iter().map(|state| state.path()).collect();
                Err(Error::invalid(format!(
                    "several operators have a state {name:?}: name one as {}",
                    paths.join(" or ")
                )))
            }
        }
    }
}

impl FoundState<'_> {
    /// Returns `uid/name`.
    #[must_use]
    pub fn path(&self) -> String {
        format!("{}/{}", self.operator.uid, self.meta.name)
    }
}
