//! Starting and stopping a node: the listener, the server with its health and reflection, and the
//! pump.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use sluicegate_model::Name;
use sluicegate_proto::link::{self, Link};
use sluicegate_proto::v1::tier_server::{SERVICE_NAME, TierServer};
use sluicegate_proto::{Address, FILE_DESCRIPTOR_SET, transport};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::Request;
use tonic::service::InterceptorLayer;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use tracing::{error, info, warn};

use crate::clock::Clock;
use crate::connection::{self, Connection, Limits};
use crate::core::Core;
use crate::door::{Bounds, Door};
use crate::metrics::{Ledger, NodeCollector};
use crate::pump::{Published, Pump};
use crate::status::{ParentStatus, Status, status};
use crate::tally::{Sample, Samples, Tally};

/// Changes that the process may have in hand for the core.
const CHANGE_QUEUE: usize = 16;
/// How long connections may take to end once the node has stopped.
const DRAIN: Duration = Duration::from_secs(2);

/// Who a node is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// `aggregator` or `controller`.
    pub role: &'static str,
    /// Before the names of its metrics.
    pub metrics_prefix: &'static str,
    /// Its name.
    pub node: Name,
    /// Its zone, if it belongs to one.
    pub zone: Option<Name>,
    /// Its region.
    pub region: Name,
}

/// The way up.
#[derive(Debug, Clone)]
pub struct Parent {
    /// Tried in turn.
    pub addresses: Vec<Address>,
    /// Spreads the waits between attempts.
    pub seed: u64,
}

/// What a node is made of.
pub struct Node<C: Core> {
    /// Who it is.
    pub identity: Identity,
    /// Where it listens. Port 0 takes any that is free.
    pub listen: SocketAddr,
    /// What its children may do at most.
    pub bounds: Bounds,
    /// How often its core works.
    pub tick: Duration,
    /// The way up, if there is one.
    pub parent: Option<Parent>,
    /// Further numbers for its metrics.
    pub samples: Samples,
    /// Makes the core: the moment of its start is handed in.
    pub make: Box<dyn FnOnce(sluicegate_model::Time) -> C + Send>,
}

impl<C: Core> std::fmt::Debug for Node<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// Why a node does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address cannot be listened on.
    #[error(
        "cannot listen on {address}: {source}; choose an address that is free and of this host"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// The description of the protocol is broken.
    #[error("cannot offer gRPC reflection: {0}")]
    Reflection(String),
    /// The metrics cannot be described.
    #[error("cannot describe the metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// A node that runs. It stops when this is dropped; [`Running::shutdown`] also waits for it.
#[derive(Debug)]
pub struct Running<C: Core> {
    identity: Identity,
    local_addr: SocketAddr,
    published: watch::Receiver<Arc<Published>>,
    changes: mpsc::Sender<C::Change>,
    collector: NodeCollector,
    tally: Arc<Tally>,
    parent: Option<(Vec<Address>, Arc<link::Stats>)>,
    pump: JoinHandle<()>,
    server: JoinHandle<()>,
    cut: CancellationToken,
    stop: CancellationToken,
    _stop_on_drop: DropGuard,
}

/// Starts a node: it listens when this returns.
///
/// # Errors
/// If it cannot listen.
pub async fn start<C: Core>(node: Node<C>) -> Result<Running<C>, StartError> {
    let Node { identity, listen, bounds, tick, parent, samples, make } = node;
    let bounds = bounds.sound();
    let refused = |source| StartError::Listen { address: listen, source };
    let listener = TcpListener::bind(listen).await.map_err(refused)?;
    let local_addr = listener.local_addr().map_err(refused)?;
    let clock = Clock::start();
    let core = make(clock.now());
    let first = Arc::new(Published {
        view: core.view(),
        is_ready: false,
        uptime: Duration::ZERO,
        version_age: Duration::ZERO,
    });
    let (publish, published) = watch::channel(first);
    let (tally, ledger) = (Arc::new(Tally::default()), Arc::new(Ledger::default()));
    let stop = CancellationToken::new();
    let link = parent.as_ref().map(|p| Link::start(p.addresses.clone(), p.seed));
    let link_stats = link.as_ref().map(Link::stats);
    let collector = NodeCollector::new(
        identity.metrics_prefix,
        const_labels(&identity),
        published.clone(),
        Arc::clone(&ledger),
        Arc::clone(&tally),
        with_link(samples, link_stats.clone()),
    )?;

    let (events, event_queue) = mpsc::channel(bounds.event_queue);
    let (changes, change_queue) = mpsc::channel(CHANGE_QUEUE);
    let pump = Pump {
        core,
        clock,
        tick,
        events: event_queue,
        changes: change_queue,
        link,
        stop: stop.clone(),
        tally: Arc::clone(&tally),
        ledger,
        published: publish,
        _stop_with_it: stop.clone().drop_guard(),
    };
    let door = Door {
        events,
        places: Arc::new(Semaphore::new(bounds.max_streams)),
        next_id: AtomicU64::new(1),
        pending: Arc::default(),
        tally: Arc::clone(&tally),
        bounds,
        stop: stop.clone(),
    };
    let cut = CancellationToken::new();
    let (reporter, server) = serve(listener, door, cut.clone())?;
    let pump = tokio::spawn(pump.run());
    tokio::spawn(report_health(reporter, published.clone(), stop.clone()));
    info!(role = identity.role, node = %identity.node, address = %local_addr, "listening");
    Ok(Running {
        identity,
        local_addr,
        published,
        changes,
        collector,
        tally,
        parent: parent.zip(link_stats).map(|(p, s)| (p.addresses, s)),
        pump,
        server,
        cut,
        _stop_on_drop: stop.clone().drop_guard(),
        stop,
    })
}

/// Serves the door, health and reflection on `listener` until the door's stop.
fn serve(
    listener: TcpListener,
    door: Door,
    cut: CancellationToken,
) -> Result<(HealthReporter, JoinHandle<()>), StartError> {
    let reflection = transport::reflection(&[FILE_DESCRIPTOR_SET])
        .map_err(|e| StartError::Reflection(e.to_string()))?;
    let (reporter, health) = transport::health();
    let (tally, stop) = (Arc::clone(&door.tally), door.stop.clone());
    let limits =
        Limits { most: door.bounds.max_connections, first_request: door.bounds.hello_timeout };
    let connections = connection::accept(listener, limits, tally, stop.clone(), cut);
    let max_frame_bytes = door.bounds.max_frame_bytes;
    let tier = TierServer::new(door).max_decoding_message_size(max_frame_bytes);
    let router = transport::server()
        .layer(InterceptorLayer::new(note_request))
        .add_service(tier)
        .add_service(health)
        .add_service(reflection);
    let server = tokio::spawn(async move {
        let stopped = stop.cancelled_owned();
        if let Err(error) = router.serve_with_incoming_shutdown(connections, stopped).await {
            error!(%error, "the server failed");
        }
    });
    Ok((reporter, server))
}

/// Tells a connection that it is used, whatever is asked for.
fn note_request(request: Request<()>) -> Result<Request<()>, tonic::Status> {
    if let Some(connection) = request.extensions().get::<Connection>() {
        connection.note_request();
    }
    Ok(request)
}

impl<C: Core> Running<C> {
    /// Where it listens.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// The state that was published last.
    #[must_use]
    pub fn view(&self) -> Arc<Published> {
        Arc::clone(&self.published.borrow())
    }

    /// Every state that is published from now on.
    #[must_use]
    pub fn views(&self) -> watch::Receiver<Arc<Published>> {
        self.published.clone()
    }

    /// Tells the core of a change. `false`: the node has stopped.
    pub async fn change(&self, change: C::Change) -> bool {
        self.changes.send(change).await.is_ok()
    }

    /// Where changes go in.
    #[must_use]
    pub fn changes(&self) -> mpsc::Sender<C::Change> {
        self.changes.clone()
    }

    /// For a metrics registry.
    #[must_use]
    pub fn collector(&self) -> NodeCollector {
        self.collector.clone()
    }

    /// What was refused.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// What it says of itself.
    #[must_use]
    pub fn status(&self) -> Status {
        let mut made = status(&self.identity, &self.published.borrow(), &self.tally);
        made.parent = self.parent.as_ref().map(|(addresses, stats)| ParentStatus {
            connected: stats.is_open(),
            addresses: addresses.iter().map(ToString::to_string).collect(),
            events: stats.counters().map(|(name, n)| (name.to_owned(), n)).collect(),
        });
        made
    }

    /// Comes back when the node has begun to stop, for whatever reason.
    pub async fn stopping(&self) {
        self.stop.cancelled().await;
    }

    /// Stops in order: no new streams, a last roll-up to the parent, the children's streams ended.
    pub async fn shutdown(self) {
        self.stop.cancel();
        if let Err(error) = self.pump.await {
            error!(%error, "the node's task failed");
        }
        let mut server = self.server;
        if tokio::time::timeout(DRAIN, &mut server).await.is_err() {
            warn!(after = ?DRAIN, "connections are still open; cutting them");
            self.cut.cancel();
            if let Err(error) = server.await {
                error!(%error, "the server's task failed");
            }
        }
    }
}

fn const_labels(identity: &Identity) -> Vec<(&'static str, String)> {
    let zone = identity.zone.iter().map(|z| ("zone", z.to_string()));
    zone.chain([("region", identity.region.to_string())]).collect()
}

/// The tier's own samples and those of the link to the parent.
fn with_link(samples: Samples, link: Option<Arc<link::Stats>>) -> Samples {
    let Some(link) = link else { return samples };
    Arc::new(move || {
        let mut all = samples();
        all.extend(link.counters().map(|(event, n)| Sample {
            name: "parent_stream_events",
            help: "What happened to the stream to the parent, by kind.",
            is_counter: true,
            label: Some(("event", event.to_owned())),
            #[expect(clippy::cast_precision_loss, reason = "metrics are floats")]
            value: n as f64,
        }));
        all
    })
}

/// Says what the last published state says, until the node stops.
async fn report_health(
    reporter: HealthReporter,
    mut published: watch::Receiver<Arc<Published>>,
    stop: CancellationToken,
) {
    loop {
        let ready = !stop.is_cancelled() && published.borrow_and_update().is_ready;
        let status = if ready { ServingStatus::Serving } else { ServingStatus::NotServing };
        for service in ["", SERVICE_NAME] {
            reporter.set_service_status(service, status).await;
        }
        if stop.is_cancelled() {
            return;
        }
        let changed = async {
            let gone = published.wait_for(|p| p.is_ready != ready).await.is_err();
            if gone {
                // The pump is gone, which stops the node.
                stop.cancelled().await;
            }
        };
        tokio::select! {
            () = changed => {}
            () = stop.cancelled() => {}
        }
    }
}
