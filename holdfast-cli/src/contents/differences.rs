use checkpoint_tools::{DiffOptions, Difference, RawDifference, StateDiff, diff, raw_differences};
use serde_json::json;
use state_api::{Error, Value};
use std::io::{BufWriter, Write};

use super::args::{DiffArgs, SourceArgs};
use super::dump::has_gone;
use super::opened::{interruptible, judged, open};
use super::steps::Steps;
use crate::failure::{Exit, Failure};
use crate::inspect::{Table, io_runtime};
use crate::terminal::{self, grouped};

/// Compares two checkpoints; exit code 7 says that something differs.
///
/// # Errors
/// When one of them can't be read.
pub(crate) fn run_diff(args: &DiffArgs) -> Result<(), Failure> {
    let io = io_runtime()?;
    let progress = Steps::beside_rows(args.entries);
    let (states, raw) = interruptible(&io, &progress, async {
        let access = args.source.stores.access(io.handle())?;
        let before = open(&args.source, &access, &progress).await?;
        let other = SourceArgs {
            checkpoint: args.other.clone(),
            allow_root: args.source.allow_root.clone(),
            local_dir: args.source.local_dir.clone(),
            stores: args.source.stores.clone(),
        };
        let after = open(&other, &access, &progress).await?;
        let options = DiffOptions {
            ignores_times: args.values_only,
        };
        let mut out = BufWriter::new(std::io::stdout().lock());
        let take = &mut |difference: Difference| {
            if !args.entries {
                return Ok(());
            }
            let line = format!("{}\n", difference_json(&difference));
            let written = out.write_all(line.as_bytes());
            written.map_err(|e| Error::retryable("differences can't be written").caused_by(e))
        };
        let compared = diff(&before, &after, options, take).await;
        let compared = compared.and_then(|states| {
            let flushed = out.flush();
            flushed.map_err(|e| Error::retryable("differences can't be written").caused_by(e))?;
            Ok(states)
        });
        match compared {
            // Only what differs is written, so something does.
            Err(error) if has_gone(&error) => Err(Failure::silent(Exit::Different)),
            compared => {
                let compared = match compared {
                    Err(error) => Err(before.judged(error).await),
                    compared => compared,
                };
                let compared = judged(&after, compared).await?;
                Ok((compared, raw_differences(&before, &after)))
            }
        }
    })?;
    if args.json {
        let all = states.iter().map(state_json);
        let all: Vec<_> = all.chain(raw.iter().map(raw_json)).collect();
        terminal::print(&format!("{}\n", serde_json::Value::Array(all)))?;
    } else if !args.entries {
        terminal::print(&table(&states))?;
    }
    if !args.json {
        for raw in &raw {
            terminal::say(&format!(
                "note: operator {} has other {} bytes, which only the job can read",
                raw.operator, raw.kind
            ));
        }
    }
    if states.iter().all(StateDiff::is_same) && raw.is_empty() {
        Ok(())
    } else {
        Err(Failure::silent(Exit::Different))
    }
}

fn state_json(state: &StateDiff) -> serde_json::Value {
    json!({
        "operator": state.operator.as_str(),
        "state": state.state,
        "kind": state.kind.as_str(),
        "in_first": state.is_in.0,
        "in_second": state.is_in.1,
        "types": state.types.as_ref().map(|(old, new)| json!({ "first": old, "second": new })),
        "added": state.added,
        "removed": state.removed,
        "changed": state.changed,
        "same": state.same,
    })
}

fn raw_json(raw: &RawDifference) -> serde_json::Value {
    json!({
        "operator": raw.operator.as_str(),
        "raw": raw.kind.as_str(),
        "in_first": raw.is_in.0,
        "in_second": raw.is_in.1,
    })
}

fn table(states: &[StateDiff]) -> String {
    if states.is_empty() {
        return "neither has any state\n".into();
    }
    let head = [
        "operator", "state", "kind", "added", "removed", "changed", "same", "is",
    ];
    let mut table = Table::new(&head, &[3, 4, 5, 6]);
    for state in states {
        let is = match state.is_in {
            (true, false) => "gone",
            (false, true) => "new",
            _ if state.types.is_some() => "of another type",
            _ if state.is_same() => "same",
            _ => "different",
        };
        table.row([
            state.operator.to_string(),
            state.state.clone(),
            state.kind.to_string(),
            grouped(state.added),
            grouped(state.removed),
            grouped(state.changed),
            grouped(state.same),
            is.into(),
        ]);
    }
    let mut out = table.render(0);
    for state in states {
        if let Some((old, new)) = &state.types {
            out.push_str(&format!(
                "{}/{}: {old}\n  is now {new}\n",
                state.operator, state.state
            ));
        }
    }
    out
}

/// Writes a difference as one JSON object.
fn difference_json(difference: &Difference) -> String {
    let change = match difference.is_in {
        (true, true) => "changed",
        (true, false) => "removed",
        _ => "added",
    };
    let mut parts = vec![
        ("change", json!(change).to_string()),
        ("operator", json!(difference.operator.as_str()).to_string()),
        ("state", json!(difference.state).to_string()),
    ];
    let values: [(&str, &Option<Value>); 5] = [
        ("key", &difference.key),
        ("namespace", &difference.namespace),
        ("map_key", &difference.map_key),
        ("before", &difference.before),
        ("after", &difference.after),
    ];
    for (name, value) in values {
        if let Some(value) = value {
            parts.push((name, value.to_json_string()));
        }
    }
    if let Some(time_ms) = difference.time_ms {
        parts.push(("time_ms", time_ms.to_string()));
    }
    let parts: Vec<String> = parts
        .into_iter()
        .map(|(name, json)| format!("\"{name}\":{json}"))
        .collect();
    format!("{{{}}}", parts.join(","))
}
