//! Field numbers and types, against bytes that code generated from Envoy's full public definition
//! has written.

use prost::Message;
use sluicegate_sidecar::rls::envoy::config::core::v3::HeaderValue;
use sluicegate_sidecar::rls::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use sluicegate_sidecar::rls::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
use sluicegate_sidecar::rls::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use sluicegate_sidecar::rls::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, RateLimit,
};
use sluicegate_sidecar::rls::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use sluicegate_sidecar::rls::envoy::r#type::v3::RateLimitUnit;

const REQUEST: &[u8] =
    b"\x0a\x04shop\x12\x14\x0a\x06\x0a\x01k\x12\x01v\x12\x04\x08\x09\x10\x02\x1a\x02\x08\x04\x20\x01\x18\x05";

const RESPONSE: &[u8] = b"\x08\x02\x12\x14\x08\x02\x12\x08\x08\xac\x02\x10\x07\x1a\x01b\x18\x06\
    \x22\x04\x08\x01\x10\x05\x1a\x09\x0a\x01a\x12\x01b\x1a\x01c\x22\x03\x0a\x01d\x2a\x02no\x32\x00";

#[test]
fn a_request_is_read_as_envoy_writes_it() {
    let expected = RateLimitRequest {
        domain: "shop".into(),
        descriptors: vec![RateLimitDescriptor {
            entries: vec![Entry { key: "k".into(), value: "v".into() }],
            limit: Some(RateLimitOverride {
                requests_per_unit: 9,
                unit: RateLimitUnit::Minute.into(),
            }),
            hits_addend: Some(4),
            is_negative_hits: true,
        }],
        hits_addend: 5,
    };
    assert_eq!(RateLimitRequest::decode(REQUEST).expect("decodes"), expected);
    assert_eq!(expected.encode_to_vec(), REQUEST);
}

#[test]
fn a_response_is_written_as_envoy_reads_it() {
    let response = RateLimitResponse {
        overall_code: Code::OverLimit.into(),
        statuses: vec![DescriptorStatus {
            code: Code::OverLimit.into(),
            current_limit: Some(RateLimit {
                name: "b".into(),
                requests_per_unit: 300,
                unit: Unit::Week.into(),
            }),
            limit_remaining: 6,
            duration_until_reset: Some(prost_types::Duration { seconds: 1, nanos: 5 }),
        }],
        response_headers_to_add: vec![HeaderValue {
            key: "a".into(),
            value: "b".into(),
            raw_value: b"c".as_slice().into(),
        }],
        request_headers_to_add: vec![HeaderValue { key: "d".into(), ..HeaderValue::default() }],
        raw_body: b"no".as_slice().into(),
        dynamic_metadata: Some(prost_types::Struct::default()),
    };
    assert_eq!(response.encode_to_vec(), RESPONSE);
    assert_eq!(RateLimitResponse::decode(RESPONSE).expect("decodes"), response);
}

#[test]
fn fields_of_a_newer_envoy_are_skipped() {
    let mut newer = REQUEST.to_vec();
    newer.extend_from_slice(b"\xa2\x06\x03new");
    assert_eq!(RateLimitRequest::decode(&*newer), RateLimitRequest::decode(REQUEST));
}

proptest::proptest! {
    #[test]
    fn bytes_of_any_kind_do_no_harm(
        noise in proptest::collection::vec(proptest::num::u8::ANY, 0..200),
        at in 0..REQUEST.len(),
        byte in proptest::num::u8::ANY,
    ) {
        let _ = RateLimitRequest::decode(&*noise);
        let mut mutated = REQUEST.to_vec();
        mutated[at] = byte;
        let _ = RateLimitRequest::decode(&*mutated);
    }
}
