//! When messages go.

use std::time::Duration;

use super::super::{DownRule, GrantRule, Push, UpRule};
use super::{WINDOW, at};

const DEMAND: f64 = 10_000.0;

#[test]
fn a_surge_goes_at_once_a_small_change_waits_and_silence_is_broken() {
    let mut down = DownRule::new(at(0));
    assert_eq!(down.ask(at(0), 1.0, DEMAND, WINDOW), Push::Now, "the first");
    assert_eq!(down.ask(at(5), 0.1, DEMAND, WINDOW), Push::At(at(10)), "not twice in 10 ms");
    assert_eq!(down.ask(at(10), 0.1, DEMAND, WINDOW), Push::Now);
    assert_eq!(down.ask(at(60), 0.102, DEMAND, WINDOW), Push::No, "2 % can wait");
    assert_eq!(down.ask(at(110), 0.102, DEMAND, WINDOW), Push::Now);
    assert_eq!(down.ask(at(900), 0.1021, DEMAND, WINDOW), Push::No, "0.1 % is nothing");
    assert_eq!(down.ask(at(1110), 0.102, DEMAND, WINDOW), Push::Now, "a heartbeat");
    assert!((down.told() - 0.102).abs() < 1e-9);
}

#[test]
fn with_head_room_changes_hardly_matter() {
    let mut down = DownRule::new(at(0));
    assert_eq!(down.ask(at(0), 2.0, DEMAND, WINDOW), Push::Now);
    assert_eq!(down.ask(at(500), 2.4, DEMAND, WINDOW), Push::No);
    assert_eq!(down.ask(at(500), 2.6, DEMAND, WINDOW), Push::Now);
}

#[test]
fn at_a_low_rate_noise_is_no_surge() {
    let mut down = DownRule::new(at(0));
    assert_eq!(down.ask(at(0), 0.5, 50.0, WINDOW), Push::Now);
    // 5 requests a window: a change by half is one of them.
    assert_eq!(down.ask(at(20), 0.7, 50.0, WINDOW), Push::No);
}

/// Coverage that changes every 20 ms.
fn swinging(ms: u64) -> f64 {
    if (ms / 20).is_multiple_of(2) { 0.1 } else { 0.9 }
}

#[test]
fn chatter_is_bounded() {
    let mut down = DownRule::new(at(0));
    let mut pushes = 0_u32;
    for ms in 0..=10_000 {
        pushes += u32::from(down.ask(at(ms), swinging(ms), DEMAND, WINDOW) == Push::Now);
    }
    assert!((195..=209).contains(&pushes), "{pushes}: 20 a second and eight at once");
    // What had to wait is told when its time comes.
    let waits = (10_001..).map(|ms| down.ask(at(ms), swinging(ms), DEMAND, WINDOW));
    let when = waits.filter_map(|push| match push {
        Push::At(when) => Some(when),
        Push::Now | Push::No => None,
    });
    let when = when.into_iter().next().expect("the tokens run out");
    assert_eq!(down.ask(when, down.told() * 0.5, DEMAND, WINDOW), Push::Now);
}

#[test]
fn a_child_hears_of_its_grant_at_least_twice_a_second() {
    let mut rule = GrantRule::new(at(0));
    let told: Vec<u64> =
        (0..2000).filter(|ms| rule.ask(at(*ms), 1000.0, 0.5, DEMAND, WINDOW)).collect();
    assert_eq!(told, [0, 500, 1000, 1500]);
    let told: Vec<u64> =
        (1501..1600).filter(|ms| rule.ask(at(*ms), 1010.0, 0.5, DEMAND, WINDOW)).collect();
    assert_eq!(told, [1550], "1 % waits until 50 ms after the last");
    assert!(rule.ask(at(1560), 5000.0, 0.5, DEMAND, WINDOW), "a surge at once");
}

#[test]
fn a_parent_hears_of_a_surge_at_once_and_else_every_50_ms() {
    let mut up = UpRule::new();
    let told: Vec<u64> = (1..=1000).filter(|ms| up.ask(at(*ms), DEMAND, 0.5, WINDOW)).collect();
    assert_eq!(told.len(), 20);
    assert!(up.ask(at(1005), DEMAND * 1.5, 0.5, WINDOW));
    let told: Vec<u64> =
        (1006..=2005).filter(|ms| up.ask(at(*ms), DEMAND * 1.5, 2.0, WINDOW)).collect();
    assert_eq!(told.len(), 4, "with head-room every 250 ms");
    let silence = Duration::from_millis(1500);
    assert!(silence > Duration::from_millis(250) * 3);
}
