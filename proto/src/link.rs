//! The lower end of a stream: a child's connection to its parent. It connects to the first address
//! that answers, goes on to the next when one fails, and waits in between with jitter. What is said
//! on the stream is its owner's business.
//!
//! The owner alternates between [`Link::send`] and [`Link::next`]. Each [`Event::Open`] begins a new
//! stream with an empty queue, so that nothing meant for an earlier stream arrives on a later one.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use sluicegate_model::{Down, Up};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_stream::Stream;
use tonic::transport::Channel;
use tracing::{debug, info, warn};

use crate::backoff::Backoff;
use crate::transport::{self, Address, MAX_FRAME_BYTES};
use crate::v1;
use crate::v1::tier_client::TierClient;
use crate::wire::{Decoder, Frames, encode_up};

/// Messages up that may wait for the network. A stream that falls behind further is given up.
pub const QUEUE: usize = 256;
/// Messages down that may wait for the owner; beyond, the network waits.
const EVENTS: usize = 64;
/// How long a parent may take to answer a new stream.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a parent may take to end a stream that the owner has ended.
const END_TIMEOUT: Duration = Duration::from_secs(1);
/// A stream that lived for so long was a success; one that did not makes the next wait longer.
const SUCCESS: Duration = Duration::from_secs(3);

/// What a link tells its owner.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A stream to this address has begun. Say hello.
    Open(Address),
    /// The parent says something.
    Down(Down),
    /// The stream has ended. The next one comes by itself.
    Close {
        /// Why, for people.
        reason: String,
    },
}

/// How many times what happened to a link.
#[derive(Debug, Default)]
pub struct Stats {
    open: AtomicBool,
    opened: AtomicU64,
    failed: AtomicU64,
    malformed: AtomicU64,
    overflowed: AtomicU64,
}

impl Stats {
    /// Whether there is a stream now.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open.load(Relaxed)
    }

    /// The counters by name.
    pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            // Streams that began.
            ("opened", self.opened.load(Relaxed)),
            // Attempts without a stream, and streams that ended against the owner's will.
            ("failed", self.failed.load(Relaxed)),
            // Messages of the parent that broke the protocol.
            ("malformed", self.malformed.load(Relaxed)),
            // Streams given up because the parent took messages too slowly.
            ("overflowed", self.overflowed.load(Relaxed)),
        ]
        .into_iter()
    }
}

/// A child's connection to its parent. Ends when dropped.
#[derive(Debug)]
pub struct Link {
    events: mpsc::Receiver<Told>,
    stream: Option<Sending>,
    stats: Arc<Stats>,
    task: JoinHandle<()>,
}

/// The owner's end of the stream of the moment.
#[derive(Debug)]
struct Sending {
    ups: mpsc::Sender<Up>,
    /// Dropped together with `ups`; tells the task even when the network takes nothing any more.
    _hang_up: oneshot::Sender<()>,
}

/// What the task tells the link.
#[derive(Debug)]
enum Told {
    Open(Address, Sending),
    Down(Down),
    Close(String),
}

impl Link {
    /// Begins to connect to one of `addresses`, in turn. `seed` spreads the waits of many children.
    /// Without addresses it never opens.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[must_use]
    pub fn start(addresses: Vec<Address>, seed: u64) -> Self {
        let (tell, events) = mpsc::channel(EVENTS);
        let stats = Arc::new(Stats::default());
        let dialer = Dialer { addresses, backoff: Backoff::new(seed), tell, stats: stats.clone() };
        Self { events, stream: None, stats, task: tokio::spawn(dialer.run()) }
    }

    /// What happens next. Pends for ever if nothing can happen any more. Cancel-safe.
    pub async fn next(&mut self) -> Event {
        match self.events.recv().await {
            Some(Told::Open(address, sending)) => {
                self.stream = Some(sending);
                Event::Open(address)
            }
            Some(Told::Down(down)) => Event::Down(down),
            Some(Told::Close(reason)) => {
                self.stream = None;
                Event::Close { reason }
            }
            None => std::future::pending().await,
        }
    }

    /// Queues `up` on the stream of the moment. Without one, or if its queue is full (which ends
    /// it), `up` is gone and the answer is no; reports are cumulative, so a later one makes up.
    pub fn send(&mut self, up: Up) -> bool {
        let Some(stream) = &self.stream else { return false };
        match stream.ups.try_send(up) {
            Ok(()) => true,
            Err(e) => {
                if matches!(e, mpsc::error::TrySendError::Full(_)) {
                    self.stats.overflowed.fetch_add(1, Relaxed);
                    warn!(queue = QUEUE, "the parent takes messages too slowly; reconnecting");
                }
                self.stream = None;
                false
            }
        }
    }

    /// Counters of this link.
    #[must_use]
    pub fn stats(&self) -> Arc<Stats> {
        Arc::clone(&self.stats)
    }

    /// Ends the stream in order: what is queued still goes out, for at most `within`.
    pub async fn finish(mut self, within: Duration) {
        if self.stream.take().is_none() {
            return;
        }
        let closed = async { while !matches!(self.next().await, Event::Close { .. }) {} };
        if timeout(within, closed).await.is_err() {
            debug!(?within, "the parent did not end the stream in time");
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The task behind a link.
struct Dialer {
    addresses: Vec<Address>,
    backoff: Backoff,
    tell: mpsc::Sender<Told>,
    stats: Arc<Stats>,
}

/// How an attempt ended.
enum Ended {
    /// There was no stream.
    NoAnswer(String),
    /// There was one, for so long.
    Lost(String, Duration),
    /// The link is gone.
    NoOwner,
}

impl Dialer {
    async fn run(mut self) {
        let channels: Vec<_> =
            self.addresses.iter().map(|a| (a.clone(), transport::channel(a))).collect();
        let mut untried = channels.len();
        for (address, channel) in channels.iter().cycle() {
            let ended = self.attempt(address, channel.clone()).await;
            self.stats.open.store(false, Relaxed);
            let reason = match ended {
                Ended::NoOwner => return,
                Ended::NoAnswer(reason) => {
                    untried -= 1;
                    reason
                }
                Ended::Lost(reason, lived) => {
                    if lived >= SUCCESS {
                        self.backoff.reset();
                    }
                    untried = 0;
                    if self.tell.send(Told::Close(reason.clone())).await.is_err() {
                        return;
                    }
                    reason
                }
            };
            self.stats.failed.fetch_add(1, Relaxed);
            if self.backoff.failures().is_multiple_of(16) {
                warn!(%address, %reason, "no stream to the parent; trying again");
            } else {
                debug!(%address, %reason, "no stream to the parent; trying again");
            }
            // The others are tried at once; the wait is between one round and the next.
            if untried == 0 {
                untried = channels.len();
                tokio::time::sleep(self.backoff.next_wait()).await;
            }
        }
    }

    async fn attempt(&self, address: &Address, channel: Channel) -> Ended {
        let (ups, outbound) = mpsc::channel(QUEUE);
        let (hang_up, mut hung_up) = oneshot::channel();
        let mut client = TierClient::new(channel).max_decoding_message_size(MAX_FRAME_BYTES);
        let answer = client.connect(Outbound { ups: outbound, frames: None });
        let mut inbound = match timeout(ANSWER_TIMEOUT, answer).await {
            Ok(Ok(response)) => response.into_inner(),
            Ok(Err(status)) => return Ended::NoAnswer(explain(&status)),
            Err(_) => return Ended::NoAnswer(format!("no answer within {ANSWER_TIMEOUT:?}")),
        };
        info!(%address, "connected to the parent");
        self.stats.opened.fetch_add(1, Relaxed);
        self.stats.open.store(true, Relaxed);
        let began = Instant::now();
        let sending = Sending { ups, _hang_up: hang_up };
        if self.tell.send(Told::Open(address.clone(), sending)).await.is_err() {
            return Ended::NoOwner;
        }
        let mut decoder = Decoder::<v1::Down>::default();
        let mut until: Option<Instant> = None;
        loop {
            let message = tokio::select! {
                message = inbound.message() => message,
                _ = &mut hung_up, if until.is_none() => {
                    until = Some(Instant::now() + END_TIMEOUT);
                    continue;
                }
                () = at(until) => {
                    return Ended::Lost("given up by this side".to_owned(), began.elapsed());
                }
            };
            let reason = match message {
                Ok(Some(frame)) => match decoder.take_in(frame) {
                    Ok(None) => continue,
                    Ok(Some(down)) => match self.tell.send(Told::Down(down)).await {
                        Ok(()) => continue,
                        Err(_) => return Ended::NoOwner,
                    },
                    Err(malformed) => {
                        self.stats.malformed.fetch_add(1, Relaxed);
                        format!("the parent breaks the protocol: {malformed}")
                    }
                },
                Ok(None) => "ended by the parent".to_owned(),
                Err(status) => explain(&status),
            };
            return Ended::Lost(reason, began.elapsed());
        }
    }
}

/// Waits for a time, or for ever.
async fn at(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}

/// A status with what is behind it: tonic's own text for a refused connection is "transport error".
fn explain(status: &tonic::Status) -> String {
    let mut text = format!("{:?}: {}", status.code(), status.message());
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

/// Messages of the owner as frames.
struct Outbound {
    ups: mpsc::Receiver<Up>,
    frames: Option<Frames<v1::Up>>,
}

impl Stream for Outbound {
    type Item = v1::Up;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<v1::Up>> {
        loop {
            if let Some(frame) = self.frames.as_mut().and_then(Iterator::next) {
                return Poll::Ready(Some(frame));
            }
            let Some(up) = ready!(self.ups.poll_recv(cx)) else { return Poll::Ready(None) };
            self.frames = Some(Frames::of(encode_up(&up)));
        }
    }
}
