//! What the load itself counted, and means over the last few seconds of it. Knows no limiter.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::load::Fate;

/// Counts of one flow, written by the load, read by the table.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    offered: AtomicU64,
    admitted: AtomicU64,
    dropped: AtomicU64,
    would_drop: AtomicU64,
    errors: AtomicU64,
}

impl Counter {
    /// One request has met its fate.
    pub(crate) fn add(&self, fate: Fate) {
        let (first, second) = match fate {
            Fate::Admitted => (&self.admitted, None),
            Fate::WouldDrop => (&self.admitted, Some(&self.would_drop)),
            Fate::Dropped => (&self.dropped, None),
            Fate::Failed | Fate::NotSent => (&self.errors, None),
        };
        self.offered.fetch_add(1, Relaxed);
        first.fetch_add(1, Relaxed);
        if let Some(second) = second {
            second.fetch_add(1, Relaxed);
        }
    }

    fn sample(&self) -> Sample {
        Sample {
            offered: self.offered.load(Relaxed),
            admitted: self.admitted.load(Relaxed),
            dropped: self.dropped.load(Relaxed),
            would_drop: self.would_drop.load(Relaxed),
            errors: self.errors.load(Relaxed),
        }
    }
}

/// The counts of one flow at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) offered: u64,
    pub(crate) admitted: u64,
    pub(crate) dropped: u64,
    pub(crate) would_drop: u64,
    pub(crate) errors: u64,
}

/// Rates of one flow.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Rates {
    pub(crate) offered_rps: f64,
    pub(crate) admitted_rps: f64,
    pub(crate) dropped_rps: f64,
    pub(crate) would_drop_rps: f64,
}

impl Rates {
    /// The share of what was offered that was dropped.
    pub(crate) fn drop_share(&self) -> f64 {
        if self.offered_rps > 0.0 { self.dropped_rps / self.offered_rps } else { 0.0 }
    }

    /// The share of what was offered that a shadow would have dropped.
    pub(crate) fn would_drop_share(&self) -> f64 {
        if self.offered_rps > 0.0 { self.would_drop_rps / self.offered_rps } else { 0.0 }
    }
}

/// Samples of the last few seconds, bounded by [`KEPT`].
#[derive(Debug, Default)]
pub(crate) struct History {
    samples: VecDeque<(Duration, Vec<Sample>)>,
}

/// How far back samples are kept.
const KEPT: Duration = Duration::from_secs(7);

impl History {
    /// Takes a sample of all flows, `at` after the start.
    pub(crate) fn take(&mut self, at: Duration, counters: &[Counter]) {
        self.samples.push_back((at, counters.iter().map(Counter::sample).collect()));
        while self.samples.front().is_some_and(|(t, _)| at.saturating_sub(*t) > KEPT) {
            self.samples.pop_front();
        }
    }

    /// Means over the last `window`, or over what there is of it.
    pub(crate) fn rates(&self, window: Duration) -> Vec<Rates> {
        let Some((now, last)) = self.samples.back() else { return Vec::new() };
        let from = now.saturating_sub(window);
        let first = self.samples.iter().find(|(t, _)| *t >= from);
        let Some((then, first)) = first.filter(|(t, _)| t < now) else {
            return vec![Rates::default(); last.len()];
        };
        let seconds = (*now - *then).as_secs_f64();
        let pairs = first.iter().zip(last);
        pairs.map(|(a, b)| between(a, b, seconds)).collect()
    }

    /// The latest counts of all flows.
    pub(crate) fn latest(&self) -> &[Sample] {
        self.samples.back().map_or(&[], |(_, s)| s)
    }
}

fn between(a: &Sample, b: &Sample, seconds: f64) -> Rates {
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let rate = |from: u64, to: u64| to.saturating_sub(from) as f64 / seconds;
    Rates {
        offered_rps: rate(a.offered, b.offered),
        admitted_rps: rate(a.admitted, b.admitted),
        dropped_rps: rate(a.dropped, b.dropped),
        would_drop_rps: rate(a.would_drop, b.would_drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_means_over_the_window() {
        let counters = [Counter::default(), Counter::default()];
        let mut history = History::default();
        for tenth in 0..=100_u64 {
            history.take(Duration::from_millis(tenth * 100), &counters);
            let fates: &[Fate] = if tenth < 50 {
                &[Fate::Admitted]
            } else {
                &[Fate::Admitted, Fate::Dropped, Fate::Dropped, Fate::WouldDrop]
            };
            fates.iter().for_each(|f| counters[0].add(*f));
        }
        let rates = history.rates(Duration::from_secs(5));
        let wanted = Rates {
            offered_rps: 40.0,
            admitted_rps: 20.0,
            dropped_rps: 20.0,
            would_drop_rps: 10.0,
        };
        assert_eq!(rates, [wanted, Rates::default()]);
        assert!((rates[0].drop_share() - 0.5).abs() < 1e-9);
        assert!((rates[0].would_drop_share() - 0.25).abs() < 1e-9);
        assert!(history.samples.len() <= 72, "bounded");
        assert_eq!(history.latest()[0].admitted, 150);
    }

    #[test]
    fn without_two_samples_nothing_is_claimed() {
        let counters = [Counter::default()];
        let mut history = History::default();
        assert!(history.rates(Duration::from_secs(5)).is_empty());
        counters[0].add(Fate::Failed);
        history.take(Duration::ZERO, &counters);
        assert_eq!(history.rates(Duration::from_secs(5)), [Rates::default()]);
        assert_eq!(history.latest()[0].errors, 1);
    }
}
