//! State types as programs use them: both codecs, keys, derives, migration, and damaged bytes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use backend_testkit::meter::Metered;

mod derived;
mod fuzz;
mod heap;
mod keys;
mod migration;
mod roundtrip;
mod strategies;

#[global_allocator]
static METERED: Metered = Metered;
