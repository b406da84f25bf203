use serde_json::json;

use super::{STATUS_WITHIN, meant, with_jobs};
use crate::args::AskArgs;
use crate::control::protocol::Request;
use crate::control::report::{Ended, Pending, RunReport};
use crate::control::{SocketFolders, ask, running};
use crate::failure::{Failure, one_line};
use crate::inspect::Table;
use crate::terminal::{bytes, counted, grouped, print, say, span};

/// Subtasks of a checkpoint that are named in one line.
const NAMED: usize = 10;

/// Says how a job stands; without a name how all stand, one a line if there are several.
///
/// # Errors
/// When none runs, or the one that is meant does not answer.
pub(crate) fn status(args: &AskArgs) -> Result<(), Failure> {
    let within = Some(args.timeout.unwrap_or(STATUS_WITHIN));
    let text = with_jobs("", async {
        let jobs = match &args.job {
            Some(_) => Vec::new(),
            None => running(&SocketFolders::of_environment()).await.jobs,
        };
        if jobs.len() < 2 {
            let job = meant(args.job.as_deref()).await?;
            let report: RunReport = ask(&job, &Request::Status, within, |_| {}).await?;
            return Ok(if args.json {
                format!("{}\n", json!(report))
            } else {
                in_words(&report)
            });
        }
        let mut reports = Vec::new();
        for job in &jobs {
            match ask::<RunReport>(job, &Request::Status, within, |_| {}).await {
                Ok(report) => reports.push(report),
                // One that is frozen does not hide the others.
                Err(failure) => say(&format!("warning: {}", one_line(failure.line()))),
            }
        }
        Ok(if args.json {
            format!("{}\n", json!(reports))
        } else {
            overview(&reports)
        })
    })?;
    print(&text)
}

/// One line a job.
fn overview(reports: &[RunReport]) -> String {
    let mut table = Table::new(
        &[
            "job",
            "process",
            "state",
            "for",
            "records",
            "completed",
            "given up",
            "last",
        ],
        &[1, 4, 5, 6],
    );
    for report in reports {
        table.row([
            report.job.clone(),
            report.process.to_string(),
            report.state.clone(),
            span(report.uptime_ms),
            grouped(report.records),
            grouped(report.completed),
            grouped(report.given_up.values().sum()),
            report
                .last_completed
                .as_ref()
                .map_or_else(|| "-".into(), |last| ago(report, last)),
        ]);
    }
    table.render(0)
}

/// A fact a line.
pub(super) fn in_words(report: &RunReport) -> String {
    let mut out = String::new();
    let mut fact = |name: &str, value: String| out.push_str(&format!("{name:<11} {value}\n"));
    fact(
        "job",
        format!(
            "{}, process {}, attempt {}",
            report.job, report.process, report.attempt
        ),
    );
    let restarts = match report.restarts {
        0 => String::new(),
        n => format!(", {}", counted(u64::from(n), "restart")),
    };
    fact(
        "state",
        format!("{} for {}{restarts}", report.state, span(report.uptime_ms)),
    );
    if let Some(because) = &report.because {
        fact("because", one_line(because));
    }
    if let Some(restored) = &report.restored {
        let path = restored
            .path
            .as_ref()
            .map(|path| format!(", {path}"))
            .unwrap_or_default();
        let copies = copies_in_words(restored.bytes_from_copies, restored.bytes_from_store);
        fact(
            "began from",
            format!("checkpoint {}{path}{copies}", restored.id),
        );
    }
    fact("read", counted(report.records, "record"));
    fact("checkpoints", report.checkpoints.clone());
    if report.completed > 0 || !report.given_up.is_empty() {
        let given_up = match report.given_up.values().sum::<u64>() {
            0 => "none given up".to_owned(),
            n => {
                let reasons = report
                    .given_up
                    .iter()
                    .map(|(reason, times)| format!("{} × {reason}", grouped(*times)));
                format!(
                    "{} given up ({})",
                    grouped(n),
                    reasons.collect::<Vec<_>>().join(", ")
                )
            }
        };
        fact(
            "",
            format!("{} completed, {given_up}", grouped(report.completed)),
        );
    }
    for (name, ended) in [
        ("last", &report.last_completed),
        ("savepoint", &report.last_savepoint),
    ] {
        if let Some(ended) = ended {
            fact(name, completed_in_words(report, ended));
        }
    }
    if let Some(given_up) = &report.last_given_up {
        let why = given_up.given_up.as_deref().unwrap_or_default();
        fact(
            "given up",
            format!("{}: {}", ago(report, given_up), one_line(why)),
        );
    }
    for pending in &report.pending {
        fact("pending", pending_in_words(pending));
    }
    if report.waiting_requests > 0 {
        fact("waiting", waiting_in_words(report));
    }
    out
}

/// How many requests wait, and for deletions if it is that.
pub(super) fn waiting_in_words(report: &RunReport) -> String {
    let requests = counted(report.waiting_requests as u64, "request");
    match report.waiting_for_deletions as u64 {
        0 => requests,
        n => format!(
            "{requests}, for the deletion of {}",
            counted(n, "checkpoint")
        ),
    }
}

fn completed_in_words(report: &RunReport, ended: &Ended) -> String {
    let path = ended
        .path
        .as_ref()
        .map(|path| format!(", {path}"))
        .unwrap_or_default();
    format!(
        "{}: took {} ms, {} ({} new){path}",
        ago(report, ended),
        grouped(ended.duration_ms),
        bytes(ended.total_bytes),
        bytes(ended.new_bytes)
    )
}

/// Says how much of a restore did not come from the store.
pub(crate) fn copies_in_words(from_copies: u64, from_store: u64) -> String {
    match (from_copies, from_store) {
        (0, _) => String::new(),
        (_, 0) => format!(", {} out of local copies", bytes(from_copies)),
        _ => format!(
            ", {} out of local copies and {} out of the store",
            bytes(from_copies),
            bytes(from_store)
        ),
    }
}

/// What ended how long ago.
pub(super) fn ago(report: &RunReport, ended: &Ended) -> String {
    let ms = u64::try_from(report.now_ms.saturating_sub(ended.ended_ms())).unwrap_or(0);
    format!("{} {}, {} ago", ended.kind, ended.id, span(ms))
}

/// Says in one line what is under way, and what each waits for; nothing if there is nothing.
pub(super) fn under_way(report: &RunReport) -> Option<String> {
    let mut parts = Vec::new();
    for pending in &report.pending {
        parts.push(pending_in_words(pending));
        let missing = pending.missing.iter().take(NAMED);
        parts.extend(missing.map(|missing| missing.text.clone()));
        match pending.missing.len().saturating_sub(NAMED) {
            0 => {}
            more => parts.push(format!("and {more} more")),
        }
    }
    if report.waiting_requests > 0 {
        parts.push(format!("waiting: {}", waiting_in_words(report)));
    }
    if report.state != "running" {
        parts.insert(0, format!("the job is {}", report.state));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// One line on a checkpoint under way.
pub(super) fn pending_in_words(pending: &Pending) -> String {
    format!(
        "{} {}: {} for {}, {} of {} done; expires in {}",
        pending.kind,
        pending.id,
        pending.phase,
        span(pending.age_ms),
        grouped(pending.done as u64),
        counted(pending.subtasks as u64, "subtask"),
        span(pending.left_ms)
    )
}

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;
