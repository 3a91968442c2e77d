//! Bucket files: one service a file, YAML text to a validated [`ServiceBuckets`], with everything
//! that is wrong reported at once. Does no I/O; [`load_dir`] is where directories are read.

mod enforcement;
pub(crate) mod fields;
mod limit;
mod load;
mod per;
mod rule;
mod sharing;
mod value;

use std::collections::HashMap;

use sluicegate_model::{
    Bucket, Law, Limit, MAX_BUCKETS_PER_SERVICE, Mode, Name, Owner, Rule, Scope, Select,
    ServiceBuckets,
};

pub use fields::{API_VERSION, MAX_DIMENSIONS, MAX_NOT, MAX_PATTERNS, MAX_TEXT_BYTES, MAX_VALUES};
pub use load::{Failed, Loaded, MAX_FILES, MAX_TOTAL_BYTES, load_dir, load_files};

use crate::diagnostic::{At, Diagnostic, Problem, Report, Severity, quoted};
use crate::node::Kind;
use crate::source;
use crate::tree::{self, Key, Node, Tree, Value};
use crate::walk::{Fields, Trail, grouped, name, scalar, word};
use enforcement::Enforcement;
use fields::{
    BUCKET, MODES, ON_CONTROL_LOSS, ONLY_UNDER_GRANT, ONLY_WITH_LIMIT, SCOPES, SELECTS, SERVICE,
};

/// What a bucket file says.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    /// The service with its buckets, if there are no errors.
    pub service: Option<ServiceBuckets>,
    /// The name of the service as far as it can be told, errors or not.
    pub name: Option<Name>,
    /// What may not be meant, in the order of the file.
    pub warnings: Vec<Diagnostic>,
    /// What is wrong, in the order of the file.
    pub errors: Vec<Diagnostic>,
}

/// Reads a bucket file for a control plane under the law grant. `path` is what messages call it.
#[must_use]
pub fn parse(path: &str, text: &str) -> Parsed {
    parse_bytes(path, text.as_bytes(), Law::Grant)
}

/// As [`parse`], for bytes that may not be text, under `law`.
#[must_use]
pub fn parse_bytes(path: &str, bytes: &[u8], law: Law) -> Parsed {
    let text = match source::text(path, bytes) {
        Ok(text) => text,
        Err(error) => {
            return Parsed {
                service: None,
                name: None,
                warnings: Vec::new(),
                errors: vec![*error],
            };
        }
    };
    let mut report = Report::new(path, text);
    let (service, name) = match tree::read(text, &mut report) {
        Tree::Whole(root) => (service(&root, law, &mut report), service_name(&root)),
        Tree::Broken(entries) => (None, name_in(&entries)),
        Tree::Nothing => {
            let p = Problem::new("the file is empty")
                .help("a bucket file begins with `apiVersion: sluicegate/v1`");
            report.error(At { line: 1, column: 1, width: 0 }, &"", p);
            (None, None)
        }
    };
    let (errors, warnings) = report.finish();
    let service = service.filter(|_| errors.is_empty());
    debug_assert_eq!(service.is_some(), errors.is_empty(), "nothing is refused without a reason");
    Parsed { service, name, warnings, errors }
}

fn service_name(root: &Node) -> Option<Name> {
    match &root.value {
        Value::Map(entries) => name_in(entries),
        Value::Scalar { .. } | Value::List(_) | Value::Reported => None,
    }
}

fn name_in(entries: &[(Key, Node)]) -> Option<Name> {
    let (_, node) = entries.iter().find(|(key, _)| key.text == "service")?;
    match &node.value {
        Value::Scalar { text, .. } if !node.is_null() => Name::new(text).ok(),
        Value::Scalar { .. } | Value::List(_) | Value::Map(_) | Value::Reported => None,
    }
}

fn service(root: &Node, law: Law, report: &mut Report<'_>) -> Option<ServiceBuckets> {
    let trail = Trail::Top;
    if root.is_null() {
        let p = Problem::new("the document is empty")
            .help("a bucket file begins with `apiVersion: sluicegate/v1`");
        report.error(root.at, &trail, p);
        return None;
    }
    if let Value::Map(entries) = &root.value
        && let Some((key, kind)) = entries.iter().find(|(key, _)| key.text == "kind")
        && !entries.iter().any(|(key, _)| key.text == "service")
    {
        report.error(key.at, &trail.field("kind"), not_buckets(kind));
        return None;
    }
    let fields = Fields::of(root, &trail, "a bucket file", &SERVICE, report)?;
    api_version(&fields, "apiVersion: sluicegate/v1", report);
    let service = fields
        .require("service", &trail, "name the service that the buckets protect", report)
        .and_then(|n| name(n, &trail.field("service"), "the name of the service", report));
    let owner = Owner {
        owner: text(&fields, "owner", report),
        contact: text(&fields, "contact", report),
        runbook: text(&fields, "runbook", report),
    };
    let select = match fields.get("select", &trail, report) {
        None => Some(Select::default()),
        Some(n) => word(n, &trail.field("select"), &SELECTS, report),
    };
    let buckets = fields
        .require(
            "buckets",
            &trail,
            "list the buckets; `buckets: []` is a service without limits",
            report,
        )
        .and_then(|n| buckets(n, law, &trail.field("buckets"), report));
    Some(ServiceBuckets { service: service?, owner, select: select?, buckets: buckets? })
}

/// What a file with a `kind` is instead.
fn not_buckets(kind: &Node) -> Problem {
    match &kind.value {
        Value::Scalar { text, .. } if text == "ConfigMap" => Problem::new(
            "this is a ConfigMap of Kubernetes; expected a bucket file, which has no `kind`",
        )
        .help("a bucket file is the text under one of the names in its `data`, without the rest"),
        Value::Scalar { text, .. } if Kind::nearest(text).is_none() => Problem::new(format!(
            "{} is no kind of file that this program reads; expected a bucket file, which has no `kind`",
            quoted(text)
        ))
        .help("a bucket file begins with `apiVersion: sluicegate/v1` and `service: ...`"),
        Value::Scalar { .. } | Value::List(_) | Value::Map(_) | Value::Reported => Problem::new(
            "this is a file of node settings; expected a bucket file, which has no `kind`",
        )
        .help("keep bucket files in a directory of their own"),
    }
}

/// Checks `apiVersion`, which every file has.
pub(crate) fn api_version(fields: &Fields<'_>, help: &str, report: &mut Report<'_>) {
    let trail = Trail::Top;
    let help = format!("the file begins with `{help}`");
    let Some(node) = fields.require("apiVersion", &trail, &help, report) else { return };
    let trail = trail.field("apiVersion");
    let Some(text) = scalar(node, &trail, "`sluicegate/v1`", report) else { return };
    if text != API_VERSION {
        let p = Problem::new(format!(
            "{} is not a version that this program reads; expected `{API_VERSION}`",
            quoted(text)
        ));
        report.error(node.at, &trail, p);
    }
}

fn text(fields: &Fields<'_>, field: &'static str, report: &mut Report<'_>) -> Option<String> {
    let trail = Trail::Top;
    let node = fields.get(field, &trail, report)?;
    let trail = trail.field(field);
    let text = scalar(node, &trail, "a text", report)?;
    if text.len() > MAX_TEXT_BYTES {
        let p = format!("the text is {} bytes long, the most is {MAX_TEXT_BYTES}", text.len());
        report.error(node.at, &trail, p);
    } else if text.chars().any(|c| c.is_control() && c != '\n') {
        report.error(node.at, &trail, "the text holds a control character");
    }
    Some(text.to_owned())
}

fn buckets(
    node: &Node,
    law: Law,
    trail: &Trail<'_>,
    report: &mut Report<'_>,
) -> Option<Vec<Bucket>> {
    let items = match &node.value {
        Value::List(items) => items,
        Value::Reported => return None,
        Value::Scalar { .. } | Value::Map(_) => {
            let p = Problem::new(format!("expected a list of buckets, found {}", node.kind()))
                .help("each bucket begins with `- name: ...`");
            report.error(node.at, trail, p);
            return None;
        }
    };
    if items.len() > MAX_BUCKETS_PER_SERVICE {
        let (n, most) = (grouped(items.len() as u64), grouped(MAX_BUCKETS_PER_SERVICE as u64));
        report.error(node.at, trail, format!("{n} buckets; the most is {most} a service"));
        return None;
    }
    let mut lines: HashMap<Name, u32> = HashMap::with_capacity(items.len());
    let mut found = Some(Vec::with_capacity(items.len()));
    for (i, item) in items.iter().enumerate() {
        match (bucket(item, law, &trail.item(i), &mut lines, report), found.as_mut()) {
            (Some(bucket), Some(all)) => all.push(bucket),
            _ => found = None,
        }
    }
    found
}

fn bucket(
    node: &Node,
    law: Law,
    trail: &Trail<'_>,
    lines: &mut HashMap<Name, u32>,
    report: &mut Report<'_>,
) -> Option<Bucket> {
    let fields = Fields::of(node, trail, "a bucket", &BUCKET, report)?;
    let name = bucket_name(&fields, trail, lines, report);
    let scope: Option<Scope> = fields
        .require("scope", trail, "write scope: zone, scope: region or scope: global", report)
        .and_then(|n| word(n, &trail.field("scope"), &SCOPES, report));
    let rule = match fields.get("match", trail, report) {
        None => Some(Rule::default()),
        Some(n) => rule::rule(n, &trail.field("match"), report),
    };
    let mode = match fields.get("mode", trail, report) {
        None => Some(Mode::Deny),
        Some(n) => mode(n, &trail.field("mode"), report),
    };
    let limit = match mode {
        Some(Mode::Observe) => observed(&fields, trail, report),
        Some(Mode::Deny | Mode::Shadow) | None => limited(&fields, mode, trail, report),
    };
    let enforcement = enforcement::enforcement(&fields, trail, report);
    let shared = sharing::shared(&fields, trail, report);
    let per = per::per(&fields, shared.as_ref().and_then(Option::as_ref), mode, trail, report);
    let on_control_loss = match fields.get("on_control_loss", trail, report) {
        None => Some(sluicegate_model::OnControlLoss::default()),
        Some(n) => word(n, &trail.field("on_control_loss"), &ON_CONTROL_LOSS, report),
    };
    let Enforcement { guard, enforce, max_drop } = enforcement?;
    let bucket = Bucket {
        name: name?,
        scope: scope?,
        rule: rule?,
        limit: limit?,
        mode: mode?,
        per: per?,
        on_control_loss: on_control_loss?,
        guard,
        enforce,
        max_drop,
        sharing: shared?.map(|s| s.sharing),
    };
    has_effect(&bucket, law, &fields, trail, report).then_some(bucket)
}

/// Refuses what cannot have an effect, with this limit or under this law, and warns of what has none.
fn has_effect(
    bucket: &Bucket,
    law: Law,
    fields: &Fields<'_>,
    trail: &Trail<'_>,
    report: &mut Report<'_>,
) -> bool {
    let before = report.errors();
    if bucket.mode != Mode::Observe && !enforcement::is_limited(bucket) {
        for field in ONLY_WITH_LIMIT {
            let Some(at) = fields.key_at(field) else { continue };
            let p = Problem::new(format!("`{field}` means nothing where nothing is limited"))
                .help("remove it, or write a limit instead of `unlimited`");
            report.error(at, &trail.field(field), p);
        }
    }
    if law == Law::Ratio {
        let off = |field| field == "guard" && !bucket.guard;
        for field in ONLY_UNDER_GRANT.into_iter().filter(|f| !off(*f)) {
            let Some(at) = fields.key_at(field) else { continue };
            let p = Problem::new(format!(
                "`{field}` needs the law grant, and this control plane is under the law ratio"
            ))
            .help("remove it, or give the controllers the setting `law: grant`");
            report.error(at, &trail.field(field), p);
        }
    }
    let has_effect = report.errors() == before;
    if has_effect {
        enforcement::warn(bucket, fields, trail, report);
    }
    has_effect
}

fn bucket_name(
    fields: &Fields<'_>,
    trail: &Trail<'_>,
    lines: &mut HashMap<Name, u32>,
    report: &mut Report<'_>,
) -> Option<Name> {
    let node = fields.require(
        "name",
        trail,
        "metrics, dashboards and messages call the bucket by it",
        report,
    )?;
    let trail = trail.field("name");
    let found = name(node, &trail, "the name of a bucket", report)?;
    if let Some(line) = lines.get(&found) {
        let p = Problem::new(format!(
            "a bucket named {} stands on line {line} already",
            quoted(found.as_str())
        ))
        .help("each bucket of a service needs a name of its own");
        report.error(node.at, &trail, p);
        return None;
    }
    lines.insert(found.clone(), node.at.line);
    Some(found)
}

fn mode(node: &Node, trail: &Trail<'_>, report: &mut Report<'_>) -> Option<Mode> {
    if let Value::Scalar { text, .. } = &node.value
        && text == "allow"
    {
        let p = Problem::new(
            "`allow` is read as `shadow`: the bucket counts what it would drop, and drops nothing",
        )
        .help("write mode: shadow");
        report.warn(node.at, trail, p);
        return Some(Mode::Shadow);
    }
    word(node, trail, &MODES, report)
}

/// The limit of a bucket in `observe`: none, and nothing that belongs to one.
fn observed(fields: &Fields<'_>, trail: &Trail<'_>, report: &mut Report<'_>) -> Option<Limit> {
    let before = report.errors();
    let only_with_limit = ["limit", "burst", "on_control_loss"].into_iter().chain(ONLY_WITH_LIMIT);
    for field in only_with_limit {
        if let Some(at) = fields.key_at(field) {
            let p = Problem::new(format!(
                "a bucket with `mode: observe` only counts, so it has no `{field}`"
            ))
            .help("remove it; to see what a limit would drop, write mode: shadow");
            report.error(at, &trail.field(field), p);
        }
    }
    (report.errors() == before).then_some(Limit::Unlimited)
}

fn limited(
    fields: &Fields<'_>,
    mode: Option<Mode>,
    trail: &Trail<'_>,
    report: &mut Report<'_>,
) -> Option<Limit> {
    if mode.is_some() {
        let help = "write limit: 100/s; for a bucket that only counts, write mode: observe";
        fields.require("limit", trail, help, report)?;
    }
    limit::beside(fields, trail, report).flatten()
}

/// The finding about a file as a whole.
pub(crate) fn whole(path: &str, message: String) -> Diagnostic {
    Diagnostic::whole(Severity::Error, path, message)
}
