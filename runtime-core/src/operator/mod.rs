//! What users write: operators over keyed state, over broadcast state, and over the state of a subtask.

mod broadcast;
mod keyed;
mod out;
mod plain;
mod states;
mod window;

pub use broadcast::{BroadcastOperator, BroadcastSide};
pub use keyed::KeyedOperator;
pub use out::Out;
pub use plain::Operator;
pub use states::States;
pub use window::{Tumbling, Windowed};

pub(crate) use states::RegisteredTimers;
pub(crate) use window::WindowOperator;
