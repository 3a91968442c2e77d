//! The embedded client without I/O: the decision path, and the agent's state machine.
#![warn(missing_docs)]

mod keeper;
mod settings;

pub use keeper::{KeyEvent, KeyHandle, Keeper, StalePolicy};
pub use settings::{CoarseClock, Settings};
