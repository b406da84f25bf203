//! A disk that can be full.
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{Worker, holdfast, rows};

/// Rows of an output folder, sorted.
pub(crate) struct Rows(pub(crate) Vec<String>);

/// A folder for what a job writes, which it can be made to find full.
///
/// A small file system in memory, in a mount namespace of the test's own, gives the true error; where the system does not let
/// this user make one, the largest size of a file is limited for the process instead (Linux), and elsewhere nothing is done.
pub(crate) struct Disk {
    folder: tempfile::TempDir,
    /// Keeps the namespace.
    keeper: Option<Child>,
}

/// A disk that is full until it is freed.
pub(crate) enum Full {
    /// The file that takes all the room.
    Ballast(PathBuf),
    /// The process whose files must not grow.
    Limited(i32),
    /// Not full at all.
    Not,
}

impl Disk {
    /// Makes one of some megabytes, mounted if that is wanted and can be.
    pub(crate) fn new(mounted: bool, megabytes: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let keeper = mounted.then(|| keeper(folder.path(), megabytes)).flatten();
        Self { folder, keeper }
    }

    /// Says how a disk becomes full here.
    pub(crate) fn what(&self) -> &'static str {
        match (&self.keeper, cfg!(target_os = "linux")) {
            (Some(_), _) => "small file systems in memory (ENOSPC)",
            (None, true) => "limits on the size of files (EFBIG), since this user may not mount",
            (None, false) => "left out: there is no way to make one here",
        }
    }

    /// The folder as the job sees it.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The folder as this process sees it.
    fn seen(&self) -> PathBuf {
        self.seen_at(self.folder.path())
    }

    /// A folder of the job's, on this disk or not, as this process sees it.
    fn seen_at(&self, folder: &Path) -> PathBuf {
        match &self.keeper {
            Some(keeper) => {
                let inside = folder.strip_prefix("/").unwrap();
                Path::new(&format!("/proc/{}/root", keeper.id())).join(inside)
            }
            None => folder.to_owned(),
        }
    }

    /// The names in a folder of the job's, none if it is not there.
    pub(crate) fn names(&self, folder: &Path) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.seen_at(folder)) else {
            return Vec::new();
        };
        let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
        entries
            .map(|entry| name(entry).into_string().unwrap())
            .collect()
    }

    /// Describes a run of the program on this disk.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let program = holdfast(arguments);
        let mut command = match &self.keeper {
            Some(keeper) => {
                let mut command = Command::new("nsenter");
                command.args([
                    "--preserve-credentials",
                    "--user",
                    "--mount",
                    "--target",
                    &keeper.id().to_string(),
                    "--",
                ]);
                command
            }
            None => {
                // A file that would grow too large is an error then, and no signal that ends the process.
                let mut command = Command::new("sh");
                command.args(["-c", "trap '' XFSZ; exec \"$@\"", "sh"]);
                command
            }
        };
        command
            .arg(program.get_program())
            .args(program.get_args())
            .env_remove("HOLDFAST_LOG")
            .stdin(Stdio::null());
        command
    }

    /// The rows of a folder on this disk.
    pub(crate) fn rows(&self, folder: &str) -> Rows {
        Rows(rows(&self.seen().join(folder)))
    }

    /// Makes the disk full for a run.
    pub(crate) fn fill(&self, worker: &Worker) -> Full {
        if self.keeper.is_none() {
            return limit(worker.id(), Some(1));
        }
        let path = self.seen().join("ballast");
        let mut ballast = std::fs::File::create(&path).unwrap();
        for size in [1 << 16, 1 << 12, 1 << 8, 1] {
            while ballast.write_all(&vec![0; size]).is_ok() {}
        }
        Full::Ballast(path)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Some(keeper) = &mut self.keeper {
            drop(keeper.kill());
            drop(keeper.wait());
        }
    }
}

impl Full {
    /// Makes room again; the process may have ended.
    pub(crate) fn free(self) {
        match self {
            Self::Ballast(path) => std::fs::remove_file(path).unwrap(),
            Self::Limited(process) => drop(limit(process, None)),
            Self::Not => {}
        }
    }
}

/// Mounts a small file system that only this process and those that it starts into its namespace see.
fn keeper(folder: &Path, megabytes: u32) -> Option<Child> {
    let script = "mount -t tmpfs -o \"size=$2m\" tmpfs \"$1\" && echo mounted && exec cat";
    let mut keeper = Command::new("unshare")
        .args([
            "--user",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            script,
            "sh",
        ])
        .arg(folder)
        .arg(megabytes.to_string())
        // It ends when this process does.
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut line = String::new();
    let told = BufReader::new(keeper.stdout.as_mut()?).read_line(&mut line);
    let entered = || {
        let id = keeper.id().to_string();
        let mut command = Command::new("nsenter");
        command.args([
            "--preserve-credentials",
            "--user",
            "--mount",
            "--target",
            &id,
            "--",
            "true",
        ]);
        command
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    let seen = || std::fs::read_dir(format!("/proc/{}/root", keeper.id())).is_ok();
    if told.is_ok() && line == "mounted\n" && entered() && seen() {
        return Some(keeper);
    }
    drop(keeper.kill());
    drop(keeper.wait());
    None
}

#[cfg(target_os = "linux")]
fn limit(process: i32, bytes: Option<u64>) -> Full {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let limit = Rlimit {
        current: bytes,
        maximum: None,
    };
    // A process that has ended needs no limit.
    match prlimit(Pid::from_raw(process), Resource::Fsize, limit) {
        Ok(_) => Full::Limited(process),
        Err(_) => Full::Not,
    }
}

#[cfg(not(target_os = "linux"))]
fn limit(_process: i32, _bytes: Option<u64>) -> Full {
    Full::Not
}
