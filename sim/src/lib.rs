//! The simulator: the product's own cores in virtual time, their rivals on the same world, and
//! faults. One seed, one history: no wall clock, no thread, no order of a hash map is in it.
#![warn(missing_docs)]
#![warn(clippy::wildcard_enum_match_arm, clippy::iter_over_hash_type)]

pub mod faults;
mod fleet;
mod heap;
mod law;
mod measure;
mod net;
mod node;
mod observe;
pub mod oracle;
mod outcome;
mod product;
mod random;
mod record;
pub mod report;
pub mod rivals;
mod run;
pub mod scenario;
mod setup;
mod trace;
mod workload;
mod world;

pub use fleet::{Fleet, Traced};
pub use law::{Law, UnknownLaw};
pub use net::Net;
pub use node::{Clock, NodeId, Topology};
pub use observe::{Ask, BucketId, Fate, Inside, NodeChange, Observer, Verdict};
pub use outcome::{
    BucketMeasures, BucketSeries, Measure, MessageSeries, Messages, Outcome, Series,
};
pub use product::ClientClock;
pub use random::{Rng, Weighted};
pub use run::{Run, RunError, prepare, run, run_observed};
pub use scenario::Scenario;
pub use setup::{BucketInfo, KindOfRequest, Setup};
pub use trace::Trace;
pub use workload::TraceError;
pub use world::Progress;
