//! Each way in which a message can break the protocol is refused, and the refusal says where, what
//! was found and what is allowed.

mod support;

use prost::Message;
use sluicegate_model::{Down, Law, Up};
use sluicegate_proto::v1::{self, down, up};
use sluicegate_proto::wire::{
    check_service, decode_down, decode_service, decode_up, encode_down, encode_service, encode_up,
};

fn example_up(name: &str) -> v1::Up {
    let (ups, _) = support::examples();
    let (_, up) = ups.into_iter().find(|(n, _)| *n == name).expect("an example");
    encode_up(&up)
}

fn hello(change: impl Fn(&mut v1::Hello)) -> String {
    let Some(up::Message::Hello(mut hello)) = example_up("hello").message else { panic!("hello") };
    change(&mut hello);
    refused_up(up::Message::Hello(hello))
}

fn report(change: impl Fn(&mut v1::Report)) -> String {
    let Some(up::Message::Report(mut r)) = example_up("report").message else { panic!("report") };
    change(&mut r);
    refused_up(up::Message::Report(r))
}

fn entries(change: impl Fn(&mut v1::Entries)) -> String {
    report(|r| change(r.entries.as_mut().expect("the example has entries")))
}

fn refused_up(message: up::Message) -> String {
    let up = v1::Up { message: Some(message) };
    decode_up(up).expect_err("refused").to_string()
}

#[test]
fn hellos() {
    assert_eq!(hello(|h| h.role = 0), "hello.role is 0, allowed is 1 (client) or 2 (aggregator)");
    assert_eq!(hello(|h| h.role = 9), "hello.role is 9, allowed is 1 (client) or 2 (aggregator)");
    assert_eq!(hello(|h| h.node.clear()), "hello.node is not a name: is empty");
    assert_eq!(
        hello(|h| h.zone = "z".repeat(201)),
        "hello.zone is not a name: is 201 bytes long, the most is 200"
    );
    assert_eq!(
        hello(|h| h.services.push("search".to_owned())),
        "hello.services holds \"search\" twice, each may stand there once"
    );
    assert_eq!(
        hello(|h| h.services = vec!["x".to_owned(); 100_001]),
        "hello.services has 100001 elements, the most is 100000"
    );
    assert_eq!(
        hello(|h| h.seen_term = u64::MAX),
        "hello.seen_term is 18446744073709551615, allowed is 0 to 2^48"
    );
}

#[test]
fn reports() {
    assert_eq!(report(|r| r.seq = 0), "report.seq is 0, allowed is 1 or more");
    assert_eq!(report(|r| r.interval_ns = 0), "report.interval_ns is 0, allowed is 1 or more");
    assert_eq!(
        report(|r| r.new_keys[1].id = 0),
        "report.new_keys.id holds \"0\" twice, each may stand there once"
    );
    assert_eq!(
        report(|r| r.new_keys[1].values.push("v".to_owned())),
        "report.new_keys.values has 1 elements, it must have 0"
    );
    assert_eq!(
        report(|r| r.new_keys[2].values = vec![String::new(); 5]),
        "report.new_keys.values has 5 elements, the most is 4"
    );
    assert_eq!(
        report(|r| r.new_keys[2].values[0] = "v".repeat(1025)),
        "report.new_keys.values has 1025 bytes, the most is 1024"
    );
    assert_eq!(
        report(|r| r.new_keys[0].bucket = "a\nb".to_owned()),
        "report.new_keys.bucket is not a name: holds a control character at byte 1"
    );
    assert_eq!(
        report(|r| r.retired_keys.push(7)),
        "report.retired_keys holds \"7\" twice, each may stand there once"
    );
    assert_eq!(
        report(|r| r.services.push(r.services[0].clone())),
        "report.services.service holds \"payments\" twice, each may stand there once"
    );
}

#[test]
fn columns() {
    type Change = fn(&mut v1::Entries);
    let changes: [(&str, Change); 9] = [
        ("matched", |e| e.matched.push(1)),
        ("offered", |e| e.offered.clear()),
        ("admitted", |e| e.admitted.truncate(2)),
        ("would_drop", |e| e.would_drop.push(1)),
        ("offered_rps", |e| e.offered_rps.clear()),
        ("sessions", |e| e.sessions.truncate(1)),
        ("usual_rps", |e| e.usual_rps.push(1.0)),
        ("flight_requests", |e| e.flight_requests = vec![1.0; 4]),
        ("flight_rps", |e| e.flight_rps = vec![1.0; 2]),
    ];
    for (column, change) in changes {
        let error = entries(change);
        assert!(
            error.starts_with(&format!("report.entries.{column} has"))
                && error.ends_with("it must have 3"),
            "{error}"
        );
    }
    assert_eq!(
        entries(|e| e.keys[2] = 1),
        "report.entries.keys holds \"1\" twice, each may stand there once"
    );
    type Column = fn(&mut v1::Entries) -> &mut Vec<f64>;
    let numbers: [(&str, Column); 4] = [
        ("offered_rps", |e| &mut e.offered_rps),
        ("usual_rps", |e| &mut e.usual_rps),
        ("flight_requests", |e| &mut e.flight_requests),
        ("flight_rps", |e| &mut e.flight_rps),
    ];
    for (column, of) in numbers {
        for (bad, text) in [(f64::NAN, "NaN"), (f64::INFINITY, "inf"), (-1.0, "-1")] {
            assert_eq!(
                entries(|e| *of(e) = vec![1.0, bad, 1.0]),
                format!(
                    "report.entries.{column} is {text}, allowed is a finite number that is not \
                     negative"
                )
            );
        }
    }
}

#[test]
fn empty_messages() {
    let error = decode_up(v1::Up::default()).expect_err("nothing in it");
    assert_eq!(error.to_string(), "up.message is missing");
    let error = decode_down(v1::Down::default()).expect_err("nothing in it");
    assert_eq!(error.to_string(), "down.message is missing");
}

fn example_down(name: &str) -> v1::Down {
    let (_, downs) = support::examples();
    let (_, down) = downs.into_iter().find(|(n, _)| *n == name).expect("an example");
    encode_down(&down)
}

fn configuration(change: impl Fn(&mut v1::Configuration)) -> String {
    let Some(down::Message::Configuration(mut c)) = example_down("configuration").message else {
        panic!("configuration")
    };
    change(&mut c);
    let down = v1::Down { message: Some(down::Message::Configuration(c)) };
    decode_down(down).expect_err("refused").to_string()
}

fn directive(change: impl Fn(&mut v1::DirectiveBody)) -> String {
    update(|u| {
        let mut body = v1::DirectiveBody::decode(u.directives[0].body.clone()).expect("a body");
        change(&mut body);
        u.directives[0].body = body.encode_to_vec().into();
    })
}

fn update(change: impl Fn(&mut v1::Update)) -> String {
    let Some(down::Message::Update(mut u)) = example_down("update").message else {
        panic!("update")
    };
    change(&mut u);
    let down = v1::Down { message: Some(down::Message::Update(u)) };
    decode_down(down).expect_err("refused").to_string()
}

#[test]
fn updates() {
    let at = "update.directives.body";
    assert_eq!(
        update(|u| u.directives[1].key = 0),
        "update.directives.key holds \"0\" twice, each may stand there once"
    );
    assert!(
        update(|u| u.directives[0].body = vec![0xff].into())
            .starts_with("update.directives.body cannot be decoded: ")
    );
    assert_eq!(
        directive(|d| d.ttl_ms = 3_600_001),
        format!("{at}.ttl_ms is 3600001, allowed is 0 to 3_600_000")
    );
    assert_eq!(
        directive(|d| d.limit_rps = f64::NAN),
        format!("{at}.limit_rps is NaN, allowed is a finite number that is not negative")
    );
    assert_eq!(
        directive(|d| d.headroom = -0.5),
        format!("{at}.headroom is -0.5, allowed is a finite number that is not negative")
    );
    assert_eq!(
        directive(|d| d.term = 1 << 50),
        format!("{at}.term is 1125899906842624, allowed is 0 to 2^49")
    );
    assert_eq!(
        directive(|d| d.sigma = f32::INFINITY),
        format!("{at}.sigma is inf, allowed is a finite number that is not negative")
    );
}

#[test]
fn grants() {
    let grant = |rps, base_rps| directive(|d| d.grant = Some(v1::Grant { rps, base_rps }));
    let at = "update.directives.body.grant";
    for (bad, text) in [(f64::NAN, "NaN"), (f64::INFINITY, "inf"), (-1.0, "-1")] {
        let finite = format!("is {text}, allowed is a finite number that is not negative");
        assert_eq!(grant(bad, 0.0), format!("{at}.rps {finite}"));
        assert_eq!(grant(1.0, bad), format!("{at}.base_rps {finite}"));
    }
    assert_eq!(grant(10.0, 10.5), format!("{at}.base_rps is 10.5, allowed is at most grant.rps"));
}

#[test]
fn configurations() {
    assert_eq!(
        configuration(|c| c.full = true),
        "configuration.removed has 1 elements, it must have 0"
    );
    assert_eq!(
        configuration(|c| c.removed.push("payments".to_owned())),
        "configuration.services.service holds \"payments\" twice, each may stand there once"
    );
    assert!(
        configuration(|c| c.services[0] = vec![0xff].into())
            .starts_with("configuration.services cannot be decoded: ")
    );
    assert_eq!(
        configuration(|c| c.version = u64::MAX),
        "configuration.version is 18446744073709551615, allowed is 0 to 2^49"
    );
    assert_eq!(
        configuration(|c| c.law = 3),
        "configuration.law is 3, allowed is 1 (ratio) or 2 (grant)"
    );
}

#[test]
fn a_sender_from_before_there_was_a_choice_of_laws_is_under_ratio() {
    let Some(down::Message::Configuration(mut c)) = example_down("configuration_grant").message
    else {
        panic!("configuration")
    };
    c.law = 0;
    let down = v1::Down { message: Some(down::Message::Configuration(c)) };
    let Ok(Down::Configuration(decoded)) = decode_down(down) else { panic!("it decodes") };
    assert_eq!(decoded.law, Law::Ratio);
}

fn service(change: impl Fn(&mut v1::ServiceBuckets)) -> String {
    let mut service = encode_service(&support::example_service());
    change(&mut service);
    decode_service(service).expect_err("refused").to_string()
}

fn per(change: impl Fn(&mut v1::Per)) -> String {
    service(|s| change(s.buckets[0].per.as_mut().expect("the first bucket has per")))
}

#[test]
fn buckets() {
    assert_eq!(service(|s| s.select = 7), "select is 7, allowed is 1 (all) or 2 (most specific)");
    assert_eq!(
        service(|s| s.owner.as_mut().expect("it has one").contact = Some("x".repeat(4097))),
        "owner.contact has 4097 bytes, the most is 4096"
    );
    assert_eq!(
        service(|s| s.buckets[1].name = "per-workspace".to_owned()),
        "buckets.name holds \"per-workspace\" twice, each may stand there once"
    );
    assert_eq!(
        service(|s| s.buckets[0].scope = 0),
        "buckets[0].scope is 0, allowed is 1 (zone), 2 (region) or 3 (global)"
    );
    assert_eq!(
        service(|s| s.buckets[0].mode = 4),
        "buckets[0].mode is 4, allowed is 1 (deny), 2 (shadow) or 3 (observe)"
    );
    assert_eq!(
        service(|s| s.buckets[1].on_control_loss = -1),
        "buckets[1].on_control_loss is -1, allowed is 1 (open), 2 (last), 3 (share) or 4 (closed)"
    );
    assert_eq!(service(|s| s.buckets[0].limit = None), "buckets[0].limit is missing");
    assert_eq!(
        service(|s| s.buckets[1].limit = s.buckets[0].limit),
        "buckets[1].limit is 50/s, allowed is no limit, because the mode is observe"
    );
    let window = |s: &mut v1::ServiceBuckets| {
        let limit = s.buckets[0].limit.as_mut().expect("it has one");
        limit.tokens.as_mut().expect("it is limited").window_ns = 0;
    };
    assert_eq!(
        service(window),
        "buckets[0].limit is not a limit: the window must be longer than 0 and at most 31 days"
    );
}

#[test]
fn patterns() {
    let pattern = |wire: Option<v1::pattern::Pattern>| {
        service(|s| {
            let on = s.buckets[0].on.as_mut().expect("it has one");
            on.caller[0].pattern.clone_from(&wire);
        })
    };
    let at = "buckets[0].on.caller";
    assert_eq!(pattern(None), format!("{at} is missing"));
    assert_eq!(
        pattern(Some(v1::pattern::Pattern::Any(false))),
        format!("{at} is any: false, allowed is any: true")
    );
    assert_eq!(
        pattern(Some(v1::pattern::Pattern::Prefix(String::new()))),
        format!("{at} is an empty prefix, allowed is any: true")
    );
    assert_eq!(
        pattern(Some(v1::pattern::Pattern::Exact("x".repeat(1025)))),
        format!("{at} has 1025 bytes, the most is 1024")
    );
    let twice = service(|s| {
        let on = s.buckets[0].on.as_mut().expect("it has one");
        on.dimensions.push(on.dimensions[0].clone());
    });
    assert_eq!(
        twice,
        "buckets[0].on.dimensions.name holds \"workspace\" twice, each may stand there once"
    );
}

#[test]
fn values() {
    let at = "buckets[0].per";
    assert_eq!(per(|p| p.dimensions.clear()), format!("{at}.dimensions is missing"));
    assert_eq!(per(|p| p.max_keys = 0), format!("{at}.max_keys is 0, allowed is 1 to 10_000_000"));
    assert_eq!(
        per(|p| p.values[0].values.clear()),
        format!("{at}.values.values has 0 elements, it must have 1")
    );
    assert_eq!(
        per(|p| p.values.push(p.values[0].clone())),
        format!("{at}.values.values holds \"12345\" twice, each may stand there once")
    );
    assert_eq!(per(|p| p.values[0].limit = None), format!("{at}.values.limit is missing"));
}

/// What is said once one of the buckets that share a limit is changed.
fn shared(change: impl Fn(&mut Vec<v1::Bucket>)) -> String {
    let mut service = encode_service(&support::example_shared_service());
    change(&mut service.buckets);
    decode_service(service).expect_err("refused").to_string()
}

#[test]
fn shares() {
    for (bad, text) in [(0.0, "0"), (-0.5, "-0.5"), (1.5, "1.5"), (f64::NAN, "NaN")] {
        assert_eq!(
            shared(|b| b[1].enforce = Some(bad)),
            format!("buckets[1].enforce is {text}, allowed is above 0 and at most 1")
        );
        assert_eq!(
            shared(|b| b[1].max_drop = Some(bad)),
            format!("buckets[1].max_drop is {text}, allowed is above 0 and at most 1")
        );
    }
}

#[test]
fn values_that_share_a_limit() {
    let [fair, ranked] = [2, 3];
    let at = |place: usize| format!("buckets[{place}]");
    assert_eq!(shared(|b| b[fair].per = None), format!("{}.per is missing", at(fair)));
    assert_eq!(
        shared(|b| b[fair].sharing = Some(v1::Sharing { sharing: None })),
        format!("{}.sharing.sharing is missing", at(fair))
    );
    let unfair = v1::Sharing { sharing: Some(v1::sharing::Sharing::Fair(false)) };
    assert_eq!(
        shared(|b| b[fair].sharing = Some(unfair.clone())),
        format!("{}.sharing.fair is false, allowed is true", at(fair))
    );
    let value = |n: usize| v1::ValueLimit {
        values: (0..n).map(|i| format!("v{i}")).collect(),
        limit: Some(v1::Limit { tokens: None }),
    };
    let values = |place: usize, n: usize| {
        shared(|b| b[place].per.as_mut().expect("it has one").values = vec![value(n)])
    };
    assert_eq!(
        values(fair, 0),
        format!("{}.per.values has 1 elements, the most is 0", at(fair)),
        "the only dimension's values have no limits of their own"
    );
    assert_eq!(
        values(ranked, 2),
        format!("{}.per.values.values has 2 elements, it must have 1", at(ranked))
    );
}

#[test]
fn classes() {
    let classes = |change: fn(&mut v1::Classes)| {
        shared(|b| {
            let sharing = b[3].sharing.as_mut().and_then(|s| s.sharing.as_mut());
            let Some(v1::sharing::Sharing::Priority(classes)) = sharing else { panic!("priority") };
            change(classes);
        })
    };
    let at = "buckets[3].sharing.priority";
    assert_eq!(
        classes(|c| c.order.truncate(1)),
        format!("{at}.order is 1, allowed is 2 to 8 values")
    );
    assert_eq!(
        classes(|c| c.order = (0..9).map(|i| i.to_string()).collect()),
        format!("{at}.order has 9 elements, the most is 8")
    );
    assert_eq!(
        classes(|c| c.order[2] = "gold".to_owned()),
        format!("{at}.order holds \"gold\" twice, each may stand there once")
    );
    assert_eq!(
        classes(|c| c.order[0] = "x".repeat(1025)),
        format!("{at}.order has 1025 bytes, the most is 1024")
    );
    assert_eq!(
        classes(|c| c.default_place = 3),
        format!("{at}.default_place is 3, allowed is a place in order")
    );
}

#[test]
fn a_service_that_no_child_could_take_in_is_found_before_it_is_sent() {
    let mut service = support::example_service();
    service.owner.contact = Some("x".repeat(5000));
    assert_eq!(
        check_service(&service).expect_err("too long").to_string(),
        "owner.contact has 5000 bytes, the most is 4096"
    );
}

#[test]
fn a_directive_that_holds_for_days_is_cut_to_an_hour() {
    let (_, downs) = support::examples();
    let Some((_, Down::Update(mut update))) = downs.into_iter().last() else { panic!("update") };
    update.directives[0].1.ttl = std::time::Duration::MAX;
    let Ok(Down::Update(decoded)) = decode_down(encode_down(&Down::Update(update))) else {
        panic!("an update that decodes")
    };
    assert_eq!(decoded.directives[0].1.ttl.as_secs(), 3600);
}

#[test]
fn an_interval_beyond_what_fits_is_cut() {
    let Ok(Up::Report(mut report)) = decode_up(example_up("report")) else { panic!("report") };
    report.interval = std::time::Duration::MAX;
    let Ok(Up::Report(decoded)) = decode_up(encode_up(&Up::Report(report))) else {
        panic!("a report that decodes")
    };
    assert_eq!(u128::from(u64::MAX), decoded.interval.as_nanos());
}
