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
        let state = RefCell::new(State::default());
        let prepared = Prepared { limiter: self.clone(), request, state };
        prepared.renew();
        prepared
    }

    /// The name of the bucket that an outcome mentions, while it is configured.
    #[must_use]
    pub fn bucket(&self, bucket: BucketRef) -> Option<BucketName> {
        let plan = self.shared.plan();
        let named = plan.buckets.get(&bucket.0)?;
        let name = named.of.buckets.get(named.place)?.name.clone();
        Some(BucketName { service: named.of.service.clone(), bucket: name })
    }

    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    #[inline]
    fn decider(&self) -> Decider<'_, C> {
        Decider { shared: &self.shared, clock: &self.clock }
    }
}

impl<C> Limiter<C> {
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }
}

/// A request that was looked up before. Follows the configuration: after a change, the next decision
/// looks it up again.
///
/// It can be cloned and sent to another thread, but not shared: make one for each worker or
/// connection.
pub struct Prepared<C> {
    limiter: Limiter<C>,
    request: Arc<Owned>,
    state: RefCell<State>,
}

/// What the request came down to, and in which plan.
#[derive(Clone, Default)]
struct State {
    /// 0: not looked up yet.
    generation: u64,
    one: Option<Arc<RuleSlot>>,
    resolved: Arc<Resolved>,
}

impl<C> Clone for Prepared<C> {
    fn clone(&self) -> Self {
        let state = RefCell::new(self.state.borrow().clone());
        Self { limiter: self.limiter.clone(), request: self.request.clone(), state }
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
        self.hits(hits.min(MAX_HITS))
    }

    #[inline]
    fn hits(&self, hits: u32) -> Outcome {
        let state = self.state.borrow();
        if state.generation == self.limiter.shared.generation() {
            let decider = self.limiter.decider();
            if let Some(one) = &state.one {
                return decider.one(&one.slot, &state.resolved, hits);
            }
            if state.resolved.groups.is_empty() {
                return decider.by_fixed(&state.resolved, hits);
            }
        }
        drop(state);
        self.with_values(hits)
    }

    /// Where values must be looked up, or the plan is a new one.
    #[inline(never)]
    fn with_values(&self, hits: u32) -> Outcome {
        if self.state.borrow().generation != self.limiter.shared.generation() {
            self.renew();
        }
        let (state, decider) = (self.state.borrow(), self.limiter.decider());
        let shared = &self.limiter.shared;
        shared.with_plan(|plan| decider.by_resolved(plan, &state.resolved, &*self.request, hits))
    }

    #[cold]
    fn renew(&self) {
        let owned = &self.request;
        let dimensions: Vec<(&str, &str)> =
            owned.dimensions.iter().map(|(n, v)| (&**n, &**v)).collect();
        let request = Request {
            service: &owned.service,
            caller: &owned.caller,
            procedure: &owned.procedure,
            dimensions: &dimensions,
        };
        self.limiter.shared.with_plan(|plan| {
            let resolved = Arc::new(plan.resolve(&request, true));
            let one = resolved.one.clone();
            self.state.replace(State { generation: plan.generation, one, resolved });
        });
    }
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

impl Dimensions for Owned {
    fn dimension(&self, name: &str) -> Option<&str> {
        match name {
            "caller" => Some(&*self.caller).filter(|v| !v.is_empty()),
            "procedure" => Some(&*self.procedure).filter(|v| !v.is_empty()),
            _ => self.dimensions.iter().find(|(n, _)| **n == *name).map(|(_, v)| &**v),
        }
    }
}
