//! The demo's tiers: real ones, over gRPC on loopback, all in this process.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use sluicegate_client::Settings as ClientSettings;
use sluicegate_model::Name;
use sluicegate_sidecar::rls::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};

use super::scenario::{FILES, REGION, ZONES, write_files};
use crate::load::embedded::Clients;

/// From one report, and one step of the law, to the next. Shorter than the usual 1 s, so that there
/// is something to see.
pub(crate) const TICK: Duration = Duration::from_millis(200);
/// How long the tiers may take to find each other.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// Everything that runs.
pub(crate) struct World {
    controller: sluicegate_controller::Running,
    aggregators: Vec<sluicegate_aggregator::Running>,
    sidecar: sluicegate_sidecar::Running,
    clients: Arc<Clients>,
    /// The bucket files; removed at the end.
    _files: TempDir,
}

/// What the head of the table shows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Control {
    pub(crate) term: u64,
    pub(crate) version: u64,
    /// Clients and sidecar at the aggregators.
    pub(crate) sessions: usize,
}

impl World {
    /// Starts all tiers, from the top, and waits until every client has its buckets.
    pub(crate) async fn start(clients: usize, stop: &CancellationToken) -> anyhow::Result<Self> {
        let files = tempfile::Builder::new()
            .prefix("sluice-demo-")
            .tempdir()
            .context("no directory for the bucket files")?;
        write_files(files.path())?;
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let region = Name::new(REGION)?;
        let settings = sluicegate_controller::Settings {
            tick: TICK,
            ..sluicegate_controller::Settings::new(
                Name::new("controller")?,
                region.clone(),
                any,
                files.path().to_owned(),
            )
        };
        let controller = sluicegate_controller::start(settings).await?;
        let mut aggregators = Vec::new();
        for zone in ZONES {
            let settings = sluicegate_aggregator::Settings {
                tick: TICK,
                ..sluicegate_aggregator::Settings::new(
                    Name::new(&format!("aggregator-{zone}"))?,
                    Name::new(zone)?,
                    region.clone(),
                    any,
                    vec![controller.local_addr().into()],
                )
            };
            aggregators.push(sluicegate_aggregator::start(settings).await?);
        }
        let client = |name: String, zone: usize| ClientSettings {
            node: name,
            zone: ZONES[zone].to_owned(),
            region: REGION.to_owned(),
            tick: TICK,
            ..ClientSettings::new([aggregators[zone].local_addr().to_string()])
        };
        let sidecar = sluicegate_sidecar::start(sluicegate_sidecar::Settings {
            client: client("sidecar".to_owned(), 0),
            listen: any,
            ..sluicegate_sidecar::Settings::default()
        });
        let sidecar = sidecar.await?;
        let settings =
            (0..clients).map(|c| (c, client(format!("client-{c:02}"), c % ZONES.len()))).collect();
        let Ok(clients) = Clients::start(settings) else { bail!("the clients do not start") };
        let world =
            Self { controller, aggregators, sidecar, clients: Arc::new(clients), _files: files };
        world.informed(stop).await?;
        Ok(world)
    }

    /// Waits until every client and the sidecar have their buckets.
    async fn informed(&self, stop: &CancellationToken) -> anyhow::Result<()> {
        let all = async {
            let sidecar = self.sidecar.limiter();
            while self.clients.informed() < self.clients.len()
                || sidecar.stats().client.services.len() < FILES.len()
            {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            () = all => Ok(()),
            () = stop.cancelled() => Ok(()),
            () = tokio::time::sleep(START_TIMEOUT) => bail!(
                "{} of {} clients have their buckets after {START_TIMEOUT:?}; is this machine very busy?",
                self.clients.informed(),
                self.clients.len()
            ),
        }
    }

    /// The embedded clients.
    pub(crate) fn clients(&self) -> Arc<Clients> {
        Arc::clone(&self.clients)
    }

    /// Envoy's side of a connection to the sidecar.
    pub(crate) async fn envoy(&self) -> anyhow::Result<RateLimitServiceClient<Channel>> {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.sidecar.local_addr))?;
        let channel = endpoint.connect().await.context("the sidecar cannot be reached")?;
        Ok(RateLimitServiceClient::new(channel))
    }

    /// The state of the control plane.
    pub(crate) fn control(&self) -> Control {
        let view = &self.controller.view().view;
        let sessions = self.aggregators.iter().map(|a| a.view().view.sessions.len()).sum();
        Control { term: view.term, version: view.version, sessions }
    }

    /// Messages that were refused or broken, on any hop: there must be none.
    pub(crate) fn broken(&self) -> u64 {
        let views = self.aggregators.iter().map(|a| a.view()).chain([self.controller.view()]);
        let broken: u64 =
            views.map(|v| v.view.counters.invariants().map(|(_, n)| n).sum::<u64>()).sum();
        broken + self.clients.decode_errors()
    }

    /// Ends everything, from the bottom.
    pub(crate) async fn shutdown(self) {
        let Self { controller, aggregators, sidecar, clients, _files } = self;
        let ended = tokio::task::spawn_blocking(move || clients.shutdown()).await;
        if let Err(error) = ended {
            tracing::warn!(%error, "the clients ended badly");
        }
        sidecar.shutdown().await;
        for aggregator in aggregators {
            aggregator.shutdown().await;
        }
        controller.shutdown().await;
    }
}
