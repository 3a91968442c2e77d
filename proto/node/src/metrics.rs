//! The node's metrics: its core's view, the streams, and what the tier's shell adds. Label sets are
//! bounded: the busiest keys have series of their own, the rest is summed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{CounterVec, GaugeVec, Opts};
use sluicegate_law::{KeyView, View};
use sluicegate_model::{Counts, Name};
use tokio::sync::watch;

use crate::pump::Published;
use crate::tally::{Samples, Tally};

/// Keys that have gauges of their own, the busiest first.
pub const MAX_KEY_SERIES: usize = 100;
/// Buckets, and services, that have counters of their own: the first that were seen. (Not the
/// busiest: a counter that moved between series would seem to go back.)
pub const MAX_BUCKET_SERIES: usize = 500;
/// The label of what has no series of its own. A service that is called so is summed in with it.
pub const OTHER: &str = "(other)";

/// Counts added up for the counters. A core forgets keys that are long out of use; these go on.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<Sums>);

#[derive(Debug, Default)]
struct Sums {
    buckets: BTreeMap<(String, String), Counts>,
    services: BTreeMap<String, [u64; 4]>,
}

impl Ledger {
    /// Adds what has happened between two views of the same core, whose keys are in order.
    pub(crate) fn advance(&self, before: &View, after: &View) {
        let mut sums = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut earlier = before.keys.iter().peekable();
        for key in &after.keys {
            while earlier.next_if(|e| e.name < key.name).is_some() {}
            let counts = earlier.next_if(|e| e.name == key.name).map(|e| e.counts);
            // A key that was forgotten and came back in between begins at zero.
            let base = counts.filter(|c| key.counts.covers(c)).unwrap_or_default();
            let more = key.counts.since(&base);
            if more != Counts::default() {
                sums.bucket(&key.name.service, &key.name.bucket).add(&more);
            }
        }
        for service in &after.services {
            let c = &service.counts;
            let now = [c.attempts, c.admitted, c.dropped_by_one, c.dropped_by_several];
            sums.service(&c.service, now);
        }
    }
}

impl Sums {
    fn bucket(&mut self, service: &Name, bucket: &Name) -> &mut Counts {
        let label = (service.to_string(), bucket.to_string());
        let fits = self.buckets.len() < MAX_BUCKET_SERIES || self.buckets.contains_key(&label);
        let label = if fits { label } else { (OTHER.to_owned(), OTHER.to_owned()) };
        self.buckets.entry(label).or_default()
    }

    /// A service's counts are never forgotten, so those without a series are simply not shown.
    fn service(&mut self, service: &Name, now: [u64; 4]) {
        if self.services.len() < MAX_BUCKET_SERIES || self.services.contains_key(service.as_str()) {
            self.services.insert(service.to_string(), now);
        }
    }
}

/// Collects a node's metrics for a registry.
#[derive(Clone)]
pub struct NodeCollector {
    /// `sluicegate_aggregator` or `sluicegate_controller`.
    prefix: &'static str,
    constant: Vec<(&'static str, String)>,
    published: watch::Receiver<Arc<Published>>,
    ledger: Arc<Ledger>,
    tally: Arc<Tally>,
    samples: Samples,
    desc: Desc,
}

impl std::fmt::Debug for NodeCollector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeCollector").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl NodeCollector {
    pub(crate) fn new(
        prefix: &'static str,
        constant: Vec<(&'static str, String)>,
        published: watch::Receiver<Arc<Published>>,
        ledger: Arc<Ledger>,
        tally: Arc<Tally>,
        samples: Samples,
    ) -> prometheus::Result<Self> {
        let labels = constant.iter().map(|(n, v)| ((*n).to_owned(), v.clone())).collect();
        // One description stands for all; the registry uses it only to see the same node twice.
        let desc = Desc::new(format!("{prefix}_ready"), READY.to_owned(), vec![], labels)?;
        Ok(Self { prefix, constant, published, ledger, tally, samples, desc })
    }
}

const READY: &str = "1 if the node has what it takes to serve, otherwise 0.";

impl Collector for NodeCollector {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let published = self.published.borrow().clone();
        let mut page = Page { collector: self, families: Vec::new() };
        page.node(&published);
        page.absorbed(&published.view);
        page.keys(&published.view.keys);
        page.counts();
        page.streams();
        for sample in (self.samples)() {
            let label = sample.label.as_ref().map(|(n, _)| *n);
            let value = sample.label.as_ref().map(|(_, v)| vec![v.clone()]).unwrap_or_default();
            let labels: Vec<&str> = label.into_iter().collect();
            if sample.is_counter {
                page.counter(sample.name, sample.help, &labels, [(value, sample.value)]);
            } else {
                page.gauge(sample.name, sample.help, &labels, [(value, sample.value)]);
            }
        }
        merge(page.families)
    }
}

/// Families of one name become one.
fn merge(families: Vec<MetricFamily>) -> Vec<MetricFamily> {
    let mut merged: Vec<MetricFamily> = Vec::new();
    for mut family in families {
        match merged.iter_mut().find(|m| m.name() == family.name()) {
            Some(m) => m.mut_metric().extend(family.take_metric()),
            None => merged.push(family),
        }
    }
    merged
}

/// One answer to a scrape.
struct Page<'a> {
    collector: &'a NodeCollector,
    families: Vec<MetricFamily>,
}

impl Page<'_> {
    fn opts(&self, name: &str, help: &str) -> Opts {
        let opts = Opts::new(format!("{}_{name}", self.collector.prefix), help);
        self.collector.constant.iter().fold(opts, |o, (n, v)| o.const_label(*n, v))
    }

    fn gauge(
        &mut self,
        name: &str,
        help: &str,
        labels: &[&str],
        values: impl IntoIterator<Item = (Vec<String>, f64)>,
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
        values: impl IntoIterator<Item = (Vec<String>, f64)>,
    ) {
        let opts = self.opts(&format!("{name}_total"), help);
        let Ok(vec) = CounterVec::new(opts, labels) else { return };
        for (label, value) in values {
            if let Ok(metric) = vec.get_metric_with_label_values(&label) {
                metric.inc_by(value.max(0.0));
            }
        }
        self.families.extend(vec.collect());
    }

    fn node(&mut self, published: &Published) {
        let view = &published.view;
        let one = |value: f64| [(vec![], value)];
        self.gauge("ready", READY, &[], one(f64::from(u8::from(published.is_ready))));
        self.gauge("uptime_seconds", "Since the start.", &[], one(published.uptime.as_secs_f64()));
        self.gauge("term", "The highest term known.", &[], one(float(view.term)));
        let help = "The version of the configuration in force; 0 before the first.";
        self.gauge("configuration_version", help, &[], one(float(view.version)));
        self.gauge("sessions", "Open streams of children.", &[], one(count(view.sessions.len())));
        let silent = view.sessions.iter().filter(|s| s.silent).count();
        let help = "Open streams of children that should report and do not.";
        self.gauge("sessions_silent", help, &[], one(count(silent)));
        let behind = view.sessions.iter().filter(|s| s.applied_version < view.version).count();
        let help = "Children in which an older configuration is in force.";
        self.gauge("sessions_behind", help, &[], one(count(behind)));
        self.gauge("keys", "Keys that are counted.", &[], one(count(view.keys.len())));
        if let Some(open) = view.parent_open {
            let help = "1 if there is a stream to the parent, otherwise 0.";
            self.gauge("parent_connected", help, &[], one(f64::from(u8::from(open))));
        }
    }

    fn absorbed(&mut self, view: &View) {
        let values = view.counters.iter().map(|(n, v)| (vec![n.to_owned()], float(v)));
        let help = "What the core took in, absorbed or refused, by kind.";
        self.counter("core_events", help, &["event"], values);
        let values = view.counters.invariants().map(|(i, n)| (vec![i.to_string()], float(n)));
        let help = "Times an invariant was found broken.";
        self.counter("invariant_violations", help, &["invariant"], values);
    }

    fn keys(&mut self, keys: &[KeyView]) {
        let mut order: Vec<&KeyView> = keys.iter().collect();
        order.sort_by(|a, b| b.offered_rps.total_cmp(&a.offered_rps));
        let (shown, rest) = order.split_at(order.len().min(MAX_KEY_SERIES));
        let labels = ["service", "bucket", "key"];
        let label = |k: &KeyView| {
            let name = &k.name;
            vec![name.service.to_string(), name.bucket.to_string(), name.values.to_string()]
        };
        type Read = fn(&KeyView) -> f64;
        let summed: [(&str, &str, Read); 5] = [
            ("key_offered_rps", "Offered, requests a second.", |k| k.offered_rps),
            ("key_admitted_rps", "Admitted, requests a second.", |k| k.admitted_rps),
            ("key_dropped_rps", "Dropped, requests a second.", |k| k.dropped_rps),
            (
                "key_would_drop_rps",
                "Admitted only because the bucket is in shadow, requests a second.",
                |k| k.would_drop_rps,
            ),
            ("key_sessions", "Client sessions that reported the key lately.", |k| {
                f64::from(k.sessions)
            }),
        ];
        for (name, help, read) in summed {
            let other = (!rest.is_empty())
                .then(|| (vec![OTHER.to_owned(); 3], rest.iter().map(|k| read(k)).sum()));
            let values = shown.iter().map(|k| (label(k), read(k))).chain(other);
            self.gauge(name, help, &labels, values.collect::<Vec<_>>());
        }
        let values: Vec<_> =
            shown.iter().filter_map(|k| Some((label(k), k.limit.rate_rps()?))).collect();
        self.gauge("key_limit_rps", "The limit, requests a second.", &labels, values);
        let values: Vec<_> = shown.iter().map(|k| (label(k), k.drop_ratio)).collect();
        let help = "The share that the directive in force drops, or would drop in shadow.";
        self.gauge("key_drop_ratio", help, &labels, values);
    }

    fn counts(&mut self) {
        let ledger = Arc::clone(&self.collector.ledger);
        let sums = ledger.0.lock().unwrap_or_else(PoisonError::into_inner);
        let labels = ["service", "bucket", "count"];
        let values = sums.buckets.iter().flat_map(|((service, bucket), c)| {
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
        let labels = ["service", "outcome"];
        let outcomes = ["attempts", "admitted", "dropped_by_one", "dropped_by_several"];
        let values = sums.services.iter().flat_map(|(service, counts)| {
            let of =
                |(outcome, n): (&str, u64)| (vec![service.clone(), outcome.to_owned()], float(n));
            outcomes.into_iter().zip(*counts).map(of)
        });
        let help = "Attempts at a service and what became of them.";
        self.counter("service_requests", help, &labels, values);
    }

    fn streams(&mut self) {
        let tally = Arc::clone(&self.collector.tally);
        for (name, help, value) in tally.plain() {
            self.counter(name, help, &[], [(vec![], float(value))]);
        }
        let values = tally
            .refused()
            .into_iter()
            .map(|((reason, detail), n)| (vec![reason.to_owned(), detail.to_owned()], float(n)));
        let help = "Streams of children refused or closed, by reason.";
        self.counter("streams_refused", help, &["reason", "detail"], values);
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
    use sluicegate_law::{Counters, ServiceView};
    use sluicegate_model::{KeyName, KeyValues, Limit, ServiceCounts};

    use super::*;
    use crate::tally::Tally;

    fn name(text: &str) -> Name {
        Name::new(text).expect("a name")
    }

    fn key(bucket: &str, value: usize, offered_rps: f64, admitted: u64) -> KeyView {
        let values = KeyValues::Each([format!("{value:05}").into()].into());
        KeyView {
            name: KeyName { service: name("s"), bucket: name(bucket), values },
            scope: None,
            mode: None,
            limit: Limit::Unlimited,
            offered_rps,
            admitted_rps: 0.0,
            dropped_rps: 0.0,
            would_drop_rps: 0.0,
            drop_ratio: 0.0,
            sessions: 2,
            counts: Counts { matched: admitted, offered: admitted, admitted, would_drop: 0 },
            directive_ttl: None,
        }
    }

    fn view(keys: Vec<KeyView>) -> View {
        let counts = ServiceCounts {
            service: name("s"),
            attempts: 9,
            admitted: 8,
            dropped_by_one: 1,
            dropped_by_several: 0,
        };
        let service =
            ServiceView { counts, attempts_rps: 1.0, admitted_rps: 1.0, configured: true };
        View {
            term: 1,
            version: 1,
            sessions: vec![],
            keys,
            services: vec![service],
            counters: Counters::default(),
            parent_open: None,
        }
    }

    fn scrape(ledger: &Arc<Ledger>, view: View) -> Vec<MetricFamily> {
        let published = Published {
            view,
            is_ready: true,
            uptime: std::time::Duration::ZERO,
            version_age: std::time::Duration::ZERO,
        };
        let (_, published) = watch::channel(Arc::new(published));
        let tally = Arc::new(Tally::default());
        NodeCollector::new(
            "t",
            vec![("zone", "z".to_owned())],
            published,
            Arc::clone(ledger),
            tally,
            Arc::new(Vec::new),
        )
        .expect("a collector")
        .collect()
    }

    /// The value of each series of a metric, by the values of its labels.
    fn series(families: &[MetricFamily], metric: &str) -> BTreeMap<String, f64> {
        let family = families.iter().find(|f| f.name() == metric).expect("the metric");
        let label = |m: &prometheus::proto::Metric| {
            let labels: Vec<_> = m.get_label().iter().map(|l| l.value().to_owned()).collect();
            labels.join(" ")
        };
        let value =
            |m: &prometheus::proto::Metric| m.get_gauge().get_value() + m.get_counter().get_value();
        family.get_metric().iter().map(|m| (label(m), value(m))).collect()
    }

    #[test]
    fn the_busiest_keys_have_series_and_the_rest_is_summed() {
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let keys: Vec<_> = (0..MAX_KEY_SERIES + 50).map(|n| key("b", n, n as f64, 1)).collect();
        let families = scrape(&Arc::default(), view(keys));
        let offered = series(&families, "t_key_offered_rps");
        assert_eq!(offered.len(), MAX_KEY_SERIES + 1);
        let other = offered.get("(other) (other) (other) z").expect("the rest");
        assert!((other - f64::from((0..50).sum::<i32>())).abs() < 1e-9, "{other}");
        assert!(offered.contains_key("b 00050 s z") && !offered.contains_key("b 00049 s z"));
        let sessions = series(&families, "t_key_sessions");
        assert!((sessions["(other) (other) (other) z"] - 100.0).abs() < 1e-9);
    }

    #[test]
    fn counters_go_on_when_keys_are_forgotten_and_come_back() {
        let ledger = Arc::new(Ledger::default());
        let steps = [
            vec![key("b", 1, 1.0, 10), key("b", 2, 1.0, 5)],
            vec![key("b", 1, 1.0, 12)],
            vec![key("b", 1, 1.0, 12), key("b", 2, 1.0, 3)],
            // Forgotten and back between two looks.
            vec![key("b", 1, 1.0, 4), key("b", 2, 1.0, 3)],
        ];
        let mut before = view(vec![]);
        for (step, admitted) in steps.into_iter().zip([15.0, 17.0, 20.0, 24.0]) {
            let after = view(step);
            ledger.advance(&before, &after);
            let families = scrape(&ledger, after.clone());
            let counted = series(&families, "t_bucket_requests_total")["b admitted s z"];
            assert!((counted - admitted).abs() < 1e-9, "{counted}, expected {admitted}");
            before = after;
        }
    }

    #[test]
    fn buckets_beyond_the_bound_are_summed() {
        let ledger = Arc::new(Ledger::default());
        let keys = |n: u64| {
            let buckets = 0..MAX_BUCKET_SERIES + 20;
            buckets.map(|b| key(&format!("b{b:05}"), 0, 1.0, n)).collect::<Vec<_>>()
        };
        ledger.advance(&view(vec![]), &view(keys(1)));
        ledger.advance(&view(keys(1)), &view(keys(3)));
        let families = scrape(&ledger, view(keys(3)));
        let admitted = series(&families, "t_bucket_requests_total");
        assert_eq!(admitted.len(), 4 * (MAX_BUCKET_SERIES + 1));
        assert!((admitted["(other) admitted (other) z"] - 60.0).abs() < 1e-9);
        assert!((admitted["b00000 admitted s z"] - 3.0).abs() < 1e-9);
        let services = series(&families, "t_service_requests_total");
        assert!((services["dropped_by_one s z"] - 1.0).abs() < 1e-9);
    }
}
