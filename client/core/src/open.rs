//! Buckets whose caller and procedure fit and whose dimensions are still to be asked, indexed by the
//! values that they ask for.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use sluicegate_model::{Name, Pattern, Patterns, Request};

use crate::hash::same;
use crate::matcher::{Counted, Only};
use crate::slot::RuleSlot;

/// What a request shows beside its service: borrowed from the request, or owned by a handle.
pub(crate) trait Dimensions {
    fn caller(&self) -> &str;
    fn procedure(&self) -> &str;
    /// One that is not built in.
    fn named(&self, name: &str) -> Option<&str>;

    #[inline(always)]
    fn dimension(&self, dimension: &Dimension) -> Option<&str> {
        match dimension {
            Dimension::Named(name) => self.named(name.as_str()),
            Dimension::Caller => Some(self.caller()).filter(|v| !v.is_empty()),
            Dimension::Procedure => Some(self.procedure()).filter(|v| !v.is_empty()),
        }
    }
}

impl Dimensions for Request<'_> {
    fn caller(&self) -> &str {
        self.caller
    }

    fn procedure(&self) -> &str {
        self.procedure
    }

    #[inline(always)]
    fn named(&self, name: &str) -> Option<&str> {
        let is = |n: &str| n.len() == name.len() && same(n.as_bytes(), name.as_bytes());
        self.dimensions.iter().find(|(n, _)| is(n)).map(|(_, v)| *v)
    }
}

/// A dimension, told apart beforehand so that no request compares its name with the built-in ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Dimension {
    Caller,
    Procedure,
    Named(Name),
}

impl Dimension {
    pub(crate) fn new(name: &Name) -> Self {
        match name.as_str() {
            "caller" => Self::Caller,
            "procedure" => Self::Procedure,
            _ => Self::Named(name.clone()),
        }
    }
}

/// What is asked of dimensions; all must hold.
pub(crate) type Conditions = Box<[(Dimension, Patterns)]>;

/// A bucket whose caller and procedure fit, with what is left to ask.
#[derive(Debug)]
pub(crate) struct Candidate {
    on: Conditions,
    not: Box<[Conditions]>,
    pub(crate) counted: Counted,
}

impl Candidate {
    pub(crate) fn new(on: Conditions, not: Box<[Conditions]>, counted: Counted) -> Self {
        Self { on, not, counted }
    }

    /// Whether it counts whatever the dimensions are.
    pub(crate) fn is_certain(&self) -> bool {
        self.asks_nothing() && matches!(self.counted, Counted::Whole(_))
    }

    pub(crate) fn whole(self) -> Option<Arc<RuleSlot>> {
        match self.counted {
            Counted::Whole(rule) => Some(rule),
            Counted::Class(_) | Counted::Each(_) => None,
        }
    }

    fn asks_nothing(&self) -> bool {
        self.on.is_empty() && self.not.is_empty()
    }

    fn fits<D: Dimensions>(&self, request: &D) -> bool {
        all_fit(&self.on, request)
            && !self.not.iter().any(|n| all_fit(n, request))
            && match &self.counted {
                Counted::Whole(_) | Counted::Class(_) => true,
                Counted::Each(per) => per.asked.iter().all(|d| request.dimension(d).is_some()),
            }
    }
}

fn all_fit<D: Dimensions>(conditions: &[(Dimension, Patterns)], request: &D) -> bool {
    conditions.iter().all(|(name, patterns)| fits(patterns, request.dimension(name)))
}

pub(crate) fn fits(patterns: &Patterns, value: Option<&str>) -> bool {
    patterns.is_empty() || value.is_some_and(|v| patterns.iter().any(|p| p.matches(v)))
}

/// Candidates that are asked together.
#[derive(Debug)]
pub(crate) struct Group {
    candidates: Box<[Candidate]>,
    /// Only the first in order that fits counts, not every one.
    first_only: bool,
    by_value: ByValue,
    /// Those that `by_value` does not have.
    rest: Box<[usize]>,
}

impl Group {
    /// Of `candidates`, the most specific first if `first_only`.
    pub(crate) fn new(candidates: Vec<Candidate>, first_only: bool) -> Self {
        let mut by_value = ByValue::default();
        let mut rest = Vec::new();
        for (i, candidate) in candidates.iter().enumerate() {
            if !by_value.add(candidate.on.iter().map(|(d, p)| (d.clone(), p)), i) {
                rest.push(i);
            }
        }
        Self { candidates: candidates.into(), first_only, by_value, rest: rest.into() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.candidates.is_empty()
    }

    /// The bucket, if it is the only one and its values or classes are all there is to look up.
    pub(crate) fn only(&self) -> Only {
        match &*self.candidates {
            [only] if only.asks_nothing() => match &only.counted {
                Counted::Whole(_) => Only::Neither,
                Counted::Class(class) => Only::Class(class.clone()),
                Counted::Each(per) => Only::Each(per.clone()),
            },
            _ => Only::Neither,
        }
    }

    /// The candidates that count `request`.
    pub(crate) fn counting<'a, D: Dimensions>(
        &'a self,
        request: &'a D,
    ) -> impl Iterator<Item = &'a Candidate> {
        let first = if self.first_only { self.fitting(request).min() } else { None };
        let every = (!self.first_only).then(|| self.fitting(request)).into_iter().flatten();
        first.into_iter().chain(every).filter_map(|i| self.candidates.get(i))
    }

    fn fitting<'a, D: Dimensions>(&'a self, request: &'a D) -> impl Iterator<Item = usize> + 'a {
        let fits = |i: &usize| self.candidates.get(*i).is_some_and(|c| c.fits(request));
        self.by_value.of(request).chain(self.rest.iter().copied()).filter(fits)
    }
}

/// By the text that is asked for.
type Things = HashMap<Box<str>, Vec<usize>>;

/// Things found by the exact value of one of the dimensions that they ask for, so that a thousand
/// buckets with a value each cost one look-up and not a thousand comparisons.
#[derive(Debug, Default)]
pub(crate) struct ByValue {
    dimensions: Vec<(Dimension, Things)>,
    all: Vec<usize>,
}

impl ByValue {
    /// Takes `thing` in under the first of the conditions that names values exactly. Whether there
    /// is one.
    pub(crate) fn add<'a>(
        &mut self,
        mut conditions: impl Iterator<Item = (Dimension, &'a Patterns)>,
        thing: usize,
    ) -> bool {
        let Some((dimension, texts)) =
            conditions.find_map(|(dimension, p)| Some((dimension, exact(p)?)))
        else {
            return false;
        };
        let at = self.dimensions.iter().position(|(d, _)| *d == dimension);
        let at = at.unwrap_or_else(|| {
            self.dimensions.push((dimension, HashMap::new()));
            self.dimensions.len() - 1
        });
        add(&mut self.dimensions[at].1, texts, thing);
        self.all.push(thing);
        true
    }

    /// Those whose condition the request meets.
    pub(crate) fn of<'a, D: Dimensions>(
        &'a self,
        request: &'a D,
    ) -> impl Iterator<Item = usize> + 'a {
        let met = |(dimension, things): &'a (Dimension, Things)| {
            things.get(request.dimension(dimension)?)
        };
        self.dimensions.iter().filter_map(met).flatten().copied()
    }

    /// Every one, each once.
    pub(crate) fn all(&self) -> impl Iterator<Item = usize> + '_ {
        self.all.iter().copied()
    }
}

/// The texts, if every pattern is exact and there is one.
pub(crate) fn exact(patterns: &Patterns) -> Option<BTreeSet<&str>> {
    let texts = patterns.iter().map(|p| match p {
        Pattern::Exact(text) => Some(&**text),
        Pattern::Any | Pattern::Prefix(_) => None,
    });
    texts.collect::<Option<BTreeSet<&str>>>().filter(|t| !t.is_empty())
}

pub(crate) fn add(to: &mut HashMap<Box<str>, Vec<usize>>, texts: BTreeSet<&str>, place: usize) {
    for text in texts {
        to.entry(text.into()).or_default().push(place);
    }
}
