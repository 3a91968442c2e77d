//! The sidecar's process.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use prometheus::{Registry, TextEncoder};
use sluicegate_client::metrics::ClientCollector;
use sluicegate_client::{KeyStats, Limiter};
use sluicegate_files::node::{ClientSettings, SidecarSettings};
use sluicegate_node::{KeyStatus, MAX_STATUS_ROWS, ParentStatus, Status};
use sluicegate_sidecar::Counters;

use super::rates::{KeyRates, Rate};
use super::serve;
use crate::clock;
use crate::exit::{Ended, Failure};
use crate::explain::mode;
use crate::listener::{Health, Pages};

/// From one look at the counts to the next, for rates.
const LOOK: Duration = Duration::from_secs(2);

/// Runs until asked to stop.
pub(crate) async fn run(settings: SidecarSettings, ready_file: Option<PathBuf>) -> Ended {
    let SidecarSettings { client, listen, http_listen, caller_key, procedure_key, headers } =
        settings;
    let shown = Shown {
        node: client.node.to_string(),
        zone: client.zone.to_string(),
        region: client.region.to_string(),
        addresses: client.aggregators.clone(),
    };
    let node = shown.node.clone();
    let running = sluicegate_sidecar::start(sluicegate_sidecar::Settings {
        client: embedded(client),
        listen,
        caller_key,
        procedure_key,
        headers,
        ..sluicegate_sidecar::Settings::default()
    });
    let running = running.await.map_err(|e| Failure::AtWork(e.into()))?;
    let limiter = running.limiter().clone();
    let registry = Registry::new();
    let collector = ClientCollector::new(limiter.clone(), &[]);
    collector
        .and_then(|c| registry.register(Box::new(c)))
        .context("the metrics cannot be registered")?;
    let rates = Arc::new(Mutex::new(KeyRates::default()));
    let looking = tokio::spawn(look(limiter.clone(), Arc::clone(&rates)));
    let pages = SidecarPages {
        started: clock::now(),
        limiter,
        counters: Arc::clone(running.counters()),
        registry,
        rates,
        shown,
    };
    let opened =
        serve::open("sidecar", &node, running.local_addr, http_listen, ready_file, pages).await;
    let (serving, ended) = match opened {
        Ok(serving) => {
            let ended = serving.until_stopped(std::future::pending()).await;
            (Some(serving), ended)
        }
        Err(failure) => (None, Err(failure)),
    };
    looking.abort();
    running.shutdown().await;
    if let Some(serving) = serving {
        serving.close().await;
    }
    ended
}

/// The client's own settings, from checked ones.
fn embedded(settings: ClientSettings) -> sluicegate_client::Settings {
    let ClientSettings { node, zone, region, aggregators, services, tick, ttl, ramp, limits } =
        settings;
    sluicegate_client::Settings {
        node: node.to_string(),
        zone: zone.to_string(),
        region: region.to_string(),
        services: services.iter().map(ToString::to_string).collect(),
        tick,
        ttl,
        ramp,
        limits: sluicegate_client::Limits {
            max_identities: limits.max_identities as usize,
            max_values: limits.max_values as usize,
            ..sluicegate_client::Limits::default()
        },
        ..sluicegate_client::Settings::new(aggregators)
    }
}

/// What does not change.
struct Shown {
    node: String,
    zone: String,
    region: String,
    addresses: Vec<String>,
}

struct SidecarPages {
    started: Instant,
    limiter: Limiter,
    counters: Arc<Counters>,
    registry: Registry,
    rates: Arc<Mutex<KeyRates>>,
    shown: Shown,
}

impl Pages for SidecarPages {
    fn metrics(&self) -> String {
        let mut text = match TextEncoder::new().encode_to_string(&self.registry.gather()) {
            Ok(text) => text,
            Err(error) => {
                tracing::warn!(%error, "metrics cannot be written");
                String::new()
            }
        };
        // Names and labels are literals of the program, so nothing needs to be escaped.
        text.push_str(
            "# HELP sluicegate_sidecar_requests_total Calls of Envoy, by what came of them.\n",
        );
        text.push_str("# TYPE sluicegate_sidecar_requests_total counter\n");
        for (what, n) in self.counters.iter() {
            text.push_str(&format!("sluicegate_sidecar_requests_total{{what=\"{what}\"}} {n}\n"));
        }
        text
    }

    /// A sidecar serves from the start: until it has its buckets it admits everything, as it does
    /// when it loses them.
    fn health(&self) -> Health {
        Health::ready()
    }

    fn status(&self) -> serde_json::Value {
        serde_json::to_value(self.full()).unwrap_or_default()
    }
}

/// Looks at the counts from time to time, for rates.
async fn look(limiter: Limiter, rates: Arc<Mutex<KeyRates>>) {
    let mut times = tokio::time::interval(LOOK);
    loop {
        times.tick().await;
        let stats = limiter.stats();
        lock(&rates).note(clock::now(), &stats.client.keys);
    }
}

fn lock(rates: &Mutex<KeyRates>) -> MutexGuard<'_, KeyRates> {
    rates.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SidecarPages {
    fn key(key: &KeyStats, rate: Rate, sessions: u32) -> KeyStatus {
        KeyStatus {
            service: key.name.service.to_string(),
            bucket: key.name.bucket.to_string(),
            key: key.name.values.to_string(),
            scope: None,
            mode: Some(mode(key.mode).to_owned()),
            limit: key.limit.to_string(),
            limit_rps: key.limit.rate_rps(),
            offered_rps: rate.offered_rps,
            admitted_rps: rate.admitted_rps,
            dropped_rps: rate.dropped_rps,
            would_drop_rps: rate.would_drop_rps,
            drop_ratio: key.admit.drop_ratio(),
            sessions,
            directive_ttl_s: None,
        }
    }

    fn full(&self) -> Status {
        let stats = self.limiter.stats();
        let connection = &stats.connection;
        let rates = lock(&self.rates);
        let mut keys: Vec<KeyStatus> =
            stats.client.keys.iter().map(|k| Self::key(k, rates.of(&k.name), 1)).collect();
        keys.sort_by(|a, b| b.offered_rps.total_cmp(&a.offered_rps));
        let keys_count = keys.len();
        keys.truncate(MAX_STATUS_ROWS);
        let events = [("reconnects", connection.reconnects), ("failures", connection.failures)];
        Status {
            role: "sidecar".to_owned(),
            node: self.shown.node.clone(),
            zone: Some(self.shown.zone.clone()),
            region: self.shown.region.clone(),
            uptime_s: self.started.elapsed().as_secs_f64(),
            ready: self.health().ready,
            term: connection.term,
            configuration_version: connection.configuration_version,
            configuration_age_s: connection.since.as_secs_f64(),
            parent: Some(ParentStatus {
                connected: connection.aggregator.is_some(),
                addresses: self.shown.addresses.clone(),
                events: events.map(|(name, n)| (name.to_owned(), n)).into(),
            }),
            sessions_count: 0,
            sessions_silent: 0,
            sessions_behind: 0,
            sessions: Vec::new(),
            keys_count,
            keys,
            services: Vec::new(),
            core_events: self.counters.iter().map(|(n, v)| (n.to_owned(), v)).collect(),
            invariant_violations: BTreeMap::new(),
            refused: Vec::new(),
            configuration_errors: Vec::new(),
            configuration_warnings: Vec::new(),
        }
    }
}
