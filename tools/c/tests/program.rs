//! The header matches the library, and programs in C and C++ that include it work.

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
fn the_comments_of_the_header_name_its_constants() {
    let header = fs::read_to_string(Path::new(HOME).join("include/argiope.h")).expect("a header");
    let is_word = |char: char| char.is_ascii_alphanumeric() || char == '_';
    let words = |line: &str| -> Vec<String> {
        let words = line.split(|char| !is_word(char));
        let named = words.filter(|word| word.starts_with("ARGIOPE_"));
        named.map(str::to_owned).collect()
    };
    let (comments, code): (Vec<&str>, Vec<&str>) = header.lines().partition(|line| {
        let line = line.trim_start();
        line.starts_with("//") || line.starts_with('*') || line.starts_with("/*")
    });
    let constants: Vec<String> = code.into_iter().flat_map(words).collect();
    let named: Vec<String> = comments.into_iter().flat_map(words).collect();
    assert!(named.len() > 5, "{named:?}");
    for name in named.iter().filter(|name| *name != "ARGIOPE_WRITE") {
        assert!(constants.contains(name), "{name} is not in the header");
    }
}

#[test]
fn a_program_in_cpp_is_compiled_by_pkg_config_and_reads_fields_and_phases() {
    let (port, _) = serve();
    let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("prefix");
    let installed = Command::new(Path::new(HOME).join("install"))
        .arg(&prefix)
        .arg(libraries())
        .output()
        .expect("it runs");
    assert!(installed.status.success(), "{}", text_of(&installed.stderr));
    let packages = prefix.join("lib/pkgconfig");
    let of_package = |what: &[&str]| {
        let asked = Command::new("pkg-config")
            .env("PKG_CONFIG_PATH", &packages)
            .args(what)
            .arg("argiope")
            .output()
            .expect("pkg-config is installed");
        assert!(asked.status.success(), "{}", text_of(&asked.stderr));
        text_of(&asked.stdout)
    };
    assert_eq!(
        of_package(&["--modversion"]).trim(),
        env!("CARGO_PKG_VERSION")
    );
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("crawl-cpp");
    let made = Command::new("g++")
        .args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-pedantic"])
        .arg(Path::new(HOME).join("examples/crawl.cpp"))
        .args(of_package(&["--cflags", "--libs"]).split_whitespace())
        .arg("-o")
        .arg(&program)
        .output()
        .expect("g++ is installed");
    assert!(made.status.success(), "{}", text_of(&made.stderr));
    let ran = Command::new(&program)
        .env("LD_LIBRARY_PATH", prefix.join("lib"))
        .args(["ALLOW_NET=loopback", "DOWNLOAD_DELAY=0", "RETRY_TIMES=0"])
        .arg("HOST_DOWN_AFTER=0")
        .arg(format!("RESOLVE=*:80:127.0.0.1:{port}"))
        .args(["http://a.test/1", "http://127.0.0.1:9/"])
        .output()
        .expect("it runs");
    let (out, err) = (text_of(&ran.stdout), text_of(&ran.stderr));
    assert!(ran.status.success(), "{out}{err}");
    let line = |start: &str| {
        let mut lines = out.lines();
        let line = lines.find(|line| line.starts_with(start));
        line.unwrap_or_else(|| panic!("{start} in {out}"))
            .to_owned()
    };
    let page = line("200 http://a.test/1 text/plain ");
    let first_byte = page
        .rsplit(' ')
        .nth(1)
        .and_then(|span| span.parse::<i64>().ok());
    assert!(first_byte.is_some_and(|span| span > 0), "{page}");
    assert!(
        line("0 http://127.0.0.1:9/ robots.unreachable").ends_with(" -1 ns"),
        "{out}"
    );
    // Neither of them is a robots.txt.
    assert_eq!(out.lines().count(), 3, "{out}");
    assert_eq!(out.lines().last(), Some("finished"));
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
fn a_setting_whose_value_is_a_url_is_a_setting_of_the_examples() {
    let cpp = Path::new(env!("CARGO_TARGET_TMPDIR")).join("proxied-cpp");
    let made = Command::new("g++")
        .arg("-std=c++17")
        .arg("-I")
        .arg(Path::new(HOME).join("include"))
        .arg(Path::new(HOME).join("examples/crawl.cpp"))
        .arg(libraries().join("libargiope_c.a"))
        .args(["-lpthread", "-lm", "-ldl", "-o"])
        .arg(&cpp)
        .output()
        .expect("g++ is installed");
    assert!(made.status.success(), "{}", text_of(&made.stderr));
    let c = compiled("proxied", &Path::new(HOME).join("examples/crawl.c"));
    for program in [c, cpp] {
        let (port, asked) = serve();
        let ran = Command::new(&program)
            .args(["ALLOW_NET=loopback", "ROBOTSTXT_OBEY=false"])
            .arg(format!("PROXY=http://127.0.0.1:{port}"))
            .arg("http://a.test/?x=http://b.test/")
            .output()
            .expect("it runs");
        let (out, err) = (text_of(&ran.stdout), text_of(&ran.stderr));
        assert!(ran.status.success(), "{out}{err}");
        let asked = asked.lock().expect("no panic").clone();
        assert_eq!(asked, ["http://a.test/?x=http://b.test/"], "{out}{err}");
    }
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
                    targets.lock().expect("no panic").push(target);
                    lines.by_ref().find(String::is_empty);
                    let reply: &[u8] = match is_robots {
                        true => b"HTTP/1.1 404 So\r\nContent-Length: 0\r\n\r\n",
                        false => {
                            b"HTTP/1.1 200 So\r\ncontent-type: text/plain\r\n\
                              Content-Length: 6\r\n\r\na page"
                        }
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

/// The folder with the libraries that cargo built with this test.
fn libraries() -> PathBuf {
    let test = env::current_exe().expect("this runs");
    let beside = test.parent().expect("a folder");
    let mut folders = [beside, beside.parent().expect("a folder")].into_iter();
    let folder = folders.find(|folder| folder.join("libargiope_c.a").exists());
    folder
        .expect("cargo builds the library with its tests")
        .to_owned()
}

/// Compiles a program and links it with the library that cargo built with this test.
fn compiled(name: &str, source: &Path) -> PathBuf {
    let library = libraries().join("libargiope_c.a");
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
