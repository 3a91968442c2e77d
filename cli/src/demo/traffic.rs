//! The demo's own load: every flow at its rate, through embedded clients or through the sidecar.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use sluicegate_client::Prepared;
use sluicegate_sidecar::rls::envoy::extensions::common::ratelimit::v3 as common;
use sluicegate_sidecar::rls::envoy::service::ratelimit::v3 as rls;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

use super::rates::Counter;
use super::scenario::{FLOWS, Flow, Via, ZONES};
use crate::load::Fate;
use crate::load::embedded::{Clients, fate};
use crate::load::hash::{Weighted, even};
use crate::load::schedule::{MAX_LENGTH, Step, Stepped};

/// The most calls to the sidecar under way at once.
const MAX_CALLS: usize = 256;
/// How long a call to the sidecar may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);
/// How often a pause looks whether the load is to stop.
const LOOK: Duration = Duration::from_millis(20);

type Sidecar = rls::rate_limit_service_client::RateLimitServiceClient<Channel>;

/// What sends the load.
pub(crate) struct Traffic {
    pub(crate) clients: Arc<Clients>,
    pub(crate) sidecar: Sidecar,
    pub(crate) counters: Arc<Vec<Counter>>,
    pub(crate) runtime: Handle,
    /// When rates go up, after the start.
    pub(crate) step_at: Duration,
}

impl Traffic {
    /// Sends until told to stop. Blocks.
    pub(crate) fn run(self, start: Instant, stop: &CancellationToken) {
        let senders: Vec<Vec<Prepared>> = FLOWS.iter().map(|f| self.senders(f)).collect();
        let calls = Arc::new(Semaphore::new(MAX_CALLS));
        let mut due: BinaryHeap<Reverse<(Duration, u64, usize)>> = BinaryHeap::new();
        let mut times: Vec<Stepped> = FLOWS.iter().map(|f| times(f, self.step_at)).collect();
        let push = |due: &mut BinaryHeap<_>, times: &mut [Stepped], flow: usize| {
            if let Some(arrival) = times[flow].next() {
                due.push(Reverse((arrival.due, arrival.number, flow)));
            }
        };
        (0..FLOWS.len()).for_each(|flow| push(&mut due, &mut times, flow));
        while let Some(Reverse((at, number, flow))) = due.pop() {
            while let Some(wait) = at.checked_sub(start.elapsed()).filter(|w| !w.is_zero()) {
                if stop.is_cancelled() {
                    return;
                }
                thread::sleep(wait.min(LOOK));
            }
            if stop.is_cancelled() {
                return;
            }
            match senders[flow].as_slice() {
                [] => self.call(flow, &calls),
                senders => {
                    let sender = &senders[spread(flow, number, senders.len())];
                    self.counters[flow].add(fate(sender.decide()));
                }
            }
            push(&mut due, &mut times, flow);
        }
    }

    /// A handle for the flow in every client that sends it; none if the sidecar does.
    fn senders(&self, flow: &Flow) -> Vec<Prepared> {
        let zone = match flow.via {
            Via::Clients => None,
            Via::ClientsOf(zone) => Some(zone),
            Via::Sidecar => return Vec::new(),
        };
        (0..self.clients.len())
            .filter(|client| zone.is_none_or(|zone| client % ZONES.len() == zone))
            .filter_map(|client| self.clients.get(client))
            .map(|limiter| limiter.prepare(&flow.request()))
            .collect()
    }

    fn call(&self, flow: usize, calls: &Arc<Semaphore>) {
        let Ok(place) = Arc::clone(calls).try_acquire_owned() else {
            self.counters[flow].add(Fate::NotSent);
            return;
        };
        let (mut sidecar, counters) = (self.sidecar.clone(), Arc::clone(&self.counters));
        self.runtime.spawn(async move {
            let call = sidecar.should_rate_limit(envoy_request(&FLOWS[flow]));
            let fate = match tokio::time::timeout(CALL_TIMEOUT, call).await {
                Ok(Ok(answer)) => verdict(answer.get_ref().overall_code),
                Ok(Err(_)) | Err(_) => Fate::Failed,
            };
            counters[flow].add(fate);
            drop(place);
        });
    }
}

fn times(flow: &Flow, step_at: Duration) -> Stepped {
    let steps = vec![
        Step { rate_rps: flow.before_rps, length: step_at },
        Step { rate_rps: flow.after_rps, length: MAX_LENGTH },
    ];
    Stepped::new(steps, Weighted::single(), 0)
}

/// Which of the senders: evenly, but in no order that repeats.
fn spread(flow: usize, number: u64, senders: usize) -> usize {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a number of clients"
    )]
    let place = (even(flow as u64, number) * senders as f64) as usize;
    place.min(senders - 1)
}

/// The request as Envoy would send it.
fn envoy_request(flow: &Flow) -> rls::RateLimitRequest {
    let entry = |key: &str, value: &str| common::rate_limit_descriptor::Entry {
        key: key.to_owned(),
        value: value.to_owned(),
    };
    let mut entries = vec![entry("caller", flow.caller), entry("procedure", flow.procedure)];
    entries.extend(flow.dimensions.iter().map(|(n, v)| entry(n, v)));
    rls::RateLimitRequest {
        domain: flow.service.to_owned(),
        descriptors: vec![common::RateLimitDescriptor { entries, ..Default::default() }],
        hits_addend: 1,
    }
}

fn verdict(code: i32) -> Fate {
    match rls::rate_limit_response::Code::try_from(code) {
        Ok(rls::rate_limit_response::Code::Ok) => Fate::Admitted,
        Ok(rls::rate_limit_response::Code::OverLimit) => Fate::Dropped,
        Ok(rls::rate_limit_response::Code::Unknown) | Err(_) => Fate::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_steps_at_its_time() {
        let flow = FLOWS[0];
        let all: Vec<_> = times(&flow, Duration::from_secs(2))
            .take_while(|a| a.due < Duration::from_secs(4))
            .collect();
        let before = all.iter().filter(|a| a.due < Duration::from_secs(2)).count();
        assert_eq!((before, all.len() - before), (900, 3000));
    }

    #[test]
    fn requests_spread_evenly_over_clients() {
        let mut counts = [0_u32; 24];
        (0..2400).for_each(|n| counts[spread(3, n, 24)] += 1);
        assert!(counts.iter().all(|n| (95..=105).contains(n)), "{counts:?}");
    }
}
