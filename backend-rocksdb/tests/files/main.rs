//! Snapshots that are files: what they share, what they survive, and what becomes of them at another parallelism.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
mod damage;
mod harness;
mod increments;
mod rescale;
