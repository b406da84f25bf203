//! Snapshots that are files: what they share, what they survive, what becomes of them at another parallelism, how long a restore
//! takes, and what is left on disk.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a failure here fails the test, and shows its seed"
)]
mod damage;
mod harness;
mod increments;
mod released;
mod rescale;
mod resumed;
mod times;
