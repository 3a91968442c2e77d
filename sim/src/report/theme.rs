//! Colours and type, for pages and for plots that stand alone: light, dark and on paper. Whoever
//! opens a report sees the one that fits.

use crate::law::Law;

/// The variables that everything else is written in.
const LIGHT: &str = "--bg:#ffffff;--panel:#ffffff;--ink:#1b2430;--soft:#5b6675;--rule:#d5dbe3;--grid:#e9edf2;\
--offered:#dde3ea;--offered-edge:#a3afbd;--limit:#1b2430;--fault:#f59e0b;\
--law0:#1d4ed8;--law1:#d97706;--law2:#dc2626;--law3:#0d9488;--law4:#7c3aed;--law5:#4d7c0f;\
--law6:#be185d;--law7:#0891b2;--law8:#78350f;";
const DARK: &str = "--bg:#12161c;--panel:#181d25;--ink:#e6eaf0;--soft:#9aa6b5;--rule:#39424f;--grid:#262d37;\
--offered:#2c3541;--offered-edge:#64748b;--limit:#e6eaf0;--fault:#f59e0b;\
--law0:#60a5fa;--law1:#fbbf24;--law2:#f87171;--law3:#2dd4bf;--law4:#b49bff;--law5:#a3e635;\
--law6:#f472b6;--law7:#22d3ee;--law8:#d6a06a;";

/// How plots are drawn.
const PLOTS: &str = "\
.plot{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif;\
font-variant-numeric:tabular-nums;background:var(--panel)}\
.plot text{fill:var(--ink)}.plot .soft{fill:var(--soft)}\
.plot .title{font-size:14px;font-weight:600}\
.plot .mid{text-anchor:middle}.plot .end{text-anchor:end}\
.plot .grid{stroke:var(--grid);stroke-width:1}.plot .base{stroke:var(--rule);stroke-width:1}\
.plot .begin{stroke:var(--soft);stroke-width:1;stroke-dasharray:1 3}\
.plot .fault{fill:var(--fault);opacity:.13}\
.plot path{fill:none;stroke-linejoin:round;stroke-linecap:round}\
.plot .offered{fill:var(--offered);stroke:none}\
.plot .offered-edge{stroke:var(--offered-edge);stroke-width:1}\
.plot .limit{stroke:var(--limit);stroke-width:1.3;stroke-dasharray:6 4;stroke-linecap:butt}\
.plot .line{stroke-width:1.8}\
.plot .thin{stroke-width:1.2}\
.plot .track{stroke:var(--grid);stroke-width:1}\
.plot .stem{stroke-width:5;opacity:.35;stroke-linecap:butt}\
.plot .dot{opacity:.75;stroke:none}\
.plot .median{stroke-width:2.5}";

/// A place among the colours: a law keeps its own in every report.
pub(super) fn colour(law: Law) -> usize {
    Law::ALL.iter().position(|l| *l == law).unwrap_or(0) % COLOURS
}

const COLOURS: usize = 9;

/// The style of plots and of the variables that they use.
pub(super) fn style() -> String {
    let mut style = format!(
        ":root{{color-scheme:light dark;{LIGHT}}}\
         @media screen and (prefers-color-scheme:dark){{:root{{{DARK}}}}}\
         @media print{{:root{{color-scheme:light}}}}{PLOTS}"
    );
    for n in 0..COLOURS {
        use std::fmt::Write as _;
        // Writing to a string cannot fail.
        let _ = write!(
            style,
            ".plot .law{n}{{stroke:var(--law{n})}}.plot .fill{n}{{fill:var(--law{n})}}"
        );
    }
    style
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_themes_set_the_same_variables() {
        let names = |text: &str| -> Vec<String> {
            text.split(';').filter_map(|p| p.split_once(':')).map(|(n, _)| n.into()).collect()
        };
        assert_eq!(names(LIGHT), names(DARK));
        for law in Law::ALL {
            assert!(LIGHT.contains(&format!("--law{}:", colour(*law))));
        }
    }
}
