//! The ledger against a receiver that keeps books as an aggregator does, over a transport that
//! loses, repeats and reorders.

use std::collections::BTreeMap;

use proptest::prelude::*;

use sluicegate_model::Name;

use super::services::no_counts;
use super::*;

fn name(n: u32) -> KeyName {
    let service = Name::new("s").expect("a name");
    let bucket = Name::new(&format!("b{n}")).expect("a name");
    KeyName { service, bucket, values: KeyValues::Whole }
}

fn counts(matched: u64) -> Counts {
    Counts { matched, offered: matched, admitted: matched, would_drop: 0 }
}

fn service(attempts: u64) -> ServiceCounts {
    ServiceCounts { attempts, admitted: attempts, ..no_counts(&Name::new("s").expect("a name")) }
}

fn acked_of(ledger: &Ledger, line: &Line) -> Counts {
    ledger.acked.get(line.acked_at as usize).copied().unwrap_or(line.counts)
}

/// Takes reports in: what is cumulative on a stream becomes totals.
#[derive(Default)]
struct Receiver {
    last_seq: u64,
    keys: BTreeMap<KeyId, (KeyName, Counts)>,
    services: BTreeMap<Name, u64>,
    totals: BTreeMap<KeyName, u64>,
    attempts: u64,
    gauges: BTreeMap<KeyId, f64>,
}

impl Receiver {
    fn take(&mut self, report: &Report) {
        if report.seq <= self.last_seq {
            return;
        }
        self.last_seq = report.seq;
        for (id, name) in &report.new_keys {
            let known = self.keys.entry(*id).or_insert((name.clone(), Counts::default()));
            assert_eq!(known.0, *name, "an id is not reused before it is retired");
        }
        for entry in &report.entries {
            let (name, last) = self.keys.get_mut(&entry.key).expect("an id is named before use");
            assert!(entry.counts.covers(last), "counts go back");
            assert!(entry.counts.is_consistent());
            *self.totals.entry(name.clone()).or_default() += entry.counts.since(last).matched;
            *last = entry.counts;
            self.gauges.insert(entry.key, entry.offered_rps);
        }
        for id in &report.retired_keys {
            self.keys.remove(id);
            self.gauges.remove(id);
        }
        for line in &report.services {
            let last = self.services.entry(line.service.clone()).or_default();
            assert!(line.attempts >= *last, "attempts go back");
            self.attempts += line.attempts - *last;
            *last = line.attempts;
        }
    }

    fn close(&mut self) {
        (self.last_seq, self.keys, self.services) = Default::default();
        self.gauges.clear();
    }
}

struct World {
    ledger: Ledger,
    receiver: Receiver,
    /// Per place: its name and line.
    open: Vec<Option<(u32, LineId)>>,
    names: u32,
    truth: BTreeMap<KeyName, u64>,
    /// What the receiver had taken in without an acknowledgement, at each break.
    doubled: BTreeMap<KeyName, u64>,
    attempts: u64,
    attempts_doubled: u64,
    delayed: Vec<Report>,
    held_ack: u64,
}

impl World {
    fn new(places: usize) -> Self {
        let mut ledger = Ledger::new(Duration::from_secs(1));
        ledger.start_stream();
        Self {
            ledger,
            receiver: Receiver::default(),
            open: vec![None; places],
            names: 0,
            truth: BTreeMap::new(),
            doubled: BTreeMap::new(),
            attempts: 0,
            attempts_doubled: 0,
            delayed: Vec::new(),
            held_ack: 0,
        }
    }

    fn count(&mut self, place: usize, n: u64) {
        let at = u32::try_from(place).expect("small");
        let (number, line) = *self.open[place].get_or_insert_with(|| {
            self.names += 1;
            (self.names, self.ledger.open(KeyHandle(at)))
        });
        self.ledger.count(line, &counts(n));
        self.ledger.gauge(line, Stated::new(1.0, 2.0), self.names > 0);
        *self.truth.entry(name(number)).or_default() += n;
        self.attempts += n;
        assert_eq!(self.ledger.count_services([service(self.attempts)].into_iter()), 0);
    }

    fn close(&mut self, place: usize) {
        if let Some((number, line)) = self.open[place].take() {
            assert!(self.ledger.close(line, Some(name(number))));
        }
    }

    fn report(&mut self) -> Option<Report> {
        let open = &self.open;
        self.ledger.report(|key| open[key.index()].map(|(number, _)| name(number)))
    }

    fn ack(&mut self) {
        let seq = self.receiver.last_seq;
        assert_ne!(self.ledger.acknowledge(seq), Acknowledged::Unknown);
    }

    fn cut(&mut self) {
        for (id, line) in self.ledger.lines.iter().enumerate() {
            let Some((name, taken)) = self.receiver.keys.get(&line.id) else { continue };
            if line.life != Life::Vacant && self.ledger.ids[line.id as usize] == index(id) {
                let more = taken.since(&acked_of(&self.ledger, line)).matched;
                *self.doubled.entry(name.clone()).or_default() += more;
            }
        }
        for line in &self.ledger.services.lines {
            let taken = self.receiver.services.get(&line.counts.service).copied();
            self.attempts_doubled += taken.unwrap_or(0).saturating_sub(line.acked.attempts);
        }
        self.receiver.close();
        self.delayed.clear();
        self.held_ack = 0;
        self.ledger.start_stream();
    }

    /// Nothing goes wrong any more, until there is nothing left to say.
    fn heal(&mut self) {
        for _ in 0..400 {
            if let Some(report) = self.report() {
                self.receiver.take(&report);
            }
            self.ack();
        }
        assert!(!self.ledger.has_news() && !self.ledger.awaits());
        assert!(self.report().is_none());
        assert_eq!(self.ledger.acked.len(), self.ledger.acked_free.len(), "all is acknowledged");
        let stating = self.ledger.lines.iter().filter(|l| l.gauge_at != NO_RATES).count();
        assert_eq!(self.ledger.gauges.in_use(), stating, "no gauge is lost");
    }
}

#[derive(Debug, Clone)]
enum Step {
    Count(usize, u64),
    Close(usize),
    Deliver,
    DeliverTwice,
    Lose,
    Delay,
    Late,
    Ack,
    HoldAck,
    LateAck,
    Cut,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..6_usize, 1..100_u64).prop_map(|(place, n)| Step::Count(place, n)),
        2 => (0..6_usize).prop_map(Step::Close),
        4 => Just(Step::Deliver),
        1 => Just(Step::DeliverTwice),
        2 => Just(Step::Lose),
        2 => Just(Step::Delay),
        2 => Just(Step::Late),
        5 => Just(Step::Ack),
        1 => Just(Step::HoldAck),
        1 => Just(Step::LateAck),
        1 => Just(Step::Cut),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_count_is_lost_and_only_what_a_break_hid_is_doubled(
        steps in proptest::collection::vec(step(), 1..200),
        capacity in 2_usize..8,
    ) {
        let mut world = World::new(6);
        world.ledger.max_entries = capacity;
        for step in steps {
            match step {
                Step::Count(place, n) => world.count(place, n),
                Step::Close(place) => world.close(place),
                Step::Deliver | Step::DeliverTwice | Step::Lose | Step::Delay => {
                    let Some(report) = world.report() else { continue };
                    prop_assert!(report.entries.len() + report.retired_keys.len() <= capacity);
                    match step {
                        Step::Delay => world.delayed.push(report),
                        Step::Lose => {}
                        _ => {
                            world.receiver.take(&report);
                            if matches!(step, Step::DeliverTwice) {
                                world.receiver.take(&report);
                            }
                        }
                    }
                }
                Step::Late => {
                    if let Some(report) = world.delayed.pop() {
                        world.receiver.take(&report);
                    }
                }
                Step::Ack => world.ack(),
                Step::HoldAck => world.held_ack = world.receiver.last_seq,
                Step::LateAck => {
                    let held = world.held_ack;
                    prop_assert_ne!(world.ledger.acknowledge(held), Acknowledged::Unknown);
                }
                Step::Cut => world.cut(),
            }
        }
        world.heal();
        for (key, true_count) in &world.truth {
            let taken = world.receiver.totals.get(key).copied().unwrap_or(0);
            let doubled = world.doubled.get(key).copied().unwrap_or(0);
            prop_assert_eq!(taken, true_count + doubled, "{}", key);
        }
        prop_assert_eq!(world.receiver.attempts, world.attempts + world.attempts_doubled);
        let live = world.open.iter().flatten().count();
        prop_assert!(world.receiver.keys.len() <= live, "retired ids are given back");
    }
}

#[test]
fn a_break_doubles_at_most_one_interval() {
    let mut world = World::new(1);
    for _ in 0..5 {
        world.count(0, 10);
        let report = world.report().expect("news");
        world.receiver.take(&report);
        world.ack();
    }
    world.count(0, 7);
    let report = world.report().expect("news");
    world.receiver.take(&report);
    world.cut();
    world.heal();
    assert_eq!(world.receiver.totals[&name(1)], 50 + 7 + 7);
}

#[test]
fn what_is_said_and_acknowledged_is_not_said_again() {
    let mut world = World::new(2);
    world.count(0, 5);
    assert_eq!(world.report().map(|r| (r.entries.len(), r.new_keys.len())), Some((1, 1)));
    assert!(!world.ledger.has_news());
    // Not acknowledged: another report repeats it, name and all.
    world.count(1, 5);
    let second = world.report().expect("news");
    assert_eq!((second.entries.len(), second.new_keys.len()), (2, 2));
    assert_eq!(world.ledger.acknowledge(2), Acknowledged::Taken);
    world.count(1, 5);
    let third = world.report().expect("news");
    assert_eq!((third.entries.len(), third.new_keys.len()), (1, 0));
    assert_eq!(world.ledger.acknowledge(3), Acknowledged::Taken);
    assert_eq!(world.report(), None);
    assert_eq!(world.ledger.acknowledge(9), Acknowledged::Unknown);
    assert_eq!(world.ledger.acknowledge(1), Acknowledged::Old);
}

#[test]
fn memory_of_what_was_sent_is_bounded_and_the_newest_stands_for_the_rest() {
    let mut world = World::new(1);
    for _ in 0..MAX_REPORTS_UNACKNOWLEDGED + 50 {
        world.count(0, 1);
        let report = world.report().expect("news");
        world.receiver.take(&report);
    }
    assert_eq!(world.ledger.sent.len(), MAX_REPORTS_UNACKNOWLEDGED);
    world.ack();
    assert!(world.ledger.sent.is_empty());
    assert_eq!(world.ledger.lines[0].acked_at, ALL_ACKED);
}

#[test]
fn keys_that_leave_are_bounded_while_nobody_acknowledges() {
    let mut ledger = Ledger::new(Duration::from_secs(1));
    ledger.start_stream();
    for n in 0..index(MAX_LEAVING_KEYS + 5) {
        let line = ledger.open(KeyHandle(n));
        ledger.count(line, &counts(1));
        ledger.due(line);
        assert_eq!(ledger.can_close(), (n as usize) < MAX_LEAVING_KEYS);
        assert_eq!(ledger.close(line, Some(name(n))), (n as usize) < MAX_LEAVING_KEYS);
    }
    assert_eq!(ledger.leaving.len(), MAX_LEAVING_KEYS);
    assert!(ledger.lines.len() <= MAX_LEAVING_KEYS + 1, "lines are used again");
    let mut said = 0;
    let mut receiver = Receiver::default();
    while let Some(report) = ledger.report(|_| unreachable!("no key is live")) {
        said += report.entries.len();
        receiver.take(&report);
        ledger.acknowledge(report.seq);
    }
    assert_eq!(said, MAX_LEAVING_KEYS);
    assert!(receiver.keys.is_empty() && ledger.leaving.is_empty());
}

#[test]
fn a_directive_finds_the_key_behind_an_id_of_this_stream_only() {
    let mut world = World::new(2);
    world.count(1, 1);
    let report = world.report().expect("news");
    let id = report.entries[0].key;
    assert_eq!(world.ledger.key_of(id), Some(KeyHandle(1)));
    assert_eq!(world.ledger.key_of(id + 1), None);
    world.ledger.start_stream();
    assert_eq!(world.ledger.key_of(id), None);
}

#[test]
fn a_service_that_comes_back_goes_on_counting_on_its_stream() {
    let mut ledger = Ledger::new(Duration::from_secs(1));
    ledger.start_stream();
    let said = |ledger: &mut Ledger| {
        let report = ledger.report(|_| unreachable!("no key")).expect("news");
        ledger.acknowledge(report.seq);
        report.services[0].attempts
    };
    ledger.count_services([service(5)].into_iter());
    assert_eq!(said(&mut ledger), 5);
    ledger.count_services(std::iter::empty());
    // The table counts from 0 again.
    ledger.count_services([service(2)].into_iter());
    assert_eq!(said(&mut ledger), 7);
    ledger.count_services(std::iter::empty());
    ledger.start_stream();
    assert!(ledger.services.lines.is_empty(), "nothing is left to say of it");
}

#[test]
fn a_late_acknowledgement_of_a_forgotten_key_is_not_one_of_the_next_on_its_line() {
    let mut ledger = Ledger::new(Duration::from_secs(1));
    ledger.start_stream();
    let line = ledger.open(KeyHandle(0));
    ledger.count(line, &counts(9));
    ledger.due(line);
    let sent = ledger.report(|_| Some(name(0))).expect("news");
    assert!(!ledger.close(line, None), "nothing to name it by");
    let next = ledger.open(KeyHandle(1));
    assert_eq!(next, line);
    ledger.count(next, &counts(2));
    ledger.due(next);
    ledger.acknowledge(sent.seq);
    assert_eq!(acked_of(&ledger, &ledger.lines[0]), Counts::default());
    let report = ledger.report(|_| Some(name(1))).expect("news");
    assert_eq!(report.entries[0].counts, counts(2));
    assert_ne!(report.entries[0].key, sent.entries[0].key, "an id that was not retired");
    assert_eq!(report.new_keys, [(report.entries[0].key, name(1))]);
}

#[test]
fn a_line_is_a_cache_line() {
    assert!(size_of::<Line>() <= 64, "{}", size_of::<Line>());
}
