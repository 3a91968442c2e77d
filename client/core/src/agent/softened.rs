//! The counts of a bucket that enforces only a part of its drops: what went through only thanks to
//! that is counted as a shadow's, so that laws see what would have been admitted.

use sluicegate_model::{AdmitRatio, Counts};

/// What is carried from one count of such a key to the next.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Softened {
    /// Part of a request that went through too much, 0 up to 1.
    owed: f64,
}

impl Softened {
    /// Books what of `counts` went through only because `told` was softened to `enforced`: all of it
    /// over time, in whole requests.
    pub(super) fn book(&mut self, counts: &mut Counts, told: AdmitRatio, enforced: AdmitRatio) {
        if enforced <= told {
            return;
        }
        let spared_share = 1.0 - told.share() / enforced.share();
        #[expect(clippy::cast_precision_loss, reason = "requests between two looks, below 2^52")]
        let spared = counts.charged() as f64 * spared_share + self.owed;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded")]
        let whole = (spared as u64).min(counts.charged());
        #[expect(clippy::cast_precision_loss, reason = "requests between two looks, below 2^52")]
        let rest = spared - whole as f64;
        self.owed = rest.clamp(0.0, 1.0);
        counts.would_drop += whole;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn admitted(n: u64) -> Counts {
        Counts { matched: n, offered: n, admitted: n, would_drop: 0 }
    }

    #[test]
    fn without_a_softer_ratio_nothing_is_booked() {
        let mut softened = Softened::default();
        for ratio in [AdmitRatio::NONE, AdmitRatio::from_share(0.3), AdmitRatio::ALL] {
            let mut counts = admitted(100);
            softened.book(&mut counts, ratio, ratio);
            assert_eq!(counts.would_drop, 0);
        }
    }

    #[test]
    fn a_ratio_of_nothing_books_everything() {
        let mut counts = admitted(17);
        Softened::default().book(&mut counts, AdmitRatio::NONE, AdmitRatio::from_share(0.25));
        assert_eq!((counts.would_drop, counts.charged()), (17, 0));
    }

    proptest! {
        #[test]
        fn sums_are_exact_within_one_request(
            told in 0.0..1.0_f64,
            more in 0.0..1.0_f64,
            each in proptest::collection::vec(0_u64..50, 1..300),
        ) {
            let told = AdmitRatio::from_share(told);
            let enforced = AdmitRatio::from_share(told.share() + (1.0 - told.share()) * more);
            let (mut softened, mut sum) = (Softened::default(), Counts::default());
            for n in each {
                let mut counts = admitted(n);
                softened.book(&mut counts, told, enforced);
                prop_assert!(counts.is_consistent());
                sum.add(&counts);
            }
            let share = told.share() / enforced.share().max(1e-12);
            let expected = sum.admitted as f64 * (1.0 - share.min(1.0));
            prop_assert!((sum.would_drop as f64 - expected).abs() < 1.001);
        }
    }
}
