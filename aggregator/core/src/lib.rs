//! A zone's aggregator without I/O: takes clients' reports, is the root of zone scope, rolls the
//! rest up to the controller and passes its directives and configuration on.
//!
//! It knows no clock, stream or wire format. Feed it through the `handle_` methods, drain it through
//! the `poll_` methods after each.
#![warn(missing_docs)]
#![warn(clippy::wildcard_enum_match_arm, clippy::iter_over_hash_type)]

mod aggregator;
mod uplink;

pub use aggregator::{Aggregator, Config};
pub use sluicegate_law::{
    Counters, KeyView, Limits, Refusal, ServiceView, SessionId, SessionView, View,
};
