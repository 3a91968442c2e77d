//! The sidecar's metrics: its client's, and what it counts of its own service.

use std::sync::Arc;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{CounterVec, Opts};
use sluicegate_client::Limiter;
use sluicegate_client::metrics::ClientCollector;

use crate::Counters;

/// Collects `sluicegate_sidecar_*` and `sluicegate_client_*` for a registry.
#[derive(Debug)]
pub struct SidecarCollector {
    client: ClientCollector,
    counters: Arc<Counters>,
    constant: [(&'static str, String); 2],
}

impl SidecarCollector {
    pub(crate) fn new(limiter: &Limiter, counters: Arc<Counters>) -> prometheus::Result<Self> {
        let constant = [("zone", limiter.zone().into()), ("region", limiter.region().into())];
        Ok(Self { client: ClientCollector::new(limiter.clone(), &[])?, counters, constant })
    }
}

impl Collector for SidecarCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.client.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut families = self.client.collect();
        let help = "Requests of Envoy by result, and what of them was ignored.";
        let opts = Opts::new("sluicegate_sidecar_requests_total", help);
        let opts = self.constant.iter().fold(opts, |o, (n, v)| o.const_label(*n, v));
        // Names and labels are literals of this program, so neither call can fail.
        let Ok(vec) = CounterVec::new(opts, &["result"]) else { return families };
        for (name, n) in self.counters.iter() {
            if let Ok(metric) = vec.get_metric_with_label_values(&[name]) {
                #[expect(clippy::cast_precision_loss, reason = "metrics are floats")]
                metric.inc_by(n as f64);
            }
        }
        families.extend(vec.collect());
        families
    }
}
