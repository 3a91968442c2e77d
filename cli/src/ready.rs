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

/// Writes the addresses to a file that appears whole or not at all.
pub(crate) fn write(path: &Path, bound: &Bound) -> io::Result<()> {
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
}
