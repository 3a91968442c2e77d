//! One finding about a file: where it is, what stands there, what is wrong and what to do.
//! Knows nothing of what the files mean.

use std::fmt;

/// The most findings of one kind that are kept for one file; the rest are only counted.
pub const MAX_FINDINGS_PER_FILE: usize = 50;

/// The most characters of a source line that a finding shows.
const SHOWN_LINE_CHARS: usize = 120;

/// The most characters of the offending text that a finding keeps.
const SHOWN_TEXT_CHARS: usize = 80;

/// The most characters of a message, of advice, or of the name of a field.
const SHOWN_MESSAGE_CHARS: usize = 400;

/// Whether a finding keeps a file from being applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The file is not applied.
    Error,
    /// The file is applied; it may not say what its author meant.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

/// One finding about a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// The file, as it was named to the parser; for a command-line flag, the flag.
    pub path: String,
    /// Line, counted from 1; 0 if the finding is about the file as a whole.
    pub line: u32,
    /// Column in characters, counted from 1; 0 if the finding is about the file as a whole.
    pub column: u32,
    /// The field in the document, such as `buckets[2].limit`; empty at the top of the document.
    pub field: String,
    /// The offending text as it stands in the file, shortened if it is long.
    pub text: String,
    /// What is wrong, and what was expected.
    pub message: String,
    /// What to do, where there is more to say than the message does.
    pub help: Option<String>,
    snippet: Option<Snippet>,
}

/// The source line with the place to point at.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Snippet {
    line: String,
    indent: usize,
    width: usize,
}

impl Diagnostic {
    /// A finding about a file (or flag) as a whole.
    #[must_use]
    pub fn whole(severity: Severity, path: &str, message: String) -> Self {
        Self {
            severity,
            path: path.to_owned(),
            line: 0,
            column: 0,
            field: String::new(),
            text: String::new(),
            message,
            help: None,
            snippet: None,
        }
    }

    /// The same with advice.
    #[must_use]
    pub fn with_help(mut self, help: Option<String>) -> Self {
        self.help = help;
        self
    }

    /// The finding without the source line under it: `path:line:column: error: field: message`.
    #[must_use]
    pub fn headline(&self) -> String {
        let mut text = self.path.clone();
        if self.line > 0 {
            text.push_str(&format!(":{}:{}", self.line, self.column));
        }
        text.push_str(&format!(": {}: ", self.severity));
        if !self.field.is_empty() {
            text.push_str(&format!("{}: ", self.field));
        }
        text.push_str(&self.message);
        text
    }
}

impl fmt::Display for Diagnostic {
    /// The headline, the source line with carets under the offending text, the advice.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.headline())?;
        let gutter = self.line.to_string().len();
        if let Some(snippet) = &self.snippet {
            write!(f, "\n  {} | {}", self.line, snippet.line)?;
            write!(f, "\n  {:gutter$} | {:indent$}", "", "", indent = snippet.indent)?;
            f.write_str(&"^".repeat(snippet.width))?;
        }
        if let Some(help) = &self.help {
            write!(f, "\n  {:gutter$} = {help}", "")?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostic {}

/// A place in a source text: where a token begins and how far it reaches on its first line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct At {
    /// From 1.
    pub line: u32,
    /// In characters, from 1.
    pub column: u32,
    /// In characters; 0 where the token is empty or its end is not known.
    pub width: u32,
}

/// Collects the findings about one file.
pub(crate) struct Report<'s> {
    path: String,
    lines: Vec<&'s str>,
    errors: Vec<Diagnostic>,
    warnings: Vec<Diagnostic>,
    untold_errors: usize,
    untold_warnings: usize,
}

impl<'s> Report<'s> {
    pub(crate) fn new(path: &str, source: &'s str) -> Self {
        Self {
            path: path.to_owned(),
            lines: source.split('\n').map(|l| l.strip_suffix('\r').unwrap_or(l)).collect(),
            errors: Vec::new(),
            warnings: Vec::new(),
            untold_errors: 0,
            untold_warnings: 0,
        }
    }

    pub(crate) fn error(&mut self, at: At, field: &dyn fmt::Display, problem: impl Into<Problem>) {
        if self.is_full() {
            self.untold_errors += 1;
            return;
        }
        let finding = self.finding(Severity::Error, at, field, problem.into());
        self.errors.push(finding);
    }

    pub(crate) fn warn(&mut self, at: At, field: &dyn fmt::Display, problem: impl Into<Problem>) {
        if self.warnings.len() >= MAX_FINDINGS_PER_FILE {
            self.untold_warnings += 1;
            return;
        }
        let finding = self.finding(Severity::Warning, at, field, problem.into());
        self.warnings.push(finding);
    }

    /// Whether further errors are only counted.
    pub(crate) fn is_full(&self) -> bool {
        self.errors.len() >= MAX_FINDINGS_PER_FILE
    }

    /// How many errors there are so far.
    pub(crate) fn errors(&self) -> usize {
        self.errors.len() + self.untold_errors
    }

    /// The text at a place, shortened.
    pub(crate) fn text(&self, at: At) -> String {
        let line = self.line(at);
        let text: String = line
            .chars()
            .skip((at.column.max(1) - 1) as usize)
            .take(at.width as usize)
            .map(printable)
            .collect();
        shorten(text.trim_end(), SHOWN_TEXT_CHARS)
    }

    /// Whether the line of that place holds a template.
    pub(crate) fn is_template(&self, at: At) -> bool {
        self.line(at).contains("{{")
    }

    /// The place, moved to the end of the last line with text if it is beyond the text.
    pub(crate) fn on_a_line(&self, at: At) -> At {
        let beyond = (at.line.max(1) - 1) as usize;
        if self.lines.iter().skip(beyond).any(|l| !l.trim().is_empty()) {
            return at;
        }
        let last = self.lines.iter().rposition(|l| !l.trim().is_empty()).unwrap_or(0);
        let column = self.lines.get(last).map_or(0, |l| l.trim_end().chars().count()) + 1;
        let as_u32 = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        At { line: as_u32(last + 1), column: as_u32(column), width: 0 }
    }

    /// Errors and warnings, each in the order of the file.
    pub(crate) fn finish(mut self) -> (Vec<Diagnostic>, Vec<Diagnostic>) {
        for (list, untold, what, severity) in [
            (&mut self.errors, self.untold_errors, "errors", Severity::Error),
            (&mut self.warnings, self.untold_warnings, "warnings", Severity::Warning),
        ] {
            list.sort_by_key(|d| (d.line, d.column));
            if untold > 0 {
                let message = format!("there are {untold} more {what} in this file");
                list.push(Diagnostic::whole(severity, &self.path, message));
            }
        }
        (self.errors, self.warnings)
    }

    fn line(&self, at: At) -> &'s str {
        let index = (at.line.max(1) - 1) as usize;
        self.lines.get(index).copied().unwrap_or("")
    }

    fn finding(
        &self,
        severity: Severity,
        at: At,
        field: &dyn fmt::Display,
        problem: Problem,
    ) -> Diagnostic {
        Diagnostic {
            severity,
            path: self.path.clone(),
            line: at.line,
            column: at.column,
            field: tame(&field.to_string()),
            text: self.text(at),
            message: tame(&problem.message),
            help: problem.help.as_deref().map(tame),
            snippet: snippet(self.line(at), at),
        }
    }
}

/// What is wrong with a piece of text, before it is known where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub message: String,
    pub help: Option<String>,
}

impl Problem {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), help: None }
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl From<String> for Problem {
    fn from(message: String) -> Self {
        Self::new(message)
    }
}

impl From<&str> for Problem {
    fn from(message: &str) -> Self {
        Self::new(message)
    }
}

/// Text for a terminal or a log line: no control characters, no invisible direction marks.
fn printable(c: char) -> char {
    match c {
        '\t' => ' ',
        '\u{200b}'..='\u{200f}'
        | '\u{202a}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}'
        | '\u{feff}' => '\u{fffd}',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}

/// A message that quotes a file cannot break out of its line, nor grow without bound.
fn tame(text: &str) -> String {
    let text: String = text.chars().take(SHOWN_MESSAGE_CHARS + 1).map(printable).collect();
    shorten(&text, SHOWN_MESSAGE_CHARS)
}

/// At most `most` characters, with `...` where something was cut.
pub(crate) fn shorten(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}

/// As [`shorten`] and [`printable`], for texts that are quoted in a message.
pub(crate) fn quoted(text: &str) -> String {
    let text: String = text.chars().take(SHOWN_TEXT_CHARS + 1).map(printable).collect();
    format!("`{}`", shorten(&text, SHOWN_TEXT_CHARS))
}

/// A window of the line around the place, so that a line of megabytes stays readable; nothing of a
/// blank line.
fn snippet(line: &str, at: At) -> Option<Snippet> {
    if at.line == 0 || line.trim().is_empty() {
        return None;
    }
    let column = (at.column.max(1) - 1) as usize;
    let start = if column < SHOWN_LINE_CHARS * 2 / 3 { 0 } else { column - SHOWN_LINE_CHARS / 3 };
    let shown: String = line.chars().skip(start).take(SHOWN_LINE_CHARS).map(printable).collect();
    let shown = shown.trim_end();
    let indent = column - start;
    let room = shown.chars().count().saturating_sub(indent).max(1);
    let width = (at.width.max(1) as usize).min(room);
    Some(Snippet { line: shown.to_owned(), indent, width })
}
