//! What a client with 100,000 value keys costs: at most 32 MiB, its agent included.
#![allow(unsafe_code, reason = "an allocator that counts cannot be written without")]

mod common;

use sluicegate_model::Law;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{bucket, per, service, settings};
use sluicegate_client_core::{Agent, Limiter, client};
use sluicegate_model::{Configuration, Down, Mode, Request, Select, Time, Up, Update};

struct Counting;

static LIVE_BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is handed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE_BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const VALUES: usize = 100_000;
/// Once they rest, as nearly all of so many do.
const MOST_AT_REST: usize = 32 << 20;
/// While requests for all of them keep coming.
const MOST_IN_USE: usize = 36 << 20;

/// A client whose aggregator acknowledges everything at once.
struct Client {
    limiter: Limiter<common::Clock>,
    agent: Agent,
    clock: common::Clock,
    now: Time,
}

impl Client {
    fn new() -> Self {
        let clock = common::Clock::default();
        let (limiter, mut agent) = client(settings(), clock.clone(), 42, Time::ZERO);
        let mut each = bucket("each", Mode::Deny);
        each.per = Some(per(&["ws"], 200_000));
        agent.handle_open(Time::ZERO);
        let configuration = Configuration {
            version: 1,
            term: 1,
            full: true,
            law: Law::Ratio,
            services: vec![service("shop", Select::All, vec![each])],
            removed: vec![],
        };
        agent.handle_down(Time::ZERO, Down::Configuration(configuration));
        Self { limiter, agent, clock, now: Time::ZERO }
    }

    fn look(&mut self) {
        self.now = self.now + Duration::from_millis(10);
        self.clock.set(self.now);
        self.agent.handle_timeout(self.now);
        let ups = std::iter::from_fn(|| self.agent.poll_up());
        let acknowledged = ups.filter_map(|up| match up {
            Up::Report(report) => Some(report.seq),
            Up::Hello(_) | Up::ConfigurationApplied(_) | Up::Seen { .. } => None,
        });
        if let Some(ack_seq) = acknowledged.max() {
            let update = Update { ack_seq, directives: vec![] };
            self.agent.handle_down(self.now, Down::Update(update));
        }
    }
}

#[test]
fn a_hundred_thousand_values_fit() {
    let texts: Vec<String> = (0..VALUES).map(|i| format!("workspace-{i:016}")).collect();
    let before = LIVE_BYTES.load(Ordering::Relaxed);
    let live_bytes = || LIVE_BYTES.load(Ordering::Relaxed) - before;
    let mut client = Client::new();
    let mut in_use = 0;
    for _ in 0..2 {
        // Some 5,000 requests a second, each for another value.
        for some in texts.chunks(50) {
            for text in some {
                let dimensions = [("ws", text.as_str())];
                let request =
                    Request { service: "shop", dimensions: &dimensions, ..Request::default() };
                assert!(client.limiter.decide(&request).is_admitted());
            }
            client.look();
            in_use = in_use.max(live_bytes());
        }
    }
    (0..500).for_each(|_| client.look());
    let at_rest = live_bytes();
    assert_eq!(client.limiter.stats().values, VALUES as u64);
    println!("bytes in use {in_use}, at rest {at_rest}");
    assert!(at_rest <= MOST_AT_REST, "{at_rest} bytes at rest");
    assert!(in_use <= MOST_IN_USE, "{in_use} bytes in use");
}
