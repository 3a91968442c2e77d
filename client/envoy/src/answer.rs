//! From the client's verdicts to Envoy's response.

use sluicegate_client::{Limiter, Verdict};
use sluicegate_model::{AdmitRatio, Limit};

use crate::limit::{PerUnit, whole_seconds};
use crate::rls::envoy::config::core::v3::HeaderValue;
use crate::rls::envoy::service::ratelimit::v3::RateLimitResponse;
use crate::rls::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, RateLimit,
};

/// The response for `verdicts`, one a descriptor. `headers`: whether a refusal carries them.
pub(crate) fn response(
    limiter: &Limiter,
    verdicts: &[Verdict],
    headers: bool,
) -> RateLimitResponse {
    let refused = verdicts.iter().position(|v| !v.admitted);
    let statuses: Vec<_> = verdicts.iter().map(|v| status(limiter, v)).collect();
    let response_headers_to_add = match refused {
        Some(at) if headers => refusal_headers(&verdicts[at], &statuses[at]),
        Some(_) | None => Vec::new(),
    };
    let overall = if refused.is_some() { Code::OverLimit } else { Code::Ok };
    RateLimitResponse {
        overall_code: overall.into(),
        statuses,
        response_headers_to_add,
        ..RateLimitResponse::default()
    }
}

fn status(limiter: &Limiter, verdict: &Verdict) -> DescriptorStatus {
    let code = if verdict.admitted { Code::Ok } else { Code::OverLimit };
    let (Some(bucket), Limit::Tokens(rate)) = (verdict.bucket, verdict.limit) else {
        return DescriptorStatus { code: code.into(), ..DescriptorStatus::default() };
    };
    let per = PerUnit::of(&rate);
    // Nobody in the fleet counts down one shared number. What is known here: while everything is
    // admitted there is room, at most the limit; while only a share is, all of it is in use.
    let room = verdict.admitted && verdict.admit == AdmitRatio::ALL;
    let reset = if verdict.admitted { rate.window() } else { verdict.retry_after };
    DescriptorStatus {
        code: code.into(),
        current_limit: Some(RateLimit {
            name: limiter.bucket(bucket).map_or_else(String::new, |b| b.bucket.as_str().into()),
            requests_per_unit: per.requests,
            unit: per.unit.into(),
        }),
        limit_remaining: if room { per.requests } else { 0 },
        duration_until_reset: prost_types::Duration::try_from(reset).ok(),
    }
}

fn refusal_headers(verdict: &Verdict, status: &DescriptorStatus) -> Vec<HeaderValue> {
    let header = |key: &str, value: u64| HeaderValue {
        key: key.into(),
        value: value.to_string(),
        ..HeaderValue::default()
    };
    let seconds = whole_seconds(verdict.retry_after);
    let mut headers = vec![header("retry-after", seconds), header("x-ratelimit-reset", seconds)];
    if let Some(limit) = &status.current_limit {
        headers.push(header("x-ratelimit-limit", limit.requests_per_unit.into()));
        headers.push(header("x-ratelimit-remaining", status.limit_remaining.into()));
    }
    headers
}
