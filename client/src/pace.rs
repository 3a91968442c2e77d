//! Wakes the agent's task at a steady pace, cheaply.
//!
//! Tokio's driver wakes itself through the kernel whenever a timer is set that is the earliest of
//! all: two system calls more for each look. So there are always two timers, a step apart, and the
//! one that has fired is set behind the other.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

/// How much later than asked a wake may be before a timer is set anew. Timers count milliseconds.
pub(crate) const SLACK: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct Pace {
    near: Pin<Box<Sleep>>,
    far: Pin<Box<Sleep>>,
}

impl Pace {
    pub(crate) fn new() -> Self {
        let now = || Box::pin(sleep(Duration::ZERO));
        Self { near: now(), far: now() }
    }

    /// Waits for about `wait`: up to [`SLACK`] more, and less if an earlier call asked for less.
    pub(crate) async fn wait(&mut self, wait: Duration) {
        let now = Instant::now();
        let due = now + wait;
        if self.near.deadline() <= now {
            std::mem::swap(&mut self.near, &mut self.far);
            if self.near.deadline() <= now {
                self.near.as_mut().reset(due);
            }
            self.far.as_mut().reset(self.near.deadline() + whole_ms(wait));
        }
        if due + SLACK < self.near.deadline() {
            self.near.as_mut().reset(due);
        }
        self.near.as_mut().await;
    }
}

fn whole_ms(wait: Duration) -> Duration {
    let ms = wait.as_nanos().div_ceil(1_000_000);
    Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX)).max(SLACK)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(10);

    #[tokio::test]
    async fn waits_are_as_long_as_asked() {
        let mut pace = Pace::new();
        pace.wait(Duration::ZERO).await;
        let start = Instant::now();
        for _ in 0..20 {
            pace.wait(STEP).await;
        }
        let took = start.elapsed();
        assert!(took >= STEP * 18, "{took:?}");
        assert!(took < STEP * 60, "{took:?}");
    }

    #[tokio::test]
    async fn a_shorter_wait_comes_first_and_a_dropped_one_is_forgotten() {
        let mut pace = Pace::new();
        pace.wait(Duration::ZERO).await;
        let long = tokio::time::timeout(STEP, pace.wait(Duration::from_secs(3600))).await;
        assert!(long.is_err(), "it is not over yet");
        let start = Instant::now();
        pace.wait(STEP).await;
        assert!(start.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn steps_are_whole_milliseconds() {
        assert_eq!(whole_ms(Duration::from_micros(9_900)), STEP);
        assert_eq!(whole_ms(STEP), STEP);
        assert_eq!(whole_ms(Duration::ZERO), SLACK);
    }
}
