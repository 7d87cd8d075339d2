//! CDXJ indexes beside WARC files, and `argiope cdxj`.

use std::fs;
use std::path::{Path, PathBuf};

use argiope::index_warc;

use crate::run::{Crawl, Ended, Going, argiope, check_refused};
use crate::server::{Server, page};

/// The files of a folder with this ending, sorted.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.to_str().is_some_and(|path| path.ends_with(ending)))
        .collect();
    files.sort();
    files
}

/// Checks that each WARC file of a crawl has its index, and nothing else is there. Returns all lines.
pub fn check(out: &Path) -> Vec<String> {
    let folder = out.join("warc");
    let warcs = files(&folder, ".warc.gz");
    let mut lines = Vec::new();
    for warc in &warcs {
        let name = warc.to_str().and_then(|name| name.strip_suffix(".warc.gz"));
        let index = format!("{}.cdxj", name.expect("its ending"));
        let text = fs::read_to_string(&index).unwrap_or_else(|error| panic!("{index}: {error}"));
        // Made anew elsewhere, it is the same.
        let copies = tempfile::tempdir().expect("a folder");
        let copy = copies.path().join(warc.file_name().expect("a name"));
        fs::copy(warc, &copy).expect("it is readable");
        let anew = index_warc(&copy).expect("it is whole");
        assert_eq!(
            fs::read_to_string(anew).expect("it is there"),
            text,
            "{index}"
        );
        lines.extend(text.lines().map(str::to_owned));
    }
    assert_eq!(
        files(&folder, "").len(),
        2 * warcs.len(),
        "{:?}",
        files(&folder, "")
    );
    lines
}

/// A crawl of so many pages into several WARC files.
fn crawl(server: &Server, pages: usize) -> Crawl {
    let crawl = Crawl::of(&[
        "--seeds",
        "list",
        "--follow",
        "none",
        "-s",
        "WARC_SIZE_MAX=10KiB",
    ])
    .with(&["-s", "STATE_SYNC=10ms"]);
    let urls: String = (0..pages)
        .map(|n| server.url(&format!("/q{n}\n")))
        .collect();
    crawl.file("list", urls.as_bytes());
    crawl
}

fn server() -> Server {
    Server::new(|asked| page(&format!("the page {}", asked.target)))
}

fn cdxj(args: &[&str]) -> Ended {
    argiope(&[&["cdxj"], args].concat())
}

#[test]
fn each_closed_warc_file_has_its_index() {
    let server = server();
    let crawled = crawl(&server, 60).run();
    let lines = check(&crawled.out());
    assert_eq!(lines.len(), 60);
    assert!(files(&crawled.out().join("warc"), ".cdxj").len() > 3);
    let port = server.port();
    let key = format!("1,0,0,127:{port})/q7 ");
    assert!(lines.iter().any(|line| line.starts_with(&key)), "{lines:?}");
}

#[test]
fn indexes_can_be_switched_off_and_overwriting_removes_them() {
    let server = server();
    let first = crawl(&server, 40);
    first.try_run().expect(0);
    let folder = first.folder().join("out/warc");
    assert!(files(&folder, ".cdxj").len() > 1);
    let second = first.with(&["--overwrite", "-s", "WARC_CDXJ=false"]);
    second.try_run().expect(0);
    assert!(!files(&folder, ".warc.gz").is_empty());
    assert_eq!(files(&folder, ".cdxj"), [""; 0].map(PathBuf::from));
}

#[test]
fn a_missing_index_is_made_when_the_crawl_is_resumed() {
    let server = server();
    let crawl = crawl(&server, 60).with(&["--max-pages", "30"]);
    crawl.try_run().expect(0);
    let (out, folder) = (crawl.folder().join("out"), crawl.folder().join("out/warc"));
    // As a kill leaves them: one that was not begun, and one that is a part.
    let remove = || {
        let indexes = files(&folder, ".cdxj");
        fs::remove_file(&indexes[0]).expect("it is there");
        let part = format!("{}.tmp", indexes[1].display());
        fs::rename(&indexes[1], part).expect("it is there");
    };
    remove();
    let resume = [
        "crawl",
        "--quiet",
        "--resume",
        "--out",
        "out",
        "--max-pages",
    ];
    let resume = |pages| {
        Going::start(&[&resume[..], &[pages]].concat(), crawl.folder(), b"")
            .wait()
            .expect(0)
    };
    resume("60");
    assert_eq!(check(&out).len(), 60);
    // Nothing is left to be fetched.
    remove();
    resume("0");
    assert_eq!(check(&out).len(), 60);
}

#[test]
fn the_command_makes_missing_indexes_and_one_of_all() {
    let server = server();
    let crawled = crawl(&server, 40).with(&["-s", "WARC_CDXJ=false"]).run();
    let out = crawled.out();
    let out = out.to_str().expect("a path");
    let mut all = cdxj(&[out, "-o", "-"]).expect(0).out;
    assert!(files(&crawled.out().join("warc"), ".cdxj").is_empty());
    let made = cdxj(&[out]).expect(0);
    let indexes = files(&crawled.out().join("warc"), ".cdxj");
    let printed: Vec<&Path> = made.out.lines().map(Path::new).collect();
    assert_eq!(printed, indexes);
    let mut lines = check(&crawled.out());
    lines.sort();
    assert_eq!(all.lines().collect::<Vec<_>>(), lines);
    assert_eq!(cdxj(&[out]).expect(0).out, "", "none is missing");
    let file = crawled.out().join("index.cdxj");
    let file = file.to_str().expect("a path");
    let warcs = files(&crawled.out().join("warc"), ".warc.gz");
    let warcs: Vec<&str> = warcs.iter().filter_map(|path| path.to_str()).collect();
    cdxj(&[&warcs[..], &["-o", file]].concat()).expect(0);
    all = fs::read_to_string(file).expect("it is there");
    assert_eq!(all.lines().collect::<Vec<_>>(), lines);
    check_refused(
        &cdxj(&[out, "-o", file]),
        &["-o", "index.cdxj", "not replaced"],
    );
}

#[test]
fn a_damaged_warc_file_is_reported_with_its_offset_and_gets_no_index() {
    let server = server();
    let crawled = crawl(&server, 40).with(&["-s", "WARC_CDXJ=false"]).run();
    let (out, folder) = (crawled.out(), crawled.out().join("warc"));
    let out = out.to_str().expect("a path");
    let warcs = files(&folder, ".warc.gz");
    let whole = fs::read(&warcs[1]).expect("it is there");
    fs::write(&warcs[1], &whole[..whole.len() - 1]).expect("it is writable");
    let ended = cdxj(&[out]).expect(1);
    let name = warcs[1]
        .file_name()
        .and_then(|name| name.to_str())
        .expect("a name");
    assert!(
        ended.err.contains(name) && ended.err.contains("at offset "),
        "{}",
        ended.err
    );
    assert_eq!(files(&folder, ".cdxj").len(), warcs.len() - 1);
    assert_eq!(files(&folder, "").len(), 2 * warcs.len() - 1);
    let ended = cdxj(&[out, "-o", "-"]).expect(1);
    assert!(
        ended.out.is_empty() && ended.err.contains("at offset "),
        "{}",
        ended.err
    );
    let empty = tempfile::tempdir().expect("a folder");
    let empty = empty.path().to_str().expect("a path");
    check_refused(&cdxj(&[empty]), &["no file named *.warc.gz"]);
    check_refused(&cdxj(&["x.warc"]), &["x.warc", ".warc.gz"]);
}
