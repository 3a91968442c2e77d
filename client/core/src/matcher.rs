//! Which buckets count a request: the buckets of a service, indexed so that ten thousand of them do
//! not cost ten thousand comparisons, and what remains to be asked once caller and procedure are
//! known.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use sluicegate_model::{
    Bucket, Match, Name, Pattern, Patterns, Request, Scope, Select, ServiceBuckets, Specificity,
};

use crate::hash::same;
use crate::slot::{RuleSlot, ServiceSlot};
use crate::values::PerBucket;

/// Where a bucket counts.
#[derive(Debug, Clone)]
pub(crate) enum Counted {
    /// On one slot.
    Whole(Arc<RuleSlot>),
    /// On the slot of the request's values.
    Each(Arc<PerBucket>),
}

/// The buckets of one service with their slots.
#[derive(Debug)]
pub(crate) struct ServicePlan {
    pub(crate) of: Arc<ServiceBuckets>,
    pub(crate) slot: Arc<ServiceSlot>,
    /// Beside `of.buckets`.
    pub(crate) counted: Vec<Counted>,
    index: Index,
}

/// What a request shows beside its service: borrowed from the request, or owned by a handle.
pub(crate) trait Dimensions {
    fn caller(&self) -> &str;
    fn procedure(&self) -> &str;
    /// One that is not built in.
    fn named(&self, name: &str) -> Option<&str>;

    #[inline]
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

/// What an identity (service, caller, procedure) comes down to.
#[derive(Debug, Default)]
pub(crate) struct Resolved {
    /// Where the service counts; `None` if no service of that name is configured.
    pub(crate) service: Option<Arc<ServiceSlot>>,
    /// The slot, if there is exactly one and nothing to ask.
    pub(crate) one: Option<Arc<RuleSlot>>,
    /// The bucket, if there is exactly one and its values are all there is to look up.
    pub(crate) each: Option<Arc<PerBucket>>,
    /// Slots that count whatever the dimensions are.
    pub(crate) fixed: Box<[Arc<RuleSlot>]>,
    /// Of each group the first candidate that fits the dimensions counts, if any does.
    pub(crate) groups: Box<[Box<[Candidate]>]>,
}

/// A bucket whose caller and procedure fit, with what is left to ask.
#[derive(Debug)]
pub(crate) struct Candidate {
    on: Box<[(Dimension, Patterns)]>,
    not: Box<[Box<[(Dimension, Patterns)]>]>,
    pub(crate) counted: Counted,
}

impl Candidate {
    fn is_certain(&self) -> bool {
        self.on.is_empty() && self.not.is_empty() && matches!(self.counted, Counted::Whole(_))
    }

    #[inline]
    pub(crate) fn fits<D: Dimensions>(&self, request: &D) -> bool {
        all_fit(&self.on, request) && !self.not.iter().any(|n| all_fit(n, request))
    }
}

fn all_fit<D: Dimensions>(conditions: &[(Dimension, Patterns)], request: &D) -> bool {
    conditions.iter().all(|(name, patterns)| fits(patterns, request.dimension(name)))
}

fn fits(patterns: &Patterns, value: Option<&str>) -> bool {
    patterns.is_empty() || value.is_some_and(|v| patterns.iter().any(|p| p.matches(v)))
}

impl ServicePlan {
    pub(crate) fn new(
        of: Arc<ServiceBuckets>,
        slot: Arc<ServiceSlot>,
        counted: Vec<Counted>,
    ) -> Self {
        let index = Index::new(&of.buckets);
        Self { of, slot, counted, index }
    }

    /// The places of the buckets that count `request`, found without allocating. In no order.
    pub(crate) fn matching<'a>(
        &'a self,
        request: &'a Request<'a>,
    ) -> impl Iterator<Item = usize> + 'a {
        let fitting = self.index.candidates(request).filter(|place| self.fits(*place, request));
        let mut best = [None; 3];
        let most_specific = self.of.select == Select::MostSpecific;
        if most_specific {
            self.index
                .candidates(request)
                .filter(|place| self.fits(*place, request))
                .for_each(|place| self.keep_better(&mut best, place));
        }
        let best = best.into_iter().flatten().map(|(_, place)| place);
        fitting.filter(move |_| !most_specific).chain(best)
    }

    fn keep_better(&self, best: &mut [Option<(Specificity, usize)>; 3], place: usize) {
        let Some(bucket) = self.of.buckets.get(place) else { return };
        let specificity = bucket.rule.specificity();
        let entry = match bucket.scope {
            Scope::Zone => &mut best[0],
            Scope::Region => &mut best[1],
            Scope::Global => &mut best[2],
        };
        let better = entry.is_none_or(|(s, p)| specificity > s || specificity == s && place < p);
        if better {
            *entry = Some((specificity, place));
        }
    }

    fn fits(&self, place: usize, request: &Request<'_>) -> bool {
        self.of.buckets.get(place).is_some_and(|b| {
            b.rule.fits(request)
                && per_dimensions(b)
                    .iter()
                    .all(|d| Request::dimension(request, d.as_str()).is_some())
        })
    }

    /// What the caller and procedure of `request` come down to. If `closed`, its dimensions are all
    /// there ever will be, so that only the values of `per` are left to look up.
    pub(crate) fn resolve(&self, request: &Request<'_>, closed: bool) -> Resolved {
        let mut places: Vec<usize> = self.index.candidates(request).collect();
        places.sort_unstable();
        let candidates = places.into_iter().filter_map(|place| {
            let candidate = if closed {
                self.fits(place, request).then(|| self.certain(place)).flatten()
            } else {
                self.candidate(place, request)
            };
            candidate.map(|c| (place, c))
        });
        let groups = match self.of.select {
            Select::All => candidates.map(|(_, c)| vec![c]).collect(),
            Select::MostSpecific => self.by_scope(candidates),
        };
        let (mut fixed, mut open) = (Vec::new(), Vec::new());
        for group in groups {
            match group.first() {
                Some(Candidate { counted: Counted::Whole(rule), .. }) if group[0].is_certain() => {
                    fixed.push(rule.clone());
                }
                _ => open.push(group.into_boxed_slice()),
            }
        }
        let one = if open.is_empty() && fixed.len() == 1 { fixed.first().cloned() } else { None };
        let each = match (&*fixed, &*open) {
            ([], [group]) => match &**group {
                [Candidate { on, not, counted: Counted::Each(per) }]
                    if on.is_empty() && not.is_empty() =>
                {
                    Some(per.clone())
                }
                _ => None,
            },
            _ => None,
        };
        Resolved {
            service: Some(self.slot.clone()),
            one,
            each,
            fixed: fixed.into_boxed_slice(),
            groups: open.into_boxed_slice(),
        }
    }

    /// A group for each scope: the most specific first, nothing behind one that always fits.
    fn by_scope(
        &self,
        candidates: impl Iterator<Item = (usize, Candidate)>,
    ) -> Vec<Vec<Candidate>> {
        let mut scopes: BTreeMap<Scope, Vec<(Specificity, usize, Candidate)>> = BTreeMap::new();
        for (place, candidate) in candidates {
            let bucket = &self.of.buckets[place];
            let entry = (bucket.rule.specificity(), place, candidate);
            scopes.entry(bucket.scope).or_default().push(entry);
        }
        let order = |mut group: Vec<(Specificity, usize, Candidate)>| {
            group.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
            let certain = group.iter().position(|(_, _, c)| c.is_certain());
            group.truncate(certain.map_or(group.len(), |at| at + 1));
            group.into_iter().map(|(_, _, c)| c).collect()
        };
        scopes.into_values().map(order).collect()
    }

    fn certain(&self, place: usize) -> Option<Candidate> {
        let counted = self.counted.get(place)?.clone();
        Some(Candidate { on: Box::default(), not: Box::default(), counted })
    }

    /// What is left to ask of the bucket at `place` once caller and procedure are known; `None` if
    /// it can never fit.
    fn candidate(&self, place: usize, request: &Request<'_>) -> Option<Candidate> {
        let bucket = self.of.buckets.get(place)?;
        let on = left_to_ask(&bucket.rule.on, request)?;
        let mut not = Vec::new();
        for exclusion in &bucket.rule.not {
            match left_to_ask(exclusion, request) {
                None => {}
                Some(left) if left.is_empty() => return None,
                Some(left) => not.push(left),
            }
        }
        let counted = self.counted.get(place)?.clone();
        Some(Candidate { on, not: not.into_boxed_slice(), counted })
    }
}

/// The conditions of `of` on dimensions, or `None` if caller or procedure do not fit.
fn left_to_ask(of: &Match, request: &Request<'_>) -> Option<Box<[(Dimension, Patterns)]>> {
    let fit = fits(&of.caller, Request::dimension(request, "caller"))
        && fits(&of.procedure, Request::dimension(request, "procedure"));
    let conditions = of.dimensions.iter().filter(|(_, p)| !p.is_empty());
    fit.then(|| conditions.map(|(n, p)| (Dimension::new(n), p.clone())).collect())
}

pub(crate) fn per_dimensions(bucket: &Bucket) -> &[Name] {
    bucket.per.as_ref().map_or(&[], |p| &p.dimensions)
}

/// The buckets by what their rules ask of the caller or the procedure. Each bucket stands in one of
/// the parts, and in it at most once for one request.
#[derive(Debug, Default)]
struct Index {
    callers: HashMap<Box<str>, Vec<usize>>,
    procedures: HashMap<Box<str>, Vec<usize>>,
    /// With the patterns of which one must fit the caller.
    prefixes: Vec<(Patterns, usize)>,
    rest: Vec<usize>,
}

impl Index {
    fn new(buckets: &[Bucket]) -> Self {
        let mut index = Self::default();
        for (place, bucket) in buckets.iter().enumerate() {
            let on = &bucket.rule.on;
            if let Some(callers) = exact(&on.caller) {
                add(&mut index.callers, callers, place);
            } else if let Some(procedures) = exact(&on.procedure) {
                add(&mut index.procedures, procedures, place);
            } else if on.caller.is_empty() || on.caller.contains(&Pattern::Any) {
                index.rest.push(place);
            } else {
                index.prefixes.push((on.caller.clone(), place));
            }
        }
        index
    }

    fn candidates<'a>(&'a self, request: &'a Request<'a>) -> impl Iterator<Item = usize> + 'a {
        let callers = self.callers.get(request.caller).into_iter().flatten();
        let procedures = self.procedures.get(request.procedure).into_iter().flatten();
        let by_prefix = |(patterns, _): &&(Patterns, usize)| fits(patterns, Some(request.caller));
        let prefixes = self.prefixes.iter().filter(by_prefix).map(|(_, place)| place);
        callers.chain(procedures).chain(prefixes).chain(&self.rest).copied()
    }
}

/// The texts, if every pattern is exact and there is one.
fn exact(patterns: &Patterns) -> Option<BTreeSet<&str>> {
    let texts = patterns.iter().map(|p| match p {
        Pattern::Exact(text) => Some(&**text),
        Pattern::Any | Pattern::Prefix(_) => None,
    });
    texts.collect::<Option<BTreeSet<&str>>>().filter(|t| !t.is_empty())
}

fn add(to: &mut HashMap<Box<str>, Vec<usize>>, texts: BTreeSet<&str>, place: usize) {
    for text in texts {
        to.entry(text.into()).or_default().push(place);
    }
}
