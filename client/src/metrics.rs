//! A client's metrics for a Prometheus registry. Label sets are bounded: the busiest keys have
//! series of their own, the first buckets and services seen have counters, the rest is summed.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{CounterVec, GaugeVec, Opts};
use sluicegate_client_core::KeyStats;
use sluicegate_model::{Counts, ServiceCounts};

use crate::{Limiter, Stats};

/// Keys that have gauges of their own, the busiest first.
pub const MAX_KEY_SERIES: usize = 100;
/// Buckets, and services, that have counters of their own: the first that were seen. (Not the
/// busiest: a counter that moved between series would seem to go back.)
pub const MAX_BUCKET_SERIES: usize = 500;
/// The label of what has no series of its own. A service that is called so is summed in with it.
pub const OTHER: &str = "(other)";

/// Collects a client's metrics, `sluicegate_client_*`. Holds a clone of the limiter.
#[derive(Debug)]
pub struct ClientCollector {
    limiter: Limiter,
    constant: Vec<(String, String)>,
    ledger: Mutex<Ledger>,
    desc: Desc,
}

/// Counts added up for the counters. A client forgets values that are long out of use; these go on.
#[derive(Debug, Default)]
struct Ledger {
    /// What each key had at the last scrape, by a hash of its name.
    seen: HashMap<u64, Counts>,
    hasher: RandomState,
    buckets: BTreeMap<(String, String), Counts>,
    services: BTreeMap<String, [u64; 4]>,
}

const READY: &str = "1 if there is a stream to an aggregator, otherwise 0.";

impl ClientCollector {
    /// For `limiter`. Beside zone and region each series gets `labels`, which must tell apart
    /// several clients in one registry.
    ///
    /// # Errors
    /// If a name among `labels` cannot be a label's.
    pub fn new(limiter: Limiter, labels: &[(&str, &str)]) -> prometheus::Result<Self> {
        let place = [("zone", limiter.zone()), ("region", limiter.region())];
        let all = place.into_iter().chain(labels.iter().copied());
        let constant: Vec<(String, String)> =
            all.map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
        // One description stands for all; the registry uses it only to see the same client twice.
        let of_desc = constant.iter().cloned().collect();
        let name = "sluicegate_client_connected".to_owned();
        let desc = Desc::new(name, READY.to_owned(), vec![], of_desc)?;
        Ok(Self { limiter, constant, ledger: Mutex::default(), desc })
    }
}

impl Collector for ClientCollector {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let stats = self.limiter.stats();
        let mut page = Page { constant: &self.constant, families: Vec::new() };
        page.connection(&stats);
        page.bounds(&stats);
        page.keys(&stats.client.keys);
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        ledger.advance(&stats);
        page.counts(&ledger);
        page.families
    }
}

impl Ledger {
    fn advance(&mut self, stats: &Stats) {
        let mut seen = HashMap::with_capacity(stats.client.keys.len());
        for key in &stats.client.keys {
            let id = self.hasher.hash_one(&key.name);
            // A value that was forgotten and came back in between begins at zero.
            let base = self.seen.get(&id).filter(|c| key.counts.covers(c));
            let more = key.counts.since(&base.copied().unwrap_or_default());
            seen.insert(id, key.counts);
            if more != Counts::default() {
                self.bucket(key).add(&more);
            }
        }
        self.seen = seen;
        for service in &stats.client.services {
            self.service(service);
        }
    }

    fn bucket(&mut self, key: &KeyStats) -> &mut Counts {
        let label = (key.name.service.to_string(), key.name.bucket.to_string());
        let fits = self.buckets.len() < MAX_BUCKET_SERIES || self.buckets.contains_key(&label);
        let label = if fits { label } else { (OTHER.to_owned(), OTHER.to_owned()) };
        self.buckets.entry(label).or_default()
    }

    /// Services beyond the bound are not shown.
    fn service(&mut self, c: &ServiceCounts) {
        let name = c.service.as_str();
        if self.services.len() < MAX_BUCKET_SERIES || self.services.contains_key(name) {
            let counts = [c.attempts, c.admitted, c.dropped_by_one, c.dropped_by_several];
            self.services.insert(name.to_owned(), counts);
        }
    }
}

/// One answer to a scrape.
struct Page<'a> {
    constant: &'a [(String, String)],
    families: Vec<MetricFamily>,
}

type Value = (Vec<String>, f64);

impl Page<'_> {
    fn opts(&self, name: &str, help: &str) -> Opts {
        let opts = Opts::new(format!("sluicegate_client_{name}"), help);
        self.constant.iter().fold(opts, |o, (n, v)| o.const_label(n, v))
    }

    fn gauge(
        &mut self,
        name: &str,
        help: &str,
        labels: &[&str],
        values: impl IntoIterator<Item = Value>,
    ) {
        // Every name and label here is a literal of this program, so neither call can fail.
        let Ok(vec) = GaugeVec::new(self.opts(name, help), labels) else { return };
        for (label, value) in values {
            if let Ok(metric) = vec.get_metric_with_label_values(&label) {
                metric.set(value);
            }
        }
        self.families.extend(vec.collect());
    }

    fn counter(
        &mut self,
        name: &str,
        help: &str,
        labels: &[&str],
        values: impl IntoIterator<Item = Value>,
    ) {
        let opts = self.opts(&format!("{name}_total"), help);
        let Ok(vec) = CounterVec::new(opts, labels) else { return };
        for (label, value) in values {
            if let Ok(metric) = vec.get_metric_with_label_values(&label) {
                metric.inc_by(value);
            }
        }
        self.families.extend(vec.collect());
    }

    fn connection(&mut self, stats: &Stats) {
        let c = &stats.connection;
        let one = |value: f64| [(vec![], value)];
        self.gauge("connected", READY, &[], one(f64::from(u8::from(c.aggregator.is_some()))));
        let help = "How long the connection has been as it is.";
        self.gauge("connection_seconds", help, &[], one(c.since.as_secs_f64()));
        let help = "The version of the buckets in force; 0 before the first.";
        self.gauge("configuration_version", help, &[], one(float(c.configuration_version)));
        self.gauge("term", "The highest term that buckets came with.", &[], one(float(c.term)));
        let help = "How long ago the agent's thread last worked.";
        let silent = stats.client.agent_silent.as_secs_f64();
        self.gauge("agent_silent_seconds", help, &[], one(silent));
        let events = [
            ("reconnected", c.reconnects),
            ("failed", c.failures),
            ("malformed", c.decode_errors),
            ("overflowed", c.overflows),
        ];
        let values = events.map(|(event, n)| (vec![event.to_owned()], float(n)));
        let help = "What happened to the stream to the aggregators, by kind.";
        self.counter("stream_events", help, &["event"], values);
        let values = stats.agent.iter().map(|(event, n)| (vec![(*event).to_owned()], float(*n)));
        let help = "What the agent did, absorbed or refused, by kind.";
        self.counter("agent_events", help, &["event"], values);
    }

    fn bounds(&mut self, stats: &Stats) {
        let s = &stats.client;
        let of = |name: &str, n: f64| (vec![name.to_owned()], n);
        let held = [
            of("identities", float(s.identities)),
            of("values", float(s.values)),
            of("waiting", count(s.waiting)),
            of("stripes", count(s.stripes)),
            of("keys", count(s.keys.len())),
        ];
        self.gauge("entries", "What the client holds in memory, by kind.", &["kind"], held);
        let refused = [
            of("waiting", float(s.refused_waiting)),
            of("identities", float(s.refused_identities)),
            of("values", float(s.refused_values)),
        ];
        let help = "What a bound of the client's memory refused, by kind.";
        self.counter("refused", help, &["kind"], refused);
    }

    fn keys(&mut self, keys: &[KeyStats]) {
        let mut order: Vec<&KeyStats> = keys.iter().collect();
        order.sort_by_key(|k| std::cmp::Reverse(k.counts.matched));
        order.truncate(MAX_KEY_SERIES);
        let labels = ["service", "bucket", "key"];
        let label = |k: &KeyStats| {
            let name = &k.name;
            vec![name.service.to_string(), name.bucket.to_string(), name.values.to_string()]
        };
        let values: Vec<_> =
            order.iter().filter_map(|k| Some((label(k), k.limit.rate_rps()?))).collect();
        self.gauge("key_limit_rps", "The limit, requests a second.", &labels, values);
        let values: Vec<_> = order.iter().map(|k| (label(k), k.admit.drop_ratio())).collect();
        let help = "The share that is dropped now, or would be in shadow.";
        self.gauge("key_drop_ratio", help, &labels, values);
    }

    fn counts(&mut self, ledger: &Ledger) {
        let labels = ["service", "bucket", "count"];
        let values = ledger.buckets.iter().flat_map(|((service, bucket), c)| {
            [
                ("matched", c.matched),
                ("offered", c.offered),
                ("admitted", c.admitted),
                ("would_drop", c.would_drop),
            ]
            .map(|(kind, n)| (vec![service.clone(), bucket.clone(), kind.to_owned()], float(n)))
        });
        let help = "Requests of a bucket: matched; offered (of those); admitted (of those); \
                    would_drop (admitted only because the bucket is in shadow).";
        self.counter("bucket_requests", help, &labels, values);
        let outcomes = ["attempts", "admitted", "dropped_by_one", "dropped_by_several"];
        let values = ledger.services.iter().flat_map(|(service, counts)| {
            let of =
                |(outcome, n): (&str, u64)| (vec![service.clone(), outcome.to_owned()], float(n));
            outcomes.into_iter().zip(*counts).map(of)
        });
        let help = "Attempts at a service and what became of them.";
        self.counter("service_requests", help, &["service", "outcome"], values);
    }
}

#[expect(clippy::cast_precision_loss, reason = "metrics are floats")]
fn float(n: u64) -> f64 {
    n as f64
}

#[expect(clippy::cast_precision_loss, reason = "metrics are floats")]
fn count(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sluicegate_model::{AdmitRatio, KeyName, KeyValues, Limit, Mode, Name};

    use super::*;
    use crate::Connection;

    fn key(bucket: &str, value: &str, matched: u64) -> KeyStats {
        let name = |text| Name::new(text).expect("a name");
        let values = KeyValues::Each([value.into()].into());
        KeyStats {
            name: KeyName { service: name("shop"), bucket: name(bucket), values },
            mode: Mode::Deny,
            limit: Limit::Unlimited,
            counts: Counts { matched, ..Counts::default() },
            admit: AdmitRatio::ALL,
        }
    }

    fn stats(keys: Vec<KeyStats>) -> Stats {
        let client = sluicegate_client_core::Stats {
            services: vec![],
            keys,
            identities: 0,
            values: 0,
            waiting: 0,
            stripes: 0,
            refused_waiting: 0,
            refused_identities: 0,
            refused_values: 0,
            agent_silent: Duration::ZERO,
        };
        Stats { client, agent: vec![], connection: Connection::default() }
    }

    fn matched(ledger: &Ledger, bucket: &str) -> u64 {
        ledger.buckets[&("shop".to_owned(), bucket.to_owned())].matched
    }

    #[test]
    fn counters_go_on_when_values_are_forgotten() {
        let mut ledger = Ledger::default();
        ledger.advance(&stats(vec![key("b", "1", 10), key("b", "2", 5)]));
        assert_eq!(matched(&ledger, "b"), 15);
        ledger.advance(&stats(vec![key("b", "1", 12)]));
        assert_eq!(matched(&ledger, "b"), 17, "value 2 is forgotten, its requests happened");
        ledger.advance(&stats(vec![key("b", "1", 12), key("b", "2", 3)]));
        assert_eq!(matched(&ledger, "b"), 20, "value 2 begins again");
    }

    #[test]
    fn buckets_beyond_the_bound_are_summed() {
        let mut ledger = Ledger::default();
        let keys = (0..MAX_BUCKET_SERIES + 3).map(|i| key(&format!("b{i}"), "1", 2));
        ledger.advance(&stats(keys.collect()));
        assert_eq!(ledger.buckets.len(), MAX_BUCKET_SERIES + 1);
        let other = &ledger.buckets[&(OTHER.to_owned(), OTHER.to_owned())];
        assert_eq!(other.matched, 6);
    }
}
