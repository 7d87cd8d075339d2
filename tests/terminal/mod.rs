//! A terminal of their own for programs under test.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// A terminal: the side that shows what is written, and the side that programs write to.
pub fn terminal() -> (OwnedFd, File) {
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: takes a number, and returns a new descriptor, or -1.
    let shown = unsafe {
        let fd = libc::posix_openpt(flags);
        assert!(fd >= 0, "a terminal");
        OwnedFd::from_raw_fd(fd)
    };
    let mut name = [0u8; 64];
    // SAFETY: the descriptor is open, and the buffer has the length that is named.
    unsafe {
        assert_eq!(libc::grantpt(shown.as_raw_fd()), 0);
        assert_eq!(libc::unlockpt(shown.as_raw_fd()), 0);
        let named = libc::ptsname_r(shown.as_raw_fd(), name.as_mut_ptr().cast(), name.len());
        assert_eq!(named, 0);
    }
    let name = std::ffi::CStr::from_bytes_until_nul(&name).expect("it ends");
    let written = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOCTTY)
        .open(name.to_str().expect("a path"));
    (shown, written.expect("it can be opened"))
}

/// The program will be the leader of a session whose controlling terminal is that of `written`. SIGHUP has its
/// usual action: where the tests run under nohup it is ignored, and a crawl keeps to that.
pub fn control_by(command: &mut Command, written: &File) {
    let terminal = written.as_raw_fd();
    // SAFETY: between fork and exec only system calls are made, and the descriptor is open until then.
    unsafe {
        command.pre_exec(move || {
            libc::signal(libc::SIGHUP, libc::SIG_DFL);
            if libc::setsid() < 0 || libc::ioctl(terminal, libc::TIOCSCTTY, 0) < 0 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
}
