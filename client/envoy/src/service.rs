//! The one call that Envoy makes. Stateless: all it knows is in the embedded client.

use std::cell::RefCell;
use std::sync::Arc;

use sluicegate_client::{Limiter, Verdict};
use tonic::{Request, Response, Status};

use crate::counters::{Counters, add};
use crate::rls::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitService;
use crate::rls::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use crate::{Settings, answer, read};

thread_local! {
    /// Room for verdicts, used again by the next call on this thread.
    static SCRATCH: RefCell<Scratch> = const { RefCell::new(Scratch::EMPTY) };
}

struct Scratch {
    hits: Vec<u32>,
    verdicts: Vec<Verdict>,
}

impl Scratch {
    const EMPTY: Self = Self { hits: Vec::new(), verdicts: Vec::new() };
}

/// The service behind a sidecar's port.
pub(crate) struct Rls {
    pub(crate) limiter: Limiter,
    pub(crate) settings: Settings,
    pub(crate) counters: Arc<Counters>,
}

#[tonic::async_trait]
impl RateLimitService for Rls {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        self.decide(request.get_ref()).map(Response::new)
    }
}

impl Rls {
    fn decide(&self, request: &RateLimitRequest) -> Result<RateLimitResponse, Status> {
        if let Err(invalid) = read::check(request, &self.settings) {
            add(&self.counters.invalid, 1);
            return Err(Status::invalid_argument(invalid.to_string()));
        }
        self.count_unsupported(request);
        SCRATCH.with_borrow_mut(|Scratch { hits, verdicts }| {
            hits.clear();
            hits.extend(request.descriptors.iter().map(|d| read::hits(d, request.hits_addend)));
            let outcome = read::views(request, &self.settings, |views| {
                self.limiter.decide_each(views, hits, verdicts)
            });
            let admitted = outcome.is_admitted();
            add(if admitted { &self.counters.ok } else { &self.counters.over_limit }, 1);
            Ok(answer::response(&self.limiter, verdicts, self.settings.headers))
        })
    }

    fn count_unsupported(&self, request: &RateLimitRequest) {
        let (mut overrides, mut refunds) = (0, 0);
        for descriptor in &request.descriptors {
            overrides += u64::from(descriptor.limit.is_some());
            refunds += u64::from(descriptor.is_negative_hits);
        }
        add(&self.counters.overrides_ignored, overrides);
        add(&self.counters.refunds_ignored, refunds);
    }
}
