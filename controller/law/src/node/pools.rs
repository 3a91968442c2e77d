//! Limits whose root is here, each with the keys that draw on it: one, or all values that share it.

use std::collections::BTreeMap;
use std::time::Duration;

use sluicegate_model::{Limit, Time};

use super::catalog::place_in;
use crate::grant::Level;

/// Which limit a key draws on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PoolOf {
    /// Its own.
    Alone,
    /// That of a group of values of a bucket.
    Shared { bucket: u32, group: Box<[Box<str>]> },
}

/// One limit.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) of: PoolOf,
    pub(super) level: Level,
    pub(super) members: Vec<u32>,
}

#[derive(Debug, Default)]
pub(super) struct Pools {
    all: Vec<Option<Pool>>,
    free: Vec<u32>,
    shared: BTreeMap<PoolOf, u32>,
}

impl Pools {
    pub(super) fn get_mut(&mut self, pool: u32) -> Option<&mut Pool> {
        self.all.get_mut(pool as usize)?.as_mut()
    }

    pub(super) fn get(&self, pool: u32) -> Option<&Pool> {
        self.all.get(pool as usize)?.as_ref()
    }

    /// Whether `pool` is what a key should draw on.
    pub(super) fn is(&self, pool: Option<u32>, of: Option<&PoolOf>) -> bool {
        pool.and_then(|pool| self.get(pool)).map(|pool| &pool.of) == of
    }

    /// Lets a key draw on a limit, which begins with its whole burst if nobody drew on it.
    pub(super) fn join(
        &mut self,
        key: u32,
        of: PoolOf,
        limit: &Limit,
        window: Duration,
        now: Time,
    ) -> u32 {
        if let Some(at) = self.shared.get(&of).copied()
            && let Some(pool) = self.get_mut(at)
        {
            pool.members.push(key);
            return at;
        }
        let (rate_rps, depth) = rate_and_depth(limit);
        let level = Level::full(now, rate_rps, depth, window);
        let pool = Pool { of: of.clone(), level, members: vec![key] };
        let at = place_in(&mut self.all, &mut self.free, pool);
        if of != PoolOf::Alone {
            self.shared.insert(of, at);
        }
        at
    }

    /// A key draws on a limit no more; one without keys is forgotten.
    pub(super) fn leave(&mut self, at: u32, key: u32) {
        let Some(pool) = self.get_mut(at) else { return };
        pool.members.retain(|member| *member != key);
        if pool.members.is_empty() {
            let of = pool.of.clone();
            self.shared.remove(&of);
            self.all[at as usize] = None;
            self.free.push(at);
        }
    }

    /// Whether a limit would be better off if its last key were forgotten.
    pub(super) fn owes(&self, at: u32, limit: &Limit, window: Duration, now: Time) -> bool {
        let Some(pool) = self.get(at) else { return false };
        let (rate_rps, depth) = rate_and_depth(limit);
        pool.members.len() == 1 && !pool.level.is_full(now, rate_rps, depth, window)
    }
}

/// The rate and the burst of a limit.
pub(super) fn rate_and_depth(limit: &Limit) -> (f64, f64) {
    match limit {
        Limit::Unlimited => (f64::INFINITY, f64::INFINITY),
        Limit::Tokens(t) => (t.rate_rps(), t.depth()),
    }
}
