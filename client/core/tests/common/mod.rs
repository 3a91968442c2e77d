//! What the tests of the decision path share: a clock that is set by hand, and short ways to make
//! buckets.
#![allow(dead_code, reason = "each test uses its own part")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sluicegate_client_core::{
    CoarseClock, Keeper, KeyEvent, KeyHandle, Limiter, Settings, limiter,
};
use sluicegate_model::{
    Bucket, Counts, KeyValues, Limit, Match, Mode, Name, OnControlLoss, Overflow, Owner, Pattern,
    Per, Request, Rule, Scope, Select, ServiceBuckets, Time, TokenRate,
};

#[derive(Debug, Clone, Default)]
pub(crate) struct Clock(Arc<AtomicU64>);

impl Clock {
    pub(crate) fn set(&self, time: Time) {
        self.0.store(time.as_nanos(), Ordering::SeqCst);
    }
}

impl CoarseClock for Clock {
    fn now(&self) -> Time {
        Time::from_nanos(self.0.load(Ordering::SeqCst))
    }
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

pub(crate) fn settings() -> Settings {
    Settings::new(name("node"), 1, name("zone"), name("region"))
}

pub(crate) fn per_second(requests: u64) -> Limit {
    Limit::Tokens(TokenRate::per_second(requests, None).expect("a rate"))
}

pub(crate) fn bucket(text: &str, mode: Mode) -> Bucket {
    Bucket {
        name: name(text),
        scope: Scope::Region,
        rule: Rule { on: Match::default(), not: Vec::new() },
        limit: if mode == Mode::Observe { Limit::Unlimited } else { per_second(1000) },
        mode,
        per: None,
        on_control_loss: OnControlLoss::Open,
        guard: false,
        enforce: 1.0,
        max_drop: 1.0,
        sharing: None,
    }
}

pub(crate) fn per(dimensions: &[&str], max_keys: u32) -> Per {
    Per {
        dimensions: dimensions.iter().map(|d| name(d)).collect(),
        values: BTreeMap::new(),
        max_keys,
        overflow: Overflow::Observe,
    }
}

pub(crate) fn patterns(texts: &[&str]) -> Vec<Pattern> {
    texts.iter().map(|t| Pattern::parse(t)).collect()
}

pub(crate) fn service(text: &str, select: Select, buckets: Vec<Bucket>) -> Arc<ServiceBuckets> {
    Arc::new(ServiceBuckets { service: name(text), owner: Owner::default(), select, buckets })
}

/// A limiter, its keeper and their clock, with what an agent would do at each look.
pub(crate) struct World {
    pub(crate) limiter: Limiter<Clock>,
    pub(crate) keeper: Keeper,
    pub(crate) clock: Clock,
    pub(crate) now: Time,
    pub(crate) retired: Vec<(String, Counts)>,
}

impl World {
    pub(crate) fn new(settings: &Settings, services: &[Arc<ServiceBuckets>]) -> Self {
        let clock = Clock::default();
        let now = Time::from_millis(1000);
        clock.set(now);
        let (limiter, keeper) = limiter(settings, clock.clone(), 7, now);
        let mut world = Self { limiter, keeper, clock, now, retired: Vec::new() };
        world.keeper.configure(now, services);
        world.look();
        world
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.clock.set(self.now);
    }

    /// One look of an agent that lives. Which keys came or changed.
    pub(crate) fn look(&mut self) -> Vec<KeyEvent> {
        self.keeper.beat(self.now);
        self.keeper.adopt(self.now, usize::MAX);
        let mut events = Vec::new();
        while let Some(event) = self.keeper.poll_event() {
            if let KeyEvent::Retired(key) = event {
                let name = self.keeper.name(key).expect("still there").to_string();
                self.retired.push((name, self.keeper.totals(key)));
                self.keeper.release(key);
            }
            events.push(event);
        }
        events
    }

    pub(crate) fn key(&self, bucket: &str, values: &KeyValues) -> KeyHandle {
        let is = |key: &KeyHandle| {
            let name = self.keeper.name(*key).expect("there");
            name.bucket.as_str() == bucket && name.values == *values
        };
        self.keeper.keys().find(is).unwrap_or_else(|| panic!("no key {bucket} {values:?}"))
    }

    pub(crate) fn whole(&self, bucket: &str) -> KeyHandle {
        self.key(bucket, &KeyValues::Whole)
    }

    pub(crate) fn totals(&self, bucket: &str) -> Counts {
        self.keeper.totals(self.whole(bucket))
    }
}

pub(crate) fn each(values: &[&str]) -> KeyValues {
    KeyValues::Each(values.iter().map(|v| Box::from(*v)).collect())
}

pub(crate) fn request<'a>(caller: &'a str, dimensions: &'a [(&'a str, &'a str)]) -> Request<'a> {
    Request { service: "shop", caller, procedure: "buy", dimensions }
}

pub(crate) fn counts(matched: u64, offered: u64, admitted: u64, would_drop: u64) -> Counts {
    Counts { matched, offered, admitted, would_drop }
}
