//! One counter of one key: how much of the ratio was drawn, what was admitted and dropped, and how
//! much the cap leaves. It knows neither buckets nor threads.
//!
//! A cell is either *shared* (any thread, atomic additions) or *owned* (one thread writes, with
//! plain loads and stores; the agent only reads the counts and writes the budget). Which one it is
//! never changes; the caller says so by calling the one set of methods or the other.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The most hits that one decision counts. More are counted as that many, which keeps every
/// difference of the drawing within half the range of its counter.
pub(crate) const MAX_HITS: u32 = 1 << 24;

/// No cap.
pub(crate) const NO_BUDGET: u64 = u64::MAX;

/// The ratio that admits all: drawing is skipped.
pub(crate) const ALL: u32 = u32::MAX;

/// What a cell counted. Cumulative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Raw {
    /// Passed this key, and every deny bucket.
    pub(crate) admitted: u64,
    /// Refused by this key and by no other deny bucket.
    pub(crate) alone: u64,
    /// Refused by another deny bucket.
    pub(crate) blocked: u64,
}

impl Raw {
    pub(crate) fn add(&mut self, more: Self) {
        self.admitted = self.admitted.wrapping_add(more.admitted);
        self.alone = self.alone.wrapping_add(more.alone);
        self.blocked = self.blocked.wrapping_add(more.blocked);
    }

    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            admitted: self.admitted.saturating_sub(earlier.admitted),
            alone: self.alone.saturating_sub(earlier.alone),
            blocked: self.blocked.saturating_sub(earlier.blocked),
        }
    }
}

/// Which of the counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tally {
    Admitted,
    Alone,
    Blocked,
}

/// The counter. 48 bytes: with the 16 of a slot's head, one cache line.
#[derive(Debug)]
pub(crate) struct CountCell {
    /// The sum of the ratios of all that was drawn: 32 bits of whole units, 32 of fraction.
    drawn: AtomicU64,
    /// Owned: how many units were passed. Shared: units due and not passed yet, as a signed number.
    passed: AtomicU32,
    /// Four bytes that alignment would waste: a slot keeps its service's place here.
    pub(crate) beside: AtomicU32,
    admitted: AtomicU64,
    alone: AtomicU64,
    blocked: AtomicU64,
    /// Admit no further than to this value of `admitted`.
    budget: AtomicU64,
}

impl CountCell {
    /// An owned cell. `random` sets in which unit the drawing starts, and where in it: so no two
    /// cells have the same thresholds before them.
    pub(crate) fn owned(random: u64) -> Self {
        let cell = Self::shared(random);
        cell.passed.store(due(random), Ordering::Relaxed);
        cell
    }

    /// A shared cell.
    pub(crate) fn shared(random: u64) -> Self {
        Self {
            drawn: AtomicU64::new(random),
            passed: AtomicU32::new(0),
            beside: AtomicU32::new(0),
            admitted: AtomicU64::new(0),
            alone: AtomicU64::new(0),
            blocked: AtomicU64::new(0),
            budget: AtomicU64::new(NO_BUDGET),
        }
    }

    /// Draws for `hits` on an owned cell: whether they pass, whole or not at all.
    #[inline(always)]
    pub(crate) fn draw_owned(&self, ratio: u32, hits: u32) -> bool {
        let drawn =
            self.drawn.load(Ordering::Relaxed).wrapping_add(u64::from(ratio) * u64::from(hits));
        self.drawn.store(drawn, Ordering::Relaxed);
        let passed = self.passed.load(Ordering::Relaxed);
        let pass = due(drawn).wrapping_sub(passed).cast_signed() > 0;
        // Without a branch: whether it passes is the one thing here that no predictor can know.
        let taken = if pass { hits } else { 0 };
        self.passed.store(passed.wrapping_add(taken), Ordering::Relaxed);
        pass
    }

    /// The same on a shared cell. What one thread's step makes due is taken by it or left to the
    /// next; no step is lost, whatever the interleaving.
    #[inline]
    pub(crate) fn draw_shared(&self, ratio: u32, hits: u32) -> bool {
        let step = u64::from(ratio) * u64::from(hits);
        let before = self.drawn.fetch_add(step, Ordering::Relaxed);
        let now_due = due(before.wrapping_add(step)).wrapping_sub(due(before));
        let owed = self.passed.load(Ordering::Relaxed);
        let pass = owed.wrapping_add(now_due).cast_signed() > 0;
        let change = now_due.wrapping_sub(if pass { hits } else { 0 });
        if change != 0 {
            self.passed.fetch_add(change, Ordering::Relaxed);
        }
        pass
    }

    /// Whether one hit would pass, without drawing.
    pub(crate) fn would_pass(&self, ratio: u32, owned: bool) -> bool {
        let before = self.drawn.load(Ordering::Relaxed);
        let after = due(before.wrapping_add(u64::from(ratio)));
        let passed = self.passed.load(Ordering::Relaxed);
        let owed = if owned {
            after.wrapping_sub(passed)
        } else {
            after.wrapping_sub(due(before)).wrapping_add(passed)
        };
        owed.cast_signed() > 0
    }

    /// Whether the cap leaves room for `hits`.
    #[inline(always)]
    pub(crate) fn has_budget(&self, hits: u32) -> bool {
        let after = self.admitted.load(Ordering::Relaxed).wrapping_add(u64::from(hits));
        after <= self.budget.load(Ordering::Relaxed)
    }

    /// Counts on an owned cell.
    #[inline(always)]
    pub(crate) fn count_owned(&self, tally: Tally, hits: u32) {
        let count = self.of(tally);
        let sum = count.load(Ordering::Relaxed).wrapping_add(u64::from(hits));
        count.store(sum, Ordering::Relaxed);
    }

    /// Counts on a shared cell.
    #[inline]
    pub(crate) fn count_shared(&self, tally: Tally, hits: u32) {
        self.of(tally).fetch_add(u64::from(hits), Ordering::Relaxed);
    }

    #[inline]
    fn of(&self, tally: Tally) -> &AtomicU64 {
        match tally {
            Tally::Admitted => &self.admitted,
            Tally::Alone => &self.alone,
            Tally::Blocked => &self.blocked,
        }
    }

    /// The counts as they are now.
    pub(crate) fn read(&self) -> Raw {
        Raw {
            admitted: self.admitted.load(Ordering::Relaxed),
            alone: self.alone.load(Ordering::Relaxed),
            blocked: self.blocked.load(Ordering::Relaxed),
        }
    }

    /// Leaves room for `allowance` more from here; `None` for no cap. The agent's.
    pub(crate) fn set_budget(&self, allowance: Option<u64>) {
        let budget = allowance
            .map_or(NO_BUDGET, |more| self.admitted.load(Ordering::Relaxed).saturating_add(more));
        self.budget.store(budget, Ordering::Relaxed);
    }

    /// Back to zero, for a cell that nobody uses.
    pub(crate) fn clear(&self) {
        self.admitted.store(0, Ordering::Relaxed);
        self.alone.store(0, Ordering::Relaxed);
        self.blocked.store(0, Ordering::Relaxed);
        self.budget.store(NO_BUDGET, Ordering::Relaxed);
    }
}

/// How many units are due when the ratios drawn add up to `drawn`: each whole one, and the one under
/// way as soon as its fraction exceeds the unit's own threshold. So within any run of units the
/// number due is the exact share, but no two cells pass in step.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the halves of one word, on purpose")]
fn due(drawn: u64) -> u32 {
    let unit = (drawn >> 32) as u32;
    unit.wrapping_add(u32::from(drawn as u32 > threshold(unit)))
}

/// A 32-bit hash of a unit. The second multiplication matters: after one, the thresholds of all
/// cells still move in step from unit to unit.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the high half is the hash")]
fn threshold(unit: u32) -> u32 {
    let x = u64::from(unit).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((x ^ x >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32) as u32
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn ratio(share: f64) -> u32 {
        sluicegate_model::AdmitRatio::from_share(share).bits()
    }

    #[test]
    fn the_long_run_share_is_exact_within_two_requests() {
        for (i, share) in [0.0, 0.001, 0.3, 0.5, 2.0 / 3.0, 0.999].into_iter().enumerate() {
            let n = 100_000;
            let (owned, shared) =
                (CountCell::owned(crate::hash::mix(i as u64)), CountCell::shared(99));
            let passed = (0..n).filter(|_| owned.draw_owned(ratio(share), 1)).count();
            assert!((passed as f64 - n as f64 * share).abs() <= 2.0, "owned {share}: {passed}");
            let passed = (0..n).filter(|_| shared.draw_shared(ratio(share), 1)).count();
            assert!((passed as f64 - n as f64 * share).abs() <= 2.0, "shared {share}: {passed}");
        }
    }

    #[test]
    fn hits_pass_whole_and_in_their_share() {
        for owned in [true, false] {
            let cell = CountCell::owned(5);
            let cell = if owned { cell } else { CountCell::shared(5) };
            let (mut offered, mut passed) = (0_u64, 0_u64);
            for i in 0..200_000_u32 {
                let hits = 1 + (i * 7919) % 40;
                let pass = if owned {
                    cell.draw_owned(ratio(0.4), hits)
                } else {
                    cell.draw_shared(ratio(0.4), hits)
                };
                offered += u64::from(hits);
                passed += if pass { u64::from(hits) } else { 0 };
            }
            let share = passed as f64 / offered as f64;
            assert!((share - 0.4).abs() < 0.0005, "{share}");
        }
    }

    #[test]
    fn asking_draws_nothing_and_tells_what_the_next_draw_says() {
        for owned in [true, false] {
            let cell = if owned { CountCell::owned(1 << 40) } else { CountCell::shared(1 << 40) };
            for _ in 0..1000 {
                let expected = cell.would_pass(ratio(0.37), owned);
                assert_eq!(expected, cell.would_pass(ratio(0.37), owned));
                let drawn = if owned {
                    cell.draw_owned(ratio(0.37), 1)
                } else {
                    cell.draw_shared(ratio(0.37), 1)
                };
                assert_eq!(drawn, expected);
            }
        }
    }

    #[test]
    fn a_budget_is_used_up_and_filled_again() {
        let cell = CountCell::owned(3);
        assert!(cell.has_budget(MAX_HITS), "off at first");
        cell.set_budget(Some(2));
        assert!(cell.has_budget(2) && !cell.has_budget(3));
        cell.count_owned(Tally::Admitted, 2);
        assert!(!cell.has_budget(1));
        cell.count_owned(Tally::Alone, 1);
        cell.set_budget(Some(1));
        assert!(cell.has_budget(1), "only what was admitted uses it up");
        cell.set_budget(None);
        assert!(cell.has_budget(MAX_HITS));
    }

    /// Two buckets with the same ratio in one client: over many pairs of starts, the share that
    /// passes both is the product.
    #[test]
    fn two_cells_pass_independently() {
        for share in [0.3, 0.5, 0.7] {
            let mut both = 0_u32;
            let (pairs, n) = (400_u64, 2_000);
            for pair in 0..pairs {
                let start = |i: u64| crate::hash::mix(pair * 2 + i);
                let (a, b) = (CountCell::owned(start(0)), CountCell::owned(start(1)));
                for _ in 0..n {
                    let (x, y) = (a.draw_owned(ratio(share), 1), b.draw_owned(ratio(share), 1));
                    both += u32::from(x && y);
                }
            }
            let joint = f64::from(both) / (pairs * n) as f64;
            assert!((joint / (share * share) - 1.0).abs() < 0.02, "{share}: {joint}");
        }
    }
}
