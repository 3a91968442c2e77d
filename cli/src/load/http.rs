//! A load on an HTTP server. Open loop: a slow answer delays no other request, and latency counts
//! from when a request was due, so that waiting of our own making is not hidden.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use http::{HeaderMap, HeaderName, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::plan::Plan;
use super::progress::Progress;
use super::schedule::Arrival;
use super::stats::{Fate, Stats, Took};
use crate::clock;

/// The largest answer that is read; a longer one is an error.
const MAX_ANSWER_BYTES: usize = 16 << 20;
/// After so many requests without a pause, others get their turn.
const BATCH: u32 = 32;

/// What is called, and how.
#[derive(Debug, Clone)]
pub(crate) struct HttpTarget {
    pub(crate) url: Uri,
    pub(crate) headers: HeaderMap,
    /// The header that carries a request's caller.
    pub(crate) caller_header: Option<HeaderName>,
    /// The header that carries a request's procedure.
    pub(crate) procedure_header: Option<HeaderName>,
    pub(crate) timeout: Duration,
    pub(crate) max_in_flight: u32,
}

/// Who calls and what, as header values, in the places that arrivals name.
#[derive(Debug)]
pub(crate) struct Names {
    pub(crate) callers: Vec<http::HeaderValue>,
    pub(crate) procedures: Vec<http::HeaderValue>,
}

type Sender = Client<HttpConnector, Empty<bytes::Bytes>>;

/// Sends the load; returns what it met.
pub(crate) async fn drive(
    target: &HttpTarget,
    names: &Names,
    plan: Plan,
    length: Option<Duration>,
    stop: &CancellationToken,
) -> anyhow::Result<(Stats, Took)> {
    let sender = sender(target);
    let stats = Arc::new(Mutex::new(Stats::new(names.callers.len())?));
    let room = Arc::new(Semaphore::new(target.max_in_flight as usize));
    let mut progress = Progress::new(length);
    let start = clock::now();
    let mut last = Duration::ZERO;
    let mut since_pause = 0;
    for (arrival, _) in plan {
        since_pause += 1;
        while start.elapsed() < arrival.due && !stop.is_cancelled() {
            let wait = (start + arrival.due).min(clock::now() + Duration::from_millis(200));
            tokio::select! {
                () = tokio::time::sleep_until(wait.into()) => {}
                () = stop.cancelled() => {}
            }
            since_pause = 0;
            progress.show(start.elapsed(), &lock(&stats).total);
        }
        if stop.is_cancelled() {
            break;
        }
        if since_pause >= BATCH {
            since_pause = 0;
            progress.show(start.elapsed(), &lock(&stats).total);
            tokio::task::yield_now().await;
        }
        last = arrival.due;
        let Ok(place) = Arc::clone(&room).try_acquire_owned() else {
            lock(&stats).ended(arrival.due, arrival.caller, Fate::NotSent, Duration::ZERO);
            continue;
        };
        lock(&stats).began(start.elapsed().saturating_sub(arrival.due));
        let request = request(target, names, &arrival)?;
        let (sender, stats, timeout) = (sender.clone(), Arc::clone(&stats), target.timeout);
        tokio::spawn(async move {
            let fate = send(&sender, request, timeout).await;
            let latency = start.elapsed().saturating_sub(arrival.due);
            let mut stats = lock(&stats);
            if let Err(kind) = &fate {
                stats.error(kind);
            }
            stats.ended(arrival.due, arrival.caller, fate.unwrap_or(Fate::Failed), latency);
            drop(place);
        });
    }
    let interrupted = stop.is_cancelled();
    if let (Some(length), false) = (length, interrupted) {
        last = length;
        tokio::select! {
            () = tokio::time::sleep_until((start + length).into()) => {}
            () = stop.cancelled() => {}
        }
    }
    let ran = start.elapsed();
    // Every request ends within its time-out; then all places are free.
    let _all = room.acquire_many(target.max_in_flight).await.context("waiting for answers")?;
    progress.end();
    let empty = Stats::new(0)?;
    let stats = std::mem::replace(&mut *lock(&stats), empty);
    let scheduled = if interrupted { ran } else { last };
    Ok((stats, Took { ran: ran.max(last), scheduled, interrupted }))
}

fn sender(target: &HttpTarget) -> Sender {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(target.timeout));
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_max_idle_per_host(target.max_in_flight as usize)
        .build(connector)
}

fn request(
    target: &HttpTarget,
    names: &Names,
    arrival: &Arrival,
) -> anyhow::Result<Request<Empty<bytes::Bytes>>> {
    let mut request = Request::get(target.url.clone()).body(Empty::new())?;
    *request.headers_mut() = target.headers.clone();
    for (header, values, place) in [
        (&target.caller_header, &names.callers, arrival.caller),
        (&target.procedure_header, &names.procedures, arrival.procedure),
    ] {
        if let (Some(header), Some(value)) = (header, values.get(place as usize)) {
            request.headers_mut().insert(header.clone(), value.clone());
        }
    }
    Ok(request)
}

async fn send(
    sender: &Sender,
    request: Request<Empty<bytes::Bytes>>,
    timeout: Duration,
) -> Result<Fate, String> {
    let exchange = async {
        let response = sender.request(request).await.map_err(|e| {
            if e.is_connect() { "no connection".to_owned() } else { "broken answer".to_owned() }
        })?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await;
        body.map_err(|_| "broken answer".to_owned())?;
        Ok(status)
    };
    match tokio::time::timeout(timeout, exchange).await {
        Err(_) => Err("timeout".to_owned()),
        Ok(Err(kind)) => Err(kind),
        Ok(Ok(StatusCode::TOO_MANY_REQUESTS)) => Ok(Fate::Dropped),
        Ok(Ok(status)) if status.is_success() => Ok(Fate::Admitted),
        Ok(Ok(status)) => Err(status.as_u16().to_string()),
    }
}

fn lock(stats: &Mutex<Stats>) -> MutexGuard<'_, Stats> {
    stats.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::super::hash::Weighted;
    use super::super::plan::Part;
    use super::super::schedule::{Source, Stepped, Steps};
    use super::*;
    use axum::Router;
    use axum::extract::State;
    use axum::routing::get;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn plan(steps: &str) -> (Plan, Duration) {
        let steps = steps.parse::<Steps>().expect("steps").0;
        let length = steps.iter().map(|s| s.length).sum();
        let callers = Weighted::new(&[1.0, 1.0]).expect("usable");
        let source = Source::Stepped(Stepped::new(steps, callers, 1));
        let clients = Weighted::zipf(1, 0.0).expect("usable");
        (Plan::new(source, clients, 1, Part::WHOLE, None), length)
    }

    async fn server(app: Router) -> Uri {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let addr = listener.local_addr().expect("bound");
        tokio::spawn(async move { axum::serve(listener, app).await });
        format!("http://{addr}/").parse().expect("an address")
    }

    fn target(url: Uri) -> HttpTarget {
        HttpTarget {
            url,
            headers: HeaderMap::new(),
            caller_header: Some(HeaderName::from_static("x-caller")),
            procedure_header: None,
            timeout: Duration::from_secs(1),
            max_in_flight: 8,
        }
    }

    fn names() -> Names {
        let value = http::HeaderValue::from_static;
        Names { callers: vec![value("good"), value("bad")], procedures: vec![] }
    }

    #[tokio::test]
    async fn answers_are_counted_by_what_they_mean() {
        async fn answer(State(n): State<Arc<AtomicU64>>, headers: HeaderMap) -> StatusCode {
            if headers["x-caller"] == "good" {
                return StatusCode::NO_CONTENT;
            }
            match n.fetch_add(1, Ordering::Relaxed) % 2 {
                0 => StatusCode::TOO_MANY_REQUESTS,
                _ => StatusCode::SERVICE_UNAVAILABLE,
            }
        }
        let app = Router::new().route("/", get(answer)).with_state(Arc::default());
        let target = target(server(app).await);
        let (plan, length) = plan("200:500ms");
        let stop = CancellationToken::new();
        let (stats, took) =
            drive(&target, &names(), plan, Some(length), &stop).await.expect("it ran");
        assert_eq!(stats.total.offered + stats.total.not_sent, 100);
        assert_eq!(stats.callers[0].admitted, stats.callers[0].offered);
        assert_eq!(stats.callers[1].admitted, 0);
        assert!(stats.callers[1].dropped.abs_diff(stats.callers[1].errors) <= 1);
        let report = stats.report(took, &["good".to_owned(), "bad".to_owned()]);
        assert_eq!(report.errors_by.get("503"), Some(&stats.total.errors));
        assert!(took.ran >= length);
    }

    #[tokio::test]
    async fn a_stuck_server_meets_the_bound_and_the_time_out() {
        async fn never() {
            std::future::pending::<()>().await;
        }
        let app = Router::new().route("/", get(never));
        let mut target = target(server(app).await);
        target.timeout = Duration::from_millis(300);
        let (plan, length) = plan("100:250ms");
        let begun = clock::now();
        let (stats, _) = drive(&target, &names(), plan, Some(length), &CancellationToken::new())
            .await
            .expect("it ran");
        assert_eq!(stats.total.errors, 8, "as many as may be under way time out");
        assert_eq!(stats.total.not_sent, 17, "the rest is told apart");
        assert!(begun.elapsed() < Duration::from_secs(5));
    }

    #[tokio::test]
    async fn nobody_listening_is_an_error_and_stopping_is_heeded() {
        let target = target("http://127.0.0.1:1/".parse().expect("an address"));
        let (plan, length) = plan("100:100ms,0:1h");
        let stop = CancellationToken::new();
        let stopper = stop.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(400)).await;
            stopper.cancel();
        });
        let (stats, _) = drive(&target, &names(), plan, Some(length), &stop).await.expect("it ran");
        assert!(stats.total.errors > 0);
        assert_eq!(stats.total.admitted, 0);
    }
}
