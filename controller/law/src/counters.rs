//! What a node absorbed or refused, by name. None of these ever goes back.

use sluicegate_model::Invariant;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts of everything that was absorbed or refused, and of broken invariants.
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
            /// Times each invariant was found broken, in the order of [`Invariant::ALL`].
            pub invariants_broken: [u64; Invariant::ALL.len()],
        }

        impl Counters {
            /// Each by its name, for metrics. Invariants are not among them.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Reports taken in.
    reports,
    /// Entries of reports taken in.
    entries,
    /// Reports with a sequence number already seen.
    reports_repeated,
    /// Reports over an interval of zero.
    reports_without_interval,
    /// Entries for an id that was never named on the stream, or was retired.
    entries_unknown_key,
    /// Entries whose counts went back.
    entries_went_back,
    /// Entries whose counts cannot be true of each other.
    entries_inconsistent,
    /// Entries whose rate was not a number or negative.
    entries_bad_rate,
    /// Entries whose rate or number of sessions was above what a session may claim, clamped.
    entries_clamped,
    /// Counts of a service that went back.
    services_went_back,
    /// Counts of a service beyond the bound on services.
    services_refused,
    /// Key ids at or above the bound of a session.
    key_ids_out_of_range,
    /// Ids that were given to another key without being retired.
    key_ids_redefined,
    /// Retired ids that were never named.
    retired_unknown,
    /// Names of keys whose bucket is not in the configuration here.
    keys_of_unknown_bucket,
    /// Values counted on their bucket's overflow key because of `max_keys`.
    keys_overflowed,
    /// Keys not counted at all because of the bounds of the node.
    keys_refused,
    /// Keys forgotten after nobody named them for long.
    keys_forgotten,
    /// Sessions that fell silent and were carried.
    sessions_silent,
    /// Sessions that stayed silent and whose rates were taken out.
    sessions_zeroed,
    /// Streams refused at their hello or closed for what they sent.
    sessions_refused,
    /// What a parent sent under an older term.
    stale_terms,
    /// Configuration from a parent that was older than what is in force.
    stale_versions,
    /// Directives from a parent that were older than the one in force, or already over.
    stale_directives,
    /// Directives from a parent with a limit or guard that is not a number.
    directives_bad,
    /// Directives from a parent for an id that stands for no key here.
    directives_unknown_key,
    /// Claims of a child to have seen a term or version that none can have reached.
    seen_out_of_range,
    /// Times term and version were raised above what a child had seen.
    term_jumps,
    /// Keys that had to wait for a later report to the parent because one was full.
    report_entries_deferred,
}

impl Counters {
    /// Notes that `invariant` was found broken.
    pub fn broke(&mut self, invariant: Invariant) {
        if let Some(at) = Invariant::ALL.iter().position(|i| *i == invariant) {
            self.invariants_broken[at] += 1;
        }
    }

    /// How often each invariant was found broken.
    pub fn invariants(&self) -> impl Iterator<Item = (Invariant, u64)> {
        Invariant::ALL.into_iter().zip(self.invariants_broken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_invariants_are_listed() {
        let mut c = Counters { reports: 3, ..Counters::default() };
        c.broke(Invariant::I5);
        assert!(c.iter().any(|(n, v)| n == "reports" && v == 3));
        assert_eq!(
            c.invariants().filter(|(_, n)| *n > 0).collect::<Vec<_>>(),
            [(Invariant::I5, 1)]
        );
    }
}
