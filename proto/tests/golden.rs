//! The bytes of one example of each message, checked in: a change of the protocol shows up here, and
//! what an earlier release sent still decodes to the same. To accept a change on purpose, keep the
//! old file in `golden/earlier` and run with `ACCEPT_GOLDEN=1`.

mod support;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use prost::Message;
use sluicegate_proto::v1;
use sluicegate_proto::wire::{decode_down, decode_up, encode_down, encode_up};

#[test]
fn frames_are_what_they_were() {
    let (ups, downs) = support::examples();
    for (name, up) in ups {
        let bytes = golden(name, &encode_up(&up).encode_to_vec());
        let decoded = decode_up(v1::Up::decode(&*bytes).expect("golden bytes"));
        assert_eq!(decoded, Ok(up), "{name}");
    }
    for (name, down) in downs {
        let bytes = golden(name, &encode_down(&down).encode_to_vec());
        let decoded = decode_down(v1::Down::decode(&*bytes).expect("golden bytes"));
        assert_eq!(decoded, Ok(down), "{name}");
    }
}

/// A configuration from before there was a choice of laws, as the version before sent it.
#[test]
fn earlier_frames_mean_what_they_meant() {
    let (_, downs) = support::examples();
    let (_, expected) = downs.into_iter().find(|(n, _)| *n == "configuration").expect("an example");
    let bytes = read(&path("earlier/configuration"));
    let decoded = decode_down(v1::Down::decode(&*bytes).expect("golden bytes"));
    assert_eq!(decoded, Ok(expected));
}

/// What the file says, which must be `bytes`.
fn golden(name: &str, bytes: &[u8]) -> Vec<u8> {
    let path = path(name);
    if std::env::var_os("ACCEPT_GOLDEN").is_some() {
        std::fs::write(&path, to_hex(bytes)).expect("golden file can be written");
    }
    let found = read(&path);
    assert_eq!(to_hex(&found), to_hex(bytes), "{name}: the bytes on the wire have changed");
    found
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.hex"))
}

fn read(path: &Path) -> Vec<u8> {
    let text = std::fs::read_to_string(path).expect("golden file can be read");
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).expect("ASCII");
        u8::from_str_radix(pair, 16).expect("hexadecimal")
    };
    digits.chunks(2).map(byte).collect()
}

fn to_hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for line in bytes.chunks(32) {
        for byte in line {
            write!(text, "{byte:02x}").expect("writing to a string");
        }
        text.push('\n');
    }
    text
}
