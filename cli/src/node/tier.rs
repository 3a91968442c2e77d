//! What controller and aggregator have in common as processes: the pages that show a node, and the
//! way from a start to an end in order.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use anyhow::Context;
use prometheus::{Registry, TextEncoder};
use serde_json::Value;
use sluicegate_model::Law;
use sluicegate_node::{NodeCollector, Published, Status};
use tokio::sync::watch;

use super::serve;
use super::since::Since;
use crate::clock;
use crate::exit::{Ended, Failure};
use crate::listener::{Health, Pages};
use crate::status::{LAW, LIMITED_FOR};

/// A tier's node that runs.
pub(crate) trait Tier: Send + Sync + 'static {
    /// Where it listens.
    fn local_addr(&self) -> SocketAddr;
    /// What it says of itself.
    fn status(&self) -> Status;
    /// Its metrics.
    fn collector(&self) -> NodeCollector;
    /// Every state that it publishes.
    fn views(&self) -> watch::Receiver<Arc<Published>>;
    /// Stops it in order.
    fn shutdown(self) -> impl Future<Output = ()> + Send;
}

/// Serves until asked to stop. `law` is the control plane's, where this process is told it.
pub(crate) async fn run<T: Tier>(
    tier: T,
    role: &'static str,
    node: &str,
    law: Option<Law>,
    http_listen: SocketAddr,
    ready_file: Option<PathBuf>,
) -> Ended {
    let grpc = tier.local_addr();
    let registry = Registry::new();
    registry.register(Box::new(tier.collector())).context("the metrics cannot be registered")?;
    let views = tier.views();
    let since = Arc::new(Mutex::new(Since::default()));
    let followed = tokio::spawn(follow(views.clone(), Arc::clone(&since)));
    let held = Arc::new(RwLock::new(Some(tier)));
    let pages = TierPages { tier: Arc::clone(&held), law, registry, views, since };
    let opened = serve::open(role, node, grpc, http_listen, ready_file, pages).await;
    let (serving, ended) = match opened {
        Ok(serving) => {
            let gone = async {
                // It ends when nothing is published any more: the node has stopped.
                let _ = followed.await;
            };
            let ended = serving.until_stopped(gone).await;
            (Some(serving), ended)
        }
        Err(failure) => (None, Err(failure)),
    };
    let tier = held.write().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(tier) = tier {
        tier.shutdown().await;
    }
    if let Some(serving) = serving {
        serving.close().await;
    }
    ended
}

/// Notes since when keys are limited, until nothing is published any more.
async fn follow(mut views: watch::Receiver<Arc<Published>>, since: Arc<Mutex<Since>>) {
    while views.changed().await.is_ok() {
        let published = Arc::clone(&views.borrow_and_update());
        let mut since = since.lock().unwrap_or_else(PoisonError::into_inner);
        since.note(clock::now(), &published.view);
    }
}

struct TierPages<T> {
    /// Empty once it is being stopped.
    tier: Arc<RwLock<Option<T>>>,
    law: Option<Law>,
    registry: Registry,
    views: watch::Receiver<Arc<Published>>,
    since: Arc<Mutex<Since>>,
}

impl<T: Tier> Pages for TierPages<T> {
    fn metrics(&self) -> String {
        match TextEncoder::new().encode_to_string(&self.registry.gather()) {
            Ok(text) => text,
            Err(error) => {
                tracing::warn!(%error, "metrics cannot be written");
                String::new()
            }
        }
    }

    fn health(&self) -> Health {
        if self.views.borrow().is_ready {
            Health::ready()
        } else {
            Health::not_ready("no configuration yet")
        }
    }

    fn status(&self) -> Value {
        let tier = self.tier.read().unwrap_or_else(PoisonError::into_inner);
        let Some(tier) = tier.as_ref() else {
            return serde_json::json!({ "ready": false, "reason": "stopping" });
        };
        let status = tier.status();
        let since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        let limited = since.limited_for(clock::now());
        let mut said = serde_json::to_value(&status).unwrap_or_default();
        if let Some(law) = self.law {
            said[LAW] = law.name().into();
        }
        let rows = said["keys"].as_array_mut().map(Vec::as_mut_slice).unwrap_or_default();
        for (row, key) in rows.iter_mut().zip(&status.keys) {
            let name = (key.service.as_str(), key.bucket.as_str(), key.key.clone());
            row[LIMITED_FOR] = limited.get(&name).map(|d| d.as_secs_f64()).into();
        }
        said
    }
}

/// Why a node did not start, as a failure of the command.
pub(crate) fn not_started(error: impl Into<anyhow::Error>) -> Failure {
    Failure::AtWork(error.into())
}
