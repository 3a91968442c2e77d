//! How the product's processes are made, and how a client's decision is put into the simulator's
//! words.

use std::time::Duration;

use sluicegate_aggregator_core::Aggregator;
use sluicegate_client_core::{Agent, BucketRef, Decision, Limiter, Prepared};
use sluicegate_controller_core::Controller;
use sluicegate_law::grant::Switches;
use sluicegate_model::{Law, Name, Time};

use super::{ClientClock, Message};
use crate::net::Net;
use crate::node::NodeId;
use crate::observe::{Ask, BucketId, Verdict};
use crate::setup::Setup;

/// A client's process.
pub(super) struct Client {
    pub(super) limiter: Limiter<ClientClock>,
    pub(super) agent: Agent,
    pub(super) clock: ClientClock,
    /// One for each kind of request of each workload, made when it is first needed.
    prepared: Vec<Option<Prepared<ClientClock>>>,
    /// What the limiter's names of buckets mean, those met so far.
    known: Vec<(BucketRef, BucketId)>,
}

impl Client {
    #[inline]
    pub(super) fn decide(&mut self, parts: &Parts<'_>, ask: &Ask) -> Verdict {
        let limiter = &self.limiter;
        let prepared = self.prepared[parts.kind(ask)].get_or_insert_with(|| {
            let kind = &parts.setup.workloads[ask.workload as usize].kinds[ask.kind as usize];
            kind.with_request(|request| limiter.prepare(request))
        });
        let outcome = prepared.decide();
        match outcome.details() {
            Decision::Admit { shadow_dropped_by: None } => Verdict::Admit,
            Decision::Admit { shadow_dropped_by: Some(bucket) } => {
                self.name(parts, bucket).map_or(Verdict::Admit, Verdict::WouldDrop)
            }
            Decision::Drop { bucket, .. } => {
                self.name(parts, bucket).map_or(Verdict::Admit, Verdict::Drop)
            }
        }
    }

    #[inline]
    fn name(&mut self, parts: &Parts<'_>, bucket: BucketRef) -> Option<BucketId> {
        match self.known.iter().find(|(known, _)| *known == bucket) {
            Some((_, id)) => Some(*id),
            None => self.meet(parts, bucket),
        }
    }

    #[cold]
    fn meet(&mut self, parts: &Parts<'_>, bucket: BucketRef) -> Option<BucketId> {
        let name = self.limiter.bucket(bucket)?;
        let id = parts.setup.bucket(name.service.as_str(), name.bucket.as_str())?;
        self.known.push((bucket, id));
        Some(id)
    }
}

/// What processes are made from.
pub(super) struct Parts<'s> {
    setup: &'s Setup<'s>,
    law: Law,
    /// Where the kinds of each workload begin among all.
    first_kinds: Vec<usize>,
}

impl<'s> Parts<'s> {
    pub(super) fn new(setup: &'s Setup<'_>, law: Law) -> Self {
        let mut first = 0;
        let starts = setup.workloads.iter().map(|w| {
            let start = first;
            first += w.kinds.len();
            start
        });
        let first_kinds = starts.collect();
        Self { setup, law, first_kinds }
    }

    #[inline]
    fn kind(&self, ask: &Ask) -> usize {
        self.first_kinds[ask.workload as usize] + ask.kind as usize
    }

    pub(super) fn client(
        &self,
        net: &mut Net<'_, Message>,
        client: usize,
        clock: ClientClock,
        now: Time,
    ) -> Client {
        let setup = self.setup;
        let topology = setup.topology;
        let zone = topology.zone_of(client);
        let rng = net.rng(topology.client(client));
        let (session, seed) = (rng.bits(), rng.bits());
        let node = name("client", client);
        let mut settings = sluicegate_client_core::Settings::new(
            node,
            session,
            name("zone", zone),
            name("region", topology.region_of(zone)),
        );
        let s = setup.scenario;
        settings.tick = Duration::from_millis(s.tick_ms);
        settings.look = Duration::from_millis(s.look_ms);
        settings.ttl = Duration::from_secs_f64(s.ttl_s);
        settings.ramp = Duration::from_secs_f64(s.ramp_s);
        // One thread asks, and through handles: shared counters, and small tables.
        settings.max_stripes = 0;
        settings.max_striped_keys = 0;
        settings.max_identities = MAX_IDENTITIES;
        settings.max_waiting = MAX_WAITING;
        // The agent looks through the whole table each time.
        let counts_values = setup.services.iter().flat_map(|s| &s.buckets).any(|b| b.per.is_some());
        settings.max_values = if counts_values { MAX_VALUES } else { MIN_VALUES };
        let (limiter, agent) = sluicegate_client_core::client(settings, clock.clone(), seed, now);
        let kinds = setup.workloads.iter().flat_map(|w| &w.kinds);
        let prepared = kinds.map(|_| None).collect();
        Client { limiter, agent, clock, prepared, known: Vec::new() }
    }

    pub(super) fn aggregator(
        &self,
        net: &mut Net<'_, Message>,
        zone: usize,
        now: Time,
    ) -> Aggregator {
        let topology = self.setup.topology;
        let config = sluicegate_aggregator_core::Config {
            node: name("aggregator", zone),
            session: net.rng(topology.aggregator(zone)).bits(),
            zone: name("zone", zone),
            region: name("region", topology.region_of(zone)),
            tick: Duration::from_millis(self.setup.scenario.tick_ms),
            ttl: Duration::from_secs_f64(self.setup.scenario.ttl_s),
            switches: Switches::default(),
            limits: sluicegate_law::Limits::for_aggregator(),
        };
        Aggregator::new(config, now)
    }

    pub(super) fn controller(
        &self,
        net: &mut Net<'_, Message>,
        region: usize,
        now: Time,
    ) -> Controller {
        let config = sluicegate_controller_core::Config {
            node: name("controller", region),
            session: net.rng(self.setup.topology.controller(region)).bits(),
            region: name("region", region),
            tick: Duration::from_millis(self.setup.scenario.tick_ms),
            ttl: Duration::from_secs_f64(self.setup.scenario.ttl_s),
            grant_ttl: GRANT_TTL,
            switches: Switches::default(),
            law: self.law,
            limits: sluicegate_law::Limits::for_controller(),
        };
        Controller::new(config, now)
    }
}

/// As long as in the product, unless set otherwise.
const GRANT_TTL: Duration = Duration::from_secs(60);

/// Of a simulated client. A product's client has more, for hosts with many threads and keys.
const MAX_IDENTITIES: usize = 64;
const MAX_WAITING: usize = 64;
const MAX_VALUES: usize = 4096;
const MIN_VALUES: usize = 64;

fn name(kind: &str, number: usize) -> Name {
    Name::new(&format!("{kind}-{number}")).expect("a short name without blanks")
}

/// Why a node wakes, as the number that goes with the timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Timer {
    /// The core asked for it.
    Due,
    /// The next attempt to reach the tier above.
    Connect,
    /// The stream that was begun is there.
    Opened(u32),
    /// Whether the link is still cut.
    Probe,
    /// The tier above vanished without a word.
    ParentGone(u32),
    /// A child vanished without a word.
    ChildGone(NodeId, u32),
}

impl Timer {
    pub(super) fn code(self) -> u64 {
        let with = |kind: u64, number: u32| kind | u64::from(number) << 3;
        match self {
            Self::Due => 0,
            Self::Connect => 1,
            Self::Opened(number) => with(2, number),
            Self::Probe => 3,
            Self::ParentGone(number) => with(4, number),
            // Streams of one child are numbered from 1; far fewer than 2^29 are ever begun.
            Self::ChildGone(child, number) => {
                5 | u64::from(child.0) << 32 | u64::from(number & 0x1fff_ffff) << 3
            }
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "the parts of the word")]
    pub(super) fn from_code(code: u64) -> Self {
        let number = (code >> 3) as u32;
        match code & 7 {
            0 => Self::Due,
            1 => Self::Connect,
            2 => Self::Opened(number),
            3 => Self::Probe,
            4 => Self::ParentGone(number),
            _ => Self::ChildGone(NodeId((code >> 32) as u32), number & 0x1fff_ffff),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_is_its_code() {
        let all = [
            Timer::Due,
            Timer::Connect,
            Timer::Opened(9),
            Timer::Probe,
            Timer::ParentGone(77),
            Timer::ChildGone(NodeId(100_000), 3),
        ];
        for timer in all {
            assert_eq!(Timer::from_code(timer.code()), timer);
        }
    }
}
