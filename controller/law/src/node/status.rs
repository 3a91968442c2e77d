//! What a node shows of itself.

use super::Node;
use super::children::{Session, Silence};
use super::keys::Cold;
use crate::{KeyView, ServiceView, SessionView, View};

impl Node {
    /// The state of this moment. It costs every key and session: for people and metrics only.
    #[must_use]
    pub fn view(&self, parent_open: Option<bool>) -> View {
        let mut keys: Vec<KeyView> =
            self.keys.iter().filter_map(|(key, cold)| self.key_view(key, cold)).collect();
        keys.sort_by(|a, b| a.name.cmp(&b.name));
        let services = self
            .catalog
            .services()
            .map(|s| ServiceView {
                counts: s.totals.of(s.name.clone()),
                attempts_rps: f64::from(s.attempts_rps),
                admitted_rps: f64::from(s.admitted_rps),
                configured: s.configured.is_some(),
            })
            .collect();
        View {
            term: self.term,
            version: self.version,
            sessions: self.children.iter().map(|s| self.session_view(s)).collect(),
            keys,
            services,
            counters: self.counters.clone(),
            parent_open,
        }
    }

    fn key_view(&self, key: u32, cold: &Cold) -> Option<KeyView> {
        let state = self.keys.state(key)?;
        let kind = self.catalog.kind(cold.bucket);
        let [offered, admitted, would_drop] = cold.rates.map(f64::from);
        let directive = cold.cached.as_ref().filter(|c| c.expires > self.now);
        let granted = cold.granting.as_ref().filter(|g| g.pool.is_some() && g.leaf.is_none());
        let drop_ratio = match granted {
            Some(granting) => (1.0 - granting.share).max(0.0),
            None => directive.map_or(0.0, |c| c.directive.admit.drop_ratio()),
        };
        Some(KeyView {
            name: self.catalog.key_name(cold.bucket, &cold.values)?,
            scope: kind.map(|k| k.scope),
            mode: kind.map(|k| k.mode),
            limit: cold.limit,
            offered_rps: state.offered_rps,
            admitted_rps: admitted,
            dropped_rps: (offered - admitted).max(0.0),
            would_drop_rps: would_drop,
            drop_ratio,
            sessions: state.sessions,
            counts: state.counts,
            directive_ttl: directive.map(|c| c.expires.since(self.now)),
        })
    }

    fn session_view(&self, session: &Session) -> SessionView {
        SessionView {
            id: session.id,
            role: session.role,
            node: session.node.clone(),
            zone: session.zone.clone(),
            applied_version: session.applied_version,
            keys: session.keys(),
            quiet: self.now.since(session.heard),
            silent: session.silence != Silence::No,
        }
    }
}
