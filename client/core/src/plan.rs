//! What a limiter's threads share: the plan they decide by, how they come to a new one, and the
//! counters of what bounds refused.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64 as NeverModelled;
use std::time::Duration;

use sluicegate_model::{KeyValues, Name, Request, ServiceBuckets, Time};

use crate::Settings;
use crate::hash::{Hasher, mix, same};
use crate::matcher::{Resolved, ServicePlan};
use crate::slot::MAX_PLACES;
use crate::stripe::Stripes;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock, try_lock};
use crate::table::{Probe, Table};
use crate::values::{Arena, ValueEntry};
use crate::waiting::WaitingRoom;

/// The most limiters whose plans one thread keeps at hand.
const MAX_PINNED: usize = 8;
/// A cap that was not refilled for so long is not obeyed: the agent is late, not the traffic heavy.
const LATE_REFILL_NS: u64 = 50_000_000;

/// Everything a decision looks up. Immutable but for the tables, which the keeper fills in place.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) generation: u64,
    /// Grows with each change of the configuration, from 1.
    pub(crate) rules: u64,
    pub(crate) hasher: Hasher,
    pub(crate) services: Arc<HashMap<Name, Arc<ServicePlan>>>,
    pub(crate) identities: Arc<Table<Identity>>,
    pub(crate) values: Arc<Table<ValueEntry>>,
    pub(crate) arena: Arc<Arena>,
    /// By the number in a slot.
    pub(crate) buckets: Arc<HashMap<u32, Named>>,
}

/// A bucket by its number.
#[derive(Debug, Clone)]
pub(crate) struct Named {
    pub(crate) of: Arc<ServiceBuckets>,
    pub(crate) place: usize,
    /// Which key of the bucket; `None` for those of single values, which share a number.
    pub(crate) key: Option<KeyValues>,
    /// The keeper's record of its key; of no meaning for values.
    pub(crate) record: u32,
}

impl Plan {
    #[inline(always)]
    pub(crate) fn hash_of(&self, request: &Request<'_>) -> u64 {
        let texts = [request.service, request.caller, request.procedure];
        self.hasher.hash(identity_shape(request), texts)
    }

    #[inline(always)]
    pub(crate) fn identity(&self, hash: u64, request: &Request<'_>) -> Option<&Identity> {
        self.identities.find(hash, Wanted(request)).map(|(_, e)| e)
    }

    /// What an identity comes down to, worked out anew.
    pub(crate) fn resolve(&self, request: &Request<'_>, closed: bool) -> Resolved {
        self.services
            .get(request.service)
            .map_or_else(Resolved::default, |s| s.resolve(request, closed))
    }
}

#[inline(always)]
fn identity_shape(request: &Request<'_>) -> u64 {
    let len = |text: &str| text.len() as u64;
    len(request.service) ^ len(request.caller) << 21 ^ len(request.procedure) << 42
}

/// A known combination of service, caller and procedure.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    service: Box<str>,
    caller: Box<str>,
    procedure: Box<str>,
    pub(crate) resolved: Arc<Resolved>,
}

impl Identity {
    pub(crate) fn new(request: &Request<'_>, resolved: Arc<Resolved>) -> Self {
        Self {
            service: request.service.into(),
            caller: request.caller.into(),
            procedure: request.procedure.into(),
            resolved,
        }
    }

    /// The request that it was made of, without dimensions.
    pub(crate) fn request(&self) -> Request<'_> {
        Request {
            service: &self.service,
            caller: &self.caller,
            procedure: &self.procedure,
            dimensions: &[],
        }
    }
}

/// A request's identity, to be found.
struct Wanted<'a>(&'a Request<'a>);

impl Probe<Identity> for Wanted<'_> {
    #[inline(always)]
    fn fits(&self, entry: &Identity) -> bool {
        let Self(request) = self;
        entry.service.len() == request.service.len()
            && entry.caller.len() == request.caller.len()
            && entry.procedure.len() == request.procedure.len()
            && same(entry.service.as_bytes(), request.service.as_bytes())
            && same(entry.caller.as_bytes(), request.caller.as_bytes())
            && same(entry.procedure.as_bytes(), request.procedure.as_bytes())
    }
}

/// Keeps what is written often off the line of what is read always.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Apart<T>(pub(crate) T);

/// When the agent last lived, and until when that counts.
#[derive(Debug, Default)]
struct Beat {
    at: AtomicU64,
    late_at: AtomicU64,
    stale_at: AtomicU64,
}

/// What the handles of one limiter share.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Shared {
    /// Unique among all limiters of the process, never 0.
    pub(crate) id: u64,
    /// Of the published plan.
    generation: AtomicU64,
    /// Of the configuration in it: does not move when only a table grew.
    rules: AtomicU64,
    /// An agent silent for so long is dead.
    stale_after_ns: u64,
    pub(crate) stripes: Arc<Stripes>,
    pub(crate) most_values: usize,
    pub(crate) most_identities: usize,
    pub(crate) most_places: usize,
    pub(crate) seed: u64,
    /// No identity need be posted: there is no room for it.
    pub(crate) identities_full: AtomicBool,
    beat: Apart<Beat>,
    published: Apart<Mutex<Arc<Plan>>>,
    pub(crate) waiting: WaitingRoom,
    pub(crate) refused_identities: AtomicU64,
    pub(crate) refused_values: AtomicU64,
    pub(crate) known_identities: AtomicU64,
    pub(crate) known_values: AtomicU64,
}

impl Shared {
    pub(crate) fn new(settings: &Settings, seed: u64, now: Time) -> Self {
        let id = next_id();
        let most_values = settings.max_values.min(1 << 24);
        let plan = Plan {
            generation: 1,
            rules: 1,
            hasher: Hasher::new(seed),
            services: Arc::default(),
            identities: Arc::new(Table::new(0)),
            values: Arc::new(Table::new(0)),
            arena: Arc::new(Arena::new(most_values, mix(seed ^ 2))),
            buckets: Arc::default(),
        };
        let shared = Self {
            id,
            generation: AtomicU64::new(plan.generation),
            rules: AtomicU64::new(plan.rules),
            stale_after_ns: nanos(settings.ttl.saturating_add(settings.ramp)),
            stripes: Arc::new(Stripes::new(id, mix(seed ^ 3), settings.max_stripes)),
            most_values,
            most_identities: settings.max_identities,
            most_places: settings.max_striped_keys.min(MAX_PLACES),
            seed,
            identities_full: AtomicBool::new(false),
            beat: Apart(Beat::default()),
            published: Apart(Mutex::new(Arc::new(plan))),
            waiting: WaitingRoom::new(settings.max_waiting),
            refused_identities: AtomicU64::new(0),
            refused_values: AtomicU64::new(0),
            known_identities: AtomicU64::new(0),
            known_values: AtomicU64::new(0),
        };
        shared.beat(now);
        shared
    }

    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn rules(&self) -> u64 {
        self.rules.load(Ordering::Acquire)
    }

    /// The agent lives, and has refilled budgets.
    pub(crate) fn beat(&self, now: Time) {
        let (beat, at) = (&self.beat.0, now.as_nanos());
        beat.at.store(at, Ordering::Relaxed);
        beat.late_at.store(at.saturating_add(LATE_REFILL_NS), Ordering::Relaxed);
        beat.stale_at.store(at.saturating_add(self.stale_after_ns), Ordering::Release);
    }

    /// From when on the agent is as good as dead.
    #[inline]
    pub(crate) fn stale_at(&self) -> Time {
        Time::from_nanos(self.beat.0.stale_at.load(Ordering::Relaxed))
    }

    /// Whether the budgets should have been refilled.
    pub(crate) fn is_refill_late(&self, now: Time) -> bool {
        now.as_nanos() > self.beat.0.late_at.load(Ordering::Relaxed)
    }

    /// How long ago the agent last lived.
    pub(crate) fn silent(&self, now: Time) -> Duration {
        now.since(Time::from_nanos(self.beat.0.at.load(Ordering::Relaxed)))
    }

    /// The plan as it stands.
    pub(crate) fn plan(&self) -> Arc<Plan> {
        lock(&self.published.0).clone()
    }

    /// Makes `plan`, which must have a higher generation, the one that all threads turn to.
    pub(crate) fn publish(&self, plan: Arc<Plan>) {
        let mut published = lock(&self.published.0);
        let (generation, rules) = (plan.generation, plan.rules);
        let old = std::mem::replace(&mut *published, plan);
        self.generation.store(generation, Ordering::Release);
        self.rules.store(rules, Ordering::Release);
        drop(published);
        // Freed, if nobody else has it, without holding up those who wait for the lock.
        drop(old);
    }

    /// Runs `decide` on the current plan, which this thread has at hand unless it is new.
    #[inline]
    pub(crate) fn with_plan<R>(&self, mut decide: impl FnMut(&Plan) -> R) -> R {
        let at_hand = PINNED.try_with(|pinned| {
            let pinned = pinned.try_borrow().ok()?;
            if pinned.id != self.id || pinned.generation != self.generation() {
                return None;
            }
            pinned.plan.as_ref().map(|plan| decide(plan))
        });
        match at_hand {
            Ok(Some(decided)) => decided,
            Ok(None) | Err(_) => self.with_new_plan(decide),
        }
    }

    #[cold]
    #[inline(never)]
    fn with_new_plan<R>(&self, mut decide: impl FnMut(&Plan) -> R) -> R {
        decide(&self.renew())
    }

    /// Gets the new plan, and has it at hand if that is possible (it is not while the thread ends).
    fn renew(&self) -> Arc<Plan> {
        let renewed = PINNED.try_with(|pinned| {
            let mut pinned = pinned.try_borrow_mut().ok()?;
            pinned.turn_to(self.id);
            let plan = match (try_lock(&self.published.0), &pinned.plan) {
                (Some(published), _) => published.clone(),
                // Being published this moment: the last one does for one more request.
                (None, Some(last)) => return Some(last.clone()),
                (None, None) => self.plan(),
            };
            pinned.generation = plan.generation;
            pinned.plan = Some(plan.clone());
            Some(plan)
        });
        renewed.ok().flatten().unwrap_or_else(|| self.plan())
    }
}

thread_local! {
    static PINNED: RefCell<Pinned> = const {
        RefCell::new(Pinned { id: 0, generation: 0, plan: None, others: Vec::new() })
    };
}

/// The plan of the limiter that this thread used last, and of a few others.
struct Pinned {
    id: u64,
    generation: u64,
    plan: Option<Arc<Plan>>,
    others: Vec<(u64, u64, Arc<Plan>)>,
}

impl Pinned {
    fn turn_to(&mut self, id: u64) {
        if self.id == id {
            return;
        }
        if let Some(plan) = self.plan.take() {
            if self.others.len() >= MAX_PINNED {
                self.others.remove(0);
            }
            self.others.push((self.id, self.generation, plan));
        }
        self.id = id;
        self.generation = 0;
        if let Some(at) = self.others.iter().position(|o| o.0 == id) {
            let (_, generation, plan) = self.others.swap_remove(at);
            self.generation = generation;
            self.plan = Some(plan);
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A number that no other limiter of this process has.
fn next_id() -> u64 {
    // The standard's on purpose, under loom as well: it orders nothing.
    static NEXT: NeverModelled = NeverModelled::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
