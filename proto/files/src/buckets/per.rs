//! `per`, `values`, `max_keys` and `overflow`.

use std::collections::BTreeMap;

use sluicegate_model::{Limit, Mode, Name, Overflow, Per};

use super::fields::{MAX_VALUES, VALUE};
use super::limit;
use super::sharing::{self, Shared};
use super::value::Exact;
use crate::diagnostic::{Problem, Report, quoted};
use crate::suggest::nearest;
use crate::tree::{Key, Node, Value};
use crate::walk::{Fields, Trail, count, grouped, name};

/// The fields that have no meaning without `per`. With `fair_by`, the last two have one.
const ONLY_WITH_PER: [&str; 3] = ["values", "max_keys", "overflow"];

const VALUES: Exact<'static> = Exact {
    list: "`values`",
    otherwise: "the limit of every value that is not listed is the bucket's `limit`",
    pattern: "to limit a group of values together, give it a bucket of its own",
};

type Values = BTreeMap<Vec<Box<str>>, Limit>;

/// Reads a bucket's `per` and what goes with it; the dimension whose values share a limit becomes
/// its last one. The outer `None` says that something was wrong.
pub(super) fn per(
    fields: &Fields<'_>,
    shared: Option<&Shared>,
    mode: Option<Mode>,
    trail: &Trail<'_>,
    report: &mut Report<'_>,
) -> Option<Option<Per>> {
    let before = report.errors();
    let own = match fields.has("per") {
        true => fields
            .get("per", trail, report)
            .and_then(|n| dimensions(n, &trail.field("per"), report)),
        false => {
            without_per(fields, trail, report);
            if shared.is_none() {
                return (report.errors() == before).then_some(None);
            }
            Some(Vec::new())
        }
    };
    let max_keys = match fields.get("max_keys", trail, report) {
        None => Some(Per::DEFAULT_MAX_KEYS),
        Some(n) => {
            let range = 1..=u64::from(Per::MAX_MAX_KEYS);
            count(n, &trail.field("max_keys"), range, report).and_then(|n| u32::try_from(n).ok())
        }
    };
    let overflow = match fields.get("overflow", trail, report) {
        None => Some(Overflow::Observe),
        Some(n) => overflow(n, mode, &trail.field("overflow"), report),
    };
    let values = match (fields.get("values", trail, report), &own) {
        (None, _) => Some(Values::new()),
        (Some(node), Some(own)) if !own.is_empty() => {
            values(node, own, mode, &trail.field("values"), report)
        }
        (Some(_), _) => None,
    };
    let mut dimensions = own?;
    if let Some(shared) = shared {
        sharing::join(&mut dimensions, shared, trail, report);
    }
    let (max_keys, overflow, values) = (max_keys?, overflow?, values?);
    if values.len() > max_keys as usize {
        let at = fields.key_at("max_keys").or(fields.key_at("values")).unwrap_or(fields.at);
        let p = Problem::new(format!(
            "max_keys is {}, but {} values are listed, and each needs a key",
            grouped(u64::from(max_keys)),
            grouped(values.len() as u64)
        ))
        .help("raise max_keys above the number of values that are in use at once");
        report.error(at, &trail.field("max_keys"), p);
    }
    (report.errors() == before).then_some(Some(Per { dimensions, values, max_keys, overflow }))
}

fn without_per(fields: &Fields<'_>, trail: &Trail<'_>, report: &mut Report<'_>) {
    for field in ONLY_WITH_PER {
        let Some(at) = fields.key_at(field) else { continue };
        let p = match (field, fields.has("fair_by")) {
            ("values", true) => Problem::new(
                "`values` needs `per`: the values of `fair_by` share one limit and have none of their own",
            )
            .help("remove it"),
            (_, true) => continue,
            (_, false) => {
                Problem::new(format!("`{field}` needs `per`: there are no values to tell apart"))
                    .help("add per: [dimension], or remove this")
            }
        };
        report.error(at, &trail.field(field), p);
    }
}

fn dimensions(node: &Node, trail: &Trail<'_>, report: &mut Report<'_>) -> Option<Vec<Name>> {
    let items = match &node.value {
        Value::List(items) => items,
        Value::Reported => return None,
        Value::Scalar { text, .. } => {
            let p = Problem::new("expected a list of dimensions").help(format!("write [{text}]"));
            report.error(node.at, trail, p);
            return None;
        }
        Value::Map(_) => {
            report.error(node.at, trail, "expected a list of dimensions, found a map");
            return None;
        }
    };
    if items.is_empty() {
        let p = Problem::new("an empty list of dimensions tells nothing apart")
            .help("name a dimension, or remove `per`: then all requests have one count");
        report.error(node.at, trail, p);
        return None;
    }
    if items.len() > Per::MAX_DIMENSIONS {
        let p = format!("{} dimensions; the most is {}", items.len(), Per::MAX_DIMENSIONS);
        report.error(node.at, trail, p);
        return None;
    }
    let before = report.errors();
    let mut found: Vec<Name> = Vec::with_capacity(items.len());
    for (i, item) in items.iter().enumerate() {
        let trail = trail.item(i);
        let Some(name) = name(item, &trail, "the name of a dimension", report) else { continue };
        if found.contains(&name) {
            report.error(
                item.at,
                &trail,
                format!("the dimension {} stands here twice", quoted(name.as_str())),
            );
        }
        found.push(name);
    }
    (report.errors() == before).then_some(found)
}

fn overflow(
    node: &Node,
    mode: Option<Mode>,
    trail: &Trail<'_>,
    report: &mut Report<'_>,
) -> Option<Overflow> {
    if let Value::Scalar { text, .. } = &node.value
        && text == "observe"
    {
        return Some(Overflow::Observe);
    }
    if let Value::Scalar { text, .. } = &node.value
        && text != "unlimited"
        && !text.contains(|c: char| c == '/' || c.is_ascii_digit())
    {
        let p = Problem::new(format!(
            "{} is not an overflow; expected `observe` or a limit such as 100/s",
            quoted(text)
        ));
        report.error(node.at, trail, p);
        return None;
    }
    if mode == Some(Mode::Observe) {
        let p =
            Problem::new("a bucket with `mode: observe` has no limits, so its overflow has none")
                .help("remove it, or write overflow: observe");
        report.error(node.at, trail, p);
        return None;
    }
    match limit::standing_alone(node, trail, report)? {
        Limit::Unlimited => Some(Overflow::Observe),
        limit @ Limit::Tokens(_) => Some(Overflow::Limit(limit)),
    }
}

fn values(
    node: &Node,
    dimensions: &[Name],
    mode: Option<Mode>,
    trail: &Trail<'_>,
    report: &mut Report<'_>,
) -> Option<Values> {
    if mode == Some(Mode::Observe) {
        let p =
            Problem::new("a bucket with `mode: observe` has no limits, so its values have none")
                .help("remove `values`, or choose another mode");
        report.error(node.at, trail, p);
        return None;
    }
    let entries = match &node.value {
        Value::Map(entries) => entries.len(),
        Value::List(items) => items.len(),
        Value::Scalar { .. } | Value::Reported => 0,
    };
    if entries > MAX_VALUES {
        let (n, most) = (grouped(entries as u64), grouped(MAX_VALUES as u64));
        report.error(node.at, trail, format!("{n} values; the most is {most} a bucket"));
        return None;
    }
    match &node.value {
        Value::Map(entries) if dimensions.len() == 1 => {
            by_value(entries, &dimensions[0], trail, report)
        }
        Value::List(items) => by_list(items, dimensions, trail, report),
        Value::Reported => None,
        Value::Map(_) | Value::Scalar { .. } => {
            let names: Vec<&str> = dimensions.iter().map(Name::as_str).collect();
            let p = match names.as_slice() {
                [_] => Problem::new(format!(
                    "expected a map of value and limit, found {}",
                    node.kind()
                ))
                .help("write { \"12345\": 500/s }"),
                _ => Problem::new(format!(
                    "`per` has {} dimensions, so `values` must be a list",
                    names.len()
                ))
                .help(format!(
                    "write - {{ values: {{ {}: ... }}, limit: 5/s }}",
                    names.join(": ..., ")
                )),
            };
            report.error(node.at, trail, p);
            None
        }
    }
}

fn by_value(
    entries: &[(Key, Node)],
    dimension: &Name,
    trail: &Trail<'_>,
    report: &mut Report<'_>,
) -> Option<Values> {
    let mut found = Some(Values::new());
    for (key, node) in entries {
        let at_value = trail.field(&key.text);
        let value = VALUES.check(&key.text, key.plain, key.at, dimension, trail, report);
        let limit = limit::standing_alone(node, &at_value, report);
        match (found.as_mut(), value, limit) {
            (Some(all), Some(value), Some(limit)) => {
                all.insert(vec![value], limit);
            }
            _ => found = None,
        }
    }
    found
}

fn by_list(
    items: &[Node],
    dimensions: &[Name],
    trail: &Trail<'_>,
    report: &mut Report<'_>,
) -> Option<Values> {
    let mut found = Some(Values::new());
    let mut lines: BTreeMap<Vec<Box<str>>, u32> = BTreeMap::new();
    for (i, item) in items.iter().enumerate() {
        let trail = trail.item(i);
        let Some((values, limit)) = listed(item, dimensions, &trail, report) else {
            found = None;
            continue;
        };
        if let Some(line) = lines.get(&values) {
            let p = format!("the same values have a limit on line {line} already");
            report.error(item.at, &trail, p);
            found = None;
            continue;
        }
        lines.insert(values.clone(), item.at.line);
        if let Some(all) = found.as_mut() {
            all.insert(values, limit);
        }
    }
    found
}

fn listed(
    item: &Node,
    dimensions: &[Name],
    trail: &Trail<'_>,
    report: &mut Report<'_>,
) -> Option<(Vec<Box<str>>, Limit)> {
    const SHAPE: &str = "write { values: { dimension: value }, limit: 5/s }";
    let fields = Fields::of(item, trail, "an entry of `values`", &VALUE, report)?;
    let values = fields
        .require("values", trail, SHAPE, report)
        .and_then(|node| combination(node, dimensions, &trail.field("values"), report));
    let limit = match fields.has("limit") {
        true => limit::beside(&fields, trail, report).flatten(),
        false => {
            fields.require("limit", trail, SHAPE, report);
            None
        }
    };
    Some((values?, limit?))
}

fn combination(
    node: &Node,
    dimensions: &[Name],
    trail: &Trail<'_>,
    report: &mut Report<'_>,
) -> Option<Vec<Box<str>>> {
    let Value::Map(entries) = &node.value else {
        if !matches!(node.value, Value::Reported) {
            let p = format!("expected a map of dimension and value, found {}", node.kind());
            report.error(node.at, trail, p);
        }
        return None;
    };
    let before = report.errors();
    let names: Vec<&str> = dimensions.iter().map(Name::as_str).collect();
    let mut meant = Vec::new();
    for (key, _) in entries {
        if !names.contains(&key.text.as_str()) {
            let near = nearest(&key.text, names.iter().copied());
            meant.extend(near);
            let help = match near {
                Some(name) => format!("did you mean `{name}`?"),
                None => format!("`per` names {}", names.join(", ")),
            };
            let p = Problem::new(format!("{} is not in `per`", quoted(&key.text))).help(help);
            report.error(key.at, trail, p);
        }
    }
    let mut values = Vec::with_capacity(dimensions.len());
    for dimension in dimensions {
        let Some((_, node)) = entries.iter().find(|(k, _)| k.text == dimension.as_str()) else {
            if !meant.contains(&dimension.as_str()) {
                let p = format!("the value of {} is missing", quoted(dimension.as_str()));
                report.error(node.at, trail, p);
            }
            continue;
        };
        let trail = trail.field(dimension.as_str());
        values.extend(VALUES.read(node, dimension, &trail, report));
    }
    (report.errors() == before).then_some(values)
}
