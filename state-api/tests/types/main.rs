//! State types as programs use them: both codecs, keys, derives, migration, and damaged bytes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod derived;
mod fuzz;
mod heap;
mod keys;
mod meter;
mod migration;
mod roundtrip;
mod strategies;
