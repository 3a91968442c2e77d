//! Why each bucket of a service counts a request, or does not. Evaluates the rules as the model
//! states them; knows no file and no output.

use serde::Serialize;
use sluicegate_model::{
    Bucket, Classes, KeyValues, Limit, MAX_VALUE_BYTES, Match, Mode, Name, Overflow, Patterns,
    Request, Scope, Select, ServiceBuckets, Sharing,
};

/// What one bucket makes of a request.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Verdict {
    pub(crate) bucket: String,
    pub(crate) scope: &'static str,
    pub(crate) mode: &'static str,
    pub(crate) matches: bool,
    /// The key that counts it, where it matches: empty without `per`.
    pub(crate) key: Option<String>,
    /// The limit of that key, as a bucket file writes it.
    pub(crate) limit: Option<String>,
    /// The same in requests a second; none if unlimited.
    pub(crate) limit_rps: Option<f64>,
    /// The class that counts it, where the bucket has priorities.
    pub(crate) class: Option<String>,
    /// The value that counts it, where values share the limit fairly.
    pub(crate) fair_value: Option<String>,
    pub(crate) guard: bool,
    pub(crate) enforce: f64,
    pub(crate) max_drop: f64,
    /// Why not, where it does not match; remarks where it does.
    pub(crate) because: Vec<String>,
}

/// What every bucket of the service makes of the request, in the order of the file.
pub(crate) fn verdicts(buckets: &ServiceBuckets, request: &Request<'_>) -> Vec<Verdict> {
    let selected = buckets.matching(request);
    buckets
        .buckets
        .iter()
        .enumerate()
        .map(|(place, bucket)| {
            if selected.contains(&place) {
                matched(bucket, request)
            } else {
                let mut because = unmet(bucket, request);
                if because.is_empty() {
                    because.push(outdone(buckets, &selected, bucket));
                }
                verdict(bucket, false, because)
            }
        })
        .collect()
}

/// A scope as bucket files write it.
pub(crate) fn scope(scope: Scope) -> &'static str {
    match scope {
        Scope::Zone => "zone",
        Scope::Region => "region",
        Scope::Global => "global",
    }
}

/// A mode as bucket files write it.
pub(crate) fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Deny => "deny",
        Mode::Shadow => "shadow",
        Mode::Observe => "observe",
    }
}

fn verdict(bucket: &Bucket, matches: bool, because: Vec<String>) -> Verdict {
    Verdict {
        bucket: bucket.name.to_string(),
        scope: scope(bucket.scope),
        mode: mode(bucket.mode),
        matches,
        key: None,
        limit: None,
        limit_rps: None,
        class: None,
        fair_value: None,
        guard: bucket.guard,
        enforce: bucket.enforce,
        max_drop: bucket.max_drop,
        because,
    }
}

fn matched(bucket: &Bucket, request: &Request<'_>) -> Verdict {
    let mut remarks = Vec::new();
    let shared = shared(bucket, request, &mut remarks);
    let values = key(bucket, request, shared.as_deref(), &mut remarks);
    let limit = bucket.limit_of(&values);
    if limit.denies_all() && bucket.mode == Mode::Deny && !bucket.is_softened() {
        remarks.push("a limit of 0 drops every request".to_owned());
    }
    if let (Some(per), KeyValues::Each(values)) = (&bucket.per, &values) {
        let group = bucket.group_of(values);
        if per.values.contains_key(group) {
            remarks.push("this value has a limit of its own".to_owned());
        }
        let beyond = match per.overflow {
            _ if bucket.shares_whole() => "one value together".to_owned(),
            Overflow::Observe => "only counted".to_owned(),
            Overflow::Limit(limit) => format!("limited together to {limit}"),
        };
        // Classes alone are few, and never beyond.
        if !(bucket.shares_whole() && matches!(bucket.sharing, Some(Sharing::Priority(_)))) {
            remarks.push(format!("values beyond the first {} are {beyond}", per.max_keys));
        }
    }
    softening(bucket, &limit, &mut remarks);
    let (class, fair_value) = match bucket.sharing {
        Some(Sharing::Priority(_)) => (shared, None),
        Some(Sharing::Fair) => (None, shared),
        None => (None, None),
    };
    Verdict {
        key: Some(values.to_string()),
        limit: Some(limit.to_string()),
        limit_rps: Limit::rate_rps(&limit),
        class,
        fair_value,
        ..verdict(bucket, true, remarks)
    }
}

/// What is enforced of the limit, and how soon.
fn softening(bucket: &Bucket, limit: &Limit, remarks: &mut Vec<String>) {
    let percent = |share: f64| format!("{} %", (share * 1e6).round() / 1e4);
    if bucket.enforce < 1.0 {
        remarks.push(format!("enforces {} of its drops", percent(bucket.enforce)));
    }
    if bucket.max_drop < 1.0 {
        remarks.push(format!("drops at most {} of the requests", percent(bucket.max_drop)));
    }
    if bucket.guard && !bucket.is_softened() && limit.rate_rps() > Some(Limit::LOW_RPS) {
        remarks.push("guarded by each client".to_owned());
    }
}

/// The class, or the value of `fair_by`, that counts the request, if the bucket has either.
fn shared(bucket: &Bucket, request: &Request<'_>, remarks: &mut Vec<String>) -> Option<String> {
    let dimension = bucket.per.as_ref().and_then(|p| p.dimensions.last())?;
    let value = request.dimension(dimension.as_str());
    match bucket.sharing.as_ref()? {
        Sharing::Fair => {
            let none = if value.is_none() { " (not given: counts as empty)" } else { "" };
            remarks.push(format!("fair among the values of {dimension}{none}"));
            Some(value.unwrap_or_default().to_owned())
        }
        Sharing::Priority(classes) => Some(class(classes, dimension, value, request, remarks)),
    }
}

fn class(
    classes: &Classes,
    dimension: &Name,
    value: Option<&str>,
    request: &Request<'_>,
    remarks: &mut Vec<String>,
) -> String {
    let place = classes.of(value, request.dimension(Classes::ATTEMPT));
    let class = classes.order.get(place).map_or("", |c| &**c);
    let why = if place != classes.of(value, None) {
        ": it is a retry"
    } else if value != Some(class) {
        ": the default"
    } else {
        ""
    };
    let (nth, of) = (place + 1, classes.order.len());
    remarks.push(format!("class {class}, {nth} of {of} by {dimension}{why}"));
    class.to_owned()
}

fn key(
    bucket: &Bucket,
    request: &Request<'_>,
    shared: Option<&str>,
    remarks: &mut Vec<String>,
) -> KeyValues {
    if bucket.per.is_none() {
        return KeyValues::Whole;
    }
    let asked = bucket.asked_dimensions().iter().filter_map(|d| request.dimension(d.as_str()));
    let values: Vec<Box<str>> = asked.chain(shared).map(Box::from).collect();
    if let Some(long) = values.iter().find(|v| v.len() > MAX_VALUE_BYTES) {
        remarks.push(format!(
            "a value of {} bytes gets no key of its own, the most is {MAX_VALUE_BYTES}",
            long.len()
        ));
        return KeyValues::Overflow;
    }
    KeyValues::Each(values.into())
}

/// Every condition of the rule that the request does not meet.
fn unmet(bucket: &Bucket, request: &Request<'_>) -> Vec<String> {
    let mut reasons: Vec<String> = bucket
        .rule
        .on
        .conditions()
        .filter(|(name, patterns)| !met(patterns, request.dimension(name)))
        .map(|(name, patterns)| {
            format!("{name}: wants {}, got {}", wanted(patterns), got(request.dimension(name)))
        })
        .collect();
    for exclusion in bucket.rule.not.iter().filter(|n| n.fits(request)) {
        reasons.push(format!("excluded by not: {}", met_by(exclusion, request)));
    }
    for dimension in bucket.asked_dimensions() {
        if request.dimension(dimension.as_str()).is_none() {
            reasons.push(format!("per {dimension}: wants any value, got none"));
        }
    }
    reasons
}

fn met(patterns: &Patterns, value: Option<&str>) -> bool {
    value.is_some_and(|v| patterns.iter().any(|p| p.matches(v)))
}

fn wanted(patterns: &Patterns) -> String {
    let texts: Vec<String> = patterns.iter().map(|p| format!("{p}")).collect();
    texts.join(" or ")
}

fn got(value: Option<&str>) -> String {
    value.map_or_else(|| "none".to_owned(), |v| format!("\"{}\"", v.escape_debug()))
}

fn met_by(exclusion: &Match, request: &Request<'_>) -> String {
    let conditions: Vec<String> = exclusion
        .conditions()
        .map(|(name, patterns)| {
            format!("{name} {} fits {}", got(request.dimension(name)), wanted(patterns))
        })
        .collect();
    if conditions.is_empty() { "everything".to_owned() } else { conditions.join(" and ") }
}

/// The bucket fits, but another one of its scope was selected.
fn outdone(buckets: &ServiceBuckets, selected: &[usize], bucket: &Bucket) -> String {
    debug_assert_eq!(buckets.select, Select::MostSpecific);
    let winner = selected.iter().map(|p| &buckets.buckets[*p]).find(|b| b.scope == bucket.scope);
    let Some(winner) = winner else { return "not selected".to_owned() };
    let why = if winner.rule.specificity() > bucket.rule.specificity() {
        "less specific than"
    } else {
        "no more specific than, and after,"
    };
    format!("{why} {} (select: most_specific, scope {})", winner.name, scope(bucket.scope))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluicegate_model::{Name, Pattern, Per, Rule, TokenRate};
    use std::collections::BTreeMap;

    fn name(text: &str) -> Name {
        Name::new(text).expect("a name")
    }

    fn per_second(n: u64) -> Limit {
        Limit::Tokens(TokenRate::per_second(n, None).expect("fine"))
    }

    fn bucket(bucket: &str, caller: &[&str]) -> Bucket {
        let caller = caller.iter().map(|t| Pattern::parse(t)).collect();
        Bucket {
            name: name(bucket),
            scope: Scope::Region,
            rule: Rule { on: Match { caller, ..Match::default() }, not: vec![] },
            limit: per_second(10),
            mode: Mode::Deny,
            per: None,
            on_control_loss: sluicegate_model::OnControlLoss::Open,
            guard: false,
            enforce: 1.0,
            max_drop: 1.0,
            sharing: None,
        }
    }

    fn service(select: Select, buckets: Vec<Bucket>) -> ServiceBuckets {
        ServiceBuckets {
            service: name("s"),
            owner: sluicegate_model::Owner::default(),
            select,
            buckets,
        }
    }

    const WEB: Request<'static> =
        Request { service: "s", caller: "web", procedure: "", dimensions: &[("ws", "42")] };

    #[test]
    fn a_condition_that_does_not_hold_is_named() {
        let all =
            service(Select::All, vec![bucket("a", &["app", "batch-*"]), bucket("b", &["w*"])]);
        let found = verdicts(&all, &WEB);
        assert!(!found[0].matches);
        assert_eq!(found[0].because, ["caller: wants app or batch-*, got \"web\""]);
        assert!(found[1].matches);
        assert_eq!(found[1].limit.as_deref(), Some("10/s"));
        assert_eq!(found[1].key.as_deref(), Some(""));
        let anonymous = Request { caller: "", ..WEB };
        assert!(verdicts(&all, &anonymous)[1].because[0].ends_with("got none"));
    }

    #[test]
    fn an_exclusion_and_a_missing_dimension_are_named() {
        let mut excluding = bucket("a", &[]);
        excluding.rule.not.push(bucket("x", &["w*"]).rule.on);
        let mut each = bucket("b", &[]);
        each.per = Some(Per {
            dimensions: vec![name("user")],
            values: BTreeMap::new(),
            max_keys: 5,
            overflow: Overflow::Observe,
        });
        let found = verdicts(&service(Select::All, vec![excluding, each]), &WEB);
        assert_eq!(found[0].because, ["excluded by not: caller \"web\" fits w*"]);
        assert_eq!(found[1].because, ["per user: wants any value, got none"]);
    }

    #[test]
    fn the_key_and_its_own_limit_are_shown() {
        let mut each = bucket("b", &[]);
        let own = BTreeMap::from([(vec!["42".into()], per_second(0))]);
        each.per = Some(Per {
            dimensions: vec![name("ws")],
            values: own,
            max_keys: 5,
            overflow: Overflow::Limit(per_second(3)),
        });
        let found = verdicts(&service(Select::All, vec![each]), &WEB);
        assert_eq!(found[0].key.as_deref(), Some("42"));
        assert_eq!(found[0].limit.as_deref(), Some("0/s"));
        assert_eq!(
            found[0].because,
            [
                "a limit of 0 drops every request",
                "this value has a limit of its own",
                "values beyond the first 5 are limited together to 3/s"
            ]
        );
    }

    fn sharing(by: Sharing, dimensions: &[&str]) -> ServiceBuckets {
        let mut shared = bucket("b", &[]);
        shared.sharing = Some(by);
        shared.per = Some(Per {
            dimensions: dimensions.iter().map(|d| name(d)).collect(),
            values: BTreeMap::new(),
            max_keys: 5,
            overflow: Overflow::Observe,
        });
        service(Select::All, vec![shared])
    }

    #[test]
    fn the_class_and_why_are_shown() {
        let order = vec!["gold".into(), "silver".into(), "tin".into()];
        let by_tier = sharing(Sharing::Priority(Classes { order, default: 1 }), &["tier"]);
        for (dimensions, class, remark) in [
            (&[("tier", "gold")][..], "gold", "class gold, 1 of 3 by tier"),
            (&[("tier", "wood")], "silver", "class silver, 2 of 3 by tier: the default"),
            (&[], "silver", "class silver, 2 of 3 by tier: the default"),
            (&[("tier", "gold"), ("attempt", "1")], "gold", "class gold, 1 of 3 by tier"),
            (
                &[("tier", "gold"), ("attempt", "2")],
                "tin",
                "class tin, 3 of 3 by tier: it is a retry",
            ),
            (&[("tier", "tin"), ("attempt", "2")], "tin", "class tin, 3 of 3 by tier"),
        ] {
            let found = &verdicts(&by_tier, &Request { dimensions, ..WEB })[0];
            assert_eq!(found.class.as_deref(), Some(class), "{dimensions:?}");
            assert_eq!(found.key.as_deref(), Some(class), "{dimensions:?}");
            assert_eq!(found.because, [remark], "{dimensions:?}");
        }
    }

    #[test]
    fn the_fair_value_is_shown_given_or_not() {
        let fair = sharing(Sharing::Fair, &["ws", "user"]);
        let given = Request { dimensions: &[("ws", "42"), ("user", "ann")], ..WEB };
        let found = &verdicts(&fair, &given)[0];
        assert_eq!(
            (found.key.as_deref(), found.fair_value.as_deref()),
            (Some("42, ann"), Some("ann"))
        );
        assert_eq!(
            found.because,
            ["fair among the values of user", "values beyond the first 5 are only counted"]
        );
        let found = &verdicts(&fair, &WEB)[0];
        assert!(found.matches, "only the dimensions of per must be given");
        assert_eq!((found.key.as_deref(), found.fair_value.as_deref()), (Some("42, "), Some("")));
        assert!(found.because[0].ends_with("(not given: counts as empty)"), "{found:?}");
        let none = Request { dimensions: &[("user", "ann")], ..WEB };
        assert_eq!(verdicts(&fair, &none)[0].because, ["per ws: wants any value, got none"]);
        let alone = &verdicts(&sharing(Sharing::Fair, &["user"]), &given)[0];
        assert_eq!(alone.because[1], "values beyond the first 5 are one value together");
    }

    #[test]
    fn what_is_enforced_of_a_limit_is_shown() {
        let mut soft = bucket("a", &[]);
        (soft.enforce, soft.max_drop, soft.guard) = (0.07, 0.125, true);
        let guarded = Bucket { limit: per_second(500), guard: true, ..bucket("b", &[]) };
        let low = Bucket { guard: true, ..bucket("c", &[]) };
        let found = verdicts(&service(Select::All, vec![soft, guarded, low]), &WEB);
        assert_eq!(
            found[0].because,
            ["enforces 7 % of its drops", "drops at most 12.5 % of the requests"]
        );
        assert_eq!(found[1].because, ["guarded by each client"]);
        assert_eq!(found[2].because, [""; 0], "a low limit is not guarded");
    }

    #[test]
    fn the_more_specific_bucket_is_named() {
        let buckets =
            vec![bucket("wide", &["*"]), bucket("narrow", &["web"]), bucket("same", &["web"])];
        let found = verdicts(&service(Select::MostSpecific, buckets), &WEB);
        assert_eq!(
            found[0].because,
            ["less specific than narrow (select: most_specific, scope region)"]
        );
        assert!(found[1].matches);
        assert_eq!(
            found[2].because,
            ["no more specific than, and after, narrow (select: most_specific, scope region)"]
        );
    }
}
