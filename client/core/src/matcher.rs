//! Which buckets count a request: the buckets of a service, indexed so that ten thousand of them do
//! not cost ten thousand comparisons, and what a caller and procedure come down to. What is left to
//! ask of dimensions is in `open`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use sluicegate_model::{
    Bucket, Match, Name, Pattern, Patterns, Request, Scope, Select, ServiceBuckets, Specificity,
};

use crate::open::{ByValue, Candidate, Conditions, Dimension, Group, add, exact, fits};
use crate::sharing::ClassBucket;
use crate::slot::{RuleSlot, ServiceSlot};
use crate::values::PerBucket;

/// Where a bucket counts.
#[derive(Debug, Clone)]
pub(crate) enum Counted {
    /// On one slot.
    Whole(Arc<RuleSlot>),
    /// On the slot of the request's class.
    Class(Arc<ClassBucket>),
    /// On the slot of the request's values.
    Each(Arc<PerBucket>),
}

impl Counted {
    /// The slots that are there from configuration on.
    pub(crate) fn rules(&self) -> &[Arc<RuleSlot>] {
        match self {
            Self::Whole(rule) => std::slice::from_ref(rule),
            Self::Class(class) => &class.rules,
            Self::Each(per) => std::slice::from_ref(&per.overflow),
        }
    }
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

/// What an identity (service, caller, procedure) comes down to.
#[derive(Debug, Default)]
pub(crate) struct Resolved {
    /// Where the service counts; `None` if no service of that name is configured.
    pub(crate) service: Option<Arc<ServiceSlot>>,
    /// The slot, if there is exactly one and nothing to ask.
    pub(crate) one: Option<Arc<RuleSlot>>,
    /// No bucket can count it.
    pub(crate) nothing: bool,
    /// The bucket, if there is exactly one and its values or classes are all there is to look up.
    pub(crate) only: Only,
    /// Slots that count whatever the dimensions are.
    pub(crate) fixed: Box<[Arc<RuleSlot>]>,
    /// Buckets that count or not as the dimensions say.
    pub(crate) groups: Box<[Group]>,
}

/// The one bucket that counts an identity, if it is not known yet on which slot.
#[derive(Debug, Default)]
pub(crate) enum Only {
    Each(Arc<PerBucket>),
    Class(Arc<ClassBucket>),
    /// There are several, or there is more to ask.
    #[default]
    Neither,
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
            let mut asked = b.asked_dimensions().iter();
            b.rule.fits(request) && asked.all(|d| Request::dimension(request, d.as_str()).is_some())
        })
    }

    /// What the caller and procedure of `request` come down to. If `closed`, its dimensions are all
    /// there ever will be, so that only the values of `per` are left to look up.
    pub(crate) fn resolve(&self, request: &Request<'_>, closed: bool) -> Resolved {
        let candidates = self.sorted_places(request).into_iter().filter_map(|place| {
            let candidate = if closed {
                self.fits(place, request).then(|| self.certain(place, request)).flatten()
            } else {
                self.candidate(place, request)
            };
            candidate.map(|c| (place, c))
        });
        let (mut fixed, mut groups) = (Vec::new(), Vec::new());
        match self.of.select {
            Select::All => {
                let (certain, open): (Vec<_>, Vec<_>) =
                    candidates.map(|(_, c)| c).partition(Candidate::is_certain);
                fixed.extend(certain.into_iter().filter_map(|c| c.whole()));
                groups.push(Group::new(open, false));
            }
            Select::MostSpecific => {
                for mut ranked in self.by_scope(candidates) {
                    if ranked.first().is_some_and(Candidate::is_certain) {
                        fixed.extend(ranked.swap_remove(0).whole());
                    } else {
                        groups.push(Group::new(ranked, true));
                    }
                }
            }
        }
        groups.retain(|group| !group.is_empty());
        let one = if groups.is_empty() && fixed.len() == 1 { fixed.first().cloned() } else { None };
        let only = match (&*fixed, &*groups) {
            ([], [group]) => group.only(),
            _ => Only::Neither,
        };
        Resolved {
            service: Some(self.slot.clone()),
            one,
            nothing: fixed.is_empty() && groups.is_empty(),
            only,
            fixed: fixed.into_boxed_slice(),
            groups: groups.into_boxed_slice(),
        }
    }

    /// Tells apart the identities that resolve differently: those with equal classes can share what
    /// they resolve to. The buckets that may fit, each with the exclusions still to be asked.
    pub(crate) fn class(&self, request: &Request<'_>) -> Vec<usize> {
        let mut class = Vec::new();
        for place in self.sorted_places(request) {
            let Some(bucket) = self.of.buckets.get(place) else { continue };
            if self.candidate(place, request).is_none() {
                continue;
            }
            class.push(place);
            let asked = bucket.rule.not.iter().enumerate();
            let asked = asked.filter(|(_, n)| left_to_ask(n, request).is_some());
            // Counted from the other end, where no place is.
            class.extend(asked.map(|(i, _)| usize::MAX - i));
        }
        class
    }

    fn sorted_places(&self, request: &Request<'_>) -> Vec<usize> {
        let mut places: Vec<usize> = self.index.all_candidates(request).collect();
        places.sort_unstable();
        places
    }

    /// The candidates of each scope: the most specific first, nothing behind one that always fits.
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

    /// The bucket at `place` for `request`, which it counts.
    fn certain(&self, place: usize, request: &Request<'_>) -> Option<Candidate> {
        let counted = match self.counted.get(place)? {
            Counted::Class(class) => Counted::Whole(class.rule(request)?.clone()),
            other @ (Counted::Whole(_) | Counted::Each(_)) => other.clone(),
        };
        Some(Candidate::new(Box::default(), Box::default(), counted))
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
        Some(Candidate::new(on, not.into_boxed_slice(), counted))
    }
}

/// The conditions of `of` on dimensions, or `None` if caller or procedure do not fit.
fn left_to_ask(of: &Match, request: &Request<'_>) -> Option<Conditions> {
    let fit = fits(&of.caller, Request::dimension(request, "caller"))
        && fits(&of.procedure, Request::dimension(request, "procedure"));
    let conditions = of.dimensions.iter().filter(|(_, p)| !p.is_empty());
    fit.then(|| conditions.map(|(n, p)| (Dimension::new(n), p.clone())).collect())
}

pub(crate) fn per_dimensions(bucket: &Bucket) -> &[Name] {
    bucket.per.as_ref().map_or(&[], |p| &p.dimensions)
}

/// The buckets by what their rules ask. Each bucket stands in one of the parts, and in it at most
/// once for one request.
#[derive(Debug, Default)]
struct Index {
    callers: HashMap<Box<str>, Vec<usize>>,
    procedures: HashMap<Box<str>, Vec<usize>>,
    by_value: ByValue,
    /// With the patterns of which one must fit the caller.
    prefixes: Vec<(Patterns, usize)>,
    rest: Vec<usize>,
}

impl Index {
    fn new(buckets: &[Bucket]) -> Self {
        let mut index = Self::default();
        for (place, bucket) in buckets.iter().enumerate() {
            let on = &bucket.rule.on;
            let dimensions = on.dimensions.iter().map(|(n, p)| (Dimension::new(n), p));
            if let Some(callers) = exact(&on.caller) {
                add(&mut index.callers, callers, place);
            } else if let Some(procedures) = exact(&on.procedure) {
                add(&mut index.procedures, procedures, place);
            } else if index.by_value.add(dimensions, place) {
                // Found by the value of a dimension.
            } else if on.caller.is_empty() || on.caller.contains(&Pattern::Any) {
                index.rest.push(place);
            } else {
                index.prefixes.push((on.caller.clone(), place));
            }
        }
        index
    }

    /// Those that may count `request`.
    fn candidates<'a>(&'a self, request: &'a Request<'a>) -> impl Iterator<Item = usize> + 'a {
        self.by_identity(request).chain(self.by_value.of(request))
    }

    /// Those that may count a request of that identity, whatever its dimensions.
    fn all_candidates<'a>(&'a self, request: &'a Request<'a>) -> impl Iterator<Item = usize> + 'a {
        self.by_identity(request).chain(self.by_value.all())
    }

    fn by_identity<'a>(&'a self, request: &'a Request<'a>) -> impl Iterator<Item = usize> + 'a {
        let callers = self.callers.get(request.caller).into_iter().flatten();
        let procedures = self.procedures.get(request.procedure).into_iter().flatten();
        let by_prefix = |(patterns, _): &&(Patterns, usize)| fits(patterns, Some(request.caller));
        let prefixes = self.prefixes.iter().filter(by_prefix).map(|(_, place)| place);
        callers.chain(procedures).chain(prefixes).chain(&self.rest).copied()
    }
}
