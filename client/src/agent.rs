//! The thread behind a client: a runtime of its own that feeds the core's agent with time and
//! messages and carries off what it says. Decides nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use sluicegate_client_core::{self as core, AgentCounters};
use sluicegate_model::Down;
use sluicegate_proto::link::{Event, Link};
use tokio::sync::mpsc;

use crate::StartError;
use crate::clock;
use crate::pace::{Pace, SLACK};
use crate::settings::Checked;
use crate::status::Status;

/// The thread's name. Linux shows the first 15 bytes of it.
const THREAD_NAME: &str = "sluicegate-agent";
/// The longest sleep; the agent itself asks for shorter ones while keys are in use.
const SLEEP_MAX: Duration = Duration::from_secs(3600);
/// Commands that may wait; one that finds no room is refused to its caller.
const COMMANDS: usize = 4;

/// What a limiter's owner can ask of its thread.
#[derive(Debug)]
enum Command {
    Shutdown,
    Pause(Duration),
}

/// The thread as its owners hold it. The last one gone ends it.
#[derive(Debug)]
pub(crate) struct Handle {
    commands: mpsc::Sender<Command>,
    stopping: Arc<AtomicBool>,
    thread: std::sync::Mutex<Option<JoinHandle<()>>>,
    tid: Arc<AtomicU32>,
    pub(crate) counters: Arc<AgentCounters>,
    pub(crate) status: Arc<Status>,
}

impl Handle {
    /// Ends the thread in order: the last report is sent, the stream closed. Waits for it.
    pub(crate) fn shutdown(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        // No room means that a command is there to be seen, and the flag behind it.
        let _ = self.commands.try_send(Command::Shutdown);
        let thread = self.thread.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("the agent's thread panicked");
        }
    }

    /// Stands the thread still, as an overloaded machine would.
    pub(crate) fn pause(&self, how_long: Duration) -> bool {
        self.commands.try_send(Command::Pause(how_long)).is_ok()
    }

    /// The kernel's number of the thread, once it runs.
    pub(crate) fn tid(&self) -> Option<u32> {
        Some(self.tid.load(Ordering::Relaxed)).filter(|tid| *tid != 0)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shutdown();
    }
}

/// Starts the thread.
pub(crate) fn spawn(agent: core::Agent, checked: Checked, seed: u64) -> Result<Handle, StartError> {
    let Checked { core, aggregators, shutdown_timeout } = checked;
    let tick = core.tick;
    let (commands, inbox) = mpsc::channel(COMMANDS);
    let stopping = Arc::new(AtomicBool::new(false));
    let tid = Arc::new(AtomicU32::new(0));
    let status = Arc::new(Status::new(clock::now()));
    let counters = agent.counters();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| StartError::Agent { what: "runtime", source })?;
    let thread = {
        let (status, stopping, tid) = (status.clone(), stopping.clone(), tid.clone());
        std::thread::Builder::new()
            .name(THREAD_NAME.into())
            .spawn(move || {
                tid.store(own_tid(), Ordering::Relaxed);
                runtime.block_on(async {
                    let link = Link::start(aggregators, seed);
                    status.follow(link.stats());
                    let pace = Pace::new();
                    let pump = Pump { agent, link, inbox, stopping, status, pace };
                    // A task, because each wake of the future that is blocked on costs two system
                    // calls more than that of a task on its own thread.
                    let pump = tokio::spawn(pump.run(tick, shutdown_timeout));
                    if let Err(error) = pump.await {
                        tracing::error!(%error, "the agent failed; its limits run out");
                    }
                });
            })
            .map_err(|source| StartError::Agent { what: "thread", source })?
    };
    let thread = std::sync::Mutex::new(Some(thread));
    Ok(Handle { commands, stopping, thread, tid, counters, status })
}

fn own_tid() -> u32 {
    #[cfg(target_os = "linux")]
    return rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
    #[cfg(not(target_os = "linux"))]
    return 0;
}

struct Pump {
    agent: core::Agent,
    link: Link,
    inbox: mpsc::Receiver<Command>,
    stopping: Arc<AtomicBool>,
    status: Arc<Status>,
    pace: Pace,
}

impl Pump {
    async fn run(mut self, last_tick: Duration, shutdown_timeout: Duration) {
        while !self.stopping.load(Ordering::Relaxed) {
            let (now, due) = (clock::now(), self.agent.poll_timeout());
            // Timers are that coarse: what comes so little early is meant to be in time.
            if now + SLACK >= due {
                self.agent.handle_timeout(now.max(due));
            }
            self.drain();
            let wake = self.agent.poll_timeout().since(clock::now()).min(SLEEP_MAX);
            // Owners first, so that nobody waits behind a flood of messages; time is looked at on
            // every turn.
            tokio::select! {
                biased;
                command = self.inbox.recv() => match command {
                    None | Some(Command::Shutdown) => break,
                    Some(Command::Pause(how_long)) => self.stand_still(how_long),
                },
                event = self.link.next() => self.take(event),
                () = self.pace.wait(wake) => {}
            }
        }
        // As if the next tick had come: what was counted since the last one goes out.
        self.agent.handle_timeout(clock::now() + last_tick);
        self.drain();
        self.link.finish(shutdown_timeout).await;
        self.status.disconnected(clock::now(), "this client was shut down".into());
    }

    fn take(&mut self, event: Event) {
        let now = clock::now();
        match event {
            Event::Open(address) => {
                self.status.connected(&address, now);
                self.agent.handle_open(now);
            }
            Event::Down(down) => {
                let term = if let Down::Configuration(c) = &down { Some(c.term) } else { None };
                self.agent.handle_down(now, down);
                if let Some(term) = term {
                    self.status.configured(self.agent.version(), term);
                }
            }
            Event::Close { reason } => {
                tracing::info!(%reason, "lost the aggregator; limits hold until their ttl");
                self.status.disconnected(now, reason);
                self.agent.handle_close(now);
            }
        }
    }

    /// What the link refuses is lost with its stream; the next one begins with what was not
    /// acknowledged.
    fn drain(&mut self) {
        while let Some(up) = self.agent.poll_up() {
            if !self.link.send(up) {
                tracing::debug!("a message had no stream to go out on");
            }
        }
    }

    /// Blocks the thread on purpose, in slices so that its owner can still end it.
    fn stand_still(&self, how_long: Duration) {
        let until = clock::now() + how_long;
        while clock::now() < until && !self.stopping.load(Ordering::Relaxed) {
            std::thread::sleep(until.since(clock::now()).min(Duration::from_millis(20)));
        }
    }
}
