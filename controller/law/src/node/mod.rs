//! One node of the tree of tiers: its children, what they count, and what they are told.
//!
//! Aggregator and controller are this plus what stands above them. The node keeps sums that are
//! right after every message: a report costs what changed in it, a tick costs the keys in use, and
//! nothing costs the product of sessions and keys. It knows no clock and no stream, only `now` and
//! session numbers; effects are drained with [`Node::poll_child`].

mod catalog;
mod children;
mod configuration;
mod fanout;
mod granting;
mod grants;
mod intake;
mod keys;

mod naming;
mod pools;
mod sessions;
mod status;
#[cfg(test)]
mod tests;
mod tick;

use std::time::Duration;

use sluicegate_model::{
    ConfigVersion, Counts, Directive, Hello, KeyName, Law, Name, Role, Scope, Term, Time, Up,
};

use self::catalog::Catalog;
pub use self::catalog::Totals;
use self::children::Children;
use self::configuration::Changes;
use self::granting::Due;
use self::keys::Keys;
use self::pools::Pools;
use crate::grant::Switches;
use crate::{Counters, Limits, Refusal, SessionId};

/// The highest term or version that a child is believed to have seen. No honest one gets as far, and
/// above it there would soon be none left to go to.
const CLAIM_MAX: u64 = 1 << 62;

/// The highest term or version that a parent is believed: what lies above [`CLAIM_MAX`] is left for
/// going beyond claims.
pub const TERM_MAX: u64 = 1 << 63;

/// Where a node stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// Serves clients, root of zone scope.
    Aggregator,
    /// Serves aggregators, root of region and global scope.
    Controller,
}

impl Tier {
    /// Whose streams this tier takes.
    #[must_use]
    pub fn serves(self) -> Role {
        match self {
            Self::Aggregator => Role::Client,
            Self::Controller => Role::Aggregator,
        }
    }

    /// Whether this tier works out the directives of `scope`.
    #[must_use]
    pub fn is_root_of(self, scope: Scope) -> bool {
        match (self, scope) {
            (Self::Aggregator, Scope::Zone) => true,
            (Self::Controller, Scope::Region | Scope::Global) => true,
            (Self::Aggregator, Scope::Region | Scope::Global) => false,
            (Self::Controller, Scope::Zone) => false,
        }
    }
}

/// What a node is told when it is made.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where it stands.
    pub tier: Tier,
    /// From one step of the law to the next; clamped to [`Settings::TICK_MIN`] and up to
    /// [`Settings::TICK_MAX`].
    pub tick: Duration,
    /// How long a directive lives; clamped to two ticks and more.
    pub ttl: Duration,
    /// How long what a child that passes it on was granted lives; clamped to `ttl` and more.
    pub grant_ttl: Duration,
    /// Which parts of the law `grant` work.
    pub switches: Switches,
    /// The bounds.
    pub limits: Limits,
    /// For the hash of key values, so that nobody can choose colliding ones.
    pub seed: u64,
}

impl Settings {
    /// The shortest tick.
    pub const TICK_MIN: Duration = Duration::from_millis(50);
    /// The longest tick.
    pub const TICK_MAX: Duration = Duration::from_secs(60);
    /// The longest life of a directive.
    pub const TTL_MAX: Duration = Duration::from_secs(3600);
}

/// What stands of one key at this moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KeyState {
    /// Counted since the key was first named.
    pub counts: Counts,
    /// Offered now by all children together, requests a second.
    pub offered_rps: f64,
    /// The sum of their usual rates, requests a second.
    pub usual_rps: f64,
    /// Client sessions that reported it lately.
    pub sessions: u32,
}

/// The accounting of one node.
#[derive(Debug)]
pub struct Node {
    tier: Tier,
    tick: Duration,
    ttl: Duration,
    grant_ttl: Duration,
    switches: Switches,
    limits: Limits,
    now: Time,
    began: Time,
    rated: Time,
    next_tick: Time,
    last_tick: Time,
    next_look: Time,
    term: Term,
    version: ConfigVersion,
    seen_term: Term,
    seen_version: ConfigVersion,
    seq: u64,
    law: Law,
    configured: bool,
    catalog: Catalog,
    keys: Keys,
    children: Children,
    changes: Changes,
    pools: Pools,
    due: Due,
    counters: Counters,
}

impl Node {
    /// A node without children and without configuration.
    #[must_use]
    pub fn new(settings: Settings, now: Time) -> Self {
        let Settings { tier, tick, ttl, grant_ttl, switches, limits, seed } = settings;
        let tick = tick.clamp(Settings::TICK_MIN, Settings::TICK_MAX);
        let limits = limits.sound();
        Self {
            tier,
            tick,
            ttl: ttl.clamp(tick * 2, Settings::TTL_MAX),
            grant_ttl: grant_ttl.clamp(ttl, Settings::TTL_MAX),
            switches,
            now,
            began: now,
            rated: now,
            next_tick: now + tick,
            last_tick: now,
            next_look: now,
            term: 0,
            version: 0,
            seen_term: 0,
            seen_version: 0,
            seq: 0,
            law: Law::Ratio,
            configured: false,
            catalog: Catalog::new(limits.max_unknown_buckets),
            keys: Keys::new(seed),
            children: Children::default(),
            changes: Changes::new(limits.max_changes_kept),
            limits,
            pools: Pools::default(),
            due: Due::default(),
            counters: Counters::default(),
        }
    }

    /// Takes a child's stream, or says why not.
    ///
    /// # Errors
    /// The stream must be closed with the refusal.
    pub fn open(&mut self, now: Time, id: SessionId, hello: Hello) -> Result<(), Refusal> {
        self.advance(now);
        let taken = self.try_open(id, hello);
        self.counters.sessions_refused += u64::from(taken.is_err());
        taken
    }

    /// Takes a child's message in.
    ///
    /// # Errors
    /// The stream must be closed with the refusal; the session is closed here already.
    pub fn handle(&mut self, now: Time, id: SessionId, up: Up) -> Result<(), Refusal> {
        self.advance(now);
        let Some(slot) = self.children.slot_of(id) else {
            return Err(Refusal::NotOpen);
        };
        let taken = match up {
            Up::Hello(_) => Err(Refusal::SecondHello),
            Up::Report(report) => self.take_report(slot, &report),
            Up::ConfigurationApplied(version) => {
                self.note_applied(slot, version);
                Ok(())
            }
            Up::Seen { term, version } => {
                self.note_seen(term, version);
                self.note_heard(slot);
                Ok(())
            }
        };
        if taken.is_err() {
            self.counters.sessions_refused += 1;
            self.close(now, id);
        }
        taken
    }

    /// Takes a child out: its rates leave the sums, its counts stay. An unknown one is ignored.
    pub fn close(&mut self, now: Time, id: SessionId) {
        self.advance(now);
        if let Some(slot) = self.children.slot_of(id) {
            self.remove_session(slot);
        }
    }

    /// When [`Node::handle_timeout`] wants to be called, [`Time::ZERO`] for at once.
    #[must_use]
    pub fn poll_timeout(&self) -> Time {
        let mut at = self.next_tick;
        if !self.children.is_empty() {
            at = at.min(self.next_look);
        }
        let due = [self.children.next_ack(), self.next_due(), self.next_up()];
        due.into_iter().flatten().fold(at, Time::min)
    }

    /// Whether a tick is due at `now`.
    #[must_use]
    pub fn is_tick_due(&self, now: Time) -> bool {
        now >= self.next_tick
    }

    /// The highest term known here.
    #[must_use]
    pub fn term(&self) -> Term {
        self.term
    }

    /// The law of the control plane, as the configuration in force says.
    #[must_use]
    pub fn law(&self) -> Law {
        self.law
    }

    /// The configuration in force; 0 before the first.
    #[must_use]
    pub fn version(&self) -> ConfigVersion {
        self.version
    }

    /// The highest term and configuration version known here or to any child that ever came.
    #[must_use]
    pub fn seen(&self) -> (Term, ConfigVersion) {
        (self.seen_term.max(self.term), self.seen_version.max(self.version))
    }

    /// From one step of the law to the next.
    #[must_use]
    pub fn tick(&self) -> Duration {
        self.tick
    }

    /// What was absorbed and refused.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The same, for what the tier above this node absorbs or refuses.
    pub fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// Keys in use: those whose counts or rates moved since the tick before the last.
    #[must_use]
    pub fn keys_in_use(&self) -> &[u32] {
        self.keys.active()
    }

    /// What stands of a key; `None` for a number that stands for none.
    #[must_use]
    pub fn key_state(&self, key: u32) -> Option<KeyState> {
        self.keys.state(key)
    }

    /// The name of a key; `None` for a number that stands for none.
    #[must_use]
    pub fn key_name(&self, key: u32) -> Option<KeyName> {
        let cold = self.keys.get(key)?;
        self.catalog.key_name(cold.bucket, &cold.values)
    }

    /// The number of a key by its name, if it is counted here.
    #[must_use]
    pub fn key_of(&self, name: &KeyName) -> Option<u32> {
        let bucket = self.catalog.bucket_of(&name.service, &name.bucket)?;
        self.keys.find(bucket, &name.values)
    }

    /// Every key that is counted here.
    pub fn keys(&self) -> impl Iterator<Item = u32> {
        self.keys.iter().map(|(key, _)| key)
    }

    /// Attempts at each service, counted here.
    pub fn service_totals(&self) -> impl Iterator<Item = (&Name, &Totals)> {
        self.catalog.services().map(|s| (&s.name, &s.totals))
    }

    /// The directive of a key that is in force here.
    #[must_use]
    pub fn directive(&self, key: u32) -> Option<&Directive> {
        let cached = self.keys.get(key)?.cached.as_ref()?;
        (cached.expires > self.now).then_some(&cached.directive)
    }

    fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
    }
}
