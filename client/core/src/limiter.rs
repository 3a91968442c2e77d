//! The limiter that a data plane embeds, and handles for what it asks about again and again.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use sluicegate_model::{Request, Time};

use crate::cell::MAX_HITS;
use crate::decide::Decider;
use crate::hash::mix;
use crate::keeper::Keeper;
use crate::matcher::{Dimensions, Resolved};
use crate::outcome::{BucketName, BucketRef, Outcome, Verdict};
use crate::plan::Shared;
use crate::slot::RuleSlot;
use crate::{Agent, CoarseClock, Settings};

/// Decides requests. Cheap to clone; every clone is the same limiter.
///
/// A decision takes no lock, allocates nothing once its thread is warm (a request that more than 16
/// keys count, through [`Limiter::decide_each`], excepted), makes no system call, and reads the
/// clock only to drop. It cannot fail: what the limiter does not know, it admits.
pub struct Limiter<C> {
    shared: Arc<Shared>,
    clock: Arc<C>,
}

/// A limiter and its agent, which must be driven for anything but admission to happen.
///
/// `seed` should be random: see [`limiter`].
pub fn client<C: CoarseClock>(
    settings: Settings,
    clock: C,
    seed: u64,
    now: Time,
) -> (Limiter<C>, Agent) {
    let (limiter, keeper) = limiter(&settings, clock, seed, now);
    (limiter, Agent::new(settings, keeper, mix(seed ^ 4), now))
}

/// A limiter and the owner of its table, for who drives the table otherwise than by an agent. Every key starts with "admit all".
///
/// `seed` should be random: it keeps strangers from choosing texts that collide, and clients from
/// dropping in step.
pub fn limiter<C: CoarseClock>(
    settings: &Settings,
    clock: C,
    seed: u64,
    now: Time,
) -> (Limiter<C>, Keeper) {
    let shared = Arc::new(Shared::new(settings, mix(seed), now));
    let keeper = Keeper::new(shared.clone());
    (Limiter { shared, clock: Arc::new(clock) }, keeper)
}

impl<C> Clone for Limiter<C> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), clock: self.clock.clone() }
    }
}

impl<C> fmt::Debug for Limiter<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter").field("id", &self.shared.id).finish_non_exhaustive()
    }
}

impl<C: CoarseClock> Limiter<C> {
    /// Decides one request.
    #[inline]
    pub fn decide(&self, request: &Request<'_>) -> Outcome {
        self.shared.with_plan(|plan| self.decider().by_request(plan, request, 1))
    }

    /// Decides one request that weighs `hits`, whole or not at all. 0 asks without counting whether
    /// one hit would go through; more than 2^24 count as that many.
    #[inline]
    pub fn decide_n(&self, request: &Request<'_>, hits: u32) -> Outcome {
        if hits == 0 {
            return self.shared.with_plan(|plan| self.decider().ask(plan, request));
        }
        let hits = hits.min(MAX_HITS);
        self.shared.with_plan(|plan| self.decider().by_request(plan, request, hits))
    }

    /// Decides several descriptors of one request as one: it goes through if no deny bucket of any
    /// of them refuses; a key that two of them hit counts once; a refusal charges no other key.
    /// `verdicts` is emptied and filled with what each descriptor met, in their order.
    pub fn decide_each(
        &self,
        requests: &[Request<'_>],
        hits: u32,
        verdicts: &mut Vec<Verdict>,
    ) -> Outcome {
        let hits = hits.min(MAX_HITS);
        self.shared.with_plan(|plan| self.decider().each(plan, requests, hits, verdicts))
    }

    /// A handle that has looked `request` up already: for a route or a connection.
    #[must_use]
    pub fn prepare(&self, request: &Request<'_>) -> Prepared<C> {
        let request = Arc::new(Owned::new(request));
        let first = look_up(self, &request);
        Prepared { limiter: self.clone(), request, first, later: RefCell::default() }
    }

    /// The name of the bucket that an outcome mentions, while it is configured.
    #[must_use]
    pub fn bucket(&self, bucket: BucketRef) -> Option<BucketName> {
        let plan = self.shared.plan();
        let named = plan.buckets.get(&bucket.0)?;
        let name = named.of.buckets.get(named.place)?.name.clone();
        Some(BucketName { service: named.of.service.clone(), bucket: name })
    }

    #[inline]
    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    #[inline]
    fn decider(&self) -> Decider<'_, C> {
        Decider { limiter: self }
    }
}

impl<C> Limiter<C> {
    #[inline]
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    #[inline]
    pub(crate) fn id(&self) -> u64 {
        self.shared.id
    }
}

/// A request that was looked up before. Follows the configuration: after a change, the next decision
/// looks it up again. (From then on the handle is some 15 instructions slower than a new one or a
/// clone.)
///
/// It can be cloned and sent to another thread, but not shared: make one for each worker or
/// connection.
pub struct Prepared<C> {
    limiter: Limiter<C>,
    request: Arc<Owned>,
    /// As it was looked up when the handle was made. Not behind a cell, so that reading it is free.
    first: State,
    /// As it was looked up since, if the configuration changed.
    later: RefCell<State>,
}

/// What the request came down to, and in which configuration (0: not looked up).
#[derive(Debug, Clone, Default)]
struct State {
    rules: u64,
    one: Option<Arc<RuleSlot>>,
    /// The slots again, if no dimension need be looked up: one step nearer.
    several: Box<[Arc<RuleSlot>]>,
    resolved: Arc<Resolved>,
}

impl<C> Clone for Prepared<C> {
    fn clone(&self) -> Self {
        let later = self.later.borrow();
        let latest = if later.rules > self.first.rules { &*later } else { &self.first };
        Self {
            limiter: self.limiter.clone(),
            request: self.request.clone(),
            first: latest.clone(),
            later: RefCell::default(),
        }
    }
}

impl<C> fmt::Debug for Prepared<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").field("request", &self.request).finish_non_exhaustive()
    }
}

impl<C: CoarseClock> Prepared<C> {
    /// Decides one such request.
    #[inline]
    pub fn decide(&self) -> Outcome {
        self.hits(1)
    }

    /// As [`Limiter::decide_n`].
    #[inline]
    pub fn decide_n(&self, hits: u32) -> Outcome {
        if hits == 0 {
            return self.request.with(|request| self.limiter.decide_n(request, 0));
        }
        self.hits(hits.min(MAX_HITS))
    }

    #[inline(always)]
    fn hits(&self, hits: u32) -> Outcome {
        let first = &self.first;
        if first.rules != self.limiter.shared.rules() {
            return self.looked_up_anew(hits);
        }
        match &first.one {
            Some(one) => self.limiter.decider().one(&one.slot, &first.resolved, hits),
            None => self.by_several(hits),
        }
    }

    /// Kept apart: what it needs of the stack is not to be paid for by those with one slot.
    #[inline(never)]
    fn by_several(&self, hits: u32) -> Outcome {
        let first = &self.first;
        if let Ok(three) = <&[Arc<RuleSlot>; 3]>::try_from(&*first.several) {
            return self.limiter.decider().few(three, &first.resolved, hits);
        }
        self.by_state(first, hits)
    }

    #[inline(never)]
    fn looked_up_anew(&self, hits: u32) -> Outcome {
        if self.later.borrow().rules != self.limiter.shared.rules() {
            let state = look_up(&self.limiter, &self.request);
            self.later.replace(state);
        }
        self.by_state(&self.later.borrow(), hits)
    }

    #[inline(never)]
    fn by_state(&self, state: &State, hits: u32) -> Outcome {
        let decider = self.limiter.decider();
        if state.resolved.groups.is_empty() {
            return decider.by_fixed(&state.resolved, hits);
        }
        let shared = &self.limiter.shared;
        shared.with_plan(|plan| decider.by_resolved(plan, &state.resolved, &*self.request, hits))
    }
}

#[cold]
fn look_up<C>(limiter: &Limiter<C>, owned: &Owned) -> State {
    owned.with(|request| {
        limiter.shared.with_plan(|plan| {
            let resolved = Arc::new(plan.resolve(request, true));
            let closed = resolved.groups.is_empty();
            let several = if closed { resolved.fixed.clone() } else { Box::default() };
            State { rules: plan.rules, one: resolved.one.clone(), several, resolved }
        })
    })
}

/// A request that outlives its caller's strings.
#[derive(Debug)]
struct Owned {
    service: Box<str>,
    caller: Box<str>,
    procedure: Box<str>,
    dimensions: Box<[(Box<str>, Box<str>)]>,
}

impl Owned {
    fn new(request: &Request<'_>) -> Self {
        let dimensions = request.dimensions.iter().map(|(n, v)| ((*n).into(), (*v).into()));
        Self {
            service: request.service.into(),
            caller: request.caller.into(),
            procedure: request.procedure.into(),
            dimensions: dimensions.collect(),
        }
    }
}

impl Owned {
    fn with<R>(&self, f: impl FnOnce(&Request<'_>) -> R) -> R {
        let dimensions: Vec<(&str, &str)> =
            self.dimensions.iter().map(|(n, v)| (&**n, &**v)).collect();
        f(&Request {
            service: &self.service,
            caller: &self.caller,
            procedure: &self.procedure,
            dimensions: &dimensions,
        })
    }
}

impl Dimensions for Owned {
    fn caller(&self) -> &str {
        &self.caller
    }

    fn procedure(&self) -> &str {
        &self.procedure
    }

    fn named(&self, name: &str) -> Option<&str> {
        self.dimensions.iter().find(|(n, _)| **n == *name).map(|(_, v)| &**v)
    }
}
