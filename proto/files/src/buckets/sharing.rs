//! `fair_by` and `priority`: dimensions whose values share one limit, and whose demand comes first.

use sluicegate_model::{Classes, Name, Per, Sharing};

use super::fields::PRIORITY;
use super::value::Exact;
use crate::diagnostic::{At, Problem, Report, quoted};
use crate::suggest::nearest;
use crate::tree::{Node, Value};
use crate::walk::{Fields, Trail, name, scalar};

/// A dimension whose values share one limit.
pub(super) struct Shared {
    dimension: Name,
    pub(super) sharing: Sharing,
    field: &'static str,
    at: At,
}

const CLASS: Exact<'static> = Exact {
    list: "`order`",
    otherwise: "requests with another value are in the `default` class",
    pattern: "list each value, or leave it to the `default` class",
};

/// Reads `fair_by` or `priority`. The outer `None` says that something was wrong.
pub(super) fn shared(
    fields: &Fields<'_>,
    trail: &Trail<'_>,
    report: &mut Report<'_>,
) -> Option<Option<Shared>> {
    let before = report.errors();
    if let (true, Some(at)) = (fields.has("fair_by"), fields.key_at("priority")) {
        let p = Problem::new("a bucket has `fair_by` or `priority`, not both")
            .help("keep the one that says who comes first here, or make two buckets of it");
        report.error(at, &trail.field("priority"), p);
    }
    let fair = fields.get("fair_by", trail, report).and_then(|node| {
        let dimension = name(node, &trail.field("fair_by"), "the name of a dimension", report)?;
        Some(Shared { dimension, sharing: Sharing::Fair, field: "fair_by", at: node.at })
    });
    let ranked = fields
        .get("priority", trail, report)
        .and_then(|node| ranked(node, &trail.field("priority"), report));
    (report.errors() == before).then(|| fair.or(ranked))
}

/// Puts the dimension behind those of `per`.
pub(super) fn join(
    per: &mut Vec<Name>,
    shared: &Shared,
    trail: &Trail<'_>,
    report: &mut Report<'_>,
) {
    let trail = trail.field(shared.field);
    let all = per.len() + 1;
    if per.contains(&shared.dimension) {
        let p = Problem::new(format!(
            "{} stands in `per` too, so each of its values has a limit for itself and shares none",
            quoted(shared.dimension.as_str())
        ))
        .help("name another dimension, or take this one out of `per`");
        report.error(shared.at, &trail, p);
    } else if all > Per::MAX_DIMENSIONS {
        let most = Per::MAX_DIMENSIONS;
        let p = format!("{all} dimensions, those of `per` included; the most is {most}");
        report.error(shared.at, &trail, p);
    }
    per.push(shared.dimension.clone());
}

fn ranked(node: &Node, trail: &Trail<'_>, report: &mut Report<'_>) -> Option<Shared> {
    const SHAPE: &str = "write { dimension: tier, order: [gold, silver] }";
    let fields = Fields::of(node, trail, "`priority`", &PRIORITY, report)?;
    let dimension = fields.require("dimension", trail, SHAPE, report).and_then(|node| {
        let trail = trail.field("dimension");
        Some((name(node, &trail, "the name of a dimension", report)?, node.at))
    });
    let order = fields.require("order", trail, SHAPE, report);
    let default = fields.get("default", trail, report);
    let (dimension, at) = dimension?;
    let order = order.and_then(|n| order_of(n, &dimension, &trail.field("order"), report))?;
    let default = match default {
        Some(node) => place(node, &order, &trail.field("default"), report)?,
        None if fields.has("default") => return None,
        None => order.len() - 1,
    };
    let sharing = Sharing::Priority(Classes { order, default });
    Some(Shared { dimension, sharing, field: "priority", at })
}

fn order_of(
    node: &Node,
    dimension: &Name,
    trail: &Trail<'_>,
    report: &mut Report<'_>,
) -> Option<Vec<Box<str>>> {
    let items = match &node.value {
        Value::List(items) => items,
        Value::Reported => return None,
        Value::Scalar { .. } | Value::Map(_) => {
            let p = Problem::new(format!("expected a list of classes, found {}", node.kind()))
                .help("write [gold, silver], the best first");
            report.error(node.at, trail, p);
            return None;
        }
    };
    if !(2..=Classes::MAX).contains(&items.len()) {
        let help = match items.len() {
            0 | 1 => "with one class, no request comes before another: name two, or remove it",
            _ => "leave the rest to one class: requests with another value are in the `default`",
        };
        let (n, most) = (items.len(), Classes::MAX);
        let p = Problem::new(format!("expected 2 to {most} classes, found {n}")).help(help);
        report.error(node.at, trail, p);
        return None;
    }
    let before = report.errors();
    let mut order: Vec<Box<str>> = Vec::with_capacity(items.len());
    for (i, item) in items.iter().enumerate() {
        let trail = trail.item(i);
        let Some(class) = CLASS.read(item, dimension, &trail, report) else { continue };
        if order.contains(&class) {
            let p = format!("the class {} stands here twice", quoted(&class));
            report.error(item.at, &trail, p);
        }
        order.push(class);
    }
    (report.errors() == before).then_some(order)
}

fn place(
    node: &Node,
    order: &[Box<str>],
    trail: &Trail<'_>,
    report: &mut Report<'_>,
) -> Option<usize> {
    let text = scalar(node, trail, "a class of `order`", report)?;
    let place = order.iter().position(|class| **class == *text);
    if place.is_none() {
        let help = match nearest(text, order.iter().map(|c| &**c)) {
            Some(class) => format!("did you mean `{class}`?"),
            None => format!("`order` lists {}", order.join(", ")),
        };
        let p = Problem::new(format!("{} is not a class of `order`", quoted(text))).help(help);
        report.error(node.at, trail, p);
    }
    place
}
