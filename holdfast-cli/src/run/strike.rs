use std::collections::HashMap;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use runtime_core::execution::{Failpoint, Failpoints};

/// The moments by name.
const MOMENTS: [(&str, Failpoint); 6] = [
    ("aligning", Failpoint::Aligning),
    ("sync", Failpoint::Sync),
    ("async", Failpoint::Async),
    ("publish", Failpoint::Publish),
    ("commit", Failpoint::Commit),
    ("replay-skip", Failpoint::ReplaySkip),
];

/// What a crash test asks of the process: to die when a moment is reached for the n-th time, or to lose a replayed record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Strike {
    moment: Failpoint,
    nth: u32,
}

impl FromStr for Strike {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, nth) = text.split_once(':').unwrap_or((text, "1"));
        let moment = MOMENTS
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, moment)| *moment);
        let names = || MOMENTS.map(|(name, _)| name).join(", ");
        Ok(Self {
            moment: moment.ok_or_else(|| format!("the moments are {}", names()))?,
            nth: nth
                .parse()
                .ok()
                .filter(|nth| *nth > 0)
                .ok_or("the number behind the colon must be at least 1")?,
        })
    }
}

impl std::fmt::Display for Strike {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = MOMENTS
            .iter()
            .find(|(_, moment)| *moment == self.moment)
            .map_or("", |(name, _)| name);
        write!(f, "{name}:{}", self.nth)
    }
}

/// Makes the hook for a job's failpoints.
pub(crate) fn failpoints(strikes: &[Strike]) -> Failpoints {
    if strikes.is_empty() {
        return Failpoints::none();
    }
    let strikes = strikes.to_vec();
    let reached = Mutex::new(HashMap::<Failpoint, u32>::new());
    Failpoints::new(move |moment| {
        let mut reached = reached.lock().unwrap_or_else(PoisonError::into_inner);
        let times = reached.entry(moment).or_default();
        *times += 1;
        let hit = strikes.contains(&Strike {
            moment,
            nth: *times,
        });
        if hit && moment != Failpoint::ReplaySkip {
            die();
        }
        hit
    })
}

/// Ends the process as if somebody else had killed it: nothing runs after this, no destructor and no handler.
fn die() {
    use rustix::process::{Signal, getpid, kill_process};
    let _ = kill_process(getpid(), Signal::KILL);
    loop {
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strike_is_a_moment_and_how_often_it_comes_first() {
        let strike: Strike = "sync:3".parse().unwrap();
        assert_eq!(
            strike,
            Strike {
                moment: Failpoint::Sync,
                nth: 3
            }
        );
        assert_eq!(strike.to_string(), "sync:3");
        assert_eq!("commit".parse::<Strike>().unwrap().nth, 1);
        assert!(
            "lunch"
                .parse::<Strike>()
                .unwrap_err()
                .contains("aligning, sync")
        );
        assert!("sync:0".parse::<Strike>().is_err());
    }
}
