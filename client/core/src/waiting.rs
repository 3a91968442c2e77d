//! The waiting room: identities and values that the hot path met and the table lacks, on their way
//! to the agent. Bounded; never makes the hot path wait; what it refuses is counted.

use std::collections::{HashSet, VecDeque};

use crate::sync::{AtomicU64, Mutex, Ordering, lock, try_lock};

/// The longest text that may wait, in bytes, all parts together.
pub(crate) const MAX_TEXT_BYTES: usize = 4096;

/// Something new.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Post {
    /// The number of the bucket whose value it is, or `None` for an identity.
    pub(crate) per: Option<u32>,
    pub(crate) hash: u64,
    /// Where each part ends in `text`.
    ends: Vec<usize>,
    text: String,
}

impl Post {
    /// The parts, in order.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &str> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(from, to)| &self.text[from..*to])
    }

    fn fill<'a>(&mut self, per: Option<u32>, hash: u64, parts: impl Iterator<Item = &'a str>) {
        self.per = per;
        self.hash = hash;
        self.ends.clear();
        self.text.clear();
        for part in parts {
            self.text.push_str(part);
            self.ends.push(self.text.len());
        }
    }
}

#[derive(Debug)]
pub(crate) struct WaitingRoom {
    inner: Mutex<Inner>,
    most: usize,
    /// Refused because it was full, or too long, or another thread was just at the door.
    refused: AtomicU64,
}

#[derive(Debug)]
struct Inner {
    queue: VecDeque<Post>,
    /// Hashes of what waits, so that what a thousand requests bring waits once.
    waiting: HashSet<u64>,
    /// Used posts: their memory serves again.
    spare: Vec<Post>,
}

impl WaitingRoom {
    pub(crate) fn new(most: usize) -> Self {
        let inner = Inner {
            queue: VecDeque::with_capacity(most),
            waiting: HashSet::with_capacity(most),
            spare: Vec::with_capacity(most),
        };
        Self { inner: Mutex::new(inner), most, refused: AtomicU64::new(0) }
    }

    /// Posts something new, unless it waits already.
    pub(crate) fn post<'a>(
        &self,
        per: Option<u32>,
        hash: u64,
        parts: impl Iterator<Item = &'a str> + Clone,
    ) {
        let bytes: usize = parts.clone().map(str::len).sum();
        let taken = bytes <= MAX_TEXT_BYTES
            && try_lock(&self.inner).is_some_and(|mut inner| {
                inner.waiting.contains(&hash) || {
                    inner.queue.len() < self.most && {
                        let mut post = inner.spare.pop().unwrap_or_default();
                        post.fill(per, hash, parts);
                        inner.waiting.insert(hash);
                        inner.queue.push_back(post);
                        true
                    }
                }
            });
        if !taken {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The next one. The agent's.
    pub(crate) fn take(&self) -> Option<Post> {
        lock(&self.inner).queue.pop_front()
    }

    /// Gives a post's memory back, once it was dealt with.
    pub(crate) fn done(&self, post: Post) {
        let mut inner = lock(&self.inner);
        inner.waiting.remove(&post.hash);
        if inner.spare.len() < self.most {
            inner.spare.push(post);
        }
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.inner).queue.len()
    }

    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_waits_waits_once_and_no_more_than_the_bound() {
        let room = WaitingRoom::new(2);
        room.post(None, 1, ["a", "", "bc"].into_iter());
        room.post(None, 1, ["a", "", "bc"].into_iter());
        room.post(Some(7), 2, ["x"].into_iter());
        room.post(Some(7), 3, ["y"].into_iter());
        room.post(None, 4, [&*"z".repeat(MAX_TEXT_BYTES + 1)].into_iter());
        assert_eq!((room.len(), room.refused()), (2, 2));
        let first = room.take().expect("waits");
        assert_eq!(first.parts().collect::<Vec<_>>(), ["a", "", "bc"]);
        room.post(None, 1, ["a", "", "bc"].into_iter());
        assert_eq!(room.len(), 1, "still being dealt with");
        room.done(first);
        let second = room.take().expect("waits");
        assert_eq!((second.per, second.parts().collect::<Vec<_>>()), (Some(7), vec!["x"]));
        room.done(second);
        assert_eq!(room.take(), None);
        room.post(None, 1, ["q"].into_iter());
        assert_eq!(room.take().expect("waits").parts().collect::<Vec<_>>(), ["q"]);
    }
}
