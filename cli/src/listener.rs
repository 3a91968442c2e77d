//! The HTTP side of a process: `/metrics`, `/healthz`, `/status`. Serves what it is given; knows no
//! tier.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Whether a process can do its work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Health {
    /// Whether work should be sent here.
    pub(crate) ready: bool,
    /// What is missing, or that nothing is.
    pub(crate) reason: String,
}

impl Health {
    /// Ready for work.
    pub(crate) fn ready() -> Self {
        Self { ready: true, reason: "serving".to_owned() }
    }

    /// Not yet, or no longer.
    pub(crate) fn not_ready(reason: &str) -> Self {
        Self { ready: false, reason: reason.to_owned() }
    }
}

/// What a process shows of itself.
pub(crate) trait Pages: Send + Sync + 'static {
    /// Metrics in the text format of Prometheus.
    fn metrics(&self) -> String;
    /// Whether it serves.
    fn health(&self) -> Health;
    /// The state of the process.
    fn status(&self) -> serde_json::Value;
}

/// A listener at work.
#[derive(Debug)]
pub(crate) struct Listening {
    /// Where, with the port that was bound.
    pub(crate) addr: SocketAddr,
    stop: CancellationToken,
    served: JoinHandle<io::Result<()>>,
}

impl Listening {
    /// Stops listening, lets requests under way end, and waits for that.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        match self.served.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the http listener ended badly"),
            Err(error) => tracing::warn!(%error, "the http listener failed"),
        }
    }
}

/// Serves `pages` on `addr`.
pub(crate) async fn listen(addr: SocketAddr, pages: Arc<dyn Pages>) -> io::Result<Listening> {
    let listener = TcpListener::bind(addr).await?;
    let addr = listener.local_addr()?;
    let stop = CancellationToken::new();
    let stopped = stop.clone().cancelled_owned();
    let app = router(pages);
    let served =
        tokio::spawn(
            async move { axum::serve(listener, app).with_graceful_shutdown(stopped).await },
        );
    Ok(Listening { addr, stop, served })
}

fn router(pages: Arc<dyn Pages>) -> Router {
    Router::new()
        .route("/", get(index))
        .route("/metrics", get(metrics))
        .route("/healthz", get(ready))
        .route("/healthz/ready", get(ready))
        .route("/healthz/live", get(live))
        .route("/status", get(status))
        .with_state(pages)
}

async fn index() -> &'static str {
    "/metrics        counters and gauges for Prometheus\n\
     /healthz        200 when this process serves, 503 when it does not (also /healthz/ready)\n\
     /healthz/live   200 while this process runs\n\
     /status         the state of this process as JSON; `sluice status` shows it\n"
}

async fn metrics(State(pages): State<Arc<dyn Pages>>) -> Response {
    let text = pages.metrics();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

async fn ready(State(pages): State<Arc<dyn Pages>>) -> Response {
    let health = pages.health();
    let code = if health.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, axum::Json(health)).into_response()
}

async fn live() -> Response {
    axum::Json(serde_json::json!({ "live": true })).into_response()
}

async fn status(State(pages): State<Arc<dyn Pages>>) -> Response {
    axum::Json(pages.status()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    use crate::fetch;

    #[derive(Default)]
    struct Fake {
        ready: AtomicBool,
    }

    impl Pages for Fake {
        fn metrics(&self) -> String {
            "x 1\n".to_owned()
        }

        fn health(&self) -> Health {
            if self.ready.load(Ordering::Relaxed) {
                Health::ready()
            } else {
                Health::not_ready("no configuration yet")
            }
        }

        fn status(&self) -> serde_json::Value {
            serde_json::json!({ "term": 3 })
        }
    }

    #[tokio::test]
    async fn pages_are_served_and_health_follows_readiness() {
        let pages = Arc::new(Fake::default());
        let any = "127.0.0.1:0".parse().expect("an address");
        let listening = listen(any, pages.clone()).await.expect("a free port");
        let get = |path: &str| fetch::get(format!("http://{}{path}", listening.addr));
        let (code, body) = get("/healthz").await.expect("answers");
        assert_eq!(code, 503);
        assert!(body.contains("no configuration yet"), "{body}");
        assert_eq!(get("/healthz/live").await.expect("answers").0, 200);
        pages.ready.store(true, Ordering::Relaxed);
        assert_eq!(get("/healthz").await.expect("answers").0, 200);
        assert_eq!(get("/metrics").await.expect("answers"), (200, "x 1\n".to_owned()));
        assert_eq!(get("/status").await.expect("answers").1, "{\"term\":3}");
        assert_eq!(get("/nothing").await.expect("answers").0, 404);
        let addr = listening.addr;
        listening.stop().await;
        assert!(fetch::get(format!("http://{addr}/healthz")).await.is_err(), "it has stopped");
    }
}
