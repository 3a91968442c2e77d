//! The rates that reports state, kept only for lines that state any.

/// The rates of one key in one report, requests a second.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(in crate::agent) struct Stated {
    pub(in crate::agent) offered_rps: f32,
    pub(in crate::agent) usual_rps: f32,
}

impl Stated {
    #[expect(clippy::cast_possible_truncation, reason = "seven digits do for a rate")]
    pub(in crate::agent) fn new(offered_rps: f64, usual_rps: f64) -> Self {
        Self { offered_rps: offered_rps as f32, usual_rps: usual_rps as f32 }
    }
}

/// Where a line's rates stand; [`NO_RATES`] if all are 0.
pub(super) type GaugeId = u32;
pub(super) const NO_RATES: GaugeId = GaugeId::MAX;

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Gauge {
    now: Stated,
    /// In the last report that was acknowledged.
    acked: Stated,
}

/// A gauge for each line that has one.
#[derive(Debug, Default)]
pub(super) struct Gauges {
    all: Vec<Gauge>,
    free: Vec<GaugeId>,
}

impl Gauges {
    pub(super) fn now(&self, at: GaugeId) -> Stated {
        self.get(at).now
    }

    pub(super) fn acked(&self, at: GaugeId) -> Stated {
        self.get(at).acked
    }

    pub(super) fn set_now(&mut self, at: &mut GaugeId, now: Stated) {
        self.set(at, Gauge { now, ..self.get(*at) });
    }

    pub(super) fn set_acked(&mut self, at: &mut GaugeId, acked: Stated) {
        self.set(at, Gauge { acked, ..self.get(*at) });
    }

    pub(super) fn clear(&mut self, at: &mut GaugeId) {
        self.set(at, Gauge::default());
    }

    fn get(&self, at: GaugeId) -> Gauge {
        self.all.get(at as usize).copied().unwrap_or_default()
    }

    fn set(&mut self, at: &mut GaugeId, gauge: Gauge) {
        match (gauge == Gauge::default(), *at) {
            (true, NO_RATES) => {}
            (true, _) => self.free.push(std::mem::replace(at, NO_RATES)),
            (false, NO_RATES) => {
                *at = self.free.pop().unwrap_or_else(|| {
                    crate::grow::make_room(&mut self.all, 1);
                    self.all.push(Gauge::default());
                    super::index(self.all.len() - 1)
                });
                self.all[*at as usize] = gauge;
            }
            (false, _) => self.all[*at as usize] = gauge,
        }
    }

    #[cfg(test)]
    pub(super) fn in_use(&self) -> usize {
        self.all.len() - self.free.len()
    }
}
