//! The tower layer in front of a service, decided by a real client.

mod fake;

use std::convert::Infallible;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use fake::{Fake, service};
use http::{Request, Response, StatusCode};
use sluicegate_client::layer::{Denied, FromHttp, RateLimitLayer};
use sluicegate_client::{Limiter, Outcome, Settings};
use sluicegate_model::{Mode, Up};
use tower::{Layer, Service, ServiceExt, service_fn};

/// A client whose service `closed` admits nothing and whose service `open` everything.
async fn limiter() -> (Fake, Limiter) {
    let closed = service("closed", "nobody", Mode::Deny, 0);
    let mut fake = Fake::start(vec![closed, service("open", "all", Mode::Deny, 1_000_000)]);
    let limiter = Limiter::start(Settings {
        tick: Duration::from_millis(50),
        ..Settings::new([fake.address.to_string()])
    })
    .expect("starts");
    fake.wait(|up| matches!(up, Up::ConfigurationApplied(_)).then_some(())).await;
    (fake, limiter)
}

fn get(path: &str) -> Request<String> {
    Request::get(path).body(String::new()).expect("a request")
}

#[tokio::test(flavor = "multi_thread")]
async fn admitted_requests_go_on_with_their_outcome() {
    let (_fake, limiter) = limiter().await;
    let inner = service_fn(|request: Request<String>| async move {
        let outcome = request.extensions().get::<Outcome>().expect("the outcome travels along");
        assert!(outcome.is_admitted());
        Ok::<_, Infallible>(Response::new("served".to_owned()))
    });
    for service in ["open", "a service without buckets"] {
        let layer = RateLimitLayer::new(limiter.clone(), FromHttp::new(service));
        let response = layer.layer(inner).oneshot(get("/")).await.expect("infallible");
        assert_eq!((response.status(), &**response.body()), (StatusCode::OK, "served"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn denied_requests_do_not_reach_the_service() {
    let (_fake, limiter) = limiter().await;
    let inner = service_fn(|_: Request<String>| async {
        panic!("the inner service must not see it");
        #[allow(unreachable_code)]
        Ok::<_, Infallible>(Response::new(String::new()))
    });
    let layer = RateLimitLayer::new(limiter, FromHttp::new("closed").caller_header("x-caller"));
    let response = layer.layer(inner).oneshot(get("/a")).await.expect("infallible");
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    let seconds = response.headers()["retry-after"].to_str().expect("text").parse::<u64>();
    assert!(seconds.expect("whole seconds") >= 1);

    let call = Request::post("/pay.v1.Pay/Charge")
        .header("content-type", "application/grpc+proto")
        .body(String::new())
        .expect("a request");
    let response = layer.layer(inner).oneshot(call).await.expect("infallible");
    assert_eq!(response.status(), StatusCode::OK, "a gRPC call fails inside of HTTP's 200");
    assert_eq!(response.headers()["grpc-status"], "8");
    assert_eq!(response.headers()["content-type"], "application/grpc");
    assert!(response.body().is_empty(), "headers alone");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_may_answer_instead() {
    let (_fake, limiter) = limiter().await;
    let inner = service_fn(|_: Request<String>| async {
        Ok::<_, Infallible>(Response::new(String::new()))
    });
    let layer =
        RateLimitLayer::new(limiter, FromHttp::new("closed")).with_denied(|denied: &Denied<'_>| {
            let host = denied.headers.get("host").and_then(|h| h.to_str().ok()).unwrap_or("?");
            let mut response = Response::new(format!("{host} has to wait"));
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            response
        });
    let request = Request::get("/").header("host", "h").body(String::new()).expect("a request");
    let response = layer.layer(inner).oneshot(request).await.expect("infallible");
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(response.body(), "h has to wait");
}

/// Ready at the third question.
struct Slow(AtomicU32);

impl Service<Request<String>> for Slow {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if self.0.fetch_add(1, Ordering::Relaxed) < 2 {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<String>) -> Self::Future {
        std::future::ready(Ok(Response::new(String::new())))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_is_the_inner_services() {
    let (_fake, limiter) = limiter().await;
    let layer = RateLimitLayer::new(limiter, FromHttp::new("open"));
    let mut limited = layer.layer(Slow(AtomicU32::new(0)));
    assert!(futures_poll(&mut limited).is_pending());
    assert!(futures_poll(&mut limited).is_pending());
    assert!(limited.ready().await.is_ok());
}

fn futures_poll<S: Service<Request<String>>>(service: &mut S) -> Poll<Result<(), S::Error>> {
    service.poll_ready(&mut Context::from_waker(std::task::Waker::noop()))
}
