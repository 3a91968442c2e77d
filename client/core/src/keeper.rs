//! The agent's side of the table that requests are decided by: its single owner and writer.
//!
//! It publishes configuration, gives slots to new keys, reads counts and sets what the hot path
//! obeys. It knows no wire, no report and no law: those are the agent's.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_model::{
    AdmitRatio, Bucket, Counts, KeyName, Limit, ServiceBuckets, ServiceCounts, Time,
};

/// A key of the table. Good from its [`KeyEvent::New`] until [`Keeper::release`] after its
/// [`KeyEvent::Retired`]; then the number may come back for another key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHandle(pub(crate) u32);

impl KeyHandle {
    /// A small number, dense enough to index a vector with.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What happened to a key since [`Keeper::poll_event`] was last asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyEvent {
    /// It is there: every whole and overflow key from its configuration on, a value's key from
    /// [`Keeper::adopt`] on. Its counts start at 0; its ratio is "all" ("none" for a limit of 0).
    New(KeyHandle),
    /// Its limit, mode or `on_control_loss` is another now; its counts go on.
    Changed(KeyHandle),
    /// Its bucket is gone or it was evicted, and no request counts on it any more. The totals can
    /// be read for the last time; then give it back with [`Keeper::release`].
    Retired(KeyHandle),
}

/// What the hot path does with a drop when the agent has not beaten for ttl + ramp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StalePolicy {
    /// Admits instead (`on_control_loss: open`).
    Admit,
    /// Drops all the same (`last`, `share`, `closed`; a limit of 0 always).
    Keep,
}

/// The owner of the table. There is one for a limiter, and it is not cloned.
pub struct Keeper {}

impl Keeper {
    /// Publishes the whole set of services: what is not in it is removed. A bucket that is as
    /// before keeps its keys, counts, ratios and budgets; one whose limit, mode or
    /// `on_control_loss` changed keeps its keys and counts and is told as [`KeyEvent::Changed`]
    /// (a limit that became 0 denies at once; one that was 0 or unlimited starts with ratio
    /// "all"); one whose `per` dimensions or `max_keys` changed starts anew.
    pub fn configure(&mut self, now: Time, services: &[Arc<ServiceBuckets>]) {}

    /// Takes up to `max` identities and values that requests brought and the table lacked, and
    /// makes their entries. Also retires what has been leaving long enough. Call it every look.
    /// Returns how many were taken from the queue; `max` means there may be more.
    pub fn adopt(&mut self, now: Time, max: usize) -> usize {
        0
    }

    /// The next change to the set of keys.
    pub fn poll_event(&mut self) -> Option<KeyEvent> {
        None
    }

    /// Every key, those that are leaving included.
    pub fn keys(&self) -> impl Iterator<Item = KeyHandle> + '_ {
        std::iter::empty()
    }

    /// Every key that may have been counted on since the last call: all whole and overflow keys,
    /// and of the value keys (which can be very many) those that were. What a look should scan.
    pub fn take_touched(&mut self, each: impl FnMut(KeyHandle)) {}

    /// The key's name, made on demand: value keys do not store it a second time.
    pub fn name(&self, key: KeyHandle) -> KeyName {
        todo!()
    }

    /// The key's bucket.
    pub fn bucket(&self, key: KeyHandle) -> &Bucket {
        todo!()
    }

    /// The key's own limit ([`Bucket::limit_of`] its values).
    pub fn limit(&self, key: KeyHandle) -> Limit {
        todo!()
    }

    /// Whether the key is one value's (only such keys can be evicted).
    pub fn is_value(&self, key: KeyHandle) -> bool {
        false
    }

    /// Counts since the key was made, over the shared cell and all stripes. Never goes back.
    pub fn totals(&self, key: KeyHandle) -> Counts {
        Counts::default()
    }

    /// Counts of every configured service since it was first configured. Never goes back.
    pub fn service_totals(&self) -> impl Iterator<Item = ServiceCounts> + '_ {
        std::iter::empty()
    }

    /// The ratio that the hot path draws with from now on, and what a drop tells its caller.
    /// Ignored for a key without a limit (it stays "all") and for a limit of 0 ("none").
    pub fn set_admit(&mut self, key: KeyHandle, admit: AdmitRatio, retry_after: Duration) {}

    /// The cap: from now on no more than `allowance` further requests are admitted on this key
    /// (on each stripe), until it is set again; `None` switches it off, which it is at first. Not
    /// obeyed once [`Keeper::beat`] is more than 50 ms ago.
    pub fn set_budget(&mut self, key: KeyHandle, allowance: Option<u64>) {}

    /// What the hot path does with this key's drops when the agent is dead. [`StalePolicy::Admit`]
    /// or as `on_control_loss` says at first.
    pub fn set_stale_policy(&mut self, key: KeyHandle, policy: StalePolicy) {}

    /// Lets each thread count this key (and its service) apart from now on: for keys of about
    /// 1,000 requests a second and more. Whether it does: false if the bound is reached.
    pub fn promote(&mut self, key: KeyHandle) -> bool {
        false
    }

    /// Begins to remove an idle value key; [`KeyEvent::Retired`] follows. Whether it does: false if
    /// it is no value key, or one whose limit is 0, or already leaving.
    pub fn evict(&mut self, now: Time, key: KeyHandle) -> bool {
        false
    }

    /// Gives a retired key's number and memory back.
    pub fn release(&mut self, key: KeyHandle) {}

    /// The agent lives, and the budgets are as of `now`.
    pub fn beat(&mut self, now: Time) {}
}
