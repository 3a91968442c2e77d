//! The aggregator's process: an [`Aggregator`] core behind gRPC, with a stream to a controller. It
//! knows nothing of counting or laws (the core does) and nothing of command lines.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_aggregator_core::{Aggregator, Config};
use sluicegate_law::grant::Switches;
use sluicegate_law::{Limits, Refusal, SessionId, View};
use sluicegate_model::{Down, Hello, Name, Time, Up};
use sluicegate_node::{Core, Identity, Node, Parent};
use sluicegate_proto::Address;
use tokio_util::sync::CancellationToken;

pub use sluicegate_node::{Bounds, NodeCollector, Published, StartError, Status, Tally};

/// Before the name of every metric.
pub const METRICS_PREFIX: &str = "sluicegate_aggregator";

/// What an aggregator is told at its start.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Its name, for people.
    pub node: Name,
    /// Its zone.
    pub zone: Name,
    /// Its region.
    pub region: Name,
    /// Where it listens for clients. Port 0 takes any that is free.
    pub listen: SocketAddr,
    /// The controllers of its region, tried in turn. Without any, it serves zone scope from the
    /// configuration it never gets: nothing.
    pub controllers: Vec<Address>,
    /// From one step of the law, and one report to the controller, to the next.
    pub tick: Duration,
    /// How long directives live.
    pub ttl: Duration,
    /// The bounds of its core.
    pub limits: Limits,
    /// The bounds of its streams.
    pub bounds: Bounds,
}

impl Settings {
    /// From one tick to the next, unless set otherwise.
    pub const TICK: Duration = Duration::from_secs(1);
    /// The life of a directive, unless set otherwise.
    pub const TTL: Duration = Duration::from_secs(10);

    /// The usual settings.
    #[must_use]
    pub fn new(
        node: Name,
        zone: Name,
        region: Name,
        listen: SocketAddr,
        controllers: Vec<Address>,
    ) -> Self {
        Self {
            node,
            zone,
            region,
            listen,
            controllers,
            tick: Self::TICK,
            ttl: Self::TTL,
            limits: Limits::for_aggregator(),
            bounds: Bounds::default(),
        }
    }
}

/// An aggregator that runs. It stops when this is dropped.
#[derive(Debug)]
pub struct Running(sluicegate_node::Running<Zone>);

/// Starts an aggregator: it listens when this returns.
///
/// # Errors
/// If it cannot listen.
pub async fn start(settings: Settings) -> Result<Running, StartError> {
    let Settings { node, zone, region, listen, controllers, tick, ttl, limits, bounds } = settings;
    let session = rand::random();
    let identity = Identity {
        role: "aggregator",
        metrics_prefix: METRICS_PREFIX,
        node: node.clone(),
        zone: Some(zone.clone()),
        region: region.clone(),
    };
    let switches = Switches::default();
    let config = Config { node, session, zone, region, tick, ttl, switches, limits };
    let made = Node {
        identity,
        listen,
        bounds,
        tick,
        parent: Some(Parent { addresses: controllers, seed: rand::random() }),
        samples: Arc::new(Vec::new),
        make: Box::new(move |now| Zone(Aggregator::new(config, now))),
    };
    sluicegate_node::start(made).await.map(Running)
}

/// Runs an aggregator until `shutdown`, then stops it in order.
///
/// # Errors
/// If it cannot start, or stops before it is told to.
pub async fn run(settings: Settings, shutdown: CancellationToken) -> Result<(), RunError> {
    let running = start(settings).await?;
    tokio::select! {
        () = shutdown.cancelled() => {
            running.shutdown().await;
            Ok(())
        }
        () = running.stopping() => Err(RunError::Stopped),
    }
}

/// Why an aggregator does not run any more.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Its task is gone.
    #[error("the aggregator stopped by itself; its log says why. Start it again")]
    Stopped,
}

impl Running {
    /// Where it listens.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.0.local_addr()
    }

    /// The state that was published last.
    #[must_use]
    pub fn view(&self) -> Arc<Published> {
        self.0.view()
    }

    /// Every state that is published from now on.
    #[must_use]
    pub fn views(&self) -> tokio::sync::watch::Receiver<Arc<Published>> {
        self.0.views()
    }

    /// For a metrics registry.
    #[must_use]
    pub fn collector(&self) -> NodeCollector {
        self.0.collector()
    }

    /// What it refused.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        self.0.tally()
    }

    /// What it says of itself.
    #[must_use]
    pub fn status(&self) -> Status {
        self.0.status()
    }

    /// Comes back when it has begun to stop, for whatever reason.
    pub async fn stopping(&self) {
        self.0.stopping().await;
    }

    /// Stops in order: no new streams, a last roll-up to the controller, the clients' streams ended.
    pub async fn shutdown(self) {
        self.0.shutdown().await;
    }
}

/// The core, as the pump wants it.
#[derive(Debug)]
struct Zone(Aggregator);

/// An aggregator's process has nothing to tell its core.
#[derive(Debug)]
enum Never {}

impl Core for Zone {
    type Change = Never;

    fn handle_child_open(&mut self, now: Time, id: SessionId, hello: Hello) -> Result<(), Refusal> {
        self.0.handle_child_open(now, id, hello)
    }

    fn handle_child(&mut self, now: Time, id: SessionId, up: Up) -> Result<(), Refusal> {
        self.0.handle_child(now, id, up)
    }

    fn handle_child_close(&mut self, now: Time, id: SessionId) {
        self.0.handle_child_close(now, id);
    }

    fn poll_child(&mut self) -> Option<(SessionId, Down)> {
        self.0.poll_child()
    }

    fn handle_timeout(&mut self, now: Time) {
        self.0.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Time {
        self.0.poll_timeout()
    }

    fn handle_change(&mut self, _now: Time, change: Never) {
        match change {}
    }

    fn view(&self) -> View {
        self.0.view()
    }

    fn is_ready(view: &View) -> bool {
        view.version > 0
    }

    fn handle_parent_open(&mut self, now: Time) {
        self.0.handle_parent_open(now);
    }

    fn handle_parent(&mut self, now: Time, down: Down) {
        self.0.handle_parent(now, down);
    }

    fn handle_parent_close(&mut self, now: Time) {
        self.0.handle_parent_close(now);
    }

    fn poll_parent(&mut self) -> Option<Up> {
        self.0.poll_parent()
    }
}
