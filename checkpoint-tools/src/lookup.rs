use state_api::{Error, KeyGroup, KeyGroupRange, KeyedHandle, Result, StateKind, Value};

use crate::decode::{Decoder, split_key};
use crate::entries::{Enough, operator_state};
use crate::entry::Entry;
use crate::find::FoundState;
use crate::json_value::value_from_text;
use crate::rescale::checked_group;
use crate::source::{CheckpointSource, place};

/// What is looked up in a state: a key, and a namespace or a map key if only that is wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyQuery {
    key: Value,
    encoded: Vec<u8>,
    namespace: Option<Value>,
    map_key: Option<Value>,
}

impl KeyQuery {
    /// Reads the key, as JSON text or as plain text where it is a string. Of a broadcast state it is the map key.
    ///
    /// # Errors
    /// `InvalidArgument` when the text is no key of the state, or the state has no keys.
    pub fn parse(state: &FoundState<'_>, key: &str) -> Result<Self> {
        let meta = state.meta;
        let schema = match (meta.kind, &meta.map_key) {
            (StateKind::Broadcast, Some(map_key)) => &map_key.schema,
            (StateKind::OperatorList | StateKind::Broadcast, _) => {
                return Err(
                    Error::invalid("a list of an operator has no keys: see dump")
                        .with("state", state.path()),
                );
            }
            _ => &meta.key.schema,
        };
        let key = value_from_text(schema, key)
            .map_err(|e| e.with("state", state.path()).with("key type", schema))?;
        let mut encoded = Vec::new();
        schema.encode_compact(&key, &mut encoded)?;
        Ok(Self {
            key,
            encoded,
            namespace: None,
            map_key: None,
        })
    }

    /// Asks for one namespace only.
    ///
    /// # Errors
    /// `InvalidArgument` when the text is no namespace of the state.
    pub fn namespace(mut self, state: &FoundState<'_>, text: &str) -> Result<Self> {
        let schema = &state.meta.namespace.schema;
        let namespace = value_from_text(schema, text)
            .map_err(|e| e.with("state", state.path()).with("namespace type", schema))?;
        self.namespace = Some(namespace);
        Ok(self)
    }

    /// Asks for one map key only.
    ///
    /// # Errors
    /// `InvalidArgument` when the text is no map key of the state, or the state has none.
    pub fn map_key(mut self, state: &FoundState<'_>, text: &str) -> Result<Self> {
        let map_key = state.meta.map_key.as_ref().ok_or_else(|| {
            Error::invalid("the state has no map keys").with("state", state.path())
        })?;
        let value = value_from_text(&map_key.schema, text).map_err(|e| {
            e.with("state", state.path())
                .with("map key type", &map_key.schema)
        })?;
        self.map_key = Some(value);
        Ok(self)
    }

    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &Value {
        &self.key
    }

    /// Returns the key group of the key, of keyed state.
    ///
    /// # Errors
    /// `Unsupported` when the hash of the key can't be computed.
    pub fn key_group(&self, state: &FoundState<'_>) -> Result<KeyGroup> {
        let operator = state.operator;
        operator.hash.group_of_encoded(
            &state.meta.key.schema,
            &self.encoded,
            operator.max_parallelism,
        )
    }

    fn matches(&self, entry: &Entry) -> bool {
        let wanted =
            |asked: &Option<Value>, found: &Option<Value>| asked.is_none() || asked == found;
        wanted(&self.namespace, &entry.namespace) && wanted(&self.map_key, &entry.map_key)
    }
}

impl CheckpointSource {
    /// Hands over what a state holds of one key, reading no more than the key's group. If that is nothing, it is checked that
    /// keys of the state are where their type says.
    ///
    /// # Errors
    /// `Corrupt`, naming object, operator and subtask; `Unsupported` for an unknown format, and when nothing is found and keys
    /// have a hash that was written by hand; those of the storage and of `take`.
    pub async fn lookup(
        &self,
        state: &FoundState<'_>,
        query: &KeyQuery,
        take: &mut dyn FnMut(Entry) -> Result<()>,
    ) -> Result<()> {
        if state.mode.is_some() {
            return self.lookup_broadcast(state, query, take).await;
        }
        let group = query.key_group(state)?;
        let range = KeyGroupRange::new(group, group);
        let operator = state.operator;
        let mut is_found = false;
        for subtask in &operator.subtasks {
            let handles = &subtask.snapshot.managed_keyed;
            if !handles.iter().any(|handle| handle.range().contains(group)) {
                continue;
            }
            let read = async {
                let part = self.open_part(operator, subtask, range, None).await?;
                let decoder = Decoder::new(operator.uid.clone(), subtask.index);
                part.read(range, &mut |stored| {
                    if stored.state.name != state.meta.name {
                        return Ok(());
                    }
                    let parts = split_key(stored.state, stored.key)
                        .map_err(|e| e.with("state", &stored.state.name))?;
                    if parts.key.1 != query.encoded {
                        return Ok(());
                    }
                    is_found = true;
                    decoder.entry(stored, &mut |entry| match query.matches(&entry) {
                        true => take(entry),
                        false => Ok(()),
                    })
                })
                .await
            };
            read.await.map_err(|e| place(e, operator, subtask))?;
        }
        match is_found {
            true => Ok(()),
            false => self.check_hash(state).await,
        }
    }

    /// Checks of one entry of a keyed state that it is in the key group that the hash of its type gives; of a state without
    /// entries there is nothing to be checked.
    ///
    /// # Errors
    /// `Unsupported` when it is in another one, since its hash was written by hand, or when the hash can't be computed;
    /// `Corrupt`, naming object, operator and subtask; those of the storage.
    pub async fn check_hash(&self, state: &FoundState<'_>) -> Result<()> {
        let operator = state.operator;
        let max = operator.max_parallelism;
        for subtask in &operator.subtasks {
            let mut summaries = subtask
                .snapshot
                .managed_keyed
                .iter()
                .flat_map(KeyedHandle::states);
            if !summaries.any(|summary| summary.meta.name == state.meta.name) {
                continue;
            }
            let mut is_checked = false;
            let read = async {
                let part = self
                    .open_part(operator, subtask, max.all_groups(), None)
                    .await?;
                part.read(max.all_groups(), &mut |stored| {
                    if stored.state.name != state.meta.name {
                        return Ok(());
                    }
                    let parts = split_key(stored.state, stored.key)?;
                    checked_group(operator.hash, &stored, parts.key.1, max, max)?;
                    is_checked = true;
                    Err(Enough::error())
                })
                .await
            };
            match read.await {
                Err(error) if !Enough::is(&error) => return Err(place(error, operator, subtask)),
                _ if is_checked => return Ok(()),
                _ => {}
            }
        }
        Ok(())
    }

    async fn lookup_broadcast(
        &self,
        state: &FoundState<'_>,
        query: &KeyQuery,
        take: &mut dyn FnMut(Entry) -> Result<()>,
    ) -> Result<()> {
        for subtask in &state.operator.subtasks {
            for handle in &subtask.snapshot.managed_operator {
                if !handle.states.iter().any(|part| part.meta == *state.meta) {
                    continue;
                }
                let read =
                    managed_state::operator::read_operator_states(handle, &**self.storage()).await;
                let states = read.map_err(|e| place(e, state.operator, subtask))?;
                let decoder = Decoder::new(state.operator.uid.clone(), subtask.index);
                for stored in states.iter().filter(|s| s.meta.name == state.meta.name) {
                    operator_state(&decoder, stored, &mut |entry| match entry.map_key.as_ref()
                        == Some(&query.key)
                    {
                        true => take(entry),
                        false => Ok(()),
                    })?;
                }
                // Every subtask has the same.
                return Ok(());
            }
        }
        Ok(())
    }
}
