use std::fs;
use std::path::Path;

use state_api::{ErrorKind, JobId};

use super::client::{Reachable, is_listening};
use super::folder::{SOCKET, SocketFolders, check, socket_of};
use crate::failure::{Exit, Failure, plain};

/// The running jobs of a user, and where they were looked for.
pub(crate) struct Found {
    /// By name.
    pub(crate) jobs: Vec<Reachable>,
    /// One phrase for each place.
    looked: Vec<String>,
}

impl Found {
    /// Says where was looked, in one phrase.
    pub(crate) fn looked(&self) -> String {
        format!("looked in {}", self.looked.join(" and "))
    }

    fn names(&self) -> String {
        let names: Vec<&str> = self.jobs.iter().map(|job| job.name.as_str()).collect();
        names.join(", ")
    }
}

/// Looks for every job of this user that runs.
pub(crate) async fn running(folders: &SocketFolders) -> Found {
    let mut found = Found {
        jobs: Vec::new(),
        looked: Vec::new(),
    };
    for folder in folders.all() {
        let shown = folder.display();
        match check(folder) {
            Ok(()) => {
                let sockets = sockets_in(folder);
                let (mut alive, mut dead) = (0, 0);
                for job in sockets {
                    match is_listening(&job.socket).await {
                        Ok(true) => {
                            alive += 1;
                            found.jobs.push(job);
                        }
                        Ok(false) | Err(_) => dead += 1,
                    }
                }
                found.looked.push(match (alive, dead) {
                    (0, 0) => format!("{shown} (empty)"),
                    (_, 0) => shown.to_string(),
                    (_, 1) => format!("{shown} (1 socket of a process that has died)"),
                    (_, n) => format!("{shown} ({n} sockets of processes that have died)"),
                });
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                found.looked.push(format!("{shown} (not there)"))
            }
            Err(error) => found.looked.push(plain(&error)),
        }
    }
    found.jobs.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

fn sockets_in(folder: &Path) -> Vec<Reachable> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let name = name.strip_suffix(SOCKET)?.strip_suffix('.')?.to_owned();
            JobId::new(&name).ok()?;
            Some(Reachable {
                name,
                socket: entry.path(),
            })
        })
        .collect()
}

/// Finds the job that a command line names: by its id, by the path of its socket, or by being the only one.
///
/// # Errors
/// When it does not run, or several do and none is named: the line names those that run.
pub(crate) async fn find(folders: &SocketFolders, job: Option<&str>) -> Result<Reachable, Failure> {
    if let Some(path) = job.filter(|job| job.contains('/')) {
        return Ok(Reachable {
            name: path.to_owned(),
            socket: path.into(),
        });
    }
    if let Some(name) = job {
        JobId::new(name)?;
        for folder in folders.all() {
            let socket = socket_of(folder, name);
            if check(folder).is_ok() && is_listening(&socket).await.unwrap_or(false) {
                return Ok(Reachable {
                    name: name.to_owned(),
                    socket,
                });
            }
        }
    }
    let mut found = running(folders).await;
    match (job, found.jobs.len()) {
        (None, 1) => Ok(found.jobs.remove(0)),
        (None, 0) => Err(Failure::new(
            Exit::NotRunning,
            format!("no job is running ({})", found.looked()),
        )),
        (None, n) => Err(Failure::usage(format!(
            "{n} jobs are running: name one of {}",
            found.names()
        ))),
        (Some(name), 0) => Err(Failure::new(
            Exit::NotRunning,
            format!(
                "job {name} is not running, nor any other ({})",
                found.looked()
            ),
        )),
        (Some(name), _) => Err(Failure::new(
            Exit::NotRunning,
            format!(
                "job {name} is not running; running: {} ({})",
                found.names(),
                found.looked()
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::folder::prepare;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_job_is_found_by_name_by_path_or_by_being_the_only_one() {
        let place = tempfile::tempdir().unwrap();
        let io = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let folders = SocketFolders::of_paths([place.path().join("run"), place.path().join("tmp")]);
        let find = |job: Option<&str>| io.block_on(find(&folders, job));
        let nothing = find(None).unwrap_err();
        assert_eq!(nothing.exit(), Exit::NotRunning);
        assert!(
            nothing.line().contains("run (not there) and "),
            "{}",
            nothing.line()
        );

        let [run, tmp] = [folders.all()[0].clone(), folders.all()[1].clone()];
        prepare(&run).unwrap();
        prepare(&tmp).unwrap();
        let b = UnixListener::bind(socket_of(&tmp, "b")).unwrap();
        drop(UnixListener::bind(socket_of(&run, "dead")).unwrap());
        fs::write(run.join("b.sock.lock"), "").unwrap();
        fs::write(run.join(".sock"), "").unwrap();
        assert_eq!(find(None).unwrap().socket, socket_of(&tmp, "b"));
        assert_eq!(find(Some("b")).unwrap().socket, socket_of(&tmp, "b"));
        let dead = find(Some("dead")).unwrap_err();
        assert_eq!(dead.exit(), Exit::NotRunning);
        assert!(
            dead.line().contains("running: b (looked in")
                && dead.line().contains("a process that has died"),
            "{}",
            dead.line()
        );
        let a = UnixListener::bind(socket_of(&run, "a")).unwrap();
        let several = find(None).unwrap_err();
        assert_eq!(several.exit(), Exit::Usage);
        assert!(
            several.line().ends_with("name one of a, b"),
            "{}",
            several.line()
        );
        assert_eq!(find(Some("./x/y")).unwrap().socket, Path::new("./x/y"));
        assert_eq!(find(Some("..b")).unwrap_err().exit(), Exit::Usage);
        drop((a, b));
    }
}
