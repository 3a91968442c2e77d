//! A decision allocates nothing once its thread is warm (I1).
#![allow(unsafe_code, reason = "an allocator that counts cannot be written without")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use common::{World, bucket, per, service, settings};
use sluicegate_model::{AdmitRatio, Classes, Mode, Request, Select, Sharing};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is handed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations(f: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    f();
    ALLOCATIONS.get() - before
}

fn classes() -> Classes {
    let order = ["value-00000000000000000007", "other"];
    Classes { order: order.map(Box::from).into(), default: 1 }
}

#[test]
fn a_warm_thread_allocates_nothing() {
    // 20 buckets, so that the path for many is taken as well; one with values.
    let mut buckets: Vec<_> = (0..20).map(|i| bucket(&format!("b{i}"), Mode::Deny)).collect();
    for (i, bucket) in buckets.iter_mut().enumerate() {
        if i >= 3 {
            bucket.rule.on.caller = common::patterns(&["many-*"]);
        }
    }
    let mut values = bucket("values", Mode::Shadow);
    values.rule.on.procedure = common::patterns(&["each"]);
    values.per = Some(per(&["ws"], 10_000));
    buckets.push(values);
    for (text, sharing) in [("fair", Sharing::Fair), ("by-class", Sharing::Priority(classes()))] {
        let mut shared = bucket(text, Mode::Deny);
        shared.rule.on.procedure = common::patterns(&[text]);
        shared.per = Some(per(&["ws"], 10_000));
        shared.sharing = Some(sharing);
        buckets.push(shared);
    }
    let mut settings = settings();
    settings.max_identities = 8;
    let mut world = World::new(&settings, &[service("shop", Select::All, buckets)]);
    world.pass(Duration::from_secs(1));
    assert!(allocations(|| drop(vec![0_u8; 100])) > 0, "the allocator counts");
    let texts: Vec<String> = (0..1000).map(|i| format!("value-{i:020}")).collect();
    for share in [1.0, 0.6, 0.0] {
        let run = |world: &World, handles: &[sluicegate_client_core::Prepared<common::Clock>]| {
            for text in &texts {
                let dimensions = [("ws", text.as_str())];
                for (caller, procedure) in [
                    ("few", "buy"),
                    ("many-x", "buy"),
                    ("few", "each"),
                    ("few", "fair"),
                    ("few", "by-class"),
                ] {
                    let request =
                        Request { service: "shop", caller, procedure, dimensions: &dimensions };
                    let _ = world.limiter.decide(&request);
                }
                // More identities than are remembered: matched anew each time, or waiting.
                let request = Request { service: "shop", caller: text, ..Request::default() };
                let _ = world.limiter.decide(&request);
                for handle in handles {
                    let _ = handle.decide();
                }
            }
        };
        let handles = ["few", "many-x"].map(|caller| {
            world.limiter.prepare(&Request { service: "shop", caller, ..Request::default() })
        });
        for _ in 0..3 {
            run(&world, &handles);
            world.look();
        }
        for (i, key) in world.keeper.keys().collect::<Vec<_>>().into_iter().enumerate() {
            if i % 2 == 0 {
                world.keeper.promote(key);
            }
            world.keeper.set_admit(key, AdmitRatio::from_share(share), Duration::ZERO);
        }
        run(&world, &handles);
        assert_eq!(allocations(|| run(&world, &handles)), 0, "at {share}");
    }
}
