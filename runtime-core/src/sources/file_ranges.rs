use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use state_api::{Error, Result};

use super::FileSplit;
use super::file_split::head_hash;

/// Ranges below this many bytes are not worth a subtask.
const SMALLEST: u64 = 4096;

/// More ranges of one file make checkpoints larger without making anything faster.
const MOST: u64 = 1024;

/// Tells whether a split is of the input: where that is a single file, of this one.
pub(super) fn has(path: &Path, split: &FileSplit) -> bool {
    !path.is_file() || path.file_name().is_some_and(|name| *name == *split.file)
}

/// Returns the folder that holds the input, and the input's files in the order of their names.
pub(super) fn list(path: &Path) -> Result<(PathBuf, Vec<String>)> {
    let metadata = fs::metadata(path).map_err(|e| unusable(path, e))?;
    if metadata.is_file() {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .ok_or_else(|| not_text(path))?;
        return Ok((folder_of(path), vec![name.to_owned()]));
    }
    if !metadata.is_dir() {
        return Err(
            Error::config("the input is neither a regular file nor a folder")
                .with("input", path.display()),
        );
    }
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(|e| unusable(path, e))? {
        let entry = entry.map_err(|e| unusable(path, e))?;
        let file = entry.path();
        let name = entry
            .file_name()
            .into_string()
            .map_err(|_| not_text(&file))?;
        // Hidden files and those with an underscore are somebody's work in progress, by convention.
        if name.starts_with(['.', '_']) {
            continue;
        }
        // Follows links; a dangling one is an error, not a file less.
        if fs::metadata(&file)
            .map_err(|e| unusable(&file, e))?
            .is_file()
        {
            names.push(name);
        }
    }
    if names.is_empty() {
        return Err(Error::config(
            "the input folder holds no files (folders within it are not read)",
        )
        .with("input", path.display()));
    }
    names.sort_unstable();
    Ok((path.to_owned(), names))
}

/// Returns the folder in which the files of an input are, without looking.
pub(super) fn folder(path: &Path) -> PathBuf {
    if path.is_dir() {
        path.to_owned()
    } else {
        folder_of(path)
    }
}

/// Divides files into ranges of whole lines: about `range_bytes` each, and enough of them for `parallelism` subtasks.
pub(super) fn divide(
    folder: &Path,
    names: &[String],
    range_bytes: u64,
    parallelism: u32,
) -> Result<Vec<FileSplit>> {
    let mut files = Vec::new();
    for name in names {
        let path = folder.join(name);
        let mut file = File::open(&path).map_err(|e| unusable(&path, e))?;
        let length = file.metadata().map_err(|e| unusable(&path, e))?.len();
        let head = head_hash(&mut file, length).map_err(|e| unusable(&path, e))?;
        files.push((name, length, head));
    }
    let total: u64 = files.iter().map(|(_, length, _)| length).sum();
    let mut splits = Vec::new();
    for (ordinal, (name, length, head_hash)) in (0u64..).zip(files) {
        let wanted = ranges(length, total, range_bytes, parallelism);
        let path = folder.join(name);
        let cuts = cuts(&path, length, wanted).map_err(|e| unusable(&path, e))?;
        for pair in cuts.windows(2) {
            if let &[start, end] = pair {
                splits.push(FileSplit {
                    file: name.clone(),
                    ordinal,
                    start,
                    end,
                    position: start,
                    length,
                    head_hash,
                });
            }
        }
    }
    Ok(splits)
}

fn ranges(length: u64, total: u64, range_bytes: u64, parallelism: u32) -> u64 {
    let by_size = length.div_ceil(range_bytes.max(1)).min(MOST);
    let share = u128::from(parallelism) * u128::from(length);
    let by_parallelism =
        u64::try_from(share.div_ceil(u128::from(total.max(1)))).unwrap_or(u64::MAX);
    by_size.max(by_parallelism.min(length / SMALLEST)).max(1)
}

/// Returns the offsets at which ranges begin and end: 0, starts of lines, and the length.
fn cuts(path: &Path, length: u64, wanted: u64) -> io::Result<Vec<u64>> {
    if length == 0 {
        return Ok(Vec::new());
    }
    let mut cuts = vec![0];
    if wanted > 1 {
        let mut file = File::open(path)?;
        for n in 1..wanted {
            let nominal = u64::try_from(u128::from(length) * u128::from(n) / u128::from(wanted))
                .unwrap_or(length);
            let last = cuts.last().copied().unwrap_or(0);
            // A line that is longer than a range has swallowed this cut.
            if nominal <= last {
                continue;
            }
            let cut = next_line(&mut file, nominal, length)?;
            if cut >= length {
                break;
            }
            if cut > last {
                cuts.push(cut);
            }
        }
    }
    cuts.push(length);
    Ok(cuts)
}

/// Finds the first line that starts at `from` or behind it.
fn next_line(file: &mut File, from: u64, length: u64) -> io::Result<u64> {
    let mut at = from.saturating_sub(1);
    let mut chunk = [0; 8192];
    file.seek(SeekFrom::Start(at))?;
    while at < length {
        let read = match file.read(&mut chunk) {
            Ok(0) => break,
            Ok(read) => read,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        let filled = chunk.get(..read).unwrap_or_default();
        if let Some(end) = memchr::memchr(b'\n', filled) {
            return Ok(at + end as u64 + 1);
        }
        at += read as u64;
    }
    Ok(length)
}

fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn unusable(path: &Path, cause: io::Error) -> Error {
    let message = match cause.kind() {
        io::ErrorKind::NotFound => "the input does not exist",
        io::ErrorKind::PermissionDenied => "the input may not be read",
        _ => {
            return Error::retryable("the input can't be read")
                .with("input", path.display())
                .caused_by(cause);
        }
    };
    Error::config(message)
        .with("input", path.display())
        .caused_by(cause)
}

fn not_text(path: &Path) -> Error {
    Error::config("the name of an input file is not UTF-8 text").with("input", path.display())
}
