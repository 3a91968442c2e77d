//! The client under a real aggregator and a real controller, in this process, over gRPC: limits
//! hold, shadows drop nothing, and losing the control plane or the agent stops no request.

mod support;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sluicegate_client::{Decision, Limiter, Request, Settings};
use support::{Tally, Tiers, offer, until};

const TICK: Duration = Duration::from_millis(200);
const TTL: Duration = Duration::from_secs(1);

const SHOP: Request<'_> =
    Request { service: "shop", caller: "web", procedure: "p", dimensions: &[] };

const LIMITED: &str = r"
apiVersion: sluicegate/v1
service: shop
buckets:
  - { name: all, scope: region, limit: 300/s, mode: deny }
  - { name: shadow, scope: zone, limit: 100/s, mode: shadow }
";

fn settings(tiers: &Tiers) -> Settings {
    Settings {
        node: "test".into(),
        zone: "z1".into(),
        region: "r1".into(),
        tick: TICK,
        ttl: TTL,
        ramp: Duration::from_secs(1),
        ..Settings::new([tiers.aggregator_address().to_string()])
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_holds_over_clients_and_a_shadow_drops_nothing() {
    let tiers = Tiers::start(LIMITED, TICK, TTL).await;
    let clients: Vec<_> =
        (0..3).map(|_| Limiter::start(settings(&tiers)).expect("starts")).collect();
    // Uneven shares: 600, 200 and 100 requests a second.
    let load = |duration| {
        let loads = clients.iter().zip([600, 200, 100]).map(move |(client, rps)| {
            let client = client.clone();
            std::thread::spawn(move || offer(&client, &SHOP, rps, duration))
        });
        loads.collect::<Vec<_>>()
    };
    join(load(Duration::from_secs(3)));
    let before = shadow_counts(&tiers);
    let total = join(load(Duration::from_secs(4)));
    let admitted_rps = total.admitted_rps();
    assert!((admitted_rps - 300.0).abs() <= 15.0, "{admitted_rps} rps of 300: {total:?}");
    assert!(total.dropped_by.keys().all(|bucket| bucket == "all"), "{total:?}");

    // The shadow is offered what the other bucket admits: 300 rps, of which it would drop 200.
    let counts = shadow_counts(&tiers).since(&before);
    assert_eq!(counts.admitted, counts.offered, "a shadow drops nothing");
    let would_drop = counts.would_drop as f64 / counts.offered as f64;
    assert!((would_drop - 2.0 / 3.0).abs() < 0.05, "{would_drop}: {counts:?}");
    drop(clients);
    tiers.shutdown().await;
}

fn shadow_counts(tiers: &Tiers) -> sluicegate_model::Counts {
    let published = tiers.aggregator_view();
    let mut keys = published.view.keys.iter();
    keys.find(|k| k.name.bucket.as_str() == "shadow").expect("it is counted").counts
}

fn join(loads: Vec<std::thread::JoinHandle<Tally>>) -> Tally {
    let tallies = loads.into_iter().map(|load| load.join().expect("the load ends"));
    tallies.reduce(Tally::together).expect("there is a load")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_control_plane_requests_go_on_and_it_may_come_back() {
    let mut tiers = Tiers::start(LIMITED, TICK, TTL).await;
    let client = Limiter::start(settings(&tiers)).expect("starts");
    let load = |duration| {
        let client = client.clone();
        let load = std::thread::spawn(move || offer(&client, &SHOP, 900, duration));
        load.join().expect("the load ends")
    };
    load(Duration::from_secs(2));
    let limited = load(Duration::from_secs(2));
    assert!((limited.admitted_rps() - 300.0).abs() < 45.0, "{limited:?}");

    tiers.kill_aggregator();
    let losing = load(Duration::from_secs(3));
    assert!(losing.slowest < Duration::from_millis(100), "no request waits: {losing:?}");
    let lost = load(Duration::from_secs(2));
    assert_eq!(lost.dropped(), 0, "after ttl and ramp everything passes: {lost:?}");
    assert!(lost.slowest < Duration::from_millis(100), "no request waits: {lost:?}");
    assert_eq!(client.connection().aggregator, None);

    tiers.restart_aggregator().await;
    load(Duration::from_secs(3));
    let again = load(Duration::from_secs(2));
    assert!((again.admitted_rps() - 300.0).abs() < 45.0, "enforced within 3 s: {again:?}");
    assert!(client.connection().reconnects >= 1);
    drop(client);
    tiers.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_agent_does_not_go_on_dropping() {
    let tiers = Tiers::start(LIMITED, TICK, TTL).await;
    let short = Settings {
        ttl: Duration::from_millis(500),
        ramp: Duration::from_millis(500),
        ..settings(&tiers)
    };
    let client = Limiter::start(short).expect("starts");
    let load = |duration| {
        let client = client.clone();
        let load = std::thread::spawn(move || offer(&client, &SHOP, 900, duration));
        load.join().expect("the load ends")
    };
    load(Duration::from_secs(2));
    assert!(load(Duration::from_secs(1)).dropped() > 0, "it is limited");
    assert!(client.pause_agent(Duration::from_secs(4)));
    load(Duration::from_millis(1200));
    let starved = load(Duration::from_secs(2));
    assert_eq!(starved.dropped(), 0, "after ttl and ramp without the agent: {starved:?}");
    load(Duration::from_secs(3));
    assert!(load(Duration::from_secs(1)).dropped() > 0, "it is limited again");
    drop(client);
    tiers.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_of_several_threads_is_counted_once() {
    const THREADS: u64 = 4;
    const EACH: u64 = 50_000;
    let plenty = LIMITED.replace("300/s", "100_000_000/s").replace("100/s", "100_000_000/s");
    let tiers = Tiers::start(&plenty, TICK, TTL).await;
    let client = Limiter::start(settings(&tiers)).expect("starts");
    until("its buckets are there", || client.connection().configuration_version > 0).await;
    let admitted = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (client, admitted) = (client.clone(), &admitted);
            scope.spawn(move || {
                let prepared = client.prepare(&SHOP);
                for i in 0..EACH {
                    let outcome = if (i + thread) % 2 == 0 {
                        client.decide(&SHOP)
                    } else {
                        prepared.decide()
                    };
                    admitted.fetch_add(u64::from(outcome.is_admitted()), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(admitted.load(Ordering::Relaxed), THREADS * EACH);
    until("the aggregator has counted them", || {
        let published = tiers.aggregator_view();
        published.view.keys.iter().filter(|k| k.counts.admitted == THREADS * EACH).count() == 2
    })
    .await;
    let published = tiers.aggregator_view();
    let view = &published.view;
    let service = view.services.iter().find(|s| s.counts.service.as_str() == "shop");
    assert_eq!(service.expect("counted").counts.attempts, THREADS * EACH);
    drop(client);
    tiers.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_of_zero_denies_all_and_says_who_did() {
    let closed = LIMITED.replace("300/s", "0/s");
    let tiers = Tiers::start(&closed, TICK, TTL).await;
    let client = Limiter::start(settings(&tiers)).expect("starts");
    until("it denies", || !client.decide(&SHOP).is_admitted()).await;
    let Decision::Drop { bucket, .. } = client.decide(&SHOP).details() else {
        panic!("everything is denied")
    };
    assert_eq!(client.bucket(bucket).expect("known").bucket.as_str(), "all");
    drop(client);
    tiers.shutdown().await;
}
