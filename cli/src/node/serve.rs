//! What the processes have in common once their tier listens: the HTTP side, saying where they
//! listen, waiting for the end, and the end itself.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;

use crate::exit::{Ended, Failure};
use crate::listener::{Health, Listening, Pages, listen};
use crate::ready::{self, Bound};
use crate::{output, signals};

/// A process that serves.
pub(crate) struct Serving {
    http: Listening,
    draining: Arc<AtomicBool>,
}

/// Pages that say "not ready" once the process is on its way out.
struct Draining<P> {
    pages: P,
    draining: Arc<AtomicBool>,
}

impl<P: Pages> Pages for Draining<P> {
    fn metrics(&self) -> String {
        self.pages.metrics()
    }

    fn health(&self) -> Health {
        if self.draining.load(Ordering::Relaxed) {
            return Health::not_ready("stopping");
        }
        self.pages.health()
    }

    fn status(&self) -> serde_json::Value {
        self.pages.status()
    }
}

/// Opens the HTTP side of a tier that listens on `grpc`, and tells where both are.
pub(crate) async fn open(
    role: &'static str,
    node: &str,
    grpc: SocketAddr,
    http_listen: SocketAddr,
    ready_file: Option<PathBuf>,
    pages: impl Pages,
) -> Result<Serving, Failure> {
    let draining = Arc::new(AtomicBool::new(false));
    let pages = Arc::new(Draining { pages, draining: Arc::clone(&draining) });
    let http = listen(http_listen, pages).await.with_context(|| {
        format!("cannot listen on {http_listen} for http; choose an address that is free")
    })?;
    let bound = Bound { role, listen: grpc, http_listen: http.addr, pid: std::process::id() };
    output::line(format!("{role} {node}: gRPC on {grpc}, http on {}", http.addr))?;
    if let Some(path) = ready_file {
        ready::write(&path, &bound)
            .with_context(|| format!("--ready-file: {} cannot be written", path.display()))?;
    }
    tracing::info!(role, node, listen = %grpc, http_listen = %http.addr, "started");
    Ok(Serving { http, draining })
}

impl Serving {
    /// Waits until the process is asked to stop, or until `ended`, which is a failure.
    pub(crate) async fn until_stopped(&self, ended: impl Future<Output = ()>) -> Ended {
        let outcome = tokio::select! {
            signal = signals::asked_to_stop() => {
                tracing::info!(signal, "stopping");
                Ok(())
            }
            () = ended => Err(Failure::AtWork(anyhow::anyhow!("stopped by itself; the log says why"))),
        };
        self.draining.store(true, Ordering::Relaxed);
        outcome
    }

    /// Closes the HTTP side, as the last thing.
    pub(crate) async fn close(self) {
        self.http.stop().await;
        tracing::info!("stopped");
    }
}
