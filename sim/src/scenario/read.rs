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
    let tree = Tree::parse(text).map_err(|e| at(&e))?;
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
    let given = Tree::parse(given).map_err(|e| fail(format!("the value: {}", plain(&e))))?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{DelayMs, Shape, Switch, Which};

    const GOOD: &str = "\
name: mine
clients: 10
guard: off
hops:
  aggregator_controller_ms: 5..30
workload:
  shape: on-off
  load_x: 4
  from_x: 0.1
  period_ms: 300
faults:
  - {at_s: 1, fault: cut, tier: aggregator, node: all}
";

    fn bad(text: &str) -> (u64, u64, String) {
        match parse("bad.yaml", text, &[]).expect_err("bad") {
            ScenarioError::At { path, line, column, message } => {
                assert_eq!(path, "bad.yaml");
                (line, column, message)
            }
            ScenarioError::Setting { .. } => panic!("there are no settings"),
        }
    }

    fn with(settings: &[&str]) -> Result<Scenario, ScenarioError> {
        let settings: Vec<String> = settings.iter().map(|s| (*s).to_owned()).collect();
        parse("good.yaml", GOOD, &settings)
    }

    #[test]
    fn what_is_written_is_read_and_the_rest_is_usual() {
        let s = with(&[]).expect("good");
        assert_eq!((s.name.as_str(), s.clients, s.zones), ("mine", 10, 6));
        assert_eq!(s.guard, Switch::Off);
        assert_eq!(s.workload.shape, Shape::OnOff);
        assert_eq!(s.faults[0].node, Which::All);
        let text = serde_json::to_string(&s).expect("JSON");
        assert_eq!(serde_json::from_str::<Scenario>(&text).expect("the same"), s);
    }

    #[test]
    fn an_unknown_field_or_a_wrong_type_is_pointed_at() {
        let (line, column, message) = bad("name: x\nclientz: 5\n");
        assert_eq!((line, column), (2, 1));
        assert!(message.contains("clientz"), "{message}");
        let (line, _, message) = bad("name: x\nworkload:\n  load_x: 1\n  perod_ms: 5\n");
        assert_eq!(line, 4);
        assert!(message.contains("perod_ms"), "{message}");
        let (line, column, _) = bad("clients: many\n");
        assert_eq!((line, column), (1, 10));
        let (line, _, message) = bad("hops:\n  client_aggregator_ms: 5..1\n");
        assert_eq!(line, 2);
        assert!(message.contains("5..1"), "{message}");
        assert!(bad("a: [\n").0 >= 1, "no YAML at all");
    }

    #[test]
    fn what_makes_no_sense_is_pointed_at() {
        let (line, column, message) =
            bad("workload:\n  shape: on-off\n  load_x: 4\n  from_x: 0\n  period_ms: 0\n");
        assert_eq!((line, column), (5, 3));
        assert!(message.contains("workload.period_ms: is 0"), "{message}");
        let text = "workload: {load_x: 1}\nfaults:\n  - {at_s: 0, fault: cut, zone: 6}\n";
        let (line, column, message) = bad(text);
        assert_eq!((line, column), (3, 27));
        assert!(message.contains("there are 6"), "{message}");
        assert!(bad("workload: {shape: step, load_x: 1}\n").2.contains("needs from_x"));
    }

    #[test]
    fn settings_win_and_reach_any_field() {
        let s = with(&[
            "clients=100",
            "limit_rps=100000",
            "hops.aggregator_controller_ms=50..80",
            "workload.period_ms=500",
            "workload.retries.max=3",
            "workload.retries.probability=0.7",
            "workload.retries.delay_ms=50..500",
            "faults[0].node=2",
        ]);
        // A structure with fields that must be there can only be set as a whole.
        assert!(matches!(s, Err(ScenarioError::Setting { .. })));
        let s = with(&[
            "clients=100",
            "limit_rps=100000",
            "hops.aggregator_controller_ms=50..80",
            "workload.period_ms=500",
            "workload.retries={max: 3, probability: 0.7, delay_ms: 50..500}",
            "faults[0].node=2",
        ])
        .expect("good");
        assert_eq!((s.clients, s.limit_rps), (100, 100_000));
        assert_eq!(Some(s.hops.aggregator_controller_ms), DelayMs::new(50.0, 80.0));
        assert_eq!(s.workload.period_ms, Some(500.0));
        assert_eq!(s.workload.retries.map(|r| r.max), Some(3));
        assert_eq!(s.faults[0].node, Which::One(2));
    }

    #[test]
    fn a_bad_setting_is_named() {
        for (setting, says) in [
            ("clients=0", "is 0, must be 1"),
            ("clients=many", "invalid type"),
            ("clientz=5", "clientz"),
            ("workload.perod_ms=5", "perod_ms"),
            ("faults[3].at_s=1", "no item 3"),
            ("clients", "path=value"),
            ("guard=maybe", "neither on nor off"),
        ] {
            let error = with(&[setting]).expect_err(setting);
            let ScenarioError::Setting { setting: named, message } = &error else {
                panic!("{error}");
            };
            assert_eq!(named, setting);
            assert!(message.contains(says), "{setting}: {message}");
        }
    }
}
