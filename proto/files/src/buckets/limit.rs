//! Limits in their shapes: a text, `{requests, window}`, or one of these with a burst.

use sluicegate_model::{Limit, TokenRate};

use super::fields::{LIMIT_WITH_BURST, RATE};
use crate::diagnostic::{At, Problem, Report};
use crate::scalar::{self, LIMIT_SHAPES, Rate};
use crate::tree::{Node, Value};
use crate::walk::{Fields, Trail, count, scalar as text_of};

const WINDOW_HELP: &str = "write {requests: 5, window: 10s}";

/// Reads a limit without its burst.
pub(super) fn rate(node: &Node, trail: &Trail<'_>, report: &mut Report<'_>) -> Option<Rate> {
    match &node.value {
        Value::Map(_) => window(node, trail, report),
        Value::Reported => None,
        Value::List(_) => {
            report.error(node.at, trail, format!("{LIMIT_SHAPES}, found a list"));
            None
        }
        Value::Scalar { .. } => {
            let text = text_of(node, trail, "a limit", report)?;
            match scalar::rate(text) {
                Ok(rate) => Some(rate),
                Err(p) => {
                    report.error(node.at, trail, p);
                    None
                }
            }
        }
    }
}

fn window(node: &Node, trail: &Trail<'_>, report: &mut Report<'_>) -> Option<Rate> {
    let fields = Fields::of(node, trail, "a limit", &RATE, report)?;
    if fields.has("policy") {
        return None;
    }
    let requests = fields
        .require("requests", trail, WINDOW_HELP, report)
        .and_then(|n| count(n, &trail.field("requests"), 0..=TokenRate::MAX_REQUESTS, report));
    let window = fields.require("window", trail, WINDOW_HELP, report).and_then(|n| {
        let trail = trail.field("window");
        let text = text_of(n, &trail, "a duration such as 10s", report)?;
        scalar::duration(text).map_err(|p| report.error(n.at, &trail, p)).ok()
    });
    Some(Rate::PerWindow(requests?, window?))
}

/// Puts a limit and the burst beside it together.
fn combine(
    rate: (Rate, At),
    burst: Option<(u64, At)>,
    trail: &Trail<'_>,
    limit_trail: &Trail<'_>,
    report: &mut Report<'_>,
) -> Option<Limit> {
    if let (Rate::Unlimited, Some((_, at))) = (rate.0, burst) {
        let p = Problem::new("`burst` means nothing beside `unlimited`").help("remove one of them");
        report.error(at, &trail.field("burst"), p);
        return None;
    }
    match rate.0.with_burst(burst.map(|(n, _)| n)) {
        Ok(limit) => Some(limit),
        Err(p) => {
            report.error(rate.1, limit_trail, p);
            None
        }
    }
}

/// Reads the `limit` and `burst` of a map that has both. The outer `None` says that something was
/// wrong, the inner that there is no `limit`.
pub(super) fn beside(
    fields: &Fields<'_>,
    trail: &Trail<'_>,
    report: &mut Report<'_>,
) -> Option<Option<Limit>> {
    let before = report.errors();
    let read_burst = fields.get("burst", trail, report).and_then(|n| {
        let range = 1..=TokenRate::MAX_REQUESTS;
        Some((count(n, &trail.field("burst"), range, report)?, n.at))
    });
    let Some(node) = fields.get("limit", trail, report) else {
        return (report.errors() == before).then_some(None);
    };
    let rate = rate(node, &trail.field("limit"), report)?;
    if report.errors() > before {
        return None;
    }
    combine((rate, node.at), read_burst, trail, &trail.field("limit"), report).map(Some)
}

/// Reads the limit of a value or an overflow: any shape of limit, or `{limit, burst}`.
pub(super) fn standing_alone(
    node: &Node,
    trail: &Trail<'_>,
    report: &mut Report<'_>,
) -> Option<Limit> {
    if let Value::Map(entries) = &node.value
        && !entries.iter().any(|(k, _)| matches!(k.text.as_str(), "requests" | "window" | "policy"))
    {
        let fields = Fields::of(node, trail, "a limit with a burst", &LIMIT_WITH_BURST, report)?;
        fields.require("limit", trail, "write {limit: 50/s, burst: 100}", report)?;
        return beside(&fields, trail, report).flatten();
    }
    let rate = rate(node, trail, report)?;
    combine((rate, node.at), None, trail, trail, report)
}
