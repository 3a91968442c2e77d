//! What the law `grant` keeps of a key here, and which keys have it.
//!
//! A key that clients report to this node has a [`Leaf`]: it turns a grant into the share that
//! clients admit. A key whose root is here draws on a pool (`pools`), alone or with others.

use std::time::Duration;

use sluicegate_model::{Grant, KeyValues, Law, Limit, Name, Sharing, Term, Time};

use super::keys::{Cold, Control, Hot};
use super::pools::PoolOf;
use super::{Node, Tier};
use crate::grant::{Credit, Demand, DownRule, Held, InForce, Silent, UpRule};

/// What a key may admit, by whoever decides that.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Told {
    pub(super) what: What,
    pub(super) at: Time,
    pub(super) until: Time,
    pub(super) limit_rps: f64,
    /// Client sessions, summed at the root.
    pub(super) sessions: u32,
    pub(super) term: Term,
    /// Where it stood in the parent's stream: which stream, and its number there.
    pub(super) above: (u64, u64),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum What {
    Grant(Grant),
    /// The share of demand that the root lets everybody admit, as it is: above 1 there is room.
    Share(f64),
}

impl Told {
    pub(super) fn held(&self, grant: Grant, now: Time) -> Held {
        Held { rps: grant.rps, base_rps: grant.base_rps, age: now.since(self.at) }
    }
}

/// The part of a key that serves clients.
#[derive(Debug, Clone)]
pub(super) struct Leaf {
    pub(super) in_force: InForce,
    pub(super) credit: Credit,
    pub(super) down: DownRule,
    pub(super) up: UpRule,
}

/// The state of one key.
#[derive(Debug)]
pub(super) struct Granting {
    /// The limit that it draws on, if the root is here.
    pub(super) pool: Option<u32>,
    /// Its class among those that share the limit.
    pub(super) class: usize,
    pub(super) demand: Demand,
    pub(super) leaf: Option<Box<Leaf>>,
    pub(super) told: Option<Told>,
    /// Children that fell silent, by zone.
    pub(super) silent: Vec<(Name, Silent)>,
    /// Admitted so far, as the root saw it at its last step.
    pub(super) charged: f64,
    /// Admitted, and not to be charged.
    pub(super) forgiven: f64,
    /// The share of demand that the root allows, to be shown.
    pub(super) share: f64,
    /// It waits to be looked at.
    pub(super) touched: bool,
    /// When it was last looked at, and what was offered then.
    pub(super) looked: Time,
    pub(super) looked_micros: u64,
}

impl Granting {
    /// A silent zone reported the key: `admitted` of it so far in no count.
    pub(super) fn end_silence(&mut self, zone: &Name, now: Time, admitted: f64) {
        if let Some(at) = self.silent.iter().position(|(name, _)| name == zone) {
            let (_, silent) = self.silent.swap_remove(at);
            self.forgiven += silent.forgiven(now, admitted);
        }
    }

    /// Admitted so far, as far as it can be told here: counted, and on its way from clients.
    pub(super) fn admitted_by_clients(&self, hot: &Hot, now: Time) -> f64 {
        let (requests, age) = hot.in_flight(now);
        let share = self.leaf.as_ref().map_or(1.0, |leaf| leaf.in_force.mean(now, age));
        counted(hot) + requests * share
    }
}

/// Charged so far.
#[expect(clippy::cast_precision_loss, reason = "differences of it matter; exact up to 2^52")]
pub(super) fn counted(hot: &Hot) -> f64 {
    hot.counts.charged() as f64
}

impl Node {
    /// Gives a key its part in the law `grant`, or takes it, as its bucket and the law say now.
    pub(super) fn settle_granting(&mut self, key: u32) {
        let Some(cold) = self.keys.get(key) else { return };
        let is_limited = matches!(cold.limit, Limit::Tokens(_)) && !cold.limit.denies_all();
        let concerns = match cold.control {
            Control::Root => true,
            Control::Elsewhere => self.tier == Tier::Aggregator,
            Control::Nobody => false,
        };
        if self.law != Law::Grant || !is_limited || !concerns {
            self.drop_granting(key);
            return;
        }
        let of = (cold.control == Control::Root).then(|| self.pool_of(cold)).flatten();
        let class = self.class_of(cold);
        let here = cold.granting.as_ref();
        let stays = here.is_some_and(|g| self.pools.is(g.pool, of.as_ref()));
        if !stays {
            self.drop_granting(key);
            self.begin_granting(key, of);
        }
        if let Some(granting) = self.keys.granting_mut(key) {
            granting.class = class;
        }
    }

    fn begin_granting(&mut self, key: u32, of: Option<PoolOf>) {
        let (now, window) = (self.now, self.tick);
        let serves_clients = self.tier == Tier::Aggregator;
        let Some((hot, cold)) = self.keys.both_mut(key) else { return };
        let limit = cold.limit;
        let charged = counted(hot);
        let leaf = serves_clients.then(|| {
            Box::new(Leaf {
                in_force: InForce::default(),
                credit: Credit::new(now, charged),
                down: DownRule::new(now),
                up: UpRule::new(),
            })
        });
        if of.is_some() && !serves_clients {
            // Each child is told something of its own from now on.
            cold.cached = None;
        }
        let is_active = hot.is_active();
        let pool = of.map(|of| self.pools.join(key, of, &limit, window, now));
        let Some(cold) = self.keys.get_mut(key) else { return };
        cold.granting = Some(Box::new(Granting {
            pool,
            class: 0,
            demand: Demand::default(),
            leaf,
            told: None,
            silent: Vec::new(),
            charged,
            forgiven: 0.0,
            share: f64::INFINITY,
            touched: false,
            looked: Time::ZERO,
            looked_micros: 0,
        }));
        if is_active {
            self.touch(key);
        }
    }

    /// Takes a key out of the law `grant`.
    pub(super) fn drop_granting(&mut self, key: u32) {
        let Some(cold) = self.keys.get_mut(key) else { return };
        let Some(granting) = cold.granting.take() else { return };
        let users = cold.users.clone();
        for user in users {
            let passing = self.children.get_mut(user.slot).and_then(|s| s.passing_mut(user.id));
            if let Some(passing) = passing {
                passing.cached = None;
            }
        }
        if let Some(pool) = granting.pool {
            self.pools.leave(pool, key);
        }
    }

    /// Whether forgetting a key would be an amnesty.
    pub(super) fn is_owing(&self, cold: &Cold) -> bool {
        let Some(granting) = &cold.granting else { return false };
        let Some(pool) = granting.pool else { return false };
        !granting.silent.is_empty() || self.pools.owes(pool, &cold.limit, self.tick, self.now)
    }

    /// Looks at a key soon.
    pub(super) fn touch(&mut self, key: u32) {
        let now = self.now;
        let Some((hot, cold)) = self.keys.both_mut(key) else { return };
        if let Some(granting) = &mut cold.granting {
            self.due.touch(key, hot, granting, now);
        }
    }

    fn pool_of(&self, cold: &Cold) -> Option<PoolOf> {
        let bucket = self.catalog.configured(cold.bucket)?;
        Some(match (&bucket.sharing, &cold.values) {
            (Some(_), KeyValues::Each(values)) => {
                PoolOf::Shared { bucket: cold.bucket, group: bucket.group_of(values).into() }
            }
            (Some(_), KeyValues::Overflow) if bucket.shares_whole() => {
                PoolOf::Shared { bucket: cold.bucket, group: Box::default() }
            }
            _ => PoolOf::Alone,
        })
    }

    /// The class of a key among those that share its limit.
    fn class_of(&self, cold: &Cold) -> usize {
        let bucket = self.catalog.configured(cold.bucket);
        let Some(Sharing::Priority(classes)) = bucket.and_then(|b| b.sharing.as_ref()) else {
            return 0;
        };
        match &cold.values {
            KeyValues::Each(values) => classes.of(values.last().map(|v| &**v), None),
            KeyValues::Whole | KeyValues::Overflow => classes.default,
        }
    }
}

/// How long after a look at a key the next report may wait for it, unless it says something new.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// A change by this share of what was offered is new.
const NEWS: f64 = 0.02;
/// How long a root waits for further reports after the first.
const COALESCE: Duration = Duration::from_millis(5);

/// What is to be looked at, and when.
#[derive(Debug, Default)]
pub(super) struct Due {
    touched: Vec<u32>,
    touched_at: Option<Time>,
    /// Keys that something changed for which could not be told yet.
    later: std::collections::BTreeSet<(Time, u32)>,
    pools: Vec<u32>,
    pools_at: Option<Time>,
    up: Vec<u32>,
    up_at: Option<Time>,
}

impl Due {
    pub(super) fn touch(&mut self, key: u32, hot: &Hot, granting: &mut Granting, now: Time) {
        if let Some(pool) = granting.pool {
            self.step(pool, now);
        }
        if granting.leaf.is_none() {
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "compared roughly")]
        let moved = hot.offered_micros.abs_diff(granting.looked_micros) as f64;
        #[expect(clippy::cast_precision_loss, reason = "compared roughly")]
        let is_news = moved > NEWS * granting.looked_micros as f64;
        let at = if is_news { now } else { now.max(granting.looked + LOOK_AGAIN) };
        self.touched_at = Some(self.touched_at.map_or(at, |before| before.min(at)));
        if !std::mem::replace(&mut granting.touched, true) {
            self.touched.push(key);
        }
    }

    /// A root has something to work out.
    pub(super) fn step(&mut self, pool: u32, now: Time) {
        self.pools_at.get_or_insert(now + COALESCE);
        // Pools note themselves whether they are listed; a second mention is dropped there.
        self.pools.push(pool);
        if self.pools.len() > MAX_MENTIONS {
            self.pools.sort_unstable();
            self.pools.dedup();
        }
    }

    /// Something may be told of a key at `at`.
    pub(super) fn look_later(&mut self, key: u32, at: Time) {
        self.later.insert((at, key));
    }

    /// The parent should hear of a key.
    pub(super) fn tell_up(&mut self, key: u32, now: Time) {
        self.up_at.get_or_insert(now + COALESCE);
        self.up.push(key);
    }

    pub(super) fn next(&self) -> Option<Time> {
        let later = self.later.first().map(|(at, _)| *at);
        [self.touched_at, later, self.pools_at].into_iter().flatten().min()
    }

    pub(super) fn next_up(&self) -> Option<Time> {
        self.up_at
    }

    /// Keys to look at now.
    pub(super) fn take_keys(&mut self, now: Time) -> Vec<u32> {
        let mut keys = Vec::new();
        if self.touched_at.is_some_and(|at| at <= now) {
            self.touched_at = None;
            keys.append(&mut self.touched);
        }
        while self.later.first().is_some_and(|(at, _)| *at <= now) {
            keys.extend(self.later.pop_first().map(|(_, key)| key));
        }
        keys
    }

    /// Pools to step now.
    pub(super) fn take_pools(&mut self, now: Time) -> Vec<u32> {
        if self.pools_at.is_none_or(|at| at > now) {
            return Vec::new();
        }
        self.pools_at = None;
        let mut pools = std::mem::take(&mut self.pools);
        pools.sort_unstable();
        pools.dedup();
        pools
    }

    /// Keys that the parent should hear of now.
    pub(super) fn take_up(&mut self, now: Time) -> Vec<u32> {
        if self.up_at.is_none_or(|at| at > now) {
            return Vec::new();
        }
        self.up_at = None;
        let mut keys = std::mem::take(&mut self.up);
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}

/// Mentions of pools before repetitions are dropped.
const MAX_MENTIONS: usize = 1 << 16;
