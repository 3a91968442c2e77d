//! What an aggregator's and a controller's process have in common: one task that owns a core, the
//! streams of its children, the way up, and what the node shows of itself. It knows no law, no files
//! and no command line; what differs between the two tiers comes in as a [`Core`].

mod clock;
mod connection;
mod core;
mod door;
mod metrics;
mod pump;
mod running;
mod status;
mod tally;

pub use self::connection::CLOSE_GRACE;
pub use self::core::Core;
pub use self::door::Bounds;
pub use self::metrics::{MAX_BUCKET_SERIES, MAX_KEY_SERIES, NodeCollector, OTHER};
pub use self::pump::Published;
pub use self::running::{Identity, Node, Parent, Running, StartError, start};
pub use self::status::{
    ConfigurationProblem, KeyStatus, MAX_STATUS_ROWS, ParentStatus, Refused, ServiceStatus,
    SessionStatus, Status,
};
pub use self::tally::{Sample, Samples, Tally};
