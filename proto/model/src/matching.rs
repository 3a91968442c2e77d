//! Which requests a bucket counts. The rules stand here once: the client compiles them, `sluice
//! explain` and the tests evaluate them as they stand.

use std::collections::BTreeMap;

use crate::{Name, Request};

/// One pattern for one value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pattern {
    /// Any value that is present (`*`).
    Any,
    /// This value.
    Exact(Box<str>),
    /// Any value that begins so (`prefix*`). Never empty.
    Prefix(Box<str>),
}

impl Pattern {
    /// Reads `*`, `prefix*` or an exact value. A star counts only at the end.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text.strip_suffix('*') {
            Some("") => Self::Any,
            Some(prefix) => Self::Prefix(prefix.into()),
            None => Self::Exact(text.into()),
        }
    }

    /// Whether `value` fits.
    #[must_use]
    pub fn matches(&self, value: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(exact) => **exact == *value,
            Self::Prefix(prefix) => value.starts_with(&**prefix),
        }
    }
}

impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Exact(text) => f.write_str(text),
            Self::Prefix(text) => write!(f, "{text}*"),
        }
    }
}

/// Patterns of which one must fit. Empty means that nothing is asked for.
pub type Patterns = Vec<Pattern>;

/// Conditions that must all hold. The empty match fits everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Match {
    /// On the caller.
    pub caller: Patterns,
    /// On the procedure.
    pub procedure: Patterns,
    /// On further dimensions, which must then be present.
    pub dimensions: BTreeMap<Name, Patterns>,
}

impl Match {
    /// Whether `request` meets every condition.
    #[must_use]
    pub fn fits(&self, request: &Request<'_>) -> bool {
        fits_one(&self.caller, request.dimension("caller"))
            && fits_one(&self.procedure, request.dimension("procedure"))
            && self.dimensions.iter().all(|(n, p)| fits_one(p, request.dimension(n.as_str())))
    }

    /// Whether nothing is asked for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.caller.is_empty() && self.procedure.is_empty() && self.dimensions.is_empty()
    }

    /// Every condition with the name of its dimension.
    pub fn conditions(&self) -> impl Iterator<Item = (&str, &Patterns)> {
        [("caller", &self.caller), ("procedure", &self.procedure)]
            .into_iter()
            .chain(self.dimensions.iter().map(|(n, p)| (n.as_str(), p)))
            .filter(|(_, p)| !p.is_empty())
    }
}

fn fits_one(patterns: &Patterns, value: Option<&str>) -> bool {
    if patterns.is_empty() {
        return true;
    }
    value.is_some_and(|v| patterns.iter().any(|p| p.matches(v)))
}

/// What a bucket matches: all of `on`, and none of `not` (each of which excludes only what meets all
/// of its conditions).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rule {
    /// What must hold.
    pub on: Match,
    /// What excludes.
    pub not: Vec<Match>,
}

impl Rule {
    /// Whether `request` is counted.
    #[must_use]
    pub fn fits(&self, request: &Request<'_>) -> bool {
        self.on.fits(request) && !self.not.iter().any(|n| n.fits(request))
    }

    /// How narrow this rule is, for `select: most_specific`.
    #[must_use]
    pub fn specificity(&self) -> Specificity {
        let mut s = Specificity::default();
        for (_, patterns) in self.on.conditions() {
            if patterns.iter().all(|p| matches!(p, Pattern::Exact(_))) {
                s.exact += 1;
            } else if patterns.contains(&Pattern::Any) {
                s.present += 1;
            } else {
                s.prefix += 1;
                let shortest = patterns.iter().map(|p| match p {
                    Pattern::Any => 0,
                    Pattern::Exact(t) | Pattern::Prefix(t) => t.len(),
                });
                s.prefix_bytes += shortest.min().unwrap_or(0);
            }
        }
        s.not = self.not.len();
        s
    }
}

/// The order of `select: most_specific`: more exact conditions first, then more prefixes, then
/// longer ones, then more conditions on mere presence, then more exclusions. Between equals the
/// bucket that stands first in the file wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Specificity {
    /// Conditions that name values exactly.
    pub exact: usize,
    /// Conditions with a prefix.
    pub prefix: usize,
    /// Bytes of the shortest prefix of each of those, added up.
    pub prefix_bytes: usize,
    /// Conditions that ask only for presence.
    pub present: usize,
    /// Exclusions.
    pub not: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(texts: &[&str]) -> Patterns {
        texts.iter().map(|t| Pattern::parse(t)).collect()
    }

    #[test]
    fn patterns_are_exact_prefix_or_any() {
        assert!(Pattern::parse("*").matches(""));
        assert!(Pattern::parse("a/*").matches("a/b"));
        assert!(!Pattern::parse("a/*").matches("a"));
        assert!(Pattern::parse("a*b").matches("a*b"), "a star inside is a letter");
        assert!(!Pattern::parse("a*b").matches("aXb"));
    }

    #[test]
    fn presence_lists_and_exclusions() {
        let mut rule = Rule::default();
        assert!(rule.fits(&Request::default()), "nothing asked for is everything");
        rule.on.dimensions.insert(Name::new("ws").expect("name"), patterns(&["*"]));
        assert!(!rule.fits(&Request::default()), "`*` asks for presence");
        let with = Request { dimensions: &[("ws", "")], caller: "batch-1", ..Request::default() };
        assert!(rule.fits(&with));
        rule.not.push(Match { caller: patterns(&["batch-*"]), ..Match::default() });
        assert!(!rule.fits(&with));
        assert!(rule.fits(&Request { caller: "web", ..with }));
    }

    #[test]
    fn a_not_excludes_only_what_meets_all_of_it() {
        let not =
            Match { caller: patterns(&["a"]), procedure: patterns(&["p"]), ..Match::default() };
        let rule = Rule { on: Match::default(), not: vec![not] };
        assert!(rule.fits(&Request { caller: "a", procedure: "q", ..Request::default() }));
        assert!(!rule.fits(&Request { caller: "a", procedure: "p", ..Request::default() }));
    }

    #[test]
    fn specificity_orders_exact_before_prefix_before_any() {
        let of = |t: &[&str]| {
            Rule { on: Match { caller: patterns(t), ..Match::default() }, not: vec![] }
                .specificity()
        };
        assert!(of(&["a"]) > of(&["abc*"]));
        assert!(of(&["abc*"]) > of(&["a*"]));
        assert!(of(&["a*"]) > of(&["*"]));
        assert!(of(&["*"]) > of(&[]));
        assert!(of(&["a", "b*"]) < of(&["a", "b"]), "a list is as wide as its widest pattern");
    }
}
