//! Rates against loads whose true rate is known.

use proptest::prelude::*;

use super::*;

const LOOK: Duration = Duration::from_millis(10);
const TIMING: Timing = Timing { tick: Duration::from_millis(100), look: LOOK, switches: ALL_ON };
const ALL_ON: Switches = Switches {
    early: true,
    own_share: true,
    follow_up: true,
    adaptive_period: true,
    dispersion: true,
    on_admit: true,
    guard: true,
};

/// One key of one client, and what a receiver knows of it.
struct Client {
    rates: Rates,
    timing: Timing,
    now: Time,
    /// Every so many looks there is a tick.
    looks_a_tick: u64,
    looks: u64,
    heard: Statement,
    reports: Vec<(Time, Kind)>,
    /// Over time: what the receiver believes, times how long.
    offered: f64,
    usual: f64,
    random: u64,
}

impl Client {
    fn new(timing: Timing) -> Self {
        let now = Time::from_millis(50_000);
        Self {
            rates: Rates::new(now),
            timing,
            now,
            looks_a_tick: 10,
            looks: 0,
            heard: Statement { rates: Stated::default(), in_use: false },
            reports: Vec::new(),
            offered: 0.0,
            usual: 0.0,
            random: 9,
        }
    }

    fn look(&mut self, n: u64) {
        let passed = LOOK.as_secs_f64();
        self.offered += f64::from(self.heard.rates.offered_rps) * passed;
        self.usual += f64::from(self.heard.rates.usual_rps) * passed;
        self.now = self.now + LOOK;
        self.looks += 1;
        self.rates.see(self.now, n);
        self.rates.end_slot(LOOK);
        let due = self.rates.due(self.now, self.timing.switches, |_, _| true);
        let is_tick = self.looks.is_multiple_of(self.looks_a_tick);
        let kind = match due {
            None if is_tick && !self.rates.awaits_follow_up() => Some(Kind::Tick),
            due => due,
        };
        let Some(kind) = kind else { return };
        if let Some(said) = self.rates.state(self.now, kind, &self.timing) {
            self.heard = said;
            self.reports.push((self.now, kind));
        }
    }

    fn share_of_one(&mut self) -> f64 {
        self.random = crate::hash::mix(self.random);
        (self.random >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Random arrivals, in batches.
    fn arrivals(&mut self, rps: f64, batch: u64) -> u64 {
        let (end, mut product, mut n) =
            ((-rps / batch as f64 * LOOK.as_secs_f64()).exp(), self.share_of_one(), 0);
        while product > end {
            product *= self.share_of_one();
            n += batch;
        }
        n
    }

    fn offer(&mut self, rps: f64, batch: u64, seconds: u64) {
        for _ in 0..seconds * 100 {
            let n = self.arrivals(rps, batch);
            self.look(n);
        }
    }

    fn count(&self, kind: Kind) -> usize {
        self.reports.iter().filter(|(_, k)| *k == kind).count()
    }
}

/// However a report comes about, what a receiver believes is on average what is offered.
#[test]
fn what_is_stated_is_the_true_rate_on_average() {
    for (rps, batch) in [(0.3, 1), (2.0, 1), (20.0, 1), (150.0, 1), (3_000.0, 1), (100.0, 5)] {
        for slow in [1, 10] {
            let mut client = Client::new(TIMING);
            client.looks_a_tick = 10 * slow;
            let seconds = if rps < 10.0 { 20_000 } else { 1_000 };
            client.offer(rps, batch, seconds);
            let ratio = client.offered / seconds as f64 / rps;
            assert!((ratio - 1.0).abs() < 0.04, "{rps} in batches of {batch}, {slow}: {ratio}");
            let usual = client.usual / seconds as f64 / rps;
            let most = if rps < 10.0 || batch > 1 { 1.4 } else { 1.25 };
            assert!((0.75..most).contains(&usual), "{rps} in batches of {batch}, {slow}: {usual}");
        }
    }
}

#[test]
fn a_jump_is_reported_at_the_next_looks_and_put_right_soon_after() {
    let mut client = Client::new(TIMING);
    client.offer(50.0, 1, 10);
    let (before, jumped_at) = (client.reports.len(), client.now);
    client.offer(1_000.0, 1, 1);
    let reports = &client.reports[before..];
    let first = reports[0];
    assert_eq!(first.1, Kind::Early);
    assert!(first.0.since(jumped_at) <= Duration::from_millis(20), "{reports:?}");
    let follow_up = reports.iter().find(|(_, kind)| *kind == Kind::FollowUp);
    let after = follow_up.expect("a follow-up").0.since(jumped_at);
    assert!(after <= Duration::from_millis(80), "{reports:?}");
    let rate = client.heard.rates.offered_rps;
    assert!((rate - 1_000.0).abs() < 350.0, "{rate}");
}

#[test]
fn an_early_report_lends_its_rate_and_never_lowers_it() {
    let mut client = Client::new(TIMING);
    (0..100).for_each(|_| client.look(1));
    assert!((client.heard.rates.offered_rps - 100.0).abs() < 1e-3);
    client.look(12);
    assert_eq!(client.reports.last().map(|r| r.1), Some(Kind::Early));
    // 12 in 10 ms, and 25 ms of 100 a second: 14.5 in 35 ms.
    let lent = client.heard.rates.offered_rps;
    assert!((lent - 414.28).abs() < 0.1, "{lent}");
    (0..3).for_each(|_| client.look(2));
    assert_eq!(client.reports.last().map(|r| r.1), Some(Kind::FollowUp));
    assert!((client.heard.rates.offered_rps - 200.0).abs() < 1e-3, "its window began anew");
}

#[test]
fn without_a_follow_up_the_window_stays_open() {
    let switches = Switches { follow_up: false, ..ALL_ON };
    let mut client = Client::new(Timing { switches, ..TIMING });
    (0..100).for_each(|_| client.look(1));
    let before = client.count(Kind::Early);
    client.look(12);
    (0..9).for_each(|_| client.look(1));
    assert_eq!((client.count(Kind::Early) - before, client.count(Kind::FollowUp)), (1, 0));
    assert!((client.heard.rates.offered_rps - 210.0).abs() < 1e-3, "21 in 100 ms");
    let switches = Switches { early: false, ..ALL_ON };
    let mut client = Client::new(Timing { switches, ..TIMING });
    (0..100).for_each(|i| client.look(i));
    assert_eq!(client.count(Kind::Tick), client.reports.len());
}

#[test]
fn chance_makes_next_to_no_early_reports() {
    for (rps, batch, most_a_minute) in [(3.0, 1, 1), (100.0, 1, 5), (2_000.0, 1, 1), (100.0, 5, 40)]
    {
        let mut client = Client::new(TIMING);
        client.offer(rps, batch, 600);
        let early = client.count(Kind::Early);
        assert!(early <= 10 * most_a_minute, "{early} early at {rps} in batches of {batch}");
    }
}

#[test]
fn batches_are_seen_as_dispersion() {
    let dispersion = |batch, switches| {
        let mut client = Client::new(Timing { switches, ..TIMING });
        client.offer(200.0, batch, 60);
        client.rates.dispersion()
    };
    assert!((1.0..1.3).contains(&dispersion(1, ALL_ON)));
    assert!((3.5..6.5).contains(&dispersion(5, ALL_ON)));
    let off = Switches { dispersion: false, ..ALL_ON };
    assert!((dispersion(5, off) - 1.0).abs() < 1e-9);
    assert!(
        (Client::new(TIMING).rates.dispersion() - 1.5).abs() < 1e-9,
        "before anything is known"
    );
}

#[test]
fn two_idle_reports_are_made_and_then_only_what_changes() {
    let mut client = Client::new(TIMING);
    (0..1_000).for_each(|_| client.look(1));
    let (told, stopped_at) = (client.reports.len(), client.now);
    let mut heard = Vec::new();
    for _ in 0..2_000 {
        let before = client.heard;
        client.look(0);
        if client.heard != before {
            heard.push((client.now.since(stopped_at).as_millis(), client.heard));
        }
    }
    let said: Vec<_> = heard.iter().map(|(ms, s)| (*ms, s.rates.offered_rps, s.in_use)).collect();
    // The usual rate fades in the second, is gone 2 s after the last request, the use after 10 s.
    assert_eq!(
        said,
        [(100, 0.0, true), (200, 0.0, true), (2_000, 0.0, true), (10_000, 0.0, false)]
    );
    assert!(heard[1].1.rates.usual_rps > 80.0 && heard[2].1.rates.usual_rps == 0.0);
    assert!(client.rates.is_quiet() && client.rates.is_gone());
    assert!(client.reports.len() > told);
}

/// The time that nothing was said of had no requests: it is no part of the next window.
#[test]
fn a_window_does_not_reach_into_a_silence() {
    let mut client = Client::new(TIMING);
    (0..1_000).for_each(|_| client.look(1));
    (0..555).for_each(|_| client.look(0));
    for _ in 0..25 {
        client.look(1);
    }
    let rate = client.heard.rates.offered_rps;
    assert!((rate - 100.0).abs() < 1.0, "{rate}");
    assert!(!client.rates.is_gone() && !client.rates.is_quiet());
}

#[test]
fn a_key_that_was_never_used_says_nothing() {
    let mut client = Client::new(TIMING);
    (0..2_000).for_each(|_| client.look(0));
    assert!(client.rates.is_gone());
    assert_eq!(client.heard, Statement { rates: Stated::default(), in_use: false });
}

#[test]
fn a_key_that_stands_is_said_to_be_used_without_a_request() {
    let mut client = Client::new(TIMING);
    client.rates.stand();
    (0..20_000).for_each(|_| client.look(0));
    assert_eq!(client.heard, Statement { rates: Stated::default(), in_use: true });
    assert!(client.rates.is_quiet() && !client.rates.is_gone());
}

proptest! {
    /// Every request is in one window: but for what early reports lend, nothing is counted twice
    /// or left out. Rates are finite, and an early report comes with enough requests.
    #[test]
    fn windows_cover_all_requests(looks in proptest::collection::vec(0_u64..60, 1..600)) {
        let switches = Switches { early: false, ..ALL_ON };
        let mut client = Client::new(Timing { switches, ..TIMING });
        let mut early = Client::new(TIMING);
        let (mut sum, mut since) = (0.0, client.now);
        let mut all = 0;
        for n in looks {
            let reports = client.reports.len();
            client.look(n);
            early.look(n);
            all += n;
            if client.reports.len() > reports {
                // Looks are exact here, so each tick closes its window.
                let span = client.now.since(since).as_secs_f64();
                sum += f64::from(client.heard.rates.offered_rps) * span;
                since = client.now;
            }
            prop_assert!(early.heard.rates.offered_rps.is_finite());
            prop_assert!(early.rates.dispersion() >= 1.0);
        }
        let counted = all - client.rates.in_window;
        prop_assert!((sum - counted as f64).abs() <= 0.5 + counted as f64 * 1e-4);
        for pair in early.reports.windows(2) {
            prop_assert!(pair[1].0 > pair[0].0);
        }
    }
}
