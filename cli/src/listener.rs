//! The HTTP side of a process: `/metrics`, `/healthz`, `/status`. Serves what it is given; knows no
//! tier. Whoever connects is held to bounds: how many, how long for a request's head, how long when
//! the process stops.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use serde::Serialize;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// What those who connect may do at most.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Connections open at once; one more is closed.
    connections: usize,
    /// How long the head of a request may take, the wait for it on an open connection included.
    header_read: Duration,
    /// How long requests under way may take once the listener stops; then they are cut.
    stop: Duration,
}

const LIMITS: Limits =
    Limits { connections: 256, header_read: Duration::from_secs(5), stop: Duration::from_secs(2) };
/// After a failed accept (mostly: no file descriptors left).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How often at most a log line tells of connections refused.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

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
    served: JoinHandle<()>,
}

impl Listening {
    /// Stops listening, lets requests under way end for a moment, cuts the rest, and waits for that.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        if let Err(error) = self.served.await {
            tracing::warn!(%error, "the http listener failed");
        }
    }
}

/// Serves `pages` on `addr`.
pub(crate) async fn listen(addr: SocketAddr, pages: Arc<dyn Pages>) -> io::Result<Listening> {
    listen_within(addr, pages, LIMITS).await
}

async fn listen_within(
    addr: SocketAddr,
    pages: Arc<dyn Pages>,
    limits: Limits,
) -> io::Result<Listening> {
    let listener = TcpListener::bind(addr).await?;
    let addr = listener.local_addr()?;
    let stop = CancellationToken::new();
    let served = tokio::spawn(serve(listener, router(pages), limits, stop.clone()));
    Ok(Listening { addr, stop, served })
}

async fn serve(listener: TcpListener, app: Router, limits: Limits, stop: CancellationToken) {
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    builder.http1().timer(TokioTimer::new()).header_read_timeout(limits.header_read);
    let mut open = JoinSet::new();
    let mut refused = Refused::default();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // Takes away what is over; with none open, this branch does not count.
            Some(_) = open.join_next() => continue,
            () = stop.cancelled() => break,
        };
        // The places of those that are over count as free, even if more have come meanwhile.
        while open.try_join_next().is_some() {}
        match accepted {
            Ok((tcp, _)) if open.len() < limits.connections => {
                open.spawn(connection(builder.clone(), tcp, app.clone(), stop.clone()));
            }
            Ok(_) => refused.count(limits.connections),
            Err(error) => {
                tracing::warn!(%error, "cannot accept an http connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    let all_over = async { while open.join_next().await.is_some() {} };
    if timeout(limits.stop, all_over).await.is_err() {
        tracing::warn!(after = ?limits.stop, open = open.len(), "cutting http connections");
        open.shutdown().await;
    }
}

/// Serves one connection; once `stop` is cancelled, only the request under way.
async fn connection(
    builder: Builder<TokioExecutor>,
    tcp: TcpStream,
    app: Router,
    stop: CancellationToken,
) {
    let served = builder.serve_connection(TokioIo::new(tcp), TowerToHyperService::new(app));
    let mut served = std::pin::pin!(served);
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        () = stop.cancelled() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error, "an http connection ended badly");
    }
}

/// Connections closed because too many were open.
#[derive(Debug, Default)]
struct Refused {
    count: u64,
    told: Option<Instant>,
}

impl Refused {
    fn count(&mut self, most: usize) {
        self.count += 1;
        let now = Instant::now();
        if self.told.is_none_or(|at| now.duration_since(at) >= LOG_INTERVAL) {
            self.told = Some(now);
            let count = self.count;
            tracing::warn!(most, count, "an http connection was refused: too many are open");
        }
    }
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

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

    async fn half_request(addr: SocketAddr) -> TcpStream {
        let mut tcp = TcpStream::connect(addr).await.expect("accepted");
        tcp.write_all(b"GET /metrics HTTP/1.1\r\nHost:").await.expect("sent");
        tcp
    }

    /// Waits until the other side closes.
    async fn closed(mut tcp: TcpStream) {
        let mut rest = Vec::new();
        let read = tcp.read_to_end(&mut rest);
        // It closes in order or resets: both end it.
        let _ = timeout(Duration::from_secs(20), read).await.expect("closed in time");
    }

    fn any() -> SocketAddr {
        "127.0.0.1:0".parse().expect("an address")
    }

    #[tokio::test]
    async fn half_a_request_does_not_hold_up_the_stop() {
        let limits = Limits { header_read: Duration::from_secs(60), ..LIMITS };
        let pages = Arc::new(Fake::default());
        let listening = listen_within(any(), pages, limits).await.expect("a free port");
        let half = half_request(listening.addr).await;
        let addr = listening.addr;
        assert_eq!(fetch::get(format!("http://{addr}/metrics")).await.expect("answers").0, 200);
        let began = Instant::now();
        listening.stop().await;
        let took = began.elapsed();
        assert!(took < Duration::from_secs(3), "{took:?}");
        closed(half).await;
    }

    #[tokio::test]
    async fn half_requests_are_bounded_in_number_and_in_time() {
        let limits = Limits { connections: 2, header_read: Duration::from_millis(500), ..LIMITS };
        let pages = Arc::new(Fake::default());
        let listening = listen_within(any(), pages, limits).await.expect("a free port");
        let addr = listening.addr;
        let silent = TcpStream::connect(addr).await.expect("accepted");
        let half = half_request(addr).await;
        let refused = fetch::get(format!("http://{addr}/metrics")).await;
        assert!(refused.is_err(), "both places are taken: {refused:?}");
        closed(silent).await;
        closed(half).await;
        assert_eq!(fetch::get(format!("http://{addr}/metrics")).await.expect("answers").0, 200);
        listening.stop().await;
    }
}
