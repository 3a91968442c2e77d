//! A tower layer: each HTTP or gRPC request is decided before the inner service sees it.
//!
//! ```no_run
//! use sluicegate_client::layer::{FromHttp, RateLimitLayer};
//! # fn routes(limiter: sluicegate_client::Limiter) {
//! let layer = RateLimitLayer::new(
//!     limiter,
//!     FromHttp::new("payments").caller_header("x-caller").dimension("workspace_id", "x-workspace"),
//! );
//! # let _ = layer;
//! # }
//! ```

mod denied;
mod extract;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower::{Layer, Service};

pub use denied::{Denied, DeniedResponse, MakeDenied};
pub use extract::{Extract, FromHttp, MAX_HTTP_DIMENSIONS};

use crate::{Decision, Limiter, Outcome};

/// Limits every request of the services it wraps.
///
/// An admitted request goes on with its [`Outcome`] in its extensions; of a denied one the inner
/// service sees nothing. Readiness is the inner service's.
#[derive(Debug, Clone)]
pub struct RateLimitLayer<E, D = DeniedResponse> {
    limiter: Limiter,
    shared: Arc<Shared<E, D>>,
}

#[derive(Debug)]
struct Shared<E, D> {
    extract: E,
    denied: D,
}

impl<E> RateLimitLayer<E> {
    /// `extract` says what of a request the limiter sees. Denied requests get a
    /// [`DeniedResponse`].
    pub fn new(limiter: Limiter, extract: E) -> Self {
        Self { limiter, shared: Arc::new(Shared { extract, denied: DeniedResponse }) }
    }

    /// Answers denied requests with what `denied` makes: a [`MakeDenied`], or a function from
    /// [`Denied`] to a response.
    pub fn with_denied<D>(self, denied: D) -> RateLimitLayer<E, D>
    where
        E: Clone,
    {
        let extract = match Arc::try_unwrap(self.shared) {
            Ok(shared) => shared.extract,
            Err(shared) => shared.extract.clone(),
        };
        RateLimitLayer { limiter: self.limiter, shared: Arc::new(Shared { extract, denied }) }
    }
}

impl<S, E, D> Layer<S> for RateLimitLayer<E, D> {
    type Service = RateLimit<S, E, D>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimit { inner, limiter: self.limiter.clone(), shared: self.shared.clone() }
    }
}

/// A service behind a [`RateLimitLayer`].
#[derive(Debug)]
pub struct RateLimit<S, E, D = DeniedResponse> {
    inner: S,
    limiter: Limiter,
    shared: Arc<Shared<E, D>>,
}

impl<S: Clone, E, D> Clone for RateLimit<S, E, D> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            limiter: self.limiter.clone(),
            shared: self.shared.clone(),
        }
    }
}

impl<S, E, D, Req, Res> Service<Request<Req>> for RateLimit<S, E, D>
where
    S: Service<Request<Req>, Response = Response<Res>>,
    E: Extract,
    D: MakeDenied<Res>,
{
    type Response = Response<Res>;
    type Error = S::Error;
    type Future = RateLimitFuture<S::Future, Res>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Req>) -> Self::Future {
        let outcome = self.shared.extract.with(&request, |r| self.limiter.decide(r));
        if outcome.is_admitted() {
            request.extensions_mut().insert::<Outcome>(outcome);
            return RateLimitFuture::inner(self.inner.call(request));
        }
        let response = match outcome.details() {
            Decision::Drop { bucket, retry_after } => self.shared.denied.make(&Denied {
                headers: request.headers(),
                bucket,
                limiter: &self.limiter,
                retry_after,
            }),
            Decision::Admit { .. } => return RateLimitFuture::inner(self.inner.call(request)),
        };
        RateLimitFuture { state: State::Denied { response: Some(response) } }
    }
}

pin_project! {
    /// The answer: the inner service's, or the one for a denied request.
    pub struct RateLimitFuture<F, Res> {
        #[pin]
        state: State<F, Res>,
    }
}

pin_project! {
    #[project = StateProject]
    enum State<F, Res> {
        Inner { #[pin] future: F },
        Denied { response: Option<Response<Res>> },
    }
}

impl<F, Res> RateLimitFuture<F, Res> {
    fn inner(future: F) -> Self {
        Self { state: State::Inner { future } }
    }
}

impl<F, Res, Error> Future for RateLimitFuture<F, Res>
where
    F: Future<Output = Result<Response<Res>, Error>>,
{
    type Output = Result<Response<Res>, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProject::Inner { future } => Poll::Ready(ready!(future.poll(context))),
            StateProject::Denied { response } => match response.take() {
                Some(response) => Poll::Ready(Ok(response)),
                // Polled again after its end, which no caller may do.
                None => Poll::Pending,
            },
        }
    }
}

impl<F, Res> std::fmt::Debug for RateLimitFuture<F, Res> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RateLimitFuture").finish_non_exhaustive()
    }
}
