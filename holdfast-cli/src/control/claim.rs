use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use state_api::{Error, Result};

use super::folder;

/// How often a lock file is opened that others remove at the same time.
const TRIES: u32 = 100;

/// What came of asking for a socket.
#[derive(Debug)]
pub(crate) enum Claimed {
    /// This process listens there, and nobody else does until it ends.
    Ours(Claim),
    /// A process that lives listens there.
    Busy {
        /// Its id, if it left it.
        process: Option<u32>,
    },
}

/// The right to listen at a path, for as long as this value lives.
///
/// A lock on a file beside the socket says whether its owner is alive: the system takes it back when the process ends, however that happens.
#[derive(Debug)]
pub(crate) struct Claim {
    socket: PathBuf,
    lock_file: PathBuf,
    /// Device and inode of the socket: what somebody else puts in its place is not removed.
    identity: (u64, u64),
    listener: Option<UnixListener>,
    _lock: File,
}

impl Claim {
    /// Listens at a path, in place of a socket whose owner is dead.
    ///
    /// # Errors
    /// `Config` when the path is too long, something else is in the way, or the folder can't be written.
    pub(crate) fn of(socket: &Path) -> Result<Claimed> {
        folder::check_length(socket)?;
        let mut lock_file = socket.as_os_str().to_owned();
        lock_file.push(".lock");
        let lock_file = PathBuf::from(lock_file);
        let Some(mut lock) = locked(&lock_file)? else {
            return Ok(Claimed::Busy {
                process: process_in(&lock_file),
            });
        };
        if let Some(busy) = clear(socket)? {
            return Ok(busy);
        }
        let failed = |error| cant_listen(socket).caused_by(error);
        let listener = UnixListener::bind(socket).map_err(failed)?;
        // Whoever connects is asked for the user id as well.
        fs::set_permissions(socket, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let made = fs::symlink_metadata(socket).map_err(failed)?;
        let written = lock.set_len(0).and_then(|()| lock.rewind()).and_then(|()| {
            // Read by people and by whoever finds the lock taken.
            lock.write_all(format!("{}\n", std::process::id()).as_bytes())
        });
        written.map_err(|error| cant_listen(&lock_file).caused_by(error))?;
        Ok(Claimed::Ours(Self {
            socket: socket.to_owned(),
            lock_file,
            identity: (made.dev(), made.ino()),
            listener: Some(listener),
            _lock: lock,
        }))
    }

    /// Returns the path that is listened at.
    pub(crate) fn path(&self) -> &Path {
        &self.socket
    }

    /// Hands out what accepts connections, once.
    pub(crate) fn listener(&mut self) -> Option<UnixListener> {
        self.listener.take()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.socket)
            .is_ok_and(|found| (found.dev(), found.ino()) == self.identity);
        if ours {
            drop(fs::remove_file(&self.socket));
            // Still locked: nobody takes it for a dead one's.
            drop(fs::remove_file(&self.lock_file));
        }
    }
}

/// Opens and locks the lock file; `None` when a process that lives holds it.
fn locked(path: &Path) -> Result<Option<File>> {
    let failed = |error: io::Error| {
        let what = match error.kind() {
            io::ErrorKind::NotFound => "its folder is missing".to_owned(),
            _ if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
                "it is a link".to_owned()
            }
            _ => error.to_string(),
        };
        Error::config(format!(
            "the lock file {} can't be used: {what}",
            path.display()
        ))
    };
    let flags = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or(0);
    for _ in 0..TRIES {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(flags);
        let file = options.open(path).map_err(failed)?;
        let opened = file.metadata().map_err(failed)?;
        if !opened.is_file() || opened.uid() != geteuid().as_raw() {
            return Err(Error::config(format!(
                "the lock file {} is not ours",
                path.display()
            )));
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        // An owner that ends removes its lock file: a lock on a file without a name protects nothing.
        let named = fs::symlink_metadata(path)
            .is_ok_and(|now| (now.dev(), now.ino()) == (opened.dev(), opened.ino()));
        if named {
            return Ok(Some(file));
        }
    }
    Err(Error::retryable(format!(
        "others keep removing the lock file {}",
        path.display()
    )))
}

/// Removes a socket that nobody listens at.
fn clear(socket: &Path) -> Result<Option<Claimed>> {
    let found = match fs::symlink_metadata(socket) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(cant_listen(socket).caused_by(error)),
    };
    if !found.file_type().is_socket() || found.uid() != geteuid().as_raw() {
        let what = match found.file_type() {
            kind if kind.is_socket() => "a socket of another user",
            kind if kind.is_symlink() => "a link",
            kind if kind.is_dir() => "a folder",
            _ => "a file",
        };
        return Err(cant_listen(socket).with("in the way", what));
    }
    // A program without a lock may listen there.
    match UnixStream::connect(socket) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(socket).map_err(|error| cant_listen(socket).caused_by(error))?;
            Ok(None)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Ok(_) => Ok(Some(Claimed::Busy { process: None })),
        Err(error) => Err(cant_listen(socket).caused_by(error)),
    }
}

fn cant_listen(socket: &Path) -> Error {
    Error::config(format!(
        "nothing can be listened to at {}",
        socket.display()
    ))
}

/// Reads the process id that an owner has left in its lock file.
fn process_in(lock_file: &Path) -> Option<u32> {
    let mut text = String::new();
    File::open(lock_file)
        .ok()?
        .take(32)
        .read_to_string(&mut text)
        .ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn ours(socket: &Path) -> Claim {
        match Claim::of(socket).unwrap() {
            Claimed::Ours(claim) => claim,
            busy => panic!("{busy:?}"),
        }
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_claim_listens_for_its_user_alone_and_leaves_nothing_behind() {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("job.sock");
        let mut claim = ours(&socket);
        assert_eq!(names(place.path()), ["job.sock", "job.sock.lock"]);
        assert_eq!(fs::metadata(&socket).unwrap().mode() & 0o777, 0o600);
        assert!(claim.listener().is_some() && claim.listener().is_none());
        drop(claim);
        assert!(names(place.path()).is_empty());
    }

    #[test]
    fn a_second_claim_learns_who_listens_and_gets_the_path_when_the_first_has_gone() {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("job.sock");
        let first = ours(&socket);
        for _ in 0..3 {
            let second = Claim::of(&socket).unwrap();
            assert!(
                matches!(second, Claimed::Busy { process: Some(id) } if id == std::process::id()),
                "{second:?}"
            );
        }
        assert!(UnixStream::connect(&socket).is_ok());
        drop(first);
        drop(ours(&socket));
    }

    #[test]
    fn a_socket_whose_owner_is_dead_is_replaced_and_that_of_a_stranger_who_lives_is_not() {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("job.sock");
        let stranger = UnixListener::bind(&socket).unwrap();
        assert!(matches!(
            Claim::of(&socket).unwrap(),
            Claimed::Busy { process: None }
        ));
        drop(stranger);
        assert!(UnixStream::connect(&socket).is_err());
        let claim = ours(&socket);
        assert!(UnixStream::connect(&socket).is_ok());
        drop(claim);
    }

    #[test]
    fn what_is_no_socket_is_left_alone() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::write(at("file.sock"), "precious").unwrap();
        fs::create_dir(at("folder.sock")).unwrap();
        symlink(at("file.sock"), at("link.sock")).unwrap();
        for (name, what) in [
            ("file.sock", "a file"),
            ("folder.sock", "a folder"),
            ("link.sock", "a link"),
        ] {
            let told = Claim::of(&at(name)).unwrap_err().to_string();
            assert!(told.contains(what) && told.contains(name), "{told}");
        }
        assert_eq!(fs::read(at("file.sock")).unwrap(), b"precious");
        fs::write(at("victim"), "precious").unwrap();
        symlink(at("victim"), at("trap.sock.lock")).unwrap();
        let told = Claim::of(&at("trap.sock")).unwrap_err().to_string();
        assert!(told.contains("it is a link"), "{told}");
        assert_eq!(fs::read(at("victim")).unwrap(), b"precious");
        assert!(
            Claim::of(&at("no/folder.sock"))
                .unwrap_err()
                .to_string()
                .contains("folder is missing")
        );
    }

    #[test]
    fn a_socket_that_another_has_put_in_place_of_ours_is_not_removed() {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("job.sock");
        let claim = ours(&socket);
        fs::remove_file(&socket).unwrap();
        let other = UnixListener::bind(&socket).unwrap();
        drop(claim);
        assert!(UnixStream::connect(&socket).is_ok());
        drop(other);
    }
}
