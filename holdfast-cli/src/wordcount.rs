//! The job `wordcount`: how often each word stands in the input.
//!
//! ```text
//! lines of text ─ words ─ by word ─ counts, emitted when the input has ended ─ rows
//! ```
use std::path::PathBuf;
use std::sync::Arc;

use managed_state::keyed::{At, DueTimer, Timers, ValueState};
use runtime_core::sources::{FileLines, RateLimited, Stdin};
use runtime_core::{END_OF_TIME, Job, KeyedOperator, Out, States, Stream};
use state_api::Result;
use state_api::access::ValueAccess;

use crate::input::{ObservedLines, Reading};

/// The names of the output's columns; files don't repeat them.
pub(crate) const HEADER: &str = "word,count";

/// Where the text comes from.
#[derive(Clone, Debug)]
pub(crate) enum TextInput {
    /// A file or a folder of files.
    Files(PathBuf),
    /// The standard input.
    Stdin,
}

/// Builds the job, up to the rows.
///
/// # Errors
/// Those of looking at the input.
pub(crate) fn build(
    job: &Job,
    input: &TextInput,
    rate: Option<f64>,
    reading: &Arc<Reading>,
) -> Result<Stream<String>> {
    let lines = match input {
        TextInput::Stdin => job.source("text", Stdin::new()),
        TextInput::Files(path) => {
            let (folder, _) = crate::input::files_of(path)?;
            let lines = ObservedLines::new(FileLines::new(path).lossy(), &folder, reading);
            match rate {
                Some(rate) => job.source("text", RateLimited::new(lines, rate)),
                None => job.source("text", lines),
            }
        }
    };
    let counts = lines
        .flat_map(|line: String| words(&line))
        .persist_in_flight()
        .key_by_ref(|word| word)
        .process("count", CountWords::default());
    Ok(counts.map(|(word, count)| format!("{word},{count}")))
}

/// Returns the words of a line in small letters: letters and digits, with apostrophes between them.
fn words(line: &str) -> Vec<String> {
    line.split(|c: char| !(c.is_alphanumeric() || c == '\'' || c == '’'))
        .map(|word| word.trim_matches(['\'', '’']))
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect()
}

/// Counts a word, and says how often it came once the input has ended.
#[derive(Clone, Default)]
struct CountWords {
    count: ValueState<u64>,
    end: Timers,
}

impl KeyedOperator for CountWords {
    type Key = String;
    type In = String;
    type Out = (String, u64);

    fn open(&mut self, states: &mut States<'_, String>) -> Result<()> {
        self.count = states.value("count")?;
        self.end = states.event_timers("end-of-input")?;
        Ok(())
    }

    fn process(
        &mut self,
        _: String,
        at: &mut At<'_, String>,
        _: &mut Out<'_, Self::Out>,
    ) -> Result<()> {
        let count = at.value(self.count).update(|count| {
            *count += 1;
            *count
        })?;
        if count == 1 {
            // Only the watermark of the end gets here.
            at.timers(self.end).set(END_OF_TIME - 1)?;
        }
        Ok(())
    }

    fn on_timer(
        &mut self,
        due: &DueTimer<String>,
        at: &mut At<'_, String>,
        out: &mut Out<'_, Self::Out>,
    ) -> Result<()> {
        let count = at.value(self.count).get()?.unwrap_or_default();
        out.emit((due.key.clone(), count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_letters_digits_and_inner_apostrophes_in_small_letters() {
        assert_eq!(
            words("The cat's 'whiskers', in 2013—Été!"),
            ["the", "cat's", "whiskers", "in", "2013", "été"]
        );
        assert!(words(" -- '' \t").is_empty());
    }
}
