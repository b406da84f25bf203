use state_api::{Error, Result};

/// How checkpoint streams write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    inline_threshold: usize,
    write_buffer: usize,
}

impl StreamOptions {
    /// Bytes up to which state travels inline, unless configured: 20 KiB.
    pub const DEFAULT_INLINE_THRESHOLD: i64 = 20 << 10;

    /// The largest inline threshold: 1 MiB.
    pub const MAX_INLINE_THRESHOLD: i64 = 1 << 20;

    /// Bytes that a stream gathers before it writes, unless configured: 4 KiB.
    pub const DEFAULT_WRITE_BUFFER: i64 = 4096;

    const MAX_WRITE_BUFFER: i64 = 1 << 30;

    /// Checks configured sizes in bytes; the write buffer is raised to the inline threshold if it is smaller.
    ///
    /// # Errors
    /// `Config` when a size is negative or the threshold exceeds 1 MiB.
    pub fn new(inline_threshold: i64, write_buffer: i64) -> Result<Self> {
        let check = |option: &'static str, value: i64, max: i64| {
            usize::try_from(value)
                .ok()
                .filter(|_| value <= max)
                .ok_or_else(|| {
                    Error::config(format!("{option} is {value} bytes, but must be 0 to {max}"))
                })
        };
        let inline_threshold = check(
            "execution.checkpointing.data-inline-threshold",
            inline_threshold,
            Self::MAX_INLINE_THRESHOLD,
        )?;
        let write_buffer = check(
            "execution.checkpointing.write-buffer-size",
            write_buffer,
            Self::MAX_WRITE_BUFFER,
        )?;
        Ok(Self {
            inline_threshold,
            write_buffer: write_buffer.max(inline_threshold).max(1),
        })
    }

    /// Returns the same with all state in objects.
    pub(crate) fn without_inline(self) -> Self {
        Self {
            inline_threshold: 0,
            ..self
        }
    }

    /// Returns the bytes up to which state travels inline.
    #[must_use]
    pub fn inline_threshold(&self) -> usize {
        self.inline_threshold
    }

    /// Returns the bytes that a stream gathers before it writes; writes of at least that many are not gathered.
    #[must_use]
    pub fn write_buffer(&self) -> usize {
        self.write_buffer
    }
}

impl Default for StreamOptions {
    fn default() -> Self {
        let inline_threshold = Self::DEFAULT_INLINE_THRESHOLD as usize;
        Self {
            inline_threshold,
            write_buffer: inline_threshold,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use state_api::ErrorKind;

    #[test]
    fn k_456_sizes_out_of_bounds_are_refused_and_a_small_buffer_is_raised() {
        for (threshold, buffer) in [(-1, 4096), (0, -1), ((1 << 20) + 1, 4096)] {
            assert_eq!(
                StreamOptions::new(threshold, buffer).unwrap_err().kind(),
                ErrorKind::Config
            );
        }
        assert_eq!(StreamOptions::new(5000, 4000).unwrap().write_buffer(), 5000);
    }

    #[test]
    fn k_491_the_threshold_goes_from_nothing_to_one_mebibyte() {
        for threshold in [0, 1 << 20] {
            assert_eq!(
                StreamOptions::new(threshold, 4096)
                    .unwrap()
                    .inline_threshold() as i64,
                threshold
            );
        }
        let error = StreamOptions::new((1 << 20) + 1, 4096).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("data-inline-threshold is 1048577 bytes"),
            "{error}"
        );
        assert_eq!(StreamOptions::default().inline_threshold(), 20 << 10);
    }
}
