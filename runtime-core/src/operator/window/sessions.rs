use state_api::StateType;

use super::TimeWindow;

/// A session that goes on: the window it covers by now, and the namespace that its content lies in.
///
/// The content stays where the session's first record put it, so that a session that grows moves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, StateType)]
pub(crate) struct OpenSession {
    pub(crate) window: TimeWindow,
    pub(crate) place: TimeWindow,
}

/// What becomes of the open sessions of a key when a record comes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Joined {
    /// The session that the record belongs to.
    pub(crate) session: OpenSession,
    /// The sessions that it takes the place of: none if it is new.
    pub(crate) merged: Vec<OpenSession>,
}

impl Joined {
    /// Finds the session of a record that alone makes the window `alone`. Open sessions never touch each other.
    pub(crate) fn of(open: &[OpenSession], alone: TimeWindow) -> Self {
        let touching = open.iter().filter(|session| session.window.touches(alone));
        let merged: Vec<OpenSession> = touching.copied().collect();
        let cover = |window: TimeWindow, session: &OpenSession| window.cover(session.window);
        let session = OpenSession {
            window: merged.iter().fold(alone, cover),
            place: merged.first().map_or(alone, |session| session.place),
        };
        Self { session, merged }
    }

    /// Returns whether the set of open sessions changes.
    pub(crate) fn is_change(&self) -> bool {
        self.merged != [self.session]
    }

    /// Returns the places of content that must move to the session's.
    pub(crate) fn places_to_move(&self) -> Vec<TimeWindow> {
        let others = self.merged.iter().skip(1);
        others.map(|session| session.place).collect()
    }

    /// Puts the session into the place of those that it took in.
    pub(crate) fn apply(&self, open: &mut Vec<OpenSession>) {
        open.retain(|session| !self.merged.contains(session));
        open.push(self.session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(start_ms: i64, end_ms: i64) -> TimeWindow {
        TimeWindow::new(start_ms, end_ms)
    }

    fn add(open: &mut Vec<OpenSession>, time: i64) -> Joined {
        let joined = Joined::of(open, window(time, time + 10));
        joined.apply(open);
        joined
    }

    #[test]
    fn a_session_grows_in_either_direction_and_keeps_its_place() {
        let mut open = Vec::new();
        let first = add(&mut open, 100);
        assert_eq!((first.merged.len(), first.is_change()), (0, true));
        add(&mut open, 105);
        let earlier = add(&mut open, 95);
        assert_eq!(earlier.places_to_move(), []);
        let session = OpenSession {
            window: window(95, 115),
            place: window(100, 110),
        };
        assert_eq!(open, [session]);
        assert!(!Joined::of(&open, window(100, 110)).is_change());
    }

    #[test]
    fn a_record_between_two_sessions_makes_them_one() {
        let mut open = Vec::new();
        for time in [100, 120, 150] {
            add(&mut open, time);
        }
        // The gap counts to the millisecond: windows that only meet are one session.
        let joined = add(&mut open, 110);
        assert_eq!(joined.session.window, window(100, 130));
        assert_eq!(joined.places_to_move(), [window(120, 130)]);
        assert_eq!(open.len(), 2);
    }
}
