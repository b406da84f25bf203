use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

/// The objects of one bucket, and uploads under way.
#[derive(Debug, Default)]
pub(super) struct Objects {
    stored: BTreeMap<String, Bytes>,
    uploads: BTreeMap<String, Upload>,
    begun: u64,
}

/// An upload under way.
#[derive(Debug, Default)]
pub(super) struct Upload {
    /// What it is to become.
    pub(super) key: String,
    /// Whether that must not be there yet when it ends.
    pub(super) creates: bool,
    /// By name or number.
    pub(super) parts: BTreeMap<String, Bytes>,
}

/// What lies directly below a prefix.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Keys and lengths.
    pub(super) objects: Vec<(String, usize)>,
    /// With the slash at their end.
    pub(super) folders: BTreeSet<String>,
}

/// An object was to be created and is there.
#[derive(Debug)]
pub(super) struct Taken;

impl Objects {
    pub(super) fn get(&self, key: &str) -> Option<&Bytes> {
        self.stored.get(key)
    }

    pub(super) fn put(&mut self, key: &str, bytes: Bytes, creates: bool) -> Result<(), Taken> {
        if creates && self.stored.contains_key(key) {
            return Err(Taken);
        }
        self.stored.insert(key.to_owned(), bytes);
        Ok(())
    }

    pub(super) fn delete(&mut self, key: &str) -> bool {
        self.stored.remove(key).is_some()
    }

    pub(super) fn list(&self, prefix: &str, by_folder: bool) -> Listing {
        let mut listing = Listing::default();
        for (key, bytes) in self.stored.range(prefix.to_owned()..) {
            let Some(rest) = key.strip_prefix(prefix) else {
                break;
            };
            match rest.split_once('/').filter(|_| by_folder) {
                Some((folder, _)) => {
                    listing.folders.insert(format!("{prefix}{folder}/"));
                }
                None => listing.objects.push((key.clone(), bytes.len())),
            }
        }
        listing
    }

    pub(super) fn begin(&mut self, key: &str, creates: bool) -> String {
        self.begun += 1;
        let id = format!("upload-{}", self.begun);
        self.upload(&id).key = key.to_owned();
        self.upload(&id).creates = creates;
        id
    }

    /// Returns an upload, which begins with this if there is none of the name.
    pub(super) fn upload(&mut self, id: &str) -> &mut Upload {
        self.uploads.entry(id.to_owned()).or_default()
    }

    pub(super) fn has_upload(&self, id: &str) -> bool {
        self.uploads.contains_key(id)
    }

    pub(super) fn abort(&mut self, id: &str) -> bool {
        self.uploads.remove(id).is_some()
    }

    pub(super) fn open_uploads(&self) -> usize {
        self.uploads.len()
    }
}
