//! The stream between a node and the tier above, as both ends see it. Knows nothing of what flows
//! through it.

use crate::node::NodeId;
use crate::random::Rng;

const MS: u64 = 1_000_000;
/// After so long without an answer to a probe a connection counts as dead, as the transport's
/// keepalive does it: a probe every 2 s, 4 s for the answer.
pub(super) const KEEPALIVE_NS: u64 = 6000 * MS;
/// A connection that does not come about is given up after this.
const CONNECT_TIMEOUT_NS: u64 = 2000 * MS;
/// Between attempts, doubling, each drawn from the upper half.
const BACKOFF_FIRST_NS: u64 = 100 * MS;
const BACKOFF_MOST_NS: u64 = 1000 * MS;

/// The stream of one node to the tier above.
#[derive(Debug)]
pub(super) struct Stream {
    /// Of the last one begun.
    number: u32,
    is_open: bool,
    failures: u32,
    /// Those that the node above holds open: more than one if it does not know yet that an older
    /// one is dead.
    served: Vec<u32>,
    /// The highest number that the node above has ever seen a message of.
    met: u32,
    rng: Rng,
}

impl Stream {
    pub(super) fn new(rng: Rng) -> Self {
        Self { number: 0, is_open: false, failures: 0, served: Vec::new(), met: 0, rng }
    }

    /// What the node above calls a stream.
    pub(super) fn session(child: NodeId, number: u32) -> u64 {
        u64::from(child.0) << 32 | u64::from(number)
    }

    /// The stream behind [`Stream::session`].
    #[expect(clippy::cast_possible_truncation, reason = "the halves of the word")]
    pub(super) fn of_session(session: u64) -> (NodeId, u32) {
        (NodeId((session >> 32) as u32), session as u32)
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Begins the next one.
    pub(super) fn begin(&mut self) -> u32 {
        self.number += 1;
        self.number
    }

    pub(super) fn open(&mut self) {
        self.is_open = true;
        self.failures = 0;
    }

    /// The node below knows that it is closed; how long until it tries again.
    pub(super) fn close(&mut self) -> u64 {
        self.is_open = false;
        self.backoff()
    }

    /// The attempt came to nothing; how long until the next.
    pub(super) fn failed(&mut self, refused: bool) -> u64 {
        let noticed = if refused { 0 } else { CONNECT_TIMEOUT_NS };
        noticed + self.backoff()
    }

    /// The node below is dead.
    pub(super) fn lose(&mut self) {
        self.is_open = false;
        self.failures = 0;
        // Whatever is under way of the old process is of a stream that is never opened.
        self.number += 1;
    }

    /// A message of the stream `number` reached the node above: whether it is the first; `None` if
    /// the stream is closed there.
    pub(super) fn serve(&mut self, number: u32) -> Option<bool> {
        if self.served.contains(&number) {
            return Some(false);
        }
        (number > self.met).then(|| {
            self.met = number;
            self.served.push(number);
            true
        })
    }

    /// Whether the process above has come to an end since this attempt began.
    pub(super) fn missed(&self, number: u32) -> bool {
        number <= self.met
    }

    /// Whether the node above holds it open.
    pub(super) fn serves(&self, number: u32) -> bool {
        self.served.contains(&number)
    }

    /// Those that the node above holds open.
    pub(super) fn served(&self) -> Vec<u32> {
        self.served.clone()
    }

    /// The node above closes it. Whether it was open there.
    pub(super) fn forget(&mut self, number: u32) -> bool {
        let before = self.served.len();
        self.served.retain(|n| *n != number);
        self.served.len() < before
    }

    /// The node above is dead.
    pub(super) fn forget_all(&mut self) {
        self.served.clear();
        self.met = self.number;
    }

    fn backoff(&mut self) -> u64 {
        let range = (BACKOFF_FIRST_NS << self.failures.min(4)).min(BACKOFF_MOST_NS);
        self.failures = self.failures.saturating_add(1);
        range / 2 + self.rng.below(range / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_keep_their_own_view() {
        let mut s = Stream::new(Rng::new(1, 1));
        let first = s.begin();
        s.open();
        assert_eq!(s.serve(first), Some(true));
        assert_eq!(s.serve(first), Some(false));
        s.close();
        let second = s.begin();
        assert_eq!(s.serve(second), Some(true));
        assert_eq!(s.served(), [first, second], "the first is not known to be dead yet");
        assert!(s.forget(first) && !s.forget(first));
        assert_eq!(s.serve(first), None, "what comes late is of a closed stream");
        assert!(!s.missed(s.number() + 1));
        s.forget_all();
        assert!(s.missed(second));
        assert_eq!(s.serve(second), None, "the new process above never met it");
    }

    #[test]
    fn attempts_come_ever_later_up_to_a_bound() {
        let mut s = Stream::new(Rng::new(1, 1));
        for range_ms in [100, 200, 400, 800, 1000, 1000] {
            let wait = s.failed(true);
            assert!(wait >= range_ms * MS / 2 && wait < range_ms * MS, "{wait} of {range_ms}");
        }
        assert!(s.failed(false) >= CONNECT_TIMEOUT_NS);
        s.open();
        assert!(s.close() < BACKOFF_FIRST_NS);
    }

    #[test]
    fn a_session_names_child_and_stream() {
        let session = Stream::session(NodeId(1005), 7);
        assert_eq!(Stream::of_session(session), (NodeId(1005), 7));
    }
}
