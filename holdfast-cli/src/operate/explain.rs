use serde_json::json;

use super::status::{ago, pending_in_words, waiting_in_words};
use super::{STATUS_WITHIN, meant, with_jobs};
use crate::args::ExplainArgs;
use crate::control::ask;
use crate::control::protocol::Request;
use crate::control::report::{Ended, RunReport};
use crate::date::time_text;
use crate::failure::{Failure, one_line};
use crate::inspect::Table;
use crate::terminal::{bytes, counted, grouped, print, span};

/// Says what each checkpoint under way waits for, and what the last ones cost.
///
/// # Errors
/// When the job does not answer, or the checkpoint that is named is not in its memory.
pub(crate) fn explain(args: &ExplainArgs) -> Result<(), Failure> {
    let within = Some(args.ask.timeout.unwrap_or(STATUS_WITHIN));
    let report: RunReport = with_jobs("", async {
        let job = meant(args.ask.job.as_deref()).await?;
        ask(&job, &Request::Status, within, |_| {}).await
    })?;
    if let Some(id) = args.checkpoint {
        check_known(&report, id)?;
    }
    print(&if args.ask.json {
        as_json(&report, args.checkpoint)
    } else {
        in_words(&report, args.checkpoint)
    })
}

fn check_known(report: &RunReport, id: u64) -> Result<(), Failure> {
    let pending = report.pending.iter().map(|pending| pending.id);
    let known: Vec<u64> = pending
        .chain(report.history.iter().map(|ended| ended.id))
        .collect();
    if known.contains(&id) {
        return Ok(());
    }
    let told = match (known.iter().min(), known.iter().max()) {
        (Some(first), Some(last)) => format!("it remembers {first} to {last}"),
        _ => "there was none yet".into(),
    };
    Err(Failure::usage(format!(
        "job {} knows no checkpoint {id}: {told}",
        report.job
    )))
}

fn as_json(report: &RunReport, only: Option<u64>) -> String {
    let wanted = |id: u64| only.is_none_or(|only| only == id);
    let pending: Vec<_> = report
        .pending
        .iter()
        .filter(|pending| wanted(pending.id))
        .collect();
    let history: Vec<_> = report
        .history
        .iter()
        .filter(|ended| wanted(ended.id))
        .collect();
    format!(
        "{}\n",
        json!({ "job": report.job, "now_ms": report.now_ms, "pending": pending, "history": history })
    )
}

pub(super) fn in_words(report: &RunReport, only: Option<u64>) -> String {
    let mut out = String::new();
    let mut any = false;
    for pending in report
        .pending
        .iter()
        .filter(|pending| only.is_none_or(|only| only == pending.id))
    {
        any = true;
        out.push_str(&format!("{}\n", pending_in_words(pending)));
        for missing in &pending.missing {
            out.push_str(&format!("  {}\n", missing.text));
        }
    }
    if !any && only.is_none() {
        out.push_str("no checkpoint is under way\n");
        if report.waiting_requests > 0 {
            out.push_str(&format!("waiting: {}\n", waiting_in_words(report)));
        }
    }
    match only {
        Some(id) => {
            for ended in report.history.iter().filter(|ended| ended.id == id) {
                out.push_str(&one(report, ended));
            }
        }
        None if report.history.is_empty() => out.push_str("none has ended yet\n"),
        None => {
            out.push_str(&format!(
                "\nthe last {}, newest first\n",
                counted(report.history.len() as u64, "checkpoint")
            ));
            out.push_str(&history(report));
            if let Some(ended) = report
                .history
                .iter()
                .rev()
                .find(|ended| ended.given_up.is_none())
            {
                out.push('\n');
                out.push_str(&one(report, ended));
            }
        }
    }
    out
}

/// One line for each checkpoint that ended; figures of subtasks are the largest.
fn history(report: &RunReport) -> String {
    let mut table = Table::new(
        &[
            "id", "kind", "ended", "took", "size", "new", "delay", "aligning", "sync", "async",
            "outcome",
        ],
        &[0, 3, 4, 5, 6, 7, 8, 9],
    );
    for ended in report.history.iter().rev() {
        table.row([
            ended.id.to_string(),
            ended.kind.clone(),
            time_text(ended.ended_ms()),
            whole(ended.duration_ms),
            bytes(ended.total_bytes),
            bytes(ended.new_bytes),
            whole(ended.largest(|subtask| subtask.start_delay_ms)),
            milliseconds(ended.largest(|subtask| subtask.alignment_ns)),
            milliseconds(ended.largest(|subtask| subtask.sync_ns)),
            milliseconds(ended.largest(|subtask| subtask.async_ns)),
            ended
                .given_up
                .as_deref()
                .map_or_else(|| "complete".into(), one_line),
        ]);
    }
    table.render(2)
}

/// A checkpoint with each of its subtasks.
fn one(report: &RunReport, ended: &Ended) -> String {
    let mut out = format!("{}: ", ago(report, ended));
    match &ended.given_up {
        None => out.push_str(&format!(
            "complete in {} ms, {} ({} new)\n",
            grouped(ended.duration_ms),
            bytes(ended.total_bytes),
            bytes(ended.new_bytes)
        )),
        Some(why) => out.push_str(&format!(
            "given up after {}: {}\n",
            span(ended.duration_ms),
            one_line(why)
        )),
    }
    if let Some(path) = &ended.path {
        out.push_str(&format!("  {path}\n"));
    }
    let mut table = Table::new(
        &[
            "subtask",
            "operators",
            "delay",
            "aligning",
            "processed",
            "in flight",
            "sync",
            "async",
            "size",
            "new",
        ],
        &[2, 3, 4, 5, 6, 7, 8, 9],
    );
    for subtask in &ended.subtasks {
        table.row([
            subtask.subtask.clone(),
            subtask.operators.clone(),
            whole(subtask.start_delay_ms),
            milliseconds(subtask.alignment_ns),
            bytes(subtask.alignment_bytes),
            bytes(subtask.persisted_bytes),
            milliseconds(subtask.sync_ns),
            milliseconds(subtask.async_ns),
            bytes(subtask.total_bytes),
            bytes(subtask.new_bytes),
        ]);
    }
    if !table.is_empty() {
        out.push_str(&table.render(2));
    }
    out
}

fn whole(ms: u64) -> String {
    format!("{} ms", grouped(ms))
}

/// Writes nanoseconds as milliseconds, with three digits where they are few.
fn milliseconds(ns: u64) -> String {
    let ms = ns as f64 / 1e6;
    if ns >= 10_000_000 {
        format!("{} ms", grouped(ns / 1_000_000))
    } else if ns >= 1_000_000 {
        format!("{ms:.1} ms")
    } else if ns == 0 {
        "0 ms".into()
    } else {
        format!("{ms:.3} ms")
    }
}
