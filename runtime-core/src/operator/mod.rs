//! What users write: operators over keyed state, over broadcast state, and over the state of a subtask.

mod broadcast;
mod keyed;
mod out;
mod plain;
mod side_output;
mod states;
mod two_inputs;
pub mod window;

pub use broadcast::{BroadcastOperator, BroadcastSide};
pub use keyed::KeyedOperator;
pub use out::Out;
pub use plain::Operator;
pub use side_output::{SideOutput, SideOutputId, SideRecord};
pub use states::States;
pub use two_inputs::{Side, TwoInputOperator, TwoInputs};
pub use window::{
    Session, Sliding, TimeWindow, Tumbling, WindowFunction, Windowed, Windowing, Windows,
};

pub(crate) use states::RegisteredTimers;
