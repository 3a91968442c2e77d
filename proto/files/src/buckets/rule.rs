//! `match` and `not`.

use sluicegate_model::{MAX_VALUE_BYTES, Match, Name, Pattern, Patterns, Rule};

use super::fields::{MATCH, MAX_DIMENSIONS, MAX_NOT, MAX_PATTERNS, NOT};
use crate::diagnostic::{Problem, Report, quoted};
use crate::tree::{Key, Node, Value};
use crate::walk::{Fields, Trail, scalar};

const PATTERNS: &str = "a pattern (`exact`, `prefix*` or `*`) or a list of them";

/// Reads `match`.
pub(super) fn rule(node: &Node, trail: &Trail<'_>, report: &mut Report<'_>) -> Option<Rule> {
    let fields = Fields::of(node, trail, "`match`", &MATCH, report)?;
    let on = conditions(&fields, trail, report);
    let not = match fields.get("not", trail, report) {
        None => Some(Vec::new()),
        Some(node) => exclusions(node, &trail.field("not"), report),
    };
    Some(Rule { on: on?, not: not? })
}

fn exclusions(node: &Node, trail: &Trail<'_>, report: &mut Report<'_>) -> Option<Vec<Match>> {
    let Value::List(items) = &node.value else {
        return exclusion(node, trail, report).map(|m| vec![m]);
    };
    if items.len() > MAX_NOT {
        report.error(node.at, trail, format!("{} exclusions; the most is {MAX_NOT}", items.len()));
        return None;
    }
    let read: Vec<Option<Match>> =
        items.iter().enumerate().map(|(i, item)| exclusion(item, &trail.item(i), report)).collect();
    read.into_iter().collect()
}

fn exclusion(node: &Node, trail: &Trail<'_>, report: &mut Report<'_>) -> Option<Match> {
    let fields = Fields::of(node, trail, "`not`", &NOT, report)?;
    let before = report.errors();
    let found = conditions(&fields, trail, report)?;
    if found.is_empty() {
        if report.errors() == before {
            let p =
                Problem::new("an empty `not` excludes every request, so the bucket counts none")
                    .help("give it a condition, or remove it");
            report.error(node.at, trail, p);
        }
        return None;
    }
    Some(found)
}

fn conditions(fields: &Fields<'_>, trail: &Trail<'_>, report: &mut Report<'_>) -> Option<Match> {
    let built_in =
        |name: &'static str, report: &mut Report<'_>| match fields.get(name, trail, report) {
            None => Some(Patterns::new()),
            Some(node) => patterns(node, &trail.field(name), Empty::NeverSent, report),
        };
    let caller = built_in("caller", report);
    let procedure = built_in("procedure", report);
    let mut found = Some(Match { caller: caller?, procedure: procedure?, ..Match::default() });
    let Some(node) = fields.get("dimensions", trail, report) else {
        return found;
    };
    let trail = trail.field("dimensions");
    let entries = match &node.value {
        Value::Map(entries) => entries,
        Value::Reported => return None,
        Value::Scalar { .. } | Value::List(_) => {
            let p = Problem::new(format!("expected a map of dimensions, found {}", node.kind()))
                .help("write { workspace_id: \"*\" }");
            report.error(node.at, &trail, p);
            return None;
        }
    };
    if entries.len() > MAX_DIMENSIONS {
        let p = format!("{} dimensions; the most is {MAX_DIMENSIONS}", entries.len());
        report.error(node.at, &trail, p);
        return None;
    }
    for (key, node) in entries {
        let name = dimension(key, &trail, report);
        let fitting = patterns(node, &trail.field(&key.text), Empty::IsAValue, report);
        match (found.as_mut(), name, fitting) {
            (Some(all), Some(name), Some(fitting)) => {
                all.dimensions.insert(name, fitting);
            }
            _ => found = None,
        }
    }
    found
}

fn dimension(key: &Key, trail: &Trail<'_>, report: &mut Report<'_>) -> Option<Name> {
    if matches!(key.text.as_str(), "caller" | "procedure") {
        let text = &key.text;
        let p = Problem::new(format!("`{text}` is a built-in field, not a dimension"))
            .help(format!("move it out of `dimensions`: match: {{ {text}: ... }}"));
        report.error(key.at, trail, p);
        return None;
    }
    match Name::new(&key.text) {
        Ok(name) => Some(name),
        Err(e) => {
            report.error(key.at, trail, format!("the name of a dimension {e}"));
            None
        }
    }
}

/// What an empty value means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Empty {
    /// A request with an empty one counts as one without.
    NeverSent,
    /// It is a value like others.
    IsAValue,
}

fn patterns(
    node: &Node,
    trail: &Trail<'_>,
    empty: Empty,
    report: &mut Report<'_>,
) -> Option<Patterns> {
    let Value::List(items) = &node.value else {
        return pattern(node, trail, PATTERNS, empty, report).map(|p| vec![p]);
    };
    if items.is_empty() {
        let p = Problem::new("an empty list of patterns fits nothing")
            .help("list at least one pattern, or remove the field: then every value fits");
        report.error(node.at, trail, p);
        return None;
    }
    if items.len() > MAX_PATTERNS {
        report.error(
            node.at,
            trail,
            format!("{} patterns; the most is {MAX_PATTERNS}", items.len()),
        );
        return None;
    }
    let read: Vec<Option<Pattern>> = items
        .iter()
        .enumerate()
        .map(|(i, item)| {
            pattern(item, &trail.item(i), "a pattern (`exact`, `prefix*` or `*`)", empty, report)
        })
        .collect();
    read.into_iter().collect()
}

fn pattern(
    node: &Node,
    trail: &Trail<'_>,
    expected: &str,
    empty: Empty,
    report: &mut Report<'_>,
) -> Option<Pattern> {
    let text = scalar(node, trail, expected, report)?;
    if text.is_empty() && empty == Empty::NeverSent {
        let p = Problem::new("an empty text fits no request: an empty value counts as not given")
            .help("\"*\" fits every value that is given");
        report.error(node.at, trail, p);
        return None;
    }
    if text.len() > MAX_VALUE_BYTES {
        let p = format!("the pattern is {} bytes long, the most is {MAX_VALUE_BYTES}", text.len());
        report.error(node.at, trail, p);
        return None;
    }
    if text.trim() != text {
        let p =
            Problem::new(format!("the pattern {} begins or ends with white space", quoted(text)));
        report.warn(node.at, trail, p);
    }
    let fixed = text.strip_suffix('*').unwrap_or(text);
    if fixed.contains('*') {
        let p = Problem::new(format!(
            "in {} only a `*` at the end stands for any text; the other is taken as the character itself",
            quoted(text)
        ));
        report.warn(node.at, trail, p);
    }
    Some(Pattern::parse(text))
}
