//! The signals that ask a process to stop.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Waits for SIGINT or SIGTERM; tells which.
pub(crate) async fn asked_to_stop() -> &'static str {
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        // Without handlers the signals end the process at once, which is what is left to do.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => "SIGINT",
        _ = terminate.recv() => "SIGTERM",
    }
}

/// Cancels `stop` when asked to; asked a second time, ends the process at once.
pub(crate) async fn cancel(stop: CancellationToken) {
    asked_to_stop().await;
    stop.cancel();
    asked_to_stop().await;
    std::process::exit(130);
}
