//! YAML text to a tree in which every node knows where it stands. Bounded in depth and size, and
//! strict: no aliases, tags, duplicate keys or second documents. Knows nothing of what the files
//! mean; scalars stay text, because whether `12345` is a number is for the field to say.

use std::collections::HashMap;

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, Span, options};

use crate::diagnostic::{At, Problem, Report, quoted};

/// The largest file that is read, in bytes.
pub const MAX_FILE_BYTES: usize = 4 * 1024 * 1024;

/// The deepest nesting of lists and maps.
pub const MAX_DEPTH: usize = 24;

/// The most scalars, lists and maps in one file.
pub const MAX_NODES: usize = 1_000_000;

/// The longest key of a map on one line, in characters.
const MAX_KEY_CHARS: usize = 4096;

/// Quotes that word processors put in; YAML knows only `"` and `'`.
const TYPOGRAPHIC_QUOTES: [char; 9] = ['“', '”', '„', '‟', '‘', '’', '‚', '«', '»'];

/// A value with its place.
#[derive(Debug)]
pub(crate) struct Node {
    pub at: At,
    pub value: Value,
}

/// A value.
#[derive(Debug)]
pub(crate) enum Value {
    /// A scalar; `plain` if it stands there without quotes.
    Scalar {
        text: String,
        plain: bool,
    },
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
    /// Something that was reported already; whoever meets it stays quiet.
    Reported,
}

/// The key of a map's entry.
#[derive(Debug)]
pub(crate) struct Key {
    pub at: At,
    pub text: String,
    /// Whether the key is unquoted.
    pub plain: bool,
}

impl Node {
    /// Whether nothing stands here, or an unquoted `null` or `~`.
    pub(crate) fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar { text, plain: true } if is_null(text))
    }

    /// The words for what this is.
    pub(crate) fn kind(&self) -> &'static str {
        match self.value {
            Value::Scalar { .. } => "a single value",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
            Value::Reported => "something else",
        }
    }
}

/// Whether unquoted `text` is YAML's null.
pub(crate) fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

/// What could be read of a file.
pub(crate) enum Tree {
    /// The whole document. There may still be errors in the report.
    Whole(Node),
    /// The text broke off; the top level entries before that.
    Broken(Vec<(Key, Node)>),
    /// No document.
    Nothing,
}

/// Reads `source`, which is at most [`MAX_FILE_BYTES`] long.
pub(crate) fn read(source: &str, report: &mut Report<'_>) -> Tree {
    let options = options! {
        disallow_directives: true,
        emit_unresolved_aliases: true,
        emit_anchor_events: true,
        simple_key_max_lookahead: MAX_KEY_CHARS,
        flow_nesting_limit: MAX_DEPTH + 1,
        block_nesting_limit: MAX_DEPTH + 1,
    };
    let mut builder = Builder { report, open: Vec::new(), root: None, nodes: 0, documents: 0 };
    for next in Parser::new_from_str_with_options(source, options) {
        let went_on = match next {
            Ok((event, span)) => builder.take(event, span),
            Err(error) => {
                let at = builder.report.on_a_line(where_broken(&error, source));
                let problem = match builder.report.is_template(at) {
                    true => template(),
                    false => syntax(error.kind()),
                };
                builder.report.error(at, &"", problem);
                Err(Stop)
            }
        };
        if went_on.is_err() {
            return builder.broken();
        }
    }
    builder.root.map_or(Tree::Nothing, Tree::Whole)
}

/// Reading cannot go on; the reason is in the report.
struct Stop;

/// The key of an entry whose value comes next.
enum Pending {
    Taken(Key),
    /// Not usable, and reported; the value goes with it.
    Dropped,
}

/// A list or map that is not closed yet.
enum Open {
    List { at: At, items: Vec<Node> },
    Map { at: At, entries: Vec<(Key, Node)>, key: Option<Pending>, dropped: bool },
}

struct Builder<'r, 's> {
    report: &'r mut Report<'s>,
    open: Vec<Open>,
    root: Option<Node>,
    nodes: usize,
    documents: usize,
}

impl Builder<'_, '_> {
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), Stop> {
        let at = place(&span);
        let tagged = event.tag().is_some();
        if event.is_node() {
            self.count(at)?;
        }
        if tagged {
            let p = Problem::new("YAML tags (`!...`) are not supported").help("remove the tag");
            let at = span.tag_span().map_or(at, |tag| place(&tag));
            self.report.error(at, &"", p);
        }
        match event {
            Event::Scalar(text, style, _, _) => {
                let plain = style == ScalarStyle::Plain;
                let value = match plain && text.starts_with(TYPOGRAPHIC_QUOTES) {
                    true => {
                        self.report.error(at, &"", typographic(&text));
                        Value::Reported
                    }
                    false => Value::Scalar { text: text.into_owned(), plain },
                };
                self.put(Node { at, value });
            }
            Event::SequenceStart(..) => self.enter(Open::List { at, items: Vec::new() })?,
            Event::MappingStart(..) => {
                self.enter(Open::Map { at, entries: Vec::new(), key: None, dropped: false })?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.leave(),
            Event::Alias(_) | Event::UnresolvedAlias(_) => {
                let text = self.report.text(at);
                let p = Problem::new(format!("`{text}` is a YAML alias, and aliases are not supported"))
                    .help(format!("if you mean a pattern, put it in quotes: \"{text}\"; otherwise write the value out"));
                self.report.error(at, &"", p);
                self.put(Node { at, value: Value::Reported });
            }
            Event::Anchor(..) => {
                let p = Problem::new("YAML anchors (`&...`) are not supported")
                    .help("remove the anchor; if the text begins with `&`, put it in quotes");
                self.report.error(at, &"", p);
            }
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    let p = Problem::new("a second YAML document begins here; a file holds one")
                        .help("move it to a file of its own");
                    self.report.error(at, &"", p);
                    return Err(Stop);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn count(&mut self, at: At) -> Result<(), Stop> {
        self.nodes += 1;
        if self.nodes <= MAX_NODES {
            return Ok(());
        }
        let p = format!("the file holds more than {MAX_NODES} values, lists and maps");
        self.report.error(at, &"", p);
        Err(Stop)
    }

    fn enter(&mut self, open: Open) -> Result<(), Stop> {
        if self.open.len() < MAX_DEPTH {
            self.open.push(open);
            return Ok(());
        }
        let (Open::List { at, .. } | Open::Map { at, .. }) = open;
        self.report.error(at, &"", too_deep());
        Err(Stop)
    }

    fn leave(&mut self) {
        match self.open.pop() {
            Some(Open::List { at, items }) => self.put(Node { at, value: Value::List(items) }),
            // Nothing usable is left; that it holds too little has its reason in the report.
            Some(Open::Map { at, entries, dropped: true, .. }) if entries.is_empty() => {
                self.put(Node { at, value: Value::Reported });
            }
            Some(Open::Map { at, entries, .. }) => {
                let entries = self.without_duplicates(entries);
                self.put(Node { at, value: Value::Map(entries) });
            }
            None => {}
        }
    }

    fn put(&mut self, node: Node) {
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(Open::List { items, .. }) => items.push(node),
            Some(Open::Map { entries, key, dropped, .. }) => match key.take() {
                Some(Pending::Taken(key)) => entries.push((key, node)),
                Some(Pending::Dropped) => *dropped = true,
                None => {
                    *key = Some(as_key(node, self.report).map_or(Pending::Dropped, Pending::Taken));
                }
            },
        }
    }

    fn without_duplicates(&mut self, entries: Vec<(Key, Node)>) -> Vec<(Key, Node)> {
        let mut lines: HashMap<String, u32> = HashMap::with_capacity(entries.len());
        let mut kept = Vec::with_capacity(entries.len());
        for (key, node) in entries {
            if let Some(line) = lines.get(&key.text) {
                let p = Problem::new(format!(
                    "{} stands here a second time; the first is on line {line}",
                    quoted(&key.text)
                ))
                .help("keep one of them");
                self.report.error(key.at, &"", p);
            } else {
                lines.insert(key.text.clone(), key.at.line);
                kept.push((key, node));
            }
        }
        kept
    }

    fn broken(mut self) -> Tree {
        if let Some(Node { value: Value::Map(entries), .. }) = self.root {
            return Tree::Broken(entries);
        }
        if self.open.is_empty() {
            return Tree::Broken(Vec::new());
        }
        match self.open.swap_remove(0) {
            Open::Map { entries, .. } => Tree::Broken(entries),
            Open::List { .. } => Tree::Broken(Vec::new()),
        }
    }
}

fn as_key(node: Node, report: &mut Report<'_>) -> Option<Key> {
    match node.value {
        Value::Scalar { text, plain } => Some(Key { at: node.at, text, plain }),
        Value::Reported => None,
        Value::List(_) | Value::Map(_) if report.is_template(node.at) => {
            report.error(node.at, &"", template());
            None
        }
        Value::List(_) | Value::Map(_) => {
            let p = Problem::new("a list or map cannot be the name of a field")
                .help("text that begins with `[` or `{` needs quotes");
            report.error(node.at, &"", p);
            None
        }
    }
}

fn place(span: &Span) -> At {
    let (start, end) = (span.start, span.end);
    let width = if start.line() == end.line() {
        end.col().saturating_sub(start.col())
    } else {
        usize::from(u16::MAX)
    };
    At { line: to_u32(start.line()), column: to_u32(start.col() + 1), width: to_u32(width) }
}

fn to_u32(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn template() -> Problem {
    Problem::new("`{{` begins a template, and this one is not filled in")
        .help("render it first (`helm template` for a chart), and use what comes out")
}

fn typographic(text: &str) -> Problem {
    let p = Problem::new("typographic quotes are letters to YAML, not quotes");
    let bare = text.trim_matches(TYPOGRAPHIC_QUOTES);
    match text.ends_with(TYPOGRAPHIC_QUOTES) && !bare.contains(['"', '\\']) {
        true => p.help(format!("write \"{bare}\"")),
        false => p.help("write straight ones: \"...\""),
    }
}

fn too_deep() -> Problem {
    Problem::new(format!("lists and maps are nested deeper than {MAX_DEPTH} levels"))
        .help("no field needs that; look for a bracket that is not closed or a wrong indentation")
}

/// Where the text breaks: at the parser's position, or at the tab that it stumbled over.
fn where_broken(error: &ScanError, source: &str) -> At {
    let marker = error.marker();
    let at = At { line: to_u32(marker.line()), column: to_u32(marker.col() + 1), width: 0 };
    if !is_tab(error.kind()) {
        return at;
    }
    let from = marker.line().saturating_sub(1);
    for (i, line) in source.split('\n').enumerate().skip(from).take(2) {
        if let Some(column) = line.chars().position(|c| c == '\t') {
            return At { line: to_u32(i + 1), column: to_u32(column + 1), width: 1 };
        }
    }
    at
}

fn is_tab(kind: &ErrorKind) -> bool {
    use ErrorKind as E;
    matches!(
        kind,
        E::TabNotAllowed
            | E::TabInBlockIndentation
            | E::TabInIndentation
            | E::TabAtBlockScalarStart
            | E::TabInPlainScalar
    )
}

/// The parser's error in the words of someone who has to mend the file.
fn syntax(kind: &ErrorKind) -> Problem {
    use ErrorKind as E;
    match kind {
        kind if is_tab(kind) => {
            Problem::new("a tab stands where YAML wants spaces").help("indent with spaces only")
        }
        E::MissingAnchorOrAliasName => Problem::new(
            "an unquoted `*` or `&` at the start of a value means something else in YAML",
        )
        .help("put the value in quotes: \"*\""),
        E::UnclosedQuotedScalar => Problem::new("a quoted text is not closed before the file ends")
            .help("look for a missing quote at or above this line"),
        E::RecursionLimitExceeded => too_deep(),
        E::MappingValueNotAllowed => Problem::new("a `:` is not allowed here").help(
            "either the line is indented wrongly, or the value holds a `: ` and needs quotes",
        ),
        E::DirectiveDisallowed => Problem::new("YAML directives (`%...`) are not supported")
            .help("remove the line; if it is a value, put it in quotes"),
        E::UnexpectedCharacter { character } if character.is_control() => {
            let code = u32::from(*character);
            Problem::new(format!("the control character U+{code:04X} cannot stand here"))
                .help("the file is expected to be plain text")
        }
        E::UnexpectedCharacter { character } => {
            Problem::new(format!("a text cannot begin with `{character}` in YAML"))
                .help("put the value in quotes")
        }
        E::SimpleKeyExpected | E::ExpectedBlockMappingKey => {
            Problem::new("expected a `field: value` here")
                .help("look for a missing `:`, or an indentation that fits no line above")
        }
        E::InvalidIndentation | E::ExpectedBlockSequenceEntry => {
            Problem::new("the indentation of this line fits no line above")
                .help("the fields of one map begin in the same column")
        }
        E::InvalidColonPlacement
        | E::UnclosedFlowCollection { .. }
        | E::UnexpectedEofFlowSequence
        | E::UnexpectedEofFlowMapping
        | E::UnexpectedEofImplicitFlowMapping
        | E::ExpectedFlowMappingSeparator
        | E::ExpectedFlowSequenceSeparator => {
            Problem::new("a list `[...]` or map `{...}` is not closed, or lacks a comma")
                .help("look for a missing `]`, `}` or `,` at or above this line")
        }
        E::MisplacedFlowCollectionEnd | E::MismatchedFlowCollectionEnd { .. } => {
            Problem::new("this bracket closes nothing that is open")
                .help("look for a missing or doubled bracket at or above this line")
        }
        other => Problem::new(format!("this is not valid YAML: {other}")),
    }
}
