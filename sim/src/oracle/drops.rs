//! Each decision as it is made: whether it may be so (I1, I2, I6), and what it counts.

use sluicegate_model::{Invariant, Mode};

use super::Oracle;
use crate::node::NodeId;
use crate::observe::{Ask, BucketId, Verdict};

impl Oracle {
    pub(super) fn judge_decision(&mut self, at: u64, ask: &Ask, verdict: Verdict) {
        self.decisions += 1;
        let node = NodeId(ask.client);
        self.check(verdict != Verdict::Later && at == ask.at, (Invariant::I1, at, node), || {
            let asked_ms = ask.at / 1_000_000;
            ("a decision at once".into(), format!("{verdict:?}, asked at {asked_ms} ms"))
        });
        if let Verdict::Drop(bucket) = verdict {
            self.judge_drop(at, ask, bucket);
        }
        let (place, zone) = (ask.client as usize, self.topology.zone_of(ask.client as usize));
        let asked = &self.directory.kinds[ask.workload as usize][ask.kind as usize];
        self.clients[place].count(&self.directory, self.rules, at, asked, verdict);
        for hit in &asked.hits {
            let (new, unheard) = self.clients[place].ask(&self.directory, self.rules, at, *hit);
            // A new value is counted with all that have no key of their own, and not limited.
            if new && self.directory.is_value(hit.key) {
                continue;
            }
            self.settle.count(&self.directory, self.topology, (at, zone), *hit, (verdict, unheard));
        }
    }

    fn judge_drop(&mut self, at: u64, ask: &Ask, by: BucketId) {
        let node = NodeId(ask.client);
        let facts = &self.directory.buckets[by.0 as usize];
        let name = format!("{}/{}", facts.service, facts.name);
        let mode = facts.mode;
        if mode != Mode::Deny {
            self.check(false, (Invariant::I6, at, node), || {
                (
                    "an outcome that only deny buckets decide".into(),
                    format!("{mode:?} {name} drops"),
                )
            });
            return;
        }
        let asked = &self.directory.kinds[ask.workload as usize][ask.kind as usize];
        let hit = asked.hits.iter().find(|h| h.bucket == by).copied();
        let client = &mut self.clients[ask.client as usize];
        let limit = hit.and_then(|h| client.limit(&self.directory, h));
        let excuse = hit
            .zip(limit)
            .and_then(|(hit, limit)| client.excuse(self.rules, at, limit, facts.on_loss, hit.key));
        self.findings.check(excuse.is_some(), (Invariant::I2, at, node), || {
            let found = match (hit, limit) {
                (None, _) => format!("{name} drops what it does not match"),
                (_, None) => format!("{name} drops and is not in force here"),
                (Some(hit), _) => format!("{name} drops; {}", client.tell(at, hit.key)),
            };
            ("a directive in force, a limit of 0, the cap or on_control_loss".into(), found)
        });
    }
}
