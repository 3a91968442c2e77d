//! One client in virtual time, its agent talking to a stand-in for an aggregator.

mod cap;
mod configuration;
mod control_loss;
mod directives;
mod eviction;
mod grant;
mod guard;
mod reports;
mod rig;
mod softened;
