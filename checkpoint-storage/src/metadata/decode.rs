use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use state_api::wire::{
    expect_end, get_bytes, get_len, get_str, get_u8, get_varint, take, take_array,
};
use state_api::{
    Attempt, CheckpointId, Error, ErrorKind, HashId, JobId, MaxParallelism, OperatorSnapshot,
    OperatorUid, Result, SnapshotKind,
};

use super::encode::{DIGEST_LEN, FINISHED, HEADER_LEN, MAGIC, TIME_ENDED};
use super::handles::{Budget, HandleReader, get_state_table};
use super::section::{Section, Sections, once};
use super::{
    CheckpointMetadata, FORMAT_VERSION, HookState, InputEnd, OperatorMetadata, OwnRoot,
    SubtaskMetadata, WRITER, tags,
};
use crate::digest::digest_of;

impl CheckpointMetadata {
    /// Reads metadata.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are not metadata, are cut short or damaged; `Unsupported`, naming the writer's version,
    /// when they were written by a version that this one can't read.
    pub fn decode(file: &[u8]) -> Result<Self> {
        let (writer, sections) = open_envelope(file)?;
        decode_sections(writer, sections).map_err(|e| match e.kind() {
            ErrorKind::Unsupported => e,
            _ => Error::corrupt("the metadata contradicts its format")
                .with("writer", writer)
                .caused_by(e),
        })
    }
}

/// Checks header, length and digest, and returns the writer's name and the sections.
fn open_envelope(file: &[u8]) -> Result<(&str, &[u8])> {
    let known = file.len().min(MAGIC.len());
    if file[..known] != MAGIC[..known] || file.is_empty() {
        return Err(Error::corrupt("this is not the metadata of a checkpoint"));
    }
    let short = |wanted: u64| {
        Error::corrupt(format!(
            "the metadata is cut short: {} of {wanted} bytes",
            file.len()
        ))
    };
    let mut input = file;
    let header = (|| -> Result<_> {
        take(&mut input, MAGIC.len())?;
        let version = u16::from_le_bytes(take_array(&mut input)?);
        let len = u64::from_le_bytes(take_array(&mut input)?);
        let name_len = usize::from(get_u8(&mut input)?);
        Ok((version, len, take(&mut input, name_len)?))
    })();
    let (version, len, writer) =
        header.map_err(|e| short((HEADER_LEN + 1 + DIGEST_LEN) as u64).caused_by(e))?;
    if (file.len() as u64) < len {
        return Err(short(len));
    }
    if file.len() as u64 > len || input.len() < DIGEST_LEN {
        return Err(Error::corrupt(format!(
            "the metadata says it has {len} bytes, but has {}",
            file.len()
        )));
    }
    let (body, digest) = file.split_at(file.len() - DIGEST_LEN);
    if digest_of(body).0 != digest {
        return Err(Error::corrupt(
            "the metadata is damaged: its digest differs",
        ));
    }
    let writer = std::str::from_utf8(writer)
        .map_err(|e| Error::corrupt("the writer's name is not text").caused_by(e))?;
    if version != FORMAT_VERSION {
        return Err(Error::unsupported(format!(
            "metadata version {version}, written by {writer}, can't be read by {WRITER}, which knows version {FORMAT_VERSION}"
        )));
    }
    Ok((writer, &input[..input.len() - DIGEST_LEN]))
}

fn decode_sections(writer: &str, sections: &[u8]) -> Result<CheckpointMetadata> {
    let budget = Budget::for_file(sections.len());
    let mut identity = None;
    let mut roots: Option<Vec<Arc<str>>> = None;
    let mut properties = None;
    let mut hooks = None;
    let mut operators: Vec<OperatorMetadata> = Vec::new();
    let mut unknown = Vec::new();
    for section in Sections::new(sections) {
        let section = section?;
        match section.tag {
            tags::file::CHECKPOINT => {
                once(&mut identity, section.tag, decode_identity(section.body)?)?
            }
            tags::file::ROOTS => once(&mut roots, section.tag, decode_roots(section.body)?)?,
            tags::file::PROPERTIES => once(
                &mut properties,
                section.tag,
                decode_properties(section.body)?,
            )?,
            tags::file::HOOKS => once(&mut hooks, section.tag, decode_hooks(section.body)?)?,
            tags::file::OPERATOR => {
                let operator = decode_operator(
                    section.body,
                    writer,
                    roots.as_deref().unwrap_or_default(),
                    &budget,
                )?;
                if operators
                    .last()
                    .is_some_and(|last| last.uid >= operator.uid)
                {
                    return Err(Error::corrupt("the operators are not in order")
                        .with("operator", operator.uid));
                }
                operators.push(operator);
            }
            _ => unknown.push(section.keep("metadata", writer)?),
        }
    }
    let (checkpoint, job, attempt, kind, own_root, created_ms) =
        identity.ok_or_else(|| missing("checkpoint"))?;
    let metadata = CheckpointMetadata {
        checkpoint,
        job,
        attempt,
        kind,
        own_root,
        created_ms,
        writer: writer.into(),
        roots: roots.unwrap_or_default(),
        properties: properties.unwrap_or_default(),
        hooks: hooks.unwrap_or_default(),
        operators,
        unknown,
    };
    metadata.check()?;
    Ok(metadata)
}

fn missing(what: &str) -> Error {
    Error::corrupt(format!("the {what} section is missing"))
}

type Identity = (CheckpointId, JobId, Attempt, SnapshotKind, OwnRoot, i64);

fn decode_identity(mut body: &[u8]) -> Result<Identity> {
    let input = &mut body;
    let checkpoint = CheckpointId(get_varint(input)?);
    let job = JobId::new(get_str(input)?)?;
    let attempt = Attempt(get_varint(input)?);
    let kind = match get_u8(input)? {
        0 => SnapshotKind::Checkpoint,
        1 => SnapshotKind::FullCheckpoint,
        2 => SnapshotKind::NativeSavepoint,
        3 => SnapshotKind::CanonicalSavepoint,
        kind => {
            return Err(Error::unsupported(format!(
                "kind {kind} of a checkpoint is unknown"
            )));
        }
    };
    let own_root = match get_u8(input)? {
        0 => OwnRoot::Folder,
        1 => OwnRoot::Parent,
        place => {
            return Err(Error::unsupported(format!(
                "place {place} of a checkpoint's own objects is unknown"
            )));
        }
    };
    let created_ms = i64::from_le_bytes(take_array(input)?);
    expect_end(body)?;
    Ok((checkpoint, job, attempt, kind, own_root, created_ms))
}

fn decode_roots(mut body: &[u8]) -> Result<Vec<Arc<str>>> {
    let count = get_len(&mut body)?;
    let mut roots: Vec<Arc<str>> = Vec::new();
    for _ in 0..count {
        roots.push(get_str(&mut body)?.into());
    }
    expect_end(body)?;
    Ok(roots)
}

fn decode_properties(mut body: &[u8]) -> Result<BTreeMap<String, String>> {
    let count = get_len(&mut body)?;
    let mut properties = BTreeMap::new();
    for _ in 0..count {
        let key = get_str(&mut body)?.to_owned();
        if properties
            .last_key_value()
            .is_some_and(|(last, _)| *last >= key)
        {
            return Err(Error::corrupt("the properties are not in order"));
        }
        properties.insert(key, get_str(&mut body)?.to_owned());
    }
    expect_end(body)?;
    Ok(properties)
}

fn decode_hooks(mut body: &[u8]) -> Result<Vec<HookState>> {
    let count = get_len(&mut body)?;
    let mut hooks: Vec<HookState> = Vec::new();
    for _ in 0..count {
        let name: Arc<str> = get_str(&mut body)?.into();
        let version = get_u32(&mut body)?;
        if hooks.last().is_some_and(|last| last.name >= name) {
            return Err(Error::corrupt("the hooks are not in order"));
        }
        hooks.push(HookState {
            name,
            version,
            bytes: Bytes::copy_from_slice(get_bytes(&mut body)?),
        });
    }
    expect_end(body)?;
    Ok(hooks)
}

fn get_u32(input: &mut &[u8]) -> Result<u32> {
    let value = get_varint(input)?;
    u32::try_from(value).map_err(|_| Error::corrupt(format!("{value} exceeds 32 bits")))
}

fn decode_operator(
    body: &[u8],
    writer: &str,
    roots: &[Arc<str>],
    budget: &Budget,
) -> Result<OperatorMetadata> {
    let mut operator = None;
    let mut states = None;
    let mut coordinator = None;
    let mut subtasks: Vec<Section<'_>> = Vec::new();
    let mut unknown = Vec::new();
    for section in Sections::new(body) {
        let section = section?;
        match section.tag {
            tags::operator::IDENTITY => once(
                &mut operator,
                section.tag,
                decode_operator_identity(section.body)?,
            )?,
            tags::operator::STATES => {
                once(&mut states, section.tag, get_state_table(section.body)?)?
            }
            tags::operator::COORDINATOR => once(&mut coordinator, section.tag, section.body)?,
            tags::operator::SUBTASK => subtasks.push(section),
            _ => unknown.push(section.keep("operator", writer)?),
        }
    }
    let mut operator = operator.ok_or_else(|| missing("operator's identity"))?;
    let handles = HandleReader {
        roots,
        states: states.unwrap_or_default(),
        budget,
    };
    let read = |mut input: &[u8]| {
        let handle = handles.bytes(&mut input)?;
        expect_end(input).map(|()| handle)
    };
    operator.coordinator = coordinator.map(read).transpose()?;
    for section in subtasks {
        let subtask = decode_subtask(section.body, writer, &handles)?;
        if operator
            .subtasks
            .last()
            .is_some_and(|last| last.index >= subtask.index)
        {
            return Err(Error::corrupt("the subtasks are not in order"));
        }
        operator.subtasks.push(subtask);
    }
    operator.unknown = unknown;
    Ok(operator)
}

fn decode_operator_identity(mut body: &[u8]) -> Result<OperatorMetadata> {
    let input = &mut body;
    let uid = OperatorUid::new(get_str(input)?)?;
    let name = Some(get_str(input)?)
        .filter(|name| !name.is_empty())
        .map(Arc::from);
    let parallelism = get_u32(input)?;
    let max_parallelism = MaxParallelism::new(get_u32(input)?)?;
    let hash = HashId::parse(get_str(input)?)?;
    expect_end(body)?;
    Ok(OperatorMetadata {
        name,
        ..OperatorMetadata::new(uid, parallelism, max_parallelism, hash)
    })
}

fn decode_subtask(
    body: &[u8],
    writer: &str,
    handles: &HandleReader<'_>,
) -> Result<SubtaskMetadata> {
    let mut identity = None;
    let mut input_end = None;
    let mut snapshot = OperatorSnapshot::default();
    let mut unknown = Vec::new();
    for section in Sections::new(body) {
        let section = section?;
        let mut input = section.body;
        match section.tag {
            tags::subtask::IDENTITY => {
                let index = get_u32(&mut input)?;
                let finished = match get_u8(&mut input)? {
                    0 => false,
                    1 => true,
                    flag => {
                        return Err(Error::corrupt(format!(
                            "{flag} is neither finished nor running"
                        )));
                    }
                };
                once(&mut identity, section.tag, (index, finished))?;
            }
            tags::subtask::MANAGED_KEYED => snapshot.managed_keyed.push(handles.keyed(&mut input)?),
            tags::subtask::RAW_KEYED => snapshot.raw_keyed.push(handles.key_groups(&mut input)?),
            tags::subtask::MANAGED_OPERATOR => snapshot
                .managed_operator
                .push(handles.operator_state(&mut input)?),
            tags::subtask::RAW_OPERATOR => snapshot
                .raw_operator
                .push(handles.operator_state(&mut input)?),
            tags::subtask::INPUT_END => {
                let told = match get_u8(&mut input)? {
                    TIME_ENDED => InputEnd::TimeEnded,
                    FINISHED => InputEnd::Finished,
                    told => {
                        return Err(Error::corrupt(format!("{told} is no end of an input")));
                    }
                };
                once(&mut input_end, section.tag, told)?;
            }
            tags::subtask::IN_FLIGHT_KEYED => snapshot
                .in_flight_keyed
                .push(handles.key_groups(&mut input)?),
            tags::subtask::IN_FLIGHT => {
                snapshot.in_flight.push(handles.operator_state(&mut input)?)
            }
            _ => {
                unknown.push(section.keep("subtask", writer)?);
                input = &[];
            }
        }
        expect_end(input)?;
    }
    let (index, finished) = identity.ok_or_else(|| missing("subtask's identity"))?;
    Ok(SubtaskMetadata {
        index,
        finished,
        input_end: input_end.unwrap_or_default(),
        snapshot: snapshot.into(),
        unknown,
    })
}
