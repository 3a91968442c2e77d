//! `sluice demo`: every tier in one process, under a load that steps over its limits.

mod rates;
mod scenario;
mod traffic;
mod view;
mod world;

use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use self::rates::{Counter, History};
use self::scenario::{FLOWS, Row};
use self::traffic::Traffic;
use self::view::{Frame, Screen, Summary};
use self::world::World;
use crate::exit::{Ended, Failure};
use crate::load::schedule::span;
use crate::{clock, output, signals};

/// The shortest demo in which there is something to see.
const SHORTEST: Duration = Duration::from_secs(5);
/// When the load steps up, at the latest and at the earliest.
const STEP_AT: [Duration; 2] = [Duration::from_secs(6), Duration::from_secs(1)];
/// After the step, so long until rates are judged.
const SETTLE: Duration = Duration::from_secs(2);
/// Over how long the rates of the summary are means.
const WINDOW: Duration = Duration::from_secs(5);
/// Over how long the rates of the table are.
const LIVE_WINDOW: Duration = Duration::from_secs(2);
/// From one sample of the load's counts to the next.
const SAMPLE: Duration = Duration::from_millis(100);
/// From one frame to the next, on a terminal and elsewhere.
const REDRAW: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(5)];
/// How long calls under way at the end may take.
const LAST_CALLS: Duration = Duration::from_millis(300);

/// Show limits at work: all tiers in this process, real gRPC between them, a load that goes over
///
/// Starts a controller, an aggregator in each of two zones, embedded clients and a sidecar, and
/// sends a load that first stays under every limit and then steps over some. Draws what the load
/// itself counted. Needs nothing installed, opens ports on loopback only, and leaves nothing behind.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Stop after this time (5s or more); without it, at Ctrl-C
    #[arg(long = "for", value_name = "TIME", value_parser = length)]
    length: Option<Duration>,
    /// How many embedded clients there are, half of them in each zone
    #[arg(long, value_name = "N", default_value_t = 24,
        value_parser = clap::value_parser!(u16).range(2..=500))]
    clients: u16,
    /// Print the rates of the last seconds as one line of JSON at the end
    #[arg(long)]
    json: bool,
}

fn length(text: &str) -> Result<Duration, String> {
    match span(text)? {
        span if span < SHORTEST => Err(format!("\"{text}\" is too short, the least is 5s")),
        span => Ok(span),
    }
}

/// Runs the command.
pub(crate) fn run(args: DemoArgs) -> Ended {
    let DemoArgs { length, clients, json } = args;
    if std::env::var_os("RUST_LOG").is_some() {
        crate::logs::start(&crate::logs::LogSettings::default())?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(show(length, usize::from(clients), json))
}

/// When the load steps up: late enough to be seen, early enough to be judged.
fn step_at(length: Option<Duration>) -> Duration {
    let [latest, earliest] = STEP_AT;
    length.map_or(latest, |l| l.saturating_sub(WINDOW + SETTLE).clamp(earliest, latest))
}

/// Over how much of the end rates are means, where the load went on for so long.
fn window(elapsed: Duration, step_at: Duration) -> Duration {
    let settled = elapsed.saturating_sub(step_at + SETTLE);
    // Stopped by hand in the first seconds: everything that there is.
    if settled.is_zero() { WINDOW.min(elapsed) } else { WINDOW.min(settled) }
}

async fn show(length: Option<Duration>, clients: usize, json: bool) -> Ended {
    let rows = scenario::rows()?;
    let stop = CancellationToken::new();
    tokio::spawn(signals::cancel(stop.clone()));
    if output::is_terminal() {
        output::line(format!(
            "starting 1 controller, 2 aggregators, {clients} clients, 1 sidecar ..."
        ))?;
    }
    let world = World::start(clients, &stop).await?;
    let counters: Arc<Vec<Counter>> = Arc::new(FLOWS.iter().map(|_| Counter::default()).collect());
    let step_at = step_at(length);
    let traffic = Traffic {
        clients: world.clients(),
        sidecar: world.envoy().await?,
        counters: Arc::clone(&counters),
        runtime: tokio::runtime::Handle::current(),
        step_at,
    };
    let start = clock::now();
    let end = CancellationToken::new();
    let ended = end.clone();
    let sending = tokio::task::spawn_blocking(move || traffic.run(start, &ended));
    let mut demo =
        Demo { world, rows, counters, history: History::default(), start, length, step_at };
    let watched = demo.watch(&stop).await;
    let finished = demo.finish(sending, &end, json).await;
    watched.and(finished)
}

/// A demo that runs.
struct Demo {
    world: World,
    rows: Vec<Row>,
    counters: Arc<Vec<Counter>>,
    history: History,
    start: Instant,
    length: Option<Duration>,
    step_at: Duration,
}

impl Demo {
    /// Samples and shows until it is time, or until asked to stop.
    async fn watch(&mut self, stop: &CancellationToken) -> Ended {
        let mut screen = output::is_terminal().then(Screen::default);
        let redraw = REDRAW[usize::from(screen.is_none())];
        let mut drawn = Duration::ZERO;
        let mut samples = tokio::time::interval(SAMPLE);
        loop {
            let left = self.length.map(|l| l.saturating_sub(self.start.elapsed()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(());
            }
            tokio::select! {
                _ = samples.tick() => {}
                () = tokio::time::sleep(left.unwrap_or(SAMPLE)) => {}
                () = stop.cancelled() => return Ok(()),
            }
            let elapsed = self.start.elapsed();
            self.history.take(elapsed, &self.counters);
            if elapsed.saturating_sub(drawn) < redraw {
                continue;
            }
            drawn = elapsed;
            let rates = self.history.rates(LIVE_WINDOW);
            let frame = self.frame(elapsed, &rates);
            match &mut screen {
                Some(screen) => screen.draw(&frame.lines(output::width()))?,
                None => {
                    output::line(frame.header())?;
                    output::lines(frame.table().lines(None))?;
                    output::line("")?;
                }
            }
        }
    }

    /// Ends the load, tells what came of it, and ends the tiers.
    async fn finish(
        mut self,
        sending: JoinHandle<()>,
        end: &CancellationToken,
        json: bool,
    ) -> Ended {
        let elapsed = self.start.elapsed();
        end.cancel();
        let sent = sending.await;
        tokio::time::sleep(LAST_CALLS.min(elapsed)).await;
        self.history.take(elapsed, &self.counters);
        let window = window(elapsed, self.step_at);
        let rates = self.history.rates(window);
        let mut frame = self.frame(elapsed, &rates);
        frame.errors += self.world.broken();
        let lines = view::verdict(&frame, self.history.latest());
        let summary = Summary::new(&frame, window);
        output::line("")?;
        output::lines(lines)?;
        self.world.shutdown().await;
        if json {
            output::json(&summary)?;
        }
        sent.map_err(|e| Failure::AtWork(anyhow::anyhow!("the load failed: {e}")))
    }

    fn frame<'a>(&'a self, elapsed: Duration, rates: &'a [rates::Rates]) -> Frame<'a> {
        let control = self.world.control();
        Frame {
            elapsed,
            length: self.length,
            step_at: self.step_at,
            term: control.term,
            version: control.version,
            sessions: control.sessions,
            errors: self.history.latest().iter().map(|s| s.errors).sum(),
            rows: &self.rows,
            rates,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_step_leaves_time_to_be_judged() {
        let s = Duration::from_secs;
        for (length, step, judged) in [(5, 1, 2), (8, 1, 5), (10, 3, 5), (20, 6, 5), (600, 6, 5)] {
            let at = step_at(Some(s(length)));
            assert_eq!(at, s(step), "--for {length}s");
            assert_eq!(window(s(length), at), s(judged), "--for {length}s");
        }
        assert_eq!(step_at(None), s(6));
        assert_eq!(window(s(3), s(6)), s(3), "stopped before the step");
        assert!(length("4s").is_err() && length("5s").is_ok());
    }
}
