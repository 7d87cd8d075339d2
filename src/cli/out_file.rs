//! Checks a file that a command is to write, before it does its work.

use std::path::Path;

use super::Usage;

/// Refuses what cannot become a file: a directory, and a name in a folder that does not exist.
pub fn check(flag: &str, path: &Path) -> Result<(), Usage> {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let why = match parent {
        _ if path.is_dir() => "it is a directory: name a file",
        Some(parent) if !parent.is_dir() => {
            "its folder does not exist: name a file in one that does"
        }
        _ => return Ok(()),
    };
    Err(Usage(format!("{flag} {}: {why}", path.display())))
}

/// The same for a file that is made, and replaces none: refuses devices and pipes, too.
pub fn check_new(flag: &str, path: &Path) -> Result<(), Usage> {
    check(flag, path)?;
    let mut open_files = ["/dev/stdout", "/dev/stderr", "/dev/fd", "/proc"].iter();
    let is_open_file = open_files.any(|root| path.starts_with(root));
    if is_open_file || path.metadata().is_ok_and(|there| !there.is_file()) {
        let shown = path.display();
        let redirected = match path == Path::new("/dev/stdout") {
            true => String::new(),
            false => format!(" > {shown}"),
        };
        return Err(Usage(format!(
            "{flag} {shown}: it is not a new file, and one is made: write {flag} -{redirected}"
        )));
    }
    match path.symlink_metadata() {
        Ok(_) => Err(not_replaced(flag, path)),
        // Making it says what is wrong.
        Err(_) => Ok(()),
    }
}

/// The error of a file that is there.
pub fn not_replaced(flag: &str, path: &Path) -> Usage {
    Usage(format!(
        "{flag} {}: there is such a file, and it is not replaced; delete it, or give another name",
        path.display()
    ))
}
