//! The agent's thread against an aggregator of the test's own: it starts without one, finds the next
//! one, survives nonsense, and says its last word.

mod fake;

use std::time::Duration;

use fake::{Fake, service, until};
use sluicegate_client::{Limiter, Settings};
use sluicegate_model::{Mode, Request, Role, Up};
use sluicegate_proto::v1;

fn settings(aggregators: &[String]) -> Settings {
    Settings {
        node: "test".into(),
        zone: "z".into(),
        region: "r".into(),
        tick: Duration::from_millis(50),
        ..Settings::new(aggregators.iter().cloned())
    }
}

const SHOP: Request<'_> =
    Request { service: "shop", caller: "web", procedure: "p", dimensions: &[] };

#[test]
fn without_an_aggregator_it_starts_at_once_and_admits() {
    // Nothing listens on the discard port.
    let limiter = Limiter::start(settings(&["127.0.0.1:9".into()])).expect("starts");
    let prepared = limiter.prepare(&SHOP);
    for _ in 0..1000 {
        assert!(limiter.decide(&SHOP).is_admitted());
        assert!(prepared.decide().is_admitted());
    }
    assert_eq!(limiter.connection().aggregator, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_says_hello_applies_the_configuration_and_reports() {
    let mut fake = Fake::start(vec![service("shop", "all", Mode::Deny, 1_000_000)]);
    let limiter = Limiter::start(Settings {
        services: vec!["shop".into()],
        ..settings(&[fake.address.to_string()])
    })
    .expect("starts");
    let hello = fake.wait(|up| if let Up::Hello(hello) = up { Some(hello) } else { None }).await;
    assert_eq!((hello.role, hello.node.as_str(), hello.zone.as_str()), (Role::Client, "test", "z"));
    assert_eq!(hello.services.len(), 1);
    let applied =
        fake.wait(|up| if let Up::ConfigurationApplied(v) = up { Some(v) } else { None }).await;
    assert_eq!(applied, 1);
    for _ in 0..500 {
        assert!(limiter.decide(&SHOP).is_admitted());
    }
    let entry = fake
        .wait(|up| match up {
            Up::Report(report) => report.entries.into_iter().find(|e| e.counts.matched == 500),
            _ => None,
        })
        .await;
    assert_eq!((entry.counts.offered, entry.counts.admitted), (500, 500));
    assert_eq!(limiter.connection().aggregator, Some(fake.address.to_string()));
    drop(limiter);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_clone_says_the_last_word() {
    let mut fake = Fake::start(vec![service("shop", "all", Mode::Deny, 1_000_000)]);
    // A tick so long that only the end can report.
    let limiter = Limiter::start(Settings {
        tick: Duration::from_secs(60),
        ..settings(&[fake.address.to_string()])
    })
    .expect("starts");
    fake.wait(|up| matches!(up, Up::ConfigurationApplied(_)).then_some(())).await;
    let clone = limiter.clone();
    let prepared = limiter.prepare(&SHOP);
    drop(limiter);
    for _ in 0..70 {
        assert!(prepared.decide().is_admitted(), "a handle keeps the client alive");
    }
    drop(prepared);
    drop(clone);
    // The last report may follow an earlier one, of the first look; together they hold everything.
    let total = |up| match up {
        Up::Report(report) => {
            report.entries.iter().map(|e| e.counts.matched).max().filter(|m| *m == 70)
        }
        _ => None,
    };
    assert_eq!(fake.wait(total).await, 70);
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_closes_the_stream_and_the_next_one_works() {
    let mut fake = Fake::start(vec![service("shop", "none", Mode::Deny, 0)]);
    let limiter = Limiter::start(settings(&[fake.address.to_string()])).expect("starts");
    fake.wait(|up| matches!(up, Up::ConfigurationApplied(_)).then_some(())).await;
    fake.push_raw(v1::Down { message: None });
    until("a decode error is counted", || limiter.connection().decode_errors == 1).await;
    until("it is connected again", || limiter.connection().reconnects == 1).await;
    fake.wait(|up| matches!(up, Up::Hello(_)).then_some(())).await;
    assert!(!limiter.decide(&SHOP).is_admitted(), "its buckets outlive the stream");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_goes_on_with_the_next_aggregator_and_comes_back_fast() {
    let services = || vec![service("shop", "all", Mode::Deny, 1_000_000)];
    let (mut first, mut second) = (Fake::start(services()), Fake::start(services()));
    let addresses = [first.address.to_string(), second.address.to_string()];
    let limiter = Limiter::start(settings(&addresses)).expect("starts");
    first.wait(|up| matches!(up, Up::Hello(_)).then_some(())).await;
    first.kill();
    second.wait(|up| matches!(up, Up::Hello(_)).then_some(())).await;
    until("it tells so", || limiter.connection().aggregator.as_ref() == Some(&addresses[1])).await;

    let address = second.address;
    second.kill();
    until("it tells that there is none", || limiter.connection().aggregator.is_none()).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let mut again = Fake::start_at(address, services());
    let waited = tokio::time::timeout(
        Duration::from_millis(1500),
        again.wait(|up| matches!(up, Up::Hello(_)).then_some(())),
    );
    assert!(waited.await.is_ok(), "pauses stay short however long it was gone");
}

#[test]
fn a_paused_agent_can_still_be_ended() {
    let limiter = Limiter::start(settings(&["127.0.0.1:9".into()])).expect("starts");
    assert!(limiter.pause_agent(Duration::from_secs(600)));
    std::thread::sleep(Duration::from_millis(50));
    let (done, ended) = std::sync::mpsc::sync_channel(1);
    std::thread::spawn(move || {
        limiter.shutdown();
        assert!(limiter.decide(&SHOP).is_admitted(), "decisions go on without the agent");
        drop(limiter);
        let _ = done.send(());
    });
    ended.recv_timeout(Duration::from_secs(5)).expect("ends within 5 s");
}

#[cfg(target_os = "linux")]
#[test]
fn it_has_one_thread_with_its_name() {
    let limiter = Limiter::start(settings(&["127.0.0.1:9".into()])).expect("starts");
    std::thread::sleep(Duration::from_millis(100));
    let tid = limiter.agent_tid().expect("runs");
    let name = std::fs::read_to_string(format!("/proc/self/task/{tid}/comm")).expect("is there");
    assert_eq!(name.trim(), "sluicegate-agen");
    drop(limiter);
    assert!(!std::path::Path::new(&format!("/proc/self/task/{tid}")).exists(), "joined");
}
