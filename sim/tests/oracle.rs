//! Each promise broken on purpose, between the cores and the world: the oracle says which.

use std::sync::Arc;

use sluicegate_model::{AdmitRatio, Down, Invariant, ServiceBuckets, Up};
use sluicegate_sim::oracle::{Oracle, Report, Tampered};
use sluicegate_sim::scenario::{
    Bucket, Fault, FaultKind, Mode, Scenario, Service, Shape, Tier, Workload,
};
use sluicegate_sim::{Ask, BucketId, Fate, Law, NodeId, Observer, Verdict, prepare, run_observed};

const S: u64 = 1_000_000_000;

/// Two buckets, one of them in shadow, a load of twice the limit, and an end of it.
fn world() -> Scenario {
    let bucket = |name: &str, mode, limit| Bucket {
        bucket: name.into(),
        mode,
        limit_rps: Some(limit),
        ..Bucket::default()
    };
    Scenario {
        clients: 6,
        zones: 2,
        tick_ms: 200,
        ttl_s: 3.0,
        ramp_s: 1.0,
        duration_s: 16.0,
        warmup_s: 0.0,
        services: vec![Service {
            service: "api".into(),
            buckets: vec![bucket("hard", Mode::Deny, 200), bucket("soft", Mode::Shadow, 1_000_000)],
            ..Service::default()
        }],
        workload: Workload {
            shape: Shape::Constant,
            load_rps: Some(400.0),
            zipf: 0.0,
            ..Workload::default()
        },
        faults: vec![Fault {
            at_s: 11.0,
            fault: FaultKind::Load,
            tier: Tier::Client,
            load_x: 0.0,
            ..Fault::default()
        }],
        ..Scenario::default()
    }
}

fn watch(scenario: &Scenario, tamper: impl Observer) -> Report {
    let oracle = Oracle::new(&prepare(scenario, 3).expect("a sound world"));
    let mut tampered = Tampered { oracle, tamper };
    run_observed(scenario, Law::Ratio, 3, &mut |_| {}, &mut tampered).expect("runs");
    tampered.oracle.finish()
}

/// The oracle finds this promise broken first. (What is counted may be wrong after that as well: the
/// cores know nothing of a decision that was changed behind them.)
fn breaks_first(invariant: Invariant, scenario: &Scenario, tamper: impl Observer) {
    let report = watch(scenario, tamper);
    let first = report.violations.first().expect("it was broken, and nothing was found");
    assert_eq!(first.invariant, invariant, "{first}");
}

/// The oracle finds this promise broken, and no other.
fn breaks(invariant: Invariant, scenario: &Scenario, tamper: impl Observer) {
    let report = watch(scenario, tamper);
    assert!(report.violations_total > 0, "{invariant} was broken, and nothing was found");
    for violation in &report.violations {
        assert_eq!(violation.invariant, invariant, "{violation}");
    }
}

struct Nothing;
impl Observer for Nothing {}

/// Alters decisions, messages up and messages down.
struct Alter<D, U, W>(D, U, W);

impl<D, U, W> Observer for Alter<D, U, W>
where
    D: FnMut(u64, &Ask, Verdict) -> Verdict,
    U: FnMut(u64, NodeId, &mut Up) -> Fate,
    W: FnMut(u64, NodeId, &mut Down) -> Fate,
{
    fn decided(&mut self, at: u64, ask: &Ask, verdict: Verdict) -> Verdict {
        self.0(at, ask, verdict)
    }
    fn up(&mut self, at: u64, from: NodeId, message: &mut Up) -> Fate {
        self.1(at, from, message)
    }
    fn down(&mut self, at: u64, to: NodeId, message: &mut Down) -> Fate {
        self.2(at, to, message)
    }
}

fn decisions(f: impl FnMut(u64, &Ask, Verdict) -> Verdict) -> impl Observer {
    Alter(f, |_, _, _: &mut Up| Fate::Send, |_, _, _: &mut Down| Fate::Send)
}

fn ups(f: impl FnMut(u64, NodeId, &mut Up) -> Fate) -> impl Observer {
    Alter(|_, _: &Ask, v| v, f, |_, _, _: &mut Down| Fate::Send)
}

fn downs(f: impl FnMut(u64, NodeId, &mut Down) -> Fate) -> impl Observer {
    Alter(|_, _: &Ask, v| v, |_, _, _: &mut Up| Fate::Send, f)
}

#[test]
fn a_world_that_nobody_tampers_with_breaks_nothing() {
    let report = watch(&world(), Nothing);
    assert_eq!(report.violations, []);
    assert!(report.decisions > 4000 && report.checks > 10_000, "{report:?}");
    assert_eq!((report.keys_settled, report.clients_reconciled), (2, 6));
    assert_eq!(report.counted_twice, 0);
}

#[test]
fn i1_a_decision_that_does_not_come_at_once() {
    breaks(
        Invariant::I1,
        &world(),
        decisions(|at, ask, v| {
            let late = at > 5 * S && ask.client == 2 && v == Verdict::Admit;
            if late { Verdict::Later } else { v }
        }),
    );
}

#[test]
fn i2_a_drop_without_a_directive() {
    let mut scenario = world();
    scenario.workload.load_rps = Some(50.0);
    let mut left = 1;
    breaks_first(
        Invariant::I2,
        &scenario,
        decisions(|at, _, v| {
            if at > 5 * S && left > 0 {
                left -= 1;
                return Verdict::Drop(BucketId(0));
            }
            v
        }),
    );
}

#[test]
fn i3_counts_that_cannot_be_true_of_each_other() {
    let mut done = false;
    breaks_first(
        Invariant::I3,
        &world(),
        ups(|at, from, up| {
            if let (Up::Report(report), false, true) = (up, done, at > 5 * S && from.0 < 6)
                && let Some(entry) = report.entries.first_mut()
            {
                entry.counts.offered = entry.counts.matched + 1;
                done = true;
            }
            Fate::Send
        }),
    );
}

#[test]
fn i4_a_report_that_is_doubled_under_a_new_number() {
    breaks(
        Invariant::I4,
        &world(),
        ups(|at, from, up| {
            if let (Up::Report(report), true) = (up, at > 5 * S && from.0 == 1) {
                report.seq += 1000;
                for entry in &mut report.entries {
                    entry.counts.matched *= 2;
                    entry.counts.offered *= 2;
                    entry.counts.admitted *= 2;
                }
            }
            Fate::Send
        }),
    );
}

#[test]
fn i4_an_acknowledgement_of_what_never_arrived() {
    breaks(
        Invariant::I4,
        &world(),
        Alter(
            |_, _: &Ask, v| v,
            |at, from: NodeId, up: &mut Up| {
                let lost = at > 9 * S && from.0 == 1 && matches!(up, Up::Report(_));
                if lost { Fate::Lose } else { Fate::Send }
            },
            |at, to: NodeId, down: &mut Down| {
                if let (Down::Update(update), true) = (down, at > 9 * S && to.0 == 1) {
                    update.ack_seq += 10;
                }
                Fate::Send
            },
        ),
    );
}

#[test]
fn i5_a_term_that_goes_back() {
    breaks(
        Invariant::I5,
        &world(),
        downs(|at, to, down| {
            if let (Down::Update(update), true) = (down, at > 5 * S && to.0 == 1) {
                update.directives.iter_mut().for_each(|d| d.1.term = 0);
            }
            Fate::Send
        }),
    );
}

#[test]
fn i6_a_shadow_bucket_that_drops() {
    let mut left = 5;
    breaks_first(
        Invariant::I6,
        &world(),
        decisions(|at, _, v| {
            if at > 5 * S && left > 0 {
                left -= 1;
                return Verdict::Drop(BucketId(1));
            }
            v
        }),
    );
}

#[test]
fn i7_a_limit_that_is_not_kept() {
    breaks(
        Invariant::I7,
        &world(),
        downs(|_, _, down| {
            if let Down::Update(update) = down {
                for (_, directive) in &mut update.directives {
                    let share = directive.admit.share();
                    if directive.admit != AdmitRatio::ALL {
                        directive.admit = AdmitRatio::from_share(share * 1.4);
                    }
                }
            }
            Fate::Send
        }),
    );
}

#[test]
fn i8_half_a_service() {
    breaks_first(
        Invariant::I8,
        &world(),
        downs(|_, to, down| {
            if let (Down::Configuration(c), 2) = (down, to.0) {
                for service in &mut c.services {
                    let half = ServiceBuckets {
                        buckets: service.buckets[..1].to_vec(),
                        ..(**service).clone()
                    };
                    *service = Arc::new(half);
                }
            }
            Fate::Send
        }),
    );
}

#[test]
fn i9_a_report_that_grows() {
    breaks(
        Invariant::I9,
        &world(),
        ups(|at, from, up| {
            if let (Up::Report(report), true) = (up, at > 5 * S && from.0 == 1) {
                let again = report.entries.clone();
                report.entries.extend(again);
            }
            Fate::Send
        }),
    );
}
