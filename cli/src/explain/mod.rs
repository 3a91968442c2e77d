//! `sluice explain`: which buckets a request matches, and why the others do not.

mod verdict;

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use sluicegate_files::buckets::{Loaded, load_dir, load_files};
use sluicegate_model::{Law, Request, Select, ServiceBuckets};

pub(crate) use self::verdict::{Verdict, mode, scope};
use crate::exit::{Ended, Failure};
use crate::load::{built_in, pair};
use crate::output;
use crate::table::{Align, Table};

/// Tell which buckets a request matches, with key and limit, and why the others do not
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// A bucket file, or a directory of them
    #[arg(long, value_name = "FILE|DIR")]
    buckets: PathBuf,
    /// The service that is called
    #[arg(long, value_name = "NAME")]
    service: String,
    /// Who calls
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    caller: String,
    /// What is called
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    procedure: String,
    /// A further dimension of the request; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    dimension: Vec<(String, String)>,
    /// Print the answer as one line of JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(args: ExplainArgs) -> Ended {
    let ExplainArgs { buckets, service, caller, procedure, dimension, json } = args;
    if let Some((name, value)) = built_in(&dimension) {
        return Err(Failure::bad_input(format!(
            "--dimension {name}={value}: use --{name} {value}"
        )));
    }
    let loaded = load(&buckets)?;
    let found = choose(&loaded, &buckets, &service)?;
    let dimensions: Vec<(&str, &str)> =
        dimension.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    let request = Request {
        service: &service,
        caller: &caller,
        procedure: &procedure,
        dimensions: &dimensions,
    };
    let verdicts = verdict::verdicts(found, &request);
    if json {
        let answer = Answer { service: &service, select: select(found), buckets: &verdicts };
        output::json(&answer)?;
    } else {
        output::lines(lines(found, &verdicts))?;
    }
    Ok(())
}

#[derive(Debug, Serialize)]
struct Answer<'a> {
    service: &'a str,
    select: &'static str,
    buckets: &'a [Verdict],
}

fn select(buckets: &ServiceBuckets) -> &'static str {
    match buckets.select {
        Select::All => "all",
        Select::MostSpecific => "most_specific",
    }
}

fn load(path: &Path) -> Result<Loaded, Failure> {
    let meta = std::fs::metadata(path).map_err(|e| {
        Failure::bad_input(format!("--buckets: {} cannot be read: {e}", path.display()))
    })?;
    Ok(match meta.is_dir() {
        true => load_dir(path, Law::Grant),
        false => load_files(&[path.to_owned()], Law::Grant),
    })
}

fn choose<'l>(
    loaded: &'l Loaded,
    path: &Path,
    service: &str,
) -> Result<&'l ServiceBuckets, Failure> {
    if let Some((_, found)) = loaded.services.iter().find(|(_, s)| s.service == *service) {
        return Ok(found);
    }
    loaded.errors.iter().for_each(|d| output::note(d.to_string()));
    if loaded.failed.iter().any(|f| f.service.as_ref().is_some_and(|s| *s == *service)) {
        return Err(Failure::bad_input(format!(
            "the buckets of {service} are not usable as they stand"
        )));
    }
    let known: Vec<&str> = loaded.services.iter().map(|(_, s)| s.service.as_str()).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    Err(Failure::bad_input(format!(
        "no service {service} in {}; services there: {known}",
        path.display()
    )))
}

fn lines(buckets: &ServiceBuckets, verdicts: &[Verdict]) -> Vec<String> {
    let (yes, no): (Vec<&Verdict>, Vec<&Verdict>) = verdicts.iter().partition(|v| v.matches);
    let mut lines = Vec::new();
    if yes.is_empty() {
        lines
            .push(format!("No bucket of {} counts this request; it is admitted.", buckets.service));
    } else {
        lines.push(format!("Counted by {} of {} buckets:", yes.len(), verdicts.len()));
        let left = |heading| (heading, Align::Left);
        let mut table = Table::new([
            left("  bucket"),
            left("key"),
            left("scope"),
            left("mode"),
            left("limit"),
            left("remarks"),
        ]);
        for v in &yes {
            let key = v.key.clone().unwrap_or_default();
            table.row([
                format!("  {}", v.bucket),
                if key.is_empty() { "-".to_owned() } else { key },
                v.scope.to_owned(),
                v.mode.to_owned(),
                v.limit.clone().unwrap_or_default(),
                v.because.join("; "),
            ]);
        }
        lines.extend(table.lines(None));
    }
    if !no.is_empty() {
        lines.push(String::new());
        lines.push("Not counted by:".to_owned());
        let mut table = Table::new([("  bucket", Align::Left), ("because", Align::Left)]);
        for v in &no {
            table.row([format!("  {}", v.bucket), v.because.join("; ")]);
        }
        lines.extend(table.lines(None));
    }
    lines
}
