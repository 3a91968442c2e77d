//! Each part by itself: what it is for, and what it must never do.

mod credit;
mod demand;
mod level;
mod messages;
mod parts;

use std::time::Duration;

use sluicegate_model::Time;

const WINDOW: Duration = Duration::from_millis(100);

fn at(ms: u64) -> Time {
    Time::from_millis(ms)
}

fn close(a: f64, b: f64, within: f64) {
    assert!((a - b).abs() <= within, "{a} is not within {within} of {b}");
}
