//! Counts are exact whatever the threads do, on their own cells and on shared ones, while the agent
//! reads.

mod common;

use std::sync::atomic::{AtomicU64, Ordering};

use common::{World, bucket, request, service, settings};
use sluicegate_model::{AdmitRatio, Mode, Select};

const THREADS: u64 = 8;
const REQUESTS: u64 = 120_000;

fn exact(max_stripes: usize, promoted: bool) {
    let mut settings = settings();
    settings.max_stripes = max_stripes;
    let of = service(
        "shop",
        Select::All,
        vec![bucket("a", Mode::Deny), bucket("b", Mode::Deny), bucket("s", Mode::Shadow)],
    );
    let mut world = World::new(&settings, &[of]);
    let keys = ["a", "b", "s"].map(|name| world.whole(name));
    for (key, share) in keys.into_iter().zip([0.9, 0.8, 0.5]) {
        assert_eq!(promoted && max_stripes > 0, promoted && world.keeper.promote(key));
        world.keeper.set_admit(key, AdmitRatio::from_share(share), std::time::Duration::ZERO);
    }
    let (admitted, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let (limiter, keeper) = (world.limiter.clone(), &mut world.keeper);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut mine = 0;
                let handle = limiter.prepare(&request("web", &[]));
                for i in 0..REQUESTS {
                    let outcome = if i % 2 == 0 {
                        limiter.decide(&request("web", &[]))
                    } else {
                        handle.decide()
                    };
                    mine += u64::from(outcome.is_admitted());
                }
                admitted.fetch_add(mine, Ordering::Relaxed);
                done.fetch_add(1, Ordering::Release);
            });
        }
        let mut last = keys.map(|key| keeper.totals(key));
        while done.load(Ordering::Acquire) < THREADS {
            for (key, last) in keys.into_iter().zip(&mut last) {
                let now = keeper.totals(key);
                assert!(now.covers(last) && now.is_consistent(), "{last:?} then {now:?}");
                *last = now;
            }
            keeper.adopt(world.now, 100);
        }
    });
    let all = THREADS * REQUESTS;
    let admitted = admitted.into_inner();
    let [a, b, s] = keys.map(|key| world.keeper.totals(key));
    for key in [a, b, s] {
        assert_eq!(key.matched, all);
        assert_eq!(key.admitted, admitted);
    }
    let shop = world.keeper.service_totals().next().expect("one service");
    assert_eq!((shop.attempts, shop.admitted), (all, admitted));
    assert_eq!(shop.attempts, shop.admitted + shop.dropped_by_one + shop.dropped_by_several);
    assert_eq!(shop.dropped_by_one, a.dropped() + b.dropped());
    // What a admits is what is offered to b; each is exact but for a unit a cell.
    for (offered, share) in [(b.offered, 0.9), (a.offered, 0.8)] {
        let expected = all as f64 * share;
        assert!((offered as f64 - expected).abs() < 0.001 * expected, "{offered} {expected}");
    }
}

#[test]
fn on_stripes() {
    exact(64, true);
}

#[test]
fn on_shared_cells() {
    exact(64, false);
    exact(0, false);
}

#[test]
fn on_both_when_stripes_run_out() {
    exact(3, true);
}

#[test]
fn stripes_come_back_when_threads_end() {
    let of = service("shop", Select::All, vec![bucket("a", Mode::Deny)]);
    let mut world = World::new(&settings(), &[of]);
    assert!(world.keeper.promote(world.whole("a")));
    for _ in 0..50 {
        let limiter = world.limiter.clone();
        std::thread::spawn(move || {
            for _ in 0..100 {
                assert!(limiter.decide(&request("web", &[])).is_admitted());
            }
        })
        .join()
        .expect("no panic");
    }
    assert_eq!(world.totals("a").matched, 5_000);
    assert_eq!(world.limiter.stats().stripes, 1);
}

/// Decides in the destructor of a thread-local, when the limiter's own are gone already.
#[test]
fn a_thread_that_ends_still_decides_and_counts() {
    struct Last(sluicegate_client_core::Limiter<common::Clock>);
    impl Drop for Last {
        fn drop(&mut self) {
            for _ in 0..10 {
                assert!(self.0.decide(&request("web", &[])).is_admitted());
            }
        }
    }
    thread_local! {
        static LAST: std::cell::RefCell<Option<Last>> = const { std::cell::RefCell::new(None) };
    }
    let of = service("shop", Select::All, vec![bucket("a", Mode::Deny)]);
    let mut world = World::new(&settings(), &[of]);
    assert!(world.keeper.promote(world.whole("a")));
    for first in [true, false] {
        let limiter = world.limiter.clone();
        std::thread::spawn(move || {
            if first {
                LAST.set(Some(Last(limiter.clone())));
            }
            assert!(limiter.decide(&request("web", &[])).is_admitted());
            LAST.set(Some(Last(limiter)));
        })
        .join()
        .expect("no panic");
    }
    // `set` over the first one drops it, and so decides, once more.
    assert_eq!(world.totals("a").matched, 1 + 10 + 10 + 1 + 10);
}
