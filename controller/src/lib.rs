//! The controller's process: a [`Controller`] core behind gRPC, and the bucket files of a directory,
//! reloaded while it runs. It knows nothing of counting or laws (the core does) and nothing of
//! command lines.

mod directory;
mod store;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_controller_core::{Config, Controller};
use sluicegate_law::grant::Switches;
use sluicegate_law::{Limits, Refusal, SessionId, View};
use sluicegate_model::{Down, Hello, Law, Name, Time, Up};
use sluicegate_node::{Core, Identity, Node};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::directory::{Directory, Shown};
use self::store::Change;

pub use sluicegate_node::{Bounds, ConfigurationProblem, NodeCollector, Published, Status, Tally};

/// Before the name of every metric.
pub const METRICS_PREFIX: &str = "sluicegate_controller";

/// What a controller is told at its start.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Its name, for people.
    pub node: Name,
    /// Its region.
    pub region: Name,
    /// Where it listens for aggregators. Port 0 takes any that is free.
    pub listen: SocketAddr,
    /// The directory of bucket files.
    pub buckets_dir: PathBuf,
    /// How often it is looked for changes that went unnoticed.
    pub rescan: Duration,
    /// From one step of the law to the next.
    pub tick: Duration,
    /// How long directives live.
    pub ttl: Duration,
    /// How long aggregators go on with what they were granted last.
    pub grant_ttl: Duration,
    /// The law of the control plane.
    pub law: Law,
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
    /// How long aggregators go on without word from here, unless set otherwise.
    pub const GRANT_TTL: Duration = Duration::from_secs(60);
    /// How often the directory is looked at, unless set otherwise.
    pub const RESCAN: Duration = Duration::from_secs(3);

    /// The usual settings.
    #[must_use]
    pub fn new(node: Name, region: Name, listen: SocketAddr, buckets_dir: PathBuf) -> Self {
        Self {
            node,
            region,
            listen,
            buckets_dir,
            rescan: Self::RESCAN,
            tick: Self::TICK,
            ttl: Self::TTL,
            grant_ttl: Self::GRANT_TTL,
            law: Law::Ratio,
            limits: Limits::for_controller(),
            bounds: Bounds { max_streams: 1000, max_connections: 1000, ..Bounds::default() },
        }
    }
}

/// Why a controller does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is no such directory.
    #[error("the directory of bucket files {} is none; create it or name another", dir.display())]
    NoDirectory {
        /// What was named.
        dir: PathBuf,
    },
    /// The rest.
    #[error(transparent)]
    Node(#[from] sluicegate_node::StartError),
}

/// A controller that runs. It stops when this is dropped.
#[derive(Debug)]
pub struct Running {
    node: sluicegate_node::Running<Region>,
    shown: watch::Receiver<Arc<Shown>>,
    /// Ends the watch on the directory.
    _watch: tokio_util::sync::DropGuard,
}

/// Starts a controller: when this returns, the bucket files are read and it listens. A file with
/// errors does not keep it from starting; [`Running::status`] shows it.
///
/// # Errors
/// If it cannot listen, or there is no such directory.
pub async fn start(settings: Settings) -> Result<Running, StartError> {
    let Settings {
        node,
        region,
        listen,
        buckets_dir,
        rescan,
        tick,
        ttl,
        grant_ttl,
        law,
        limits,
        bounds,
    } = settings;
    if !buckets_dir.is_dir() {
        return Err(StartError::NoDirectory { dir: buckets_dir });
    }
    let mut directory = Directory::new(buckets_dir, law);
    let first = directory.read().await;
    let (shown, readings) = (directory.shown(), directory.readings());

    let identity = Identity {
        role: "controller",
        metrics_prefix: METRICS_PREFIX,
        node: node.clone(),
        zone: None,
        region: region.clone(),
    };
    let config = Config {
        node,
        session: rand::random(),
        region,
        tick,
        ttl,
        grant_ttl,
        switches: Switches::default(),
        law,
        limits,
    };
    let shown_to_metrics = shown.clone();
    let samples = move || directory::samples(&Arc::clone(&shown_to_metrics.borrow()), &readings);
    let made = Node {
        identity,
        listen,
        bounds,
        tick,
        parent: None,
        samples: Arc::new(samples),
        make: Box::new(move |now| {
            let mut core = Region(Controller::new(config, now));
            if let Some(change) = first {
                core.handle_change(now, change);
            }
            core
        }),
    };
    let node = sluicegate_node::start(made).await?;
    let stop = CancellationToken::new();
    tokio::spawn(directory.watch(rescan, node.changes(), stop.clone()));
    Ok(Running { node, shown, _watch: stop.drop_guard() })
}

/// Runs a controller until `shutdown`, then stops it in order.
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

/// Why a controller does not run any more.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Its task is gone.
    #[error("the controller stopped by itself; its log says why. Start it again")]
    Stopped,
}

impl Running {
    /// Where it listens.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.node.local_addr()
    }

    /// The state that was published last.
    #[must_use]
    pub fn view(&self) -> Arc<Published> {
        self.node.view()
    }

    /// Every state that is published from now on.
    #[must_use]
    pub fn views(&self) -> watch::Receiver<Arc<Published>> {
        self.node.views()
    }

    /// For a metrics registry.
    #[must_use]
    pub fn collector(&self) -> NodeCollector {
        self.node.collector()
    }

    /// What it refused.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        self.node.tally()
    }

    /// What it says of itself.
    #[must_use]
    pub fn status(&self) -> Status {
        let shown = Arc::clone(&self.shown.borrow());
        let mut status = self.node.status();
        status.configuration_errors.clone_from(&shown.errors);
        status.configuration_warnings.clone_from(&shown.warnings);
        status
    }

    /// Comes back when it has begun to stop, for whatever reason.
    pub async fn stopping(&self) {
        self.node.stopping().await;
    }

    /// Stops in order: no new streams, the aggregators' streams ended.
    pub async fn shutdown(self) {
        self.node.shutdown().await;
    }
}

/// The core, as the pump wants it.
#[derive(Debug)]
struct Region(Controller);

impl Core for Region {
    type Change = Change;

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

    fn handle_change(&mut self, now: Time, change: Change) {
        self.0.handle_configuration(now, change.changed, change.removed);
    }

    fn view(&self) -> View {
        self.0.view()
    }

    fn is_ready(view: &View) -> bool {
        view.version > 0
    }
}
