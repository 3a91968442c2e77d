//! Runs the worlds of a range of seeds, `faults FIRST END`, or shows one, `faults SEED 0`.
use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate_sim::{Law, faults};

#[expect(clippy::print_stdout, reason = "a program for people")]
fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let mut number = |default: u64| args.next().map_or(Ok(default), |a| a.parse());
    let (first, end) = (number(0)?, number(300)?);
    if end == 0 {
        // The world itself.
        println!("{}", serde_json::to_string(&faults::scenario(first))?);
        return Ok(());
    }
    let next = AtomicU64::new(first);
    let (passed, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    let sums: [AtomicU64; 5] = Default::default();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    match faults::run(seed, Law::Ratio) {
                        Ok(summary) => {
                            passed.fetch_add(1, Ordering::Relaxed);
                            let r = &summary.report;
                            let all = [
                                r.decisions,
                                r.checks,
                                r.keys_settled,
                                r.keys_not_settled,
                                r.counted_twice,
                            ];
                            for (sum, more) in sums.iter().zip(all) {
                                sum.fetch_add(more, Ordering::Relaxed);
                            }
                        }
                        Err(failure) => {
                            failed.fetch_add(1, Ordering::Relaxed);
                            println!("{failure}");
                        }
                    }
                }
            });
        }
    });
    let sums = sums.map(AtomicU64::into_inner);
    println!("decisions, checks, settled, not settled, counted twice: {sums:?}");
    println!("{} passed, {} failed", passed.into_inner(), failed.into_inner());
    Ok(())
}
