//! An allowance shared out among values that share one limit: what each of them may have.

use sluicegate_model::Sharing;

/// Whoever gets all that it asks for gets room to grow as well, so that noise costs it nothing: up to
/// this many times its demand,
const ROOM_X: f64 = 2.0;
/// and this share of what it is entitled to,
const ROOM_SHARE: f64 = 0.05;

/// One value's part.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Member {
    /// Its demand, requests a second.
    pub demand_rps: f64,
    /// The usual rate of its clients, requests a second.
    pub usual_rps: f64,
    /// Its class, a place in the order of priorities; of no meaning where sharing is fair.
    pub class: usize,
    /// What it may have, requests a second.
    pub allowed_rps: f64,
}

/// Works out what each of `members` may have of `total_rps`.
///
/// While everything fits, head-room goes where traffic usually is. Once it does not, [`Sharing::Fair`]
/// gives no value more than another that wants more than it gets, and [`Sharing::Priority`] gives each
/// class what those before it leave; values of one class then get the same share of their demand.
pub fn share_out(sharing: &Sharing, total_rps: f64, members: &mut [Member]) {
    let demand: f64 = members.iter().map(|m| m.demand_rps).sum();
    if demand <= total_rps {
        return spread(total_rps - demand, members);
    }
    match sharing {
        Sharing::Fair => max_min(total_rps, members),
        Sharing::Priority(_) => waterfall(total_rps, members),
    }
}

#[expect(clippy::cast_precision_loss, reason = "values of one bucket")]
fn spread(headroom_rps: f64, members: &mut [Member]) {
    let usual: f64 = members.iter().map(|m| m.usual_rps).sum();
    let even = 1.0 / members.len().max(1) as f64;
    for m in members {
        let part = if usual > 1e-6 { m.usual_rps / usual } else { even };
        m.allowed_rps = m.demand_rps + headroom_rps * part;
    }
}

fn max_min(total_rps: f64, members: &mut [Member]) {
    let level = water_level(total_rps, members);
    for m in members {
        m.allowed_rps = with_room(m.demand_rps, level);
    }
}

/// The level up to which every demand is met so that together they come to `total_rps`, which is less
/// than all of it.
fn water_level(total_rps: f64, members: &[Member]) -> f64 {
    let mut sorted: Vec<f64> = members.iter().map(|m| m.demand_rps).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let (mut left, mut many) = (total_rps, sorted.len());
    for wanted in sorted {
        #[expect(clippy::cast_precision_loss, reason = "values of one bucket")]
        let even = left / many as f64;
        if wanted >= even {
            return even.max(0.0);
        }
        left -= wanted;
        many -= 1;
    }
    left.max(0.0)
}

fn waterfall(total_rps: f64, members: &mut [Member]) {
    let mut left = total_rps.max(0.0);
    let classes = members.iter().map(|m| m.class).max().map_or(0, |worst| worst + 1);
    for class in 0..classes {
        let of_class = || members.iter().filter(|m| m.class == class);
        let wanted: f64 = of_class().map(|m| m.demand_rps).sum();
        let entitled = left;
        left = (left - wanted).max(0.0);
        if wanted <= 0.0 {
            continue;
        }
        for m in members.iter_mut().filter(|m| m.class == class) {
            let part = m.demand_rps / wanted;
            m.allowed_rps = with_room(m.demand_rps, entitled * part);
        }
    }
}

/// What is allowed of a demand by whom `entitled_rps` is kept.
fn with_room(demand_rps: f64, entitled_rps: f64) -> f64 {
    entitled_rps.min(demand_rps * ROOM_X + entitled_rps * ROOM_SHARE)
}
