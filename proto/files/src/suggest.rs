//! "Did you mean": the nearest of some words.

/// The most characters that are compared; longer texts have no neighbour.
const MAX_CHARS: usize = 40;

/// The word of `words` that `text` is most likely a misspelling of.
pub(crate) fn nearest<'w>(text: &str, words: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    let plain = |t: &str| t.to_lowercase().replace(['-', ' '], "_");
    if text.chars().count() > MAX_CHARS {
        return None;
    }
    let wanted = plain(text);
    let allowed = (wanted.chars().count() / 3).clamp(1, 3);
    words
        .into_iter()
        .map(|word| (distance(&wanted, &plain(word)), word))
        .filter(|(d, _)| *d <= allowed)
        .min_by_key(|(d, _)| *d)
        .map(|(_, word)| word)
}

/// Edits between two short texts: insertions, deletions, replacements and swaps of neighbours.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replace = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replace.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_meant_and_nothing_else() {
        let words = ["limit", "burst", "max_keys", "on_control_loss"];
        assert_eq!(nearest("limti", words), Some("limit"));
        assert_eq!(nearest("maxKeys", words), Some("max_keys"));
        assert_eq!(nearest("max-keys", words), Some("max_keys"));
        assert_eq!(nearest("on_controll_los", words), Some("on_control_loss"));
        assert_eq!(nearest("colour", words), None);
        assert_eq!(nearest(&"limit".repeat(20), words), None);
    }
}
