//! The service as Envoy calls it: over gRPC, decided by buckets that an aggregator sent.

#[path = "../../tests/fake/mod.rs"]
mod fake;

use std::time::Duration;

use fake::{Fake, service};
use sluicegate_model::{
    Bucket, Limit, Match, Mode, Name, Pattern, Per, Rule, ServiceBuckets, TokenRate, Up,
};
use sluicegate_sidecar::rls::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use sluicegate_sidecar::rls::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
use sluicegate_sidecar::rls::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use sluicegate_sidecar::rls::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus,
};
use sluicegate_sidecar::rls::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use sluicegate_sidecar::rls::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use sluicegate_sidecar::{Running, Settings, StartError, start};
use tonic::transport::Channel;

type Client = RateLimitServiceClient<Channel>;

fn bucket(name: &str, key: &str, mode: Mode, limit: Limit) -> Bucket {
    let mut on = Match::default();
    on.dimensions.insert(Name::new(key).expect("a name"), vec![Pattern::Any]);
    let template = service("x", name, mode, 1).buckets.remove(0);
    Bucket { limit, rule: Rule { on, not: vec![] }, ..template }
}

fn rate(requests: u64, window_s: u64) -> Limit {
    let window = Duration::from_secs(window_s);
    Limit::Tokens(TokenRate::per_window(requests, window, None).expect("a rate"))
}

/// One bucket for each dimension, so that a descriptor picks what it meets.
fn shop() -> ServiceBuckets {
    let mut per = bucket("per-tenant", "tenant", Mode::Deny, rate(1_000, 1));
    per.per = Some(Per {
        dimensions: vec![Name::new("tenant").expect("a name")],
        values: [(vec!["blocked".into()], rate(0, 1))].into(),
        max_keys: 100,
        overflow: sluicegate_model::Overflow::Observe,
    });
    let mut by_caller = bucket("batch", "x", Mode::Deny, rate(0, 1));
    by_caller.rule.on = Match {
        caller: vec![Pattern::parse("batch-*")],
        procedure: vec![Pattern::parse("pay/*")],
        ..Match::default()
    };
    ServiceBuckets {
        buckets: vec![
            bucket("seconds", "s", Mode::Deny, rate(30_000, 1)),
            bucket("minutes", "m", Mode::Deny, rate(60_000_000, 60)),
            bucket("closed", "c", Mode::Deny, rate(0, 1)),
            bucket("shadow", "w", Mode::Shadow, rate(0, 1)),
            bucket("observed", "o", Mode::Observe, Limit::Unlimited),
            per,
            by_caller,
        ],
        ..service("shop", "x", Mode::Deny, 1)
    }
}

async fn sidecar(change: impl FnOnce(&mut Settings)) -> (Fake, Running, Client) {
    let mut fake = Fake::start(vec![shop()]);
    let mut settings = Settings {
        listen: "127.0.0.1:0".parse().expect("an address"),
        client: sluicegate_client::Settings {
            tick: Duration::from_millis(50),
            ..sluicegate_client::Settings::new([fake.address.to_string()])
        },
        ..Settings::default()
    };
    change(&mut settings);
    let running = start(settings).await.expect("starts");
    fake.wait(|up| matches!(up, Up::ConfigurationApplied(_)).then_some(())).await;
    let url = format!("http://{}", running.local_addr);
    let client = Client::connect(url).await.expect("listens");
    (fake, running, client)
}

fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).into(), value: (*value).into() };
    RateLimitDescriptor {
        entries: entries.iter().map(entry).collect(),
        ..RateLimitDescriptor::default()
    }
}

fn request(domain: &str, descriptors: &[&[(&str, &str)]]) -> RateLimitRequest {
    RateLimitRequest {
        domain: domain.into(),
        descriptors: descriptors.iter().map(|d| descriptor(d)).collect(),
        hits_addend: 0,
    }
}

async fn ask(client: &mut Client, request: RateLimitRequest) -> RateLimitResponse {
    client.should_rate_limit(request).await.expect("answers").into_inner()
}

/// Code, limit and its name, what remains, seconds until the reset.
type Plain<'a> = (Code, Option<(u32, Unit, &'a str)>, u32, Option<i64>);

fn plain(status: &DescriptorStatus) -> Plain<'_> {
    let limit = status.current_limit.as_ref();
    (
        status.code(),
        limit.map(|l| (l.requests_per_unit, l.unit(), &*l.name)),
        status.limit_remaining,
        status.duration_until_reset.map(|d| d.seconds),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn each_descriptor_gets_the_status_of_its_bucket() {
    let (_fake, _running, mut client) = sidecar(|_| {}).await;
    let seconds = Some((30_000, Unit::Second, "seconds"));
    let minutes = Some((60_000_000, Unit::Minute, "minutes"));
    for (entries, expected) in [
        (&[("s", "1")][..], (Code::Ok, seconds, 30_000, Some(1))),
        (&[("m", "1")], (Code::Ok, minutes, 60_000_000, Some(60))),
        (&[("w", "1")], (Code::Ok, None, 0, None)),
        (&[("o", "1")], (Code::Ok, None, 0, None)),
        (&[("unknown", "1")], (Code::Ok, None, 0, None)),
    ] {
        let response = ask(&mut client, request("shop", &[entries])).await;
        assert_eq!(response.overall_code(), Code::Ok, "{entries:?}");
        assert_eq!(plain(&response.statuses[0]), expected, "{entries:?}");
        assert!(response.response_headers_to_add.is_empty());
    }
    let unknown = ask(&mut client, request("nobody's", &[&[("s", "1")]])).await;
    assert_eq!((unknown.overall_code(), unknown.statuses.len()), (Code::Ok, 1));
    assert_eq!(plain(&unknown.statuses[0]), (Code::Ok, None, 0, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_names_its_bucket_and_says_when_to_come_back() {
    let (_fake, running, mut client) = sidecar(|_| {}).await;
    let response = ask(&mut client, request("shop", &[&[("s", "1")], &[("c", "1")]])).await;
    assert_eq!(response.overall_code(), Code::OverLimit);
    let codes: Vec<_> = response.statuses.iter().map(DescriptorStatus::code).collect();
    assert_eq!(codes, [Code::Ok, Code::OverLimit]);
    let (_, limit, remaining, reset) = plain(&response.statuses[1]);
    assert_eq!((limit, remaining), (Some((0, Unit::Second, "closed")), 0));
    assert!(reset.is_some());
    let header = |name: &str| {
        let of_name = response.response_headers_to_add.iter().filter(|h| h.key == name);
        let values: Vec<_> = of_name.map(|h| h.value.parse::<u64>().expect("a number")).collect();
        assert_eq!(values.len(), 1, "{name}");
        values[0]
    };
    assert_eq!((header("x-ratelimit-limit"), header("x-ratelimit-remaining")), (0, 0));
    assert!(header("retry-after") >= 1);
    assert_eq!(header("retry-after"), header("x-ratelimit-reset"));
    let counted: Vec<_> = running.counters().iter().filter(|(_, n)| *n > 0).collect();
    assert_eq!(counted, [("over_limit", 1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_can_be_left_to_envoy() {
    let (_fake, _running, mut client) = sidecar(|s| s.headers = false).await;
    let response = ask(&mut client, request("shop", &[&[("c", "1")]])).await;
    assert_eq!(response.overall_code(), Code::OverLimit);
    assert!(response.response_headers_to_add.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn caller_and_procedure_come_from_the_entries_that_are_named() {
    let (_fake, _running, mut client) = sidecar(|s| {
        s.caller_key = "client".into();
        s.procedure_key = "method".into();
    })
    .await;
    let batch: &[_] = &[("client", "batch-7"), ("method", "pay/all")];
    let web: &[_] = &[("client", "web"), ("method", "pay/all"), ("client", "batch-7")];
    let usual_names: &[_] = &[("caller", "batch-7"), ("procedure", "pay/all")];
    let code = |response: RateLimitResponse| response.overall_code();
    assert_eq!(code(ask(&mut client, request("shop", &[batch])).await), Code::OverLimit);
    let first_counts = ask(&mut client, request("shop", &[web])).await;
    assert_eq!(code(first_counts), Code::Ok, "of two callers the first counts");
    assert_eq!(code(ask(&mut client, request("shop", &[usual_names])).await), Code::Ok);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_has_its_own_limit() {
    let (_fake, _running, mut client) = sidecar(|_| {}).await;
    // A value is known from the agent's next look on.
    let mut blocked = Code::Ok;
    for _ in 0..400 {
        let response = ask(&mut client, request("shop", &[&[("tenant", "blocked")]])).await;
        blocked = response.overall_code();
        if blocked == Code::OverLimit {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(blocked, Code::OverLimit);
    let other = ask(&mut client, request("shop", &[&[("tenant", "other")]])).await;
    assert_eq!(other.overall_code(), Code::Ok);
}

/// What the aggregator was last told of `bucket`.
async fn reported(fake: &mut Fake, bucket: &str, matched: u64) -> sluicegate_model::Counts {
    let mut names = std::collections::HashMap::new();
    let wanted = tokio::time::timeout(Duration::from_secs(10), async {
        loop {
            let Some(Up::Report(report)) = fake.seen.recv().await else { continue };
            names.extend(report.new_keys.into_iter().map(|(id, key)| (id, key.bucket)));
            for entry in report.entries {
                if names.get(&entry.key).is_some_and(|n| n.as_str() == bucket)
                    && entry.counts.matched >= matched
                {
                    return entry.counts;
                }
            }
        }
    });
    wanted.await.expect("reported within 10 s")
}

#[tokio::test(flavor = "multi_thread")]
async fn hits_are_counted_as_asked() {
    let (mut fake, _running, mut client) = sidecar(|_| {}).await;
    for addend in [0, 1, 5] {
        let request = RateLimitRequest { hits_addend: addend, ..request("shop", &[&[("s", "1")]]) };
        assert_eq!(ask(&mut client, request).await.overall_code(), Code::Ok);
    }
    let own = |hits| RateLimitDescriptor { hits_addend: Some(hits), ..descriptor(&[("s", "1")]) };
    for hits in [0, 10] {
        let mut asked = request("shop", &[]);
        asked.descriptors = vec![own(hits)];
        asked.hits_addend = 100;
        assert_eq!(ask(&mut client, asked).await.overall_code(), Code::Ok);
    }
    // 0 is 1, 1, 5; a descriptor's own 0 is none, and 10.
    let counts = reported(&mut fake, "seconds", 17).await;
    assert_eq!((counts.matched, counts.offered, counts.admitted), (17, 17, 17));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_asks_beside_one_that_charges_stays_uncharged() {
    let (mut fake, _running, mut client) = sidecar(|_| {}).await;
    let own = |key, hits| RateLimitDescriptor { hits_addend: hits, ..descriptor(&[(key, "1")]) };
    let mut asked = request("shop", &[]);
    asked.descriptors = vec![own("m", Some(0)), own("s", None)];
    let response = ask(&mut client, asked.clone()).await;
    let names: Vec<_> = response.statuses.iter().map(|s| plain(s).1.expect("limited").2).collect();
    assert_eq!((response.overall_code(), names), (Code::Ok, vec!["minutes", "seconds"]));
    // Refused by the one that only asks.
    asked.descriptors[0] = own("c", Some(0));
    let response = ask(&mut client, asked).await;
    let codes: Vec<_> = response.statuses.iter().map(DescriptorStatus::code).collect();
    assert_eq!(response.overall_code(), Code::OverLimit);
    assert_eq!(codes, [Code::OverLimit, Code::Ok]);
    let last = RateLimitRequest { hits_addend: 2, ..request("shop", &[&[("s", "1")]]) };
    ask(&mut client, last).await;
    let mut names = std::collections::HashMap::new();
    let mut counts = std::collections::HashMap::new();
    while counts.get("seconds") != Some(&3) {
        let report = fake.wait(|up| if let Up::Report(r) = up { Some(r) } else { None }).await;
        names.extend(report.new_keys.into_iter().map(|(id, key)| (id, key.bucket.to_string())));
        for entry in report.entries {
            counts.insert(names[&entry.key].clone(), entry.counts.admitted);
        }
    }
    assert_eq!(counts.get("minutes").copied().unwrap_or(0), 0, "asked, not charged");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_request_charges_no_other_bucket() {
    let (mut fake, _running, mut client) = sidecar(|_| {}).await;
    for _ in 0..20 {
        let response = ask(&mut client, request("shop", &[&[("s", "1")], &[("c", "1")]])).await;
        assert_eq!(response.overall_code(), Code::OverLimit);
    }
    let counts = reported(&mut fake, "seconds", 20).await;
    assert_eq!((counts.matched, counts.offered, counts.admitted), (20, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_supported_is_counted_and_harmless() {
    let (_fake, running, mut client) = sidecar(|_| {}).await;
    let limit = Some(RateLimitOverride { requests_per_unit: 1_000_000, unit: 1 });
    let mut asked = request("shop", &[&[("c", "1")], &[("s", "1")]]);
    asked.descriptors[0].limit = limit;
    asked.descriptors[1].is_negative_hits = true;
    let response = ask(&mut client, asked).await;
    assert_eq!(response.overall_code(), Code::OverLimit, "the configured limit holds");
    let counted: Vec<_> = running.counters().iter().filter(|(_, n)| *n > 0).collect();
    assert_eq!(counted, [("over_limit", 1), ("overrides_ignored", 1), ("refunds_ignored", 1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_requests_are_refused_with_their_reason() {
    let (_fake, running, mut client) = sidecar(|_| {}).await;
    let long = "x".repeat(9000);
    let many = vec![&[("s", "1")][..]; 65];
    let bad = [
        (request("", &[&[("s", "1")]]), "domain is empty"),
        (request("shop", &[]), "there are no descriptors"),
        (request("shop", &[&[]]), "descriptors[0] has no entries"),
        (request("shop", &[&[("", "1")]]), "empty key"),
        (request("shop", &[&[("s", &long)]]), "descriptors[0].entries[0].value is 9000 bytes long"),
        (request("shop", &many), "there are 65 descriptors, the most is 64"),
    ];
    let count = bad.len() as u64;
    for (asked, message) in bad {
        let status = client.should_rate_limit(asked).await.expect_err(message);
        assert_eq!(status.code(), tonic::Code::InvalidArgument, "{message}");
        assert!(status.message().contains(message), "{}", status.message());
    }
    assert_eq!(running.counters().iter().find(|(n, _)| *n == "invalid"), Some(("invalid", count)));

    let huge = "x".repeat(300 * 1024);
    let status = client.should_rate_limit(request("shop", &[&[("s", &huge)]])).await;
    assert_eq!(status.expect_err("too large").code(), tonic::Code::OutOfRange);
    let fine = ask(&mut client, request("shop", &[&[("s", "1")]])).await;
    assert_eq!(fine.overall_code(), Code::Ok, "the connection goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_says_that_it_is_healthy_until_it_ends() {
    let (mut fake, running, mut client) =
        sidecar(|s| s.client.tick = Duration::from_secs(60)).await;
    let channel = Channel::from_shared(format!("http://{}", running.local_addr)).expect("a URL");
    let channel = channel.connect().await.expect("listens");
    let mut health = tonic_health::pb::health_client::HealthClient::new(channel);
    let asked = tonic_health::pb::HealthCheckRequest {
        service: "envoy.service.ratelimit.v3.RateLimitService".into(),
    };
    let answer = health.check(asked).await.expect("answers").into_inner();
    assert_eq!(answer.status(), tonic_health::pb::health_check_response::ServingStatus::Serving);
    ask(&mut client, request("shop", &[&[("s", "1")]])).await;
    let ended = tokio::time::timeout(Duration::from_secs(5), running.shutdown()).await;
    assert!(ended.is_ok(), "ends within 5 s");
    assert_eq!(reported(&mut fake, "seconds", 1).await.admitted, 1, "the last report is sent");
    assert!(client.should_rate_limit(request("shop", &[&[("s", "1")]])).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn it_shows_what_it_counts() {
    let (_fake, running, mut client) = sidecar(|_| {}).await;
    ask(&mut client, request("shop", &[&[("s", "1")]])).await;
    ask(&mut client, request("shop", &[&[("c", "1")]])).await;
    let registry = prometheus::Registry::new();
    registry.register(Box::new(running.collector().expect("a collector"))).expect("registered");
    let mut shown = Vec::new();
    for family in registry.gather() {
        for metric in family.get_metric() {
            let labels = metric.get_label().iter().map(|l| format!("{}={}", l.name(), l.value()));
            let value = metric.get_counter().get_value() + metric.get_gauge().get_value();
            shown.push(format!(
                "{} {} {value}",
                family.name(),
                labels.collect::<Vec<_>>().join(",")
            ));
        }
    }
    for line in [
        "sluicegate_client_connected region=default,zone=default 1",
        "sluicegate_client_configuration_version region=default,zone=default 1",
        "sluicegate_client_service_requests_total outcome=attempts,region=default,service=shop,zone=default 2",
        "sluicegate_client_service_requests_total outcome=admitted,region=default,service=shop,zone=default 1",
        "sluicegate_client_bucket_requests_total bucket=closed,count=offered,region=default,service=shop,zone=default 1",
        "sluicegate_client_key_drop_ratio bucket=closed,key=,region=default,service=shop,zone=default 1",
        "sluicegate_client_key_limit_rps bucket=seconds,key=,region=default,service=shop,zone=default 30000",
        "sluicegate_client_stream_events_total event=malformed,region=default,zone=default 0",
        "sluicegate_sidecar_requests_total region=default,result=over_limit,zone=default 1",
    ] {
        assert!(shown.iter().any(|s| s == line), "{line} is not in\n{}", shown.join("\n"));
    }
}

#[tokio::test]
async fn settings_that_cannot_work_are_named() {
    let base = || Settings {
        client: sluicegate_client::Settings::new(["http://127.0.0.1:9"]),
        listen: "127.0.0.1:0".parse().expect("an address"),
        ..Settings::default()
    };
    let same = Settings { caller_key: "k".into(), procedure_key: "k".into(), ..base() };
    assert!(matches!(start(same).await, Err(StartError::Keys { .. })));
    let mut zero = base();
    zero.limits.entries = 0;
    let message = start(zero).await.expect_err("refused").to_string();
    assert!(message.contains("limits.entries"), "{message}");
    let nobody = Settings { client: sluicegate_client::Settings::default(), ..base() };
    let message = start(nobody).await.expect_err("refused").to_string();
    assert!(message.contains("aggregators: none is given"), "{message}");
    let holder = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = Settings { listen: holder.local_addr().expect("bound"), ..base() };
    assert!(matches!(start(taken).await, Err(StartError::Bind { .. })), "the port is in use");
}
