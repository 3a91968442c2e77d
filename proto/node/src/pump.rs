//! The one task that owns the core. It feeds it what children, parent and process say, drains it,
//! and never waits for a child: whoever does not read is closed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use sluicegate_law::{SessionId, View};
use sluicegate_model::Time;
use sluicegate_proto::link::{self, Link};
use sluicegate_proto::wire::{DownEncoder, Frames};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::Status;
use tracing::{debug, info, warn};

use crate::clock::Clock;
use crate::core::Core;
use crate::door::{Breach, Child, Event};
use crate::metrics::Ledger;
use crate::tally::Tally;

/// Events taken in before outputs are drained again.
const BATCH: usize = 256;
/// The state is published no more often than this,
const PUBLISH_MIN: Duration = Duration::from_millis(100);
/// and no less often than this.
const PUBLISH_MAX: Duration = Duration::from_secs(1);
/// Publishing may take this share of the task's time.
const PUBLISH_SHARE: u32 = 50;
/// How long the last roll-up may take to reach the parent.
const LAST_ROLL_UP: Duration = Duration::from_secs(1);

/// The state of the node at some moment.
#[derive(Debug, Clone)]
pub struct Published {
    /// What the core shows.
    pub view: View,
    /// Whether the node has what it takes to serve.
    pub is_ready: bool,
    /// Since the node started.
    pub uptime: Duration,
    /// How long the configuration in force had been in force.
    pub version_age: Duration,
}

/// The task and all it holds.
pub(crate) struct Pump<C: Core> {
    pub(crate) core: C,
    pub(crate) clock: Clock,
    pub(crate) tick: Duration,
    pub(crate) events: mpsc::Receiver<Event>,
    pub(crate) changes: mpsc::Receiver<C::Change>,
    pub(crate) link: Option<Link>,
    pub(crate) stop: CancellationToken,
    pub(crate) tally: Arc<Tally>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) published: watch::Sender<Arc<Published>>,
    /// If this task ends for whatever reason, the node stops.
    pub(crate) _stop_with_it: DropGuard,
}

/// What the task keeps while it runs.
#[derive(Default)]
struct State {
    children: HashMap<SessionId, Child>,
    encoder: DownEncoder,
    next_publish: Time,
    version: u64,
    version_since: Duration,
}

impl<C: Core> Pump<C> {
    /// Runs until it is told to stop.
    pub(crate) async fn run(mut self) {
        let mut state = State::default();
        let mut changes_open = true;
        loop {
            let now = self.clock.now();
            if now >= self.core.poll_timeout() {
                self.core.handle_timeout(now);
            }
            self.drain(&mut state);
            self.publish_if_due(&mut state);
            let until = self.core.poll_timeout().min(state.next_publish);
            let wait = until.since(self.clock.now());
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                change = self.changes.recv(), if changes_open => match change {
                    Some(change) => self.core.handle_change(self.clock.now(), change),
                    None => changes_open = false,
                },
                event = parent_event(&mut self.link) => self.take_parent(event),
                Some(event) = self.events.recv() => {
                    self.take(&mut state, event);
                    for _ in 1..BATCH {
                        let Ok(event) = self.events.try_recv() else { break };
                        self.take(&mut state, event);
                    }
                }
                () = tokio::time::sleep(wait) => {}
            }
        }
        self.finish(state).await;
    }

    fn take(&mut self, state: &mut State, event: Event) {
        let now = self.clock.now();
        match event {
            Event::Open(id, hello, child) => {
                let node = hello.node.clone();
                match self.core.handle_child_open(now, id, hello) {
                    Ok(()) => {
                        self.tally.streams_opened.fetch_add(1, Relaxed);
                        debug!(session = id, %node, "stream opened");
                        state.children.insert(id, child);
                    }
                    Err(refusal) => self.close(id, child, refusal.into()),
                }
            }
            Event::Up(id, up) => {
                if !state.children.contains_key(&id) {
                    return;
                }
                if let Err(refusal) = self.core.handle_child(now, id, up) {
                    self.close_known(state, id, refusal.into());
                }
            }
            Event::Broke(id, breach) => self.close_known(state, id, breach),
            Event::Close(id) => {
                if state.children.remove(&id).is_some() {
                    debug!(session = id, "stream ended by the child");
                    self.core.handle_child_close(now, id);
                }
            }
        }
    }

    fn close_known(&mut self, state: &mut State, id: SessionId, breach: Breach) {
        let Some(child) = state.children.remove(&id) else { return };
        self.core.handle_child_close(self.clock.now(), id);
        self.close(id, child, breach);
    }

    fn close(&self, id: SessionId, child: Child, breach: Breach) {
        debug!(session = id, reason = breach.reason, "stream closed");
        self.tally.refuse(breach.reason, breach.detail, breach.status.message());
        child.close(breach.status);
    }

    fn take_parent(&mut self, event: link::Event) {
        let now = self.clock.now();
        match event {
            link::Event::Open(address) => {
                info!(%address, "the parent answers");
                self.core.handle_parent_open(now);
            }
            link::Event::Down(down) => self.core.handle_parent(now, down),
            link::Event::Close { reason } => {
                warn!(%reason, "the parent is gone");
                self.core.handle_parent_close(now);
            }
        }
    }

    fn drain(&mut self, state: &mut State) {
        while let Some((id, down)) = self.core.poll_child() {
            let Some(child) = state.children.get(&id) else { continue };
            if !child.send(Frames::of(state.encoder.encode(&down))) {
                let text = "too many messages wait to be read: read faster";
                let breach = Breach::new("slow_reader", Status::resource_exhausted(text));
                self.close_known(state, id, breach);
            }
        }
        while let Some(up) = self.core.poll_parent() {
            if let Some(link) = &mut self.link {
                link.send(up);
            }
        }
    }

    fn publish_if_due(&mut self, state: &mut State) {
        let now = self.clock.now();
        if now < state.next_publish {
            return;
        }
        let began = self.clock.elapsed();
        let view = self.core.view();
        if view.version != state.version {
            state.version = view.version;
            state.version_since = began;
        }
        let published = Arc::new(Published {
            is_ready: C::is_ready(&view),
            uptime: began,
            version_age: began.saturating_sub(state.version_since),
            view,
        });
        self.ledger.advance(&self.published.borrow().view, &published.view);
        self.published.send_replace(published);
        // A node with millions of keys shows itself less often, rather than do nothing else.
        let took = self.clock.elapsed().saturating_sub(began);
        let pause = self.tick.clamp(PUBLISH_MIN, PUBLISH_MAX).max(took * PUBLISH_SHARE);
        state.next_publish = self.clock.now() + pause;
    }

    /// Takes in what has arrived, rolls it up once more, and lets children and parent go.
    async fn finish(mut self, mut state: State) {
        while let Ok(event) = self.events.try_recv() {
            self.take(&mut state, event);
        }
        // The core rolls up when a tick is due, so the last one is made due now.
        self.core.handle_timeout(self.clock.now() + self.tick);
        self.drain(&mut state);
        state.next_publish = Time::ZERO;
        self.publish_if_due(&mut state);
        let children = state.children.len();
        drop(state);
        if let Some(link) = self.link.take() {
            link.finish(LAST_ROLL_UP).await;
        }
        info!(children, "stopped");
    }
}

async fn parent_event(link: &mut Option<Link>) -> link::Event {
    match link {
        Some(link) => link.next().await,
        None => std::future::pending().await,
    }
}
