//! Why each bucket of a service counts a request, or does not. Evaluates the rules as the model
//! states them; knows no file and no output.

use serde::Serialize;
use sluicegate_model::{
    Bucket, KeyValues, Limit, MAX_VALUE_BYTES, Match, Mode, Overflow, Patterns, Request, Scope,
    Select, ServiceBuckets,
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
        because,
    }
}

fn matched(bucket: &Bucket, request: &Request<'_>) -> Verdict {
    let mut remarks = Vec::new();
    let values = key(bucket, request, &mut remarks);
    let limit = bucket.limit_of(&values);
    if limit.denies_all() && bucket.mode == Mode::Deny {
        remarks.push("a limit of 0 drops every request".to_owned());
    }
    if let (Some(per), KeyValues::Each(values)) = (&bucket.per, &values) {
        if per.values.contains_key(&**values) {
            remarks.push("this value has a limit of its own".to_owned());
        }
        let beyond = match per.overflow {
            Overflow::Observe => "only counted".to_owned(),
            Overflow::Limit(limit) => format!("limited together to {limit}"),
        };
        remarks.push(format!("values beyond the first {} are {beyond}", per.max_keys));
    }
    Verdict {
        key: Some(values.to_string()),
        limit: Some(limit.to_string()),
        limit_rps: Limit::rate_rps(&limit),
        ..verdict(bucket, true, remarks)
    }
}

fn key(bucket: &Bucket, request: &Request<'_>, remarks: &mut Vec<String>) -> KeyValues {
    let Some(per) = &bucket.per else { return KeyValues::Whole };
    let values: Vec<Box<str>> = per
        .dimensions
        .iter()
        .filter_map(|d| request.dimension(d.as_str()))
        .map(Box::from)
        .collect();
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
    for dimension in bucket.per.iter().flat_map(|p| &p.dimensions) {
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
