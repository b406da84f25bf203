use checkpoint_storage::ReadBytes;
use state_api::{OperatorUid, RestoreTimes, Subtask};

/// What bringing the keyed state of a subtask back read, and what its time went to.
pub(crate) struct RestoredKeyed<'a> {
    pub(crate) operator: &'a OperatorUid,
    pub(crate) subtask: Subtask,
    pub(crate) read: ReadBytes,
    /// The backend was made in `open_ns`, its states were registered in `entries_ns`, too.
    pub(crate) times: RestoreTimes,
    pub(crate) total_ns: u64,
}

impl RestoredKeyed<'_> {
    /// Tells `tracing` and `metrics`.
    pub(crate) fn tell(&self) {
        let Self { read, times, .. } = self;
        tracing::info!(
            operator = %self.operator,
            subtask = self.subtask.index,
            from = self.source(),
            objects_from_store = read.objects_from_store,
            bytes_from_store = read.from_store,
            objects_from_copies = read.objects_from_copies,
            bytes_from_copies = read.from_copies,
            fetch_ns = times.fetch_ns,
            open_ns = times.open_ns,
            clip_ns = times.clip_ns,
            entries_ns = times.entries_ns,
            total_ns = self.total_ns,
            "keyed state is restored"
        );
        self.gauge("holdfast_restore_ns", None, self.total_ns);
        for (part, ns) in times.parts() {
            self.gauge("holdfast_restore_part_ns", Some(("part", part)), ns);
        }
        for (from, objects, bytes) in [
            ("store", read.objects_from_store, read.from_store),
            ("copies", read.objects_from_copies, read.from_copies),
        ] {
            self.gauge("holdfast_restore_objects", Some(("from", from)), objects);
            self.gauge("holdfast_restore_bytes", Some(("from", from)), bytes);
        }
    }

    /// Says where the state came from; small state lies in the metadata itself.
    fn source(&self) -> &'static str {
        match (self.read.objects_from_store, self.read.objects_from_copies) {
            (0, 0) => "metadata",
            (0, _) => "copies",
            (_, 0) => "store",
            _ => "store and copies",
        }
    }

    fn gauge(&self, name: &'static str, label: Option<(&'static str, &'static str)>, figure: u64) {
        let mut labels = vec![
            metrics::Label::new("operator", self.operator.to_string()),
            metrics::Label::new("subtask", self.subtask.index.to_string()),
        ];
        labels.extend(label.map(|(key, value)| metrics::Label::new(key, value)));
        metrics::gauge!(name, labels).set(figure as f64);
    }
}
