use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Label, Metadata, Recorder, SharedString, Unit,
};

type Figures = BTreeMap<(String, String), Arc<AtomicU64>>;

/// Keeps the last figure of each gauge, for `metrics::with_local_recorder`; counters and histograms are not kept.
#[derive(Debug, Default)]
pub struct RecordedGauges(Mutex<Figures>);

impl RecordedGauges {
    fn lock(&self) -> MutexGuard<'_, Figures> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether no gauge was set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Returns the figures of a gauge by its labels, which stand as in `operator=count subtask=0`.
    #[must_use]
    pub fn of(&self, name: &str) -> BTreeMap<String, f64> {
        let figure = |bits: &AtomicU64| f64::from_bits(bits.load(Ordering::SeqCst));
        self.lock()
            .iter()
            .filter(|((known, _), _)| known == name)
            .map(|((_, labels), bits)| (labels.clone(), figure(bits)))
            .collect()
    }
}

impl Recorder for RecordedGauges {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let label = |label: &Label| format!("{}={}", label.key(), label.value());
        let labels: Vec<String> = key.labels().map(label).collect();
        let mut gauges = self.lock();
        let gauge = gauges.entry((key.name().to_owned(), labels.join(" ")));
        Gauge::from_arc(Arc::clone(gauge.or_default()))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}
