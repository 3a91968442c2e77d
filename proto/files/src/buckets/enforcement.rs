//! `enforce`, `max_drop` and `guard`: how much of a limit is enforced, and how soon.

use sluicegate_model::{Bucket, Limit, Overflow};

use super::fields::GUARD;
use crate::diagnostic::{Problem, Report};
use crate::scalar;
use crate::tree::{Node, Value};
use crate::walk::{Fields, Trail, scalar as text_of, word};

/// What a bucket says of it.
pub(super) struct Enforcement {
    pub(super) guard: bool,
    pub(super) enforce: f64,
    pub(super) max_drop: f64,
}

/// Reads the three fields.
pub(super) fn enforcement(
    fields: &Fields<'_>,
    trail: &Trail<'_>,
    report: &mut Report<'_>,
) -> Option<Enforcement> {
    let guard = match fields.get("guard", trail, report) {
        None => Some(false),
        Some(node) => guard(node, &trail.field("guard"), report),
    };
    let enforce = share("enforce", fields, trail, report);
    let max_drop = share("max_drop", fields, trail, report);
    Some(Enforcement { guard: guard?, enforce: enforce?, max_drop: max_drop? })
}

fn guard(node: &Node, trail: &Trail<'_>, report: &mut Report<'_>) -> Option<bool> {
    let meant = match &node.value {
        Value::Scalar { text, .. } => match text.as_str() {
            "true" | "yes" => Some("on"),
            "false" | "no" => Some("off"),
            _ => None,
        },
        Value::List(_) | Value::Map(_) | Value::Reported => None,
    };
    if let Some(meant) = meant {
        let p = Problem::new("expected `on` or `off`").help(format!("write guard: {meant}"));
        report.error(node.at, trail, p);
        return None;
    }
    word(node, trail, &GUARD, report)
}

fn share(
    field: &'static str,
    fields: &Fields<'_>,
    trail: &Trail<'_>,
    report: &mut Report<'_>,
) -> Option<f64> {
    if !fields.has(field) {
        return Some(1.0);
    }
    let node = fields.get(field, trail, report)?;
    let trail = trail.field(field);
    let text = text_of(node, &trail, "a share such as 0.25 or 25%", report)?;
    scalar::share(text).map_err(|p| report.error(node.at, &trail, p)).ok()
}

/// Warns of what is set and changes nothing.
pub(super) fn warn(
    bucket: &Bucket,
    fields: &Fields<'_>,
    trail: &Trail<'_>,
    report: &mut Report<'_>,
) {
    let mut warn = |field: &'static str, problem: Problem| {
        if let Some(at) = fields.key_at(field) {
            report.warn(at, &trail.field(field), problem);
        }
    };
    if bucket.guard && bucket.is_softened() {
        let p = Problem::new("the guard is off where not every drop is enforced")
            .help("remove it until `enforce` and `max_drop` are gone");
        warn("guard", p);
    } else if bucket.guard && !limits(bucket).any(|l| l.rate_rps() > Some(Limit::LOW_RPS)) {
        let p = Problem::new(format!(
            "the guard is off for limits up to {}/s, and no limit here is above that",
            Limit::LOW_RPS
        ))
        .help("remove it");
        warn("guard", p);
    }
    if bucket.enforce < 1.0 && (bucket.enforce..1.0).contains(&bucket.max_drop) {
        let p = Problem::new("`enforce` never drops more than this anyway")
            .help("lower `max_drop`, or remove one of the two");
        warn("max_drop", p);
    }
    if bucket.shares_whole() {
        let p = Problem::new(
            "all values share the one limit, also those beyond `max_keys`, so this changes nothing",
        )
        .help("remove it");
        warn("overflow", p);
    }
}

/// Whether any request can be over a limit here.
pub(super) fn is_limited(bucket: &Bucket) -> bool {
    limits(bucket).any(|l| l != Limit::Unlimited)
}

/// Every limit of the bucket.
fn limits(bucket: &Bucket) -> impl Iterator<Item = Limit> {
    let per = bucket.per.as_ref();
    let values = per.into_iter().flat_map(|p| p.values.values().copied());
    let overflow = per.and_then(|p| match p.overflow {
        Overflow::Observe => None,
        Overflow::Limit(limit) => Some(limit),
    });
    std::iter::once(bucket.limit).chain(values).chain(overflow)
}
