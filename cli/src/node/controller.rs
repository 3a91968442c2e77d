//! The controller's process.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use sluicegate_controller::{Bounds, NodeCollector, Published, Running, Settings, Status};
use sluicegate_files::node::ControllerSettings;
use sluicegate_law::Limits;
use tokio::sync::watch;

use super::tier::{self, Tier};
use crate::exit::{Ended, Failure};

/// Runs until asked to stop.
pub(crate) async fn run(settings: ControllerSettings, ready_file: Option<PathBuf>) -> Ended {
    let ControllerSettings {
        node,
        region,
        listen,
        http_listen,
        buckets_dir,
        tick,
        ttl,
        law,
        limits,
    } = settings;
    let name = node.to_string();
    let defaults = Settings::new(node, region, listen, buckets_dir);
    let settings = Settings {
        tick,
        ttl,
        law,
        limits: super::law_limits(limits, Limits::for_controller()),
        bounds: Bounds {
            max_streams: limits.max_sessions as usize,
            max_connections: limits.max_sessions as usize,
            max_frame_bytes: limits.max_message_bytes as usize,
            ..defaults.bounds
        },
        ..defaults
    };
    let running = match sluicegate_controller::start(settings).await {
        Ok(running) => running,
        Err(error @ sluicegate_controller::StartError::NoDirectory { .. }) => {
            return Err(Failure::BadInput(error.into()));
        }
        Err(error) => return Err(tier::not_started(error)),
    };
    tier::run(running, "controller", &name, Some(law), http_listen, ready_file).await
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
