//! Directives on their way down.

use std::time::Duration;

use crate::Term;

/// The share of offered requests to admit, as a 32-bit binary fraction. All ones means every one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AdmitRatio(u32);

impl AdmitRatio {
    /// Admit everything.
    pub const ALL: Self = Self(u32::MAX);
    /// Admit nothing.
    pub const NONE: Self = Self(0);

    /// From its bits.
    #[must_use]
    pub const fn from_bits(q32: u32) -> Self {
        Self(q32)
    }

    /// Its bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The nearest ratio to `share`, which is clamped to 0..=1; not-a-number admits everything.
    #[must_use]
    pub fn from_share(share: f64) -> Self {
        if share.is_nan() || share >= 1.0 {
            return Self::ALL;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
        let bits = (share.max(0.0) * 4_294_967_296.0).min(4_294_967_294.0) as u32;
        Self(bits)
    }

    /// As a share of 1.
    #[must_use]
    pub fn share(self) -> f64 {
        if self == Self::ALL { 1.0 } else { f64::from(self.0) / 4_294_967_296.0 }
    }

    /// The share to drop: `1 - share`.
    #[must_use]
    pub fn drop_ratio(self) -> f64 {
        1.0 - self.share()
    }
}

/// What a root says of one key, the same for every client.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Directive {
    /// The share of offered requests to admit.
    pub admit: AdmitRatio,
    /// Head-room that the child's grant leaves, for each request a second of a client's usual rate.
    /// 0 under `ratio`.
    pub headroom: f32,
    /// The child's grant, for each request a second of a client's usual rate: what is a client's own
    /// share. 0 under `ratio`.
    pub sigma: f32,
    /// The limit in force, requests a second; infinite if unlimited.
    pub limit_rps: f64,
    /// Client sessions that reported the key lately, summed at the root.
    pub sessions: u32,
    /// The term of the leader behind it. An older one is ignored.
    pub term: Term,
    /// Grows within a term and stream; an older one is ignored.
    pub seq: u64,
    /// How long it holds after it arrives.
    pub ttl: Duration,
    /// What the child may admit, for it to share out among its own. `None` to clients, under `ratio`,
    /// and where the root itself sets the ratio: then `admit` is passed on as it is.
    pub grant: Option<Grant>,
}

/// The part of a limit that a parent gives a child, requests a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Grant {
    /// What it may admit now.
    pub rps: f64,
    /// What of that it may go on admitting without word from its parent: without burst that is
    /// being spent. Never more than `rps`.
    pub base_rps: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_round_and_clamp() {
        assert_eq!(AdmitRatio::from_share(1.5), AdmitRatio::ALL);
        assert_eq!(AdmitRatio::from_share(f64::NAN), AdmitRatio::ALL);
        assert_eq!(AdmitRatio::from_share(-1.0), AdmitRatio::NONE);
        assert!(AdmitRatio::from_share(0.999_999_999_99) < AdmitRatio::ALL);
        assert!((AdmitRatio::from_share(2.0 / 3.0).drop_ratio() - 1.0 / 3.0).abs() < 1e-9);
    }
}
