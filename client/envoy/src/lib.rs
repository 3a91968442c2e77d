//! Envoy's rate limit service (`envoy.service.ratelimit.v3.RateLimitService`) over the embedded
//! client: a sidecar answers from its own memory, and no remote call is on the way of a request.
//!
//! What of Envoy's request means what:
//!
//! | Envoy | here |
//! |---|---|
//! | `domain` | the service, whose buckets apply |
//! | descriptor | one view of the request; all are decided together, and a refused request charges none |
//! | entry | a dimension; the entry with the key [`Settings::caller_key`] is the caller, the one with [`Settings::procedure_key`] the procedure. Of two entries with one key in a descriptor, the first counts |
//! | `hits_addend` | 0 means 1; a descriptor's own comes first, and there 0 asks without charging |
//! | `limit` of a descriptor | not applied: the configured limit holds; counted as `overrides_ignored` |
//! | `is_negative_hits` | nothing is given back, and nothing charged; counted as `refunds_ignored` |
//! | `current_limit` | of the bucket that refused, or else of the one that admits least; its name is the bucket's |
//! | `limit_remaining` | the limit while everything is admitted (the most it can be), 0 while only a share is |
//! | `duration_until_reset` | of a refusal: when to try again; otherwise the limit's window |
//!
//! A domain or descriptor that no bucket matches is `OK` without a limit. An empty domain, no
//! descriptors, a descriptor without entries, and what is beyond [`Limits`] is `INVALID_ARGUMENT`.
#![warn(missing_docs)]

mod answer;
mod counters;
mod limit;
mod metrics;
mod read;
pub mod rls;
mod service;
mod settings;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_client::Limiter;
use sluicegate_proto::transport;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic_health::server::HealthReporter;

pub use counters::Counters;
pub use metrics::SidecarCollector;
pub use settings::{Limits, Settings, StartError};

use rls::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitServiceServer;
use service::Rls;

/// How long connections may take to end at shutdown.
const END_TIMEOUT: Duration = Duration::from_secs(1);

type Server = RateLimitServiceServer<Rls>;

/// A sidecar that runs. Dropped, it stops without order; see [`Running::shutdown`].
#[derive(Debug)]
pub struct Running {
    /// Where it listens.
    pub local_addr: SocketAddr,
    limiter: Limiter,
    counters: Arc<Counters>,
    health: HealthReporter,
    stop: oneshot::Sender<()>,
    server: JoinHandle<Result<(), tonic::transport::Error>>,
}

/// Starts a sidecar. It answers at once, admitting everything until an aggregator has answered.
///
/// # Errors
/// Says which setting is wrong, or what the operating system refused.
pub async fn start(settings: Settings) -> Result<Running, StartError> {
    settings.check()?;
    let limits = settings.limits;
    let bind = |source| StartError::Bind { address: settings.listen, source };
    let listener = TcpListener::bind(settings.listen).await.map_err(bind)?;
    let local_addr = listener.local_addr().map_err(bind)?;
    let reflection = transport::reflection(&[rls::FILE_DESCRIPTOR_SET])?;
    let limiter = Limiter::start(settings.client.clone())?;
    let counters = Arc::new(Counters::default());
    let (health, health_service) = transport::health();
    health.set_serving::<Server>().await;
    let rls = Rls { limiter: limiter.clone(), settings, counters: counters.clone() };
    let (stop, stopped) = oneshot::channel();
    let serving = transport::server()
        .max_concurrent_streams(limits.streams)
        .add_service(Server::new(rls).max_decoding_message_size(limits.message_bytes))
        .add_service(health_service)
        .add_service(reflection)
        .serve_with_incoming_shutdown(TcpListenerStream::new(listener), async {
            let _ = stopped.await;
        });
    let server = tokio::spawn(serving);
    tracing::info!(%local_addr, "the sidecar listens");
    Ok(Running { local_addr, limiter, counters, health, stop, server })
}

impl Running {
    /// The embedded client.
    #[must_use]
    pub fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// What the sidecar counts of its own service.
    #[must_use]
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// For a metrics registry.
    ///
    /// # Errors
    /// If the metrics cannot be described.
    pub fn collector(&self) -> prometheus::Result<SidecarCollector> {
        SidecarCollector::new(&self.limiter, self.counters.clone())
    }

    /// Stops in order: no new requests, those under way are answered, the client's last report is
    /// sent.
    pub async fn shutdown(self) {
        let Self { local_addr, limiter, counters: _, health, stop, mut server } = self;
        health.set_not_serving::<Server>().await;
        // Without a receiver the server has ended already.
        let _ = stop.send(());
        match tokio::time::timeout(END_TIMEOUT, &mut server).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => {
                tracing::warn!(%local_addr, %error, "the sidecar's server failed")
            }
            Ok(Err(error)) => tracing::error!(%local_addr, %error, "the sidecar's server panicked"),
            Err(_) => {
                server.abort();
                tracing::debug!(%local_addr, "connections were cut at shutdown");
            }
        }
        if tokio::task::spawn_blocking(move || limiter.shutdown()).await.is_err() {
            tracing::warn!("the runtime ended before the client's last report");
        }
    }
}
