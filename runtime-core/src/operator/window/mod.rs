//! Windows over the records of each key: which windows there are, what they hold, and when they fire.
//!
//! The rules are those of Flink's `WindowOperator` with its default triggers: a window fires when the watermark (or the clock)
//! passes its last millisecond, and once more for every record that comes later, until its allowed lateness is over; then its
//! state is removed, and what still comes for it is late.
mod assigner;
mod contents;
mod function;
mod sessions;
mod time_window;
mod window_operator;
mod windowing;

pub use assigner::{Session, Sliding, Tumbling, Windows};
pub use function::WindowFunction;
pub use time_window::{TimeWindow, Windowed};
pub use windowing::Windowing;

use contents::{Aggregated, Contents, Listed, Reduced};
use window_operator::WindowOperator;
