//! `docs/simulator.md` lists every field of a scenario and every law. That part is made from the
//! types themselves; this test fails when the page and the types differ.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sluicegate_sim::rivals::Rivals;
use sluicegate_sim::scenario::{Bucket, Fault, Hops, Kind, Service, Workload};
use sluicegate_sim::{Law, Measure, Scenario, scenario};

const BEGIN: &str =
    "<!-- made from the types: UPDATE_REFERENCE=1 cargo test -p sluicegate-sim --test docs -->\n";
const END: &str = "<!-- until here -->\n";

/// Fields without a default in a type that has one for other uses.
const REQUIRED: [(&str, &str); 2] = [("Service", "service"), ("Service", "buckets")];

fn at(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(at(path)).expect("a file")
}

/// A struct or an enum as its source tells it: its words, and its fields or variants with theirs.
struct Type {
    about: String,
    members: Vec<(String, String)>,
}

/// Reads plain declarations: one member a line, documentation above it.
fn declared(source: &str, name: &str) -> Type {
    let head = [format!("pub struct {name} {{"), format!("pub enum {name} {{")];
    let mut found = Type { about: String::new(), members: Vec::new() };
    let (mut words, mut is_inside) = (String::new(), false);
    for line in source.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            let _ = write!(words, "{}{}", if words.is_empty() { "" } else { " " }, text.trim());
        } else if head.iter().any(|h| h == line) {
            found.about = std::mem::take(&mut words);
            is_inside = true;
        } else if line.starts_with('#') || line.starts_with("//") {
            continue;
        } else if is_inside && line == "}" {
            return found;
        } else {
            let member = line.trim_start_matches("pub ").split([':', ',', '(']).next();
            if let (true, Some(member)) = (is_inside, member) {
                found.members.push((member.to_owned(), words.clone()));
            }
            words.clear();
        }
    }
    panic!("there is no {name}");
}

/// Intra-doc links are for Rust's own pages.
fn plain(words: &str) -> String {
    words.replace("[`", "`").replace("`]", "`").replace("Fault::fault", "fault").replace('|', "\\|")
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "none".into(),
        Value::String(text) if text.is_empty() => "empty".into(),
        Value::Array(list) if list.is_empty() => "none".into(),
        Value::Object(fields) if fields.is_empty() => "none".into(),
        Value::Object(_) | Value::Array(_) => "see below".into(),
        Value::String(text) => format!("`{text}`"),
        other => {
            let text = other.to_string();
            format!("`{}`", text.strip_suffix(".0").unwrap_or(&text))
        }
    }
}

fn fields(page: &mut String, title: &str, source: &str, name: &str, defaults: &Value) {
    let declared = declared(source, name);
    let _ = write!(
        page,
        "\n#### {title}\n\n{}\n\n| field | default | what |\n|---|---|---|\n",
        plain(&declared.about)
    );
    if let Some(known) = defaults.as_object() {
        let mut known: Vec<&str> = known.keys().map(String::as_str).collect();
        let mut told: Vec<&str> = declared.members.iter().map(|(m, _)| m.as_str()).collect();
        known.sort_unstable();
        told.sort_unstable();
        assert_eq!(known, told, "{name}: what is read is what is told");
    }
    for (field, words) in &declared.members {
        assert!(!words.is_empty(), "{name}.{field} says nothing");
        let default = match defaults.get(field) {
            Some(value) if !REQUIRED.contains(&(name, field.as_str())) => shown(value),
            Some(_) | None => "must be given".into(),
        };
        let _ = writeln!(page, "| `{field}` | {default} | {} |", plain(words));
    }
}

/// As serde writes a variant's name.
fn kebab(variant: &str) -> String {
    let mut name = String::new();
    for c in variant.chars() {
        if c.is_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.extend(c.to_lowercase());
    }
    name
}

fn choices(page: &mut String, title: &str, source: &str, name: &str) {
    let declared = declared(source, name);
    let _ = write!(page, "\n#### {title}\n\n| value | what |\n|---|---|\n");
    for (variant, words) in &declared.members {
        let _ = writeln!(page, "| `{}` | {} |", kebab(variant), plain(words));
    }
}

/// Values that say enough themselves, or are those of bucket files.
fn values(page: &mut String, field: &str, source: &str, name: &str) {
    let members = declared(source, name).members;
    // One name is written with an underscore, as in bucket files; the rest are single words.
    let written = |variant: &str| kebab(variant).replace('-', "_");
    let names: Vec<String> = members.iter().map(|(v, _)| format!("`{}`", written(v))).collect();
    let _ = writeln!(page, "- `{field}`: {}", names.join(", "));
}

fn json(value: impl serde::Serialize) -> Value {
    serde_json::to_value(value).expect("JSON")
}

fn made() -> String {
    let types = read("src/scenario/types.rs");
    let parameters = read("src/rivals/parameters.rs");
    let mut page = String::new();
    fields(&mut page, "A scenario", &types, "Scenario", &json(Scenario::default()));
    fields(&mut page, "`hops`", &types, "Hops", &json(Hops::default()));
    choices(&mut page, "`hops.order`", &types, "Order");
    fields(&mut page, "One of `services`", &types, "Service", &json(Service::default()));
    fields(&mut page, "One of `buckets`", &types, "Bucket", &json(Bucket::default()));
    page.push_str("\nAs in [bucket files](reference/bucket-files.md):\n\n");
    for (field, name) in [
        ("select", "Select"),
        ("scope", "Scope"),
        ("mode", "Mode"),
        ("on_control_loss", "OnControlLoss"),
    ] {
        values(&mut page, field, &types, name);
    }
    fields(
        &mut page,
        "`workload`, and each of `more_workloads`",
        &types,
        "Workload",
        &json(Workload::default()),
    );
    choices(&mut page, "`workload.shape`", &types, "Shape");
    fields(&mut page, "`workload.retries`", &types, "Retries", &Value::Null);
    fields(&mut page, "One of `workload.mix`", &types, "Kind", &json(Kind::default()));
    fields(&mut page, "One of `faults`", &types, "Fault", &json(Fault::default()));
    choices(&mut page, "`fault`", &types, "FaultKind");
    choices(&mut page, "`tier`", &types, "Tier");
    choices(&mut page, "`way`", &types, "Way");
    let defaults = json(Rivals::default());
    for (field, name) in [
        ("proxy_bucket", "ProxyBucket"),
        ("envoy_redis", "EnvoyRedis"),
        ("batch_window", "BatchWindow"),
        ("batch_rate", "BatchRate"),
        ("batch_bucket", "BatchBucket"),
        ("prefetch", "Prefetch"),
    ] {
        fields(&mut page, &format!("`rivals.{field}`"), &parameters, name, &defaults[field]);
    }
    assert_eq!(defaults.as_object().map(serde_json::Map::len), Some(6), "every rival is told");
    choices(&mut page, "`route`", &parameters, "Route");
    choices(&mut page, "`store`", &parameters, "Store");
    choices(&mut page, "`sharing`", &parameters, "Sharing");
    page.push('\n');
    page
}

#[test]
fn the_page_lists_every_field() {
    let path = at("../docs/simulator.md");
    let page = std::fs::read_to_string(&path).expect("the page");
    let (before, rest) = page.split_once(BEGIN).expect("the beginning mark");
    let (found, after) = rest.split_once(END).expect("the end mark");
    let wanted = made();
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{wanted}{END}{after}")).expect("written");
        return;
    }
    assert!(
        found == wanted,
        "docs/simulator.md differs from the types; \
         UPDATE_REFERENCE=1 cargo test -p sluicegate-sim --test docs writes it anew"
    );
}

#[test]
fn the_page_tells_every_law_measure_and_scenario() {
    let page = read("../docs/simulator.md");
    let laws = Law::ALL.iter().map(|l| l.name());
    let measures = Measure::ALL.iter().map(|m| m.name());
    let scenarios = scenario::builtins().iter().map(|b| b.name);
    for name in laws.chain(measures).chain(scenarios) {
        assert!(page.contains(&format!("| `{name}` |")), "docs/simulator.md does not tell {name}");
    }
}

#[test]
fn the_examples_of_the_page_are_scenarios() {
    let page = read("../docs/simulator.md");
    let blocks = page.split("```yaml\n").skip(1).filter_map(|b| b.split("```").next());
    let examples: Vec<&str> = blocks.collect();
    assert!(!examples.is_empty());
    for example in examples {
        scenario::parse("example", example, &[]).unwrap_or_else(|e| panic!("{e}:\n{example}"));
    }
}
