//! The embedded client: a limit for the whole fleet, decided in this process.
//!
//! A decision compares a share, which the control plane sends, with a drawn threshold: no remote
//! call, no lock and no allocation is on the way of a request. A thread of its own reports what was
//! decided and takes in what the control plane says. If the control plane is gone, or was never
//! there, requests go on.
//!
//! ```no_run
//! use sluicegate_client::{Limiter, Request, Settings};
//!
//! let limiter = Limiter::start(Settings {
//!     node: "checkout-7".into(),
//!     zone: "eu-1a".into(),
//!     region: "eu-1".into(),
//!     services: vec!["payments".into()],
//!     ..Settings::new(["http://aggregator.eu-1a:7401"])
//! })?;
//!
//! let call = Request { service: "payments", caller: "checkout", procedure: "Pay/Charge", dimensions: &[] };
//! if !limiter.decide(&call).is_admitted() {
//!     // Shed it: a retry, a cached answer, or status 429.
//! }
//! # Ok::<(), sluicegate_client::StartError>(())
//! ```
//!
//! For requests that all look alike, [`Limiter::prepare`] looks their buckets up once. [`layer`] does
//! the same for a whole tower (axum, tonic) service. [`Limiter::stats`] tells what goes on.
#![warn(missing_docs)]

mod agent;
mod clock;
pub mod layer;
mod limiter;
#[cfg(feature = "prometheus")]
pub mod metrics;
mod pace;
mod settings;
mod status;

pub use layer::RateLimitLayer;
pub use limiter::{Limiter, Prepared, Stats};
pub use settings::{Limits, Settings, StartError};
pub use sluicegate_client_core::{
    BucketName, BucketRef, Decision, KeyStats, Outcome, Stats as CoreStats, Verdict,
};
pub use sluicegate_model::Request;
pub use status::Connection;

#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
