//! How far long work is, on a terminal.
use std::io::IsTerminal;

use checkpoint_storage::WorkDone;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A line on the standard error that says how far work is, how fast it goes and how long it takes yet; nothing where that
/// is no terminal.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
}

const BYTES: &str =
    "{msg} [{bar:30}] {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left";
const PIECES: &str = "{msg} [{bar:30}] {human_pos} of {human_len}, {per_sec}, {eta} left";

impl Progress {
    /// Creates the line of work that is counted in bytes.
    pub(crate) fn in_bytes(what: &'static str) -> Self {
        Self::new(what, BYTES)
    }

    /// Creates the line of work that is counted in pieces: objects, entries, records.
    pub(crate) fn in_pieces(what: &'static str) -> Self {
        Self::new(what, PIECES)
    }

    fn new(what: &'static str, template: &str) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template(template);
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
            // Nothing is shown before the first number is set.
            ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr())
                .with_style(style.progress_chars("=> "))
                .with_message(what)
        });
        Self { bar }
    }

    /// Shows how much of how much is done.
    pub(crate) fn set(&self, done: u64, total: u64) {
        if let Some(bar) = &self.bar {
            if bar.length() != Some(total) {
                bar.set_length(total);
            }
            bar.set_position(done);
        }
    }

    /// Shows the bytes of work on objects.
    pub(crate) fn bytes_of(&self, work: WorkDone) {
        self.set(work.bytes, work.bytes_total);
    }

    /// Shows the number of objects that are done.
    pub(crate) fn objects_of(&self, work: WorkDone) {
        self.set(work.objects as u64, work.objects_total as u64);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
