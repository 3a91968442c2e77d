//! The agent: the state machine that feeds the decision path of one client and speaks for it.
//!
//! Given messages and the time, it looks at the counters every few milliseconds, reports them,
//! applies what comes down and follows what follows when nothing comes. It knows no clock, no
//! thread and no transport: a shell (or a simulator) calls `handle_*` and drains `poll_*`.

mod cap;
mod control;
mod guard;
mod in_use;
mod keys;
mod ledger;
mod meters;
mod rates;
mod softened;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_model::{
    ConfigVersion, Configuration, Down, Hello, Law, Name, PROTOCOL_VERSION, Role, ServiceBuckets,
    Term, Time, Up, Update,
};

use self::cap::BUDGET_HORIZON;
use self::control::Moment;
use self::in_use::Pace;
use self::keys::{Keys, MAX_ADOPTED_PER_LOOK, MAX_NAP};
use self::ledger::{Acknowledged, Ledger};
pub use self::ledger::{
    MAX_ENTRIES_UNACKNOWLEDGED, MAX_IDS, MAX_LEAVING_KEYS, MAX_REPORT_ENTRIES,
    MAX_REPORT_NAME_BYTES, MAX_REPORTS_UNACKNOWLEDGED, MAX_SERVICES,
};
pub use self::meters::{AgentCounters, Counter};
use self::rates::GONE_AFTER;
use crate::{Keeper, Settings};

/// After so long without a request the agent looks less often.
const NAP_AFTER: Duration = Duration::from_secs(1);
/// The counts of services are read so often, and at each tick: the table keeps those of a service
/// that is gone for 2 s.
const SERVICES_EVERY: Duration = Duration::from_millis(500);
/// However short `look` is set.
const MIN_LOOK: Duration = Duration::from_millis(1);
/// What was said and not acknowledged is repeated after so many ticks, and at least after
/// [`MIN_REPEAT`], even if there is nothing new to say.
const REPEAT_TICKS: u32 = 3;
const MIN_REPEAT: Duration = Duration::from_secs(3);
/// Under the law `grant`, keys far below their limit are reported so often, and services, unless a
/// report goes anyhow.
const SLOW_TICK: Duration = Duration::from_secs(1);
/// Between two reports, however short `look` is set.
const MIN_BETWEEN_REPORTS: Duration = Duration::from_millis(10);

/// The stream to an aggregator, as far as the agent has to know.
#[derive(Debug, Default)]
struct Stream {
    open: bool,
    hello_due: bool,
    applied_due: Option<ConfigVersion>,
    report_due: bool,
    /// Something of the last look is not to wait for the tick.
    is_urgent: bool,
}

/// The agent of one client.
pub struct Agent {
    settings: Settings,
    keeper: Keeper,
    keys: Keys,
    ledger: Ledger,
    meters: Arc<AgentCounters>,
    law: Law,
    /// What is in force, by name.
    services: Vec<Arc<ServiceBuckets>>,
    version: ConfigVersion,
    seen_version: ConfigVersion,
    seen_term: Term,
    stream: Stream,
    /// When the control plane was last heard of.
    heard: Time,
    last_look: Time,
    last_moved: Time,
    last_tick: Time,
    last_services: Time,
    last_report: Time,
    next_look: Time,
    next_tick: Time,
    /// Ticks to the next slow one, this one included.
    to_slow_tick: u32,
}

impl Agent {
    /// The agent that owns `keeper`'s table. `seed` sets when its ticks fall, so that the clients of
    /// a fleet do not all report at once.
    pub(crate) fn new(settings: Settings, keeper: Keeper, seed: u64, now: Time) -> Self {
        let first = settings.tick.mul_f64(share_of_one(seed));
        let slow_ticks = f64::from(slow_ticks(&settings));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part")]
        let to_slow_tick = (slow_ticks * share_of_one(!seed)) as u32;
        Self {
            keys: Keys::new(&settings, now),
            ledger: Ledger::new(settings.tick),
            settings,
            keeper,
            meters: Arc::new(AgentCounters::default()),
            law: Law::default(),
            services: Vec::new(),
            version: 0,
            seen_version: 0,
            seen_term: 0,
            stream: Stream::default(),
            heard: now,
            last_look: now,
            last_moved: now,
            last_tick: now,
            last_services: now,
            last_report: now,
            next_look: now,
            next_tick: now + first,
            to_slow_tick,
        }
    }

    /// What the agent counts about itself; shared, readable at any time.
    #[must_use]
    pub fn counters(&self) -> Arc<AgentCounters> {
        Arc::clone(&self.meters)
    }

    /// The version of the configuration in force; 0 before the first.
    #[must_use]
    pub fn version(&self) -> ConfigVersion {
        self.version
    }

    /// A stream to an aggregator is open; one that was is not any more.
    pub fn handle_open(&mut self, _now: Time) {
        self.ledger.start_stream();
        self.keys.start_stream();
        // What is known already goes out at once: it brings the directives back sooner.
        let report_due = self.ledger.has_news();
        self.stream = Stream { open: true, hello_due: true, report_due, ..Stream::default() };
    }

    /// A message came down the open stream.
    pub fn handle_down(&mut self, now: Time, down: Down) {
        if !self.stream.open {
            self.meters.messages_without_stream.hit();
            return;
        }
        match down {
            Down::Configuration(configuration) => self.configure(now, configuration),
            Down::Update(update) => self.update(now, &update),
        }
    }

    /// The stream is closed. The next one starts with what this one did not get acknowledged.
    pub fn handle_close(&mut self, _now: Time) {
        self.stream = Stream::default();
    }

    /// The time that [`Agent::poll_timeout`] named has come (or any other: too early does nothing).
    pub fn handle_timeout(&mut self, now: Time) {
        if now < self.next_look {
            return;
        }
        let late = now.since(self.last_look) > BUDGET_HORIZON;
        self.meters.looks.hit();
        self.meters.looks_late.add(u64::from(late));
        let moment = self.moment(now);
        let adopted = self.keeper.adopt(now, MAX_ADOPTED_PER_LOOK);
        self.keys.follow(&mut self.keeper, &mut self.ledger, &self.meters, &moment);
        let looked = self.keys.look(&mut self.keeper, &mut self.ledger, &moment);
        if looked.moved || adopted > 0 {
            self.last_moved = now;
        }
        self.stream.is_urgent |= self.stream.open && looked.is_due;
        self.keeper.beat(now);
        if now.since(self.last_services) >= SERVICES_EVERY {
            self.count_services(now);
        }
        if now >= self.next_tick {
            self.tick(&moment);
        }
        if self.stream.is_urgent && now.since(self.last_report) >= MIN_BETWEEN_REPORTS {
            self.make_report_due();
        }
        self.keys.evict(&mut self.keeper, &self.ledger, &self.meters, now);
        self.last_look = now;
        self.next_look = now + self.nap(now);
    }

    /// The next message to send up; ask until there is none. One that is not fetched is replaced by
    /// what is true later, so nothing piles up.
    pub fn poll_up(&mut self) -> Option<Up> {
        if !self.stream.open {
            return None;
        }
        if std::mem::take(&mut self.stream.hello_due) {
            return Some(Up::Hello(self.hello()));
        }
        if let Some(version) = self.stream.applied_due.take() {
            return Some(Up::ConfigurationApplied(version));
        }
        if !std::mem::take(&mut self.stream.report_due) {
            return None;
        }
        let keeper = &self.keeper;
        let report = self.ledger.report(|key| keeper.name(key))?;
        self.meters.reports.hit();
        self.last_report = self.last_look;
        Some(Up::Report(report))
    }

    /// When to call [`Agent::handle_timeout`] next.
    #[must_use]
    pub fn poll_timeout(&self) -> Time {
        self.next_look
    }

    fn hello(&self) -> Hello {
        Hello {
            role: Role::Client,
            node: self.settings.node.clone(),
            session: self.settings.session,
            zone: self.settings.zone.clone(),
            region: self.settings.region.clone(),
            protocol: PROTOCOL_VERSION,
            services: self.settings.services.clone(),
            seen_term: self.seen_term,
            seen_version: self.seen_version,
        }
    }

    fn moment(&self, now: Time) -> Moment {
        Moment {
            now,
            connected: self.stream.open,
            alive_until: self.heard + self.settings.ttl,
            ttl: self.settings.ttl,
            ramp: self.settings.ramp,
        }
    }

    fn nap(&self, now: Time) -> Duration {
        let look = self.settings.look.max(MIN_LOOK);
        if now.since(self.last_moved) < NAP_AFTER {
            return look;
        }
        (look * 4).min(MAX_NAP).max(look)
    }

    fn tick(&mut self, moment: &Moment) {
        let now = moment.now;
        let tick = self.settings.tick.max(Duration::from_millis(1));
        let behind = now.since(self.next_tick).as_nanos() / tick.as_nanos();
        let ticks = u32::try_from(behind).unwrap_or(u32::MAX).saturating_add(1);
        self.next_tick = self.next_tick + tick * ticks;
        let is_slow = self.to_slow_tick < ticks;
        self.to_slow_tick = match is_slow {
            true => slow_ticks(&self.settings) - 1,
            false => self.to_slow_tick - ticks,
        };
        let interval = now.since(self.last_tick);
        if !interval.is_zero() {
            let (keeper, ledger) = (&mut self.keeper, &mut self.ledger);
            let must_speak = self.stream.open && now.since(self.last_report) >= GONE_AFTER;
            let pace = self.keys.tick(keeper, ledger, &self.meters, moment, is_slow, must_speak);
            self.ledger.set_interval(match (self.law, pace) {
                (Law::Ratio, _) => interval,
                (Law::Grant, Pace::EachTick) => tick,
                (Law::Grant, Pace::SlowTicks) => tick * slow_ticks(&self.settings),
                (Law::Grant, Pace::Quiet) => GONE_AFTER.max(tick),
            });
            self.count_services(now);
            self.last_tick = now;
        }
        let repeat = (tick * REPEAT_TICKS).max(MIN_REPEAT);
        let overdue = self.ledger.awaits() && now.since(self.last_report) >= repeat;
        let has_news = match self.law {
            Law::Grant if !is_slow => self.ledger.has_key_news(),
            Law::Grant | Law::Ratio => self.ledger.has_news(),
        };
        if self.stream.open && (has_news || overdue) {
            self.make_report_due();
        }
    }

    fn make_report_due(&mut self) {
        if self.stream.report_due {
            self.meters.reports_superseded.hit();
        }
        (self.stream.report_due, self.stream.is_urgent) = (true, false);
    }

    fn count_services(&mut self, now: Time) {
        self.last_services = now;
        let refused = self.ledger.count_services(self.keeper.service_totals());
        self.meters.services_uncounted.add(refused);
    }

    fn configure(&mut self, now: Time, new: Configuration) {
        self.seen_version = self.seen_version.max(new.version);
        if new.term < self.seen_term {
            self.meters.configurations_older_term.hit();
            return;
        }
        self.seen_term = new.term;
        self.hear(now);
        let old = new.version < self.version || (!new.full && new.version == self.version);
        if old {
            self.meters.configurations_older_version.hit();
            return;
        }
        // So that a service that was gone and is back is seen to have been gone.
        self.count_services(now);
        self.merge(new.services, &new.removed, new.full);
        self.law = new.law;
        self.keys.obey(new.law, &self.keeper, now);
        self.keeper.configure(now, &self.services);
        let moment = self.moment(now);
        self.keys.follow(&mut self.keeper, &mut self.ledger, &self.meters, &moment);
        self.version = new.version;
        self.stream.applied_due = Some(new.version);
        self.meters.configurations.hit();
    }

    /// Brings the services in force up to date.
    fn merge(&mut self, changed: Vec<Arc<ServiceBuckets>>, removed: &[Name], full: bool) {
        if full {
            let named: BTreeSet<&Name> = changed.iter().map(|s| &s.service).collect();
            self.services.retain(|s| named.contains(&s.service));
        } else {
            let removed: BTreeSet<&Name> = removed.iter().collect();
            self.services.retain(|s| !removed.contains(&s.service));
        }
        for service in changed {
            match self.services.binary_search_by(|s| s.service.cmp(&service.service)) {
                Ok(at) => self.services[at] = service,
                Err(_) if self.services.len() >= MAX_SERVICES => self.meters.services_refused.hit(),
                Err(at) => self.services.insert(at, service),
            }
        }
    }

    fn update(&mut self, now: Time, update: &Update) {
        if self.ledger.acknowledge(update.ack_seq) == Acknowledged::Unknown {
            self.meters.acks_unknown.hit();
        }
        let mut valid = update.directives.is_empty();
        for (id, directive) in &update.directives {
            if directive.term < self.seen_term {
                self.meters.directives_older_term.hit();
                continue;
            }
            self.seen_term = directive.term;
            valid = true;
            let Some(key) = self.ledger.key_of(*id) else {
                self.meters.directives_unknown_key.hit();
                continue;
            };
            let moment = self.moment(now);
            let (keeper, ledger) = (&mut self.keeper, &mut self.ledger);
            if self.keys.direct(keeper, ledger, key, directive, &moment) {
                self.meters.directives.hit();
            } else {
                self.meters.directives_older_seq.hit();
            }
        }
        if valid {
            self.hear(now);
        }
    }

    /// A sign of life of the control plane.
    fn hear(&mut self, now: Time) {
        let lost = now >= self.heard + self.settings.ttl;
        self.heard = now;
        if lost {
            let moment = self.moment(now);
            self.keys.wake_odd(&mut self.keeper, &moment);
        }
    }
}

/// Of how many ticks one is slow.
fn slow_ticks(settings: &Settings) -> u32 {
    if !settings.switches.adaptive_period {
        return 1;
    }
    let ticks = SLOW_TICK.as_nanos() / settings.tick.as_nanos().max(1_000_000);
    u32::try_from(ticks).unwrap_or(u32::MAX).max(1)
}

/// A number from 0 up to (not including) 1 that follows from `seed`: splitmix64, one step.
fn share_of_one(seed: u64) -> f64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    #[expect(clippy::cast_precision_loss, reason = "53 bits")]
    let whole = (z >> 11) as f64;
    whole / 9_007_199_254_740_992.0
}
