//! When the next request of a workload comes, and who asks. Arrivals are exact: a Poisson process
//! whose rate is constant between the profile's changes.

use super::Profile;
use super::replay::Replay;
use crate::heap::Place;
use crate::random::{Rng, Weighted};
use crate::setup::Requests;

/// How often a client that does not run is passed over for another.
const TRIES: u32 = 20;

/// One workload at work.
#[derive(Debug)]
pub(crate) struct Source {
    /// The time of the next arrival, among all events.
    pub(crate) next: Place,
    rng: Rng,
    batch: f64,
    /// What each client's part of the load is, before anything changes.
    weights: Vec<f64>,
    /// What faults multiply it by.
    factors: Vec<f64>,
    pick: Weighted,
    /// The whole load is multiplied by this.
    scale: f64,
    kinds: Option<Weighted>,
    /// Clients by load, the largest first.
    ranks: Vec<u32>,
    /// All asks are this client's.
    only: Option<u32>,
    /// Where a trace is.
    replay: Option<Replay>,
}

impl Source {
    pub(crate) fn new(requests: &Requests<'_>, clients: usize, seed: u64, number: u64) -> Self {
        let mut rng = Rng::new(seed, (2 << 40) + number);
        // The same clients are the large ones in all workloads.
        let mut ranks: Vec<u32> = (0..u32::try_from(clients).unwrap_or(u32::MAX)).collect();
        Rng::new(seed, 3 << 40).shuffle(&mut ranks);
        let mut weights = vec![0.0; clients];
        for (rank, client) in ranks.iter().enumerate() {
            #[expect(clippy::cast_precision_loss, reason = "as many as there are clients")]
            let rank = (rank + 1) as f64;
            weights[*client as usize] = 1.0 / libm::pow(rank, requests.workload.zipf);
        }
        let kinds = (requests.kinds.len() > 1)
            .then(|| Weighted::new(&requests.kinds.iter().map(|k| k.share).collect::<Vec<_>>()));
        // Not to begin with the same number as the shuffle does.
        rng.bits();
        Self {
            next: Place { at: 0, seq: 0 },
            rng,
            batch: requests.workload.batch,
            pick: Weighted::new(&weights),
            factors: vec![1.0; clients],
            weights,
            scale: 1.0,
            kinds,
            ranks,
            only: None,
            replay: matches!(requests.profile, Profile::Trace { .. }).then(Replay::default),
        }
    }

    /// The time of the arrival after `from`; `u64::MAX` if there is none before `end`.
    pub(crate) fn after(&mut self, profile: &Profile, from: u64, end: u64) -> u64 {
        if let (Some(replay), Profile::Trace { scale, file }) = (&mut self.replay, profile) {
            return replay.after(file, scale * self.scale, &mut self.rng);
        }
        let mut at = from;
        let mut wait = self.rng.exponential();
        while at < end {
            let (rate, until) = profile.rate(at);
            // Arrivals a nanosecond.
            let rate = rate * self.scale / self.batch * 1e-9;
            #[expect(clippy::cast_precision_loss, reason = "half a nanosecond in a month")]
            let span = (until.min(end) - at) as f64;
            if rate * span >= wait {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "in span"
                )]
                let passed = (wait / rate) as u64;
                return at + passed;
            }
            wait -= rate * span;
            at = until;
        }
        u64::MAX
    }

    /// Who asks: one that can, if there is any at hand.
    #[inline]
    pub(crate) fn client(&mut self, can_ask: impl Fn(usize) -> bool) -> Option<u32> {
        let mut client = match self.only {
            Some(only) => only as usize,
            None => self.pick.draw(&mut self.rng),
        };
        for _ in 0..TRIES {
            if can_ask(client) {
                return u32::try_from(client).ok();
            }
            client = self.pick.draw(&mut self.rng);
        }
        None
    }

    /// Of which kind the request is.
    #[inline]
    pub(crate) fn kind(&mut self) -> u16 {
        if let Some(replay) = &self.replay {
            return replay.kind();
        }
        self.kinds
            .as_ref()
            .map_or(0, |kinds| u16::try_from(kinds.draw(&mut self.rng)).unwrap_or(u16::MAX))
    }

    /// How many requests come together.
    #[inline]
    pub(crate) fn batch(&mut self) -> u32 {
        if self.batch > 1.0 && self.replay.is_none() { self.rng.geometric(self.batch) } else { 1 }
    }

    /// Whether what comes next does not depend on the rate of this moment.
    pub(crate) fn is_listed(&self) -> bool {
        self.replay.is_some()
    }

    /// Its randomness, for what callers do with a drop.
    pub(crate) fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// Some clients' load is multiplied by `factor`. The whole grows or shrinks with it.
    pub(crate) fn multiply(&mut self, clients: impl Iterator<Item = usize>, factor: f64) {
        for client in clients {
            self.factors[client] *= factor;
        }
        let weights: Vec<f64> =
            self.weights.iter().zip(&self.factors).map(|(w, f)| w * f).collect();
        self.scale = weights.iter().sum::<f64>() / self.weights.iter().sum::<f64>();
        self.pick = Weighted::new(&weights);
    }

    /// All load moves to one client: the one in the middle by load, unless another is named.
    pub(crate) fn move_to(&mut self, client: Option<u32>) {
        self.only = client.or_else(|| self.ranks.get(self.ranks.len() / 2).copied());
    }

    /// The load goes back to where it was.
    pub(crate) fn spread_again(&mut self) {
        self.only = None;
    }
}
