//! Scenarios: what a world is made of, what is asked of it and what goes wrong, as data; reading
//! them from YAML with errors that point into the file; the named ones. Knows nothing of how they
//! run.

mod builtin;
mod check;
mod read;
mod tree;
mod types;
mod values;

pub use builtin::{Builtin, builtin, builtins};
pub use check::Problem;
pub use read::{LoadError, ScenarioError, load, parse};
pub use types::{
    Bucket, Fault, FaultKind, Hops, Kind, Mode, OnControlLoss, Order, Retries, Scenario, Scope,
    Select, Service, Shape, Tier, Way, Workload,
};
pub use values::{DelayMs, InvalidDelay, Switch, Which};
