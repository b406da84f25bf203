use super::StoreFaults;

/// What happens to a job in a [`Simulation`](super::Simulation).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// How often its process dies, at most; each successor starts from the latest checkpoint.
    pub deaths: u32,
    /// How many of the processes that died in its place were only frozen, and go on beside their successor, at most.
    pub thaws: u32,
    /// How often somebody cancels it, at most; it is started anew from the latest checkpoint.
    pub cancels: u32,
    /// How often somebody stops it, at most, with a savepoint or with a last checkpoint; it is started anew from there.
    pub stops: u32,
    /// In how many of a thousand stops with a savepoint the job is drained: its sources end their input first, so windows and timers
    /// fire with what they have, and again for what comes after the start anew.
    pub drains: u32,
    /// How often an operator, a source or a sink fails, at most: it returns an error or panics, at a record, a snapshot, a commit or
    /// wherever else code of the user's runs. The restart strategy of the settings answers; where it gives up, the process is
    /// succeeded by another.
    pub failures: u32,
    /// The number of steps after which a process dies, is cancelled or stopped, at most.
    pub steps: u64,
    /// Each attempt has a parallelism from 1 to this.
    pub max_parallelism: u32,
    /// In how many of a thousand steps somebody asks for a savepoint.
    pub savepoints: u32,
    /// Whether each attempt has checkpoint settings that the seed chooses: how barriers pass records, how many checkpoints are
    /// pending at a time, the minimum pause, the timeout, how many failed checkpoints in a row fail the job (the first
    /// one, perhaps), how many are kept, who owns the savepoint that it starts from; and the restart strategy.
    /// Otherwise those of the simulation count.
    pub settings: bool,
    /// How the store of the checkpoints fails.
    pub store: StoreFaults,
}

impl Trouble {
    /// None at all.
    #[must_use]
    pub fn none() -> Self {
        Self {
            deaths: 0,
            thaws: 0,
            cancels: 0,
            stops: 0,
            drains: 0,
            failures: 0,
            steps: 0,
            max_parallelism: 1,
            savepoints: 0,
            settings: false,
            store: StoreFaults::default(),
        }
    }

    /// A bit of everything, but drains: what they leave depends on the moment, where event time plays a part.
    #[must_use]
    pub fn some() -> Self {
        Self {
            deaths: 3,
            thaws: 1,
            cancels: 1,
            stops: 2,
            drains: 0,
            failures: 3,
            steps: 4_000,
            max_parallelism: 3,
            savepoints: 1,
            settings: true,
            store: StoreFaults {
                write: 10,
                publish: 50,
                publish_unknown: 50,
                delete: 50,
                read: 20,
                slow: 300,
            },
        }
    }
}
