use state_api::Result;

use super::elements::{Elements, put_encoded_element};
use super::group_writer::GroupWriter;
use super::store_source::CanonicalColumn;
use super::stored_list::{Chunk, ChunkCheck, StoredList, chunk_number};

/// Writes the lists of a byte store's column as entries: one that stands in chunks is one value in the canonical format.
#[derive(Default)]
pub(super) struct ListEntries {
    /// A list whose head was read, and whose chunks come now.
    open: Option<OpenList>,
    kept: Vec<u8>,
}

struct OpenList {
    key: Vec<u8>,
    check: ChunkCheck,
    elements: Vec<u8>,
    /// Elements from behind the chunks.
    tail: Vec<u8>,
}

impl ListEntries {
    /// Takes the next stored pair, the key without its group; returns the number of entries written.
    pub(super) fn entry(
        &mut self,
        column: &CanonicalColumn,
        key: &[u8],
        value: &[u8],
        writer: &mut GroupWriter<'_>,
    ) -> Result<u64> {
        let taken = self.take(column, key, value, writer);
        taken.map_err(|e| e.with("state", &column.meta().name))
    }

    /// Writes the list whose chunks came last; returns the number of entries written.
    pub(super) fn close(
        &mut self,
        column: &CanonicalColumn,
        writer: &mut GroupWriter<'_>,
    ) -> Result<u64> {
        let finished = self.finish(writer);
        finished.map_err(|e| e.with("state", &column.meta().name))
    }

    fn finish(&mut self, writer: &mut GroupWriter<'_>) -> Result<u64> {
        let Some(mut list) = self.open.take() else {
            return Ok(0);
        };
        list.check.finish()?;
        list.elements.append(&mut list.tail);
        Ok(put(writer, &list.key, &list.elements))
    }

    fn take(
        &mut self,
        column: &CanonicalColumn,
        key: &[u8],
        value: &[u8],
        writer: &mut GroupWriter<'_>,
    ) -> Result<u64> {
        let timed = column.meta().ttl_ms.is_some();
        match StoredList::read(value, timed)? {
            StoredList::Chunk(chunk) => {
                // One that is of no list was left over where all in it is expired.
                if let Some(list) = &mut self.open
                    && let Some(number) = chunk_number(&list.key, key)
                    && list.check.expects(number)
                {
                    list.add(column, number, &chunk)?;
                }
                Ok(0)
            }
            StoredList::Head(head, tail) => {
                let closed = self.finish(writer)?;
                let mut list = OpenList {
                    key: key.to_vec(),
                    check: ChunkCheck::new(head, timed),
                    elements: Vec::new(),
                    tail: Vec::new(),
                };
                keep(column, tail, &mut list.tail, || {})?;
                self.open = Some(list);
                Ok(closed)
            }
            StoredList::Whole(elements) => {
                let closed = self.finish(writer)?;
                if column.keeps_all() {
                    writer.entry(key, elements);
                    return Ok(closed + 1);
                }
                self.kept.clear();
                keep(column, elements, &mut self.kept, || {})?;
                Ok(closed + put(writer, key, &self.kept))
            }
        }
    }
}

impl OpenList {
    fn add(&mut self, column: &CanonicalColumn, number: u64, chunk: &Chunk<'_>) -> Result<()> {
        let Self {
            check, elements, ..
        } = self;
        let part = check.chunk(number, chunk)?;
        keep(column, part, elements, || check.element())
    }
}

/// Appends the elements that go in; `each` is called for all.
fn keep(
    column: &CanonicalColumn,
    elements: &[u8],
    out: &mut Vec<u8>,
    mut each: impl FnMut(),
) -> Result<()> {
    let timed = column.meta().ttl_ms.is_some();
    let mut elements = Elements::new(elements, timed);
    while let Some((timestamp, element)) = elements.next()? {
        each();
        if !column.leaves_out(timestamp) {
            put_encoded_element(timed.then_some(timestamp), element, out);
        }
    }
    Ok(())
}

/// Writes a list unless it is empty.
fn put(writer: &mut GroupWriter<'_>, key: &[u8], elements: &[u8]) -> u64 {
    if elements.is_empty() {
        return 0;
    }
    writer.entry(key, elements);
    1
}
