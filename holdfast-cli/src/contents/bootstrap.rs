use std::sync::Arc;

use checkpoint_tools::{Bootstrap, CheckpointSource, NewOperator};
use runtime_core::config::parse_duration;
use serde_json::json;
use state_api::{
    Attempt, CodecKind, Error, HashId, JobId, MaxParallelism, OperatorStateMode, OperatorUid,
    Result, Schema, StateKind, StateMeta, TypeMeta,
};

use super::args::{BootstrapArgs, Rows};
use super::changes::{begin, written};
use super::opened::{interruptible, toolbox};
use super::row_file::{csv_rows, json_rows};
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
        let target = begin(&args.target, Attempt(1), &access).await?;
        let path = shown(target.root().url());
        let mut building = Bootstrap::new(&toolbox, job, operators)?;
        let take = &mut |row| building.row(&row);
        match format(args) {
            Rows::Csv => csv_rows(&args.rows, take)?,
            Rows::Jsonl => json_rows(&args.rows, take)?,
        }
        let rows = building.rows();
        let metadata = building.finish(target).await?;
        progress.clear();
        let line = format!("read {}\n", counted(rows, "row"));
        written(
            &metadata,
            &path,
            args.target.json,
            json!({ "rows": rows }),
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
        (true, Some(key)) => key,
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
        (_, schema) => schema.map(|schema| TypeMeta {
            // A broadcast state has one codec for both.
            codec: if is_keyed { CodecKind::Compact } else { codec },
            schema,
        }),
    };
    let value = match (kind, parsed(&args.value_type, "value-type")?) {
        (StateKind::Timer, None) => compact(Schema::Unit),
        (_, None) => return Err(Error::invalid("--value-type is needed")),
        (_, Some(schema)) => TypeMeta { codec, schema },
    };
    let ttl_ms = match &args.ttl {
        None => None,
        Some(text) => {
            let ttl = parse_duration(text).map_err(Error::invalid)?;
            Some(i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX))
        }
    };
    let meta = StateMeta {
        name: Arc::from(needed(&args.state, "state")?),
        kind,
        key: compact(key),
        namespace: compact(parsed(&args.namespace_type, "namespace-type")?.unwrap_or(Schema::Unit)),
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
