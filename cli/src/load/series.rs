//! The file for the seconds of a load: made before the load starts, so that a path that cannot be
//! written is found out then and not after it. Knows nothing of what is written.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;

use crate::exit::Failure;

/// A file that is there and empty.
#[derive(Debug)]
pub(super) struct SeriesFile {
    path: PathBuf,
    file: File,
}

impl SeriesFile {
    /// Makes the file, or empties it.
    pub(super) fn create(path: PathBuf) -> Result<Self, Failure> {
        match File::create(&path) {
            Ok(file) => Ok(Self { path, file }),
            Err(e) => Err(Failure::bad_input(format!(
                "--series: {} cannot be written: {e}; nothing was started",
                path.display()
            ))),
        }
    }

    /// Fills it.
    pub(super) fn write(mut self, text: &str) -> anyhow::Result<()> {
        self.file
            .write_all(text.as_bytes())
            .with_context(|| format!("--series: {} cannot be written", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_there_before_it_is_filled() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("series.csv");
        std::fs::write(&path, "of an earlier load").expect("written");
        let file = SeriesFile::create(path.clone()).expect("made");
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "");
        file.write("a,b\n1,2\n").expect("filled");
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "a,b\n1,2\n");
    }

    #[test]
    fn a_path_that_cannot_be_written_is_bad_input() {
        let dir = tempfile::tempdir().expect("a directory");
        for path in [dir.path().to_owned(), dir.path().join("no/such/series.csv")] {
            let failure = SeriesFile::create(path.clone()).expect_err("not a file");
            assert!(matches!(failure, Failure::BadInput(_)), "{failure:?}");
            let text = failure.text().expect("told");
            assert!(text.contains(&path.display().to_string()), "{text}");
        }
    }

    #[test]
    fn a_failure_to_fill_it_names_the_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("series.csv");
        std::fs::write(&path, "").expect("written");
        // Open for reading only: every write fails.
        let file = SeriesFile { file: File::open(&path).expect("there"), path };
        let error = file.write("a\n").expect_err("not writable");
        assert!(error.to_string().contains("series.csv cannot be written"), "{error:#}");
    }
}
