use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use state_api::{
    Error, IncrementalHandle, KeyGroupRange, KeyedHandle, RestoreContext, RestoreTimes, Result,
    StateHandle, StateMeta,
};

use super::clip::{Beyond, Rewriting};
use super::download::{assemble, naming, read_again};
use super::frozen::Frozen;
use super::laps::{Laps, Part};
use super::layout::{Bounds, Layout, file_name};
use super::merge::{Origin, Plan, Source, merge};
use super::{FORMAT, LAYOUT, Objects};
use crate::database::{ColumnCell, Database};
use crate::error::folder_failed;
use crate::folder::InstanceFolder;
use crate::key_access::KeyAccess;
use crate::tuning::Tuning;

/// What a restore has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreStats {
    /// Files that were fetched from the store.
    pub fetched_files: u64,
    /// Bytes that were fetched from the store.
    pub fetched_bytes: u64,
    /// Files that were not fetched, since they were there as local copies.
    pub copied_files: u64,
    /// Bytes of the files that were there as local copies.
    pub copied_bytes: u64,
    /// Files of the snapshots that hold none of the key groups, and were not fetched.
    pub skipped_files: u64,
    /// Bytes of the files that were not fetched.
    pub skipped_bytes: u64,
    /// Bytes that were written because files reached beyond the key groups, so far: it goes on in the background. What is flushed
    /// or compacted meanwhile for other reasons is not among them.
    pub rewritten_bytes: u64,
    /// Parts of the snapshot that had to be cleaned before they could be put together with others.
    pub cleaned_parts: u64,
    /// What the time went to until the store could be used; files that are written anew in the background are not in it.
    pub times: RestoreTimes,
}

/// A database made of snapshots.
pub(crate) struct Restored {
    pub(crate) database: Arc<Database>,
    pub(crate) columns: Vec<Arc<ColumnCell>>,
    /// The objects that its files came from.
    pub(crate) objects: Objects,
    pub(crate) states: Vec<StateMeta>,
    pub(crate) stats: RestoreStats,
    /// Files that reach beyond the key groups, on their way out.
    pub(crate) rewriting: Option<Rewriting>,
}

/// Where a restore works.
pub(crate) struct Place<'a> {
    pub(crate) folder: &'a Arc<InstanceFolder>,
    pub(crate) tuning: &'a Tuning,
    pub(crate) prefix_len: usize,
    pub(crate) transfers: usize,
    /// Whether files that reach beyond the key groups are written anew.
    pub(crate) compacts: bool,
}

impl Place<'_> {
    /// Makes a database at a path with the key groups of a range out of handles. Nothing is left there after an error.
    ///
    /// # Errors
    /// `Incompatible` for handles of another format or with contradictory states; `Corrupt`, naming the object, when bytes are
    /// missing or damaged; those of storage and disk.
    pub(crate) async fn restore(
        &self,
        path: PathBuf,
        handles: &[KeyedHandle],
        range: KeyGroupRange,
        laps: &mut Laps,
        cx: &RestoreContext,
    ) -> Result<Restored> {
        let mut states: Vec<StateMeta> = Vec::new();
        let mut sources = Vec::new();
        for handle in handles {
            let KeyedHandle::Incremental(handle) = handle else {
                return Err(not_ours(handle.format()));
            };
            if &*handle.format != FORMAT {
                return Err(not_ours(&handle.format));
            }
            add_states(&mut states, handle)?;
            if handle.range.intersect(range).is_empty() {
                continue;
            }
            sources.push(self.source(handle, cx).await?);
        }
        laps.end(Part::Fetch);
        let mut work = Work {
            stats: RestoreStats::default(),
            laps,
        };
        let mut scratches = Vec::new();
        if sources.len() > 1 {
            for (number, source) in sources.iter_mut().enumerate() {
                if !source.reaches_beyond_its_range() {
                    continue;
                }
                let scratch = Scratch(path.with_extension(format!("part-{number}")));
                *source = self.clean(source, range, &scratch, &mut work, cx).await?;
                scratches.push(scratch);
                work.stats.cleaned_parts += 1;
            }
        }
        let bounds = Bounds::of(range, self.prefix_len);
        let plan = merge(&sources, &bounds)?;
        count(&mut work.stats, &plan);
        let scratch = Scratch(path.clone());
        let (database, columns, beyond) = self
            .open(&plan, &bounds, &path, &states, &mut work, cx)
            .await?;
        scratch.keep();
        drop(scratches);
        let stored = |(number, origin)| match origin {
            Origin::Stored(handle) => Some((number, handle)),
            Origin::Local(_) => None,
        };
        Ok(Restored {
            database,
            columns,
            objects: plan.origins.into_iter().filter_map(stored).collect(),
            states,
            stats: work.stats,
            rewriting: beyond
                .filter(|_| self.compacts)
                .map(Beyond::rewrite_meanwhile),
        })
    }

    /// Reads the layout of a handle.
    async fn source(&self, handle: &IncrementalHandle, cx: &RestoreContext) -> Result<Source> {
        let mut files: BTreeMap<&str, &StateHandle> = BTreeMap::new();
        for file in handle.private.iter().chain(&handle.shared) {
            if files.insert(&file.name, &file.bytes).is_some() {
                let error = Error::corrupt("a file is twice in the snapshot");
                return Err(naming(error.with("file", &file.name), &file.bytes));
            }
        }
        let Some(bytes) = files.remove(LAYOUT) else {
            return Err(Error::corrupt("the snapshot has no layout of its files"));
        };
        let read = async { Layout::decode(&read_again(bytes, cx).await?) };
        let layout = read.await.map_err(|e| naming(e, bytes))?;
        if layout.prefix_len != self.prefix_len {
            return Err(Error::incompatible(
                "key groups of the snapshot take another number of bytes",
            ));
        }
        let mut origins = BTreeMap::new();
        for file in layout.files() {
            let Some(bytes) = files.remove(file_name(file.number).as_str()) else {
                return Err(Error::corrupt("the snapshot lacks a file of its layout")
                    .with("file", file.name()));
            };
            origins.insert(file.number, Origin::Stored(bytes.clone()));
        }
        if let Some((name, bytes)) = files.first_key_value() {
            let error = Error::corrupt("a file of the snapshot is not in its layout");
            return Err(naming(error.with("file", name), bytes));
        }
        Ok(Source {
            range: handle.range,
            layout,
            origins,
        })
    }

    /// Makes a database of one source alone, removes what is beyond its range, and returns its files.
    async fn clean(
        &self,
        source: &Source,
        range: KeyGroupRange,
        scratch: &Scratch,
        work: &mut Work<'_>,
        cx: &RestoreContext,
    ) -> Result<Source> {
        let range = source.range.intersect(range);
        let bounds = Bounds::of(range, self.prefix_len);
        let plan = merge(std::slice::from_ref(source), &bounds)?;
        count(&mut work.stats, &plan);
        let (database, columns, beyond) =
            self.open(&plan, &bounds, &scratch.0, &[], work, cx).await?;
        let prefix_len = self.prefix_len;
        let (layout, links) = (scratch.0.clone(), scratch.0.join("links"));
        let (cleaned, rewritten) = cx
            .executor
            .on_cpu(move || {
                let rewritten = beyond.map_or(0, |beyond| beyond.rewrite());
                let frozen = Frozen::cut_and_wait(&database, &columns, prefix_len)?;
                fs::create_dir_all(&links)
                    .map_err(|e| folder_failed("create folder", &links, e))?;
                let layout = frozen.layout()?;
                let mut origins = BTreeMap::new();
                for file in layout.files() {
                    frozen.link(file.number, &links)?;
                    origins.insert(file.number, Origin::Local(links.join(file.name())));
                }
                let cleaned = Source {
                    range,
                    layout,
                    origins,
                };
                Ok((cleaned, rewritten))
            })
            .await?;
        work.laps.end(Part::Clip);
        work.stats.rewritten_bytes += rewritten;
        tracing::warn!(path = %layout.display(), "a part of a snapshot held more than its key groups, and was cleaned by itself");
        Ok(cleaned)
    }

    /// Fetches the files of a plan, opens the database, and deletes what is beyond the bounds.
    async fn open(
        &self,
        plan: &Plan,
        bounds: &Bounds,
        path: &Path,
        states: &[StateMeta],
        work: &mut Work<'_>,
        cx: &RestoreContext,
    ) -> Result<(Arc<Database>, Vec<Arc<ColumnCell>>, Option<Beyond>)> {
        let from_copies = assemble(plan, path, self.folder, self.transfers, cx).await?;
        work.laps.end(Part::Fetch);
        let stats = &mut work.stats;
        stats.copied_files += from_copies.files;
        stats.copied_bytes += from_copies.bytes;
        stats.fetched_files = stats.fetched_files.saturating_sub(from_copies.files);
        stats.fetched_bytes = stats.fetched_bytes.saturating_sub(from_copies.bytes);
        let (folder, tuning) = (Arc::clone(self.folder), self.tuning.clone());
        let (path, bounds) = (path.to_owned(), bounds.clone());
        let (layout, crossing) = (plan.layout.clone(), plan.crossing.clone());
        let (states, prefix_len) = (states.to_vec(), self.prefix_len);
        let clock = Arc::clone(work.laps.clock());
        let (database, columns, beyond, opened_ns) = cx
            .executor
            .on_cpu(move || {
                let access = |state: &str| {
                    let meta = states.iter().find(|meta| &*meta.name == state);
                    meta.map_or(KeyAccess::Ordered, |meta| KeyAccess::of(meta, prefix_len))
                };
                let database = Database::open(folder, path, tuning, access).map_err(of_snapshot)?;
                let columns = database
                    .states()
                    .iter()
                    .map(|state| database.column(state, access(state)))
                    .collect::<Result<Vec<_>>>()?;
                let opened_ns = clock.monotonic_ns();
                let beyond = match crossing.is_empty() {
                    true => None,
                    false => Some(Beyond::delete(
                        &database, &columns, &layout, &crossing, &bounds,
                    )?),
                };
                Ok((database, columns, beyond, opened_ns))
            })
            .await?;
        if beyond.is_some() {
            work.laps.end_at(Part::Open, opened_ns);
            work.laps.end(Part::Clip);
        } else {
            work.laps.end(Part::Open);
        }
        Ok((database, columns, beyond))
    }
}

/// What is counted while a restore works.
struct Work<'a> {
    stats: RestoreStats,
    laps: &'a mut Laps,
}

/// Says that files which are whole, but not RocksDB's or not those of the layout, are the snapshot's fault, not the disk's.
fn of_snapshot(error: Error) -> Error {
    let native = std::error::Error::source(&error).and_then(|e| e.downcast_ref::<rocksdb::Error>());
    match native.map(rocksdb::Error::kind) {
        Some(rocksdb::ErrorKind::Corruption) => {
            Error::corrupt("the files of the snapshot are not those of its layout").caused_by(error)
        }
        _ => error,
    }
}

/// A folder that is removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn keep(mut self) {
        self.0 = PathBuf::new();
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.0.exists()
            && let Err(error) = fs::remove_dir_all(&self.0)
        {
            tracing::warn!(path = %self.0.display(), %error, "the files of a restore can't be removed");
        }
    }
}

fn count(stats: &mut RestoreStats, plan: &Plan) {
    stats.skipped_files += plan.skipped_files;
    stats.skipped_bytes += plan.skipped_bytes;
    for origin in plan.origins.values() {
        if let Origin::Stored(handle) = origin {
            stats.fetched_files += 1;
            stats.fetched_bytes += handle.len();
        }
    }
}

fn add_states(states: &mut Vec<StateMeta>, handle: &IncrementalHandle) -> Result<()> {
    for state in &handle.states {
        match states.iter().find(|meta| meta.name == state.meta.name) {
            Some(meta) if *meta != state.meta => {
                return Err(Error::incompatible(
                    "two parts of the snapshot describe the state in different ways",
                )
                .with("state", &state.meta.name));
            }
            Some(_) => {}
            None => states.push(state.meta.clone()),
        }
    }
    Ok(())
}

fn not_ours(format: &str) -> Error {
    Error::incompatible(format!(
        "keyed state is in the format {format:?}, not in {FORMAT:?}; to change the backend, convert the checkpoint to the canonical format or take a canonical savepoint"
    ))
}
