//! What a denied request is answered.

use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Response, StatusCode};

use crate::layer::extract::is_grpc;
use crate::{BucketRef, Limiter};

/// The name under which gRPC carries a call's result, and that result: resource exhausted.
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const RESOURCE_EXHAUSTED: HeaderValue = HeaderValue::from_static("8");

/// A denied request.
#[derive(Debug, Clone, Copy)]
pub struct Denied<'a> {
    /// The request's headers.
    pub headers: &'a HeaderMap,
    /// The bucket that refused. [`Limiter::bucket`] knows its name.
    pub bucket: BucketRef,
    /// The limiter that decided.
    pub limiter: &'a Limiter,
    /// When to try again.
    pub retry_after: Duration,
}

impl Denied<'_> {
    /// `retry_after` as HTTP carries it: whole seconds, rounded up, at least 1.
    #[must_use]
    pub fn retry_after_s(&self) -> u64 {
        let up = u64::from(self.retry_after.subsec_nanos() > 0);
        self.retry_after.as_secs().saturating_add(up).max(1)
    }

    /// Whether the request is a gRPC call, which must be answered as one.
    #[must_use]
    pub fn is_grpc(&self) -> bool {
        is_grpc(self.headers)
    }
}

/// Makes the answer to a denied request.
pub trait MakeDenied<Res> {
    /// The answer.
    fn make(&self, denied: &Denied<'_>) -> Response<Res>;
}

/// Status 429 with `retry-after`; to a gRPC call status 8 (resource exhausted), without a body.
#[derive(Debug, Clone, Copy, Default)]
pub struct DeniedResponse;

impl<Res: Default> MakeDenied<Res> for DeniedResponse {
    fn make(&self, denied: &Denied<'_>) -> Response<Res> {
        let mut response = Response::new(Res::default());
        let headers = response.headers_mut();
        headers.insert(RETRY_AFTER, HeaderValue::from(denied.retry_after_s()));
        if denied.is_grpc() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
            headers.insert(GRPC_STATUS, RESOURCE_EXHAUSTED);
            headers.insert(GRPC_MESSAGE, HeaderValue::from_static("over the rate limit"));
        } else {
            *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        }
        response
    }
}

impl<Res, F: Fn(&Denied<'_>) -> Response<Res>> MakeDenied<Res> for F {
    fn make(&self, denied: &Denied<'_>) -> Response<Res> {
        self(denied)
    }
}
