use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::failure::Failure;
use crate::terminal;

/// Where the demo is shown: lines, with a bar below them on a terminal.
pub(crate) struct Screen {
    bar: Option<ProgressBar>,
}

impl Screen {
    /// Creates a screen for a job of so many records.
    pub(crate) fn new(records: u64) -> Self {
        let bar = std::io::stdout().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(records), ProgressDrawTarget::stdout());
            let style = ProgressStyle::with_template(
                "{elapsed:>4} [{bar:40}] {human_pos} of {human_len} records",
            );
            bar.set_style(
                style
                    .unwrap_or_else(|_| ProgressStyle::default_bar())
                    .progress_chars("=> "),
            );
            bar
        });
        Self { bar }
    }

    /// Writes a line above the bar.
    pub(crate) fn line(&self, line: &str) -> Result<(), Failure> {
        match &self.bar {
            Some(bar) if !bar.is_finished() => {
                bar.suspend(|| terminal::print(&format!("{line}\n")))
            }
            _ => terminal::print(&format!("{line}\n")),
        }
    }

    /// Shows how many records were read.
    pub(crate) fn progress(&self, records: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(records);
        }
    }

    /// Takes the bar away: no more records come.
    pub(crate) fn end(&self) {
        if let Some(bar) = self.bar.as_ref().filter(|bar| !bar.is_finished()) {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.end();
    }
}
