//! Usage errors, found before anything is sent.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::run::{Crawl, Going, argiope, check_refused, code, detail};
use crate::server::{Server, page, redirect};

fn check(args: &[&str], parts: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut all = vec!["crawl", "http://a.test/"];
    all.extend(args);
    check_refused(&Going::start(&all, folder.path(), b"").wait(), parts);
    // What is refused leaves nothing behind.
    let left = fs::read_dir(folder.path()).expect("the folder").count();
    assert_eq!(left, 0, "{args:?}");
}

#[test]
fn unknown_settings_and_wrong_types_are_refused() {
    check(
        &["-s", "DOWNLOAD_DELAI=1"],
        &["-s DOWNLOAD_DELAI", "unknown setting", "DOWNLOAD_DELAY"],
    );
    check(
        &["-s", "DOWNLOAD_DELAY=soon"],
        &["-s DOWNLOAD_DELAY", "\"soon\" is not a duration"],
    );
    check(&["-s", "RETRY_TIMES=-1"], &["-s RETRY_TIMES"]);
    check(&["--max-pages", "many"], &["--max-pages", "\"many\""]);
    check(&["--max-time=-3s"], &["--max-time", "negative"]);
    check(
        &["--follow", "everything"],
        &["--follow", "everything", "none"],
    );
    check(&["--allow", "["], &["--allow"]);
    check(&["--results", "file"], &["--results", "file"]);
}

#[test]
fn a_crawl_that_does_not_exist_is_not_resumed() {
    check(
        &["--resume", "--out", "nowhere"],
        &["--resume", "nowhere does not exist", "--out"],
    );
    // As one without permission, which a test of root cannot have.
    let crawl = Crawl::of(&["--resume", "--out", "loop"]);
    std::os::unix::fs::symlink("loop", crawl.folder().join("loop")).expect("it can be made");
    let reason = "loop cannot be opened: Too many levels of symbolic links";
    check_refused(&crawl.try_run(), &["--resume", reason, "--out"]);
}

#[test]
fn an_invalid_network_is_refused() {
    check(
        &["--allow-net", "10.0.0.0/40"],
        &["--allow-net", "10.0.0.0/40", "CIDR"],
    );
    check(&["--allow-net", "lopback"], &["--allow-net", "lopback"]);
    let crawl = Crawl::of(&["http://a.test/", "--exclude", "list"]);
    crawl.file("list", b"a.test\n10.0.0.0/99\n");
    check_refused(&crawl.try_run(), &["--exclude list:2", "10.0.0.0/99"]);
}

#[test]
fn the_error_names_unreadable_certificates() {
    check(
        &["--ca-file", "nowhere.pem"],
        &["nowhere.pem", "(--ca-file)"],
    );
    let crawl = Crawl::of(&["http://a.test/", "--ca-file", "garbage.pem"]);
    crawl.file(
        "garbage.pem",
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    );
    check_refused(&crawl.try_run(), &["garbage.pem"]);
    let crawl = Crawl::of(&["http://a.test/", "--ca-file", "empty.pem"]);
    crawl.file("empty.pem", b"nothing of the kind\n");
    check_refused(&crawl.try_run(), &["empty.pem"]);
}

#[test]
fn the_error_names_an_unreadable_seeds_file() {
    check(&["--seeds", "nowhere.txt"], &["--seeds", "nowhere.txt"]);
    check(&["--seeds", "."], &["--seeds", "directory"]);
    let crawl = Crawl::of(&["--seeds", "cut.gz"]);
    crawl.file("cut.gz", b"\x1f\x8b\x08\x00\x00");
    check_refused(&crawl.try_run(), &["--seeds", "cut.gz"]);
}

#[test]
fn seeds_without_a_url_are_refused() {
    let crawl = Crawl::of(&["--seeds", "empty"]);
    crawl.file("empty", b"# nothing\n\n");
    check_refused(&crawl.try_run(), &["no URL"]);
}

#[test]
fn many_public_hosts_need_a_contact_before_anything_is_sent() {
    let server = Server::new(|_| page("never"));
    let seeds: String = (0..11)
        .map(|n| format!("http://host{n}.example.com/\n"))
        .collect();
    let crawl = Crawl::of(&[&server.url("/"), "--seeds", "seeds"]).with(&["--dns", "127.0.0.1:9"]);
    crawl.file("seeds", seeds.as_bytes());
    crawl.file("others", b"theirs");
    // A private name server has private names; here it is one of public names.
    let args = [
        "crawl",
        &server.url("/"),
        "--seeds",
        "seeds",
        "--out",
        "out",
    ];
    let ended = Going::start(&args, crawl.folder(), b"").wait();
    check_refused(&ended, &["10 public hosts", "--contact"]);
    assert!(server.asked().is_empty());
    assert!(!crawl.folder().join("out").exists(), "nothing is begun");
}

/// A proxy that answers for thirty public hosts, of which the first links to all.
fn thirty_hosts() -> Server {
    let links: String = (1..30)
        .map(|n| format!("<a href='http://host{n}.example.com/'>{n}</a>"))
        .collect();
    Server::new(move |asked| match asked.target.as_str() {
        "http://host0.example.com/" => page(&links),
        _ => page("a host"),
    })
}

#[test]
fn links_to_many_public_hosts_need_a_contact_too() {
    let server = thirty_hosts();
    let proxy = format!("PROXY=http://127.0.0.1:{}", server.port());
    let args = ["http://host0.example.com/", "--follow", "all", "-s", &proxy];
    let crawled = Crawl::of(&args).aloud().run();
    assert_eq!(server.targets().len(), 10);
    let lines = crawled.lines();
    let (left, asked): (Vec<_>, Vec<_>) = lines.iter().partition(|line| line["sent"].is_null());
    assert_eq!((asked.len(), left.len()), (10, 20));
    for line in left {
        assert_eq!(code(line), "filtered.no_contact", "{line}");
        assert_eq!((&line["final"], &line["depth"]), (&true.into(), &1.into()));
        assert!(detail(line).contains("--contact"), "{line}");
    }
    let said = &crawled.ended.err;
    let warning = "the crawl has more than 10 public hosts and no contact";
    assert_eq!(said.matches(warning).count(), 1, "{said}");
    assert!(said.contains("--contact"), "{said}");

    let server = thirty_hosts();
    let proxy = format!("PROXY=http://127.0.0.1:{}", server.port());
    let args = ["http://host0.example.com/", "--follow", "all", "-s", &proxy];
    Crawl::of(&args)
        .with(&["--contact", "me@example.org"])
        .run();
    assert_eq!(server.targets().len(), 30);
}

#[test]
fn a_redirect_to_an_eleventh_public_host_needs_a_contact() {
    let server = Server::new(|asked| {
        let n = asked.target.trim_start_matches("http://host");
        let n: u32 = n
            .trim_end_matches(".example.com/")
            .parse()
            .expect("a number");
        redirect("302 Found", &format!("http://host{}.example.com/", n + 1))
    });
    let proxy = format!("PROXY=http://127.0.0.1:{}", server.port());
    let crawled = Crawl::of(&["http://host0.example.com/", "-s", &proxy]).run();
    let lines = crawled.lines();
    let last = lines.last().expect("lines");
    assert_eq!(lines.len(), 11);
    assert_eq!(code(last), "filtered.no_contact", "{last}");
    assert_eq!(last["url"], "http://host10.example.com/");
}

#[test]
fn a_usage_error_deletes_no_earlier_crawl() {
    let seeds: String = (0..11).map(|n| format!("host{n}.example.com\n")).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let old = folder.path().join("out/results.jsonl");
    fs::create_dir(folder.path().join("out")).expect("a folder");
    fs::write(&old, b"old\n").expect("a file");
    let check = |args: &[&str], input: &[u8], part: &str| {
        let mut all = vec!["crawl", "--overwrite", "--out", "out"];
        all.extend(args);
        check_refused(&Going::start(&all, folder.path(), input).wait(), &[part]);
        assert_eq!(fs::read(&old).expect("it is still there"), b"old\n");
    };
    check(&["--seeds", "-"], seeds.as_bytes(), "--contact");
    check(&["a.test", "--ca-file", "nowhere.pem"], b"", "nowhere.pem");
    check(&["--seeds", "-"], b"# nothing\n", "no URL");
}

#[test]
fn a_directory_that_holds_a_crawl_is_kept_by_default() {
    let server = Server::new(|_| page("new"));
    let crawl = Crawl::of(&[&server.url("/")]);
    let out = crawl.folder().join("out");
    fs::create_dir_all(out.join("warc")).expect("a folder");
    for name in [
        "results.jsonl",
        "pending.jsonl",
        "notes.txt",
        "warc/mine.warc.gz",
    ] {
        fs::write(out.join(name), b"old\n").expect("a file");
    }
    check_refused(
        &crawl.try_run(),
        &["out", "already holds a crawl", "--overwrite", "--out"],
    );
    assert!(server.asked().is_empty());
    assert_eq!(
        fs::read(out.join("results.jsonl")).expect("it is kept"),
        b"old\n"
    );

    let crawled = crawl.with(&["--overwrite", "--no-warc"]).run();
    assert_eq!(crawled.only()["status"], 200);
    assert!(!crawled.out().join("pending.jsonl").exists());
    assert_eq!(crawled.read("notes.txt"), "old\n");
    assert_eq!(crawled.read("warc/mine.warc.gz"), "old\n");
}

#[test]
fn the_error_names_an_unwritable_output() {
    check(&["--out", "/proc/argiope"], &["--out", "/proc/argiope"]);
    let crawl = Crawl::of(&["http://a.test/", "--out", "file"]);
    crawl.file("file", b"");
    check_refused(&crawl.try_run(), &["--out", "file", "not a directory"]);
    let folder = tempfile::tempdir().expect("a folder");
    let closed = folder.path().join("closed");
    fs::create_dir(&closed).expect("a folder");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o500)).expect("its owner may");
    if fs::write(closed.join("probe"), b"").is_ok() {
        crate::loud::skip("this user may write anywhere");
        return;
    }
    let args = ["crawl", "a.test", "--out", "closed/out"];
    check_refused(
        &Going::start(&args, folder.path(), b"").wait(),
        &["--out", "closed"],
    );
}

#[test]
fn a_crawl_without_seeds_is_refused() {
    check_refused(&argiope(&["crawl"]), &["URL", "argiope crawl --help"]);
    let ended = argiope(&["crawl", "mailto:me"]).expect(2);
    let said: Vec<&str> = ended.err.lines().collect();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("mailto:me"), "what is no URL is named");
}
