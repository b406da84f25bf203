use state_api::hash::hash_bytes;

use crate::sink::SinkContext;

const IN_PROGRESS: &str = ".inprogress";
const PENDING: &str = ".pending";

/// The name of one part of a file sink's output, from which the names of its files are made.
///
/// | file | when |
/// | --- | --- |
/// | `.part-<lineage>-s0-a3-r1-7-<random>.inprogress` | records are being written |
/// | `.part-<lineage>-s0-a3-r1-7-<random>-c12.pending` | ended for checkpoint 12, on disk |
/// | `part-00000012-000-a3r1-<random>` | checkpoint 12 or a later one is complete |
///
/// The lineage is a hash of the job's id and the sink's uid; `s` is the subtask, `a` the attempt, `r` the run within it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PartName {
    pub prefix: String,
    pub lineage: u64,
    pub subtask: u32,
    pub attempt: u64,
    pub run: u32,
    pub sequence: u64,
    /// 48 random bits: attempts are counted per checkpoint folder, and two of those may share an output folder.
    pub random: u64,
}

/// What a hidden file in an output folder is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Hidden {
    InProgress(PartName),
    Pending(PartName, u64),
}

/// Hashes what makes a sink the same over restarts.
pub(super) fn lineage(cx: &SinkContext) -> u64 {
    hash_bytes(format!("{}\0{}", cx.job, cx.uid).as_bytes())
}

impl PartName {
    /// Returns the part that all file names have in common.
    pub(super) fn stem(&self) -> String {
        let Self {
            prefix,
            lineage,
            subtask,
            attempt,
            run,
            sequence,
            random,
        } = self;
        format!("{prefix}-{lineage:016x}-s{subtask}-a{attempt}-r{run}-{sequence}-{random:012x}")
    }

    /// Reads a stem; `None` for any other text.
    pub(super) fn parse(stem: &str) -> Option<Self> {
        let mut parts = stem.rsplitn(7, '-');
        let random = u64::from_str_radix(parts.next()?, 16).ok()?;
        let sequence = parts.next()?.parse().ok()?;
        let run = parts.next()?.strip_prefix('r')?.parse().ok()?;
        let attempt = parts.next()?.strip_prefix('a')?.parse().ok()?;
        let subtask = parts.next()?.strip_prefix('s')?.parse().ok()?;
        let lineage = u64::from_str_radix(parts.next()?, 16).ok()?;
        let prefix = parts.next()?.to_owned();
        let name = Self {
            prefix,
            lineage,
            subtask,
            attempt,
            run,
            sequence,
            random,
        };
        // One spelling only, so that what is parsed is what was written by us.
        (is_plain(&name.prefix) && name.stem() == stem).then_some(name)
    }

    pub(super) fn in_progress(&self) -> String {
        format!(".{}{IN_PROGRESS}", self.stem())
    }

    pub(super) fn pending(&self, checkpoint: u64) -> String {
        format!(".{}-c{checkpoint}{PENDING}", self.stem())
    }

    /// Returns the name under which the part is published; names sort by checkpoint, then by subtask.
    pub(super) fn visible(&self, checkpoint: u64, suffix: &str) -> String {
        let Self {
            prefix,
            subtask,
            attempt,
            run,
            random,
            ..
        } = self;
        // The end of a job without checkpoints.
        let checkpoint = if checkpoint == u64::MAX {
            "final".to_owned()
        } else {
            format!("{checkpoint:08}")
        };
        format!("{prefix}-{checkpoint}-{subtask:03}-a{attempt}r{run}-{random:012x}{suffix}")
    }
}

impl Hidden {
    /// Reads the name of a file; `None` when it is not one of a file sink's hidden files.
    pub(super) fn parse(file: &str) -> Option<Self> {
        let name = file.strip_prefix('.')?;
        if let Some(stem) = name.strip_suffix(IN_PROGRESS) {
            return PartName::parse(stem).map(Self::InProgress);
        }
        let (stem, checkpoint) = name.strip_suffix(PENDING)?.rsplit_once("-c")?;
        let id: u64 = checkpoint.parse().ok()?;
        let part = PartName::parse(stem)?;
        (part.pending(id) == file).then_some(Self::Pending(part, id))
    }

    pub(super) fn part(&self) -> &PartName {
        match self {
            Self::InProgress(part) | Self::Pending(part, _) => part,
        }
    }
}

/// Reads which checkpoint committed a visible file, `u64::MAX` for the end of a job without checkpoints; `None` for other files.
pub(super) fn committed_by(file: &str, prefix: &str) -> Option<u64> {
    let mut parts = file.strip_prefix(prefix)?.strip_prefix('-')?.splitn(4, '-');
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse().ok()).flatten()
    };
    let checkpoint = match parts.next()? {
        "final" => u64::MAX,
        text if text.len() >= 8 => number(text)?,
        _ => return None,
    };
    number(parts.next()?)?;
    let (attempt, run) = parts.next()?.strip_prefix('a')?.split_once('r')?;
    number(attempt)?;
    number(run)?;
    let random = parts.next()?.get(..12)?;
    let is_ours = random.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_ours.then_some(checkpoint)
}

/// Tells whether a text can be a file's name, or the beginning or end of one, and is not hidden.
pub(super) fn is_plain(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    !name.is_empty() && name.len() <= 200 && !name.starts_with('.') && name.chars().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> PartName {
        PartName {
            prefix: "part-of-it".to_owned(),
            lineage: 0xab,
            subtask: 3,
            attempt: 12,
            run: 2,
            sequence: 9,
            random: 0x1234,
        }
    }

    #[test]
    fn names_are_read_as_they_were_written() {
        let name = name();
        assert_eq!(
            name.stem(),
            "part-of-it-00000000000000ab-s3-a12-r2-9-000000001234"
        );
        assert_eq!(PartName::parse(&name.stem()), Some(name.clone()));
        assert_eq!(
            Hidden::parse(&name.in_progress()),
            Some(Hidden::InProgress(name.clone()))
        );
        assert_eq!(
            Hidden::parse(&name.pending(77)),
            Some(Hidden::Pending(name.clone(), 77))
        );
        assert_eq!(
            name.visible(77, ".csv"),
            "part-of-it-00000077-003-a12r2-000000001234.csv"
        );
        assert_eq!(
            name.visible(u64::MAX, ""),
            "part-of-it-final-003-a12r2-000000001234"
        );
    }

    #[test]
    fn a_visible_name_says_which_checkpoint_committed_it() {
        for (checkpoint, suffix) in [
            (77, ".csv"),
            (77, ""),
            (123_456_789, ".c-s.v"),
            (u64::MAX, ""),
        ] {
            let file = name().visible(checkpoint, suffix);
            assert_eq!(
                committed_by(&file, "part-of-it"),
                Some(checkpoint),
                "{file}"
            );
        }
        for file in [
            "part-of-it",
            "part-of-it-00000077-003-a12r2",
            "part-of-it-77-003-a12r2-000000001234",
            "part-of-it-000000x7-003-a12r2-000000001234",
            "other-00000077-003-a12r2-000000001234",
            ".part-of-it-00000077-003-a12r2-000000001234",
        ] {
            assert_eq!(committed_by(file, "part-of-it"), None, "{file}");
        }
    }

    #[test]
    fn other_names_are_nobodys() {
        for file in [
            "",
            ".",
            ".inprogress",
            ".pending",
            ".x.inprogress",
            ".part-1.pending",
            "part-00000077-003-a12r2-000000001234.csv",
            ".part-00000000000000ab-s3-a12-r2-9-1234.inprogress",
            ".part-00000000000000AB-s3-a12-r2-9-000000001234.inprogress",
            ".part-00000000000000ab-s+3-a12-r2-9-000000001234.inprogress",
            ".part-00000000000000ab-s3-a12-r2-9-000000001234-c07.pending",
            ".../x-00000000000000ab-s3-a12-r2-9-000000001234.inprogress",
        ] {
            assert_eq!(Hidden::parse(file), None, "{file}");
        }
    }

    /// Anybody may put files into an output folder.
    #[test]
    fn the_name_of_any_file_is_read_as_ours_or_left_alone() {
        let samples = [
            name().in_progress(),
            name().pending(12),
            name().visible(12, ".txt"),
        ];
        let samples = samples.map(String::into_bytes);
        let mut ours = 0;
        let cases = backend_testkit::fuzz::fuzz(5_000, &samples, |_, bytes| {
            let file = String::from_utf8_lossy(&bytes);
            match Hidden::parse(&file) {
                Some(Hidden::InProgress(part)) => assert_eq!(part.in_progress(), file),
                Some(Hidden::Pending(part, id)) => assert_eq!(part.pending(id), file),
                None => return,
            }
            ours += 1;
        });
        // A run of a few cases may happen to find none.
        assert!(ours > 0 || cases < 100);
    }
}
