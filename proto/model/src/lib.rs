//! The vocabulary that every tier shares: requests, buckets, keys, reports, directives, time.
//!
//! Pure data with its validation. It knows no I/O, no wire format, no file format and no law; every
//! embedded client links it, so it depends on next to nothing.
#![warn(missing_docs)]

mod bucket;
mod directive;
mod invariants;
mod key;
mod law;
mod limit;
mod matching;
mod message;
mod name;
mod report;
mod request;
mod time;

pub use bucket::{
    Bucket, Classes, MAX_BUCKETS_PER_SERVICE, Mode, OnControlLoss, Overflow, Owner, Per, Scope,
    Select, ServiceBuckets, Sharing,
};
pub use directive::{AdmitRatio, Directive, Grant};
pub use invariants::Invariant;
pub use key::{KeyName, KeyValues};
pub use law::Law;
pub use limit::{InvalidLimit, Limit, TokenRate};
pub use matching::{Match, Pattern, Patterns, Rule, Specificity};
pub use message::{
    ConfigVersion, Configuration, Down, Hello, PROTOCOL_VERSION, PROTOCOL_VERSION_MIN, Role, Term,
    Up, Update,
};
pub use name::{InvalidName, MAX_NAME_BYTES, MAX_VALUE_BYTES, Name};
pub use report::{Counts, Entry, Flight, KeyId, Report, ServiceCounts};
pub use request::Request;
pub use time::Time;
