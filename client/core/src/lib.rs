//! The embedded client without I/O: the decision path, and the agent's state machine.
//!
//! A [`Limiter`] decides requests in the calling thread; its [`Keeper`] owns the table it decides
//! by. Neither knows a clock but the one handed in, a socket, or a task.
#![warn(missing_docs)]

mod agent;
mod cell;
mod decide;
mod each;
mod few;
mod grow;
mod hash;
mod keeper;
mod limiter;
#[cfg(all(test, loom))]
mod loom_tests;
mod matcher;
mod open;
mod outcome;
mod plan;
mod settings;
mod sharing;
mod slot;
mod stats;
mod stripe;
mod sync;
mod table;
mod values;
mod waiting;

pub use agent::{
    Agent, AgentCounters, Counter, MAX_ENTRIES_UNACKNOWLEDGED, MAX_IDS, MAX_LEAVING_KEYS,
    MAX_REPORT_ENTRIES, MAX_REPORT_NAME_BYTES, MAX_REPORTS_UNACKNOWLEDGED, MAX_SERVICES,
};
pub use keeper::{Keeper, KeyEvent, KeyHandle, StalePolicy};
pub use limiter::{Limiter, Prepared, client, limiter};
pub use outcome::{BucketName, BucketRef, Decision, Outcome, Verdict};
pub use settings::{CoarseClock, Settings, Switches};
pub use stats::{KeyStats, Stats};
