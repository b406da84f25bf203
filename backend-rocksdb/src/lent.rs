#![expect(
    unsafe_code,
    reason = "the crate takes the new value of a compaction filter as a reference that lives for ever"
)]

/// Bytes that are lent to RocksDB until the next ones are.
#[derive(Default)]
pub(crate) struct Lent(Vec<u8>);

impl Lent {
    /// Lends bytes to the caller of a compaction filter.
    ///
    /// The result must be handed to `Decision::Change`, and to nobody else, in a `filter` of the crate's `CompactionFilter`.
    pub(crate) fn lend(&mut self, bytes: Vec<u8>) -> &'static [u8] {
        self.0 = bytes;
        // SAFETY: The bytes are in the heap allocation of `self.0`, which this type neither changes nor frees before the next call of
        // `lend` or its own end. The reference goes into a `Decision`, whose one reader is the crate's `filter_callback`: it takes
        // pointer and length out of it and returns to `rocksdb_compactionfilter_t::Filter` (RocksDB's `db/c.cc`), which copies the
        // bytes (`new_value->assign`) before it returns. The filter that owns this value is used by one thread, and is neither
        // called again nor destroyed while that function runs; so when the bytes go, nobody has the reference any more.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr(), self.0.len()) }
    }
}
