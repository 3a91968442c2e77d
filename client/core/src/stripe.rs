//! Stripes: counters that one thread has to itself, so that threads which decide on the same key do
//! not pass one cache line to and fro.
//!
//! A thread claims a stripe of a limiter when it first needs one and gives it back when it ends; the
//! counts stay in it and go on under the next owner. Cells stand close together; only stripes are
//! apart. A thread without a stripe (all taken, or the thread is ending) uses the shared cells.
//!
//! Stripes are never freed: those of a dropped limiter go to a pool that the next limiter takes
//! from. That is what lets a thread hold a plain reference, without a count and without a
//! destructor, which is what makes finding it cheap. Memory is bounded by the most ever in use.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use crate::cell::{CountCell, Raw};
use crate::hash::mix;
use crate::slot::MAX_PLACES;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock, try_lock};

/// The fewest places of a stripe.
const MIN_PLACES: usize = 64;
/// The most limiters that one thread keeps stripes of at a time.
const MAX_HELD: usize = 8;

/// The counters of one thread at a time.
#[derive(Debug)]
pub(crate) struct Stripe {
    claimed: AtomicBool,
    cells: Box<[OwnCell]>,
}

/// A cell in a stripe. It has a cache line of its own not against other threads (there are none)
/// but so that one decision touches one line a key, and finds it with a shift.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct OwnCell(pub(crate) CountCell);

impl Stripe {
    fn new(places: usize, seed: u64) -> Self {
        let cell = |i| OwnCell(CountCell::owned(mix(seed ^ mix(i as u64))));
        Self { claimed: AtomicBool::new(false), cells: (0..places).map(cell).collect() }
    }

    /// Whether this call made the caller the owner. Acquires what the last owner wrote.
    fn claim(&self) -> bool {
        self.claimed.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn release(&self) {
        self.claimed.store(false, Ordering::Release);
    }
}

/// What became of an attempt to claim a stripe.
pub(crate) enum Claim {
    Yours(&'static Stripe),
    /// None is free and no more may be made: no use in asking again before one is given back.
    AllTaken,
    /// Another thread is being served this moment.
    Busy,
}

/// Every stripe of one limiter.
#[derive(Debug)]
pub(crate) struct Stripes {
    /// Unique among all limiters of the process, never 0.
    id: u64,
    seed: u64,
    most: usize,
    /// One more than the highest place given out.
    places: AtomicU64,
    /// Grows whenever a claim that failed might succeed now.
    chances: AtomicU64,
    all: Mutex<Vec<&'static Stripe>>,
}

impl Stripes {
    pub(crate) fn new(id: u64, seed: u64, most: usize) -> Self {
        Self {
            id,
            seed,
            most,
            places: AtomicU64::new(0),
            chances: AtomicU64::new(1),
            all: Mutex::new(Vec::new()),
        }
    }

    /// From now on stripes must have `place`.
    pub(crate) fn reach(&self, place: u16) {
        let needed = u64::from(place) + 1;
        if needed > self.places.load(Ordering::Relaxed) {
            self.places.store(needed, Ordering::Release);
            self.chances.fetch_add(1, Ordering::Release);
        }
    }

    /// A free stripe with all places, or a new one.
    pub(crate) fn claim(&self) -> Claim {
        #[expect(clippy::cast_possible_truncation, reason = "at most MAX_PLACES + 1")]
        let needed = self.places.load(Ordering::Acquire) as usize;
        let Some(mut all) = try_lock(&self.all) else { return Claim::Busy };
        if let Some(free) = all.iter().find(|s| s.cells.len() >= needed && s.claim()) {
            return Claim::Yours(free);
        }
        if all.len() >= self.most {
            return Claim::AllTaken;
        }
        let size = needed.max(MIN_PLACES).next_power_of_two().min(MAX_PLACES);
        let made = pool::take(size).unwrap_or_else(|| {
            Box::leak(Box::new(Stripe::new(size, mix(self.seed ^ all.len() as u64))))
        });
        let claimed = made.claim();
        debug_assert!(claimed, "nobody else knows it yet");
        all.push(made);
        Claim::Yours(made)
    }

    /// Gives a stripe back.
    pub(crate) fn release(&self, stripe: &Stripe) {
        stripe.release();
        self.chances.fetch_add(1, Ordering::Release);
    }

    /// The sum over all stripes of what stands at `place`.
    pub(crate) fn sum(&self, place: usize) -> Raw {
        let mut sum = Raw::default();
        if place < MAX_PLACES {
            for stripe in lock(&self.all).iter() {
                if let Some(cell) = stripe.cells.get(place) {
                    sum.add(cell.0.read());
                }
            }
        }
        sum
    }

    /// Sets the cap at `place` in every stripe.
    pub(crate) fn set_budget(&self, place: usize, allowance: Option<u64>) {
        for stripe in lock(&self.all).iter() {
            if let Some(cell) = stripe.cells.get(place) {
                cell.0.set_budget(allowance);
            }
        }
    }

    /// How many there may be.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        lock(&self.all).len()
    }
}

impl Drop for Stripes {
    fn drop(&mut self) {
        // Who holds a stripe holds this as well, so all of them are free now.
        pool::give(&mut lock(&self.all));
    }
}

/// Runs `f` on the cells of the calling thread's stripe, if the limiter `id` is the one it decided
/// by last and it has a stripe of it.
#[inline(always)]
pub(crate) fn with_own<R>(id: u64, f: impl FnOnce(&'static [OwnCell]) -> Option<R>) -> Option<R> {
    // The closure returns what is made of the cells, never the cells: so that it stays in registers.
    CURRENT.with(|current| {
        let (owner, cells) = current.get();
        if owner == id { f(cells) } else { None }
    })
}

/// The cells themselves: a comparison more than [`with_own`], but no closure, which the compiler
/// does not always take in.
#[inline(always)]
pub(crate) fn own(id: u64) -> Option<&'static [OwnCell]> {
    let (owner, cells) = CURRENT.get();
    if owner == id { Some(cells) } else { None }
}

/// The calling thread's cell at `place`, with a stripe claimed for it if need be. `None` if the
/// place is none or there is no stripe: then the shared cell is the one to use.
#[inline]
pub(crate) fn own_cell(stripes: &Arc<Stripes>, place: usize) -> Option<&'static CountCell> {
    if place == MAX_PLACES {
        return None;
    }
    let at_hand = with_own(stripes.id, |cells| cells.get(place));
    at_hand.or_else(|| renew(stripes).get(place)).map(|own| &own.0)
}

/// Makes the calling thread's stripe of `stripes` the current one, claiming one if it must; also if
/// the one it has is too short for a place given out lately.
#[cold]
#[inline(never)]
fn renew(stripes: &Arc<Stripes>) -> &'static [OwnCell] {
    if stripes.most == 0 {
        return &[];
    }
    let cells = HELD
        .try_with(|held| {
            let mut held = held.try_borrow_mut().ok()?;
            Some(held.of(stripes))
        })
        .ok()
        .flatten()
        .unwrap_or(&[]);
    CURRENT.set((stripes.id, cells));
    cells
}

thread_local! {
    /// The stripe of the limiter that this thread used last. No destructor: reading it is one load.
    static CURRENT: Cell<(u64, &'static [OwnCell])> = const { Cell::new((0, &[])) };
    /// All stripes of this thread. Its destructor gives them back.
    static HELD: RefCell<HeldStripes> = const { RefCell::new(HeldStripes { all: Vec::new() }) };
}

struct HeldStripes {
    all: Vec<Held>,
}

struct Held {
    of: Arc<Stripes>,
    stripe: Option<&'static Stripe>,
    /// The chances seen when the last claim failed.
    tried: u64,
}

impl HeldStripes {
    fn of(&mut self, stripes: &Arc<Stripes>) -> &'static [OwnCell] {
        let at = match self.all.iter().position(|h| Arc::ptr_eq(&h.of, stripes)) {
            Some(at) => at,
            None => {
                if self.all.len() >= MAX_HELD {
                    self.all.remove(0);
                }
                self.all.push(Held { of: stripes.clone(), stripe: None, tried: 0 });
                self.all.len() - 1
            }
        };
        let held = &mut self.all[at];
        let needed = stripes.places.load(Ordering::Acquire);
        let long_enough = held.stripe.is_some_and(|s| s.cells.len() as u64 >= needed);
        let chances = stripes.chances.load(Ordering::Acquire);
        if !long_enough && chances != held.tried {
            match stripes.claim() {
                Claim::Yours(claimed) => {
                    if let Some(outgrown) = held.stripe.replace(claimed) {
                        // Without a new chance: it is too short for those who wait.
                        outgrown.release();
                    }
                }
                Claim::AllTaken => held.tried = chances,
                Claim::Busy => {}
            }
        }
        held.stripe.map_or(&[], |s| &s.cells)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(stripe) = self.stripe {
            // Whatever still decides in this thread must not write to it any more.
            if CURRENT.get().0 == self.of.id {
                CURRENT.set((0, &[]));
            }
            self.of.release(stripe);
        }
    }
}

/// Stripes without a limiter.
mod pool {
    use super::{Stripe, lock};

    #[cfg(not(loom))]
    static POOL: crate::sync::Mutex<Vec<&'static Stripe>> = crate::sync::Mutex::new(Vec::new());

    #[cfg(not(loom))]
    pub(super) fn take(places: usize) -> Option<&'static Stripe> {
        let mut pool = lock(&POOL);
        let at = pool.iter().position(|s| s.cells.len() == places)?;
        let stripe = pool.swap_remove(at);
        stripe.cells.iter().for_each(|cell| cell.0.clear());
        Some(stripe)
    }

    #[cfg(not(loom))]
    pub(super) fn give(stripes: &mut Vec<&'static Stripe>) {
        lock(&POOL).append(stripes);
    }

    // Loom's objects live for one run of a model only.
    #[cfg(loom)]
    pub(super) fn take(_places: usize) -> Option<&'static Stripe> {
        None
    }

    #[cfg(loom)]
    pub(super) fn give(stripes: &mut Vec<&'static Stripe>) {
        stripes.clear();
    }
}
