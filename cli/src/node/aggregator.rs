//! The aggregator's process.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use sluicegate_aggregator::{Bounds, NodeCollector, Published, Running, Settings, Status};
use sluicegate_files::node::AggregatorSettings;
use sluicegate_law::Limits;
use sluicegate_proto::Address;
use tokio::sync::watch;

use super::tier::{self, Tier};
use crate::exit::{Ended, Failure};

/// Runs until asked to stop.
pub(crate) async fn run(settings: AggregatorSettings, ready_file: Option<PathBuf>) -> Ended {
    let AggregatorSettings {
        node,
        zone,
        region,
        listen,
        http_listen,
        controllers,
        tick,
        ttl,
        limits,
    } = settings;
    let name = node.to_string();
    let controllers = controllers
        .iter()
        .map(|c| c.parse::<Address>().with_context(|| format!("controllers: {c} is not usable")));
    let controllers = controllers.collect::<Result<Vec<_>, _>>().map_err(Failure::BadInput)?;
    let defaults = Settings::new(node, zone, region, listen, controllers);
    let settings = Settings {
        tick,
        ttl,
        limits: super::law_limits(limits, Limits::for_aggregator()),
        bounds: Bounds {
            max_streams: limits.max_sessions as usize,
            max_connections: limits.max_sessions as usize,
            max_frame_bytes: limits.max_message_bytes as usize,
            ..defaults.bounds
        },
        ..defaults
    };
    let running = sluicegate_aggregator::start(settings).await.map_err(tier::not_started)?;
    tier::run(running, "aggregator", &name, None, http_listen, ready_file).await
}

impl Tier for Running {
    fn local_addr(&self) -> SocketAddr {
        self.local_addr()
    }

    fn status(&self) -> Status {
        self.status()
    }

    fn collector(&self) -> NodeCollector {
        self.collector()
    }

    fn views(&self) -> watch::Receiver<Arc<Published>> {
        self.views()
    }

    async fn shutdown(self) {
        self.shutdown().await;
    }
}
