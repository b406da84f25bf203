use std::sync::Arc;

use checkpoint_tools::{Bootstrap, CheckpointSource, NewOperator};
use serde_json::json;
use state_api::{
    Attempt, CodecKind, Error, Fields, HashId, JobId, MaxParallelism, OperatorStateMode,
    OperatorUid, Result, Schema, SnapshotKind, StateKind, StateMeta, TypeMeta,
};

use super::args::{BootstrapArgs, Rows};
use super::changes::{begin, check, written};
use super::opened::{interruptible, toolbox};
use super::row_file::{RawRows, csv_rows, json_rows, length};
use super::steps::Steps;
use crate::failure::Failure;
use crate::inspect::io_runtime;
use crate::run::shown;
use crate::terminal::counted;

/// Builds a checkpoint out of rows.
///
/// # Errors
/// When types or rows make no sense, naming the line, or the folder is in use.
pub(crate) fn run_bootstrap(args: &BootstrapArgs) -> std::result::Result<(), Failure> {
    let io = io_runtime()?;
    let progress = Steps::new();
    interruptible(&io, &progress, async {
        let access = args.stores.access(io.handle())?;
        let toolbox = toolbox(io.handle(), args.local_dir.as_deref(), &progress)?;
        let (job, operators) = match &args.like {
            Some(path) => {
                let found = crate::run::find(path, &access).await?;
                let source = CheckpointSource::new(found, [], toolbox.clone());
                let mut operators = NewOperator::like(&source)?;
                // Keys whose hash was written by hand would go where the job does not look for them.
                let is_portable = source.metadata().kind == SnapshotKind::CanonicalSavepoint;
                let states = source.states();
                let keyed = states.iter().filter(|state| state.mode.is_none());
                for state in keyed.filter(|_| is_portable) {
                    source.check_hash(state).await?;
                }
                for operator in &mut operators {
                    divide(operator, args)?;
                }
                (source.metadata().job.clone(), operators)
            }
            None => described(args)?,
        };
        let job = match &args.job {
            Some(id) => JobId::new(id)?,
            None => job,
        };
        check(&args.target, &access).await?;
        let building = Bootstrap::new(&toolbox, job, operators)?;
        let (operator, state) = (args.operator.clone(), args.state.clone());
        let mut building = building.rows_are_of(operator, state);
        // Every row is read before the first file is made: a wrong one leaves nothing behind.
        progress.begin("read rows", length(&args.rows));
        let take = &mut |row| building.row(&row);
        let mut skipped = 0;
        match format(args) {
            Rows::Csv => csv_rows(&args.rows, &progress, take)?,
            Rows::Jsonl => {
                let raw = match args.skip_raw {
                    true => RawRows::Skipped,
                    false => RawRows::Refused,
                };
                skipped = json_rows(&args.rows, raw, &progress, take)?;
            }
        }
        let rows = building.rows();
        let target = begin(&args.target, Attempt(1), &access).await?;
        let path = shown(target.root().url());
        let metadata = building.finish(target).await?;
        progress.clear();
        let mut line = format!("read {}\n", counted(rows, "row"));
        if skipped > 0 {
            let parts = counted(skipped, "row");
            line.push_str(&format!(
                "left out {parts} of raw bytes, which are not in the dump\n"
            ));
        }
        written(
            &metadata,
            &path,
            args.target.json,
            json!({ "rows": rows, "skipped": skipped }),
            &line,
        )
    })
}

fn format(args: &BootstrapArgs) -> Rows {
    let is_table = args
        .rows
        .extension()
        .is_some_and(|ending| ending.eq_ignore_ascii_case("csv"));
    let by_ending = if is_table { Rows::Csv } else { Rows::Jsonl };
    args.format.unwrap_or(by_ending)
}

fn divide(operator: &mut NewOperator, args: &BootstrapArgs) -> Result<()> {
    if let Some(parallelism) = args.parallelism {
        if parallelism == 0 {
            return Err(Error::invalid("there is at least one subtask"));
        }
        operator.parallelism = parallelism;
    }
    if let Some(groups) = args.max_parallelism {
        operator.max_parallelism = MaxParallelism::new(groups)?;
    }
    Ok(())
}

/// Describes the one operator and state that the command line names.
fn described(args: &BootstrapArgs) -> Result<(JobId, Vec<NewOperator>)> {
    let needed = |value: &Option<String>, name: &str| {
        value.clone().ok_or_else(|| {
            Error::invalid(format!(
                "--{name} is needed, unless --like names a checkpoint"
            ))
        })
    };
    let job = JobId::new(&needed(&args.job, "job")?)?;
    let kind = StateKind::parse(&args.kind).ok_or_else(|| {
        let words: Vec<&str> = StateKind::ALL.iter().map(|kind| kind.as_str()).collect();
        Error::invalid(format!(
            "unknown kind {:?}; there are {}",
            args.kind,
            words.join(", ")
        ))
    })?;
    let compact = |schema| TypeMeta {
        codec: CodecKind::Compact,
        schema,
    };
    let parsed = |text: &Option<String>, name: &'static str| match text {
        None => Ok(None),
        Some(text) => Schema::parse(text)
            .map(Some)
            .map_err(|e| Error::invalid(format!("--{name} {text:?} is no type: {}", e.message()))),
    };
    let is_keyed = !matches!(kind, StateKind::OperatorList | StateKind::Broadcast);
    let key = parsed(&args.key_type, "key-type")?;
    let key = match (is_keyed, key) {
        (true, None) => return Err(Error::invalid("--key-type is needed")),
        (true, Some(key)) => can_be_key(key, "key-type")?,
        (false, None) => Schema::Unit,
        (false, Some(_)) => {
            return Err(Error::invalid(
                "state of an operator has no key: --map-key-type?",
            ));
        }
    };
    let has_map_key = matches!(
        kind,
        StateKind::Map | StateKind::SortedMap | StateKind::Broadcast
    );
    let codec = CodecKind::parse(&args.codec).map_err(|e| Error::invalid(e.message()))?;
    let map_key = parsed(&args.map_key_type, "map-key-type")?;
    let map_key = match (has_map_key, map_key) {
        (true, None) => return Err(Error::invalid("--map-key-type is needed")),
        (false, Some(_)) => return Err(Error::invalid("--map-key-type is for maps")),
        (_, schema) => schema,
    };
    let map_key = match map_key {
        None => None,
        Some(schema) => Some(TypeMeta {
            // A broadcast state has one codec for both.
            codec: if is_keyed { CodecKind::Compact } else { codec },
            schema: can_be_key(schema, "map-key-type")?,
        }),
    };
    if let (StateKind::SortedMap, Some(map_key)) = (kind, &map_key)
        && has_part(&map_key.schema, &|part| {
            matches!(part, Schema::Set(_) | Schema::Map(..))
        })
    {
        return Err(Error::invalid(format!(
            "--map-key-type {}: sets and maps can't be keys of a sorted map",
            map_key.schema
        )));
    }
    let namespace = match parsed(&args.namespace_type, "namespace-type")? {
        None => Schema::Unit,
        Some(_) if !is_keyed => {
            return Err(Error::invalid(
                "state of an operator has no namespace: --namespace-type is for keyed state",
            ));
        }
        Some(schema) => can_be_key(schema, "namespace-type")?,
    };
    let value = match (kind, parsed(&args.value_type, "value-type")?) {
        (StateKind::Timer, None) => compact(Schema::Unit),
        (_, None) => return Err(Error::invalid("--value-type is needed")),
        (_, Some(schema)) => TypeMeta { codec, schema },
    };
    let ttl_ms = match args.ttl {
        None => None,
        Some(_) if !is_keyed || kind == StateKind::Timer => {
            return Err(Error::invalid(format!(
                "entries of kind {kind} have no time-to-live: --ttl is for other states"
            )));
        }
        Some(ttl) => Some(i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX)),
    };
    let name = needed(&args.state, "state")?;
    if name.trim().is_empty() || name.contains(char::is_control) {
        return Err(Error::invalid(format!("--state {name:?} is no name")));
    }
    let meta = StateMeta {
        name: Arc::from(name),
        kind,
        key: compact(key),
        namespace: compact(namespace),
        map_key,
        value,
        ttl_ms,
    };
    let mut operator = NewOperator {
        uid: OperatorUid::new(&needed(&args.operator, "operator")?)?,
        parallelism: 1,
        max_parallelism: MaxParallelism::new(MaxParallelism::DEFAULT_LOWER_BOUND)?,
        hash: HashId::default(),
        keyed: Vec::new(),
        operator: Vec::new(),
    };
    divide(&mut operator, args)?;
    match kind {
        StateKind::OperatorList => operator.operator.push((meta, OperatorStateMode::Split)),
        StateKind::Broadcast => operator.operator.push((meta, OperatorStateMode::Broadcast)),
        _ => operator.keyed.push(meta),
    }
    Ok((job, vec![operator]))
}

/// Refuses the type of a key whose equal values may have different bytes, or the same key several hashes.
fn can_be_key(schema: Schema, option: &str) -> Result<Schema> {
    let is_no_key =
        |part: &Schema| matches!(part, Schema::F32 | Schema::F64 | Schema::Opaque { .. });
    match has_part(&schema, &is_no_key) {
        true => Err(Error::invalid(format!(
            "--{option} {schema}: floats and opaque values can't be keys"
        ))),
        false => Ok(schema),
    }
}

/// Says whether a type, or one within it, is of a kind.
fn has_part(schema: &Schema, is: &dyn Fn(&Schema) -> bool) -> bool {
    let any = |fields: &Fields| fields.as_slice().iter().any(|f| has_part(&f.schema, is));
    is(schema)
        || match schema {
            Schema::Option(inner) | Schema::List(inner) | Schema::Set(inner) => has_part(inner, is),
            Schema::Array(inner, _) => has_part(inner, is),
            Schema::Map(key, value) => has_part(key, is) || has_part(value, is),
            Schema::Tuple(parts) => parts.iter().any(|part| has_part(part, is)),
            Schema::Struct(it) => any(&it.fields),
            Schema::Enum(it) => it.variants.iter().any(|v| any(&v.fields)),
            _ => false,
        }
}
