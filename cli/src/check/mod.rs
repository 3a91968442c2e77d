//! `sluice check`: whether bucket files and node settings can be used, and what is wrong where.

mod files;

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use serde::Serialize;
use sluicegate_files::{Diagnostic, Severity, buckets, node};
use sluicegate_model::Law;

use self::files::Found;
use crate::exit::{Ended, Failure};
use crate::output;

/// Check bucket files and node settings: every error with file, line and column
///
/// A file with the `kind:` of a node at its top is taken for node settings, any other for a bucket file. Bucket
/// files of one directory are checked together, as the controller reads them: a service in two of
/// them is an error. Below a directory, files with no field of ours are skipped. Exits with 2 if anything cannot be used; warnings do not count.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Files, and directories to look through for .yaml and .yml files
    #[arg(required = true, value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
    /// The law of the control plane that is to read the bucket files: under ratio, what needs grant
    /// is an error
    #[arg(long, value_name = "LAW", default_value = "grant",
        value_parser = PossibleValuesParser::new(Law::ALL.map(Law::name))
            .map(|name| Law::named(&name).unwrap_or_default()))]
    law: Law,
    /// Print the findings as one line of JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(args: CheckArgs) -> Ended {
    let CheckArgs { paths, law, json } = args;
    let checked = check(files::find(&paths), law);
    if json {
        output::json(&Answer::of(&checked))?;
    } else {
        output::lines(checked.lines())?;
    }
    if checked.errors.is_empty() { Ok(()) } else { Err(Failure::Described) }
}

#[derive(Debug, Default)]
struct Checked {
    files: usize,
    services: usize,
    buckets: usize,
    nodes: usize,
    skipped: Vec<String>,
    errors: Vec<Diagnostic>,
    warnings: Vec<Diagnostic>,
}

fn check(found: Found, law: Law) -> Checked {
    let files = found.len();
    let Found { buckets: directories, nodes, others, errors } = found;
    let skipped = others.iter().map(|p| p.display().to_string()).collect();
    let mut checked = Checked { files, skipped, errors, ..Checked::default() };
    for files in directories.into_values() {
        let loaded = buckets::load_files(&files, law);
        checked.services += loaded.services.len();
        checked.buckets += loaded.services.iter().map(|(_, s)| s.buckets.len()).sum::<usize>();
        checked.errors.extend(loaded.errors);
        checked.warnings.extend(loaded.warnings);
    }
    for path in &nodes {
        match check_node(path) {
            Ok(()) => checked.nodes += 1,
            Err(errors) => checked.errors.extend(errors),
        }
    }
    checked
}

fn check_node(path: &Path) -> Result<(), Vec<Diagnostic>> {
    let shown = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|e| {
        vec![Diagnostic::whole(Severity::Error, &shown, format!("cannot be read: {e}"))]
    })?;
    let file = node::SettingsFile { path: &shown, bytes: &bytes };
    let kind = node::kind_of(file).unwrap_or_else(|| files::kind_meant(path));
    node::check(kind, file).map_err(|invalid| invalid.errors)
}

impl Checked {
    fn lines(&self) -> Vec<String> {
        let findings = self.errors.iter().chain(&self.warnings);
        let mut lines: Vec<String> = findings.map(|d| format!("{d}\n")).collect();
        lines.extend(self.skipped.iter().map(|p| format!("{p}: skipped, not a file of ours")));
        let settings = match self.nodes {
            0 => String::new(),
            n => format!(", {}", counted(n, "node settings file", "node settings files")),
        };
        lines.push(format!(
            "{}: {} with {}{settings} fine; {}, {}",
            counted(self.files, "file", "files"),
            counted(self.services, "service", "services"),
            counted(self.buckets, "bucket", "buckets"),
            counted(self.errors.len(), "error", "errors"),
            counted(self.warnings.len(), "warning", "warnings"),
        ));
        lines
    }
}

fn counted(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

#[derive(Debug, Serialize)]
struct Answer<'a> {
    files: usize,
    services: usize,
    buckets: usize,
    node_settings: usize,
    skipped: &'a [String],
    errors: Vec<Finding<'a>>,
    warnings: Vec<Finding<'a>>,
}

#[derive(Debug, Serialize)]
struct Finding<'a> {
    path: &'a str,
    line: u32,
    column: u32,
    field: &'a str,
    text: &'a str,
    message: &'a str,
    help: Option<&'a str>,
}

impl<'a> Answer<'a> {
    fn of(checked: &'a Checked) -> Self {
        let findings = |list: &'a [Diagnostic]| list.iter().map(Finding::of).collect();
        Self {
            files: checked.files,
            services: checked.services,
            buckets: checked.buckets,
            node_settings: checked.nodes,
            skipped: &checked.skipped,
            errors: findings(&checked.errors),
            warnings: findings(&checked.warnings),
        }
    }
}

impl<'a> Finding<'a> {
    fn of(d: &'a Diagnostic) -> Self {
        Self {
            path: &d.path,
            line: d.line,
            column: d.column,
            field: &d.field,
            text: &d.text,
            message: &d.message,
            help: d.help.as_deref(),
        }
    }
}
