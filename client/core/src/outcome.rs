//! What a decision says: one word, and what it reads as.

use std::num::NonZeroU64;
use std::time::Duration;

use sluicegate_model::{AdmitRatio, Limit, Name};

const ADMIT: u64 = 1;
const SHADOW: u64 = 2;
const DROPPED: NonZeroU64 = NonZeroU64::MIN.saturating_add(3);
/// Below it stand flags of a slot, which an outcome replaces by its own.
pub(crate) const RETRY_SHIFT: u32 = 8;
const BUCKET_SHIFT: u32 = 32;

/// The longest `retry_after` that an outcome can tell, about 4.6 hours.
pub(crate) const MAX_RETRY_MS: u32 = (1 << 24) - 1;

/// The outcome of one decision. One word; [`Outcome::details`] reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use]
pub struct Outcome(NonZeroU64);

/// A bucket, as an outcome names it. [`crate::Limiter::bucket`] knows its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BucketRef(pub(crate) u32);

/// An [`Outcome`], spelt out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Let the request through.
    Admit {
        /// A shadow bucket that would have dropped it.
        shadow_dropped_by: Option<BucketRef>,
    },
    /// Refuse the request.
    Drop {
        /// The bucket that refused; of several, the first.
        bucket: BucketRef,
        /// When to try again at the earliest.
        retry_after: Duration,
    },
}

/// What one of several descriptors of a request met ([`crate::Limiter::decide_each`]).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Verdict {
    /// Whether every deny bucket of this descriptor admits. (The request as a whole goes through
    /// only if all its descriptors do.)
    pub admitted: bool,
    /// The deny bucket that refused, or else the one of those that match which admits least; `None`
    /// if no deny bucket matches.
    pub bucket: Option<BucketRef>,
    /// The limit of that bucket's key.
    pub limit: Limit,
    /// The share of offered requests that key admits now.
    pub admit: AdmitRatio,
    /// When to try again at the earliest, if it refused.
    pub retry_after: Duration,
}

/// The name of a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketName {
    /// Its service.
    pub service: Name,
    /// The bucket in the service.
    pub bucket: Name,
}

impl Outcome {
    pub(crate) const ADMITTED: Self = Self(NonZeroU64::MIN);

    pub(crate) fn shadow_dropped(bucket: u32) -> Self {
        Self(NonZeroU64::MIN | (u64::from(bucket) << BUCKET_SHIFT | ADMIT | SHADOW))
    }

    /// A drop by the key whose tag is `tag`: bucket and time to come back stand where they do here.
    #[inline(always)]
    pub(crate) fn dropped(tag: u64) -> Self {
        Self(DROPPED | (tag & !((1 << RETRY_SHIFT) - 1)))
    }

    /// Whether the request goes through.
    #[inline]
    #[must_use]
    pub fn is_admitted(self) -> bool {
        self.0.get() & ADMIT != 0
    }

    /// The outcome in full.
    #[must_use]
    pub fn details(self) -> Decision {
        let word = self.0.get();
        let bucket = BucketRef((word >> BUCKET_SHIFT) as u32);
        if word & ADMIT != 0 {
            Decision::Admit { shadow_dropped_by: (word & SHADOW != 0).then_some(bucket) }
        } else {
            let retry_ms = (word >> RETRY_SHIFT) & u64::from(MAX_RETRY_MS);
            Decision::Drop { bucket, retry_after: Duration::from_millis(retry_ms) }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_word_holds_what_was_put_in() {
        assert!(Outcome::ADMITTED.is_admitted());
        assert_eq!(Outcome::ADMITTED.details(), Decision::Admit { shadow_dropped_by: None });
        let shadow = Outcome::shadow_dropped(u32::MAX);
        assert!(shadow.is_admitted());
        assert_eq!(
            shadow.details(),
            Decision::Admit { shadow_dropped_by: Some(BucketRef(u32::MAX)) }
        );
        let drop = Outcome::dropped(u64::from(MAX_RETRY_MS) << RETRY_SHIFT | 0xff);
        assert!(!drop.is_admitted());
        let retry_after = Duration::from_millis(u64::from(MAX_RETRY_MS));
        assert_eq!(drop.details(), Decision::Drop { bucket: BucketRef(0), retry_after });
    }
}
