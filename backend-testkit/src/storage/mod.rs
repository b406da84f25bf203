//! Checkpoint storage for tests: in memory, counting, late, and failing on demand.
mod counting;
mod faulty;
mod late;
mod memory;

pub use counting::{CountingStorage, StorageCounts};
pub use faulty::{Call, Fault, FaultyStorage};
pub use late::LateStorage;
pub use memory::MemoryStorage;
