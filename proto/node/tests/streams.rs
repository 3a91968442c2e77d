//! Streams that misbehave are closed, with a reason for the child and a count for the operator, and
//! the others do not notice.

mod support;

use std::time::Duration;

use sluicegate_model::{Report, Up};
use sluicegate_node::{Bounds, CLOSE_GRACE, Running};
use sluicegate_proto::v1;
use sluicegate_proto::wire::encode_up;
use support::{Child, Echo, TICK, hello, node, node_with, until};
use tonic::Code;

async fn usual() -> Running<Echo> {
    node(Bounds::default()).await
}

/// Sends `bytes` after a hello while another child is served; gives the end of the stream.
async fn misbehave(running: &Running<Echo>, bytes: Vec<u8>, reason: &str) -> tonic::Status {
    let address = running.local_addr();
    let mut other = Child::open(address).await;
    assert!(other.is_served(1).await);
    let before = running.tally().refused_for(reason);
    let child = Child::open(address).await;
    child.send_raw(bytes).await;
    let status = child.end().await.expect_err("closed with a reason");
    assert_eq!(running.tally().refused_for(reason), before + 1, "{reason}");
    assert!(other.is_served(2).await, "others go on");
    status
}

#[tokio::test]
async fn garbage_is_refused() {
    let running = usual().await;
    let status = misbehave(&running, vec![0xff; 100], "undecodable").await;
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    // A message with nothing in it decodes, and says nothing.
    let status = misbehave(&running, vec![], "malformed").await;
    assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "up.message is missing"));
}

#[tokio::test]
async fn a_message_of_16_mib_is_refused() {
    let running = usual().await;
    let chunk = v1::Chunk { data: vec![1; 16 << 20].into(), last: true };
    let up = v1::Up { message: Some(v1::up::Message::Chunk(chunk)) };
    let bytes = prost::Message::encode_to_vec(&up);
    let status = misbehave(&running, bytes, "oversize").await;
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
}

#[tokio::test]
async fn an_interval_of_zero_is_refused() {
    let running = usual().await;
    let report = Report { seq: 1, interval: Duration::ZERO, ..Report::default() };
    let bytes = prost::Message::encode_to_vec(&encode_up(&Up::Report(report)));
    let status = misbehave(&running, bytes, "malformed").await;
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(status.message(), "report.interval_ns is 0, allowed is 1 or more");
    assert_eq!(running.tally().refused()[&("malformed", "not_allowed")], 1);
}

#[tokio::test]
async fn a_second_hello_is_refused() {
    let running = usual().await;
    let bytes = prost::Message::encode_to_vec(&encode_up(&hello("again")));
    let status = misbehave(&running, bytes, "second_hello").await;
    assert_eq!(status.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_stream_begins_with_a_hello_and_soon() {
    let bounds = Bounds { hello_timeout: Duration::from_millis(200), ..Bounds::default() };
    let running = node(bounds).await;
    let silent = Child::connect(running.local_addr()).await.expect("a stream");
    let status = silent.end().await.expect_err("refused");
    assert_eq!(status.code(), Code::DeadlineExceeded);

    let rude = Child::connect(running.local_addr()).await.expect("a stream");
    rude.send(&Up::ConfigurationApplied(1)).await;
    let status = rude.end().await.expect_err("refused");
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(running.tally().refused_for("no_hello"), 2);

    let bytes = prost::Message::encode_to_vec(&encode_up(&hello("old"))).into_iter();
    // Field 6 (protocol) is the byte 0x30 and its value: 1 becomes 0.
    let mut bytes: Vec<u8> = bytes.collect();
    let at = bytes.windows(2).position(|w| w == [0x30, 1]).expect("the protocol");
    bytes[at + 1] = 0;
    let old = Child::connect(running.local_addr()).await.expect("a stream");
    old.send_raw(bytes).await;
    let status = old.end().await.expect_err("refused");
    assert_eq!(status.code(), Code::FailedPrecondition);
}

#[tokio::test]
async fn streams_are_bounded_and_places_come_back() {
    let running = node(Bounds { max_streams: 2, ..Bounds::default() }).await;
    let address = running.local_addr();
    let (mut first, second) = (Child::open(address).await, Child::open(address).await);
    assert!(first.is_served(1).await);
    let status = Child::connect(address).await.err().expect("no place");
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(running.tally().refused_for("too_many_streams"), 1);
    drop(second);
    support::within(async {
        while Child::connect(address).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn connections_are_bounded() {
    let running = node(Bounds { max_connections: 1, ..Bounds::default() }).await;
    let mut first = Child::open(running.local_addr()).await;
    assert!(first.is_served(1).await);
    let mut second = tokio::net::TcpStream::connect(running.local_addr()).await.expect("accepted");
    let mut byte = [0; 1];
    let read = tokio::io::AsyncReadExt::read(&mut second, &mut byte);
    assert!(!matches!(support::within(read).await, Ok(1..)), "closed at once");
    assert!(metrics(&running).contains("connections_refused_total{region=\"r\",zone=\"z\"} 1"));
    assert!(first.is_served(2).await);
}

#[tokio::test]
async fn connections_without_a_request_make_room() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let hello_timeout = Duration::from_millis(500);
    let running = node(Bounds { max_connections: 7, hello_timeout, ..Bounds::default() }).await;
    let address = running.local_addr();
    let mut used = Child::open(address).await;
    assert!(used.is_served(1).await);
    // Nothing; half a preface; a whole one with settings, but no stream.
    let preface: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let mut silent = Vec::new();
    for said in [&b""[..], b"", &preface[..9], &preface[..9], preface, preface] {
        let mut tcp = tokio::net::TcpStream::connect(address).await.expect("accepted");
        tcp.write_all(said).await.expect("sent");
        silent.push(tcp);
    }
    let mut refused = tokio::net::TcpStream::connect(address).await.expect("accepted");
    assert!(!matches!(support::within(refused.read(&mut [0])).await, Ok(1..)), "no place");
    assert_eq!(running.tally().silent_connections(), 0, "too soon");
    for mut tcp in silent {
        // What the server says of itself may come first. It ends, in one way or the other.
        let _ = support::within(tcp.read_to_end(&mut Vec::new())).await;
    }
    assert_eq!(running.tally().silent_connections(), 6);
    let mut late = Child::open(address).await;
    assert!(late.is_served(1).await, "a place for a real child");
    assert!(used.is_served(2).await, "a connection in use stays");
    assert!(metrics(&running).contains("connections_silent_total{region=\"r\",zone=\"z\"} 6"));
}

#[tokio::test]
async fn messages_in_pieces_are_bounded_over_all_streams() {
    let running = node(Bounds { max_pending_bytes: 3 << 20, ..Bounds::default() }).await;
    let address = running.local_addr();
    let piece = || {
        let chunk = v1::Chunk { data: vec![0; 1 << 20].into(), last: false };
        let up = v1::Up { message: Some(v1::up::Message::Chunk(chunk)) };
        prost::Message::encode_to_vec(&up)
    };
    let mut other = Child::open(address).await;
    let (first, second) = (Child::open(address).await, Child::open(address).await);
    first.send_raw(piece()).await;
    first.send_raw(piece()).await;
    // The window of a stream lets the second megabyte through only once the first was read.
    tokio::time::sleep(Duration::from_millis(200)).await;
    second.send_raw(piece()).await;
    second.send_raw(piece()).await;
    let status = second.end().await.expect_err("one too many");
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    assert_eq!(running.tally().refused_for("pending_bytes"), 1);
    assert!(other.is_served(1).await);
    // What a stream held is free again when it is gone.
    drop(first);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let third = Child::open(address).await;
    for _ in 0..3 {
        third.send_raw(piece()).await;
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(other.is_served(2).await);
    assert_eq!(running.tally().refused_for("pending_bytes"), 1);
}

#[tokio::test]
async fn who_does_not_read_is_closed_and_then_cut_off() {
    let running = node(Bounds { child_queue: 8, ..Bounds::default() }).await;
    let address = running.local_addr();
    let mut other = Child::open(address).await;
    assert!(other.is_served(1).await);
    // More than the window of a stream holds, and then more than the queue does.
    let fill = async || {
        let child = Child::open(address).await;
        child.send(&Up::ConfigurationApplied(5)).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        child.send(&Up::ConfigurationApplied(20)).await;
        child
    };
    let slow = fill().await;
    until(|| running.tally().refused_for("slow_reader") == 1).await;
    assert!(other.is_served(2).await, "others go on");
    // Even now it does not read. Its place is taken from it all the same.
    tokio::time::sleep(CLOSE_GRACE + Duration::from_millis(500)).await;
    let status = slow.end().await.expect_err("cut off");
    assert_ne!(status.code(), Code::ResourceExhausted, "the reason never arrived: {status:?}");
    assert!(other.is_served(3).await);

    // Who reads in time is told the reason.
    let late = fill().await;
    until(|| running.tally().refused_for("slow_reader") == 2).await;
    let status = late.end().await.expect_err("closed");
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
}

#[tokio::test]
async fn a_flood_is_slowed_down_and_not_refused() {
    let running = node(Bounds { max_frames_per_s: 20, ..Bounds::default() }).await;
    let mut child = Child::open(running.local_addr()).await;
    let began = tokio::time::Instant::now();
    for seq in 1..=50 {
        assert!(child.is_served(seq).await);
    }
    assert!(began.elapsed() > Duration::from_secs(1), "{:?}", began.elapsed());
    let text = metrics(&running);
    assert!(text.contains("sluicegate_aggregator_streams_throttled_total"), "{text}");
    assert!(running.tally().refused().is_empty());
}

#[tokio::test]
async fn a_stop_ends_streams_in_order() {
    let running = usual().await;
    let address = running.local_addr();
    let mut child = Child::open(address).await;
    assert!(child.is_served(1).await);
    let (end, ()) = tokio::join!(child.end(), running.shutdown());
    end.expect("ended without an error");
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn a_last_roll_up_reaches_the_parent() {
    let parent = usual().await;
    // It rolls up at once, and then not for an hour.
    let hour = Duration::from_secs(3600);
    let middle = node_with(Bounds::default(), Some(parent.local_addr()), hour).await;
    until(|| middle.status().parent.is_some_and(|p| p.connected)).await;
    let mut child = Child::open(middle.local_addr()).await;
    for seq in 1..=3 {
        assert!(child.is_served(seq).await);
    }
    middle.shutdown().await;
    until(|| parent.view().view.counters.entries == 3).await;
}

#[tokio::test]
async fn a_child_reaches_the_second_parent_and_comes_back() {
    use sluicegate_proto::link::{Event, Link};
    let unused = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let nobody = unused.local_addr().expect("an address");
    drop(unused);
    let first = usual().await;
    let mut link = Link::start(vec![nobody.into(), first.local_addr().into()], 3);
    let Event::Open(address) = support::within(link.next()).await else { panic!("open first") };
    assert_eq!(address, first.local_addr().into());
    assert!(link.send(hello("child")));
    assert!(link.send(Up::Report(Report { seq: 9, interval: TICK, ..Report::default() })));
    let Event::Down(_) = support::within(link.next()).await else { panic!("an acknowledgement") };
    first.shutdown().await;
    let Event::Close { .. } = support::within(link.next()).await else { panic!("close") };
    assert!(!link.send(hello("nobody hears it")));
    assert!(!link.stats().is_open());
}

/// A peer that is connected and says nothing at all, as one behind a broken network is.
#[tokio::test]
async fn a_peer_that_went_silent_is_given_up() {
    use sluicegate_proto::link::{Event, Link};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let running = usual().await;
    let child = async {
        let mut tcp = tokio::net::TcpStream::connect(running.local_addr()).await.expect("open");
        // The opening of HTTP/2 with empty settings, and not one answer to a ping.
        tcp.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.expect("sent");
        let mut heard = Vec::new();
        // Closed or reset, both will do.
        let _ = tcp.read_to_end(&mut heard).await;
        assert!(!heard.is_empty(), "it did answer");
    };
    let parent = async {
        let hole = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addresses = [hole.local_addr().expect("an address"), running.local_addr()];
        let mut link = Link::start(addresses.map(Into::into).to_vec(), 1);
        let _open = hole.accept().await.expect("the link tries it first");
        assert_eq!(link.next().await, Event::Open(running.local_addr().into()));
    };
    support::within(async { tokio::join!(child, parent) }).await;
}

#[tokio::test]
async fn health_and_reflection_are_offered() {
    use tonic_health::pb::health_client::HealthClient;
    use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus};
    let running = usual().await;
    let mut health = HealthClient::new(support::channel(running.local_addr()).await);
    let request = HealthCheckRequest { service: "sluicegate.v1.Tier".to_owned() };
    let mut watch = health.watch(request).await.expect("watched").into_inner();
    let mut next = async || watch.message().await.expect("told").expect("a status").status;
    let mut status = next().await;
    if status == i32::from(ServingStatus::ServiceUnknown) {
        status = next().await;
    }
    assert_eq!(status, i32::from(ServingStatus::NotServing), "no configuration yet");
    assert!(running.change(1).await);
    assert_eq!(support::within(next()).await, i32::from(ServingStatus::Serving));

    // Whoever watches hears of the stop, and cannot hold it up.
    let (stopped, ()) = tokio::join!(next(), support::within(running.shutdown()));
    assert_eq!(stopped, i32::from(ServingStatus::NotServing));
}

#[tokio::test]
async fn status_and_metrics_say_what_happened() {
    let running = usual().await;
    misbehave(&running, vec![0xff; 3], "undecodable").await;
    assert!(running.change(5).await);
    until(|| running.view().view.version == 5).await;
    let status = running.status();
    assert_eq!((status.role.as_str(), status.configuration_version), ("aggregator", 5));
    assert!(status.ready);
    assert_eq!(status.refused[0].reason, "undecodable");
    let json = serde_json::to_string(&status).expect("JSON");
    assert_eq!(serde_json::from_str::<sluicegate_node::Status>(&json).expect("read"), status);

    let text = metrics(&running);
    for line in [
        "sluicegate_aggregator_configuration_version{region=\"r\",zone=\"z\"} 5",
        "sluicegate_aggregator_ready{region=\"r\",zone=\"z\"} 1",
        "sluicegate_aggregator_streams_opened_total{region=\"r\",zone=\"z\"} 2",
        "sluicegate_aggregator_streams_refused_total{detail=\"\",reason=\"undecodable\",\
         region=\"r\",zone=\"z\"} 1",
        "sluicegate_aggregator_core_events_total{event=\"reports\",region=\"r\",zone=\"z\"} 2",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

/// As a scrape sees it.
fn metrics(running: &Running<Echo>) -> String {
    let registry = prometheus::Registry::new();
    registry.register(Box::new(running.collector())).expect("registered");
    prometheus::TextEncoder::new().encode_to_string(&registry.gather()).expect("text")
}
