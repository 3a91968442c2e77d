//! Bytes to text: size and encoding.

use crate::diagnostic::{At, Diagnostic, Problem, Report};
use crate::tree::MAX_FILE_BYTES;

/// The text of a file, or what is wrong with its bytes.
pub(crate) fn text<'b>(path: &str, bytes: &'b [u8]) -> Result<&'b str, Box<Diagnostic>> {
    if bytes.len() > MAX_FILE_BYTES {
        return Err(Box::new(too_large(path)));
    }
    std::str::from_utf8(bytes).map_err(|e| Box::new(not_text(path, bytes, e.valid_up_to())))
}

/// The finding about a file that is too large to read.
pub(crate) fn too_large(path: &str) -> Diagnostic {
    let mib = MAX_FILE_BYTES / (1024 * 1024);
    let message = format!("the file is larger than {mib} MiB, the most that is read");
    Diagnostic::whole(crate::Severity::Error, path, message)
        .with_help(Some("list fewer `values`, or shorten what is repeated".to_owned()))
}

fn not_text(path: &str, bytes: &[u8], valid_up_to: usize) -> Diagnostic {
    let valid = std::str::from_utf8(&bytes[..valid_up_to]).unwrap_or_default();
    let line = valid.matches('\n').count() + 1;
    let column = valid.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    let utf_16 = bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]);
    let problem = match utf_16 {
        true => Problem::new("the file is UTF-16").help("save it as UTF-8"),
        false => Problem::new(format!("the byte {:#04x} here is not UTF-8", bytes[valid_up_to]))
            .help("save the file as UTF-8"),
    };
    let at = At {
        line: u32::try_from(line).unwrap_or(u32::MAX),
        column: u32::try_from(column).unwrap_or(u32::MAX),
        width: 1,
    };
    let mut report = Report::new(path, valid);
    report.error(at, &"", problem);
    let (mut errors, _) = report.finish();
    errors.swap_remove(0)
}
