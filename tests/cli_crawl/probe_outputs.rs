//! Output files of `argiope probe`: written in place, also links and pipes; unchanged by a command that
//! is refused.

use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use tempfile::TempDir;

use crate::run::{Ended, argiope, check_refused, read_lines};
use crate::server::{Server, page};

/// Five requests to a server that answers at once, with these arguments.
fn probe(args: &[&str]) -> Ended {
    let server = Server::new(|_| page("a page"));
    let url = server.url("/");
    let usual = ["probe", &url, "--allow-net", "loopback", "--rate", "50"];
    argiope(&[&usual[..], &["--requests", "5"], args].concat())
}

/// Nothing was amiss, but that a busy machine may have been late.
#[track_caller]
fn check_done(ended: &Ended) {
    let is_late = ended.err.starts_with("argiope: the rate was not reached");
    let is_one_line = ended.err.lines().count() == 1;
    let done = ended.code == Some(0) || is_late && is_one_line;
    assert!(done, "{}", ended.err);
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in ASCII")
}

/// A pipe with a name. It stands for devices, too: neither is a file.
fn pipe(folder: &TempDir, name: &str) -> PathBuf {
    let path = folder.path().join(name);
    let made = Command::new("mkfifo").arg(&path).status();
    assert!(made.expect("mkfifo is there").success());
    path
}

fn is_pipe(path: &Path) -> bool {
    let found = fs::symlink_metadata(path);
    found.is_ok_and(|found| found.file_type().is_fifo())
}

#[test]
fn a_refused_command_does_not_change_its_output_files() {
    let folder = folder();
    let missing = folder.path().join("none/x");
    for refused in [
        &["--rate", "0"][..],
        &["-s", "NO_SUCH=1"],
        &["--fail-above", "p101=1ms"],
        &["http://"],
    ] {
        let (lines, log) = (folder.path().join("lines"), folder.path().join("log"));
        fs::write(&lines, "what was measured").expect("a file");
        fs::write(&log, "what was logged").expect("a file");
        let (lines_text, log_text) = (text(&lines), text(&log));
        let named = ["--results", lines_text, "--hdr", log_text];
        let ended = argiope(&[&["probe", "http://127.0.0.1:9/"], refused, &named].concat());
        assert_eq!(ended.code, Some(2), "{}", ended.err);
        // One of them cannot be had: the other is none the worse for it.
        check_refused(
            &probe(&["--results", lines_text, "--hdr", text(&missing)]),
            &["--hdr"],
        );
        check_refused(
            &probe(&["--hdr", log_text, "--results", text(&missing)]),
            &["--results"],
        );
        check_refused(
            &probe(&["--hdr", log_text, "--results", log_text]),
            &["--hdr", log_text],
        );
        let held = |path| fs::read_to_string(path).expect("it is there");
        assert_eq!(held(lines), "what was measured", "{refused:?}");
        assert_eq!(held(log), "what was logged", "{refused:?}");
    }
}

#[test]
fn an_output_pipe_gets_every_line() {
    let folder = folder();
    let (lines, log) = (pipe(&folder, "lines"), pipe(&folder, "log"));
    let read = |path: &Path| {
        let path = path.to_owned();
        thread::spawn(move || fs::read_to_string(path).expect("text comes"))
    };
    let (lines_read, log_read) = (read(&lines), read(&log));
    check_done(&probe(&["--results", text(&lines), "--hdr", text(&log)]));
    // A reader of a pipe without a writer would wait for ever.
    assert!(is_pipe(&lines) && is_pipe(&log));
    let lines = lines_read.join().expect("it reads");
    assert_eq!(read_lines(&lines).len(), 5);
    let log = log_read.join().expect("it reads");
    assert!(log.contains(",HISTFAAA"), "{log}");
}

#[test]
fn the_target_of_an_output_link_is_written() {
    let folder = folder();
    let (link, target) = (folder.path().join("link"), folder.path().join("target"));
    symlink("target", &link).expect("a link");
    for _ in 0..2 {
        // The second time there is something to be overwritten.
        check_done(&probe(&["--results", text(&link)]));
        assert!(link.is_symlink());
        let lines = fs::read_to_string(&target).expect("the target");
        assert_eq!(read_lines(&lines).len(), 5);
        let longer = format!("{lines}{lines}");
        fs::write(&target, longer).expect("the target");
    }
}

#[test]
fn report_is_printed_when_output_fails() {
    for flag in ["--results", "--hdr"] {
        let folder = folder();
        let broken = pipe(&folder, "broken");
        let reader = broken.clone();
        // It leaves before anything is in it.
        let reader = thread::spawn(move || drop(File::open(reader).expect("a pipe")));
        let server = Server::new(|_| page("a page"));
        let url = server.url("/");
        let usual = ["probe", &url, "--allow-net", "loopback", "--rate", "20"];
        let ended = argiope(&[&usual[..], &["--duration", "2s", flag, text(&broken)]].concat());
        reader.join().expect("it leaves");
        let ended = ended.expect(1);
        assert!(ended.out.contains("latency from due\n"), "{}", ended.out);
        let message = format!("argiope: cannot write {}: ", broken.display());
        assert!(ended.err.contains(&message), "{}", ended.err);
        assert!(is_pipe(&broken));
    }
}
