//! Where children come in: one reader for each stream, which turns frames into messages for the
//! pump and refuses what breaks the protocol, and the stream of answers that the pump fills.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use sluicegate_law::{Refusal, SessionId};
use sluicegate_model::{Hello, Up};
use sluicegate_proto::v1;
use sluicegate_proto::v1::tier_server::Tier;
use sluicegate_proto::wire::{Decoder, Frames, Malformed};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, timeout};
use tokio_stream::Stream;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Code, Request, Response, Status, Streaming};

use crate::connection::{CLOSE_GRACE, Connection};
use crate::tally::Tally;

/// What children may do at most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// Streams open at once.
    pub max_streams: usize,
    /// Connections open at once.
    pub max_connections: usize,
    /// The largest frame, in bytes.
    pub max_frame_bytes: usize,
    /// Bytes of messages in pieces that are not complete yet, of all streams together.
    pub max_pending_bytes: usize,
    /// Frames of one stream a second; beyond, it is not read until the second is over.
    pub max_frames_per_s: u32,
    /// How long a stream may stay without a hello, and a connection without its first stream.
    pub hello_timeout: Duration,
    /// Messages that may wait for one child to read them; one more and its stream is closed.
    pub child_queue: usize,
    /// Messages of all children that may wait for the core; beyond, streams are not read.
    pub event_queue: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            max_streams: 20_000,
            max_connections: 20_000,
            max_frame_bytes: sluicegate_proto::transport::MAX_FRAME_BYTES,
            max_pending_bytes: 256 << 20,
            max_frames_per_s: 1000,
            hello_timeout: Duration::from_secs(5),
            child_queue: 64,
            event_queue: 4096,
        }
    }
}

impl Bounds {
    /// These, made safe: no queue is without a place, and nothing is beyond what a semaphore counts.
    pub(crate) fn sound(mut self) -> Self {
        let counts = [
            &mut self.max_streams,
            &mut self.max_connections,
            &mut self.child_queue,
            &mut self.event_queue,
        ];
        for count in counts {
            *count = (*count).clamp(1, Semaphore::MAX_PERMITS);
        }
        self
    }
}

/// What the door tells the pump.
pub(crate) enum Event {
    /// A stream has begun with this hello.
    Open(SessionId, Hello, Child),
    /// A child says something.
    Up(SessionId, Up),
    /// A child broke the protocol.
    Broke(SessionId, Breach),
    /// A child is gone.
    Close(SessionId),
}

/// Why a stream is closed, for the child and for the metric.
pub(crate) struct Breach {
    pub(crate) reason: &'static str,
    pub(crate) detail: &'static str,
    pub(crate) status: Status,
}

impl Breach {
    pub(crate) fn new(reason: &'static str, status: Status) -> Self {
        Self { reason, detail: "", status }
    }
}

impl From<Malformed> for Breach {
    fn from(malformed: Malformed) -> Self {
        let status = Status::invalid_argument(malformed.to_string());
        Self { reason: "malformed", detail: malformed.reason(), status }
    }
}

impl From<Refusal> for Breach {
    fn from(refusal: Refusal) -> Self {
        let code = match refusal {
            Refusal::Full { .. } | Refusal::Services { .. } | Refusal::ReportTooLarge { .. } => {
                Code::ResourceExhausted
            }
            Refusal::Protocol { .. } => Code::FailedPrecondition,
            _ => Code::InvalidArgument,
        };
        Self { reason: refusal.label(), detail: "", status: Status::new(code, refusal.to_string()) }
    }
}

/// The pump's end of a child's stream. Dropped, it ends the stream in order.
pub(crate) struct Child {
    queue: mpsc::Sender<Frames<v1::Down>>,
    closer: Closer,
}

impl Child {
    /// Queues a message. `false`: the child reads too slowly.
    pub(crate) fn send(&self, frames: Frames<v1::Down>) -> bool {
        // A queue that is closed belongs to a stream that is going down by itself.
        !matches!(self.queue.try_send(frames), Err(mpsc::error::TrySendError::Full(_)))
    }

    /// Ends the stream with a status, before anything that is still queued.
    pub(crate) fn close(self, status: Status) {
        self.closer.close(status);
    }
}

struct Closer {
    status: oneshot::Sender<Status>,
    reading: CancellationToken,
    /// When the answers are gone, the child has noticed.
    gone: CancellationToken,
    connection: Option<Connection>,
}

impl Closer {
    fn close(self, status: Status) {
        self.reading.cancel();
        // Nobody to tell: the stream is gone already.
        let _ = self.status.send(status);
        let Some(connection) = self.connection else { return };
        tokio::spawn(async move {
            if timeout(CLOSE_GRACE, self.gone.cancelled()).await.is_err() {
                connection.cut();
            }
        });
    }
}

/// The gRPC service.
pub(crate) struct Door {
    pub(crate) events: mpsc::Sender<Event>,
    pub(crate) places: Arc<Semaphore>,
    pub(crate) next_id: AtomicU64,
    pub(crate) pending: Arc<AtomicUsize>,
    pub(crate) tally: Arc<Tally>,
    pub(crate) bounds: Bounds,
    pub(crate) stop: CancellationToken,
}

#[tonic::async_trait]
impl Tier for Door {
    type ConnectStream = Answers;

    async fn connect(
        &self,
        request: Request<Streaming<v1::Up>>,
    ) -> Result<Response<Answers>, Status> {
        if self.stop.is_cancelled() {
            return Err(Status::unavailable("this node is stopping: connect to another"));
        }
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            let most = self.bounds.max_streams;
            let text = format!("all {most} streams are taken: connect to another node or later");
            self.tally.refuse("too_many_streams", "", &text);
            return Err(Status::resource_exhausted(text));
        };
        let place = Arc::new(place);
        let connection = request.extensions().get::<Connection>().cloned();
        let (queue, queued) = mpsc::channel(self.bounds.child_queue);
        let (status, closed) = oneshot::channel();
        let (reading, gone) = (CancellationToken::new(), CancellationToken::new());
        let answers = Answers {
            frames: None,
            queued,
            closed: Some(closed),
            ended: false,
            _gone: gone.clone().drop_guard(),
            _place: Arc::clone(&place),
        };
        let reader = Reader {
            id: self.next_id.fetch_add(1, Relaxed),
            inbound: request.into_inner(),
            decoder: Decoder::default(),
            pending: Pending {
                own: 0,
                most: self.bounds.max_pending_bytes,
                all: Arc::clone(&self.pending),
            },
            reading: reading.clone(),
            events: self.events.clone(),
            tally: Arc::clone(&self.tally),
            rate: Rate::new(self.bounds.max_frames_per_s),
            _place: place,
        };
        let closer = Closer { status, reading, gone, connection };
        tokio::spawn(reader.run(self.bounds.hello_timeout, Child { queue, closer }));
        Ok(Response::new(answers))
    }
}

/// Reads one stream.
struct Reader {
    id: SessionId,
    inbound: Streaming<v1::Up>,
    decoder: Decoder<v1::Up>,
    pending: Pending,
    reading: CancellationToken,
    events: mpsc::Sender<Event>,
    tally: Arc<Tally>,
    rate: Rate,
    _place: Arc<OwnedSemaphorePermit>,
}

impl Reader {
    async fn run(mut self, hello_timeout: Duration, child: Child) {
        let hello = match timeout(hello_timeout, self.next()).await {
            Ok(Ok(Some(Up::Hello(hello)))) => hello,
            Ok(Ok(None)) => return,
            Ok(Ok(Some(_))) => {
                let status = Status::invalid_argument("the first message must be a hello");
                return self.refuse(child, Breach::new("no_hello", status));
            }
            Ok(Err(breach)) => return self.refuse(child, breach),
            Err(_) => {
                let text = format!("no hello within {hello_timeout:?}");
                let breach = Breach::new("no_hello", Status::deadline_exceeded(text));
                return self.refuse(child, breach);
            }
        };
        if self.events.send(Event::Open(self.id, hello, child)).await.is_err() {
            return;
        }
        let last = loop {
            match self.next().await {
                Ok(Some(up)) => {
                    self.tally.messages.fetch_add(1, Relaxed);
                    if self.events.send(Event::Up(self.id, up)).await.is_err() {
                        return;
                    }
                }
                Ok(None) => break Event::Close(self.id),
                Err(breach) => break Event::Broke(self.id, breach),
            }
        };
        // Without a pump there is nothing left to close.
        let _ = self.events.send(last).await;
    }

    fn refuse(&self, child: Child, breach: Breach) {
        self.tally.refuse(breach.reason, breach.detail, breach.status.message());
        child.close(breach.status);
    }

    /// The next message; `None` when the child is gone or nobody wants to read on.
    async fn next(&mut self) -> Result<Option<Up>, Breach> {
        loop {
            self.rate.pass(&self.tally).await;
            let frame = tokio::select! {
                frame = self.inbound.message() => frame,
                () = self.reading.cancelled() => return Ok(None),
            };
            let frame = match frame {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok(None),
                Err(status) => return as_breach(&status).map_or(Ok(None), Err),
            };
            let up = self.decoder.take_in(frame)?;
            self.pending.set(self.decoder.pending_bytes())?;
            if up.is_some() {
                return Ok(up);
            }
        }
    }
}

/// Whether a failure to read is the child's doing. What the network does has a cause behind it;
/// what the decoder finds has none.
fn as_breach(status: &Status) -> Option<Breach> {
    let text = status.message();
    match status.code() {
        Code::OutOfRange => Some(Breach::new("oversize", Status::resource_exhausted(text))),
        Code::Internal if std::error::Error::source(status).is_none() => {
            Some(Breach::new("undecodable", Status::invalid_argument(text)))
        }
        _ => None,
    }
}

/// What one stream holds of a message that is not complete, as part of what all hold.
struct Pending {
    own: usize,
    most: usize,
    all: Arc<AtomicUsize>,
}

impl Pending {
    fn set(&mut self, own: usize) -> Result<(), Breach> {
        if own == self.own {
            return Ok(());
        }
        self.all.fetch_sub(self.own, Relaxed);
        let all = self.all.fetch_add(own, Relaxed) + own;
        self.own = own;
        if own > 0 && all > self.most {
            let text = "too many large messages arrive at once: try again later";
            return Err(Breach::new("pending_bytes", Status::resource_exhausted(text)));
        }
        Ok(())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.all.fetch_sub(self.own, Relaxed);
    }
}

/// Frames of one second.
struct Rate {
    most: u32,
    left: u32,
    ends: Instant,
}

impl Rate {
    fn new(most: u32) -> Self {
        let most = most.max(1);
        Self { most, left: most, ends: Instant::now() + Duration::from_secs(1) }
    }

    /// Lets one frame pass, once its second has come.
    async fn pass(&mut self, tally: &Tally) {
        if self.left == 0 {
            if Instant::now() < self.ends {
                tally.throttled.fetch_add(1, Relaxed);
                tokio::time::sleep_until(self.ends).await;
            }
            self.ends = Instant::now() + Duration::from_secs(1);
            self.left = self.most;
        }
        self.left -= 1;
    }
}

/// What a child is sent.
pub(crate) struct Answers {
    frames: Option<Frames<v1::Down>>,
    queued: mpsc::Receiver<Frames<v1::Down>>,
    closed: Option<oneshot::Receiver<Status>>,
    ended: bool,
    _gone: DropGuard,
    _place: Arc<OwnedSemaphorePermit>,
}

impl Stream for Answers {
    type Item = Result<v1::Down, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if let Some(closed) = &mut self.closed
            && let Poll::Ready(status) = Pin::new(closed).poll(cx)
        {
            self.closed = None;
            // Dropped without a status: what is queued goes out, then the stream ends in order.
            if let Ok(status) = status {
                self.ended = true;
                self.queued.close();
                return Poll::Ready(Some(Err(status)));
            }
        }
        loop {
            if let Some(frame) = self.frames.as_mut().and_then(Iterator::next) {
                return Poll::Ready(Some(Ok(frame)));
            }
            let Some(frames) = ready!(self.queued.poll_recv(cx)) else {
                self.ended = true;
                return Poll::Ready(None);
            };
            self.frames = Some(frames);
        }
    }
}
