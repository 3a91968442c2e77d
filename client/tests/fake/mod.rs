//! An aggregator that says what a test tells it to, over real gRPC on loopback.
#![allow(dead_code, reason = "each test file uses its own part")]

use sluicegate_model::Law;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_model::{
    AdmitRatio, Bucket, Configuration, Directive, Down, Limit, Mode, Name, OnControlLoss, Owner,
    Report, Rule, Scope, Select, ServiceBuckets, TokenRate, Up, Update,
};
use sluicegate_proto::v1::tier_server::{Tier, TierServer};
use sluicegate_proto::wire::{Decoder, Frames, encode_down};
use sluicegate_proto::{transport, v1};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::{broadcast, mpsc};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};

/// The fake, while it lives.
pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    /// What clients said, in order.
    pub(crate) seen: mpsc::Receiver<Up>,
    push: broadcast::Sender<v1::Down>,
    /// Of its own, so that nothing of it outlives it.
    runtime: Option<Runtime>,
}

impl Fake {
    /// On any free port, with this configuration for everybody.
    pub(crate) fn start(services: Vec<ServiceBuckets>) -> Self {
        Self::start_at("127.0.0.1:0".parse().expect("an address"), services)
    }

    /// On that address.
    pub(crate) fn start_at(address: SocketAddr, services: Vec<ServiceBuckets>) -> Self {
        Self::start_with(address, services, None)
    }

    /// On that address; each report is answered with `admit` for every key in it.
    pub(crate) fn start_with(
        address: SocketAddr,
        services: Vec<ServiceBuckets>,
        admit: Option<AdmitRatio>,
    ) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let listener = std::net::TcpListener::bind(address).expect("a free port");
        listener.set_nonblocking(true).expect("a socket");
        let address = listener.local_addr().expect("bound");
        let (tell, seen) = mpsc::channel(10_000);
        let (push, _) = broadcast::channel(64);
        let configuration = Configuration {
            version: 1,
            term: 1,
            full: true,
            law: Law::Ratio,
            services: services.into_iter().map(Arc::new).collect(),
            removed: vec![],
        };
        let service = Service { tell, push: push.clone(), configuration, admit };
        let server = transport::server().add_service(TierServer::new(service));
        runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).expect("a socket");
            let serving = server.serve_with_incoming(TcpListenerStream::new(listener));
            serving.await.expect("serves");
        });
        Self { address, seen, push, runtime: Some(runtime) }
    }

    /// Says `down` to everybody.
    pub(crate) fn push(&self, down: &Down) {
        for frame in Frames::of(encode_down(down)) {
            self.push.send(frame).expect("somebody listens");
        }
    }

    /// Says something that is not of the protocol.
    pub(crate) fn push_raw(&self, frame: v1::Down) {
        self.push.send(frame).expect("somebody listens");
    }

    /// The next message that `wanted` picks.
    pub(crate) async fn wait<T>(&mut self, wanted: impl Fn(Up) -> Option<T>) -> T {
        let found = async {
            loop {
                let up = self.seen.recv().await.expect("the fake lives");
                if let Some(found) = wanted(up) {
                    return found;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(10), found).await.expect("said within 10 s")
    }

    /// Goes away, connections included.
    pub(crate) fn kill(self) {}
}

impl Drop for Fake {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

struct Service {
    tell: mpsc::Sender<Up>,
    push: broadcast::Sender<v1::Down>,
    configuration: Configuration,
    admit: Option<AdmitRatio>,
}

#[tonic::async_trait]
impl Tier for Service {
    type ConnectStream = ReceiverStream<Result<v1::Down, Status>>;

    async fn connect(
        &self,
        request: Request<Streaming<v1::Up>>,
    ) -> Result<Response<Self::ConnectStream>, Status> {
        let mut inbound = request.into_inner();
        let (out, stream) = mpsc::channel(1024);
        let (tell, mut pushed) = (self.tell.clone(), self.push.subscribe());
        let configuration = Down::Configuration(self.configuration.clone());
        let admit = self.admit;
        tokio::spawn(async move {
            let mut decoder = Decoder::<v1::Up>::default();
            loop {
                let answer = tokio::select! {
                    frame = inbound.message() => {
                        let Ok(Some(frame)) = frame else { return };
                        let Ok(up) = decoder.take_in(frame) else { return };
                        let answer = up.as_ref().and_then(|up| match up {
                            Up::Hello(_) => Some(encode_down(&configuration)),
                            Up::Report(report) => Some(encode_down(&answer(report, admit))),
                            Up::ConfigurationApplied(_) | Up::Seen { .. } => None,
                        });
                        if let Some(up) = up {
                            // Nobody has to listen.
                            let _ = tell.try_send(up);
                        }
                        answer
                    }
                    frame = pushed.recv() => frame.ok(),
                };
                if let Some(answer) = answer
                    && out.send(Ok(answer)).await.is_err()
                {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}

fn answer(report: &Report, admit: Option<AdmitRatio>) -> Down {
    let directive = |admit| Directive {
        admit,
        headroom: 0.0,
        sigma: 0.0,
        grant: None,
        limit_rps: 1000.0,
        sessions: 1,
        term: 1,
        seq: report.seq,
        ttl: Duration::from_secs(10),
    };
    let keys = report.entries.iter().map(|entry| entry.key);
    let directives = admit.into_iter().flat_map(|a| keys.clone().map(move |k| (k, directive(a))));
    Down::Update(Update { ack_seq: report.seq, directives: directives.collect() })
}

/// One service with one region bucket for everything, of `limit_rps`.
pub(crate) fn service(name: &str, bucket: &str, mode: Mode, limit_rps: u64) -> ServiceBuckets {
    ServiceBuckets {
        service: Name::new(name).expect("a name"),
        owner: Owner::default(),
        select: Select::All,
        buckets: vec![Bucket {
            name: Name::new(bucket).expect("a name"),
            scope: Scope::Region,
            rule: Rule::default(),
            limit: Limit::Tokens(TokenRate::per_second(limit_rps, None).expect("a rate")),
            mode,
            per: None,
            on_control_loss: OnControlLoss::Open,
            guard: false,
            enforce: 1.0,
            max_drop: 1.0,
            sharing: None,
        }],
    }
}

/// Waits until `holds`, at most 10 s.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("not within 10 s: {what}");
}
