//! The laws by name.

use std::fmt;
use std::str::FromStr;

/// Who decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Law {
    /// The product's own, plain: drop what is over the limit, by the share that is over.
    Ratio,
    /// The product's own, whole: grants to zones, early reports, memory of excess.
    Grant,
    /// A token bucket in each client, refilled by its part of the load.
    ProxyBucket,
    /// A central fixed window that every request asks.
    EnvoyRedis,
    /// Batch reports to a central fixed window.
    BatchWindow,
    /// Batch reports, and a share to reject.
    BatchRate,
    /// Batch reports to a central token bucket that may go negative.
    BatchBucket,
    /// Leases of capacity.
    Prefetch,
}

/// No law has that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no law {found:?}; there are: {}", Law::names())]
pub struct UnknownLaw {
    /// The name.
    pub found: String,
}

impl Law {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::Ratio,
        Self::Grant,
        Self::ProxyBucket,
        Self::EnvoyRedis,
        Self::BatchWindow,
        Self::BatchRate,
        Self::BatchBucket,
        Self::Prefetch,
    ];

    /// Whether it is one of the product's own.
    #[must_use]
    pub fn is_ours(self) -> bool {
        matches!(self, Self::Ratio | Self::Grant)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ratio => "ratio",
            Self::Grant => "grant",
            Self::ProxyBucket => "proxy-bucket",
            Self::EnvoyRedis => "envoy-redis",
            Self::BatchWindow => "batch-window",
            Self::BatchRate => "batch-rate",
            Self::BatchBucket => "batch-bucket",
            Self::Prefetch => "prefetch",
        }
    }

    fn names() -> String {
        Self::ALL.iter().map(|law| law.name()).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Law {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Law {
    type Err = UnknownLaw;

    fn from_str(text: &str) -> Result<Self, UnknownLaw> {
        let found = Self::ALL.iter().copied().find(|law| law.name() == text);
        found.ok_or_else(|| UnknownLaw { found: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_law_is_its_name() {
        for law in Law::ALL {
            assert_eq!(law.name().parse(), Ok(*law));
        }
        let error = "x".parse::<Law>().expect_err("none").to_string();
        assert!(error.contains("ratio"), "{error}");
    }
}
