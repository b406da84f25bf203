use std::borrow::Cow;

use bytes::Bytes;
use state_api::wire::{get_len, get_u8, get_varint, put_varint, take};
use state_api::{Error, ErrorKind, Result};

use super::{SubtaskMetadata, WRITER};

const REQUIRED: u8 = 1;

/// An optional section that this version does not know, kept as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawSection {
    /// The tag.
    pub tag: u32,
    /// The body.
    pub bytes: Bytes,
}

/// A section about to be written.
pub(super) struct Body<'a> {
    tag: u32,
    required: bool,
    content: Content<'a>,
}

/// What stands in a section.
enum Content<'a> {
    Bytes(Cow<'a, [u8]>),
    Sections(Sequence<'a>),
    Subtask(SubtaskBody<'a>),
}

/// The sections of a subtask, to be encoded when their turn comes.
#[derive(Clone, Copy)]
pub(super) struct SubtaskBody<'a> {
    /// Position of its operator among those written.
    pub(super) operator: usize,
    pub(super) subtask: &'a SubtaskMetadata,
    /// Number of bytes.
    pub(super) len: usize,
}

/// What stands in a file.
#[derive(Default)]
pub(super) struct Pieces<'a> {
    /// Subtasks, each with the bytes before it.
    pub(super) subtasks: Vec<(Vec<u8>, SubtaskBody<'a>)>,
    /// The bytes behind the last one.
    pub(super) rest: Vec<u8>,
}

impl<'a> Body<'a> {
    /// Makes a section that readers must know.
    pub(super) fn required(tag: u32, bytes: Vec<u8>) -> Self {
        Self {
            tag,
            required: true,
            content: Content::Bytes(bytes.into()),
        }
    }

    /// Makes a section of sections that readers must know.
    pub(super) fn of_sections(tag: u32, sections: Sequence<'a>) -> Self {
        Self {
            tag,
            required: true,
            content: Content::Sections(sections),
        }
    }

    /// Makes the section of a subtask.
    pub(super) fn subtask(tag: u32, subtask: SubtaskBody<'a>) -> Self {
        Self {
            tag,
            required: true,
            content: Content::Subtask(subtask),
        }
    }

    /// Makes a section that readers may skip.
    pub(super) fn optional(tag: u32, bytes: impl Into<Cow<'a, [u8]>>) -> Self {
        Self {
            tag,
            required: false,
            content: Content::Bytes(bytes.into()),
        }
    }

    fn content_len(&self) -> usize {
        match &self.content {
            Content::Bytes(bytes) => bytes.len(),
            Content::Sections(sections) => sections.len,
            Content::Subtask(subtask) => subtask.len,
        }
    }
}

/// Sections about to be written one after the other.
///
/// Their length is known before the first byte is written. Subtasks are encoded one by one on the way to the store:
/// metadata of a million objects is some hundred megabytes, too many to stand in memory, let alone to be copied from
/// level to level.
pub(super) struct Sequence<'a> {
    sections: Vec<Body<'a>>,
    len: usize,
}

impl<'a> Sequence<'a> {
    /// Puts sections in ascending order of their tags, the unknown ones among them.
    pub(super) fn new(mut sections: Vec<Body<'a>>, unknown: &'a [RawSection]) -> Self {
        let unknown = unknown
            .iter()
            .map(|raw| Body::optional(raw.tag, raw.bytes.as_ref()));
        sections.extend(unknown);
        sections.sort_by_key(|body| body.tag);
        let len = sections.iter().map(|body| {
            let len = body.content_len();
            varint_len(u64::from(body.tag)) + 1 + varint_len(len as u64) + len
        });
        Self {
            len: len.sum(),
            sections,
        }
    }

    /// Returns the number of bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Appends the sections.
    pub(super) fn put(self, out: &mut Pieces<'a>) {
        for body in self.sections {
            let content_len = body.content_len() as u64;
            put_varint(&mut out.rest, u64::from(body.tag));
            out.rest.push(if body.required { REQUIRED } else { 0 });
            put_varint(&mut out.rest, content_len);
            match body.content {
                Content::Bytes(content) => out.rest.extend_from_slice(&content),
                Content::Sections(sections) => sections.put(out),
                Content::Subtask(subtask) => {
                    out.subtasks.push((std::mem::take(&mut out.rest), subtask));
                }
            }
        }
    }
}

fn varint_len(value: u64) -> usize {
    let bits = u64::BITS - value.leading_zeros();
    bits.div_ceil(7).max(1) as usize
}

/// A section as it was read.
#[derive(Clone, Copy)]
pub(super) struct Section<'a> {
    pub(super) tag: u32,
    required: bool,
    pub(super) body: &'a [u8],
}

/// Reads sections one after the other.
pub(super) struct Sections<'a> {
    input: &'a [u8],
    last: u32,
}

impl<'a> Sections<'a> {
    pub(super) fn new(input: &'a [u8]) -> Self {
        Self { input, last: 0 }
    }

    fn read(&mut self) -> Result<Section<'a>> {
        let tag = get_varint(&mut self.input)?;
        let tag =
            u32::try_from(tag).map_err(|_| Error::corrupt(format!("tag {tag} exceeds 32 bits")))?;
        if tag < self.last || tag == 0 {
            return Err(Error::corrupt(format!(
                "section {tag} follows section {}",
                self.last
            )));
        }
        self.last = tag;
        let flags = get_u8(&mut self.input)?;
        if flags & !REQUIRED != 0 {
            return Err(Error::corrupt(format!(
                "section {tag} has unknown flags {flags:#x}"
            )));
        }
        let len = get_len(&mut self.input)?;
        Ok(Section {
            tag,
            required: flags & REQUIRED != 0,
            body: take(&mut self.input, len)?,
        })
    }
}

impl<'a> Iterator for Sections<'a> {
    type Item = Result<Section<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.input.is_empty() {
            return None;
        }
        let section = self.read();
        if section.is_err() {
            self.input = &[];
        }
        Some(section)
    }
}

impl Section<'_> {
    /// Keeps a section that this version does not know.
    pub(super) fn keep(&self, place: &str, writer: &str) -> Result<RawSection> {
        if self.required {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "section {} of the {place} is unknown to {WRITER} and must be understood: it was written by {writer}",
                    self.tag
                ),
            ));
        }
        Ok(RawSection {
            tag: self.tag,
            bytes: Bytes::copy_from_slice(self.body),
        })
    }
}

/// Puts the one section of its kind in its place.
pub(super) fn once<T>(slot: &mut Option<T>, tag: u32, value: T) -> Result<()> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Error::corrupt(format!("section {tag} stands twice"))),
    }
}
