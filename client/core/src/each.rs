//! Several descriptors of one request, decided together: a key that two of them hit counts once,
//! and when one is refused nothing is charged to the others' keys.

use std::time::Duration;

use sluicegate_model::{AdmitRatio, KeyValues, Limit, Request};

use crate::CoarseClock;
use crate::decide::{At, Decider, Joined};
use crate::outcome::{BucketRef, Outcome, Verdict};
use crate::plan::Plan;
use crate::slot::Slot;

/// Keys of one request that need no memory from the heap; more do.
const INLINE: usize = 16;

/// The distinct keys of all descriptors, each drawn once.
struct Union<'p> {
    inline: [Option<(At<'p>, bool)>; INLINE],
    spill: Vec<(At<'p>, bool)>,
}

impl<'p> Union<'p> {
    fn iter(&self) -> impl Iterator<Item = &(At<'p>, bool)> {
        self.inline.iter().flatten().chain(&self.spill)
    }

    fn push(&mut self, entry: (At<'p>, bool)) {
        match self.inline.iter_mut().find(|e| e.is_none()) {
            Some(free) => *free = Some(entry),
            None => self.spill.push(entry),
        }
    }
}

impl<C: CoarseClock> Decider<'_, C> {
    /// Decides `requests` as one. `hits` of 0 counts nothing.
    pub(crate) fn each(
        &self,
        plan: &Plan,
        requests: &[Request<'_>],
        hits: u32,
        verdicts: &mut Vec<Verdict>,
    ) -> Outcome {
        verdicts.clear();
        let mut union = Union { inline: [None; INLINE], spill: Vec::new() };
        let mut joined = Joined::default();
        for request in requests {
            let mut verdict = Verdict::UNLIMITED;
            for slot in self.slots(plan, request) {
                let known = union.iter().find(|(at, _)| std::ptr::eq(at.slot, slot));
                let pass = known.map(|(_, pass)| *pass).unwrap_or_else(|| {
                    let at = self.at(slot);
                    let pass = if hits == 0 { self.would_pass(at) } else { self.passes(at, hits) };
                    joined.add(slot, pass);
                    union.push((at, pass));
                    pass
                });
                verdict.take_in(plan, request, slot, pass);
            }
            verdicts.push(verdict);
        }
        if hits > 0 {
            union.iter().for_each(|(at, pass)| at.count(joined.tally(at.slot, *pass), hits));
            self.count_services(plan, requests, &joined, hits);
        }
        joined.outcome()
    }

    /// Every slot that counts `request`.
    pub(crate) fn slots<'p>(
        &self,
        plan: &'p Plan,
        request: &'p Request<'p>,
    ) -> impl Iterator<Item = &'p Slot> {
        let hash = plan.hash_of(request);
        let known = plan.identity(hash, request).map(|i| &*i.resolved);
        if known.is_none() {
            self.make_known(hash, request);
        }
        let fixed = known.into_iter().flat_map(|r| r.fixed.iter().map(|rule| &rule.slot));
        let open = known.into_iter().flat_map(move |r| self.open_slots(plan, r, request));
        let service = plan.services.get(request.service).filter(|_| known.is_none());
        let unknown = service.into_iter().flat_map(move |s| self.matching(plan, s, request));
        fixed.chain(open).chain(unknown)
    }

    /// One attempt at each service, however many descriptors name it.
    fn count_services(&self, plan: &Plan, requests: &[Request<'_>], joined: &Joined, hits: u32) {
        for (i, request) in requests.iter().enumerate() {
            if requests[..i].iter().all(|earlier| earlier.service != request.service) {
                let service = plan.services.get(request.service);
                self.count_service(service.map(|s| &*s.slot), joined.service_tally(), hits);
            }
        }
    }
}

impl Verdict {
    /// No deny bucket matches.
    const UNLIMITED: Self = Self {
        admitted: true,
        bucket: None,
        limit: Limit::Unlimited,
        admit: AdmitRatio::ALL,
        retry_after: Duration::ZERO,
    };

    /// Takes in one more key of the descriptor.
    fn take_in(&mut self, plan: &Plan, request: &Request<'_>, slot: &Slot, pass: bool) {
        let flags = slot.flags();
        if !flags.denies() || !self.admitted {
            return;
        }
        let (admit, limit) = (AdmitRatio::from_bits(slot.ratio()), limit_of(plan, request, slot));
        let rate = |limit: Limit| limit.rate_rps().unwrap_or(f64::INFINITY);
        let tighter = admit < self.admit || admit == self.admit && rate(limit) < rate(self.limit);
        if pass && self.bucket.is_some() && !tighter {
            return;
        }
        self.admitted = pass;
        self.bucket = Some(BucketRef(slot.bucket()));
        self.limit = limit;
        self.admit = admit;
        if !pass {
            self.retry_after = Duration::from_millis(u64::from(flags.retry_ms()));
        }
    }
}

/// The limit of the key that `slot` is, for the values that `request` shows.
fn limit_of(plan: &Plan, request: &Request<'_>, slot: &Slot) -> Limit {
    let Some(named) = plan.buckets.get(&slot.bucket()) else { return Limit::Unlimited };
    let Some(bucket) = named.of.buckets.get(named.place) else { return Limit::Unlimited };
    match (&bucket.per, &named.key) {
        (Some(_), Some(key)) => bucket.limit_of(key),
        (Some(per), None) if !per.values.is_empty() => {
            let shown = per.dimensions.iter().map(|d| request.dimension(d.as_str()));
            let values = shown.map(|v| Box::from(v.unwrap_or_default())).collect();
            bucket.limit_of(&KeyValues::Each(values))
        }
        (Some(_) | None, _) => bucket.limit,
    }
}
