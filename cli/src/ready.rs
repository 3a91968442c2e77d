//! Tells scripts and tests where a process listens, once it does.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;

use serde::Serialize;

/// The addresses that were bound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Bound {
    /// What runs.
    pub(crate) role: &'static str,
    /// Where it serves gRPC.
    pub(crate) listen: SocketAddr,
    /// Where it serves HTTP.
    pub(crate) http_listen: SocketAddr,
    /// The process.
    pub(crate) pid: u32,
}

/// Whether `path` may be written: nothing is there yet, or a regular file. Anything else (a device, a
/// pipe, a link) would be replaced by a regular file, which nobody wants.
pub(crate) fn check(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(there) if !there.is_file() => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it exists and is not a regular file; name a file that is, or that is not there yet",
        )),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Writes the addresses to a file that appears whole or not at all.
pub(crate) fn write(path: &Path, bound: &Bound) -> io::Result<()> {
    check(path)?;
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    serde_json::to_writer(&mut file, bound)?;
    file.write_all(b"\n")?;
    file.persist(path).map_err(|e| e.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_holds_the_addresses() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("ready.json");
        let bound = Bound {
            role: "controller",
            listen: ([127, 0, 0, 1], 7400).into(),
            http_listen: ([127, 0, 0, 1], 7480).into(),
            pid: 7,
        };
        write(&path, &bound).expect("written");
        write(&path, &bound).expect("written over");
        let text = std::fs::read_to_string(&path).expect("there");
        assert_eq!(
            text,
            "{\"role\":\"controller\",\"listen\":\"127.0.0.1:7400\",\
             \"http_listen\":\"127.0.0.1:7480\",\"pid\":7}\n"
        );
        assert!(write(Path::new("/no/such/dir/ready.json"), &bound).is_err());
    }

    #[test]
    fn only_regular_files_are_replaced() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        check(&at("new.json")).expect("not there yet");
        std::fs::write(at("old.json"), "x").expect("written");
        check(&at("old.json")).expect("a regular file");
        std::fs::create_dir(at("directory")).expect("made");
        std::os::unix::fs::symlink(at("old.json"), at("link")).expect("made");
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).expect("made");
        let addr: SocketAddr = ([127, 0, 0, 1], 1).into();
        let bound = Bound { role: "controller", listen: addr, http_listen: addr, pid: 7 };
        for name in ["directory", "link", "socket"] {
            let before = std::fs::symlink_metadata(at(name)).expect("there").file_type();
            let error = write(&at(name), &bound).expect_err(name);
            assert!(error.to_string().contains("not a regular file"), "{error}");
            let after = std::fs::symlink_metadata(at(name)).expect("still there").file_type();
            assert_eq!(before, after, "{name}");
        }
    }
}
