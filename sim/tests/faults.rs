//! Worlds in which things go wrong: promises hold, and one seed is one history.

use sluicegate_sim::{Law, faults};

/// Seeds of their own, so that this is not a part of what is run by hand.
const FIRST: u64 = 500_000;

#[test]
fn fifty_worlds_keep_their_promises() {
    let mut settled = 0;
    let mut reconciled = 0;
    for seed in FIRST..FIRST + 50 {
        let summary = faults::run(seed, Law::Ratio).unwrap_or_else(|failure| panic!("{failure}"));
        settled += summary.report.keys_settled;
        reconciled += summary.report.clients_reconciled;
    }
    assert!(settled > 20, "only {settled} keys were held against their limits");
    assert!(reconciled > 500, "only {reconciled} clients were followed to the end");
}

#[test]
fn seeds_that_once_failed_pass() {
    for seed in faults::known_seeds() {
        faults::run(seed, Law::Ratio).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn the_same_seed_is_the_same_history_and_another_is_another() {
    let run = |seed| faults::run(seed, Law::Ratio).expect("passes");
    let (a, b, c) = (run(FIRST), run(FIRST), run(FIRST + 1));
    assert_eq!(a, b);
    assert_ne!(a.trace_sha256, c.trace_sha256);
}

#[test]
fn every_world_of_many_seeds_makes_sense() {
    for seed in 0..2000 {
        let scenario = faults::scenario(seed);
        assert_eq!(scenario.problems(), [], "seed {seed}");
        assert_eq!(scenario, faults::scenario(seed));
    }
}
