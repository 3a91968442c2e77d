//! Accepting connections, with a bound, and with a switch to cut one: a peer that neither reads nor
//! leaves would otherwise hold its place for as long as it answers keepalives, and one that never
//! asks for anything for as long as it likes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;
use tokio_stream::Stream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;
use tracing::warn;

use crate::tally::Tally;

/// How long a child may take to notice that its stream was closed, until its connection is cut.
pub const CLOSE_GRACE: Duration = Duration::from_secs(2);
/// After a failed accept (mostly: no file descriptors left).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What may be open, and for how long without a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Connections open at once.
    pub(crate) most: usize,
    /// How long a connection may take until its first request has come.
    pub(crate) first_request: Duration,
}

/// The switch of one connection, and whether it was ever used for a request.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    switch: CancellationToken,
    is_used: Arc<AtomicBool>,
}

impl Connection {
    /// Ends the connection, whatever is under way on it.
    pub(crate) fn cut(&self) {
        self.switch.cancel();
    }

    /// A request has come: from now on the rules for streams hold.
    pub(crate) fn note_request(&self) {
        self.is_used.store(true, Relaxed);
    }
}

/// Connections of `listener`, within `limits`, until `stop`. `cut` cuts all of them.
pub(crate) fn accept(
    listener: TcpListener,
    limits: Limits,
    tally: Arc<Tally>,
    stop: CancellationToken,
    cut: CancellationToken,
) -> impl Stream<Item = io::Result<CuttableStream>> {
    let places = Arc::new(Semaphore::new(limits.most));
    let (tx, rx) = tokio::sync::mpsc::channel(16);
    tokio::spawn(async move {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stop.cancelled() => return,
                () = tx.closed() => return,
            };
            let tcp = match accepted {
                Ok((tcp, _)) => tcp,
                Err(error) => {
                    tally.accept_errors.fetch_add(1, Relaxed);
                    warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                tally.refuse_connection(limits.most);
                continue;
            };
            // Without it small messages would wait for acknowledgements of earlier ones.
            if let Err(error) = tcp.set_nodelay(true) {
                warn!(%error, "cannot set TCP_NODELAY");
            }
            let patience = Patience::new(limits.first_request, Arc::clone(&tally));
            let stream = CuttableStream::new(tcp, place, cut.child_token(), patience);
            if tx.send(Ok(stream)).await.is_err() {
                return;
            }
        }
    });
    tokio_stream::wrappers::ReceiverStream::new(rx)
}

/// The wait for the first request of a connection.
struct Patience {
    limit: Duration,
    over: Pin<Box<Sleep>>,
    tally: Arc<Tally>,
}

impl Patience {
    fn new(limit: Duration, tally: Arc<Tally>) -> Self {
        Self { limit, over: Box::pin(tokio::time::sleep(limit)), tally }
    }
}

/// A TCP stream with a switch.
pub(crate) struct CuttableStream {
    tcp: TcpStream,
    connection: Connection,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Until the first request.
    patience: Option<Patience>,
    _place: OwnedSemaphorePermit,
}

impl CuttableStream {
    fn new(
        tcp: TcpStream,
        place: OwnedSemaphorePermit,
        switch: CancellationToken,
        patience: Patience,
    ) -> Self {
        let cut = Box::pin(switch.clone().cancelled_owned());
        let connection = Connection { switch, is_used: Arc::default() };
        Self { tcp, connection, cut, patience: Some(patience), _place: place }
    }

    /// Registers for the switch and for the end of patience, so that whoever waits for the network
    /// also wakes when the connection is cut.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if let Some(patience) = &mut self.patience {
            if self.connection.is_used.load(Relaxed) {
                self.patience = None;
            } else if patience.over.as_mut().poll(cx).is_ready() {
                patience.tally.close_silent_connection(patience.limit);
                self.patience = None;
                self.connection.cut();
            }
        }
        if self.connection.switch.is_cancelled() || self.cut.as_mut().poll(cx).is_ready() {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "cut by this side"));
        }
        Ok(())
    }
}

impl Connected for CuttableStream {
    type ConnectInfo = Connection;

    fn connect_info(&self) -> Connection {
        self.connection.clone()
    }
}

impl AsyncRead for CuttableStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.tcp).poll_read(cx, buf)
    }
}

impl AsyncWrite for CuttableStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.tcp).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.tcp).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }
}
