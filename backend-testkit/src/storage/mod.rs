//! Checkpoint storage for tests: in memory, counting, and failing on demand.
mod counting;
mod faulty;
mod memory;

pub use counting::{CountingStorage, StorageCounts};
pub use faulty::{Call, Fault, FaultyStorage};
pub use memory::MemoryStorage;
