//! What a host holds: decisions, handles and statistics.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_client_core as core;
use sluicegate_model::{Name, Request};

use crate::agent::{self, Handle};
use crate::clock::{self, Coarse};
use crate::settings::Checked;
use crate::{BucketName, BucketRef, Connection, Outcome, Settings, StartError, Verdict};

/// A client: decides in this process, reports and is told from a thread of its own.
///
/// Cheap to clone; every clone and every [`Prepared`] handle is the same client. When the last of
/// them is dropped, the last report is sent and the thread joined, which takes at most
/// `limits.shutdown_timeout` (or [`Limiter::shutdown`] does it earlier).
#[derive(Clone)]
pub struct Limiter {
    core: core::Limiter<Coarse>,
    agent: Arc<Handle>,
    place: Arc<Place>,
}

#[derive(Debug)]
struct Place {
    zone: Name,
    region: Name,
}

/// A handle for requests that all look alike, such as those of one route or connection: the buckets
/// that count them are looked up once. Clone it for each worker.
#[derive(Clone)]
pub struct Prepared {
    core: core::Prepared<Coarse>,
    /// Keeps the client alive.
    _agent: Arc<Handle>,
}

/// Everything a client knows of itself.
#[derive(Debug, Clone)]
pub struct Stats {
    /// Counts, directives and bounds.
    pub client: core::Stats,
    /// What the agent did, absorbed or refused: counts by name.
    pub agent: Vec<(&'static str, u64)>,
    /// The connection to the aggregators.
    pub connection: Connection,
}

impl Limiter {
    /// Checks `settings` and starts the client. Never waits for the network: until the first
    /// aggregator has answered, everything is admitted.
    ///
    /// # Errors
    /// Says which setting is wrong, or what the operating system refused.
    pub fn start(settings: Settings) -> Result<Self, StartError> {
        let session: u64 = rand::random();
        let checked: Checked = settings.check(session)?;
        let (limiter, agent) =
            core::client(checked.core.clone(), Coarse, rand::random(), clock::now());
        let place = Place { zone: checked.core.zone.clone(), region: checked.core.region.clone() };
        let agent = Arc::new(agent::spawn(agent, checked, rand::random())?);
        Ok(Self { core: limiter, agent, place: Arc::new(place) })
    }

    /// Decides one request. Takes no lock, makes no system call, and allocates only while it
    /// learns requests it has not seen.
    #[inline]
    pub fn decide(&self, request: &Request<'_>) -> Outcome {
        self.core.decide(request)
    }

    /// Decides one request that counts for `hits`.
    #[inline]
    pub fn decide_n(&self, request: &Request<'_>, hits: u32) -> Outcome {
        self.core.decide_n(request, hits)
    }

    /// Decides several views of one request together: it passes only if all do, and one that is
    /// refused charges none. A view with 0 `hits` asks without charging. `verdicts` is emptied and
    /// gets one verdict a view; a view without hits of its own has 1.
    ///
    /// Views that charge do so with the same hits: if theirs differ, with the most of them. If a
    /// view that only asks is refused, the others are neither charged nor counted.
    pub fn decide_each(
        &self,
        requests: &[Request<'_>],
        hits: &[u32],
        verdicts: &mut Vec<Verdict>,
    ) -> Outcome {
        let of = |i: usize| hits.get(i).copied().unwrap_or(1);
        let most = (0..requests.len()).map(of).max().unwrap_or(1);
        if most == 0 || (0..requests.len()).all(|i| of(i) > 0) {
            return self.core.decide_each(requests, most, verdicts);
        }
        self.decide_and_ask(requests, of, most, verdicts)
    }

    #[cold]
    fn decide_and_ask(
        &self,
        requests: &[Request<'_>],
        hits: impl Fn(usize) -> u32,
        most: u32,
        verdicts: &mut Vec<Verdict>,
    ) -> Outcome {
        let part = |asking: bool| {
            let numbered = requests.iter().enumerate();
            numbered.filter(|(i, _)| (hits(*i) == 0) == asking).map(|(_, r)| *r).collect()
        };
        let (asking, charging): (Vec<Request<'_>>, Vec<Request<'_>>) = (part(true), part(false));
        let (mut asked, mut charged) = (Vec::new(), Vec::new());
        let answer = self.core.decide_each(&asking, 0, &mut asked);
        let most = if answer.is_admitted() { most } else { 0 };
        let outcome = self.core.decide_each(&charging, most, &mut charged);
        let (mut asked, mut charged) = (asked.into_iter(), charged.into_iter());
        verdicts.clear();
        let of = |i| if hits(i) == 0 { asked.next() } else { charged.next() };
        verdicts.extend((0..requests.len()).filter_map(of));
        if answer.is_admitted() { outcome } else { answer }
    }

    /// Looks up once which buckets count `request`.
    #[must_use]
    pub fn prepare(&self, request: &Request<'_>) -> Prepared {
        Prepared { core: self.core.prepare(request), _agent: self.agent.clone() }
    }

    /// The name of a bucket that an outcome or a verdict names; `None` once it is long gone.
    #[must_use]
    pub fn bucket(&self, bucket: BucketRef) -> Option<BucketName> {
        self.core.bucket(bucket)
    }

    /// Counts, directives, bounds and the state of the connection. For people and metrics: it
    /// walks every key.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            client: self.core.stats(),
            agent: self.agent.counters.iter().collect(),
            connection: self.connection(),
        }
    }

    /// The zone it runs in.
    #[must_use]
    pub fn zone(&self) -> &str {
        self.place.zone.as_str()
    }

    /// The region it runs in.
    #[must_use]
    pub fn region(&self) -> &str {
        self.place.region.as_str()
    }

    /// The state of the connection alone.
    #[must_use]
    pub fn connection(&self) -> Connection {
        self.agent.status.connection(clock::now())
    }

    /// Sends the last report and ends the thread, for every clone. Decisions go on, and drop nothing
    /// more once the last directives have run out. Blocks for at most `limits.shutdown_timeout`:
    /// in asynchronous code call it where blocking is allowed.
    pub fn shutdown(&self) {
        self.agent.shutdown();
    }

    /// Stands the agent's thread still, as an overloaded machine would; decisions go on. For tests
    /// of just that. `false` if it has too much to do already.
    #[doc(hidden)]
    #[must_use]
    pub fn pause_agent(&self, how_long: Duration) -> bool {
        self.agent.pause(how_long)
    }

    /// The kernel's number of the agent's thread, on Linux, once it runs.
    #[doc(hidden)]
    #[must_use]
    pub fn agent_tid(&self) -> Option<u32> {
        self.agent.tid()
    }
}

impl Prepared {
    /// Decides one request.
    #[inline]
    pub fn decide(&self) -> Outcome {
        self.core.decide()
    }

    /// Decides one request that counts for `hits`.
    #[inline]
    pub fn decide_n(&self, hits: u32) -> Outcome {
        self.core.decide_n(hits)
    }
}

impl std::fmt::Debug for Limiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Limiter").field("connection", &self.connection()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared").finish_non_exhaustive()
    }
}
