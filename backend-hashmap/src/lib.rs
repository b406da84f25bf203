//! Live tables made durable by full copy-on-write snapshots.
