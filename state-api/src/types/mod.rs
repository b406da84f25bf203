//! State types out of std and `bytes`.
mod composite;
mod map;
mod scalar;
mod sequence;
mod text;

pub use composite::put_first;
pub(crate) use scalar::{char_of, duration_of, get_flag};
pub(crate) use sequence::{EMPTY_ELEMENT, expect_empty_element, try_array};
pub(crate) use text::{escape_ordered, unescape_ordered};
