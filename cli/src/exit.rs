//! How a command ends: 0 fine, 1 failed at its work, 2 asked the wrong way. Knows no command.

use std::process::ExitCode;

/// Why a command did not end well.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What was asked was fine, doing it failed.
    AtWork(anyhow::Error),
    /// Arguments or files are not usable as they stand.
    BadInput(anyhow::Error),
    /// Bad input that the command has already described in full.
    Described,
    /// Doing it found something wrong, which the command has already told.
    Told,
}

/// What every command returns.
pub(crate) type Ended = Result<(), Failure>;

impl Failure {
    /// Bad input, described by one sentence.
    pub(crate) fn bad_input(text: impl Into<String>) -> Self {
        Self::BadInput(anyhow::Error::msg(text.into()))
    }

    /// The exit code that says so.
    pub(crate) fn code(&self) -> ExitCode {
        match self {
            Self::AtWork(_) | Self::Told => ExitCode::from(1),
            Self::BadInput(_) | Self::Described => ExitCode::from(2),
        }
    }

    /// What to tell the user, if anything is left to tell.
    pub(crate) fn text(&self) -> Option<String> {
        match self {
            Self::AtWork(error) | Self::BadInput(error) => Some(format!("{error:#}")),
            Self::Described | Self::Told => None,
        }
    }

    /// Whether the reader of our output went away, which is no failure of ours.
    pub(crate) fn is_closed_pipe(&self) -> bool {
        let Self::AtWork(error) = self else { return false };
        error.chain().any(|cause| {
            cause
                .downcast_ref::<std::io::Error>()
                .is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
        })
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::AtWork(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_pipe_is_told_apart_from_other_failures() {
        let closed = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        let wrapped = anyhow::Error::new(closed).context("writing the report");
        assert!(Failure::from(wrapped).is_closed_pipe());
        assert!(!Failure::bad_input("no such flag").is_closed_pipe());
        assert!(!Failure::from(std::io::Error::other("disk")).is_closed_pipe());
    }

    #[test]
    fn a_failure_tells_its_causes_once() {
        let error = anyhow::anyhow!("refused").context("cannot listen");
        assert_eq!(Failure::AtWork(error).text().as_deref(), Some("cannot listen: refused"));
        assert_eq!(Failure::Described.text(), None);
        assert_eq!(Failure::Told.text(), None);
    }
}
