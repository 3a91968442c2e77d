//! A core without a law, a node around it, and children that can misbehave.
#![allow(dead_code, reason = "each test binary uses its own part")]

use sluicegate_model::Law;
use std::collections::{BTreeSet, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use sluicegate_law::{Counters, Refusal, SessionId, View};
use sluicegate_model::{Configuration, Down, Hello, Name, Role, Time, Up, Update};
use sluicegate_node::{Bounds, Core, Identity, Node, Parent, Running, start};
use sluicegate_proto::v1;
use sluicegate_proto::wire::encode_up;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};

pub(crate) const TICK: Duration = Duration::from_millis(50);

/// Answers `ConfigurationApplied(n)` with n configurations of about 100 kB, and each report with an
/// acknowledgement; says hello to its parent, and a last word when time runs out.
#[derive(Default)]
pub(crate) struct Echo {
    out: VecDeque<(SessionId, Down)>,
    up: VecDeque<Up>,
    open: BTreeSet<SessionId>,
    next: Time,
    tick: Duration,
    reports: u64,
    /// What the last word of a child was.
    seen_below: u64,
    version: u64,
}

impl Core for Echo {
    type Change = u64;

    fn handle_child_open(&mut self, _: Time, id: SessionId, hello: Hello) -> Result<(), Refusal> {
        if hello.protocol == 0 {
            return Err(Refusal::Protocol { offered: 0 });
        }
        self.open.insert(id);
        Ok(())
    }

    fn handle_child(&mut self, _: Time, id: SessionId, up: Up) -> Result<(), Refusal> {
        assert!(self.open.contains(&id), "a message of a stream that is not open");
        match up {
            Up::Hello(_) => return Err(Refusal::SecondHello),
            Up::Report(report) => {
                self.reports += 1;
                let update = Update { ack_seq: report.seq, directives: vec![] };
                self.out.push_back((id, Down::Update(update)));
            }
            Up::ConfigurationApplied(n) => {
                for version in 1..=n {
                    let removed = (0..500).map(|i| name(&format!("{i:0>190}"))).collect();
                    let configuration = Configuration {
                        version,
                        term: 1,
                        full: false,
                        law: Law::Ratio,
                        services: vec![],
                        removed,
                    };
                    self.out.push_back((id, Down::Configuration(configuration)));
                }
            }
            Up::Seen { version, .. } => self.seen_below = version,
        }
        Ok(())
    }

    fn handle_child_close(&mut self, _: Time, id: SessionId) {
        self.open.remove(&id);
    }

    fn poll_child(&mut self) -> Option<(SessionId, Down)> {
        self.out.pop_front()
    }

    fn handle_timeout(&mut self, now: Time) {
        if now >= self.next {
            self.up.push_back(Up::Seen { term: 7, version: self.reports });
            self.next = now + self.tick;
        }
    }

    fn poll_timeout(&self) -> Time {
        self.next
    }

    fn handle_change(&mut self, _: Time, version: u64) {
        self.version = version;
    }

    fn view(&self) -> View {
        View {
            term: 1,
            version: self.version,
            sessions: vec![],
            keys: vec![],
            services: vec![],
            counters: Counters {
                reports: self.reports,
                entries: self.seen_below,
                ..Counters::default()
            },
            parent_open: None,
        }
    }

    fn is_ready(view: &View) -> bool {
        view.version > 0
    }

    fn handle_parent_open(&mut self, _: Time) {
        self.up.push_back(hello("middle"));
    }

    fn poll_parent(&mut self) -> Option<Up> {
        self.up.pop_front()
    }
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

pub(crate) fn hello(node: &str) -> Up {
    Up::Hello(Hello {
        role: Role::Client,
        node: name(node),
        session: 1,
        zone: name("z"),
        region: name("r"),
        protocol: 1,
        services: vec![],
        seen_term: 0,
        seen_version: 0,
    })
}

pub(crate) async fn node(bounds: Bounds) -> Running<Echo> {
    node_with(bounds, None, TICK).await
}

pub(crate) async fn node_with(
    bounds: Bounds,
    parent: Option<SocketAddr>,
    tick: Duration,
) -> Running<Echo> {
    let identity = Identity {
        role: "aggregator",
        metrics_prefix: "sluicegate_aggregator",
        node: name("n"),
        zone: Some(name("z")),
        region: name("r"),
    };
    let node = Node {
        identity,
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        bounds,
        tick,
        parent: parent.map(|p| Parent { addresses: vec![p.into()], seed: 1 }),
        samples: Arc::new(Vec::new),
        make: Box::new(move |_| Echo { tick, ..Echo::default() }),
    };
    start(node).await.expect("a node on a free port")
}

/// A child that sends what it likes.
pub(crate) struct Child {
    frames: mpsc::Sender<Bytes>,
    pub(crate) answers: Streaming<v1::Down>,
}

impl Child {
    /// A stream without a hello.
    pub(crate) async fn connect(address: SocketAddr) -> Result<Self, Status> {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
        let channel = endpoint.initial_stream_window_size(65_535).connect().await;
        let mut grpc = tonic::client::Grpc::new(channel.expect("a connection"));
        let (frames, queue) = mpsc::channel(16);
        grpc.ready().await.expect("ready");
        let path = http::uri::PathAndQuery::from_static("/sluicegate.v1.Tier/Connect");
        let request = Request::new(ReceiverStream::new(queue));
        let answers = grpc.streaming(request, path, RawCodec).await?.into_inner();
        Ok(Self { frames, answers })
    }

    /// A stream with a hello.
    pub(crate) async fn open(address: SocketAddr) -> Self {
        let child = Self::connect(address).await.expect("a stream");
        child.send(&hello("child")).await;
        child
    }

    pub(crate) async fn send(&self, up: &Up) {
        self.send_raw(prost::Message::encode_to_vec(&encode_up(up))).await;
    }

    pub(crate) async fn send_raw(&self, bytes: impl Into<Bytes>) {
        // An error means that the stream is over, which its answers show.
        let _ = self.frames.send(bytes.into()).await;
    }

    /// Reads on until the stream ends, and how.
    pub(crate) async fn end(mut self) -> Result<(), Status> {
        within(async {
            while self.answers.message().await?.is_some() {}
            Ok(())
        })
        .await
    }

    /// Whether it is served: whether a report is acknowledged.
    pub(crate) async fn is_served(&mut self, seq: u64) -> bool {
        let report = sluicegate_model::Report { seq, interval: TICK, ..Default::default() };
        self.send(&Up::Report(report)).await;
        let ack = v1::Update { ack_seq: seq, directives: vec![] };
        let ack = v1::Down { message: Some(v1::down::Message::Update(ack)) };
        within(self.answers.message()).await.is_ok_and(|m| m == Some(ack))
    }
}

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("within 20 s")
}

/// Waits until `condition`.
pub(crate) async fn until(mut condition: impl FnMut() -> bool) {
    within(async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Sends bytes as they are.
struct RawCodec;

struct RawEncoder;

struct DownDecoder;

impl Codec for RawCodec {
    type Encode = Bytes;
    type Decode = v1::Down;
    type Encoder = RawEncoder;
    type Decoder = DownDecoder;

    fn encoder(&mut self) -> RawEncoder {
        RawEncoder
    }

    fn decoder(&mut self) -> DownDecoder {
        DownDecoder
    }
}

impl Encoder for RawEncoder {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, dst: &mut EncodeBuf<'_>) -> Result<(), Status> {
        dst.put(item);
        Ok(())
    }
}

impl Decoder for DownDecoder {
    type Item = v1::Down;
    type Error = Status;

    fn decode(&mut self, src: &mut DecodeBuf<'_>) -> Result<Option<v1::Down>, Status> {
        let bytes = src.copy_to_bytes(src.remaining());
        prost::Message::decode(bytes).map(Some).map_err(|e| Status::internal(e.to_string()))
    }
}

/// For tests that need a plain channel.
pub(crate) async fn channel(address: SocketAddr) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    endpoint.connect().await.expect("a connection")
}
