//! Snapshots that are files: what they share, what they survive, and what becomes of them at another parallelism.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a failure here fails the test, and shows its seed"
)]
mod damage;
mod harness;
mod increments;
mod rescale;
