//! Walking a tree by a table of fields: which are known, which are missing, which are misspelt, and
//! the scalars in them. Shared by bucket files and node settings.

use std::fmt;

use sluicegate_model::Name;

use crate::diagnostic::{At, Problem, Report, quoted};
use crate::scalar;
use crate::suggest::nearest;
use crate::tree::{Key, Node, Value, is_null};

/// The way from the top of a document to a value; prints as `buckets[2].limit`.
#[derive(Clone, Copy)]
pub(crate) enum Trail<'a> {
    Top,
    Field(&'a Trail<'a>, &'a str),
    Item(&'a Trail<'a>, usize),
}

impl<'a> Trail<'a> {
    pub(crate) fn field(&'a self, name: &'a str) -> Self {
        Trail::Field(self, name)
    }

    pub(crate) fn item(&'a self, index: usize) -> Self {
        Trail::Item(self, index)
    }
}

impl fmt::Display for Trail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trail::Top => Ok(()),
            Trail::Field(Trail::Top, name) => f.write_str(name),
            Trail::Field(parent, name) => {
                let bare = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
                if bare && !name.is_empty() {
                    write!(f, "{parent}.{name}")
                } else {
                    write!(f, "{parent}[{}]", quoted(name))
                }
            }
            Trail::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// A word that a field may hold, what it means, and the value it stands for.
pub(crate) struct Word<T: 'static> {
    pub text: &'static str,
    pub doc: &'static str,
    pub value: T,
}

/// What a table says of one field.
pub(crate) trait FieldName {
    fn name(&self) -> &'static str;
    /// Why a field that is known is not taken, if it is not.
    fn refusal(&self) -> Option<String>;
}

/// The entries of one map that the table knows.
pub(crate) struct Fields<'n> {
    /// Where the map begins.
    pub at: At,
    entries: &'n [(Key, Node)],
    /// The fields that misspelt entries most likely mean, so that they are not called missing too.
    meant: Vec<&'static str>,
    /// Whether a merge key was meant to bring in fields, so that none is called missing.
    merged: bool,
}

impl<'n> Fields<'n> {
    /// The entries of `node`, with every unknown or refused one reported. `None` if it is no map.
    pub(crate) fn of<F: FieldName>(
        node: &'n Node,
        trail: &Trail<'_>,
        what: &str,
        table: &[F],
        report: &mut Report<'_>,
    ) -> Option<Self> {
        let entries = match &node.value {
            Value::Map(entries) => entries,
            Value::Reported => return None,
            Value::Scalar { .. } | Value::List(_) => {
                let p = Problem::new(format!(
                    "expected a map with the fields of {what}, found {}",
                    node.kind()
                ));
                report.error(node.at, trail, p.help(the_fields_are(table)));
                return None;
            }
        };
        let mut meant = Vec::new();
        let mut merged = false;
        for (key, _) in entries {
            if key.text == "<<" {
                let p = Problem::new("YAML merge keys (`<<`) are not supported")
                    .help("write the fields out");
                report.error(key.at, trail, p);
                merged = true;
                continue;
            }
            let field = table.iter().find(|f| f.name() == key.text);
            match field.map(FieldName::refusal) {
                Some(None) => {}
                Some(Some(why)) => report.error(key.at, &trail.field(&key.text), why.as_str()),
                // The neighbours of a million unknown names are not worth a second of anyone's time.
                None if report.is_full() => report.error(key.at, trail, "unknown"),
                None => {
                    meant.extend(nearest(&key.text, table.iter().map(FieldName::name)));
                    report.error(key.at, trail, unknown(&key.text, what, table));
                }
            }
        }
        Some(Self { at: node.at, entries, meant, merged })
    }

    /// The entry of that name, unless it is null, which is reported.
    pub(crate) fn get(
        &self,
        name: &str,
        trail: &Trail<'_>,
        report: &mut Report<'_>,
    ) -> Option<&'n Node> {
        let (key, node) = self.entry(name)?;
        if node.is_null() {
            let p = Problem::new(format!("`{name}` has no value"))
                .help("write a value, or remove the line");
            report.error(key.at, &trail.field(name), p);
            return None;
        }
        Some(node)
    }

    /// As [`Self::get`]; that the field is not there is an error.
    pub(crate) fn require(
        &self,
        name: &str,
        trail: &Trail<'_>,
        help: &str,
        report: &mut Report<'_>,
    ) -> Option<&'n Node> {
        if !self.has(name) {
            if !self.merged && !self.meant.contains(&name) {
                let p = Problem::new(format!("`{name}` is missing")).help(help);
                report.error(self.at, trail, p);
            }
            return None;
        }
        let (key, node) = self.entry(name)?;
        if node.is_null() {
            let p = Problem::new(format!("`{name}` has no value")).help(help);
            report.error(key.at, &trail.field(name), p);
            return None;
        }
        Some(node)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.entry(name).is_some()
    }

    /// Where the name of the field stands, if it is there.
    pub(crate) fn key_at(&self, name: &str) -> Option<At> {
        self.entry(name).map(|(key, _)| key.at)
    }

    fn entry(&self, name: &str) -> Option<&'n (Key, Node)> {
        self.entries.iter().find(|(key, _)| key.text == name)
    }
}

fn unknown<F: FieldName>(text: &str, what: &str, table: &[F]) -> Problem {
    let problem = Problem::new(format!("{} is not a field of {what}", quoted(text)));
    match nearest(text, table.iter().map(FieldName::name)) {
        Some(name) => problem.help(format!("did you mean `{name}`?")),
        None => problem.help(the_fields_are(table)),
    }
}

fn the_fields_are<F: FieldName>(table: &[F]) -> String {
    let taken = table.iter().filter(|f| f.refusal().is_none()).map(FieldName::name);
    let names: Vec<&str> = taken.collect();
    format!("the fields are {}", names.join(", "))
}

/// The text of a scalar.
pub(crate) fn scalar<'n>(
    node: &'n Node,
    trail: &Trail<'_>,
    expected: &str,
    report: &mut Report<'_>,
) -> Option<&'n str> {
    match &node.value {
        Value::Scalar { text, plain } if *plain && is_null(text) => {
            report.error(node.at, trail, format!("expected {expected}, found nothing"));
            None
        }
        Value::Scalar { text, .. } => Some(text),
        Value::Reported => None,
        Value::List(_) | Value::Map(_) => {
            report.error(node.at, trail, format!("expected {expected}, found {}", node.kind()));
            None
        }
    }
}

/// A checked name.
pub(crate) fn name(
    node: &Node,
    trail: &Trail<'_>,
    what: &str,
    report: &mut Report<'_>,
) -> Option<Name> {
    let text = scalar(node, trail, what, report)?;
    match Name::new(text) {
        Ok(name) => Some(name),
        Err(e) => {
            report.error(node.at, trail, format!("{what} {e}"));
            None
        }
    }
}

/// A whole number in a range, not in quotes.
pub(crate) fn count(
    node: &Node,
    trail: &Trail<'_>,
    range: std::ops::RangeInclusive<u64>,
    report: &mut Report<'_>,
) -> Option<u64> {
    let text = scalar(node, trail, "a whole number", report)?;
    if let Value::Scalar { plain: false, .. } = node.value {
        let p = Problem::new(format!("expected a whole number, found the text {}", quoted(text)))
            .help("write the number without quotes");
        report.error(node.at, trail, p);
        return None;
    }
    match scalar::count(text) {
        Ok(n) if range.contains(&n) => Some(n),
        Ok(n) => {
            let (low, high) = (grouped(*range.start()), grouped(*range.end()));
            let n = grouped(n);
            report.error(node.at, trail, format!("{n} is out of range; expected {low} to {high}"));
            None
        }
        Err(p) => {
            report.error(node.at, trail, p);
            None
        }
    }
}

/// One of some words.
pub(crate) fn word<T: Copy>(
    node: &Node,
    trail: &Trail<'_>,
    words: &'static [Word<T>],
    report: &mut Report<'_>,
) -> Option<T> {
    let list: Vec<String> = words.iter().map(|w| format!("`{}`", w.text)).collect();
    let list = list.join(", ");
    let text = scalar(node, trail, &format!("one of {list}"), report)?;
    if let Some(word) = words.iter().find(|w| w.text == text) {
        return Some(word.value);
    }
    let problem = Problem::new(format!("{} is not one of {list}", quoted(text)));
    let problem = match nearest(text, words.iter().map(|w| w.text)) {
        Some(word) => problem.help(format!("did you mean `{word}`?")),
        None => problem,
    };
    report.error(node.at, trail, problem);
    None
}

/// A number with `_` between groups of three digits, as the files write it.
pub(crate) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push('_');
        }
        out.push(c);
    }
    out
}
