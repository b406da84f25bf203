use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;

use super::control::{End, RunningJob};
use crate::args::RunArgs;
use crate::control::protocol::Ending;
use crate::control::{Claim, Claimed, Controlled, Server, SocketFolders, prepare, socket_of};
use crate::failure::{Failure, plain};
use crate::terminal::say;

/// Time between two tries to get a socket that another run of the job has.
const AGAIN: Duration = Duration::from_secs(1);

/// How long the end of the process waits for answers on their way.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// Where a job will listen, before it runs.
pub(super) enum Place {
    /// Nowhere.
    Nowhere,
    /// Here.
    Claimed(Claim),
    /// Here, as soon as the other run of the job that lives has gone.
    Taken(PathBuf),
}

impl Place {
    /// Claims the socket of a job.
    ///
    /// A job whose socket nobody asked for runs without one, and says so.
    ///
    /// # Errors
    /// When the socket that the command line names can't be had.
    pub(super) fn of(args: &RunArgs, job: &str) -> Result<(Self, Option<String>), Failure> {
        if args.no_socket {
            return Ok((Self::Nowhere, None));
        }
        if let Some(path) = &args.socket {
            return match Claim::of(path)? {
                Claimed::Ours(claim) => Ok((Self::Claimed(claim), None)),
                Claimed::Busy { process } => Err(Failure::usage(format!(
                    "{} listens at {} already: name another path with --socket",
                    other_process(process),
                    path.display()
                ))),
            };
        }
        Ok(Self::among(&SocketFolders::of_environment(), job))
    }

    /// Claims the socket of a job in the first folder that can hold it: whoever looks for the job goes through them in the same order.
    fn among(folders: &SocketFolders, job: &str) -> (Self, Option<String>) {
        let mut why = Vec::new();
        for folder in folders.all() {
            let path = socket_of(folder, job);
            match prepare(folder).and_then(|()| Claim::of(&path)) {
                Ok(Claimed::Ours(claim)) => return (Self::Claimed(claim), None),
                Ok(Claimed::Busy { process }) => {
                    let told = format!(
                        "{} runs a job {job} already and listens at {}: this run listens there once that one has ended; name it otherwise with --job-id, or its socket with --socket PATH",
                        other_process(process),
                        path.display()
                    );
                    return (Self::Taken(path), Some(told));
                }
                Err(error) => {
                    tracing::debug!(folder = %folder.display(), %error, "no socket here");
                    why.push(plain(&error));
                }
            }
        }
        let told = format!(
            "this run can be controlled by signals only: {} (--socket PATH names another place, --no-socket says that none is wanted)",
            why.join("; ")
        );
        (Self::Nowhere, Some(told))
    }
}

fn other_process(process: Option<u32>) -> String {
    match process {
        Some(id) if id == std::process::id() => "this process".into(),
        Some(id) => format!("process {id}"),
        None => "another process".into(),
    }
}

/// Listens for as long as the job runs.
pub(super) struct Listening {
    task: Option<tokio::task::JoinHandle<()>>,
    end: watch::Sender<End>,
    stop: Arc<tokio::sync::Notify>,
    claim: Arc<Mutex<Option<Claim>>>,
}

/// Removes the socket of a process that ends at once.
#[derive(Clone)]
pub(super) struct Unlisten(Arc<Mutex<Option<Claim>>>);

impl Unlisten {
    pub(super) fn now(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

impl Listening {
    /// Begins to listen.
    pub(super) fn start(
        io: &Handle,
        place: Place,
        job: impl FnOnce(watch::Receiver<End>) -> RunningJob,
    ) -> Self {
        let (end, ended) = watch::channel(None);
        let claim = Arc::new(Mutex::new(None));
        let stop = Arc::new(tokio::sync::Notify::new());
        let task = match place {
            Place::Nowhere => None,
            place => {
                let job: Arc<dyn Controlled> = Arc::new(job(ended));
                let (kept, stopped, handle) = (Arc::clone(&claim), Arc::clone(&stop), io.clone());
                Some(io.spawn(async move {
                    let server = tokio::select! {
                        server = serve(place, job, &kept, &handle) => server,
                        () = stopped.notified() => return,
                    };
                    if let Some(server) = server {
                        stopped.notified().await;
                        server.finish(LAST_ANSWERS).await;
                    }
                }))
            }
        };
        Self {
            task,
            end,
            stop,
            claim,
        }
    }

    /// Returns what removes the socket at once.
    pub(super) fn unlisten(&self) -> Unlisten {
        Unlisten(Arc::clone(&self.claim))
    }

    /// Tells those who wait how the job ended, and removes the socket.
    pub(super) async fn finish(self, end: Result<Ending, String>) {
        self.end.send_replace(Some(end));
        // Whoever comes now finds no job any more.
        Unlisten(self.claim).now();
        self.stop.notify_one();
        if let Some(task) = self.task {
            drop(task.await);
        }
    }
}

/// Accepts connections, once the path is free.
async fn serve(
    place: Place,
    job: Arc<dyn Controlled>,
    kept: &Mutex<Option<Claim>>,
    io: &Handle,
) -> Option<Server> {
    let mut claim = match place {
        Place::Nowhere => return None,
        Place::Claimed(claim) => claim,
        Place::Taken(path) => loop {
            tokio::time::sleep(AGAIN).await;
            match Claim::of(&path) {
                Ok(Claimed::Ours(claim)) => break claim,
                Ok(Claimed::Busy { .. }) => {}
                Err(error) => {
                    tracing::warn!(%error, "this run is not listened to");
                    return None;
                }
            }
        },
    };
    let listener = claim.listener()?;
    tracing::info!(socket = %claim.path().display(), "listening");
    *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(claim);
    match Server::start(io, listener, job) {
        Ok(server) => Some(server),
        Err(error) => {
            say(&format!("warning: nothing can be listened to: {error}"));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_run_listens_in_the_first_folder_that_can_hold_its_socket() {
        let place = tempfile::tempdir().unwrap();
        let missing = place.path().join("no/such/holdfast");
        let file = place.path().join("file");
        fs::write(&file, "").unwrap();
        let own = place.path().join("own");
        let folders = SocketFolders::of_paths([missing.clone(), file, own.clone()]);
        let (claimed, told) = Place::among(&folders, "job");
        let Place::Claimed(claim) = &claimed else {
            panic!("nothing was claimed: {told:?}");
        };
        assert_eq!((claim.path(), told), (&*socket_of(&own, "job"), None));
        // The next run of the job waits for that socket, and for no other.
        let (taken, told) = Place::among(&folders, "job");
        assert!(matches!(&taken, Place::Taken(path) if *path == socket_of(&own, "job")));
        assert!(told.unwrap().contains("runs a job job already"));
        drop(claimed);

        let nowhere = SocketFolders::of_paths([missing.clone(), missing]);
        let (place, told) = Place::among(&nowhere, "job");
        let told = told.unwrap();
        assert!(matches!(place, Place::Nowhere));
        assert_eq!(told.matches("can't be looked at").count(), 2, "{told}");
    }
}
