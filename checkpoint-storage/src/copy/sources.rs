use std::collections::HashSet;

use bytes::Bytes;
use state_api::{Error, ObjectHandle, RelPath, Result, Root, StateHandle};

use crate::checkpoint::StoredCheckpoint;
use crate::digest::digest_of;
use crate::names::attempt_of_name;
use crate::root::StoreRoot;
use crate::sealed::{SEALED_ENDING, is_sealed};

/// Names that are tried for an object before it is given up.
pub(super) const NAMES: u32 = 1000;

/// What becomes of compression and encryption in a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopySealing {
    /// As the target's folder is set: where that compresses or encrypts, all objects are sealed anew for it; where it does
    /// neither, each object stays as it is stored, for which no key is needed.
    #[default]
    ByTarget,
    /// Objects are stored as they are inside, neither compressed nor encrypted.
    Unsealed,
}

/// What is done with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// What is inside is stored as it is.
    Plain,
    /// The stored bytes are stored again.
    Keep,
    /// What is inside is sealed as the target says.
    Reseal,
}

/// Where the bytes come from.
#[derive(Clone)]
pub(super) enum Body {
    Object(StoreRoot),
    /// Inline in the metadata, where they would be in the clear.
    Inline(Bytes),
}

/// An object to be copied.
pub(super) struct Source {
    pub(super) body: Body,
    pub(super) object: ObjectHandle,
    /// What it is called in the copy, if that is not taken by something that is not whole; without the ending.
    pub(super) name: String,
    pub(super) way: Way,
}

impl Source {
    /// Returns the n-th name in the copy.
    pub(super) fn name(&self, n: u32) -> String {
        let name = match n {
            0 => self.name.clone(),
            n => another_name(&self.name, n),
        };
        match self.way {
            Way::Plain => name,
            Way::Keep | Way::Reseal => name + SEALED_ENDING,
        }
    }
}

/// Returns the distinct objects of a checkpoint, each with the folder that it lies in; and what is inline, where the copy is
/// encrypted.
pub(super) fn sources(
    found: &StoredCheckpoint,
    target: &StoreRoot,
    sealing: CopySealing,
    roots: &[StoreRoot],
) -> Result<Vec<Source>> {
    let reseals = sealing == CopySealing::ByTarget && !target.sealing().is_plain();
    let encrypts = reseals && target.sealing().cipher.is_some();
    let mut sources: Vec<Source> = Vec::new();
    let mut known: HashSet<(&str, &RelPath)> = HashSet::new();
    let mut taken: HashSet<String> = HashSet::new();
    let mut name_of = |name: &str| {
        let mut names = (0..NAMES).map(|n| another_name(name, n));
        names
            .find(|name| taken.insert(name.clone()))
            .ok_or_else(|| Error::bug("an object finds no name"))
    };
    for used in found.metadata.objects() {
        let object = used.object;
        let url = match &object.root {
            Root::Own => found.own.url(),
            Root::Url(url) => url.trim_end_matches('/'),
        };
        if !known.insert((url, &object.path)) {
            continue;
        }
        let mut named = std::iter::once(&found.own).chain(roots);
        let root = named.find(|root| root.url() == url).ok_or_else(|| {
            Error::config("the checkpoint refers to a folder that was not named")
                .with("root", url)
                .with("operator", used.operator)
        })?;
        let path = object.path.as_str();
        let last = path.rsplit('/').next().unwrap_or_default();
        let way = match (reseals, is_sealed(path)) {
            (true, _) => Way::Reseal,
            (false, true) if sealing == CopySealing::ByTarget => Way::Keep,
            (false, _) => Way::Plain,
        };
        sources.push(Source {
            body: Body::Object(root.clone()),
            object: object.clone(),
            name: name_of(last.strip_suffix(SEALED_ENDING).unwrap_or(last))?,
            way,
        });
    }
    if encrypts {
        let parts = found.metadata.operators.iter().flat_map(|o| o.parts());
        for (place, (_, part)) in parts.enumerate() {
            let StateHandle::Inline(bytes) = part else {
                continue;
            };
            if bytes.is_empty() {
                continue;
            }
            let digest = digest_of(bytes);
            let attempt = found.metadata.attempt;
            let name = another_name(&format!("inline {place} of {attempt}: {digest}"), 0);
            sources.push(Source {
                body: Body::Inline(bytes.clone()),
                object: ObjectHandle {
                    root: Root::Own,
                    path: RelPath::new(&name)?,
                    len: bytes.len() as u64,
                    digest,
                },
                name: name_of(&name)?,
                way: Way::Reseal,
            });
        }
    }
    Ok(sources)
}

/// Returns the n-th name for an object; the same for the same, so that a second call finds what the first one wrote.
pub(super) fn another_name(name: &str, n: u32) -> String {
    match attempt_of_name(name) {
        Some(_) if n == 0 => name.to_owned(),
        known => {
            let digest = digest_of(format!("{name} {n}").as_bytes());
            let mut random = [0; 16];
            random.copy_from_slice(&digest.0[..16]);
            let uuid = uuid::Builder::from_random_bytes(random).into_uuid();
            format!("{}-{uuid}", known.map_or(0, |attempt| attempt.0))
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn further_names_are_of_the_same_attempt_and_the_same_every_time() {
        let name = "7-67e55044-10b1-426f-9247-bb680e5fe0c8";
        assert_eq!(another_name(name, 0), name);
        assert_eq!(another_name(name, 1), another_name(name, 1));
        assert_ne!(another_name(name, 1), another_name(name, 2));
        for name in [another_name(name, 1), another_name("sst", 0)] {
            assert!(attempt_of_name(&name).is_some(), "{name}");
            assert!(Uuid::try_parse(name.split_once('-').unwrap().1).is_ok());
        }
    }
}
