/// What the time of a restore went to. The parts add up to all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreTimes {
    /// Nanoseconds in which bytes came from the store or out of local copies.
    pub fetch_ns: u64,
    /// Nanoseconds in which files that were there became an open store.
    pub open_ns: u64,
    /// Nanoseconds in which what lies beyond the key groups was deleted and files were cleaned of it.
    pub clip_ns: u64,
    /// Nanoseconds in which entries were read out of streams and put into tables or a store.
    pub entries_ns: u64,
}

impl RestoreTimes {
    /// Returns the parts with their names.
    #[must_use]
    pub fn parts(self) -> [(&'static str, u64); 4] {
        [
            ("fetch", self.fetch_ns),
            ("open", self.open_ns),
            ("clip", self.clip_ns),
            ("entries", self.entries_ns),
        ]
    }

    /// Returns the sum of the parts in nanoseconds.
    #[must_use]
    pub fn total_ns(self) -> u64 {
        self.parts().iter().map(|(_, ns)| ns).sum()
    }
}
