//! How far long work has come, on a terminal.
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Bytes done, rate and remaining time of one step after another, in a line of the standard error that goes at the end.
///
/// Where the standard error is no terminal nothing is shown.
pub(crate) struct Steps {
    target: Box<dyn Fn() -> ProgressDrawTarget + Send + Sync>,
    /// That of the step; none before the first one.
    bar: Mutex<Option<ProgressBar>>,
}

impl Steps {
    /// Creates a line that is not shown until a step begins.
    pub(crate) fn new() -> Arc<Self> {
        Self::on(|| ProgressDrawTarget::stderr_with_hz(8))
    }

    /// As [`new`](Self::new), for commands whose rows go to the standard output: on the same terminal they would be torn.
    pub(crate) fn beside_rows(rows_are_printed: bool) -> Arc<Self> {
        if rows_are_printed && std::io::stdout().is_terminal() {
            Self::on(ProgressDrawTarget::hidden)
        } else {
            Self::new()
        }
    }

    fn on(target: impl Fn() -> ProgressDrawTarget + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            target: Box::new(target),
            bar: Mutex::default(),
        })
    }

    fn bar(&self) -> MutexGuard<'_, Option<ProgressBar>> {
        self.bar.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a step of so many bytes.
    pub(crate) fn begin(&self, step: &str, bytes: u64) {
        let mut current = self.bar();
        if let Some(last) = current.take() {
            last.finish_and_clear();
        }
        // A new one: each thing that is set of one that is shown is shown by itself.
        let mut bar = ProgressBar::with_draw_target(Some(bytes), (self.target)())
            .with_message(step.to_owned());
        let style = ProgressStyle::with_template(
            "{msg}: {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left",
        );
        if let Ok(style) = style {
            bar = bar.with_style(style);
        }
        bar.tick();
        *current = Some(bar);
    }

    /// Adds bytes that are done; those that are read before a step begins, or once more, are nobody's.
    pub(crate) fn advance(&self, bytes: u64) {
        if let Some(bar) = &*self.bar() {
            let left = bar.length().unwrap_or(0).saturating_sub(bar.position());
            if left > 0 {
                bar.inc(bytes.min(left));
            }
        }
    }

    /// Takes the line away.
    pub(crate) fn clear(&self) {
        if let Some(last) = self.bar().take() {
            last.finish_and_clear();
        }
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failure here fails the test")]
mod tests {
    use std::io;

    use indicatif::TermLike;

    use super::*;

    /// Remembers what was written, line by line as it was shown.
    #[derive(Clone, Debug, Default)]
    struct Shown(Arc<Mutex<Vec<String>>>);

    impl TermLike for Shown {
        fn width(&self) -> u16 {
            100
        }

        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }

        fn write_str(&self, text: &str) -> io::Result<()> {
            let text = text.trim();
            if !text.is_empty() {
                self.0.lock().unwrap().push(text.to_owned());
            }
            Ok(())
        }

        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn each_step_is_shown_with_its_own_name_and_length_from_the_start() {
        let shown = Shown::default();
        let term = shown.clone();
        let steps = Steps::on(move || ProgressDrawTarget::term_like(Box::new(term.clone())));
        steps.advance(7);
        assert_eq!(shown.0.lock().unwrap().len(), 0, "{shown:?}");
        for (step, len) in [("read rows", 1024), ("edit", 4096)] {
            steps.begin(step, len);
            for _ in 0..100 {
                steps.advance(len / 64);
            }
            let lines = std::mem::take(&mut *shown.0.lock().unwrap());
            let total = format!(" of {}.00 KiB,", len / 1024);
            assert!(!lines.is_empty());
            for line in &lines {
                assert!(line.starts_with(&format!("{step}: ")), "{lines:?}");
                assert!(line.contains(&total), "{lines:?}");
            }
            assert!(lines[0].starts_with(&format!("{step}: 0 B")), "{lines:?}");
        }
        steps.clear();
        steps.advance(7);
    }
}
