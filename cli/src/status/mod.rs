//! `sluice status`: who is limited, by which bucket, and how the process that says so is doing.

use anyhow::Context;
use clap::{ArgGroup, Args};
use serde::Deserialize;
use serde_json::Value;
use sluicegate_node::{ConfigurationProblem, KeyStatus, SessionStatus, Status};

use crate::exit::{Ended, Failure};
use crate::table::{Align, Table, percent, rate};
use crate::{fetch, output};

/// Show who is limited and by which bucket, as a running process sees it
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("process").required(true)
    .args(["controller", "aggregator", "sidecar"]))]
pub(crate) struct StatusArgs {
    /// The HTTP address of a controller: http://host:7480
    #[arg(long, value_name = "URL")]
    controller: Option<String>,
    /// The HTTP address of an aggregator: http://host:7481
    #[arg(long, value_name = "URL")]
    aggregator: Option<String>,
    /// The HTTP address of a sidecar: http://host:7482
    #[arg(long, value_name = "URL")]
    sidecar: Option<String>,
    /// List every key, not only those that are limited
    #[arg(long)]
    all: bool,
    /// Print what the process said as one line of JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(args: StatusArgs) -> Ended {
    let StatusArgs { controller, aggregator, sidecar, all, json } = args;
    let url = controller.or(aggregator).or(sidecar).unwrap_or_default();
    let url = address(&url)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (code, body) = runtime.block_on(fetch::get(url.clone()))?;
    if code != 200 {
        return Err(anyhow::anyhow!("{url} answered {code}; is it the HTTP address?").into());
    }
    let said: Value = serde_json::from_str(&body)
        .with_context(|| format!("{url} did not answer with a status; is it the HTTP address?"))?;
    if json {
        output::json(&said)?;
        return Ok(());
    }
    let page = Page::read(&said)
        .with_context(|| format!("the status of {url} is not of this version of sluice"))?;
    output::lines(lines(&page, all))?;
    Ok(())
}

/// The field of a key's row that says how long it has been limited.
pub(crate) const LIMITED_FOR: &str = "limited_for_s";

/// The field that says by which law the control plane works.
pub(crate) const LAW: &str = "law";

/// What a process said, with what processes add to a node's own status.
#[derive(Debug)]
struct Page {
    status: Status,
    /// Where the process knows it.
    law: Option<String>,
    /// In the order of `status.keys`.
    limited_for_s: Vec<Option<f64>>,
}

impl Page {
    fn read(said: &Value) -> serde_json::Result<Self> {
        let status = Status::deserialize(said)?;
        let rows = said["keys"].as_array().map(Vec::as_slice).unwrap_or_default();
        let limited_for_s = rows.iter().map(|row| row[LIMITED_FOR].as_f64()).collect();
        let law = said[LAW].as_str().map(str::to_owned);
        Ok(Self { status, law, limited_for_s })
    }

    /// Those that are limited, or all, the highest drop ratio first.
    fn shown(&self, all: bool) -> Vec<(&KeyStatus, Option<f64>)> {
        let mut shown: Vec<_> = self
            .status
            .keys
            .iter()
            .zip(self.limited_for_s.iter().copied())
            .filter(|(k, _)| all || is_limited(k))
            .collect();
        shown.sort_by(|(a, _), (b, _)| b.drop_ratio.total_cmp(&a.drop_ratio));
        shown
    }
}

fn address(text: &str) -> Result<String, Failure> {
    let whole = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    if !whole.starts_with("http://") {
        return Err(Failure::bad_input(format!(
            "\"{text}\" is not usable, expected http://host:port"
        )));
    }
    Ok(format!("{}/status", whole.trim_end_matches('/').trim_end_matches("/status")))
}

/// A drop ratio alone limits nobody: a limit of 0 has one without a single request.
fn is_limited(key: &KeyStatus) -> bool {
    key.dropped_rps > 0.0 || (key.drop_ratio > 0.0 && key.offered_rps > 0.0)
}

fn lines(page: &Page, all: bool) -> Vec<String> {
    let status = &page.status;
    let mut lines = head(page);
    let findings = [
        ("NOT IN FORCE", &status.configuration_errors),
        ("warning", &status.configuration_warnings),
    ];
    for (what, problems) in findings {
        lines.extend(problems.iter().map(|p| problem(what, p)));
    }
    for (invariant, n) in &status.invariant_violations {
        lines.push(format!("invariant {invariant} was found broken {n} times: please report this"));
    }
    lines.push(String::new());
    let shown = page.shown(all);
    if shown.is_empty() && all {
        lines.push("No keys are counted.".to_owned());
    } else if shown.is_empty() {
        let counted = status.keys_count;
        lines.push(format!(
            "Nothing is limited now ({counted} keys are counted; --all lists them)."
        ));
    } else {
        lines.extend(keys(&shown).lines(None));
    }
    if status.keys_count > status.keys.len() {
        let (known, total) = (status.keys.len(), status.keys_count);
        lines.push(format!("(of the {known} busiest of {total} keys)"));
    }
    if !status.sessions.is_empty() {
        lines.push(String::new());
        lines.extend(sessions(&status.sessions).lines(None));
        if status.sessions_count > status.sessions.len() {
            let (listed, total) = (status.sessions.len(), status.sessions_count);
            lines.push(format!("{listed} of {total} sessions are listed"));
        }
    }
    lines
}

fn problem(what: &str, p: &ConfigurationProblem) -> String {
    let place = if p.line > 0 { format!(":{}:{}", p.line, p.column) } else { String::new() };
    let service = p.service.as_deref().map(|s| format!(" (service {s})")).unwrap_or_default();
    let help = p.help.as_deref().map(|h| format!("; {h}")).unwrap_or_default();
    format!("{what}: {}{place}{service}: {}{help}", p.path, p.message)
}

fn head(page: &Page) -> Vec<String> {
    let status = &page.status;
    let law = page.law.as_deref().map(|law| format!("law {law}, ")).unwrap_or_default();
    let place = match &status.zone {
        Some(zone) => format!("zone {zone}, region {}", status.region),
        None => format!("region {}", status.region),
    };
    let above = status.parent.as_ref().map(|p| {
        let addresses = p.addresses.join(", ");
        if p.connected {
            format!(", connected to {addresses}")
        } else {
            format!(", NOT CONNECTED to {addresses}")
        }
    });
    let behind = match status.sessions_behind {
        0 => String::new(),
        n => format!(" ({n} with an older configuration)"),
    };
    let version = match status.configuration_version {
        0 => "no configuration yet".to_owned(),
        n => format!("configuration {n} since {}", span(status.configuration_age_s)),
    };
    vec![
        format!("{} {} ({place}), up {}", status.role, status.node, span(status.uptime_s)),
        format!(
            "{}{}; {law}term {}, {version}; {} sessions{behind}, {} keys",
            if status.ready { "serving" } else { "NOT READY" },
            above.unwrap_or_default(),
            status.term,
            status.sessions_count,
            status.keys_count
        ),
    ]
}

fn keys(keys: &[(&KeyStatus, Option<f64>)]) -> Table {
    let (left, right) = (|h| (h, Align::Left), |h| (h, Align::Right));
    let mut table = Table::new([
        left("bucket"),
        left("key"),
        left("scope"),
        left("mode"),
        right("limit"),
        right("offered/s"),
        right("admitted/s"),
        right("drop ratio"),
        right("sessions"),
        right("limited for"),
    ]);
    for (k, limited_for_s) in keys {
        let since = limited_for_s.map_or_else(|| "-".to_owned(), span);
        table.row([
            format!("{}/{}", k.service, k.bucket),
            if k.key.is_empty() { "-".to_owned() } else { k.key.clone() },
            k.scope.clone().unwrap_or_else(|| "-".to_owned()),
            k.mode.clone().unwrap_or_else(|| "not configured".to_owned()),
            k.limit.clone(),
            rate(k.offered_rps),
            rate(k.admitted_rps),
            percent(k.drop_ratio),
            k.sessions.to_string(),
            since,
        ]);
    }
    table
}

fn sessions(sessions: &[SessionStatus]) -> Table {
    let (left, right) = (|h| (h, Align::Left), |h| (h, Align::Right));
    let mut table = Table::new([
        left("session"),
        left("role"),
        left("zone"),
        right("configuration"),
        right("keys"),
        right("last heard"),
        left(""),
    ]);
    for s in sessions {
        table.row([
            s.node.clone(),
            s.role.clone(),
            s.zone.clone(),
            s.applied_version.to_string(),
            s.keys.to_string(),
            format!("{} ago", span(s.quiet_s)),
            if s.silent { "SILENT".to_owned() } else { String::new() },
        ]);
    }
    table
}

/// A time for people.
fn span(seconds: f64) -> String {
    match seconds {
        s if s < 60.0 => format!("{s:.1} s"),
        s if s < 3600.0 => format!("{:.0} min", s / 60.0),
        s if s < 86_400.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.1} d", s / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn said() -> Value {
        let key = |bucket: &str, drop_ratio: f64| {
            json!({
                "service": "s", "bucket": bucket, "key": "", "scope": "region", "mode": "deny",
                "limit": "100/s", "limit_rps": 100.0, "offered_rps": 300.0, "admitted_rps": 100.0,
                "dropped_rps": 0.0, "would_drop_rps": 0.0, "drop_ratio": drop_ratio,
                "sessions": 3, "directive_ttl_s": null, "limited_for_s": 90.0
            })
        };
        json!({
            "law": "grant",
            "role": "aggregator", "node": "agg-1", "zone": "za", "region": "r", "uptime_s": 7200.0,
            "ready": true, "term": 4, "configuration_version": 9, "configuration_age_s": 3.0,
            "parent": {"connected": false, "addresses": ["c:1"], "events": {}},
            "sessions_count": 5, "sessions_silent": 1, "sessions_behind": 2,
            "sessions": [{
                "node": "c-1", "role": "client", "zone": "za", "applied_version": 8, "keys": 2,
                "quiet_s": 1.5, "silent": true
            }],
            "keys_count": 2, "keys": [key("cool", 0.0), key("hot", 0.667)], "services": [],
            "core_events": {}, "invariant_violations": {}, "refused": [],
            "configuration_errors": [{
                "service": "s", "path": "a.yaml", "line": 3, "column": 1, "message": "no",
                "help": null
            }],
            "configuration_warnings": []
        })
    }

    #[test]
    fn it_tells_who_is_limited_and_what_is_wrong() {
        let page = Page::read(&said()).expect("the shape of a status");
        let text = lines(&page, false).join("\n");
        for told in [
            "NOT CONNECTED to c:1; law grant, term 4",
            "NOT IN FORCE: a.yaml:3:1 (service s): no",
            "s/hot",
            "66.7 %",
            "2 min",
            "SILENT",
            "1 of 5 sessions",
            "2 with an older",
        ] {
            assert!(text.contains(told), "{told} in:\n{text}");
        }
        assert!(!text.contains("s/cool"), "{text}");
        assert!(lines(&page, true).join("\n").contains("s/cool"));
    }

    #[test]
    fn addresses_may_be_short() {
        assert_eq!(address("h:1").expect("fine"), "http://h:1/status");
        assert_eq!(address("http://h:1/").expect("fine"), "http://h:1/status");
        assert_eq!(address("http://h:1/status").expect("fine"), "http://h:1/status");
        assert!(address("https://h:1").is_err());
    }
}
