//! Since when keys are limited. Fed with views from time to time; knows no clock.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use sluicegate_law::View;
use sluicegate_model::KeyName;

/// The most keys whose time is kept.
const MAX_KEPT: usize = 10_000;

/// When the drop ratio of each key rose above 0.
#[derive(Debug, Default)]
pub(crate) struct Since {
    limited: HashMap<KeyName, Instant>,
}

impl Since {
    /// Takes note of what a view of this moment shows.
    pub(crate) fn note(&mut self, now: Instant, view: &View) {
        let limited = view.keys.iter().filter(|k| k.drop_ratio > 0.0).take(MAX_KEPT);
        let mut before = std::mem::take(&mut self.limited);
        self.limited = limited
            .map(|k| match before.remove_entry(&k.name) {
                Some(entry) => entry,
                None => (k.name.clone(), now),
            })
            .collect();
    }

    /// How long each limited key has been so, by service, bucket and values as a status shows them.
    pub(crate) fn limited_for(&self, now: Instant) -> HashMap<(&str, &str, String), Duration> {
        let named = |k: &'_ KeyName| k.values.to_string();
        self.limited
            .iter()
            .map(|(k, since)| {
                let key = (k.service.as_str(), k.bucket.as_str(), named(k));
                (key, now.saturating_duration_since(*since))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluicegate_law::{Counters, KeyView};
    use sluicegate_model::{Counts, KeyValues, Limit, Name};

    fn view(drop_ratios: &[(&str, f64)]) -> View {
        let name = |text| Name::new(text).expect("a name");
        let keys = drop_ratios.iter().map(|(bucket, drop_ratio)| KeyView {
            name: KeyName {
                service: name("s"),
                bucket: name(bucket),
                values: KeyValues::Each(["v".into()].into()),
            },
            scope: None,
            mode: None,
            limit: Limit::Unlimited,
            offered_rps: 0.0,
            admitted_rps: 0.0,
            dropped_rps: 0.0,
            would_drop_rps: 0.0,
            drop_ratio: *drop_ratio,
            sessions: 0,
            counts: Counts::default(),
            directive_ttl: None,
        });
        View {
            term: 0,
            version: 0,
            sessions: Vec::new(),
            keys: keys.collect(),
            services: Vec::new(),
            counters: Counters::default(),
            parent_open: None,
        }
    }

    #[test]
    fn time_counts_from_the_first_view_that_shows_it_and_starts_over_after_a_break() {
        let start = crate::clock::now();
        let at = |s| start + Duration::from_secs(s);
        let of = |since: &Since, now, bucket: &str| {
            since.limited_for(now).get(&("s", bucket, "v".to_owned())).map(Duration::as_secs)
        };
        let mut since = Since::default();
        since.note(at(1), &view(&[("a", 0.5), ("b", 0.0)]));
        since.note(at(4), &view(&[("a", 0.1), ("b", 0.2)]));
        assert_eq!(of(&since, at(5), "a"), Some(4));
        assert_eq!(of(&since, at(5), "b"), Some(1));
        since.note(at(5), &view(&[("a", 0.0), ("b", 0.2)]));
        assert_eq!(of(&since, at(5), "a"), None);
        since.note(at(6), &view(&[("a", 0.4)]));
        assert_eq!(of(&since, at(6), "a"), Some(0));
        assert_eq!(of(&since, at(6), "b"), None);
    }
}
