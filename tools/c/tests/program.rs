//! The header matches the library, and C programs that include it work.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::{env, fs, thread};

const HOME: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn the_header_matches_the_library() {
    let config = cbindgen::Config::from_file(Path::new(HOME).join("cbindgen.toml"));
    let made = cbindgen::Builder::new()
        .with_config(config.expect("a configuration"))
        .with_src(Path::new(HOME).join("src/lib.rs"))
        .generate()
        .expect("a header");
    let mut header = Vec::new();
    made.write(&mut header);
    let path = Path::new(HOME).join("include/argiope.h");
    if env::var_os("ARGIOPE_WRITE").is_some() {
        fs::write(&path, &header).expect("the header can be written");
    }
    let kept = fs::read(&path).expect("the header exists");
    assert!(
        kept == header,
        "include/argiope.h differs from the library: run ARGIOPE_WRITE=1 cargo test"
    );
}

#[test]
fn a_program_in_c_crawls_in_its_own_loop() {
    let (port, asked) = serve();
    let program = compiled("crawl", &Path::new(HOME).join("examples/crawl.c"));
    let text = fs::read_to_string(Path::new(HOME).join("examples/crawl.c")).expect("the example");
    assert!(text.lines().count() <= 40, "the example fits one screen");
    let resolve = format!("RESOLVE=*:80:127.0.0.1:{port}");
    let ran = Command::new(&program)
        .args([
            "ALLOW_NET=loopback",
            "DOWNLOAD_DELAY=0",
            "RETRY_TIMES=0",
            &resolve,
        ])
        .args([
            "http://a.test/1",
            "http://a.test/2",
            "ftp://a.test/",
            "http://b.test:7/",
        ])
        .output()
        .expect("it runs");
    let (out, err) = (text_of(&ran.stdout), text_of(&ran.stderr));
    assert!(ran.status.success(), "{out}{err}");
    assert!(err.contains("ftp"), "{err}");
    let mut lines: Vec<_> = out.lines().collect();
    assert_eq!(lines.pop(), Some("finished"));
    for line in [
        "200 http://a.test/1 6 bytes ",
        "200 http://a.test/2 6 bytes ",
    ] {
        assert!(lines.contains(&line), "{out}");
    }
    assert!(out.contains("http://b.test:7/ 0 bytes "), "{out}");
    let asked = asked.lock().expect("no panic").clone();
    assert_eq!(asked, ["/robots.txt", "/1", "/2"]);
}

#[test]
fn the_error_names_an_invalid_setting() {
    let program = compiled("refused", &Path::new(HOME).join("examples/crawl.c"));
    for setting in ["DOWNLOAD_DELAY=soon", "NO_SUCH_SETTING=1"] {
        let ran = Command::new(&program)
            .arg(setting)
            .output()
            .expect("it runs");
        assert_eq!(ran.status.code(), Some(2));
        let err = text_of(&ran.stderr);
        let (name, _) = setting.split_once('=').expect("a name");
        assert!(err.contains(name), "{err}");
    }
}

#[test]
fn invalid_arguments_return_an_error() {
    let source = Path::new(HOME).join("tests/rules.c");
    let ran = Command::new(compiled("rules", &source))
        .output()
        .expect("it runs");
    assert!(
        ran.status.success(),
        "{:?}: {}{}",
        ran.status,
        text_of(&ran.stdout),
        text_of(&ran.stderr)
    );
}

#[test]
fn a_crawl_with_a_state_continues_and_acknowledged_pages_are_not_fetched_again() {
    let (port, asked) = serve();
    let program = compiled("kept", &Path::new(HOME).join("tests/kept.c"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kept-state");
    let _ = fs::remove_dir_all(&folder);
    // Epoch and URL of each page that is stored.
    let mut stored: Vec<(u64, String)> = Vec::new();
    let mut run = |pages: usize| {
        let ran = Command::new(&program)
            .arg(&folder)
            .args([port.to_string(), pages.to_string()])
            .output()
            .expect("it runs");
        let out = text_of(&ran.stdout);
        let mut lines = out.lines();
        let epoch: u64 = lines.next().and_then(|line| line.parse().ok()).unwrap_or(0);
        stored.retain(|(of, _)| *of <= epoch);
        let kept = stored.len();
        let pages = lines.map(|line| line.split_once(' ').expect("an epoch and a URL"));
        stored.extend(pages.map(|(of, url)| (of.parse().expect("a number"), url.to_owned())));
        (
            ran.status.code(),
            kept,
            stored.clone(),
            text_of(&ran.stderr),
        )
    };
    assert_eq!(run(30).0, Some(9));
    let (status, kept, ..) = run(25);
    assert_eq!(status, Some(9));
    assert!((1..30).contains(&kept), "{kept}");
    let (status, _, all, error) = run(1000);
    assert_eq!(status, Some(0), "{error}");
    let mut urls: Vec<String> = all.into_iter().map(|(_, url)| url).collect();
    urls.retain(|url| !url.ends_with("/robots.txt"));
    urls.sort();
    let mut all: Vec<String> = (0..60).map(|n| format!("http://a.test/{n}")).collect();
    all.sort();
    assert_eq!(urls, all, "each page is stored once");
    // What is over says so at once.
    let before = asked.lock().expect("no panic").len();
    assert_eq!(run(1000).0, Some(0));
    assert_eq!(asked.lock().expect("no panic").len(), before);
}

/// Starts a server that records each target and answers it with a page of six bytes, robots.txt with 404.
/// Returns its port and record.
///
/// Not the test kit's server: that needs argiope's feature `cli`, which cargo would then also enable in
/// the library under test.
fn serve() -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let targets = Arc::clone(&asked);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let targets = Arc::clone(&targets);
            thread::spawn(move || {
                let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
                while let Some(first) = lines.next() {
                    let target = first.split(' ').nth(1).unwrap_or_default().to_owned();
                    let is_robots = target == "/robots.txt";
                    targets.lock().expect("nobody panics").push(target);
                    lines.by_ref().find(String::is_empty);
                    let reply: &[u8] = match is_robots {
                        true => b"HTTP/1.1 404 So\r\nContent-Length: 0\r\n\r\n",
                        false => b"HTTP/1.1 200 So\r\nContent-Length: 6\r\n\r\na page",
                    };
                    if (&stream).write_all(reply).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (port, asked)
}

/// Compiles a program and links it with the library that cargo built with this test.
fn compiled(name: &str, source: &Path) -> PathBuf {
    let test = env::current_exe().expect("this runs");
    let beside = test.parent().expect("a folder");
    let library = [beside, beside.parent().expect("a folder")]
        .map(|folder| folder.join("libargiope_c.a"))
        .into_iter()
        .find(|path| path.exists())
        .expect("cargo builds the library with its tests");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let made = Command::new("gcc")
        .args([
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pedantic",
            "-D_GNU_SOURCE",
        ])
        .arg("-I")
        .arg(Path::new(HOME).join("include"))
        .arg(source)
        .arg(library)
        .args(["-lpthread", "-lm", "-ldl", "-o"])
        .arg(&program)
        .output()
        .expect("gcc is installed");
    assert!(made.status.success(), "{}", text_of(&made.stderr));
    program
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
