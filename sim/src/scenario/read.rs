//! From YAML, and `path=value` from the command line, to a checked [`Scenario`]. An error says where:
//! file, line and column, or which setting.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::Scenario;
use super::check::Problem;
use super::tree::{self, Tree};

/// The largest scenario file.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// What is wrong with a scenario, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    /// In the text.
    #[error("{path}:{line}:{column}: {message}")]
    At {
        /// The file, as it was named.
        path: String,
        /// From 1.
        line: u64,
        /// From 1.
        column: u64,
        /// What is wrong, and what was expected.
        message: String,
    },
    /// In a setting that was laid over the text.
    #[error("--set {setting}: {message}")]
    Setting {
        /// The setting, as it was given.
        setting: String,
        /// What is wrong, and what was expected.
        message: String,
    },
}

/// Why a scenario file could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is too long to be a scenario.
    #[error("{path}: is {bytes} bytes long, the most is {MAX_FILE_BYTES}")]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
    },
    /// It does not hold a scenario.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
}

/// Reads a file; see [`parse`].
///
/// # Errors
/// Says what is wrong, and where.
pub fn load(path: &Path, settings: &[String]) -> Result<Scenario, LoadError> {
    let read = |source| LoadError::Read { path: path.to_owned(), source };
    let bytes = std::fs::metadata(path).map_err(read)?.len();
    if bytes > MAX_FILE_BYTES {
        return Err(LoadError::TooLong { path: path.to_owned(), bytes });
    }
    let text = std::fs::read_to_string(path).map_err(read)?;
    Ok(parse(&path.display().to_string(), &text, settings)?)
}

/// Reads a scenario from YAML. `path` is what errors call the text; each of `settings` is
/// `path=value`, such as `workload.period_ms=300` or `faults[0].at_s=5`, and wins over the text.
///
/// # Errors
/// Says what is wrong, and where.
pub fn parse(path: &str, text: &str, settings: &[String]) -> Result<Scenario, ScenarioError> {
    let at = |e: &serde_saphyr::Error| {
        let (line, column) = e.location().map_or((1, 1), |l| (l.line(), l.column()));
        ScenarioError::At { path: path.to_owned(), line, column, message: plain(e) }
    };
    // The typed reading comes first: it points at what has a wrong name or type.
    let written: Scenario = serde_saphyr::from_str(text).map_err(|e| at(&e))?;
    let tree: Tree = serde_saphyr::from_str(text).map_err(|e| at(&e))?;
    if settings.is_empty() {
        return match written.problems().into_iter().next() {
            None => Ok(written),
            Some(Problem { field, message }) => {
                let (line, column) = tree.locate(&field);
                let message = format!("{field}: {message}");
                Err(ScenarioError::At { path: path.to_owned(), line, column, message })
            }
        };
    }
    let mut value = tree.into_value();
    let mut last = written;
    for setting in settings {
        last = lay_over(&mut value, setting)?;
    }
    match last.problems().into_iter().next() {
        None => Ok(last),
        Some(problem) => {
            // The one that names the field, or else the last: the text alone may be at fault too,
            // but whoever sets fields wants to hear of those first.
            let named = settings.iter().rev().find(|s| {
                s.split_once('=').is_some_and(|(path, _)| problem.field.starts_with(path.trim()))
            });
            let setting = named.or(settings.last()).cloned().unwrap_or_default();
            let message = format!("{}: {}", problem.field, problem.message);
            Err(ScenarioError::Setting { setting, message })
        }
    }
}

fn lay_over(value: &mut Value, setting: &str) -> Result<Scenario, ScenarioError> {
    let fail = |message: String| ScenarioError::Setting { setting: setting.to_owned(), message };
    let Some((path, given)) = setting.split_once('=') else {
        return Err(fail("write path=value, such as clients=100".into()));
    };
    if path.trim().is_empty() {
        return Err(fail("the path is empty; write path=value, such as clients=100".into()));
    }
    let given: Tree =
        serde_saphyr::from_str(given).map_err(|e| fail(format!("the value: {}", plain(&e))))?;
    tree::set(value, path.trim(), given.into_value()).map_err(fail)?;
    serde_json::from_value(value.clone()).map_err(|e| fail(e.to_string()))
}

/// The message alone, without the place and the lines of source around it.
fn plain(error: &serde_saphyr::Error) -> String {
    let full = error.without_snippet().to_string();
    let first = full.lines().next().unwrap_or_default();
    match first.rsplit_once(" at line ") {
        Some((message, _)) => message.to_owned(),
        None => first.to_owned(),
    }
}
