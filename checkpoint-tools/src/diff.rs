use std::collections::HashMap;

use managed_state::format::{Elements, split_timestamp};
use managed_state::operator::{broadcast_entries, read_operator_states};
use state_api::hash::hash_bytes;
use state_api::wire::put_varint;
use state_api::{
    Error, OperatorStateMode, OperatorUid, Result, StateKind, StateMeta, TypeMeta, Value,
};

use crate::canonical::{has_unordered, sort_within};
use crate::decode::{decode_all, decode_map_key, map_key_type, split_key};
use crate::keyed::StoredEntry;
use crate::source::{CheckpointSource, place};
use crate::spill::{Spill, Spilled};

/// Bytes of state that one bucket is meant to hold.
const BUCKET_BYTES: u64 = 16 << 20;

/// How two checkpoints are compared.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiffOptions {
    /// Entries whose values are equal are the same, whenever they were renewed.
    pub ignores_times: bool,
}

/// How a state of one checkpoint differs from that of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDiff {
    /// The operator.
    pub operator: OperatorUid,
    /// The state.
    pub state: String,
    /// Its kind.
    pub kind: StateKind,
    /// Which of the two have it.
    pub is_in: (bool, bool),
    /// Old and new types, where they differ.
    pub types: Option<(String, String)>,
    /// Entries that only the second has.
    pub added: u64,
    /// Entries that only the first has.
    pub removed: u64,
    /// Entries that both have with different values.
    pub changed: u64,
    /// Entries that both have alike.
    pub same: u64,
}

impl StateDiff {
    /// Says whether nothing differs.
    #[must_use]
    pub fn is_same(&self) -> bool {
        self.added == 0
            && self.removed == 0
            && self.changed == 0
            && self.types.is_none()
            && self.is_in == (true, true)
    }
}

/// An entry that differs.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The operator.
    pub operator: OperatorUid,
    /// The state.
    pub state: String,
    /// The key; `None` for operator state.
    pub key: Option<Value>,
    /// The namespace; `None` if the state has none.
    pub namespace: Option<Value>,
    /// The key of a map, or of a broadcast state.
    pub map_key: Option<Value>,
    /// The time of a timer.
    pub time_ms: Option<i64>,
    /// Which of the two have it.
    pub is_in: (bool, bool),
    /// The value in the first; a list as a whole. `None` if it has no such entry, or entries have no values.
    pub before: Option<Value>,
    /// The value in the second.
    pub after: Option<Value>,
}

/// One state of both sides.
struct Both {
    operator: OperatorUid,
    before: Option<StateMeta>,
    after: Option<StateMeta>,
    mode: Option<OperatorStateMode>,
    mode_after: Option<OperatorStateMode>,
    diff: StateDiff,
}

impl Both {
    /// Says whether it is the state of that name; a list and a broadcast map are two, as an operator's own state and keyed state are.
    fn is_state(&self, name: &str, mode: Option<OperatorStateMode>) -> bool {
        let sort =
            |mode: Option<OperatorStateMode>| mode.map(|mode| mode == OperatorStateMode::Broadcast);
        self.diff.state == name && sort(self.mode) == sort(mode)
    }
}

/// Compares the states of two checkpoints of one job, entry by entry; neither backend, parallelism nor number of key groups
/// matter.
///
/// Entries are put aside in local files; memory does not grow with the state. `take` gets each entry that differs. Of operator
/// lists elements are added and removed, wherever they stand.
///
/// # Errors
/// `Corrupt`, naming object, operator and subtask; `Unsupported` for an unknown format; those of the storages and of `take`.
pub async fn diff(
    before: &CheckpointSource,
    after: &CheckpointSource,
    options: DiffOptions,
    take: &mut dyn FnMut(Difference) -> Result<()>,
) -> Result<Vec<StateDiff>> {
    let mut states = both_states(before, after);
    let total = before.metadata().total_bytes() + after.metadata().total_bytes();
    before.toolbox.progress.begin("compare", total);
    let buckets = usize::try_from(total / BUCKET_BYTES)
        .unwrap_or(usize::MAX)
        .clamp(1, 1024);
    let mut sides = [
        Spill::new(before.toolbox.scratch()?, buckets),
        Spill::new(after.toolbox.scratch()?, buckets),
    ];
    for (source, spill) in [before, after].into_iter().zip(&mut sides) {
        put_aside(source, &states, spill).await?;
    }
    let [mut old, mut new] = sides;
    for bucket in 0..buckets {
        let mut old = old.take(bucket)?;
        let mut new = new.take(bucket)?;
        for entries in [&mut old, &mut new] {
            entries.sort_unstable_by(|a, b| (a.column, &a.key).cmp(&(b.column, &b.key)));
        }
        compare(old, new, &mut states, options, take)?;
    }
    Ok(states.into_iter().map(|both| both.diff).collect())
}

fn both_states(before: &CheckpointSource, after: &CheckpointSource) -> Vec<Both> {
    let mut states: Vec<Both> = Vec::new();
    for (source, is_after) in [(before, false), (after, true)] {
        for found in source.states() {
            let operator = &found.operator.uid;
            let known = states.iter_mut().find(|both| {
                both.operator == *operator && both.is_state(&found.meta.name, found.mode)
            });
            match known {
                Some(both) if is_after => {
                    both.diff.is_in.1 = true;
                    both.after = Some(found.meta.clone());
                    both.mode_after = found.mode;
                }
                Some(_) => {}
                None => states.push(Both {
                    operator: operator.clone(),
                    before: (!is_after).then(|| found.meta.clone()),
                    after: is_after.then(|| found.meta.clone()),
                    mode: found.mode,
                    mode_after: found.mode,
                    diff: StateDiff {
                        operator: operator.clone(),
                        state: found.meta.name.to_string(),
                        kind: found.meta.kind,
                        is_in: (!is_after, is_after),
                        types: None,
                        added: 0,
                        removed: 0,
                        changed: 0,
                        same: 0,
                    },
                }),
            }
        }
    }
    for both in &mut states {
        if let (Some(before), Some(after)) = (&both.before, &both.after)
            && (before != after || both.mode != both.mode_after)
        {
            let texts = (
                types_text(before, both.mode),
                types_text(after, both.mode_after),
            );
            both.diff.types = Some(texts);
        }
    }
    states
}

/// Writes the types of a state in one line.
fn types_text(meta: &StateMeta, mode: Option<OperatorStateMode>) -> String {
    let kind = match mode {
        Some(OperatorStateMode::Union) => "union-list",
        _ => meta.kind.as_str(),
    };
    let mut parts = vec![format!("{kind} {}", meta.key.schema)];
    if meta.namespace.schema != state_api::Schema::Unit {
        parts.push(format!("in {}", meta.namespace.schema));
    }
    if let Some(map_key) = &meta.map_key {
        parts.push(format!("by {}", map_key.schema));
    }
    parts.push(format!("{} {}", meta.value.codec, meta.value.schema));
    if let Some(ttl_ms) = meta.ttl_ms {
        parts.push(format!("for {ttl_ms} ms"));
    }
    parts.join(", ")
}

async fn put_aside(source: &CheckpointSource, states: &[Both], spill: &mut Spill) -> Result<()> {
    for operator in &source.metadata().operators {
        let number = |state: &str, mode: Option<OperatorStateMode>| {
            let of_operator =
                |both: &Both| both.operator == operator.uid && both.is_state(state, mode);
            let position = states.iter().position(of_operator);
            position.ok_or_else(|| {
                Error::bug("an entry of a state that was not announced").with("state", state)
            })
        };
        let mut seen = Seen::default();
        for subtask in &operator.subtasks {
            let read = async {
                let range = operator.max_parallelism.all_groups();
                let part = source.open_part(operator, subtask, range, None).await?;
                let take = &mut |stored: StoredEntry<'_>| {
                    let column = number(&stored.state.name, None)?;
                    put(spill, column, stored.key, stored.value)
                };
                part.read(range, take).await?;
                for handle in &subtask.snapshot.managed_operator {
                    for state in read_operator_states(handle, &**source.storage()).await? {
                        let column = number(&state.meta.name, Some(state.mode))?;
                        if state.mode == OperatorStateMode::Broadcast {
                            if !seen.first(column) {
                                continue;
                            }
                            for (key, value) in state
                                .elements
                                .last()
                                .map_or(Ok(Vec::new()), |e| broadcast_entries(e))?
                            {
                                put(spill, column, key, value)?;
                            }
                            continue;
                        }
                        for element in &state.elements {
                            let key = seen.numbered(column, element);
                            put(spill, column, &key, element)?;
                        }
                    }
                }
                Ok(())
            };
            read.await.map_err(|e: Error| place(e, operator, subtask))?;
        }
    }
    Ok(())
}

fn put(spill: &mut Spill, column: usize, key: &[u8], value: &[u8]) -> Result<()> {
    let bucket = (hash_bytes(key) % spill.buckets() as u64) as usize;
    spill.push(bucket, 0, column as u64, key, value)
}

/// What was met before of an operator's own states.
#[derive(Default)]
struct Seen {
    maps: Vec<usize>,
    /// How often each element was there, by state.
    elements: HashMap<(usize, Vec<u8>), u64>,
}

impl Seen {
    fn first(&mut self, column: usize) -> bool {
        let is_first = !self.maps.contains(&column);
        if is_first {
            self.maps.push(column);
        }
        is_first
    }

    /// Makes a key of an element that may be there several times.
    fn numbered(&mut self, column: usize, element: &[u8]) -> Vec<u8> {
        let count = self.elements.entry((column, element.to_vec())).or_default();
        *count += 1;
        let mut key = element.to_vec();
        put_varint(&mut key, *count);
        key
    }
}

fn compare(
    old: Vec<Spilled>,
    new: Vec<Spilled>,
    states: &mut [Both],
    options: DiffOptions,
    take: &mut dyn FnMut(Difference) -> Result<()>,
) -> Result<()> {
    let (mut old, mut new) = (old.into_iter().peekable(), new.into_iter().peekable());
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => return Ok(()),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some(a), Some(b)) => (a.column, &a.key).cmp(&(b.column, &b.key)),
        };
        let before = order.is_le().then(|| old.next()).flatten();
        let after = order.is_ge().then(|| new.next()).flatten();
        let Some(one) = before.as_ref().or(after.as_ref()) else {
            return Ok(());
        };
        let Some(both) = states.get_mut(one.column as usize) else {
            return Err(Error::bug("an entry of no state"));
        };
        let named = |e: Error| {
            e.with("operator", &both.operator)
                .with("state", &both.diff.state)
        };
        if let (Some(a), Some(b)) = (&before, &after)
            && is_same(both, a, b, options).map_err(named)?
        {
            both.diff.same += 1;
            continue;
        }
        let difference = both
            .difference(before.as_ref(), after.as_ref())
            .map_err(named)?;
        match (&before, &after) {
            (Some(_), Some(_)) => both.diff.changed += 1,
            (Some(_), None) => both.diff.removed += 1,
            _ => both.diff.added += 1,
        }
        take(difference)?;
    }
}

fn is_same(both: &Both, a: &Spilled, b: &Spilled, options: DiffOptions) -> Result<bool> {
    let (Some(old), Some(new)) = (&both.before, &both.after) else {
        return Ok(false);
    };
    let same_layout = old.value == new.value && old.ttl_ms.is_some() == new.ttl_ms.is_some();
    if same_layout && a.value == b.value {
        return Ok(true);
    }
    if same_layout && !options.ignores_times {
        // Equal sets and maps may stand in another order.
        let is_unordered = has_unordered(&old.value.schema);
        if !is_unordered || times(old, both.mode, &a.value)? != times(new, both.mode, &b.value)? {
            return Ok(false);
        }
    }
    let values = (
        whole_value(old, both.mode, &a.value)?,
        whole_value(new, both.mode, &b.value)?,
    );
    Ok(match values {
        (Some(a), Some(b)) => is_alike(&a, &b),
        (a, b) => a.is_none() && b.is_none(),
    })
}

/// Compares values as they are stored: numbers that are not numbers are alike if their bits are, and a zero is not its negative.
fn is_alike(a: &Value, b: &Value) -> bool {
    let all = |a: &[Value], b: &[Value]| {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_alike(a, b))
    };
    match (a, b) {
        (Value::F32(a), Value::F32(b)) => a.to_bits() == b.to_bits(),
        (Value::F64(a), Value::F64(b)) => a.to_bits() == b.to_bits(),
        (Value::Option(Some(a)), Value::Option(Some(b))) => is_alike(a, b),
        (Value::List(a), Value::List(b)) | (Value::Tuple(a), Value::Tuple(b)) => all(a, b),
        (Value::Map(a), Value::Map(b)) => {
            let mut pairs = a.iter().zip(b);
            a.len() == b.len() && pairs.all(|((a, x), (b, y))| is_alike(a, b) && is_alike(x, y))
        }
        (Value::Record { name: a, fields: x }, Value::Record { name: b, fields: y }) => {
            a == b && has_fields_alike(x, y)
        }
        (
            Value::Variant {
                name: a,
                variant: v,
                fields: x,
            },
            Value::Variant {
                name: b,
                variant: w,
                fields: y,
            },
        ) => a == b && v == w && has_fields_alike(x, y),
        (a, b) => a == b,
    }
}

fn has_fields_alike<N: PartialEq>(a: &[(N, Value)], b: &[(N, Value)]) -> bool {
    let mut pairs = a.iter().zip(b);
    a.len() == b.len() && pairs.all(|((a, x), (b, y))| a == b && is_alike(x, y))
}

/// Reads when what is stored under a key was renewed: of a list each element.
fn times(meta: &StateMeta, mode: Option<OperatorStateMode>, stored: &[u8]) -> Result<Vec<i64>> {
    match meta.kind {
        _ if mode.is_some() || meta.ttl_ms.is_none() => Ok(Vec::new()),
        StateKind::Timer => Ok(Vec::new()),
        StateKind::List => {
            let mut elements = Elements::new(stored, true);
            let mut times = Vec::new();
            while let Some((renewed_ms, _)) = elements.next()? {
                times.push(renewed_ms);
            }
            Ok(times)
        }
        _ => Ok(vec![split_timestamp(stored)?.0]),
    }
}

/// Decodes what is stored under a key: of a list all elements; times of renewal left out, sets and maps sorted.
pub(crate) fn whole_value(
    meta: &StateMeta,
    mode: Option<OperatorStateMode>,
    stored: &[u8],
) -> Result<Option<Value>> {
    let decode_all = |of: &TypeMeta, bytes: &[u8]| {
        let mut value = decode_all(of, bytes)?;
        sort_within(&of.schema, &mut value);
        Ok::<_, Error>(value)
    };
    if mode.is_some() {
        return decode_all(&meta.value, stored).map(Some);
    }
    match meta.kind {
        StateKind::Timer => Ok(None),
        StateKind::List => {
            let mut elements = Elements::new(stored, meta.ttl_ms.is_some());
            let mut items = Vec::new();
            while let Some((_, bytes)) = elements.next()? {
                items.push(decode_all(&meta.value, bytes)?);
            }
            Ok(Some(Value::List(items)))
        }
        _ => {
            let value = match meta.ttl_ms {
                Some(_) => split_timestamp(stored)?.1,
                None => stored,
            };
            decode_all(&meta.value, value).map(Some)
        }
    }
}

impl Both {
    fn difference(&self, before: Option<&Spilled>, after: Option<&Spilled>) -> Result<Difference> {
        let mut difference = Difference {
            operator: self.operator.clone(),
            state: self.diff.state.clone(),
            key: None,
            namespace: None,
            map_key: None,
            time_ms: None,
            is_in: (before.is_some(), after.is_some()),
            before: None,
            after: None,
        };
        let sides = [
            (before, &self.before, &mut difference.before),
            (after, &self.after, &mut difference.after),
        ];
        let mut described = None;
        for (entry, meta, value) in sides {
            if let (Some(entry), Some(meta)) = (entry, meta) {
                *value = whole_value(meta, self.mode, &entry.value)?;
                described = Some((entry, meta));
            }
        }
        let Some((entry, meta)) = described else {
            return Ok(difference);
        };
        match self.mode {
            Some(OperatorStateMode::Broadcast) => {
                difference.map_key = Some(decode_all(map_key_type(meta)?, &entry.key)?);
            }
            Some(_) => {}
            None => {
                let parts = split_key(meta, &entry.key)?;
                difference.time_ms = parts.time_ms;
                difference.key = Some(parts.key.0);
                difference.namespace =
                    Some(parts.namespace.0).filter(|value| *value != Value::Unit);
                if matches!(meta.kind, StateKind::Map | StateKind::SortedMap) {
                    difference.map_key = Some(decode_map_key(meta, parts.rest)?);
                }
            }
        }
        Ok(difference)
    }
}
