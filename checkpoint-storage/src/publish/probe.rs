use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::join;
use futures_util::stream::FuturesUnordered;
use state_api::{Error, ErrorKind, Result};

use crate::names::UuidSource;
use crate::root::StoreRoot;

/// Says how hard [`probe`] tries.
#[derive(Clone, Copy, Debug)]
pub struct ProbeOptions {
    /// Number of races.
    pub rounds: u32,
    /// Length of the racing bodies in bytes.
    pub body_len: usize,
    /// Number of races at a time.
    pub concurrent: usize,
}

impl ProbeOptions {
    /// Returns how hard a store should be tried when a job starts.
    ///
    /// A file system and memory answer for themselves: one race shows that they can be written. What is behind a network may
    /// accept a condition and not keep it, which only shows now and then, and rather with large bodies: 50 races of 256 KiB.
    #[must_use]
    pub fn of(root: &StoreRoot) -> Self {
        match root.requests() {
            Some(_) => Self {
                rounds: 50,
                body_len: 256 << 10,
                concurrent: 8,
            },
            None => Self {
                rounds: 1,
                body_len: 1024,
                concurrent: 1,
            },
        }
    }
}

impl Default for ProbeOptions {
    fn default() -> Self {
        Self {
            rounds: 4,
            body_len: 64 << 10,
            concurrent: 1,
        }
    }
}

/// Tests that a store does what publishing needs, in a folder of its own below the root, which it removes again.
///
/// Each round races two writers for one path: exactly one must win, its whole body must be readable and listed, and a
/// third writer must be refused. A store may pass by luck; one that fails here is unfit.
///
/// # Errors
/// `Unsupported`, with what went wrong, when the store breaks a rule; `Retryable` when it fails.
pub async fn probe(root: &StoreRoot, names: &UuidSource, options: ProbeOptions) -> Result<()> {
    let folder = root.folder(&format!("probe-{}", names.next()));
    let tested = rounds(&folder, options).await;
    let removed = clean(&folder).await;
    tested.map_err(|e| {
        e.with("store", root.url())
            .with("method", root.publish_method())
    })?;
    removed
}

async fn rounds(folder: &StoreRoot, options: ProbeOptions) -> Result<()> {
    let mut races = (0..options.rounds).map(|round| race(folder, round, options.body_len));
    let mut running = FuturesUnordered::new();
    let mut tested = Ok(());
    loop {
        while tested.is_ok() && running.len() < options.concurrent.max(1) {
            let Some(race) = races.next() else {
                break;
            };
            running.push(race);
        }
        // Also after a failure: what is written later would be left behind.
        match running.next().await {
            Some(outcome) => tested = tested.and(outcome),
            None => return tested,
        }
    }
}

async fn race(folder: &StoreRoot, round: u32, body_len: usize) -> Result<()> {
    let path = format!("race-{round}");
    let bodies = [b'a', b'b'].map(|fill| Bytes::from(vec![fill; body_len.max(1)]));
    let (first, second) = join(
        folder.publish(&path, bodies[0].clone()),
        folder.publish(&path, bodies[1].clone()),
    )
    .await;
    let winner = match (lost(first)?, lost(second)?) {
        (false, true) => &bodies[0],
        (true, false) => &bodies[1],
        (false, false) => return Err(unfit("two racing writers both created one object")),
        (true, true) => return Err(unfit("of two racing writers none created the object")),
    };
    check_body(folder, &path, winner).await?;
    let listed = folder.list("").await?;
    if !listed.iter().any(|entry| entry.name == path) {
        return Err(unfit(
            "an object is missing in a listing made after it was written",
        ));
    }
    if !lost(folder.publish(&path, Bytes::from_static(b"late")).await)? {
        return Err(unfit("an existing object was replaced"));
    }
    check_body(folder, &path, winner).await
}

async fn check_body(folder: &StoreRoot, path: &str, winner: &Bytes) -> Result<()> {
    let len = winner.len() as u64;
    if folder.read(path, 0..len + 1).await? != *winner {
        return Err(unfit(
            "an object does not read as the winner of a race wrote it",
        ));
    }
    Ok(())
}

fn lost(outcome: Result<()>) -> Result<bool> {
    match outcome {
        Ok(()) => Ok(false),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(true),
        Err(e) => Err(e),
    }
}

fn unfit(reason: &str) -> Error {
    Error::unsupported(format!("the store is unfit for checkpoints: {reason}"))
}

async fn clean(folder: &StoreRoot) -> Result<()> {
    for entry in folder.list("").await? {
        folder.delete(&entry.name).await?;
    }
    folder.remove_folder("").await.map(drop)
}
