use std::ffi::OsString;
use std::fs::{self, DirBuilder, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use state_api::{Error, Result};

/// What a socket's name ends with.
pub(crate) const SOCKET: &str = "sock";

/// The bytes that a path in a socket's address has room for, without the zero at its end.
pub(crate) const LONGEST_PATH: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// The folders that sockets of running jobs lie in: a run uses the first that can hold one, whoever looks for a run tries all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SocketFolders(Vec<PathBuf>);

impl SocketFolders {
    /// Looks at the environment of this process.
    pub(crate) fn of_environment() -> Self {
        Self::of(
            std::env::var_os("XDG_RUNTIME_DIR"),
            &std::env::temp_dir(),
            geteuid().as_raw(),
        )
    }

    /// The user's runtime folder goes before a folder of ours in the one for temporary files.
    ///
    /// A relative path means nothing to another process: the variable counts as missing then, as its specification says.
    fn of(runtime: Option<OsString>, temporary: &Path, user: u32) -> Self {
        let runtime = runtime.map(PathBuf::from).filter(|path| path.is_absolute());
        let mut folders: Vec<PathBuf> = runtime
            .map(|path| path.join("holdfast"))
            .into_iter()
            .collect();
        folders.push(temporary.join(format!("holdfast-{user}")));
        Self(folders)
    }

    #[cfg(test)]
    pub(crate) fn of_paths(folders: impl IntoIterator<Item = PathBuf>) -> Self {
        Self(folders.into_iter().collect())
    }

    /// Returns all folders.
    pub(crate) fn all(&self) -> &[PathBuf] {
        &self.0
    }
}

/// Returns the path of a job's socket in a folder.
pub(crate) fn socket_of(folder: &Path, job: &str) -> PathBuf {
    folder.join(format!("{job}.{SOCKET}"))
}

/// Checks that a path fits into a socket's address.
///
/// # Errors
/// `Config`, naming the length and a way out.
pub(crate) fn check_length(path: &Path) -> Result<()> {
    let length = path.as_os_str().as_bytes().len();
    if length > LONGEST_PATH {
        return Err(Error::config(format!(
            "the path of a socket has {LONGEST_PATH} bytes at most, and {} has {length}: name a shorter one with --socket PATH",
            path.display()
        )));
    }
    Ok(())
}

/// Makes the folder if it is missing, and checks that nobody but its owner, who is this user, gets into it.
///
/// # Errors
/// `Config` when it can't be made, or could be somebody else's trap.
pub(crate) fn prepare(folder: &Path) -> Result<()> {
    check_parent(folder)?;
    match DirBuilder::new().mode(0o700).create(folder) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(unusable(folder, "it can't be made").caused_by(error)),
    }
    check(folder)
}

/// Checks that a folder is this user's own and nobody else's.
///
/// # Errors
/// `NotFound` when there is none; `Config` when it is a link, a file, somebody else's or open to others.
pub(crate) fn check(folder: &Path) -> Result<()> {
    let found = look(folder)?;
    let user = geteuid().as_raw();
    if !found.is_dir() {
        let what = if found.is_symlink() {
            "it is a link"
        } else {
            "it is no folder"
        };
        return Err(unusable(folder, what));
    }
    if found.uid() != user {
        return Err(unusable(
            folder,
            &format!("it belongs to user {}, not to {user}", found.uid()),
        ));
    }
    let mode = found.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(unusable(
            folder,
            &format!(
                "others may use it (mode {mode:03o}): chmod 700 {}",
                folder.display()
            ),
        ));
    }
    Ok(())
}

/// A folder that others may rename entries of could be exchanged after it was checked.
fn check_parent(folder: &Path) -> Result<()> {
    let Some(parent) = folder.parent() else {
        return Ok(());
    };
    // A link such as macOS's /tmp is followed: its own folder belongs to the system.
    let found = fs::metadata(parent)
        .map_err(|error| unusable(parent, "it can't be looked at").caused_by(error))?;
    let user = geteuid().as_raw();
    if found.uid() != user && found.uid() != 0 {
        return Err(unusable(
            parent,
            &format!("it belongs to user {}, not to {user}", found.uid()),
        ));
    }
    if found.mode() & 0o022 != 0 && found.mode() & 0o1000 == 0 {
        return Err(unusable(parent, "others may rename what is in it"));
    }
    Ok(())
}

fn look(folder: &Path) -> Result<Metadata> {
    fs::symlink_metadata(folder).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            Error::not_found("there is no such folder").with("path", folder.display())
        }
        _ => unusable(folder, "it can't be looked at").caused_by(error),
    })
}

fn unusable(folder: &Path, why: &str) -> Error {
    Error::config(format!(
        "the folder {} can't hold sockets: {why}",
        folder.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use state_api::ErrorKind;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn the_users_runtime_folder_goes_before_the_temporary_one() {
        let folders = |runtime: Option<&str>| {
            SocketFolders::of(runtime.map(OsString::from), Path::new("/tmp"), 7).0
        };
        assert_eq!(
            folders(Some("/run/user/7")),
            [
                Path::new("/run/user/7/holdfast"),
                Path::new("/tmp/holdfast-7")
            ]
        );
        for missing in [None, Some(""), Some("run/user/7")] {
            assert_eq!(
                folders(missing),
                [Path::new("/tmp/holdfast-7")],
                "{missing:?}"
            );
        }
    }

    #[test]
    fn a_path_too_long_names_its_length_and_the_way_out() {
        let fits = format!("/{}", "x".repeat(LONGEST_PATH - 1));
        assert!(check_length(Path::new(&fits)).is_ok());
        let error = check_length(Path::new(&format!("{fits}y"))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        let told = error.to_string();
        assert!(
            told.contains(&format!("has {}", LONGEST_PATH + 1)) && told.contains("--socket PATH"),
            "{told}"
        );
    }

    #[test]
    fn a_folder_is_made_for_its_owner_alone_and_found_again() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("holdfast");
        assert_eq!(check(&folder).unwrap_err().kind(), ErrorKind::NotFound);
        for _ in 0..2 {
            prepare(&folder).unwrap();
        }
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_folder_that_is_a_link_a_file_or_open_to_others_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let told = |name: &str| prepare(&place.path().join(name)).unwrap_err().to_string();
        fs::write(place.path().join("file"), "").unwrap();
        assert!(told("file").contains("it is no folder"));
        prepare(&place.path().join("own")).unwrap();
        symlink(place.path().join("own"), place.path().join("link")).unwrap();
        assert!(told("link").contains("it is a link"));
        let open = place.path().join("open");
        prepare(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o750)).unwrap();
        assert!(told("open").contains("mode 750"), "{}", told("open"));
        assert!(told("no/such").contains("can't be looked at"));
    }

    #[test]
    fn a_folder_in_a_place_where_others_may_exchange_it_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let shared = place.path().join("shared");
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).unwrap();
        let told = prepare(&shared.join("holdfast")).unwrap_err().to_string();
        assert!(told.contains("others may rename"), "{told}");
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
        prepare(&shared.join("holdfast")).unwrap();
    }
}
