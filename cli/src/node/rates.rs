//! Rates of a client's keys, from its counts at two moments. Knows no clock.

use std::collections::HashMap;
use std::time::Instant;

use sluicegate_client::KeyStats;
use sluicegate_model::{Counts, KeyName};

/// The most keys whose counts are kept; the others show no rates.
const MAX_KEPT: usize = 10_000;

/// The counts of the last look, and what follows from the two last.
#[derive(Debug, Default)]
pub(crate) struct KeyRates {
    counts: HashMap<KeyName, Counts>,
    at: Option<Instant>,
    rates: HashMap<KeyName, Rate>,
}

/// The rates of a key.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Rate {
    pub(crate) offered_rps: f64,
    pub(crate) admitted_rps: f64,
    pub(crate) dropped_rps: f64,
    pub(crate) would_drop_rps: f64,
}

impl KeyRates {
    /// Takes note of the counts of this moment.
    pub(crate) fn note(&mut self, now: Instant, keys: &[KeyStats]) {
        let seconds = self.at.map(|at| now.saturating_duration_since(at).as_secs_f64());
        self.rates.clear();
        let mut counts = HashMap::new();
        for key in keys.iter().take(MAX_KEPT) {
            if let (Some(seconds), Some(before)) = (seconds, self.counts.get(&key.name)) {
                self.rates.insert(key.name.clone(), rate(&key.counts.since(before), seconds));
            }
            counts.insert(key.name.clone(), key.counts);
        }
        self.counts = counts;
        self.at = Some(now);
    }

    /// The rates of a key between the two last looks.
    pub(crate) fn of(&self, name: &KeyName) -> Rate {
        self.rates.get(name).copied().unwrap_or_default()
    }
}

fn rate(counts: &Counts, seconds: f64) -> Rate {
    #[expect(clippy::cast_precision_loss, reason = "counts of a second")]
    let per_second = |n: u64| if seconds > 0.0 { n as f64 / seconds } else { 0.0 };
    Rate {
        offered_rps: per_second(counts.offered),
        admitted_rps: per_second(counts.admitted),
        dropped_rps: per_second(counts.dropped()),
        would_drop_rps: per_second(counts.would_drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluicegate_model::{AdmitRatio, KeyValues, Limit, Mode, Name};
    use std::time::Duration;

    #[test]
    fn rates_follow_from_two_looks() {
        let name = |text| Name::new(text).expect("a name");
        let key = |offered, admitted| KeyStats {
            name: KeyName { service: name("s"), bucket: name("b"), values: KeyValues::Whole },
            mode: Mode::Deny,
            limit: Limit::Unlimited,
            counts: Counts { matched: offered, offered, admitted, would_drop: 0 },
            admit: AdmitRatio::ALL,
        };
        let start = crate::clock::now();
        let mut rates = KeyRates::default();
        rates.note(start, &[key(10, 10)]);
        assert_eq!(rates.of(&key(0, 0).name), Rate::default(), "one look tells no rate");
        rates.note(start + Duration::from_secs(2), &[key(30, 20)]);
        let wanted =
            Rate { offered_rps: 10.0, admitted_rps: 5.0, dropped_rps: 5.0, would_drop_rps: 0.0 };
        assert_eq!(rates.of(&key(0, 0).name), wanted);
    }
}
