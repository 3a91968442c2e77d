//! What a node of the control plane works out, without I/O: the law, and the accounting of the
//! node's children that the law works on.
//!
//! Aggregator and controller run the same [`node::Node`]; they differ in which scopes they are the
//! root of and in what stands above them. Nothing here knows a clock, a socket, the wire format or
//! a file format.
#![warn(missing_docs)]
#![warn(clippy::wildcard_enum_match_arm, clippy::iter_over_hash_type)]

mod counters;
pub mod grant;
mod limits;
pub mod node;
mod plan;
pub mod ratio;
mod refusal;
mod view;

pub use counters::Counters;
pub use limits::Limits;
pub use plan::{Plan, Planned, Violation};
pub use refusal::Refusal;
pub use view::{KeyView, ServiceView, SessionView, View};

/// One stream of a child, chosen by the shell and never used twice.
pub type SessionId = u64;
