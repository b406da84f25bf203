//! The tags of the sections of the metadata, the reserved ones included.
//!
//! A tag is never given a second meaning. Tags from 1,000,000 on are free for others; they must be optional.

/// Sections of the whole file.
pub mod file {
    /// Who the checkpoint is: id, job, attempt, kind, own root, time.
    pub const CHECKPOINT: u32 = 1;
    /// URLs of other roots.
    pub const ROOTS: u32 = 2;
    /// Facts for people and tools.
    pub const PROPERTIES: u32 = 3;
    /// State of the coordinator's hooks.
    pub const HOOKS: u32 = 4;
    /// One operator; repeated.
    pub const OPERATOR: u32 = 16;
    /// Reserved: claims on folders of other jobs.
    pub const CLAIMS: u32 = 32;
    /// Reserved: checkpoints that this one builds on.
    pub const BASES: u32 = 33;
}

/// Sections of an operator.
pub mod operator {
    /// Uid, name, parallelism, maximum parallelism, hash.
    pub const IDENTITY: u32 = 1;
    /// The descriptions of all states, referred to by position.
    pub const STATES: u32 = 2;
    /// State of the operator's coordinator.
    pub const COORDINATOR: u32 = 3;
    /// One subtask; repeated.
    pub const SUBTASK: u32 = 16;
    /// Reserved: transactions of sinks that are to be committed.
    pub const COMMITTABLES: u32 = 32;
}

/// Sections of a subtask.
pub mod subtask {
    /// Index and whether it had ended.
    pub const IDENTITY: u32 = 1;
    /// One handle of managed keyed state; repeated.
    pub const MANAGED_KEYED: u32 = 2;
    /// One handle of raw keyed state; repeated.
    pub const RAW_KEYED: u32 = 3;
    /// One handle of managed operator state; repeated.
    pub const MANAGED_OPERATOR: u32 = 4;
    /// One handle of raw operator state; repeated.
    pub const RAW_OPERATOR: u32 = 5;
    /// What it had been told of the end of its input.
    pub const INPUT_END: u32 = 6;
    /// One handle of keyed records that were in flight to the operator; repeated.
    pub const IN_FLIGHT_KEYED: u32 = 32;
    /// One handle of records without a key that were in flight to the operator; repeated.
    pub const IN_FLIGHT: u32 = 33;
    /// Reserved: change streams on top of a base.
    pub const CHANGE_STREAMS: u32 = 34;
    /// Reserved: transactions of sinks that are to be committed.
    pub const COMMITTABLES: u32 = 35;
    /// Reserved: the checkpoint that local copies must belong to.
    pub const LOCAL_REFERENCE: u32 = 36;
}

/// The first tag that is free for others.
pub const FIRST_FREE: u32 = 1_000_000;
