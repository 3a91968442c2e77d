//! Random and exemplary messages.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use sluicegate_model::*;

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

pub(crate) fn any_name() -> impl Strategy<Value = Name> {
    "[a-zäß0-9./_-]{1,12}".prop_map(|t| name(&t))
}

fn any_rps() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), 0.0..1e12, Just(f64::MIN_POSITIVE)]
}

pub(crate) fn any_up() -> impl Strategy<Value = Up> {
    let number = 0..=1_u64 << 48;
    prop_oneof![
        any_hello().prop_map(Up::Hello),
        any_report().prop_map(Up::Report),
        number.clone().prop_map(Up::ConfigurationApplied),
        (number.clone(), number).prop_map(|(term, version)| Up::Seen { term, version }),
    ]
}

fn any_hello() -> impl Strategy<Value = Hello> {
    let role = prop_oneof![Just(Role::Client), Just(Role::Aggregator)];
    let identity = (role, any_name(), any::<u64>(), any_name(), any_name(), any::<u32>());
    let seen = 0..=1_u64 << 48;
    (identity, btree_set(any_name(), 0..4), seen.clone(), seen).prop_map(
        |((role, node, session, zone, region, protocol), services, seen_term, seen_version)| {
            let services = services.into_iter().collect();
            Hello { role, node, session, zone, region, protocol, services, seen_term, seen_version }
        },
    )
}

fn any_report() -> impl Strategy<Value = Report> {
    let rates = (any_rps(), any_rps(), any_rps(), any_rps());
    let entries = btree_map(any::<u32>(), (any_counts(), rates, 0..4_u32), 0..20);
    let services = btree_map(any_name(), any::<[u64; 4]>(), 0..4);
    (
        1..=u64::MAX,
        1..=u64::MAX,
        btree_map(any::<u32>(), any_key(), 0..6),
        btree_set(any::<u32>(), 0..6),
        entries,
        services,
    )
        .prop_map(|(seq, interval, new_keys, retired, entries, services)| Report {
            seq,
            interval: Duration::from_nanos(interval),
            new_keys: new_keys.into_iter().collect(),
            retired_keys: retired.into_iter().collect(),
            entries: entries
                .into_iter()
                .map(|(key, (counts, (offered_rps, usual_rps, requests, rps), sessions))| Entry {
                    key,
                    counts,
                    offered_rps,
                    usual_rps,
                    flight: Flight { requests, rps },
                    sessions,
                })
                .collect(),
            services: services
                .into_iter()
                .map(|(service, [attempts, admitted, dropped_by_one, dropped_by_several])| {
                    ServiceCounts {
                        service,
                        attempts,
                        admitted,
                        dropped_by_one,
                        dropped_by_several,
                    }
                })
                .collect(),
        })
}

fn any_counts() -> impl Strategy<Value = Counts> {
    (any::<[u64; 3]>(), prop_oneof![Just(0), any::<u64>()]).prop_map(
        |([matched, offered, admitted], would_drop)| Counts {
            matched,
            offered,
            admitted,
            would_drop,
        },
    )
}

fn any_key() -> impl Strategy<Value = KeyName> {
    let values = prop_oneof![
        Just(KeyValues::Whole),
        Just(KeyValues::Overflow),
        vec(".{0,8}", 1..=Per::MAX_DIMENSIONS)
            .prop_map(|v| KeyValues::Each(v.into_iter().map(String::into_boxed_str).collect())),
    ];
    (any_name(), any_name(), values).prop_map(|(service, bucket, values)| KeyName {
        service,
        bucket,
        values,
    })
}

pub(crate) fn any_down() -> impl Strategy<Value = Down> {
    prop_oneof![
        any_configuration().prop_map(Down::Configuration),
        (any::<u64>(), btree_map(any::<u32>(), any_directive(), 0..10)).prop_map(
            |(ack_seq, directives)| {
                Down::Update(Update { ack_seq, directives: directives.into_iter().collect() })
            }
        ),
    ]
}

fn any_directive() -> impl Strategy<Value = Directive> {
    let limit = prop_oneof![any_rps(), Just(f64::INFINITY)];
    let grant =
        (any_rps(), 0.0..=1.0).prop_map(|(rps, share)| Grant { rps, base_rps: rps * share });
    (
        any::<u32>(),
        0.0..1e6_f32,
        0.0..1e6_f32,
        limit,
        any::<u32>(),
        0..=1_u64 << 49,
        any::<u64>(),
        0..=3_600_000_u64,
        option::of(grant),
    )
        .prop_map(|(admit, headroom, sigma, limit_rps, sessions, term, seq, ttl_ms, grant)| {
            Directive {
                admit: AdmitRatio::from_bits(admit),
                headroom,
                sigma,
                limit_rps,
                grant,
                sessions,
                term,
                seq,
                ttl: Duration::from_millis(ttl_ms),
            }
        })
}

fn any_configuration() -> impl Strategy<Value = Configuration> {
    let number = 0..=1_u64 << 49;
    let services = btree_map(any_name(), option::of(any_service()), 0..4);
    let law = prop_oneof![Just(Law::Ratio), Just(Law::Grant)];
    (number.clone(), number, any::<bool>(), law, services).prop_map(
        |(version, term, full, law, services)| {
            let (mut present, mut removed) = (vec![], vec![]);
            for (service, content) in services {
                match content {
                    Some(content) => present.push(Arc::new(ServiceBuckets { service, ..content })),
                    None if !full => removed.push(service),
                    None => {}
                }
            }
            Configuration { version, term, full, law, services: present, removed }
        },
    )
}

pub(crate) fn any_service() -> impl Strategy<Value = ServiceBuckets> {
    let text = || option::of(".{0,10}");
    let owner = (text(), text(), text()).prop_map(|(owner, contact, runbook)| Owner {
        owner,
        contact,
        runbook,
    });
    let select = prop_oneof![Just(Select::All), Just(Select::MostSpecific)];
    (any_name(), owner, select, btree_map(any_name(), any_bucket(), 0..4)).prop_map(
        |(service, owner, select, buckets)| ServiceBuckets {
            service,
            owner,
            select,
            buckets: buckets.into_iter().map(|(name, b)| Bucket { name, ..b }).collect(),
        },
    )
}

fn any_bucket() -> impl Strategy<Value = Bucket> {
    let scope = prop_oneof![Just(Scope::Zone), Just(Scope::Region), Just(Scope::Global)];
    let mode = prop_oneof![Just(Mode::Deny), Just(Mode::Shadow), Just(Mode::Observe)];
    let loss = prop_oneof![
        Just(OnControlLoss::Open),
        Just(OnControlLoss::Last),
        Just(OnControlLoss::Share),
        Just(OnControlLoss::Closed),
    ];
    let rule = (any_match(), vec(any_match(), 0..3)).prop_map(|(on, not)| Rule { on, not });
    let enforcement = (any::<bool>(), any_share(), any_share());
    (any_name(), scope, rule, any_limit(), mode, any_per(), loss, enforcement).prop_map(
        |(name, scope, rule, limit, mode, per, on_control_loss, (guard, enforce, max_drop))| {
            let limit = if mode == Mode::Observe { Limit::Unlimited } else { limit };
            let (per, sharing) = per.unzip();
            Bucket {
                name,
                scope,
                rule,
                limit,
                mode,
                per,
                on_control_loss,
                guard,
                enforce,
                max_drop,
                sharing: sharing.flatten(),
            }
        },
    )
}

fn any_share() -> impl Strategy<Value = f64> {
    prop_oneof![Just(1.0), f64::MIN_POSITIVE..1.0]
}

fn any_sharing() -> impl Strategy<Value = Sharing> {
    let order = btree_set(".{0,6}".prop_map(String::into_boxed_str), 2..=Classes::MAX);
    let order = order.prop_map(|classes| classes.into_iter().collect::<Vec<_>>()).prop_shuffle();
    let classes = (order, any::<prop::sample::Index>())
        .prop_map(|(order, at)| Classes { default: at.index(order.len()), order });
    prop_oneof![Just(Sharing::Fair), classes.prop_map(Sharing::Priority)]
}

fn any_match() -> impl Strategy<Value = Match> {
    let dimensions = btree_map(any_name(), any_patterns(), 0..3);
    (any_patterns(), any_patterns(), dimensions).prop_map(|(caller, procedure, dimensions)| Match {
        caller,
        procedure,
        dimensions,
    })
}

fn any_patterns() -> impl Strategy<Value = Patterns> {
    vec(
        prop_oneof![
            Just(Pattern::Any),
            ".{0,8}".prop_map(|t| Pattern::Exact(t.into())),
            ".{1,8}".prop_map(|t| Pattern::Prefix(t.into())),
        ],
        0..3,
    )
}

fn any_limit() -> impl Strategy<Value = Limit> {
    let burst = || option::of(1..1_000_000_000_u64);
    prop_oneof![
        Just(Limit::Unlimited),
        (0..1_000_000_000_u64, burst())
            .prop_map(|(n, b)| Limit::Tokens(TokenRate::per_second(n, b).expect("in bounds"))),
        (0..1_000_000_u64, 1_000_000..2_678_400_000_000_000_u64, burst()).prop_map(|(n, w, b)| {
            let window = Duration::from_nanos(w);
            Limit::Tokens(TokenRate::per_window(n, window, b).expect("in bounds"))
        }),
    ]
}

/// `per`, and how the values of its last dimension share a limit, if they do.
fn any_per() -> impl Strategy<Value = Option<(Per, Option<Sharing>)>> {
    let overflow = prop_oneof![Just(Overflow::Observe), any_limit().prop_map(Overflow::Limit)];
    let dimensions = btree_set(any_name(), 1..=Per::MAX_DIMENSIONS);
    let some = (dimensions, 1..=Per::MAX_MAX_KEYS, overflow, option::of(any_sharing()));
    let some = some.prop_flat_map(|(dimensions, max_keys, overflow, sharing)| {
        let named = dimensions.len() - usize::from(sharing.is_some());
        let combination = vec(".{0,6}".prop_map(String::into_boxed_str), named);
        let most = if named == 0 { 0 } else { 3 };
        btree_map(combination, any_limit(), 0..=most).prop_map(move |values| {
            let dimensions = dimensions.iter().cloned().collect();
            (Per { dimensions, values, max_keys, overflow }, sharing.clone())
        })
    });
    option::of(some)
}

/// Messages by name.
pub(crate) type Examples<T> = Vec<(&'static str, T)>;

/// One example of each message, which together use every field.
pub(crate) fn examples() -> (Examples<Up>, Examples<Down>) {
    let hello = Hello {
        role: Role::Aggregator,
        node: name("agg-1"),
        session: 0x0123_4567_89ab_cdef,
        zone: name("zone-a"),
        region: name("north"),
        protocol: 1,
        services: vec![name("payments"), name("search")],
        seen_term: 3,
        seen_version: 400,
    };
    let key = |values| KeyName { service: name("payments"), bucket: name("web"), values };
    let entry = |key, would_drop, sessions| Entry {
        key,
        counts: Counts { matched: 300, offered: 200, admitted: 100, would_drop },
        offered_rps: 12.5,
        usual_rps: 0.0,
        flight: Flight::default(),
        sessions,
    };
    let report = Report {
        seq: 5,
        interval: Duration::from_millis(1000),
        new_keys: vec![
            (0, key(KeyValues::Whole)),
            (1, key(KeyValues::Overflow)),
            (2, key(KeyValues::Each(["42".into(), "eu".into()].into()))),
        ],
        retired_keys: vec![7, 9],
        entries: vec![entry(0, 0, 1), entry(1, 4, 1), entry(2, 0, 30)],
        services: vec![ServiceCounts {
            service: name("payments"),
            attempts: 1000,
            admitted: 900,
            dropped_by_one: 99,
            dropped_by_several: 1,
        }],
    };
    let sparse = Report {
        entries: vec![entry(0, 0, 1)],
        ..Report { seq: 6, interval: Duration::from_millis(50), ..Report::default() }
    };
    let directive = Directive {
        admit: AdmitRatio::from_share(0.5),
        headroom: 0.25,
        sigma: 1.5,
        grant: None,
        limit_rps: 300.0,
        sessions: 20,
        term: 4,
        seq: 17,
        ttl: Duration::from_secs(10),
    };
    let configuration = Configuration {
        version: 401,
        term: 4,
        full: false,
        law: Law::Ratio,
        services: vec![Arc::new(example_service())],
        removed: vec![name("old")],
    };
    let granted = Directive {
        grant: Some(Grant { rps: 120.0, base_rps: 100.0 }),
        limit_rps: f64::INFINITY,
        ..directive
    };
    let in_flight =
        Entry { usual_rps: 10.0, flight: Flight { requests: 3.5, rps: 25.0 }, ..entry(4, 0, 30) };
    let report_grant = Report {
        seq: 7,
        interval: Duration::from_millis(100),
        entries: vec![in_flight, entry(5, 0, 1)],
        ..Report::default()
    };
    let configuration_grant = Configuration {
        law: Law::Grant,
        services: vec![Arc::new(example_shared_service())],
        removed: vec![],
        full: true,
        ..configuration.clone()
    };
    let ups = vec![
        ("hello", Up::Hello(hello)),
        ("report", Up::Report(report)),
        ("report_sparse", Up::Report(sparse)),
        ("report_grant", Up::Report(report_grant)),
        ("configuration_applied", Up::ConfigurationApplied(401)),
        ("seen", Up::Seen { term: 5, version: 402 }),
    ];
    let update = Update { ack_seq: 5, directives: vec![(0, directive), (2, directive)] };
    let update_grant = Update { ack_seq: 7, directives: vec![(4, granted), (5, directive)] };
    let downs = vec![
        ("configuration", Down::Configuration(configuration)),
        ("configuration_grant", Down::Configuration(configuration_grant)),
        ("update", Down::Update(update)),
        ("update_grant", Down::Update(update_grant)),
    ];
    (ups, downs)
}

pub(crate) fn example_service() -> ServiceBuckets {
    let limit = |n| Limit::Tokens(TokenRate::per_second(n, None).expect("in bounds"));
    let per_workspace = Bucket {
        name: name("per-workspace"),
        scope: Scope::Region,
        rule: Rule {
            on: Match {
                caller: vec![Pattern::parse("checkout-*"), Pattern::parse("web")],
                procedure: vec![Pattern::Any],
                dimensions: BTreeMap::from([(name("workspace"), vec![Pattern::Any])]),
            },
            not: vec![Match { caller: vec![Pattern::parse("batch")], ..Match::default() }],
        },
        limit: limit(50),
        mode: Mode::Deny,
        per: Some(Per {
            dimensions: vec![name("workspace")],
            values: BTreeMap::from([
                (vec!["12345".into()], limit(500)),
                (vec!["internal".into()], Limit::Unlimited),
            ]),
            max_keys: 100_000,
            overflow: Overflow::Limit(limit(5)),
        }),
        on_control_loss: OnControlLoss::Share,
        guard: false,
        enforce: 1.0,
        max_drop: 1.0,
        sharing: None,
    };
    let seen = Bucket {
        name: name("seen"),
        scope: Scope::Zone,
        rule: Rule::default(),
        limit: Limit::Unlimited,
        mode: Mode::Observe,
        per: None,
        on_control_loss: OnControlLoss::Open,
        guard: false,
        enforce: 1.0,
        max_drop: 1.0,
        sharing: None,
    };
    ServiceBuckets {
        service: name("payments"),
        owner: Owner {
            owner: Some("team-payments".to_owned()),
            contact: None,
            runbook: Some("https://runbooks/payments".to_owned()),
        },
        select: Select::MostSpecific,
        buckets: vec![per_workspace, seen],
    }
}

/// Buckets with every way of sharing a limit.
pub(crate) fn example_shared_service() -> ServiceBuckets {
    let limit = Limit::Tokens(TokenRate::per_second(1_000, None).expect("in bounds"));
    let plain = |text| Bucket::plain(name(text), Scope::Global, limit);
    let per = |dimensions: &[&str]| Per {
        dimensions: dimensions.iter().map(|d| name(d)).collect(),
        values: BTreeMap::new(),
        max_keys: 500,
        overflow: Overflow::Observe,
    };
    let order = vec!["gold".into(), "silver".into(), "tin".into()];
    let mut priority = per(&["workspace", "tier"]);
    priority.values.insert(vec!["12345".into()], Limit::Unlimited);
    ServiceBuckets {
        service: name("images"),
        owner: Owner::default(),
        select: Select::All,
        buckets: vec![
            Bucket { guard: true, ..plain("guarded") },
            Bucket { enforce: 0.25, max_drop: 0.125, ..plain("ramp-in") },
            Bucket { sharing: Some(Sharing::Fair), per: Some(per(&["user"])), ..plain("fair") },
            Bucket {
                sharing: Some(Sharing::Priority(Classes { order, default: 1 })),
                per: Some(priority),
                ..plain("ranked")
            },
        ],
    }
}
