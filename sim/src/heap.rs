//! The one order of all events: by time, then by when they were scheduled.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// When something happens: nanoseconds of world time, and a number that rises with each scheduling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) at: u64,
    pub(crate) seq: u64,
}

/// Events that wait for their time.
#[derive(Debug)]
pub(crate) struct Heap<E> {
    waiting: BinaryHeap<Waiting<E>>,
    seq: u64,
}

#[derive(Debug)]
struct Waiting<E> {
    place: Place,
    event: E,
}

impl<E> PartialEq for Waiting<E> {
    fn eq(&self, other: &Self) -> bool {
        self.place == other.place
    }
}
impl<E> Eq for Waiting<E> {}
impl<E> PartialOrd for Waiting<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<E> Ord for Waiting<E> {
    /// The earliest is the greatest: the standard's heap gives that first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.place.cmp(&self.place)
    }
}

impl<E> Heap<E> {
    pub(crate) fn new() -> Self {
        Self { waiting: BinaryHeap::new(), seq: 0 }
    }

    /// The place of something scheduled now for `at`.
    pub(crate) fn place(&mut self, at: u64) -> Place {
        self.seq += 1;
        Place { at, seq: self.seq }
    }

    pub(crate) fn push(&mut self, at: u64, event: E) {
        let place = self.place(at);
        self.waiting.push(Waiting { place, event });
    }

    /// The place of the next event.
    pub(crate) fn next(&self) -> Option<Place> {
        self.waiting.peek().map(|w| w.place)
    }

    pub(crate) fn pop(&mut self) -> Option<(Place, E)> {
        self.waiting.pop().map(|w| (w.place, w.event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_then_by_scheduling() {
        let mut heap = Heap::new();
        for (at, event) in [(5, 'c'), (1, 'a'), (5, 'd'), (3, 'b')] {
            heap.push(at, event);
        }
        assert_eq!(heap.next().map(|p| p.at), Some(1));
        let order: String = std::iter::from_fn(|| heap.pop()).map(|(_, e)| e).collect();
        assert_eq!(order, "abcd");
    }
}
