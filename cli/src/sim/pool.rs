//! Many runs on all cores. Each run has a thread to itself from beginning to end and shares nothing,
//! and results come in the order of the jobs, so how many threads there are changes nothing.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use crate::clock;
use crate::progress::{Bar, left};

/// How much of a run is a step of the bar.
const STEPS: u32 = 1000;
const LOOK: Duration = Duration::from_millis(100);

/// How far a job is.
pub(super) struct Share<'a>(&'a AtomicU32);

impl Share<'_> {
    /// So much of it is done: 0 to 1.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    pub(super) fn set(&self, share: f64) {
        let steps = (share.clamp(0.0, 1.0) * f64::from(STEPS)) as u32;
        self.0.store(steps, Ordering::Relaxed);
    }
}

/// Does all jobs, or those until one fails; `done` is told of each as it ends, in no order.
pub(super) fn run_all<J: Sync, T: Send, E: Send>(
    jobs: &[J],
    work: impl Fn(&J, &Share<'_>) -> Result<T, E> + Sync,
    mut done: impl FnMut(&J, &T),
) -> Result<Vec<T>, E> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(jobs.len()).max(1);
    let shares: Vec<AtomicU32> = jobs.iter().map(|_| AtomicU32::new(0)).collect();
    let next = AtomicUsize::new(0);
    let is_over = AtomicBool::new(false);
    let mut results: Vec<Option<T>> = jobs.iter().map(|_| None).collect();
    let mut failed = None;
    let mut watch = Watch::new(&shares);
    // As many as there are senders: none ever waits for the watcher.
    let (sender, receiver) = sync_channel(threads);
    thread::scope(|scope| {
        for _ in 0..threads {
            let (sender, next, is_over) = (sender.clone(), &next, &is_over);
            let (shares, work) = (&shares, &work);
            scope.spawn(move || {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(place) else { break };
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let result = work(job, &Share(&shares[place]));
                    shares[place].store(STEPS, Ordering::Relaxed);
                    if sender.send((place, result)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        loop {
            match receiver.recv_timeout(LOOK) {
                Ok((place, Ok(result))) => {
                    watch.hide_for(|| done(&jobs[place], &result));
                    results[place] = Some(result);
                }
                Ok((_, Err(error))) => {
                    is_over.store(true, Ordering::Relaxed);
                    failed.get_or_insert(error);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            watch.look();
        }
    });
    watch.bar.end();
    match failed {
        Some(error) => Err(error),
        None => Ok(results.into_iter().flatten().collect()),
    }
}

/// The bar over all jobs.
struct Watch<'s> {
    shares: &'s [AtomicU32],
    bar: Bar,
    began: std::time::Instant,
}

impl<'s> Watch<'s> {
    fn new(shares: &'s [AtomicU32]) -> Self {
        let steps = shares.len() as u64 * u64::from(STEPS);
        Self { shares, bar: Bar::new(Some(steps)), began: clock::now() }
    }

    fn look(&mut self) {
        if !self.bar.is_due() {
            return;
        }
        let steps = |s: &AtomicU32| u64::from(s.load(Ordering::Relaxed));
        let done: u64 = self.shares.iter().map(steps).sum();
        let all = self.shares.len() as u64 * u64::from(STEPS);
        let whole = self.shares.iter().filter(|s| steps(s) == u64::from(STEPS)).count();
        let time = match done {
            0 => "starting".to_owned(),
            #[expect(clippy::cast_precision_loss, reason = "for people")]
            _ => left(self.began.elapsed().mul_f64((all - done) as f64 / done as f64)),
        };
        let runs = match self.shares.len() {
            1 => String::new(),
            n => format!("  {whole} of {n} runs"),
        };
        self.bar.draw(done, format!("{time}{runs}"));
    }

    /// Lets others write without the bar in between.
    fn hide_for(&self, write: impl FnOnce()) {
        self.bar.suspend(write);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_the_order_of_the_jobs() {
        let jobs: Vec<u64> = (0..50).collect();
        let mut seen = 0;
        let results = run_all(
            &jobs,
            |job, share| {
                share.set(0.5);
                thread::sleep(Duration::from_micros((50 - job) * 20));
                Ok::<_, ()>(job * 2)
            },
            |job, result| {
                assert_eq!(job * 2, *result);
                seen += 1;
            },
        );
        assert_eq!(results, Ok((0..50).map(|j| j * 2).collect()));
        assert_eq!(seen, 50);
    }

    #[test]
    fn a_failure_ends_it() {
        let jobs: Vec<u32> = (0..1000).collect();
        let begun = AtomicUsize::new(0);
        let result = run_all(
            &jobs,
            |job, _| {
                begun.fetch_add(1, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(1));
                if *job == 3 { Err("three") } else { Ok(()) }
            },
            |_, ()| {},
        );
        assert_eq!(result, Err("three"));
        assert!(begun.load(Ordering::Relaxed) < 1000);
    }

    #[test]
    fn no_jobs_are_no_work() {
        let result = run_all(&[] as &[u8], |_, _| Ok::<_, ()>(1), |_, _| {});
        assert_eq!(result, Ok(Vec::new()));
    }
}
