//! A region's controller without I/O: owns the configuration, is the root of region and global
//! scope, and tells the aggregators what follows.
//!
//! It knows no clock, stream, store or file. Feed it through the `handle_` methods, drain it through
//! [`Controller::poll_child`] after each.
#![warn(missing_docs)]
#![warn(clippy::wildcard_enum_match_arm, clippy::iter_over_hash_type)]

mod controller;

pub use controller::{Config, Controller};
pub use sluicegate_law::{
    Counters, KeyView, Limits, Plan, Planned, Refusal, ServiceView, SessionId, SessionView, View,
    Violation,
};
