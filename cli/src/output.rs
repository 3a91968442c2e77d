//! What a command says on standard output. A reader that goes away (`| head`) is an error like any
//! other here; `main` knows that it is none of ours.

use std::io::{self, IsTerminal, Write};

/// Writes one line to standard output.
pub(crate) fn line(text: impl AsRef<str>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_ref().as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Writes lines to standard output.
pub(crate) fn lines<T: AsRef<str>>(lines: impl IntoIterator<Item = T>) -> io::Result<()> {
    lines.into_iter().try_for_each(line)
}

/// Writes a value as one line of JSON to standard output.
pub(crate) fn json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    Ok(line(serde_json::to_string(value)?)?)
}

/// Whether standard output is read by a person.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// How wide the terminal is, where standard output is one.
pub(crate) fn width() -> Option<usize> {
    is_terminal().then(|| usize::from(console::Term::stdout().size().1).max(40))
}

/// Tells the user something beside the output: progress, hints, failures.
pub(crate) fn note(text: impl AsRef<str>) {
    // Nobody is left to tell when standard error is closed.
    let _ = writeln!(io::stderr().lock(), "{}", text.as_ref());
}
