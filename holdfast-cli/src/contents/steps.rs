//! How far long work has come, on a terminal.
use std::io::IsTerminal;
use std::sync::Arc;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Bytes done, rate and remaining time of one step after another, in a line of the standard error that goes at the end.
///
/// Where the standard error is no terminal nothing is shown.
#[derive(Debug)]
pub(crate) struct Steps {
    bar: ProgressBar,
}

impl Steps {
    /// Creates a line that stands still until a step begins.
    pub(crate) fn new() -> Arc<Self> {
        Self::on(ProgressDrawTarget::stderr_with_hz(8))
    }

    /// As [`new`](Self::new), for commands whose rows go to the standard output: on the same terminal they would be torn.
    pub(crate) fn beside_rows(rows_are_printed: bool) -> Arc<Self> {
        if rows_are_printed && std::io::stdout().is_terminal() {
            Self::on(ProgressDrawTarget::hidden())
        } else {
            Self::new()
        }
    }

    fn on(target: ProgressDrawTarget) -> Arc<Self> {
        let bar = ProgressBar::with_draw_target(Some(0), target);
        let style = ProgressStyle::with_template(
            "{msg}: {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left",
        );
        if let Ok(style) = style {
            bar.set_style(style);
        }
        Arc::new(Self { bar })
    }

    /// Begins a step of so many bytes.
    pub(crate) fn begin(&self, step: &str, bytes: u64) {
        self.bar.reset();
        self.bar.set_length(bytes);
        self.bar.set_message(step.to_owned());
    }

    /// Adds bytes that are done; those that are read before a step begins, or once more, are nobody's.
    pub(crate) fn advance(&self, bytes: u64) {
        let left = self
            .bar
            .length()
            .unwrap_or(0)
            .saturating_sub(self.bar.position());
        if left > 0 {
            self.bar.inc(bytes.min(left));
        }
    }

    /// Takes the line away.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

impl checkpoint_tools::Progress for Steps {
    fn begin(&self, step: &str, bytes: u64) {
        Self::begin(self, step, bytes);
    }

    fn advance(&self, bytes: u64) {
        Self::advance(self, bytes);
    }
}
