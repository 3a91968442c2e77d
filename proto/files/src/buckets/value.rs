//! Exact values of a dimension, as lists of them hold them.

use sluicegate_model::{MAX_VALUE_BYTES, Name};

use crate::diagnostic::{At, Problem, Report, quoted};
use crate::tree::{Node, Value, is_null};
use crate::walk::{Trail, scalar};

/// A list of exact values, in the words of its messages.
pub(super) struct Exact<'a> {
    /// What the list is called.
    pub list: &'a str,
    /// What holds for a value that is not listed.
    pub otherwise: &'a str,
    /// What to do instead of writing a pattern.
    pub pattern: &'a str,
}

impl Exact<'_> {
    /// Reads one value. A number keeps its text.
    pub(super) fn read(
        &self,
        node: &Node,
        dimension: &Name,
        trail: &Trail<'_>,
        report: &mut Report<'_>,
    ) -> Option<Box<str>> {
        let text = scalar(node, trail, "a value", report)?;
        let plain = matches!(node.value, Value::Scalar { plain: true, .. });
        self.check(text, plain, node.at, dimension, trail, report)
    }

    /// Checks one value that stands there without quotes if `plain`.
    pub(super) fn check(
        &self,
        text: &str,
        plain: bool,
        at: At,
        dimension: &Name,
        trail: &Trail<'_>,
        report: &mut Report<'_>,
    ) -> Option<Box<str>> {
        let built_in = matches!(dimension.as_str(), "caller" | "procedure");
        let problem = if plain && is_null(text) {
            Problem::new(format!("{} without quotes is no value in YAML", quoted(text)))
                .help(format!("if you mean the text, write \"{text}\""))
        } else if text == "*" {
            Problem::new(format!("{} lists exact values; `*` is none", self.list))
                .help(self.otherwise)
        } else if text.is_empty() && built_in {
            Problem::new(format!("an empty {dimension} counts as not given, so it has no key"))
        } else if text.len() > MAX_VALUE_BYTES {
            Problem::new(format!(
                "the value is {} bytes long, the most is {MAX_VALUE_BYTES}",
                text.len()
            ))
        } else {
            if text.ends_with('*') {
                let p = Problem::new(format!(
                    "{} is taken as an exact value: patterns have no meaning in {}",
                    quoted(text),
                    self.list
                ))
                .help(self.pattern);
                report.warn(at, trail, p);
            }
            return Some(text.into());
        };
        report.error(at, trail, problem);
        None
    }
}
