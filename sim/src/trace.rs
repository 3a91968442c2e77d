//! A hash over everything that happens, in order: two runs that agree in it did the same.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// What is hashed at a time.
const CHUNK: usize = 1 << 14;

/// The hash so far.
#[derive(Debug)]
pub struct Trace {
    hash: Sha256,
    waiting: Vec<u8>,
}

impl Trace {
    pub(crate) fn new() -> Self {
        Self { hash: Sha256::new(), waiting: Vec::with_capacity(CHUNK + 64) }
    }

    /// Adds a number.
    #[inline]
    pub fn number(&mut self, number: u64) {
        self.waiting.extend_from_slice(&number.to_le_bytes());
        if self.waiting.len() >= CHUNK {
            self.flush();
        }
    }

    /// Adds a text, so that two texts never read as one.
    pub fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.waiting.extend_from_slice(text.as_bytes());
    }

    /// The hash in hexadecimal digits.
    pub(crate) fn finish(mut self) -> String {
        self.flush();
        let mut text = String::with_capacity(64);
        for byte in self.hash.finalize() {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        text
    }

    #[cold]
    fn flush(&mut self) {
        self.hash.update(&self.waiting);
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_boundaries_matter() {
        let of = |texts: &[&str]| {
            let mut trace = Trace::new();
            texts.iter().for_each(|t| trace.text(t));
            trace.finish()
        };
        assert_eq!(of(&["a", "b"]), of(&["a", "b"]));
        assert_ne!(of(&["a", "b"]), of(&["b", "a"]));
        assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
        assert_eq!(of(&[]).len(), 64);
    }
}
