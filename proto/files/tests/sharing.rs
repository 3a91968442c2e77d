//! `fair_by`, `priority`, `guard`, `enforce` and `max_drop`: what files that use them mean, and what
//! is said where one of them changes nothing.

use std::collections::BTreeMap;

use sluicegate_files::buckets;
use sluicegate_model::{
    Bucket, Classes, KeyValues, Law, Limit, Name, Overflow, Per, Request, Sharing, TokenRate,
};

const HEAD: &str =
    "apiVersion: sluicegate/v1\nservice: s\nbuckets:\n  - name: b\n    scope: region\n";

/// The bucket of these fields and what is said of it.
fn told(fields: &[&str]) -> (Bucket, Vec<String>) {
    let lines: String = fields.iter().map(|f| format!("    {f}\n")).collect();
    let parsed = buckets::parse("f.yaml", &format!("{HEAD}{lines}"));
    let warnings = parsed.warnings.iter().map(|w| format!("{}: {}", w.field, w.message)).collect();
    let mut service = parsed.service.unwrap_or_else(|| panic!("{:?}", parsed.errors));
    (service.buckets.remove(0), warnings)
}

fn bucket(fields: &[&str]) -> Bucket {
    let (bucket, warnings) = told(fields);
    assert_eq!(warnings, [""; 0], "{fields:?}");
    bucket
}

fn warnings(fields: &[&str]) -> Vec<String> {
    told(fields).1
}

fn names(texts: &[&str]) -> Vec<Name> {
    texts.iter().map(|t| Name::new(t).expect("a name")).collect()
}

fn per_second(n: u64) -> Limit {
    Limit::Tokens(TokenRate::per_second(n, None).expect("a limit"))
}

#[test]
fn a_bucket_without_them_is_the_plain_one() {
    let found = bucket(&["limit: 500/s"]);
    assert_eq!(found, Bucket::plain(found.name.clone(), found.scope, per_second(500)));
    assert_eq!(bucket(&["limit: 500/s", "guard: off", "enforce: 1", "max_drop: 100%"]), found);
}

#[test]
fn shares_are_numbers_or_percentages() {
    let found = bucket(&["limit: 500/s", "enforce: 25%", "max_drop: 0.125"]);
    assert_eq!((found.enforce, found.max_drop), (0.25, 0.125));
    let quoted = bucket(&["limit: 500/s", "enforce: \"25%\"", "max_drop: \"0.125\""]);
    assert_eq!(quoted, found);
    assert!(bucket(&["limit: 500/s", "guard: on"]).guard);
}

#[test]
fn the_dimension_of_fair_by_is_the_last_of_per() {
    let alone = bucket(&["limit: 500/s", "fair_by: user"]);
    assert_eq!(alone.sharing, Some(Sharing::Fair));
    let expected = Per {
        dimensions: names(&["user"]),
        values: BTreeMap::new(),
        max_keys: Per::DEFAULT_MAX_KEYS,
        overflow: Overflow::Observe,
    };
    assert_eq!(alone.per, Some(expected.clone()));
    assert!(alone.shares_whole() && alone.asked_dimensions().is_empty());
    let bounded = bucket(&["limit: 500/s", "fair_by: user", "max_keys: 7"]);
    assert_eq!(bounded.per, Some(Per { max_keys: 7, ..expected }));

    let grouped = bucket(&[
        "limit: 500/s",
        "per: [workspace_id]",
        "fair_by: caller",
        "values: { big: 9_000/s }",
        "max_keys: 3",
        "overflow: 5/s",
    ]);
    let per = grouped.per.clone().expect("per");
    assert_eq!(per.dimensions, names(&["workspace_id", "caller"]));
    assert_eq!(per.values, BTreeMap::from([(vec!["big".into()], per_second(9_000))]));
    assert_eq!((per.max_keys, per.overflow), (3, Overflow::Limit(per_second(5))));
    let key = |group: &str| KeyValues::Each(Box::new([group.into(), "web".into()]));
    assert_eq!(grouped.limit_of(&key("big")), per_second(9_000));
    assert_eq!(grouped.limit_of(&key("small")), per_second(500));
}

#[test]
fn classes_have_an_order_and_a_default() {
    let classes = |default: &str| {
        let line = format!("priority: {{ dimension: tier, order: [gold, silver, 3]{default} }}");
        let found = bucket(&["limit: 500/s", &line]);
        assert_eq!(found.per.expect("per").dimensions, names(&["tier"]));
        let Some(Sharing::Priority(classes)) = found.sharing else { panic!("{:?}", found.sharing) };
        classes
    };
    let order: Vec<Box<str>> = vec!["gold".into(), "silver".into(), "3".into()];
    assert_eq!(classes(""), Classes { order: order.clone(), default: 2 }, "the worst");
    assert_eq!(classes(", default: gold"), Classes { order: order.clone(), default: 0 });
    assert_eq!(classes(", default: 3"), Classes { order, default: 2 }, "numbers keep their text");

    let grouped = bucket(&[
        "limit: 500/s",
        "per: [workspace_id]",
        "priority: { dimension: tier, order: [gold, tin] }",
        "max_keys: 100",
    ]);
    assert_eq!(grouped.asked_dimensions(), names(&["workspace_id"]));
    assert_eq!(grouped.per.expect("per").max_keys, 100);
}

#[test]
fn a_request_without_the_shared_dimension_is_counted_too() {
    let text = format!("{HEAD}    limit: 500/s\n    per: [workspace_id]\n    fair_by: user\n");
    let service = buckets::parse("f", &text).service.expect("good");
    let request =
        Request { service: "s", dimensions: &[("workspace_id", "1")], ..Request::default() };
    assert_eq!(service.matching(&request), [0]);
    assert!(service.matching(&Request { dimensions: &[("user", "1")], ..request }).is_empty());
}

#[test]
fn what_changes_nothing_is_a_warning() {
    let low = "buckets[0].guard: the guard is off for limits up to 200/s, and no limit here is above that";
    assert_eq!(warnings(&["limit: 200/s", "guard: on"]), [low]);
    assert_eq!(warnings(&["limit: 600/m", "guard: on"]), [low]);
    let some_above = ["limit: 50/s", "per: [ws]", "values: { big: 500/s }", "guard: on"];
    assert_eq!(warnings(&some_above), [""; 0]);
    let one_is_limited = ["limit: unlimited", "per: [ws]", "values: { big: 500/s }", "guard: on"];
    assert_eq!(warnings(&one_is_limited), [""; 0]);
    for soft in ["enforce: 10%", "max_drop: 0.9"] {
        assert_eq!(
            warnings(&["limit: 500/s", "guard: on", soft]),
            ["buckets[0].guard: the guard is off where not every drop is enforced"]
        );
    }
    let unreached = "buckets[0].max_drop: `enforce` never drops more than this anyway";
    assert_eq!(warnings(&["limit: 500/s", "enforce: 10%", "max_drop: 10%"]), [unreached]);
    assert_eq!(warnings(&["limit: 500/s", "enforce: 10%", "max_drop: 9%"]), [""; 0]);
    let overflow = warnings(&["limit: 500/s", "fair_by: user", "overflow: 5/s"]);
    assert_eq!(overflow.len(), 1);
    assert!(overflow[0].starts_with("buckets[0].overflow: all values share"), "{overflow:?}");
    let star = warnings(&["limit: 500/s", "priority: { dimension: t, order: [a, b*] }"]);
    assert_eq!(
        star,
        [
            "buckets[0].priority.order[1]: `b*` is taken as an exact value: patterns have no meaning in `order`"
        ]
    );
}

#[test]
fn shadow_takes_what_deny_takes() {
    let fields = ["limit: 500/s", "guard: on", "fair_by: user"];
    let deny = bucket(&fields);
    let shadow = bucket(&[&fields[..], &["mode: shadow"]].concat());
    assert_eq!(Bucket { mode: deny.mode, ..shadow }, deny);
}

#[test]
fn ratio_takes_what_it_can_enforce() {
    let under_ratio = |line: &str| {
        let text = format!("{HEAD}    limit: 500/s\n    {line}\n");
        buckets::parse_bytes("f", text.as_bytes(), Law::Ratio).service.is_some()
    };
    for good in ["guard: off", "enforce: 5%", "max_drop: 0.5", "per: [user]"] {
        assert!(under_ratio(good), "{good}");
    }
    for bad in ["guard: on", "fair_by: user", "priority: { dimension: t, order: [a, b] }"] {
        assert!(!under_ratio(bad), "{bad}");
    }
}
