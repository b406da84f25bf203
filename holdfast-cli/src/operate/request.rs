use std::path::Path;

use serde_json::json;

use super::{ask_patiently, meant, with_jobs};
use crate::args::{AskArgs, CheckpointArgs, SavepointArgs, StopArgs};
use crate::control::protocol::{
    CheckpointArguments, Ending, Request, SavepointArguments, StopArguments, Taken,
};
use crate::failure::Failure;
use crate::terminal::{bytes, grouped, print, say};

/// Takes a savepoint; its path is the last line of the standard output.
///
/// # Errors
/// Why there is none.
pub(crate) fn savepoint(args: &SavepointArgs) -> Result<(), Failure> {
    let request = Request::Savepoint(SavepointArguments {
        target: absolute(args.target.as_deref())?,
        format: args.format,
    });
    take(
        &args.ask,
        &request,
        "the savepoint goes on in the job; `holdfast status` shows it",
    )
}

/// Takes a checkpoint now.
///
/// # Errors
/// Why there is none.
pub(crate) fn checkpoint(args: &CheckpointArgs) -> Result<(), Failure> {
    let request = Request::Checkpoint(CheckpointArguments { full: args.full });
    take(
        &args.ask,
        &request,
        "the checkpoint goes on in the job; `holdfast status` shows it",
    )
}

fn take(args: &AskArgs, request: &Request, left: &str) -> Result<(), Failure> {
    let (job, taken) = with_jobs(left, async {
        let job = meant(args.job.as_deref()).await?;
        let taken: Taken = ask_patiently(&job, request, args.timeout).await?;
        Ok((job.name, taken))
    })?;
    if args.json {
        return print(&format!("{}\n", json!(taken)));
    }
    say(&format!(
        "{} {} of job {job}: {}",
        taken.kind,
        taken.id,
        figures(&taken)
    ));
    path_on_stdout(taken.path.as_deref())
}

/// Ends a job with a savepoint, or with a checkpoint of its own.
///
/// # Errors
/// Why it goes on, or how else it ended.
pub(crate) fn stop(args: &StopArgs) -> Result<(), Failure> {
    let request = Request::Stop(StopArguments {
        drain: args.drain,
        no_savepoint: args.no_savepoint,
        target: absolute(args.target.as_deref())?,
        format: args.format,
    });
    let left = "the job goes on stopping; `holdfast status` shows whether it does";
    let (job, ending) = end(&args.ask, &request, left)?;
    if args.ask.json {
        return print(&format!("{}\n", json!(ending)));
    }
    let with = ending
        .taken
        .as_ref()
        .map(|taken| format!(" with {} {}: {}", taken.kind, taken.id, figures(taken)))
        .unwrap_or_default();
    let stopped = if args.drain {
        "drained and stopped"
    } else {
        "stopped"
    };
    say(&format!(
        "job {job} has {stopped}{with}{}",
        how_to_go_on(&ending)
    ));
    path_on_stdout(ending.kept.as_deref())
}

/// Ends a job at once; its last checkpoint stays.
///
/// # Errors
/// Why it goes on.
pub(crate) fn cancel(args: &AskArgs) -> Result<(), Failure> {
    let left = "the job goes on ending; `holdfast status` shows whether it does";
    let (job, ending) = end(args, &Request::Cancel, left)?;
    if args.json {
        return print(&format!("{}\n", json!(ending)));
    }
    let kept = match &ending.kept {
        Some(path) => format!("the last checkpoint is {path}"),
        None => "there is no checkpoint to go on from".into(),
    };
    say(&match ending.finished {
        true => format!("job {job} had finished before it was cancelled; {kept}"),
        false => format!("job {job} was cancelled; {kept}{}", how_to_go_on(&ending)),
    });
    path_on_stdout(ending.kept.as_deref())
}

fn end(args: &AskArgs, request: &Request, left: &str) -> Result<(String, Ending), Failure> {
    with_jobs(left, async {
        let job = meant(args.job.as_deref()).await?;
        let ending = ask_patiently(&job, request, args.timeout).await?;
        Ok((job.name, ending))
    })
}

fn how_to_go_on(ending: &Ending) -> String {
    let Some(command) = &ending.resume else {
        return String::new();
    };
    // Its paths may be relative to the folder that it ran in.
    let here = std::env::current_dir().ok();
    let elsewhere = |folder: &&String| here.as_deref() != Some(Path::new(folder.as_str()));
    match ending.folder.as_ref().filter(elsewhere) {
        Some(folder) => format!("; go on, in {folder}, with: {command}"),
        None => format!("; go on with: {command}"),
    }
}

fn figures(taken: &Taken) -> String {
    format!(
        "{} ({} new) in {} ms",
        bytes(taken.total_bytes),
        bytes(taken.new_bytes),
        grouped(taken.duration_ms)
    )
}

/// The path and nothing else, for `path=$(holdfast savepoint)`.
fn path_on_stdout(path: Option<&str>) -> Result<(), Failure> {
    match path {
        Some(path) => print(&format!("{path}\n")),
        None => Ok(()),
    }
}

/// Makes a path absolute: the job runs in a folder of its own. A URL is passed on.
fn absolute(target: Option<&str>) -> Result<Option<String>, Failure> {
    let Some(target) = target.filter(|target| !target.contains("://")) else {
        return Ok(target.map(str::to_owned));
    };
    if target.is_empty() {
        return Err(Failure::usage("--target names no folder"));
    }
    let path = std::path::absolute(Path::new(target))
        .map_err(|error| Failure::usage(format!("--target {target}: {error}")))?;
    match path.into_os_string().into_string() {
        Ok(path) => Ok(Some(path)),
        Err(path) => Err(Failure::usage(format!(
            "--target: {} is not UTF-8",
            Path::new(&path).display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_made_absolute_for_the_job_and_a_url_is_left_alone() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(absolute(None).unwrap(), None);
        assert_eq!(
            absolute(Some("a/b")).unwrap().unwrap(),
            here.join("a/b").to_str().unwrap()
        );
        assert_eq!(absolute(Some("/a")).unwrap().unwrap(), "/a");
        assert_eq!(absolute(Some("s3://b/c")).unwrap().unwrap(), "s3://b/c");
        assert!(absolute(Some("")).is_err());
    }
}
