//! Every interleaving of the parts that threads and the agent share. Run with
//! `RUSTFLAGS="--cfg loom" cargo test --release --lib loom` and a target directory of its own.

use std::sync::Arc as StdArc;

use loom::sync::Arc;
use loom::thread;

use crate::cell::{ALL, CountCell, Tally};
use crate::slot::{Flags, RuleSlot, Slot};
use crate::stripe::{Claim, Stripes};
use crate::waiting::WaitingRoom;
use sluicegate_model::Mode;

/// Two threads on a shared cell while the agent reads: nothing is lost, nothing goes back, and what
/// passes is the ratio within a unit a thread.
#[test]
fn loom_shared_cells_lose_nothing() {
    loom::model(|| {
        let cell = Arc::new(CountCell::shared(1 << 31));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let cell = cell.clone();
                thread::spawn(move || {
                    for _ in 0..2 {
                        let pass = cell.draw_shared(1 << 31, 1);
                        cell.count_shared(if pass { Tally::Admitted } else { Tally::Alone }, 1);
                    }
                })
            })
            .collect();
        let early = cell.read();
        threads.into_iter().for_each(|t| t.join().unwrap());
        let late = cell.read();
        assert!(late.admitted >= early.admitted && late.alone >= early.alone);
        assert_eq!(late.admitted + late.alone, 4);
        assert!((1..=3).contains(&late.admitted), "{late:?}");
    });
}

/// The owner writes with plain stores; the agent reads and sets the cap.
#[test]
fn loom_an_owned_cell_is_read_while_it_counts() {
    loom::model(|| {
        let cell = Arc::new(CountCell::owned(7));
        let owner = {
            let cell = cell.clone();
            thread::spawn(move || {
                for _ in 0..3 {
                    let tally = if cell.has_budget(1) { Tally::Admitted } else { Tally::Alone };
                    cell.count_owned(tally, 1);
                }
            })
        };
        let early = cell.read();
        cell.set_budget(Some(1));
        owner.join().unwrap();
        let late = cell.read();
        assert!(late.admitted >= early.admitted);
        assert_eq!(late.admitted + late.alone, 3);
    });
}

/// A directive while requests are decided: a thread sees the old ratio or the new one.
#[test]
fn loom_directives_are_seen_whole() {
    loom::model(|| {
        let slot = Arc::new(Slot::new(3));
        slot.assign(1, Flags::new(Mode::Deny, false, false, 0));
        let decider = {
            let slot = slot.clone();
            thread::spawn(move || {
                let seen = [slot.ratio(), slot.ratio()];
                (seen, slot.flags().retry_ms())
            })
        };
        slot.set_flags(slot.flags().with_retry_ms(9));
        slot.set_ratio(5);
        let ([first, second], retry_ms) = decider.join().unwrap();
        assert!([ALL, 5].contains(&first) && [ALL, 5].contains(&second));
        assert!(!(first == 5 && second == ALL), "a ratio does not go back");
        assert!(retry_ms == 0 || retry_ms == 9);
    });
}

/// A key is promoted while a thread counts it: whichever cell it takes, the totals have it.
#[test]
fn loom_promotion_loses_no_count() {
    loom::model(|| {
        let rule = Arc::new(RuleSlot::new(3));
        let own = Arc::new(CountCell::owned(1));
        rule.slot.assign(1, Flags::new(Mode::Deny, false, false, 0));
        let counter = {
            let (rule, own) = (rule.clone(), own.clone());
            thread::spawn(move || {
                for _ in 0..2 {
                    if rule.slot.place() == 0 {
                        own.count_owned(Tally::Admitted, 1);
                    } else {
                        rule.slot.shared.count_shared(Tally::Admitted, 1);
                    }
                }
            })
        };
        rule.with_fold(|_| rule.slot.set_places(0, 1));
        counter.join().unwrap();
        let mut raw = rule.slot.shared.read();
        raw.add(own.read());
        assert_eq!(raw.admitted, 2);
        assert_eq!(rule.with_fold(|f| f.totals(raw, Mode::Deny)).admitted, 2);
    });
}

/// Two threads want the one stripe: never both at once, and the second sees the first one's counts.
#[test]
fn loom_a_stripe_has_one_owner_at_a_time() {
    loom::model(|| {
        let stripes = StdArc::new(Stripes::new(1, 1, 1));
        let work = |stripes: &Stripes| {
            if let Claim::Yours(stripe) = stripes.claim() {
                let cell = stripe.cell(0);
                let before = cell.read().admitted;
                cell.count_owned(Tally::Admitted, 1);
                assert_eq!(cell.read().admitted, before + 1, "nobody else writes here");
                stripes.release(stripe);
                1
            } else {
                0
            }
        };
        let other = {
            let stripes = stripes.clone();
            thread::spawn(move || work(&stripes))
        };
        let mine = work(&stripes);
        let theirs = other.join().unwrap();
        assert_eq!(stripes.sum(0).admitted, mine + theirs);
        assert!(mine + theirs >= 1);
    });
}

/// Two threads post while the agent takes: each post arrives once, or its refusal is counted.
#[test]
fn loom_what_is_posted_arrives_or_is_counted() {
    loom::model(|| {
        let room = Arc::new(WaitingRoom::new(1));
        let threads: Vec<_> = [1, 2]
            .map(|hash| {
                let room = room.clone();
                thread::spawn(move || room.post(None, hash, ["x"].into_iter()))
            })
            .into_iter()
            .collect();
        let mut arrived = 0;
        if let Some(post) = room.take() {
            room.done(post);
            arrived += 1;
        }
        threads.into_iter().for_each(|t| t.join().unwrap());
        while let Some(post) = room.take() {
            room.done(post);
            arrived += 1;
        }
        assert_eq!(arrived + room.refused(), 2);
    });
}
