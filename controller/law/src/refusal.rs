//! Why a stream is closed.

use sluicegate_model::{PROTOCOL_VERSION, PROTOCOL_VERSION_MIN, Role};

/// Why a node closes a child's stream, or does not take it. A full node should be tried again
/// elsewhere or later; everything else is the child's mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The child speaks a protocol that this node does not.
    #[error(
        "protocol {offered} is not spoken here, only {PROTOCOL_VERSION_MIN} to {PROTOCOL_VERSION}: \
         update the older side"
    )]
    Protocol {
        /// What the hello named.
        offered: u32,
    },
    /// The child is of a kind that belongs to another tier.
    #[error("this node serves {expected:?}s, not {found:?}s: connect to the tier above or below")]
    Role {
        /// Whom this node serves.
        expected: Role,
        /// Who came.
        found: Role,
    },
    /// The hello asks for more services than allowed.
    #[error("the hello names {found} services, the most is {max}: name fewer, or none for all")]
    Services {
        /// How many were named.
        found: usize,
        /// The bound.
        max: usize,
    },
    /// Every place is taken.
    #[error("all {max} sessions are taken: connect to another node, or try again later")]
    Full {
        /// The bound.
        max: usize,
    },
    /// The shell used an id twice.
    #[error("a session with this id is open already")]
    AlreadyOpen,
    /// A message on a stream that was not opened, or was closed.
    #[error("this session is not open: begin the stream with a hello")]
    NotOpen,
    /// A hello after the first.
    #[error("a second hello on one stream: open a new stream instead")]
    SecondHello,
    /// A report with more parts than allowed.
    #[error("the report has {found} {part}, the most is {max}: split it")]
    ReportTooLarge {
        /// Which part is too long.
        part: &'static str,
        /// How many there were.
        found: usize,
        /// The bound.
        max: usize,
    },
}

impl Refusal {
    /// A short name for metrics.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Protocol { .. } => "protocol",
            Self::Role { .. } => "role",
            Self::Services { .. } => "services",
            Self::Full { .. } => "full",
            Self::AlreadyOpen => "already_open",
            Self::NotOpen => "not_open",
            Self::SecondHello => "second_hello",
            Self::ReportTooLarge { .. } => "report_too_large",
        }
    }

    /// Whether trying again elsewhere or later may help.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::NotOpen | Self::AlreadyOpen)
    }
}
