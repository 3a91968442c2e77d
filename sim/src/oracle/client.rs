//! One client as the oracle sees it: what it was told, what it asked and what became of that. It
//! must not look into the client.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluicegate_model::{
    AdmitRatio, ConfigVersion, Configuration, Directive, Limit, Mode, Name, OnControlLoss,
    ServiceBuckets, Term,
};

use super::books::{Four, Memory, Sender, add};
use super::directory::{Asked, Directory, Hit, Thing};
use crate::observe::{BucketId, Verdict};

/// How much later than due an agent may see that time has passed: its longest nap, and a little.
const LOOK_LATE_NS: u64 = 60_000_000;
/// Reports that a client tells apart.
const REPORTS_REMEMBERED: usize = sluicegate_client_core::MAX_REPORTS_UNACKNOWLEDGED;

/// What holds for every client of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) ttl: u64,
    pub(super) ramp: u64,
    /// How far a clock may be off, as a share.
    pub(super) drift: f64,
    /// How far clocks may jump ahead, all jumps together.
    pub(super) jump: u64,
    /// How long it takes until what a client reports comes back as a directive.
    pub(super) news: u64,
}

impl Rules {
    /// A span on the client's clock, as long as it may be in world time.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a span")]
    #[expect(clippy::cast_precision_loss, reason = "a span")]
    fn at_most(self, local: u64) -> u64 {
        (local as f64 / (1.0 - self.drift)) as u64
    }

    /// The shortest that it may be, but for jumps.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a span")]
    #[expect(clippy::cast_precision_loss, reason = "a span")]
    fn at_least(self, local: u64) -> u64 {
        (local as f64 / (1.0 + self.drift)) as u64
    }
}

/// What a client was told of a key, and what it let through.
#[derive(Debug, Default)]
struct KeyModel {
    /// Term and number of the newest directive of the stream.
    newest: (Term, u64),
    told: Option<Told>,
    tokens: Option<Tokens>,
    /// When it was asked for first under this configuration.
    asked: Option<u64>,
    /// When it was asked for last.
    asked_last: Option<u64>,
    /// When it was asked for after a long pause.
    woke: u64,
}

#[derive(Debug, Clone, Copy)]
struct Told {
    admit: AdmitRatio,
    arrived: u64,
    ttl: u64,
}

/// A token bucket of the whole limit, asked at each request, that follows what went through.
#[derive(Debug, Clone, Copy)]
struct Tokens {
    level: f64,
    depth: f64,
    rate_rps: f64,
    at: u64,
}

impl Tokens {
    fn of(limit: Limit, now: u64) -> Option<Self> {
        let Limit::Tokens(t) = limit else { return None };
        Some(Self { level: t.depth(), depth: t.depth(), rate_rps: t.rate_rps(), at: now })
    }

    fn advance(&mut self, limit: Limit, now: u64, drift: f64) {
        #[expect(clippy::cast_precision_loss, reason = "a span")]
        let span_s = now.saturating_sub(self.at) as f64 / 1e9;
        self.at = now;
        self.level = (self.level + self.rate_rps * (1.0 - drift) * span_s).min(self.depth);
        if let Limit::Tokens(t) = limit {
            self.level = (self.level + t.depth() - self.depth).min(t.depth());
            (self.depth, self.rate_rps) = (t.depth(), t.rate_rps());
        }
    }
}

/// Counts that are certain up to a range: `most` has what may have been counted as well.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) least: Four,
    pub(super) most: Four,
}

impl Range {
    fn count(&mut self, least: Four, most: Four) {
        add(&mut self.least, least);
        add(&mut self.most, most);
    }
}

/// One process of a client.
#[derive(Debug)]
pub(super) struct ClientModel {
    pub(super) runs: bool,
    agent_paused_since: Option<u64>,
    /// How many pauses overlap.
    pauses: u32,
    heard: u64,
    /// Until when control was lost, the last time that it was.
    found_again: Option<u64>,
    /// When its clock jumped last.
    jumped: Option<u64>,
    started: u64,
    pub(super) configured: bool,
    pub(super) services: BTreeMap<Name, Arc<ServiceBuckets>>,
    pub(super) version: ConfigVersion,
    pub(super) term: Term,
    keys: BTreeMap<Thing, KeyModel>,
    pub(super) counted: BTreeMap<Thing, Range>,
    pub(super) sender: Sender,
    /// What the agent showed last.
    pub(super) shown_version: ConfigVersion,
}

impl ClientModel {
    pub(super) fn new(now: u64) -> Self {
        Self {
            runs: false,
            agent_paused_since: None,
            pauses: 0,
            heard: now,
            found_again: None,
            jumped: None,
            started: now,
            configured: false,
            services: BTreeMap::new(),
            version: 0,
            term: 0,
            keys: BTreeMap::new(),
            counted: BTreeMap::new(),
            sender: Sender::new(Memory::OldestFirst(REPORTS_REMEMBERED)),
            shown_version: 0,
        }
    }

    pub(super) fn pause(&mut self, now: u64, begins: bool) {
        self.pauses = if begins { self.pauses + 1 } else { self.pauses.saturating_sub(1) };
        self.agent_paused_since = match (self.pauses, self.agent_paused_since) {
            (0, _) => None,
            (_, Some(since)) => Some(since),
            (_, None) => Some(now),
        };
    }

    pub(super) fn clock_changed(&mut self, now: u64) {
        self.jumped = Some(now);
    }

    /// Whether a span on the client's clock may be over by now.
    fn may_be_over(&self, rules: Rules, now: u64, since: u64, span: u64) -> bool {
        let jump = if self.jumped.is_some_and(|at| at >= since) { rules.jump } else { 0 };
        now + jump + LOOK_LATE_NS >= since + rules.at_least(span)
    }

    pub(super) fn opened(&mut self, number: u32) {
        self.sender.open(number);
        self.keys.values_mut().for_each(|key| key.newest = (0, 0));
    }

    /// A configuration arrived. Whether it is to be taken.
    pub(super) fn configure(&mut self, rules: Rules, now: u64, new: &Configuration) -> bool {
        if new.term < self.term {
            return false;
        }
        self.term = new.term;
        self.hear(rules, now);
        if new.version < self.version || (!new.full && new.version == self.version) {
            return false;
        }
        if new.full {
            self.services.clear();
        }
        for gone in &new.removed {
            self.services.remove(gone);
        }
        for service in &new.services {
            self.services.insert(service.service.clone(), Arc::clone(service));
        }
        (self.version, self.configured) = (new.version, true);
        true
    }

    /// From here on each key's token bucket is that of the limit in force now.
    pub(super) fn change_tokens(&mut self, directory: &Directory, rules: Rules, now: u64) {
        let limits: Vec<(Thing, Limit)> = self
            .keys
            .keys()
            .filter_map(|key| {
                let bucket = directory.bucket_of(*key)?;
                Some((*key, self.limit(directory, Hit { bucket, key: *key })?))
            })
            .collect();
        for (key, limit) in limits {
            if let Some(tokens) = self.keys.get_mut(&key).and_then(|k| k.tokens.as_mut()) {
                tokens.advance(limit, now, rules.drift);
            }
        }
    }

    /// Keys of services that are gone are forgotten with all that was told of them.
    pub(super) fn forget_gone(&mut self, directory: &Directory) {
        let services = &self.services;
        self.keys.retain(|thing, _| {
            let bucket = directory.bucket_of(*thing).map(|b| &directory.buckets[b.0 as usize]);
            bucket.is_some_and(|b| {
                services.get(&b.service).is_some_and(|s| s.bucket(b.name.as_str()).is_some())
            })
        });
    }

    /// A directive arrived.
    pub(super) fn direct(&mut self, now: u64, thing: Thing, directive: &Directive) {
        let key = self.keys.entry(thing).or_default();
        if (directive.term, directive.seq) < key.newest {
            return;
        }
        key.newest = (directive.term, directive.seq);
        let ttl = u64::try_from(directive.ttl.as_nanos()).unwrap_or(u64::MAX);
        key.told = Some(Told { admit: directive.admit, arrived: now, ttl });
    }

    /// A key is asked for. Whether it may not have a place of its own yet, because it was not
    /// asked for before the agent looked last, and whether nobody can have said anything of it yet,
    /// because it was not asked for long.
    pub(super) fn ask(
        &mut self,
        directory: &Directory,
        rules: Rules,
        now: u64,
        hit: Hit,
    ) -> (bool, bool) {
        if self.limit(directory, hit).is_none() {
            return (true, true);
        }
        let key = self.keys.entry(hit.key).or_default();
        let first = *key.asked.get_or_insert(now);
        let pause = key.asked_last.map_or(u64::MAX, |last| now - last);
        key.asked_last = Some(now);
        if pause >= rules.ttl / 2 {
            key.woke = now;
        }
        let told = key.told.is_some_and(|t| now < t.arrived + rules.at_least(t.ttl));
        let unheard = !told && now <= key.woke + rules.news;
        (now <= first + LOOK_LATE_NS, unheard)
    }

    /// A sign of life arrived.
    pub(super) fn hear(&mut self, rules: Rules, now: u64) {
        if self.may_be_over(rules, now, self.heard, rules.ttl) {
            self.found_again = Some(now);
        }
        self.heard = now;
    }

    /// The limit in force of a hit; `None` if its service is not.
    pub(super) fn limit(&self, directory: &Directory, hit: Hit) -> Option<Limit> {
        let facts = &directory.buckets[hit.bucket.0 as usize];
        let (_, bucket) = self.services.get(&facts.service)?.bucket(facts.name.as_str())?;
        Some(bucket.limit)
    }

    /// Why a drop by a bucket is no fault; `None` if it is one.
    pub(super) fn excuse(
        &mut self,
        rules: Rules,
        now: u64,
        limit: Limit,
        on_loss: OnControlLoss,
        thing: Thing,
    ) -> Option<&'static str> {
        if limit.denies_all() {
            return Some("a limit of 0");
        }
        let key = self.keys.entry(thing).or_default();
        if key.tokens.is_none() {
            key.tokens = Tokens::of(limit, now);
        }
        if let Some(tokens) = &mut key.tokens {
            tokens.advance(limit, now, rules.drift);
            if tokens.level < 1.0 {
                return Some("the cap");
            }
        }
        // While nobody looks, a slot goes on as it was, until the heartbeat counts as stale.
        let stands = match self.agent_paused_since {
            Some(since) => (since + rules.at_most(rules.ttl + rules.ramp)).max(now.min(since)),
            None => 0,
        };
        let closes = on_loss != OnControlLoss::Open;
        let told = key.told;
        if let Some(told) = told {
            let over = told.arrived + rules.at_most(told.ttl) + LOOK_LATE_NS;
            let drops = told.admit != AdmitRatio::ALL;
            if drops && now <= over {
                return Some("a directive in force");
            }
            if drops && now <= (over + rules.at_most(rules.ramp)).max(stands) {
                return Some("the ramp after a directive");
            }
            let ran_out = self.may_be_over(rules, now, told.arrived, told.ttl);
            if ran_out && closes && (drops || on_loss != OnControlLoss::Last) {
                return Some("on_control_loss");
            }
        }
        let lost = self.may_be_over(rules, now, self.heard.max(self.started), rules.ttl);
        // The agent follows at its next look.
        let lost = lost || self.found_again.is_some_and(|at| now <= at + LOOK_LATE_NS);
        let paused = self.agent_paused_since.is_some();
        if on_loss != OnControlLoss::Last && closes && (lost || paused) {
            return Some("on_control_loss");
        }
        None
    }

    /// What is known of a key, for people.
    pub(super) fn tell(&self, now: u64, thing: Thing) -> String {
        let ms = |at: u64| now.saturating_sub(at) / 1_000_000;
        let key = self.keys.get(&thing);
        let told = key.and_then(|k| k.told).map_or("never directed".into(), |t| {
            let share = t.admit.share();
            format!("told to admit {share} for {} ms, {} ms ago", t.ttl / 1_000_000, ms(t.arrived))
        });
        let level = key.and_then(|k| k.tokens).map_or(f64::NAN, |t| t.level);
        let heard = ms(self.heard);
        format!("{told}, last heard of control {heard} ms ago, level of the cap {level:.2}")
    }

    /// Counts one decision by the oracle's own attribution.
    pub(super) fn count(
        &mut self,
        directory: &Directory,
        rules: Rules,
        now: u64,
        asked: &Asked,
        verdict: Verdict,
    ) {
        if !self.services.contains_key(&asked.service_name) {
            return;
        }
        let mode = |b: BucketId| directory.buckets[b.0 as usize].mode;
        let deniers = asked.hits.iter().filter(|h| mode(h.bucket) == Mode::Deny).count();
        let shadows = asked.hits.iter().filter(|h| mode(h.bucket) == Mode::Shadow).count();
        let service = self.counted.entry(asked.service).or_default();
        match verdict {
            Verdict::Drop(_) if deniers == 1 => service.count([1, 0, 1, 0], [1, 0, 1, 0]),
            Verdict::Drop(_) => service.count([1, 0, 0, 0], [1, 0, 1, 1]),
            Verdict::Admit | Verdict::WouldDrop(_) | Verdict::Later => {
                service.count([1, 1, 0, 0], [1, 1, 0, 0]);
            }
        }
        for hit in &asked.hits {
            let counted = self.counted.entry(hit.key).or_default();
            let mut charged = false;
            match verdict {
                Verdict::Drop(by) if by == hit.bucket && deniers == 1 => {
                    counted.count([1, 1, 0, 0], [1, 1, 0, 0]);
                }
                Verdict::Drop(by) if by == hit.bucket => {
                    counted.count([1, 0, 0, 0], [1, 1, 0, 0]);
                }
                Verdict::Drop(_) => counted.count([1, 0, 0, 0], [1, 0, 0, 0]),
                Verdict::WouldDrop(by) if by == hit.bucket => {
                    counted.count([1, 1, 1, 1], [1, 1, 1, 1]);
                }
                Verdict::WouldDrop(_) if mode(hit.bucket) == Mode::Shadow && shadows > 1 => {
                    counted.count([1, 1, 1, 0], [1, 1, 1, 1]);
                }
                Verdict::Admit | Verdict::WouldDrop(_) | Verdict::Later => {
                    counted.count([1, 1, 1, 0], [1, 1, 1, 0]);
                    charged = true;
                }
            }
            if charged {
                self.charge(directory, rules, now, *hit);
            }
        }
    }

    fn charge(&mut self, directory: &Directory, rules: Rules, now: u64, hit: Hit) {
        let Some(limit) = self.limit(directory, hit) else { return };
        let key = self.keys.entry(hit.key).or_default();
        if key.tokens.is_none() {
            key.tokens = Tokens::of(limit, now);
        }
        if let Some(tokens) = &mut key.tokens {
            tokens.advance(limit, now, rules.drift);
            tokens.level -= 1.0;
        }
    }
}
