//! What the agent's thread costs: CPU time as a share of one core, while requests go on.
//!
//! `cargo run --release -p sluicegate-client --example agent_cost -- [--keys 100] [--tick-ms 100]
//! [--rps 10000] [--seconds 10]`. Prints the share and ends with 1 if it is above 0.5 %.
#![allow(clippy::print_stdout, reason = "a tool")]

#[path = "../tests/fake/mod.rs"]
mod fake;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fake::{Fake, service};
use sluicegate_client::{Limiter, Request, Settings};
use sluicegate_model::{AdmitRatio, Match, Mode, Name, Overflow, Pattern, Per};

/// The most of one core that an agent may take, with 100 keys in use at 10 reports a second.
const MOST_SHARE: f64 = 0.005;

struct Options {
    keys: u64,
    tick_ms: u64,
    rps: u64,
    seconds: u64,
}

fn main() -> ExitCode {
    let options = options();
    let fake = aggregator();
    let limiter = Limiter::start(Settings {
        tick: Duration::from_millis(options.tick_ms),
        ..Settings::new([fake.address.to_string()])
    })
    .expect("starts");

    let stop = Arc::new(AtomicBool::new(false));
    let load = {
        let (limiter, stop) = (limiter.clone(), stop.clone());
        let Options { keys, rps, .. } = options;
        std::thread::spawn(move || drive(&limiter, keys, rps, &stop))
    };
    // Keys are made and reports have begun.
    std::thread::sleep(Duration::from_secs(3));
    let tid = limiter.agent_tid().expect("the agent runs, on Linux");
    let before = cpu(tid);
    std::thread::sleep(Duration::from_secs(options.seconds));
    let used = cpu(tid).saturating_sub(before);
    stop.store(true, Ordering::Relaxed);
    let decisions = load.join().expect("the load ends");
    let connection = limiter.connection();
    assert!(connection.aggregator.is_some() && connection.configuration_version > 0);

    let share = used.as_secs_f64() / Duration::from_secs(options.seconds).as_secs_f64();
    let Options { keys, tick_ms, seconds, .. } = options;
    println!("{decisions} decisions over {keys} keys, a report every {tick_ms} ms");
    println!("agent: {used:?} of CPU in {seconds} s = {:.3} % of a core", share * 100.0);
    let pass = share <= MOST_SHARE;
    println!(
        r#"{{"name":"agent_cpu","value":{share:.6},"unit":"cores","target":{MOST_SHARE},"pass":{pass}}}"#
    );
    if pass { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn options() -> Options {
    let mut options = Options { keys: 100, tick_ms: 100, rps: 10_000, seconds: 10 };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().and_then(|v| v.parse().ok());
        let value = value.unwrap_or_else(|| panic!("{name}: a whole number must follow"));
        match &*name {
            "--keys" => options.keys = value,
            "--tick-ms" => options.tick_ms = value,
            "--rps" => options.rps = value,
            "--seconds" => options.seconds = value,
            _ => panic!("{name}: no such option"),
        }
    }
    options
}

/// An aggregator that answers each report with a directive for every key.
fn aggregator() -> Fake {
    let mut per_key = service("shop", "per-key", Mode::Deny, 1_000_000);
    let mut on = Match::default();
    on.dimensions.insert(Name::new("key").expect("a name"), vec![Pattern::Any]);
    per_key.buckets[0].rule.on = on;
    per_key.buckets[0].per = Some(Per {
        dimensions: vec![Name::new("key").expect("a name")],
        values: [].into(),
        max_keys: 100_000,
        overflow: Overflow::Observe,
    });
    let any = "127.0.0.1:0".parse().expect("an address");
    Fake::start_with(any, vec![per_key], Some(AdmitRatio::from_share(0.9)))
}

/// Requests over all keys in turn, in steps of 5 ms, until told to stop; how many.
fn drive(limiter: &Limiter, keys: u64, rps: u64, stop: &AtomicBool) -> u64 {
    let keys: Vec<String> = (0..keys).map(|k| format!("key-{k}")).collect();
    let mut each = keys.iter().cycle();
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        for key in each.by_ref().take(usize::try_from(rps / 200).unwrap_or(usize::MAX)) {
            let dimensions = [("key", &**key)];
            let _ = limiter.decide(&Request {
                service: "shop",
                caller: "web",
                procedure: "p",
                dimensions: &dimensions,
            });
            count += 1;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    count
}

/// How long the thread has been on a CPU.
fn cpu(tid: u32) -> Duration {
    let path = format!("/proc/self/task/{tid}/schedstat");
    let text = std::fs::read_to_string(&path).expect("the kernel tells");
    let first = text.split_whitespace().next().and_then(|n| n.parse().ok());
    Duration::from_nanos(first.expect("a number of nanoseconds"))
}
