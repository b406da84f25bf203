//! What tests of jobs and operators use: a seeded driver of whole jobs, and a harness of one keyed operator.
//!
//! ```
//! use std::sync::Arc;
//! use managed_state::keyed::{At, ValueState};
//! use runtime_core::testing::KeyedHarness;
//! use runtime_core::{KeyedOperator, Out, States};
//! use state_api::access::ValueAccess;
//! use state_api::Result;
//!
//! #[derive(Clone, Default)]
//! struct Count { n: ValueState<u64> }
//!
//! impl KeyedOperator for Count {
//!     type Key = String;
//!     type In = ();
//!     type Out = u64;
//!     fn open(&mut self, states: &mut States<'_, String>) -> Result<()> {
//!         self.n = states.value("n")?;
//!         Ok(())
//!     }
//!     fn process(&mut self, _: (), at: &mut At<'_, String>, out: &mut Out<'_, u64>) -> Result<()> {
//!         let n = at.value(self.n).update(|n| { *n += 1; *n })?;
//!         out.emit(n)
//!     }
//! }
//!
//! let backend = Arc::new(backend_hashmap::HashMapBackend);
//! let mut harness = KeyedHarness::start(Count::default(), backend.clone()).unwrap();
//! harness.process("a".to_owned(), ()).unwrap();
//! let snapshot = harness.snapshot().unwrap();
//! // Goes on as two subtasks; whichever owns the key has counted 1.
//! let mut halves = KeyedHarness::restore(Count::default(), backend, &[snapshot], 2).unwrap();
//! let owner = halves.iter_mut().find(|half| half.owns(&"a".to_owned())).unwrap();
//! owner.process("a".to_owned(), ()).unwrap();
//! assert_eq!(owner.take_values(), [2]);
//! ```
mod any_settings;
mod collected;
mod driver;
mod failing_operators;
mod faulty_checkpoints;
mod faulty_storage;
mod keyed_harness;
mod simulation;
mod step_executor;
mod stepped_job;
mod trouble;
mod two_input_harness;

pub use driver::Driver;
pub use faulty_checkpoints::{FaultyCheckpoints, StoreFaults};
pub use keyed_harness::KeyedHarness;
pub use simulation::{Simulation, SimulationReport};
pub use step_executor::StepExecutor;
pub use stepped_job::SteppedJob;
pub use trouble::Trouble;
pub use two_input_harness::TwoInputHarness;

use collected::Collected;
