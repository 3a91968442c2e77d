//! Reports on their way in. Each costs what changed in it.

use std::time::Duration;

use sluicegate_model::{Counts, Entry, Flight, Invariant, Law, Report, ServiceCounts, Time};

use super::catalog::Totals;
use super::children::{Gauge, Held, Silence};
use super::keys::Hot;
use super::{Node, Settings, Tier};
use crate::{Counters, Limits, Refusal};

/// How long an acknowledgement may wait for directives to go with.
const ACK_WITHIN: Duration = Duration::from_millis(20);
/// To a client under `grant`: a little longer than the second within which it is told something anyway.
const ACK_TO_CLIENT_WITHIN: Duration = Duration::from_millis(1150);

/// What an entry did to its key.
enum Taken {
    Absorbed,
    Counted { key: u32, turned: Option<bool> },
}

impl Node {
    pub(super) fn take_report(&mut self, slot: u32, report: &Report) -> Result<(), Refusal> {
        self.check_size(report)?;
        self.note_heard(slot);
        let Some(session) = self.children.get_mut(slot) else { return Ok(()) };
        if report.seq <= session.seq {
            self.counters.reports_repeated += 1;
            self.owe_ack(slot);
            return Ok(());
        }
        if report.interval.is_zero() {
            self.counters.reports_without_interval += 1;
            return Ok(());
        }
        session.seq = report.seq;
        session.interval = report.interval.clamp(self.tick, Settings::TICK_MAX);
        session.silence = Silence::No;
        self.counters.reports += 1;
        self.counters.entries += report.entries.len() as u64;
        for (id, name) in &report.new_keys {
            self.name_key(slot, *id, name);
        }
        self.take_entries(slot, &report.entries);
        for counts in &report.services {
            self.take_service(slot, counts);
        }
        for id in &report.retired_keys {
            let known = self.unname_key(slot, *id);
            self.counters.retired_unknown += u64::from(!known);
        }
        self.owe_ack(slot);
        Ok(())
    }

    fn owe_ack(&mut self, slot: u32) {
        let is_patient = self.tier == Tier::Aggregator && self.law == Law::Grant;
        let within = if is_patient { ACK_TO_CLIENT_WITHIN } else { ACK_WITHIN };
        self.children.owe_ack(slot, self.now + within);
    }

    fn check_size(&self, report: &Report) -> Result<(), Refusal> {
        let max = self.limits.max_report_entries;
        let parts = [
            ("entries", report.entries.len()),
            ("new keys", report.new_keys.len()),
            ("retired keys", report.retired_keys.len()),
            ("services", report.services.len()),
        ];
        match parts.into_iter().find(|(_, found)| *found > max) {
            Some((part, found)) => Err(Refusal::ReportTooLarge { part, found, max }),
            None => Ok(()),
        }
    }

    fn take_entries(&mut self, slot: u32, entries: &[Entry]) {
        let mut turned = Vec::new();
        let Some(session) = self.children.get_mut(slot) else { return };
        for entry in entries {
            let Some(held) = session.held_mut(entry.key) else {
                self.counters.entries_unknown_key += 1;
                continue;
            };
            let hot = self.keys.hot_mut(held.key);
            let charged = hot.counts.charged();
            let taken = take_entry(held, hot, entry, self.now, &self.limits, &mut self.counters);
            let Taken::Counted { key, turned: turn } = taken else { continue };
            self.keys.activate(key);
            if let Some(passing) = session.passing_mut(entry.key) {
                passing.flight = flight(entry, &self.limits);
            }
            if let Some((hot, granting)) = self.keys.granting_of(key) {
                if !granting.silent.is_empty() {
                    let flown = flight(entry, &self.limits).requests;
                    let admitted = hot.counts.charged().saturating_sub(charged);
                    granting.end_silence(&session.zone, self.now, requests(admitted) + flown);
                }
                if self.switches.events {
                    self.due.touch(key, hot, granting, self.now);
                }
            }
            if let Some(in_use) = turn {
                turned.push((entry.key, in_use));
            }
        }
        for (id, in_use) in turned {
            self.set_in_use(slot, id, in_use);
        }
    }

    fn take_service(&mut self, slot: u32, counts: &ServiceCounts) {
        let totals = Totals::from(counts);
        let Some(at) = self.catalog.intern_service(&counts.service) else {
            self.counters.services_refused += 1;
            return;
        };
        let max = self.limits.max_services_wanted;
        let Some(session) = self.children.get_mut(slot) else { return };
        let before = session.services.get(&counts.service).copied();
        if before.is_none() && session.services.len() >= max {
            self.counters.services_refused += 1;
            return;
        }
        let before = before.unwrap_or_default();
        if !totals.covers(&before) {
            self.counters.services_went_back += 1;
            return;
        }
        session.services.insert(counts.service.clone(), totals);
        if let Some(service) = self.catalog.service_mut(at) {
            service.totals.add(&totals.since(&before));
        }
    }
}

/// Adds what an entry brings to the sums of its key.
fn take_entry(
    held: &mut Held,
    hot: &mut Hot,
    entry: &Entry,
    now: Time,
    limits: &Limits,
    counters: &mut Counters,
) -> Taken {
    if !entry.counts.is_consistent() {
        counters.entries_inconsistent += 1;
        counters.broke(Invariant::I3);
        return Taken::Absorbed;
    }
    let seen = held.seen;
    if !entry.counts.covers(&seen) {
        counters.entries_went_back += 1;
        return Taken::Absorbed;
    }
    let delta = entry.counts.since(&seen);
    held.seen = entry.counts;
    hot.counts.add(&delta);
    debug_assert!(hot.counts.is_consistent(), "{} is broken by sums: {hot:?}", Invariant::I3);

    let was_in_use = held.is_in_use();
    let gauge = gauge(entry, limits, counters).unwrap_or(held.gauge());
    held.set_gauge(hot, gauge, now);
    let is_in_use = held.is_in_use();
    if delta == Counts::default() && !was_in_use && !is_in_use {
        return Taken::Absorbed;
    }
    let turned = (was_in_use != is_in_use).then_some(is_in_use);
    Taken::Counted { key: held.key, turned }
}

/// The rates and the sessions that an entry may claim; `None` if a rate is none.
fn gauge(entry: &Entry, limits: &Limits, counters: &mut Counters) -> Option<Gauge> {
    let is_rate = |rps: f64| !rps.is_nan() && rps >= 0.0;
    if !is_rate(entry.offered_rps) || !is_rate(entry.usual_rps) {
        counters.entries_bad_rate += 1;
        return None;
    }
    let rate = entry.offered_rps.min(limits.max_session_rps);
    let sessions = entry.sessions.min(limits.max_session_sessions);
    if rate < entry.offered_rps || sessions < entry.sessions {
        counters.entries_clamped += 1;
    }
    let usual = entry.usual_rps.min(limits.max_session_rps);
    #[expect(clippy::cast_possible_truncation, reason = "seven digits are enough for a rate")]
    Some(Gauge { rate_rps: rate as f32, usual_rps: usual as f32, sessions })
}

#[expect(clippy::cast_precision_loss, reason = "what one report adds")]
fn requests(count: u64) -> f64 {
    count as f64
}

/// What an entry may claim to be on its way.
fn flight(entry: &Entry, limits: &Limits) -> Flight {
    let bounded = |n: f64| if n.is_nan() { 0.0 } else { n.clamp(0.0, limits.max_session_rps) };
    Flight { requests: bounded(entry.flight.requests), rps: bounded(entry.flight.rps) }
}
