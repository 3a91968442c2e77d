//! The fields of a bucket file: their names, what they mean, and which are known but not enforced.
//! The parser checks against these tables and the JSON Schema is made from them, so the two agree.

use sluicegate_model::{Mode, OnControlLoss, Per, Scope, Select, TokenRate};

use crate::walk::{FieldName, Word};

/// The version that a file must name.
pub const API_VERSION: &str = "sluicegate/v1";
/// The most patterns for one condition.
pub const MAX_PATTERNS: usize = 1_000;
/// The most dimensions in one match.
pub const MAX_DIMENSIONS: usize = 32;
/// The most entries of one `not`.
pub const MAX_NOT: usize = 100;
/// The most `values` in one bucket.
pub const MAX_VALUES: usize = 100_000;
/// The longest owner, contact or runbook, in bytes.
pub const MAX_TEXT_BYTES: usize = 2_000;

/// One field.
pub(crate) struct Field {
    pub name: &'static str,
    pub doc: &'static str,
    pub required: bool,
    pub state: State,
}

/// Whether a field is taken.
pub(crate) enum State {
    /// Taken; it has this shape.
    Taken(Shape),
    /// Known, and for a later version to enforce.
    Later,
    /// Known, but not here.
    Elsewhere,
}

/// What a field holds, for the schema.
#[derive(Clone, Copy)]
pub(crate) enum Shape {
    ApiVersion,
    Name,
    Text,
    Words(fn() -> Vec<(&'static str, &'static str)>),
    Buckets,
    Match,
    Not,
    Patterns,
    Dimensions,
    Limit,
    Window,
    Count(u64, u64),
    Per,
    Values,
    ValueNames,
    Overflow,
    Share,
    Priority,
    Classes,
    Class,
}

impl FieldName for Field {
    fn name(&self) -> &'static str {
        self.name
    }

    fn refusal(&self) -> Option<String> {
        match self.state {
            State::Taken(_) => None,
            State::Later => Some(later(self.name, self.doc)),
            State::Elsewhere => Some(self.doc.to_owned()),
        }
    }
}

/// Why a field of a later version is not taken.
pub(crate) fn later(name: &str, what: &str) -> String {
    format!(
        "`{name}` ({what}) is not enforced by this version, so it is refused rather than ignored; remove it"
    )
}

const fn required(name: &'static str, doc: &'static str, shape: Shape) -> Field {
    Field { name, doc, required: true, state: State::Taken(shape) }
}

const fn optional(name: &'static str, doc: &'static str, shape: Shape) -> Field {
    Field { name, doc, required: false, state: State::Taken(shape) }
}

const fn not_yet(name: &'static str, what: &'static str) -> Field {
    Field { name, doc: what, required: false, state: State::Later }
}

const fn elsewhere(name: &'static str, where_to: &'static str) -> Field {
    Field { name, doc: where_to, required: false, state: State::Elsewhere }
}

fn listed<T>(words: &'static [Word<T>]) -> Vec<(&'static str, &'static str)> {
    words.iter().map(|w| (w.text, w.doc)).collect()
}

/// `select`.
pub(crate) static SELECTS: [Word<Select>; 2] = [
    Word {
        text: "all",
        doc: "Every bucket that matches a request counts it; any of them can drop it.",
        value: Select::All,
    },
    Word {
        text: "most_specific",
        doc: "Of each scope, only the most specific bucket that matches counts the request.",
        value: Select::MostSpecific,
    },
];

/// `scope`.
pub(crate) static SCOPES: [Word<Scope>; 3] = [
    Word { text: "zone", doc: "Each zone has the whole limit for itself.", value: Scope::Zone },
    Word {
        text: "region",
        doc: "All zones of a region share the limit; each region has it for itself.",
        value: Scope::Region,
    },
    Word { text: "global", doc: "All regions share one limit.", value: Scope::Global },
];

/// `mode`.
pub(crate) static MODES: [Word<Mode>; 3] = [
    Word { text: "deny", doc: "Drops what is over the limit.", value: Mode::Deny },
    Word {
        text: "shadow",
        doc: "Counts what it would drop, and drops nothing.",
        value: Mode::Shadow,
    },
    Word { text: "observe", doc: "Has no limit and only counts.", value: Mode::Observe },
];

/// `on_control_loss`.
pub(crate) static ON_CONTROL_LOSS: [Word<OnControlLoss>; 4] = [
    Word { text: "open", doc: "Admits everything.", value: OnControlLoss::Open },
    Word { text: "last", doc: "Goes on with the last admit ratio.", value: OnControlLoss::Last },
    Word {
        text: "share",
        doc: "Each client goes on with the rate it last admitted itself.",
        value: OnControlLoss::Share,
    },
    Word { text: "closed", doc: "Admits nothing.", value: OnControlLoss::Closed },
];

/// `guard`.
pub(crate) static GUARD: [Word<bool>; 2] = [
    Word { text: "off", doc: "Waits for word from the control plane.", value: false },
    Word {
        text: "on",
        doc: "Each client cuts a surge off by itself, before word of it comes back.",
        value: true,
    },
];

/// The fields that mean nothing without a limit.
pub(crate) const ONLY_WITH_LIMIT: [&str; 5] =
    ["guard", "enforce", "max_drop", "fair_by", "priority"];

/// Those that only the law grant knows.
pub(crate) const ONLY_UNDER_GRANT: [&str; 3] = ["guard", "fair_by", "priority"];

/// The top of a file.
pub(crate) static SERVICE: [Field; 10] = [
    required("apiVersion", "The version of this format: `sluicegate/v1`.", Shape::ApiVersion),
    required(
        "service",
        "The service that the buckets protect: the destination of the calls.",
        Shape::Name,
    ),
    optional(
        "owner",
        "The team that answers for the service; shown wherever the service is.",
        Shape::Text,
    ),
    optional("contact", "How to reach the owner.", Shape::Text),
    optional("runbook", "What to do when the limits matter: a link or a few words.", Shape::Text),
    optional(
        "select",
        "Which of several matching buckets count a request. Default: `all`.",
        Shape::Words(|| listed(&SELECTS)),
    ),
    required("buckets", "The rules, each with a name of its own.", Shape::Buckets),
    not_yet("count_at", "which side of a call counts it"),
    not_yet("charge", "what a denied request charges"),
    elsewhere(
        "kind",
        "`kind` belongs to node settings; this file is read as a bucket file, which has none",
    ),
];

/// One bucket.
pub(crate) static BUCKET: [Field; 26] = [
    required("name", "The name of the bucket, unique in the file.", Shape::Name),
    required("scope", "Over what the limit is summed.", Shape::Words(|| listed(&SCOPES))),
    optional("match", "Which requests the bucket counts. Nothing: every request.", Shape::Match),
    optional(
        "limit",
        "How much: `N/s`, `N/m`, `N/h`, `{requests, window}` or `unlimited`. 0 denies everything. Required unless `mode` is `observe`.",
        Shape::Limit,
    ),
    optional(
        "burst",
        "How many requests may come at once after a pause. Default: for `N/s` 0.1 s of the rate and at least 1, otherwise N.",
        Shape::Count(1, TokenRate::MAX_REQUESTS),
    ),
    optional(
        "mode",
        "What happens to what is over the limit. Default: `deny`.",
        Shape::Words(|| listed(&MODES)),
    ),
    optional(
        "per",
        "One count for each value (or combination of values) of these dimensions.",
        Shape::Per,
    ),
    optional("values", "Limits of single values of the `per` dimensions.", Shape::Values),
    optional(
        "max_keys",
        "The most values that have counts of their own at once, those of `fair_by` included. Default: 100_000.",
        Shape::Count(1, Per::MAX_MAX_KEYS as u64),
    ),
    optional(
        "overflow",
        "What applies to all values beyond `max_keys` together: `observe` (default) or a limit.",
        Shape::Overflow,
    ),
    optional(
        "on_control_loss",
        "What clients do once the control plane has been silent for too long. Default: `open`.",
        Shape::Words(|| listed(&ON_CONTROL_LOSS)),
    ),
    optional(
        "enforce",
        "The share of its drops that is enforced, above 0 up to 1, or as 25%; the rest is admitted and counted as would drop. Default: 1.",
        Shape::Share,
    ),
    optional(
        "max_drop",
        "The largest share of the offered requests that is dropped, above 0 up to 1, or as 25%. Default: 1.",
        Shape::Share,
    ),
    optional(
        "guard",
        "Whether each client cuts a surge off by itself. For limits above 200/s; needs the law grant. Default: `off`.",
        Shape::Words(|| listed(&GUARD)),
    ),
    optional(
        "fair_by",
        "A dimension whose values share the limit fairly: none gets more than another that wants more than it gets. Needs the law grant.",
        Shape::Name,
    ),
    optional(
        "priority",
        "Classes of requests: what is over the limit is dropped from the worst class first. A retry (dimension `attempt` of 2 or more) is in the worst class. Needs the law grant.",
        Shape::Priority,
    ),
    not_yet("algorithm", "the choice of a counting algorithm"),
    not_yet("limits", "limits that differ by region"),
    not_yet("charge", "what a denied request charges"),
    not_yet("count_at", "which side of a call counts it"),
    elsewhere("caller", "`caller` belongs inside `match`: `match: { caller: ... }`"),
    elsewhere("procedure", "`procedure` belongs inside `match`: `match: { procedure: ... }`"),
    elsewhere(
        "dimensions",
        "`dimensions` belongs inside `match`: `match: { dimensions: { ... } }`",
    ),
    elsewhere("not", "`not` belongs inside `match`: `match: { not: { ... } }`"),
    elsewhere("select", "`select` belongs to the whole service, at the top of the file"),
    elsewhere("service", "`service` belongs to the top of the file; a file holds one service"),
];

/// `match`.
pub(crate) static MATCH: [Field; 4] = [
    optional("caller", "Who calls: a pattern or a list of them.", Shape::Patterns),
    optional("procedure", "What is called: a pattern or a list of them.", Shape::Patterns),
    optional(
        "dimensions",
        "Further dimensions, each with a pattern or a list of them. All must be present and fit.",
        Shape::Dimensions,
    ),
    optional(
        "not",
        "What the bucket does not count: a match or a list of them. Each excludes the requests that meet all of its conditions.",
        Shape::Not,
    ),
];

/// An entry of `not`.
pub(crate) static NOT: [Field; 4] = [
    optional("caller", "Who calls: a pattern or a list of them.", Shape::Patterns),
    optional("procedure", "What is called: a pattern or a list of them.", Shape::Patterns),
    optional(
        "dimensions",
        "Further dimensions, each with a pattern or a list of them. All must be present and fit.",
        Shape::Dimensions,
    ),
    elsewhere(
        "not",
        "a `not` inside a `not` is not supported; say what you mean with `match` and one `not`",
    ),
];

/// `{requests, window}`.
pub(crate) static RATE: [Field; 5] = [
    required("requests", "How many requests a window.", Shape::Count(0, TokenRate::MAX_REQUESTS)),
    required(
        "window",
        "The time over which they are refilled: 500ms, 10s, 5m, 2h or 1d.",
        Shape::Window,
    ),
    not_yet("policy", "a limit computed by a policy"),
    elsewhere(
        "burst",
        "`burst` does not belong inside the braces of a limit; write it beside the limit: {limit: {requests: 5, window: 10s}, burst: 10}",
    ),
    elsewhere(
        "limit",
        "`limit` does not belong here; write the limit itself, and `burst` beside it",
    ),
];

/// `priority`.
pub(crate) static PRIORITY: [Field; 3] = [
    required("dimension", "The dimension whose values are the classes.", Shape::Name),
    required("order", "The classes, the best first: 2 to 8 exact values.", Shape::Classes),
    optional(
        "default",
        "The class of requests with another value, or without one. Default: the worst.",
        Shape::Class,
    ),
];

/// `{limit, burst}` of a value or an overflow.
pub(crate) static LIMIT_WITH_BURST: [Field; 2] = [
    required("limit", "The limit.", Shape::Limit),
    optional(
        "burst",
        "How many requests may come at once after a pause.",
        Shape::Count(1, TokenRate::MAX_REQUESTS),
    ),
];

/// An entry of `values` in its list form.
pub(crate) static VALUE: [Field; 3] = [
    required("values", "One exact value for each dimension of `per`.", Shape::ValueNames),
    required("limit", "The limit of this combination.", Shape::Limit),
    optional(
        "burst",
        "How many requests may come at once after a pause.",
        Shape::Count(1, TokenRate::MAX_REQUESTS),
    ),
];
