//! Who gets what: children, values, classes, and those who fell silent.

use proptest::prelude::*;
use sluicegate_model::{Classes, Flight, Sharing};

use super::super::sharing::{Member, share_out};
use super::super::split::{Child, Split};
use super::super::{Allowance, Silent};
use super::{at, close};

const ALL: Allowance = Allowance { rps: 1000.0, correction: 1.0 };

fn child(demand_rps: f64, usual_rps: f64) -> Child {
    Child { demand_rps, usual_rps }
}

fn parts(allowance: Allowance, children: &[Child]) -> Vec<f64> {
    let demand: f64 = children.iter().map(|c| c.demand_rps).sum();
    let split = Split::new(allowance, demand, 20.0, children.iter().copied());
    children.iter().map(|c| split.of(c)).collect()
}

#[test]
fn demand_over_the_allowance_is_cut_by_the_same_share() {
    let got = parts(ALL, &[child(3000.0, 100.0), child(1000.0, 900.0)]);
    close(got[0], 750.0, 1e-9);
    close(got[1], 250.0, 1e-9);
}

#[test]
fn head_room_goes_where_traffic_usually_is() {
    let got = parts(ALL, &[child(300.0, 100.0), child(100.0, 300.0)]);
    close(got[0], 300.0 + 600.0 / 4.0, 1e-9);
    close(got[1], 100.0 + 600.0 * 3.0 / 4.0, 1e-9);
}

#[test]
fn a_child_without_demand_gets_the_floor() {
    let got = parts(ALL, &[child(5000.0, 5000.0), child(0.0, 0.0)]);
    close(got[1], 10.0, 1e-9);
}

fn members(demands: &[f64]) -> Vec<Member> {
    let member = |(class, demand_rps): (usize, &f64)| Member {
        demand_rps: *demand_rps,
        usual_rps: *demand_rps,
        class,
        allowed_rps: 0.0,
    };
    demands.iter().enumerate().map(member).collect()
}

fn three_classes() -> Sharing {
    let order = ["gold", "silver", "bronze"].map(Into::into).to_vec();
    Sharing::Priority(Classes { order, default: 1 })
}

/// What each would admit.
fn admitted(sharing: &Sharing, total: f64, demands: &[f64]) -> Vec<f64> {
    let mut all = members(demands);
    share_out(sharing, total, &mut all);
    all.iter().map(|m| m.allowed_rps.min(m.demand_rps)).collect()
}

#[test]
fn the_polite_keep_their_demand_while_an_abuser_is_cut() {
    let mut demands = vec![90.0; 10];
    demands.push(10_000.0);
    let got = admitted(&Sharing::Fair, 1000.0, &demands);
    assert!(got[..10].iter().all(|a| (a - 90.0).abs() < 1e-9), "{got:?}");
    close(got[10], 100.0, 1e-9);
    // Ten that want a tenth each, and the abuser: a fair part is an eleventh.
    demands[..10].fill(100.0);
    let got = admitted(&Sharing::Fair, 1000.0, &demands);
    assert!(got.iter().all(|a| (a - 1000.0 / 11.0).abs() < 1e-9), "{got:?}");
}

#[test]
fn the_worst_class_is_dropped_first() {
    let shares = |x: f64| {
        let demands = [200.0 * x, 500.0 * x, 300.0 * x];
        let got = admitted(&three_classes(), 1000.0, &demands);
        [got[0] / demands[0], got[1] / demands[1], got[2] / demands[2]]
    };
    for (x, expected) in
        [(1.5, [1.0, 0.933, 0.0]), (3.0, [1.0, 0.267, 0.0]), (16.7, [0.299, 0.0, 0.0])]
    {
        for (got, expected) in shares(x).into_iter().zip(expected) {
            close(got, expected, 0.001);
        }
    }
}

#[test]
fn a_silent_child_is_charged_its_grant_then_less_and_what_decayed_is_forgiven() {
    let flight = Flight { requests: 5.0, rps: 100.0 };
    let mut silent = Silent::new(child(100.0, 100.0), 7, 100.0, at(0), flight);
    close(silent.charge(at(500), 1.0), 5.0 + 50.0, 1e-9);
    close(silent.charge(at(1500), 1.0), 5.0 + 150.0, 1e-9);
    close(silent.charge(at(15_000), silent.weight(at(15_000), false)), 155.0 + 1350.0, 1e-6);
    close(silent.weight(at(30_000), false), 0.5, 1e-9);
    close(silent.weight(at(30_000), true), 1.0, 1e-9);
    assert!(silent.is_over(at(45_000), false) && !silent.is_over(at(45_000), true));
    // In 15 s at weight one half, 750 of 1,500 were charged.
    let charged = silent.charge(at(30_000), 0.5);
    close(charged, 155.0 + 1350.0 + 750.0, 1e-6);
    close(silent.forgiven(at(30_000), 3005.0), 750.0, 1e-6);
    close(silent.forgiven(at(30_000), 9000.0), 750.0, 1e-6);
    close(silent.forgiven(at(30_000), charged + 10.0), 10.0, 1e-6);
    close(silent.forgiven(at(30_000), 0.0), 0.0, 1e-9);
}

proptest! {
    /// What children get comes to the allowance, but for the floor.
    #[test]
    fn parts_add_up(
        children in proptest::collection::vec((0.0_f64..5000.0, 0.0_f64..5000.0), 1..20),
        rps in 1.0_f64..50_000.0,
    ) {
        let children: Vec<Child> = children.into_iter().map(|(d, r)| child(d, r)).collect();
        let got = parts(Allowance { rps, correction: 1.0 }, &children);
        let sum: f64 = got.iter().sum();
        prop_assert!(sum <= rps + 20.0 + 1e-6, "{sum} of {rps}");
        prop_assert!(sum >= rps * 0.999 - 1e-6 || children.iter().all(|c| c.demand_rps <= 0.0));
    }

    /// Whatever is shared out, what can be admitted is the total or all demand, and nobody who gets
    /// less than another under fairness wants more than it gets.
    #[test]
    fn sharing_wastes_nothing_and_is_fair(
        demands in proptest::collection::vec(0.0_f64..5000.0, 1..30),
        total in 1.0_f64..20_000.0,
    ) {
        let all: f64 = demands.iter().sum();
        for sharing in [Sharing::Fair, three_classes()] {
            let got = admitted(&sharing, total, &demands);
            let sum: f64 = got.iter().sum();
            prop_assert!((sum - all.min(total)).abs() < 1e-6 * all.max(1.0), "{sharing:?}: {sum}");
        }
        let got = admitted(&Sharing::Fair, total, &demands);
        for (i, a) in got.iter().enumerate() {
            for b in &got {
                prop_assert!(*a >= b - 1e-6 || *a >= demands[i] - 1e-6, "{a} and {b}");
            }
        }
    }
}
