use super::TimeWindow;

/// Windows of one length, one after the other, aligned to the epoch plus an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tumbling {
    size_ms: i64,
    offset_ms: i64,
}

impl Tumbling {
    /// Creates windows of `size_ms` milliseconds; at least 1.
    #[must_use]
    pub fn of(size_ms: i64) -> Self {
        Self {
            size_ms: size_ms.max(1),
            offset_ms: 0,
        }
    }

    /// Shifts the windows by milliseconds, for days of another time zone, say.
    #[must_use]
    pub fn offset(mut self, offset_ms: i64) -> Self {
        self.offset_ms = offset_ms;
        self
    }

    /// Returns the start of the window that an event time lies in, both in milliseconds.
    #[must_use]
    pub fn start_of(self, time_ms: i64) -> i64 {
        last_start(time_ms, self.size_ms, self.offset_ms)
    }

    /// Returns the first millisecond after a window that starts at `start_ms`.
    #[must_use]
    pub fn end_of(self, start_ms: i64) -> i64 {
        start_ms.saturating_add(self.size_ms)
    }
}

/// Windows of one length, a new one beginning every slide, aligned to the epoch plus an offset.
///
/// With a slide below the size a record is in several windows; with one above it, records between two windows are in none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sliding {
    size_ms: i64,
    slide_ms: i64,
    offset_ms: i64,
}

impl Sliding {
    /// Creates windows of `size_ms` milliseconds, one every `slide_ms`; both at least 1.
    #[must_use]
    pub fn of(size_ms: i64, slide_ms: i64) -> Self {
        Self {
            size_ms: size_ms.max(1),
            slide_ms: slide_ms.max(1),
            offset_ms: 0,
        }
    }

    /// Shifts the windows by milliseconds.
    #[must_use]
    pub fn offset(mut self, offset_ms: i64) -> Self {
        self.offset_ms = offset_ms;
        self
    }
}

/// Windows that last as long as a key's records come with less than a gap between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    gap_ms: i64,
}

impl Session {
    /// Creates windows that end when no record has come for `gap_ms` milliseconds; at least 1.
    #[must_use]
    pub fn gap(gap_ms: i64) -> Self {
        Self {
            gap_ms: gap_ms.max(1),
        }
    }
}

/// How records are assigned to windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Windows {
    /// One after the other.
    Tumbling(Tumbling),
    /// Overlapping ones.
    Sliding(Sliding),
    /// As long as records come.
    Session(Session),
}

impl From<Tumbling> for Windows {
    fn from(windows: Tumbling) -> Self {
        Self::Tumbling(windows)
    }
}

impl From<Sliding> for Windows {
    fn from(windows: Sliding) -> Self {
        Self::Sliding(windows)
    }
}

impl From<Session> for Windows {
    fn from(windows: Session) -> Self {
        Self::Session(windows)
    }
}

impl Windows {
    /// Lists the windows that a time in milliseconds lies in, newest first; of a session the one that the time alone makes.
    pub fn of(self, time_ms: i64) -> impl Iterator<Item = TimeWindow> {
        let (newest, size_ms, slide_ms) = match self {
            Self::Tumbling(Tumbling { size_ms, offset_ms }) => {
                (last_start(time_ms, size_ms, offset_ms), size_ms, size_ms)
            }
            Self::Sliding(Sliding {
                size_ms,
                slide_ms,
                offset_ms,
            }) => (last_start(time_ms, slide_ms, offset_ms), size_ms, slide_ms),
            Self::Session(Session { gap_ms }) => (time_ms, gap_ms, gap_ms),
        };
        let older = move |start: &i64| start.checked_sub(slide_ms);
        std::iter::successors(Some(newest), older)
            .take_while(move |start| time_ms.saturating_sub(*start) < size_ms)
            .map(move |start| TimeWindow::new(start, start.saturating_add(size_ms)))
    }
}

/// Returns the last start of a window that is at or before a time.
fn last_start(time_ms: i64, every_ms: i64, offset_ms: i64) -> i64 {
    let into = time_ms.wrapping_sub(offset_ms).rem_euclid(every_ms);
    time_ms.saturating_sub(into)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(windows: impl Into<Windows>, time_ms: i64) -> Vec<i64> {
        let windows: Windows = windows.into();
        windows.of(time_ms).map(|window| window.start_ms).collect()
    }

    #[test]
    fn a_window_starts_at_or_before_each_of_its_times_also_before_the_epoch() {
        let day = Tumbling::of(86_400_000);
        assert_eq!(day.start_of(0), 0);
        assert_eq!(day.start_of(86_399_999), 0);
        assert_eq!(day.start_of(86_400_000), 86_400_000);
        assert_eq!(day.start_of(-1), -86_400_000);
        let shifted = Tumbling::of(10).offset(3);
        assert_eq!([2, 3, 12, 13].map(|t| shifted.start_of(t)), [-7, 3, 3, 13]);
        assert_eq!(starts(shifted, 13), [13]);
    }

    #[test]
    fn sliding_windows_hold_a_time_as_often_as_they_overlap() {
        assert_eq!(starts(Sliding::of(10, 5), 12), [10, 5]);
        assert_eq!(starts(Sliding::of(10, 5), 10), [10, 5]);
        assert_eq!(starts(Sliding::of(10, 5), -1), [-5, -10]);
        assert_eq!(starts(Sliding::of(10, 3), 9), [9, 6, 3, 0]);
        assert_eq!(starts(Sliding::of(10, 5).offset(1), 12), [11, 6]);
        // Between two windows there is nothing.
        assert_eq!(starts(Sliding::of(3, 10), 12), [10]);
        assert_eq!(starts(Sliding::of(3, 10), 13), [0; 0]);
    }

    #[test]
    fn a_time_at_either_end_of_all_time_has_windows() {
        for time in [i64::MIN + 1, i64::MAX] {
            assert_eq!(starts(Tumbling::of(10), time).len(), 1, "{time}");
            assert!(!starts(Sliding::of(10, 5), time).is_empty(), "{time}");
        }
        let session: Windows = Session::gap(5).into();
        let window = session.of(i64::MAX - 1).next().unwrap();
        assert_eq!(window, TimeWindow::new(i64::MAX - 1, i64::MAX));
    }
}
