//! A controller and an aggregator in this process, over real gRPC, and a load on a client.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_aggregator as aggregator;
use sluicegate_client::{Decision, Limiter, Request};
use sluicegate_controller as controller;
use sluicegate_model::Name;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::time::Instant;

/// The tiers above a client.
pub(crate) struct Tiers {
    _buckets: TempDir,
    tick: Duration,
    ttl: Duration,
    controller: controller::Running,
    aggregator: Option<(Runtime, aggregator::Running)>,
    address: SocketAddr,
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn any() -> SocketAddr {
    "127.0.0.1:0".parse().expect("an address")
}

impl Tiers {
    /// With one bucket file, and directives that live for `ttl`.
    pub(crate) async fn start(buckets: &str, tick: Duration, ttl: Duration) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("shop.yaml"), buckets).expect("written");
        let path = directory.path().to_owned();
        let settings = controller::Settings::new(name("c"), name("r1"), any(), path);
        let controller = controller::start(controller::Settings { tick, ttl, ..settings })
            .await
            .expect("the controller starts");
        let errors = controller.status().configuration_errors;
        assert!(errors.is_empty(), "{errors:?}");
        let mut tiers =
            Self { _buckets: directory, tick, ttl, controller, aggregator: None, address: any() };
        tiers.restart_aggregator().await;
        tiers
    }

    /// Starts an aggregator where the last one was.
    pub(crate) async fn restart_aggregator(&mut self) {
        let controllers = vec![self.controller.local_addr().into()];
        let settings =
            aggregator::Settings::new(name("a"), name("z1"), name("r1"), self.address, controllers);
        let settings = aggregator::Settings { tick: self.tick, ttl: self.ttl, ..settings };
        // A runtime of its own, so that it can be killed with everything it does.
        let runtime = Runtime::new().expect("a runtime");
        let started = runtime.spawn(aggregator::start(settings)).await.expect("no panic");
        let running = started.expect("the aggregator starts");
        self.address = running.local_addr();
        self.aggregator = Some((runtime, running));
    }

    /// Ends the aggregator without a word, as `kill -9` does.
    pub(crate) fn kill_aggregator(&mut self) {
        let (runtime, running) = self.aggregator.take().expect("there is one");
        // Forgotten, so that nothing is done in order.
        std::mem::forget(running);
        runtime.shutdown_background();
    }

    pub(crate) fn aggregator_address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn aggregator_view(&self) -> Arc<aggregator::Published> {
        self.aggregator.as_ref().expect("there is one").1.view()
    }

    pub(crate) async fn shutdown(mut self) {
        if self.aggregator.is_some() {
            self.kill_aggregator();
        }
        self.controller.shutdown().await;
    }
}

/// What became of a load.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) admitted: u64,
    /// By the bucket that dropped.
    pub(crate) dropped_by: BTreeMap<String, u64>,
    pub(crate) slowest: Duration,
    duration: Duration,
}

impl Tally {
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped_by.values().sum()
    }

    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    pub(crate) fn admitted_rps(&self) -> f64 {
        self.admitted as f64 / self.duration.as_secs_f64()
    }

    /// Of two loads at the same time.
    pub(crate) fn together(mut self, other: Self) -> Self {
        self.admitted += other.admitted;
        for (bucket, n) in other.dropped_by {
            *self.dropped_by.entry(bucket).or_default() += n;
        }
        self.slowest = self.slowest.max(other.slowest);
        self.duration = self.duration.max(other.duration);
        self
    }
}

/// Offers `rps` requests a second, evenly and open loop, for `duration`. Blocks.
pub(crate) fn offer(
    client: &Limiter,
    request: &Request<'_>,
    rps: u32,
    duration: Duration,
) -> Tally {
    let mut tally = Tally { duration, ..Tally::default() };
    let start = Instant::now();
    let gap = Duration::from_secs(1) / rps;
    let mut due = Duration::ZERO;
    while due < duration {
        if let Some(early) = due.checked_sub(start.elapsed()) {
            std::thread::sleep(early);
        }
        let before = Instant::now();
        let outcome = client.decide(request);
        tally.slowest = tally.slowest.max(before.elapsed());
        match outcome.details() {
            Decision::Admit { .. } => tally.admitted += 1,
            Decision::Drop { bucket, .. } => {
                let name = client.bucket(bucket).expect("it is configured").bucket;
                *tally.dropped_by.entry(name.to_string()).or_default() += 1;
            }
        }
        due += gap;
    }
    tally
}

/// Waits until `holds`, at most 10 s.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("not within 10 s: {what}");
}
