//! A client's stream, an aggregator and a controller over real gRPC: configuration and directives
//! reach the client, survive a restart of the controller, and bad input changes only a metric.

use sluicegate_model::Flight;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use sluicegate_aggregator::{Running, Settings, start};
use sluicegate_model::{
    Counts, Directive, Down, Entry, Hello, KeyName, KeyValues, Name, Report, Role, Up,
};
use sluicegate_proto::link::{Event, Link};

const TICK: Duration = Duration::from_millis(50);

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn any_port() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

async fn controller(dir: &Path, listen: SocketAddr) -> sluicegate_controller::Running {
    let mut settings =
        sluicegate_controller::Settings::new(name("c"), name("r"), listen, dir.to_owned());
    settings.tick = TICK;
    sluicegate_controller::start(settings).await.expect("a controller")
}

async fn aggregator(controllers: &[SocketAddr]) -> Running {
    let controllers = controllers.iter().map(|c| (*c).into()).collect();
    let mut settings = Settings::new(name("a"), name("z"), name("r"), any_port(), controllers);
    settings.tick = TICK;
    start(settings).await.expect("an aggregator")
}

fn buckets() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let text = "apiVersion: sluicegate/v1\nservice: s\nbuckets:\n  - name: region\n    scope: region\n    \
                limit: 300/s\n    mode: deny\n  - name: zone\n    scope: zone\n    limit: 150/s\n    \
                mode: deny\n";
    std::fs::write(dir.path().join("s.yaml"), text).expect("written");
    dir
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("within 20 s")
}

async fn until(mut condition: impl FnMut() -> bool) {
    within(async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// A client that is offered 600 requests a second on both buckets and admits what it is told.
struct Client {
    link: Link,
    seq: u64,
    counts: Counts,
    directives: [Option<Directive>; 2],
}

impl Client {
    async fn connect(aggregator: &Running, role: Role) -> Self {
        let mut link = Link::start(vec![aggregator.local_addr().into()], 1);
        let Event::Open(_) = within(link.next()).await else { panic!("open first") };
        let client = Self { link, seq: 0, counts: Counts::default(), directives: [None; 2] };
        client.hello(role)
    }

    fn hello(mut self, role: Role) -> Self {
        let hello = Hello {
            role,
            node: name("client"),
            session: 1,
            zone: name("z"),
            region: name("r"),
            protocol: 1,
            services: vec![name("s")],
            seen_term: 0,
            seen_version: 0,
        };
        assert!(self.link.send(Up::Hello(hello)));
        self
    }

    fn report(&mut self, change: impl Fn(&mut Report)) {
        self.seq += 1;
        let key = |b| KeyName { service: name("s"), bucket: name(b), values: KeyValues::Whole };
        let entry = |key| Entry {
            key,
            counts: self.counts,
            offered_rps: 600.0,
            usual_rps: 0.0,
            flight: Flight::default(),
            sessions: 1,
        };
        let mut report = Report {
            seq: self.seq,
            interval: TICK,
            new_keys: vec![(0, key("region")), (1, key("zone"))],
            entries: vec![entry(0), entry(1)],
            ..Report::default()
        };
        change(&mut report);
        self.link.send(Up::Report(report));
    }

    /// Reports 30 more requests each tick, and takes in what comes, until `enough`.
    async fn work_until(&mut self, mut enough: impl FnMut(&[Option<Directive>; 2]) -> bool) {
        let mut ticks = tokio::time::interval(TICK);
        within(async {
            while !enough(&self.directives) {
                tokio::select! {
                    _ = ticks.tick() => {
                        let more = Counts { matched: 30, offered: 30, admitted: 7, would_drop: 0 };
                        self.counts.add(&more);
                        self.report(|_| {});
                    }
                    event = self.link.next() => match event {
                        Event::Down(Down::Update(update)) => {
                            for (key, directive) in update.directives {
                                self.directives[key as usize] = Some(directive);
                            }
                        }
                        Event::Down(Down::Configuration(_)) => {}
                        other => panic!("the stream stays open: {other:?}"),
                    },
                }
            }
        })
        .await;
    }
}

/// Whether both buckets are enforced: 300 and 150 of 600, once credit is used up.
fn is_enforced(directives: &[Option<Directive>; 2]) -> bool {
    let drop = |d: &Option<Directive>| d.map_or(0.0, |d| d.admit.drop_ratio());
    drop(&directives[0]) > 0.45 && drop(&directives[1]) > 0.7
}

#[tokio::test]
async fn directives_of_both_roots_reach_a_client() {
    let dir = buckets();
    let controller = controller(dir.path(), any_port()).await;
    let aggregator = aggregator(&[controller.local_addr()]).await;
    let mut client = Client::connect(&aggregator, Role::Client).await;
    client.work_until(is_enforced).await;
    let [Some(region), Some(zone)] = client.directives else { panic!("both") };
    assert!((region.limit_rps - 300.0).abs() < 1e-9 && (zone.limit_rps - 150.0).abs() < 1e-9);
    assert!(region.admit.share() >= 0.49 && zone.admit.share() >= 0.24, "no more is dropped");

    until(|| aggregator.view().is_ready).await;
    let status = aggregator.status();
    assert_eq!((status.sessions_count, status.keys_count), (1, 2));
    assert!(status.parent.is_some_and(|p| p.connected));
    let text = metrics(&aggregator);
    let labels = "{bucket=\"zone\",key=\"\",region=\"r\",service=\"s\",zone=\"z\"}";
    assert!(text.contains(&format!("sluicegate_aggregator_key_offered_rps{labels} 600")), "{text}");
    assert!(text.contains(&format!("sluicegate_aggregator_key_limit_rps{labels} 150")), "{text}");

    // The last counts reach the controller even if the aggregator stops before its next tick.
    client.report(|_| {});
    let counted = client.counts.offered;
    client.work_until(|_| true).await;
    until(|| aggregator.view().view.keys.iter().all(|k| k.counts.offered == counted)).await;
    aggregator.shutdown().await;
    let of_region = || {
        let view = controller.view();
        view.view.keys.iter().find(|k| k.name.bucket == *"region").map(|k| k.counts.offered)
    };
    until(|| of_region() == Some(counted)).await;
}

#[tokio::test]
async fn a_controller_that_comes_back_is_found_again() {
    let dir = buckets();
    let first = controller(dir.path(), any_port()).await;
    let address = first.local_addr();
    let aggregator = aggregator(&[address]).await;
    let mut client = Client::connect(&aggregator, Role::Client).await;
    client.work_until(is_enforced).await;
    let before = client.directives[0].expect("enforced").term;
    first.shutdown().await;
    until(|| !aggregator.status().parent.is_some_and(|p| p.connected)).await;

    let began = tokio::time::Instant::now();
    let second = controller(dir.path(), address).await;
    client.work_until(|d| d[0].is_some_and(|d| d.term > before)).await;
    client.work_until(is_enforced).await;
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert!(aggregator.view().view.term > before);
    // What is shown may be of a moment ago.
    until(|| second.view().view.sessions.len() == 1).await;
}

#[tokio::test]
async fn an_aggregator_takes_the_controller_that_answers() {
    let dir = buckets();
    let controller = controller(dir.path(), any_port()).await;
    let unused = std::net::TcpListener::bind(any_port()).expect("a port");
    let nobody = unused.local_addr().expect("an address");
    drop(unused);
    let aggregator = aggregator(&[nobody, controller.local_addr()]).await;
    until(|| aggregator.view().is_ready).await;
    assert!(aggregator.view().view.version > 0);
}

#[tokio::test]
async fn bad_input_is_absorbed_or_refused_and_counted() {
    let dir = buckets();
    let controller = controller(dir.path(), any_port()).await;
    let aggregator = aggregator(&[controller.local_addr()]).await;
    let mut good = Client::connect(&aggregator, Role::Client).await;
    good.work_until(is_enforced).await;

    // Absorbed: the stream goes on.
    let mut odd = Client::connect(&aggregator, Role::Client).await;
    odd.counts = Counts { matched: 9, offered: 9, admitted: 9, would_drop: 0 };
    odd.report(|_| {});
    odd.report(|r| r.entries[0].counts.matched = 5);
    odd.report(|r| r.entries[0].counts.admitted = 10);
    odd.report(|r| r.entries[0].key = 77);
    odd.report(|r| r.seq = 1);
    let counter = |name: &str| {
        let view = aggregator.view();
        view.view.counters.iter().find(|(n, _)| *n == name).map_or(0, |(_, v)| v)
    };
    // Counts that went back here are also counts that contradict each other.
    until(|| counter("entries_went_back") + counter("entries_inconsistent") >= 2).await;
    until(|| counter("entries_unknown_key") >= 1 && counter("reports_repeated") >= 1).await;
    assert_eq!(aggregator.view().view.sessions.len(), 2, "the odd one stays");

    // Refused: the stream is closed with a reason.
    let mut twice = Client::connect(&aggregator, Role::Client).await.hello(Role::Client);
    let reason = closed(&mut twice).await;
    assert!(reason.contains("InvalidArgument"), "{reason}");
    let mut zero = Client::connect(&aggregator, Role::Client).await;
    zero.report(|r| r.interval = Duration::ZERO);
    let reason = closed(&mut zero).await;
    assert!(reason.contains("interval_ns is 0"), "{reason}");
    let mut wrong = Client::connect(&aggregator, Role::Aggregator).await;
    let reason = closed(&mut wrong).await;
    assert!(reason.contains("InvalidArgument"), "{reason}");
    for reason in ["second_hello", "malformed", "role"] {
        assert_eq!(aggregator.tally().refused_for(reason), 1, "{reason}");
        assert!(metrics(&aggregator).contains(&format!("reason=\"{reason}\"")));
    }

    // And the good one is served as before.
    good.directives = [None; 2];
    good.work_until(is_enforced).await;
}

/// Waits for the end of the stream.
async fn closed(client: &mut Client) -> String {
    within(async {
        loop {
            if let Event::Close { reason } = client.link.next().await {
                return reason;
            }
        }
    })
    .await
}

fn metrics(running: &Running) -> String {
    let registry = prometheus::Registry::new();
    registry.register(Box::new(running.collector())).expect("registered");
    prometheus::TextEncoder::new().encode_to_string(&registry.gather()).expect("text")
}
