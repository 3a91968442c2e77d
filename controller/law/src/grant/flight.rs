//! The ratios that were in force lately: what share of the requests that nobody has counted yet was
//! admitted.

use std::collections::VecDeque;
use std::time::Duration;

use sluicegate_model::Time;

/// What is older than this stands in a count, or its client is silent.
const REMEMBERED: Duration = Duration::from_secs(2);
/// The most changes remembered; pushes are further apart than this allows.
const MAX_CHANGES: usize = 64;

/// The admit shares of one key, each from when it took effect.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct InForce {
    changes: VecDeque<(Time, f64)>,
}

impl InForce {
    /// From `now` on `share` of what is offered is admitted.
    pub fn set(&mut self, now: Time, share: f64) {
        if self.changes.back().is_some_and(|(_, last)| (last - share).abs() < f64::EPSILON) {
            return;
        }
        while self.changes.len() >= 2
            && (self.changes[1].0 + REMEMBERED <= now || self.changes.len() >= MAX_CHANGES)
        {
            self.changes.pop_front();
        }
        self.changes.push_back((now, share));
    }

    /// The share in force now; all before the first.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.changes.back().map_or(1.0, |(_, share)| *share)
    }

    #[cfg(test)]
    pub(super) fn changes(&self) -> usize {
        self.changes.len()
    }

    /// The mean share in force over the `age` up to `now`.
    #[must_use]
    pub fn mean(&self, now: Time, age: Duration) -> f64 {
        let age_s = age.as_secs_f64();
        if self.changes.len() <= 1 || age_s <= 0.0 {
            return self.share();
        }
        let (mut until_s, mut sum) = (0.0, 0.0);
        for (since, share) in self.changes.iter().rev() {
            let from_s = now.since(*since).as_secs_f64().min(age_s);
            sum += share * (from_s - until_s).max(0.0);
            until_s = from_s.max(until_s);
        }
        // Before the oldest change that is remembered, its share stands for what was.
        let oldest = self.changes.front().map_or(1.0, |(_, share)| *share);
        (sum + oldest * (age_s - until_s)) / age_s
    }
}
